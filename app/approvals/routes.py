"""Routes of approvals and grants: the only place where anything is approved."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from plangate.spec.base import at_most
from plangate.statuses import ApprovalStatus
from pydantic import Field

from app.approvals import grants, store, views
from app.approvals.models import Decision, GateKind
from app.approvals.service import ApprovalService
from app.approvals.store import ApprovalFilter, GrantFilter
from app.base.errors import Conflict, FieldError, Forbidden, Invalid, NotFound
from app.base.responses import to_wire
from app.events import ApprovalComment, ApprovalInfo
from app.tenancy.http import (
    GatedRoute,
    Moment,
    Operation,
    Paging,
    ReadOperation,
    begin,
    operation,
    require_scope,
    service,
)
from app.tenancy.models import Caller
from app.tenancy.request_body import Body

router = APIRouter(route_class=GatedRoute, tags=["approvals"])

ApprovalId = Annotated[str, Path(max_length=100)]
Approvals = Annotated[ApprovalService, service("approvals")]
Deciding = Annotated[Operation, operation("approvals:decide")]
Decider = Annotated[Caller, require_scope("approvals:decide")]
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
    """The feedback that the agent receives."""
    partial: Any = None
    args: dict[str, Any] | None = None
    """With `approve`, for tools: takes the place of the call's arguments, as it is."""
    digest: Digest | None = None
    """The SHA-256 of the subject that the approver saw, in hex. Required with `approve`."""
    scope: Literal["thread"] | None = None

    def by(self, caller: Caller) -> Decision:
        """Return the decision of the caller."""
        return Decision(
            decision=self.decision,
            by=caller.principal,
            key_id=caller.key_id,
            feedback=self.feedback,
            partial=self.partial,
            digest=self.digest,
            args=self.args,
            scope=self.scope,
        )


class PostComment(Body):
    """A comment for the other people who decide. It is never sent to a model."""

    text: Annotated[str, Field(min_length=1, max_length=10_000, pattern=r"\S")]
    """The comment; not blank."""


class DecideOne(Decide):
    id: Annotated[str, Field(max_length=100)]
    """The id of the approval."""


class DecideMany(Body):
    decisions: Annotated[list[DecideOne], Field(min_length=1), at_most(100)]
    """The decisions: all are taken, or none."""


@router.get(
    "/approvals",
    summary="The inbox: approvals, newest first",
    description="A page examines the newest 2,000 approvals at most, 500 with `text`, and those of one query if "
    "`queryId` is given. It may be short or empty although there are more: follow `nextCursor` until it is null.",
    response_model=views.ApprovalPage,
)
async def list_approvals(
    op: ReadOperation,
    approvals: Approvals,
    page: Paging,
    status: ApprovalStatus | None = None,
    query_id: Annotated[str | None, Query(alias="queryId", max_length=100)] = None,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    kind: GateKind | None = None,
    agent: Annotated[str | None, Query(max_length=100)] = None,
    tool: Annotated[str | None, Query(max_length=100, description="The tool of a call.")] = None,
    runtime: Annotated[str | None, Query(max_length=100, description="The name of a runtime.")] = None,
    requester: Annotated[
        str | None, Query(max_length=200, description="The principal that asked for the query.")
    ] = None,
    from_: Annotated[Moment | None, Query(alias="from", description="Requested then or later.")] = None,
    to: Annotated[Moment | None, Query(description="Requested before.")] = None,
    can_decide: Annotated[
        bool,
        Query(
            alias="canDecide",
            description="Only pending approvals that you can decide or vote on: your key has the scope "
            "`approvals:decide`, the rule does not exclude you as the requester, and neither you nor your key has voted.",
        ),
    ] = False,
    text: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=200,
            description="In target, agent, requester, feedback, or glimpses of at most 64 KiB.",
        ),
    ] = None,
) -> Response:
    if can_decide and status not in (None, "pending"):
        raise Invalid(
            "Only pending approvals can be decided.",
            [FieldError("query:canDecide", f"cannot be combined with status={status}")],
        )
    filters = ApprovalFilter(
        status="pending" if can_decide else status,
        query_id=query_id,
        thread_id=thread_id,
        kind=kind,
        agent=agent,
        tool=tool,
        runtime=runtime,
        requester=requester,
        since=from_,
        before=to,
        text=text,
    )
    decider = op.caller if can_decide else None
    rows, last = await approvals.page(op.tx, page.last("approvals"), page.limit, filters, decider)
    return await op.respond(page.body_until([r.wire() for r in rows], last))


@router.get(
    "/approvals/counts",
    summary="How many approvals are pending",
    response_model=views.PendingCountsView,
)
async def count_pending_approvals(op: ReadOperation, approvals: Approvals) -> Response:
    return await op.respond(to_wire(views.PendingCountsView, await approvals.count_pending(op.tx, op.caller)))


