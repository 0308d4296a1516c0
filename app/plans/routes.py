"""Routes of plans: read and settle, and for hosts store and execute without a model."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from plangate.statuses import PlanStatus, UnapprovedStatus
from pydantic import Field, model_validator

from app.approvals.service import ApprovalService
from app.base.json.offload import offload
from app.base.responses import to_wire
from app.plans import settlement, views
from app.plans.drawing import draw_plan
from app.plans.host import HostPlanService
from app.plans.models import DECISIONS, ActionState, Plan
from app.plans.service import PlanService
from app.plans.store import PlanFilter
from app.plans.stored_values import MAX_PAGE_CHARS, value_page
from app.tenancy.http import (
    GatedRoute,
    Operation,
    OrderedPaging,
    Paging,
    ReadOperation,
    begin,
    json_response,
    operation,
    page_of,
    raise_if_repeated,
    require_scope,
    service,
    traceparent_of,
)
from app.tenancy.models import Caller
from app.tenancy.request_body import Body
from app.variables.values import MAX_PATH_CHARS

router = APIRouter(route_class=GatedRoute, tags=["plans"])

PlanId = Annotated[str, Path(max_length=100)]
RevisionNumber = Annotated[int, Path(ge=1, le=1_000_000)]
Plans = Annotated[PlanService, service("plans")]
Host = Annotated[HostPlanService, service("host_plans")]
Writer = Annotated[Caller, require_scope("plans:write")]

MERMAID = "text/vnd.mermaid"


class FlowchartResponse(Response):
    media_type = MERMAID


class Settle(Body):
    """The settlement of an action with an unknown outcome; `retry` sends it again with the same key."""

    outcome: settlement.Settlement
    """What became of the action; `retry` sends it again under the same key."""
    details: Any = None
    """What is known about it."""


class StorePlan(Body):
    """A plan that a host stores. The thread is named by id or by a key of your own; without either a new one is made."""

    spec_name: Annotated[str, Field(max_length=100)]
    body: dict[str, Any]
    """The plan: its actions, and what else the spec allows."""
    runtime_id: Annotated[str, Field(max_length=100)] | None = None
    """The id of the version of the runtime; or name it by `runtime`."""
    runtime: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    plan_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The caller's own key of the plan, unique in its thread."""
    thread_id: Annotated[str, Field(max_length=100)] | None = None
    thread_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None

    @model_validator(mode="after")
    def _one_name_each(self) -> StorePlan:
        if self.runtime_id is not None and self.runtime is not None:
            raise ValueError("name the runtime by runtimeId or by runtime, not both")
        if self.thread_id is not None and self.thread_key is not None:
            raise ValueError("name the thread by threadId or by threadKey, not both")
        return self


class ExecutePlan(Body):
    """The inputs of this execution, and the thread in which it runs, if not the plan's own."""

    inputs: dict[str, Any] | None = None
    thread_id: Annotated[str, Field(max_length=100)] | None = None
    thread_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None

    @model_validator(mode="after")
    def _one_thread(self) -> ExecutePlan:
        if self.thread_id is not None and self.thread_key is not None:
            raise ValueError("name the thread by threadId or by threadKey, not both")
        return self


@router.post(
    "/plans",
    status_code=201,
    summary="Store a plan without a model",
    description="The same `planId` in the same thread makes the next revision of a draft.",
    response_model=views.PlanView,
)
async def store_plan(request: Request, body: StorePlan, caller: Writer, host: Host) -> Response:
    await raise_if_repeated(request, caller)
    place = {
        "runtime_id": body.runtime_id,
        "runtime": body.runtime,
        "thread_id": body.thread_id,
        "thread_key": body.thread_key,
    }
    await host.prepare_store(caller.tenant, spec_name=body.spec_name, **place)
    async with begin(request, caller) as op:
        plan = await host.store(
            op.tx, caller, spec_name=body.spec_name, body=body.body, key=body.plan_id, **place
        )
        return await op.respond(to_wire(views.PlanView, plan), 201, f"/plans/{plan.id}", plan.id)


