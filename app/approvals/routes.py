"""Approvals over HTTP: the only place where anything is approved."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from plangate.events import ApprovalInfo
from plangate.spec.base import at_most
from plangate.statuses import ApprovalStatus
from pydantic import Field

from app.approvals import grants, store, views
from app.approvals.models import Decision
from app.approvals.service import ApprovalService
from app.base.errors import Conflict, FieldError, Forbidden, Invalid, NotFound
from app.base.responses import to_wire
from app.tenancy.http import Body, GatedRoute, Operation, Paging, Reading, operation, service
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["approvals"])

ApprovalId = Annotated[str, Path(max_length=100)]
Approvals = Annotated[ApprovalService, service("approvals")]
Deciding = Annotated[Operation, operation("approvals:decide")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Decide(Body):
    """A decision. `approve` requires `digest`, the SHA-256 of the subject that the approver saw
    (`GET /approvals/{id}/subject`): what you saw is what you approve. With another decision it may be left out.

    With `approve`, for tools: `args` replaces the arguments, literally. They must match the tool's input schema, and
    make another subject with another digest; votes so far are void. `scope` asks for the approval to be remembered
    in this thread, where the rule allows it (`GET /grants`)."""

    decision: Literal["approve", "reject", "revise"]
    """`revise` asks for another plan; of a tool call it is a rejection with feedback."""
    feedback: Annotated[str, Field(max_length=20_000)] | None = None
    """What the agent is told."""
    partial: Any = None
    args: dict[str, Any] | None = None
    """With `approve`, for tools: takes the place of the call's arguments, as it is."""
    digest: Digest | None = None
    """The SHA-256 of the subject that the approver saw, in hex. Required with `approve`."""
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
    """The id of the approval."""


class DecideMany(Body):
    decisions: Annotated[list[DecideOne], Field(min_length=1), at_most(100)]
    """The decisions: all are taken, or none."""


@router.get("/approvals", summary="The inbox: approvals, newest first", response_model=views.ApprovalPage)
async def list_approvals(
    op: Reading,
    approvals: Approvals,
    page: Paging,
    status: ApprovalStatus | None = None,
    query_id: Annotated[str | None, Query(alias="queryId", max_length=100)] = None,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    kind: Literal["plan", "tool"] | None = None,
) -> Response:
    rows = await approvals.page(op.tx, page.last("approvals"), [status, query_id, thread_id, kind], page.rows)
    return await op.respond(page.body([r.wire() for r in rows], "id"))


@router.get("/approvals/{approval_id}", summary="One approval", response_model=ApprovalInfo)
async def read_approval(approval_id: ApprovalId, op: Reading, approvals: Approvals) -> Response:
    return await op.respond((await approvals.read(op.tx, approval_id)).wire())


@router.get(
    "/approvals/{approval_id}/subject",
    summary="The exact bytes that are approved; their SHA-256 is the digest",
    response_model=views.Subject,
)
async def read_approval_subject(approval_id: ApprovalId, op: Reading, approvals: Approvals) -> Response:
    return await op.respond(await approvals.subject(op.tx, approval_id))


@router.post(
    "/approvals/{approval_id}",
    summary="Decide: approve, reject or revise",
    description="Of any number of decisions one wins. The same decision again by the same principal gives the first "
    "answer; a different one is a 409 that shows the winner.",
    response_model=ApprovalInfo,
)
async def decide_approval(
    approval_id: ApprovalId,
    body: Decide,
    op: Deciding,
    approvals: Approvals,
) -> Response:
    return await op.respond((await approvals.decide(op.tx, approval_id, body.by(op.caller))).wire())


@router.post("/approvals", summary="Decide many, all or nothing", response_model=views.DecidedApprovals)
async def decide_approvals(
    body: DecideMany,
    op: Deciding,
    approvals: Approvals,
) -> Response:
    ids = [d.id for d in body.decisions]
    twice = next((n for n, id in enumerate(ids) if id in ids[:n]), None)
    if twice is not None:
        raise Invalid(
            "The request names an approval twice.", [FieldError(f"/decisions/{twice}/id", ids[twice])]
        )
    done: dict[str, Any] = {}
    await approvals.lock_queries(op.tx, ids)
    for n in sorted(range(len(ids)), key=lambda n: ids[n]):  # one order of locks for everybody
        one = body.decisions[n]
        try:
            row = await approvals.decide(op.tx, one.id, one.by(op.caller))
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
    return await op.respond({"approvals": [done[id] for id in ids]})


@router.get("/grants", summary="Remembered approvals, newest first", response_model=views.GrantPage)
async def list_grants(
    op: Reading,
    page: Paging,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    agent: Annotated[str | None, Query(max_length=100)] = None,
    tool: Annotated[str | None, Query(max_length=100)] = None,
    active: Annotated[bool | None, Query(description="Neither revoked nor past its time.")] = None,
) -> Response:
    rows = await store.grants(op.tx, page.last("grants"), thread_id, agent, tool, active, page.rows)
    return await op.respond(page.body([to_wire(views.GrantView, row) for row in rows], "id"))


@router.delete(
    "/grants/{grant_id}",
    summary="Revoke a remembered approval: the next such call asks again",
    response_model=views.GrantView,
)
async def revoke_grant(
    grant_id: Annotated[str, Path(max_length=100)],
    op: Deciding,
) -> Response:
    return await op.respond(
        to_wire(views.GrantView, await grants.revoke(op.tx, grant_id, op.caller.principal))
    )
