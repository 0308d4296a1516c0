"""Approvals over HTTP: the only place where anything is approved."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from plangate.events import ApprovalInfo
from plangate.spec.base import at_most
from pydantic import Field, JsonValue

from app.approvals import grants, store, views
from app.approvals.models import Decision
from app.approvals.service import ApprovalService
from app.base.errors import Conflict, FieldError, Forbidden, Invalid, NotFound
from app.base.postgres.database import Tx
from app.tenancy.http import (
    Body,
    Cursor,
    GatedRoute,
    Limit,
    Reply,
    answer,
    before,
    calling,
    door_of,
    page,
    reading,
)
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["approvals"])

ApprovalId = Annotated[str, Path(max_length=100)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Decide(Body):
    """A decision. `digest`, where it is given, must be that of the approval: what you saw is what you approve.

    With `approve`, for tools: `args` replaces the arguments, literally. They must match the tool's input schema, and
    make another subject with another digest; votes so far are void. `scope` asks for the approval to be remembered
    in this thread, where the rule allows it (`GET /grants`)."""

    decision: Literal["approve", "reject", "revise"]
    feedback: Annotated[str, Field(max_length=20_000)] | None = None
    partial: Any = None
    args: dict[str, Any] | None = None
    digest: Digest | None = None
    scope: Literal["thread"] | None = None

    def by(self, caller: Caller) -> Decision:
        return Decision(
            self.decision,
            caller.principal,
            caller.key_id,
            self.feedback,
            self.partial,
            self.digest,
            self.args,
            self.scope,
        )


class DecideOne(Decide):
    id: Annotated[str, Field(max_length=100)]


class DecideMany(Body):
    decisions: Annotated[list[DecideOne], Field(min_length=1), at_most(100)]


def approvals_of(request: Request) -> ApprovalService:
    approvals: ApprovalService = request.app.state.services.approvals
    return approvals


@router.get("/approvals", summary="The inbox: approvals, newest first", response_model=views.ApprovalPage)
async def list_approvals(
    request: Request,
    caller: Annotated[Caller, calling("read")],
    limit: Limit = 50,
    cursor: Cursor = None,
    status: Literal["pending", "approved", "rejected", "revised", "expired", "cancelled"] | None = None,
    query_id: Annotated[str | None, Query(alias="queryId", max_length=100)] = None,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    kind: Literal["plan", "tool"] | None = None,
) -> Response:
    position = before(request, "approvals", cursor)

    async def listed(tx: Tx) -> Any:
        rows = await approvals_of(request).page(
            tx, str(position[0]) if position else None, [status, query_id, thread_id, kind], limit + 1
        )
        return page(request, "approvals", [r.wire() for r in rows], limit, lambda r: [r["id"]])

    return await reading(request, caller, listed)


@router.get("/approvals/{approval_id}", summary="One approval", response_model=ApprovalInfo)
async def read_approval(
    request: Request, approval_id: ApprovalId, caller: Annotated[Caller, calling("read")]
) -> Response:
    async def read(tx: Tx) -> Any:
        return (await approvals_of(request).read(tx, approval_id)).wire()

    return await reading(request, caller, read)


@router.get(
    "/approvals/{approval_id}/subject",
    summary="The exact bytes that are approved; their SHA-256 is the digest",
    response_model=dict[str, JsonValue],
)
async def approval_subject(
    request: Request, approval_id: ApprovalId, caller: Annotated[Caller, calling("read")]
) -> Response:
    async with door_of(request).db.transaction(caller.tenant) as tx:
        subject = await approvals_of(request).subject(tx, approval_id)
    return Response(subject, media_type="application/json")


@router.post(
    "/approvals/{approval_id}",
    summary="Decide: approve, reject or revise",
    description="Of any number of decisions one wins. The same decision again by the same principal gives the first "
    "answer; a different one is a 409 that shows the winner.",
    response_model=ApprovalInfo,
)
async def decide(
    request: Request,
    approval_id: ApprovalId,
    body: Decide,
    caller: Annotated[Caller, calling("approvals:decide")],
) -> Response:
    async def deciding(tx: Tx) -> Reply:
        return Reply((await approvals_of(request).decide(tx, approval_id, body.by(caller))).wire())

    return await answer(request, caller, deciding)


@router.post("/approvals", summary="Decide many, all or nothing", response_model=views.DecidedApprovals)
async def decide_many(
    request: Request, body: DecideMany, caller: Annotated[Caller, calling("approvals:decide")]
) -> Response:
    ids = [d.id for d in body.decisions]
    twice = next((n for n, id in enumerate(ids) if id in ids[:n]), None)
    if twice is not None:
        raise Invalid(
            "The request names an approval twice.", [FieldError(f"/decisions/{twice}/id", ids[twice])]
        )

    async def deciding(tx: Tx) -> Reply:
        done: dict[str, Any] = {}
        approvals = approvals_of(request)
        await approvals.lock_queries(tx, ids)
        for n in sorted(range(len(ids)), key=lambda n: ids[n]):  # one order of locks for everybody
            one = body.decisions[n]
            try:
                row = await approvals.decide(tx, one.id, one.by(caller))
            except Conflict as error:
                raise Conflict(f"{one.id}: {error.detail} Nothing was decided.", extra=error.extra) from error
            except Forbidden as error:
                raise Forbidden(f"{one.id}: {error.detail} Nothing was decided.") from error
            except NotFound as error:
                raise NotFound(f"{error.detail} Nothing was decided.") from error
            except Invalid as error:
                flaws = [FieldError(f"/decisions/{n}{f.pointer}", f.message) for f in error.errors]
                raise Invalid(f"{one.id}: {error.detail} Nothing was decided.", flaws) from error
            done[one.id] = row.wire()
        return Reply({"approvals": [done[id] for id in ids]})

    return await answer(request, caller, deciding)


@router.get("/grants", summary="Remembered approvals, newest first", response_model=views.GrantPage)
async def list_grants(
    request: Request,
    caller: Annotated[Caller, calling("read")],
    limit: Limit = 50,
    cursor: Cursor = None,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    agent: Annotated[str | None, Query(max_length=100)] = None,
    tool: Annotated[str | None, Query(max_length=100)] = None,
    active: Annotated[bool | None, Query(description="Neither revoked nor past its time.")] = None,
) -> Response:
    position = before(request, "grants", cursor)

    async def listed(tx: Tx) -> Any:
        rows = await store.grants(
            tx, str(position[0]) if position else None, thread_id, agent, tool, active, limit + 1
        )
        return page(request, "grants", [r.wire() for r in rows], limit, lambda r: [r["id"]])

    return await reading(request, caller, listed)


@router.delete(
    "/grants/{grant_id}",
    summary="Revoke a remembered approval: the next such call asks again",
    response_model=views.GrantView,
)
async def revoke_grant(
    request: Request,
    grant_id: Annotated[str, Path(max_length=100)],
    caller: Annotated[Caller, calling("approvals:decide")],
) -> Response:
    async def revoke(tx: Tx) -> Any:
        return (await grants.revoke(tx, grant_id, caller.principal)).wire()

    return await reading(request, caller, revoke)