@router.post(
    "/plans/{plan_id}/execute",
    status_code=202,
    summary="Execute a plan through its gate, as a query",
    description="A plan that was ever approved runs once: executing it again, or in another thread, executes a copy.",
    response_model=views.AcceptedPlan,
)
async def execute_plan(
    request: Request, plan_id: PlanId, body: ExecutePlan, caller: Writer, host: Host
) -> Response:
    await raise_if_repeated(request, caller)
    await host.prepare_execute(caller.tenant, plan_id)
    async with begin(request, caller) as op:
        accepted, executed = await host.execute(
            op.tx, caller, plan_id, body.inputs, body.thread_id, body.thread_key, traceparent_of(request)
        )
        response = to_wire(views.AcceptedPlan, accepted, plan_id=executed)
        return await op.respond(response, 202, response["links"]["self"], accepted.id)


@router.get(
    "/plans",
    summary="List plans, newest first",
    description="A page examines the newest 2,000 plans at most, and those of one thread if `threadId` is given. It ends "
    "with 4 MiB. It may be short or empty although there are more: follow `nextCursor` until it is null.",
    response_model=views.PlanPage,
)
async def list_plans(
    op: ReadOperation,
    plans: Plans,
    page: Paging,
    status: PlanStatus | None = None,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    spec_name: Annotated[str | None, Query(alias="specName", max_length=100)] = None,
    decision: Annotated[
        UnapprovedStatus | None,
        Query(description="Only plans whose current revision was rejected, or sent back to be revised."),
    ] = None,
) -> Response:
    filters = PlanFilter(
        status=status,
        thread_id=thread_id,
        spec_name=spec_name,
        decision=None if decision is None else DECISIONS[decision],
    )
    rows, last = await plans.page(op.tx, page.last("plans"), page.limit, filters)
    return await op.respond(page.body_until([to_wire(views.PlanView, plan) for plan in rows], last))


@router.get("/plans/{plan_id}", summary="A plan at its current revision", response_model=views.PlanView)
async def read_plan(plan_id: PlanId, op: ReadOperation, plans: Plans) -> Response:
    return await op.respond(to_wire(views.PlanView, await plans.load(op.tx, None, plan_id)))


@router.get(
    "/plans/{plan_id}/revisions",
    summary="List the revisions of a plan without their bodies, newest first",
    response_model=views.RevisionPage,
)
async def list_plan_revisions(plan_id: PlanId, op: ReadOperation, plans: Plans, page: Paging) -> Response:
    position = page.position(f"revisions {plan_id}")
    before = None if position is None else int(position[0])
    revisions, last = await plans.revisions(op.tx, plan_id, before, page.limit)
    return await op.respond(
        page.body_until([to_wire(views.ListedRevision, revision) for revision in revisions], last)
    )


@router.get(
    "/plans/{plan_id}/revisions/{revision}",
    summary="Read a revision of a plan",
    response_model=views.RevisionView,
)
async def read_plan_revision(
    plan_id: PlanId, revision: RevisionNumber, op: ReadOperation, plans: Plans
) -> Response:
    return await op.respond(to_wire(views.RevisionView, await plans.revision(op.tx, plan_id, revision)))


@router.get(
    "/plans/{plan_id}/revisions/{revision}/changes",
    summary="What changed since an earlier revision",
    description="Actions match by the fields that the plan declares in `actionKeys`, else if they are equal, by the longest "
    "common sequence, and between equal ones by kind and order. Every difference of a match is listed; if there are more than "
    "10,000, or their pointers have more than 1 MiB, further pairs have one difference with both values.",
    response_model=views.RevisionChanges,
)
async def read_revision_changes(
    request: Request,
    plan_id: PlanId,
    revision: RevisionNumber,
    caller: Annotated[Caller, require_scope("read")],
    plans: Plans,
    from_: Annotated[
        int | None,
        Query(
            alias="from", ge=1, le=1_000_000, description="The earlier revision; without it, the one before."
        ),
    ] = None,
) -> Response:
    async with begin(request, caller) as op:
        pair = await plans.revision_pair(op.tx, plan_id, earlier=from_, later=revision)
    return json_response(await plans.changes(pair))