@router.get("/approvals/{approval_id}", summary="One approval", response_model=ApprovalInfo)
async def read_approval(approval_id: ApprovalId, op: ReadOperation, approvals: Approvals) -> Response:
    return await op.respond((await approvals.read(op.tx, approval_id)).wire())


@router.get(
    "/approvals/{approval_id}/subject",
    summary="The exact bytes that are approved; their SHA-256 is the digest",
    response_model=views.Subject,
)
async def read_approval_subject(approval_id: ApprovalId, op: ReadOperation, approvals: Approvals) -> Response:
    return await op.respond(await approvals.subject(op.tx, approval_id))


@router.get(
    "/approvals/{approval_id}/comments",
    summary="Comments on an approval, newest first",
    response_model=views.CommentPage,
)
async def list_approval_comments(
    approval_id: ApprovalId, op: Deciding, approvals: Approvals, page: Paging
) -> Response:
    after = page.last(f"comments {approval_id}")
    comments, last = await approvals.comments(op.tx, approval_id, after, page.limit)
    return await op.respond(page.body_until([comment.wire() for comment in comments], last))


@router.post(
    "/approvals/{approval_id}/comments",
    status_code=201,
    summary="Comment on an approval",
    response_model=ApprovalComment,
)
async def post_approval_comment(
    approval_id: ApprovalId, body: PostComment, op: Deciding, approvals: Approvals
) -> Response:
    comment = await approvals.comment(op.tx, approval_id, op.caller.principal, body.text)
    return await op.respond(comment.wire(), 201, f"/approvals/{approval_id}/comments")


@router.post(
    "/approvals/{approval_id}",
    summary="Decide: approve, reject or revise",
    description="If several people decide at once, the first decision wins. The same decision again by the same "
    "principal gives the first answer; a different one is a 409 that shows the winner.",
    response_model=ApprovalInfo,
)
async def decide_approval(
    request: Request,
    approval_id: ApprovalId,
    body: Decide,
    caller: Decider,
    approvals: Approvals,
) -> Response:
    decision = body.by(caller)
    schemas = await approvals.compile_schemas(caller.tenant, {approval_id: decision})
    async with begin(request, caller) as op:
        row = await approvals.decide(op.tx, approval_id, decision, schemas.get(approval_id))
        return await op.respond(row.wire())


@router.post("/approvals", summary="Decide many, all or nothing", response_model=views.DecidedApprovals)
async def decide_approvals(
    request: Request,
    body: DecideMany,
    caller: Decider,
    approvals: Approvals,
) -> Response:
    ids = [d.id for d in body.decisions]
    repeated = next((n for n, id in enumerate(ids) if id in ids[:n]), None)
    if repeated is not None:
        raise Invalid(
            "The request names an approval twice.", [FieldError(f"/decisions/{repeated}/id", ids[repeated])]
        )
    decisions = {d.id: d.by(caller) for d in body.decisions}
    schemas = await approvals.compile_schemas(caller.tenant, decisions)
    decided: dict[str, Any] = {}
    async with begin(request, caller) as op:
        await approvals.lock_queries(op.tx, ids)
        for id in sorted(ids):  # all requests lock in one order
            try:
                row = await approvals.decide(op.tx, id, decisions[id], schemas.get(id))
            except Conflict as error:
                raise Conflict(f"{id}: {error.detail} Nothing was decided.", extra=error.extra) from error
            except Forbidden as error:
                raise Forbidden(f"{id}: {error.detail} Nothing was decided.") from error
            except NotFound as error:
                raise NotFound(f"{error.detail} Nothing was decided.") from error
            except Invalid as error:
                errors = [
                    FieldError(f"/decisions/{ids.index(id)}{e.pointer}", e.message) for e in error.errors
                ]
                raise Invalid(f"{id}: {error.detail} Nothing was decided.", errors) from error
            decided[id] = row.wire()
        return await op.respond({"approvals": [decided[id] for id in ids]})


@router.get(
    "/grants",
    summary="Remembered approvals, newest first",
    description="A page examines the newest 2,000 grants at most, and those of one thread if `threadId` is given. It may be "
    "short or empty although there are more: follow `nextCursor` until it is null.",
    response_model=views.GrantPage,
)
async def list_grants(
    op: ReadOperation,
    page: Paging,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    agent: Annotated[str | None, Query(max_length=100)] = None,
    tool: Annotated[str | None, Query(max_length=100)] = None,
    active: Annotated[bool | None, Query(description="Neither revoked nor past its time.")] = None,
) -> Response:
    filters = GrantFilter(thread_id=thread_id, agent=agent, tool=tool, active=active)
    rows, last = await store.grants(op.tx, after=page.last("grants"), limit=page.limit, filters=filters)
    return await op.respond(page.body_until([to_wire(views.GrantView, row) for row in rows], last))


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