@router.get(
    "/approvals/{approval_id}/values",
    summary="Read a value that was stored for an approval, in full",
    description="`path` is a variable of the subject, or a path below it. The JSON comes in pages of `limit` characters.",
    response_model=views.StoredValuePage,
)
async def read_approval_value(
    request: Request,
    approval_id: Annotated[str, Path(max_length=100)],
    caller: Annotated[Caller, require_scope("read")],
    plans: Plans,
    approvals: Annotated[ApprovalService, service("approvals")],
    path: Annotated[str, Query(max_length=MAX_PATH_CHARS, description="Such as `†state.rows`.")],
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_CHARS, description="How many characters.")] = 16_384,
    cursor: Annotated[
        str | None, Query(max_length=4096, description="`nextCursor` of the page before.")
    ] = None,
) -> Response:
    page = page_of(request, limit, cursor)
    position = page.position(f"values {approval_id} {path}")
    async with begin(request, caller) as op:
        approval = await approvals.read(op.tx, approval_id)
        subject = await approvals.subject(op.tx, approval_id)
        documents = await plans.stored_documents(op.tx, approval.work_id)
    start = 0 if position is None else int(position[0])
    part = await offload(
        value_page, subject, documents, path, start, limit, size=len(subject) + documents.size
    )
    following = page.body_until([], part.end)["nextCursor"]
    return json_response(to_wire(views.StoredValuePage, part, next_cursor=following))


@router.get(
    "/plans/{plan_id}/transitions",
    summary="Every change of its status, by whom and why, oldest first",
    response_model=views.TransitionPage,
)
async def list_plan_transitions(
    plan_id: PlanId, op: ReadOperation, plans: Plans, page: OrderedPaging
) -> Response:
    position = page.position(f"transitions {plan_id}")
    after = 0 if position is None else int(position[0])
    changes, last = await plans.transitions(op.tx, plan_id, after, page.limit)
    return await op.respond(
        page.body_until([to_wire(views.TransitionView, change) for change in changes], last)
    )


@router.get(
    "/plans/{plan_id}/actions",
    summary="Its actions in order: status, attempts, results",
    description="A page ends with 4 MiB of results: it may have fewer than `limit` although there are more.",
    response_model=views.ActionPage,
)
async def list_plan_actions(
    plan_id: PlanId, op: ReadOperation, plans: Plans, page: OrderedPaging
) -> Response:
    position = page.position(f"actions {plan_id}")
    after = -1 if position is None else int(position[0])
    actions, last = await plans.actions(op.tx, plan_id, after, page.limit)
    return await op.respond(page.body_until(actions, last))


@router.get(
    "/plans/{plan_id}/graph",
    summary="Read which action of a plan waits for which",
    response_model=views.GraphView,
)
async def read_plan_graph(
    request: Request,
    plan_id: PlanId,
    caller: Annotated[Caller, require_scope("read")],
    plans: Plans,
) -> Response:
    if MERMAID in request.headers.get("accept", ""):
        chart = await draw_plan_graph(request, plan_id, caller, plans)
        chart.headers["Vary"] = "Accept"
        return chart
    plan, states = await _load_plan(request, plan_id, caller, plans)
    # In a thread: a plan may have a thousand actions.
    response = await asyncio.to_thread(lambda: json_response(draw_plan(plan, states).wire()))
    response.headers["Vary"] = "Accept"
    return response


@router.get(
    "/plans/{plan_id}/graph.mmd",
    summary="Draw a plan as a Mermaid flowchart",
    response_model=str,
    response_class=FlowchartResponse,
    response_description="The flowchart.",
)
async def draw_plan_graph(
    request: Request,
    plan_id: PlanId,
    caller: Annotated[Caller, require_scope("read")],
    plans: Plans,
) -> Response:
    plan, states = await _load_plan(request, plan_id, caller, plans)
    text = await asyncio.to_thread(lambda: draw_plan(plan, states).mermaid())
    return FlowchartResponse(text)


async def _load_plan(
    request: Request, plan_id: str, caller: Caller, plans: PlanService
) -> tuple[Plan, list[ActionState]]:
    async with begin(request, caller) as op:
        return await plans.with_action_states(op.tx, plan_id)


@router.post(
    "/plans/{plan_id}/actions/{index}",
    summary="Settle an action whose outcome is unknown",
    response_model=views.ActionView,
)
async def settle_action(
    plan_id: PlanId,
    index: Annotated[int, Path(ge=0, le=100_000)],
    body: Settle,
    op: Annotated[Operation, operation("plans:settle")],
    plans: Plans,
) -> Response:
    return await op.respond(
        await settlement.settle(plans, op.tx, plan_id, index, body.outcome, body.details, op.caller.principal)
    )
