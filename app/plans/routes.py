"""Plans over HTTP: reading, settling, and for hosts storing and executing without a model."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from plangate.statuses import PlanStatus
from pydantic import Field, model_validator

from app.base.responses import to_wire
from app.plans import settlement, views
from app.plans.drawing import draw_plan
from app.plans.host import HostPlanService
from app.plans.models import DECISIONS
from app.plans.service import PlanService
from app.tenancy.http import (
    Body,
    GatedRoute,
    Operation,
    Paging,
    Reading,
    begin,
    calling,
    json_response,
    operation,
    service,
    traceparent_of,
    whole_list,
)
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["plans"])

PlanId = Annotated[str, Path(max_length=100)]
Plans = Annotated[PlanService, service("plans")]
Host = Annotated[HostPlanService, service("host_plans")]
Writing = Annotated[Operation, operation("plans:write")]

MERMAID = "text/vnd.mermaid"


class FlowchartResponse(Response):
    media_type = MERMAID


class Settle(Body):
    """What became of an action whose outcome is unknown; `retry` sends it again under the same key."""

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
async def store_plan(body: StorePlan, op: Writing, host: Host) -> Response:
    plan = await host.store(
        op.tx,
        op.caller,
        spec_name=body.spec_name,
        body=body.body,
        key=body.plan_id,
        runtime_id=body.runtime_id,
        runtime=body.runtime,
        thread_id=body.thread_id,
        thread_key=body.thread_key,
    )
    return await op.respond(to_wire(views.PlanView, plan), 201, f"/plans/{plan.id}", plan.id)


@router.post(
    "/plans/{plan_id}/execute",
    status_code=202,
    summary="Execute a plan through its gate, as a query",
    description="A plan that was ever approved runs once: executing it again, or in another thread, executes a copy.",
    response_model=views.AcceptedPlan,
)
async def execute_plan(plan_id: PlanId, body: ExecutePlan, op: Writing, host: Host) -> Response:
    accepted, executed = await host.execute(
        op.tx, op.caller, plan_id, body.inputs, body.thread_id, body.thread_key, traceparent_of(op.request)
    )
    made = to_wire(views.AcceptedPlan, accepted, plan_id=executed)
    return await op.respond(made, 202, made["links"]["self"], accepted.id)


@router.get("/plans", summary="List plans, newest first", response_model=views.PlanPage)
async def list_plans(
    op: Reading,
    plans: Plans,
    page: Paging,
    status: PlanStatus | None = None,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    spec_name: Annotated[str | None, Query(alias="specName", max_length=100)] = None,
    decision: Annotated[
        Literal["rejected", "revised"] | None,
        Query(description="Only plans whose current revision was rejected, or sent back to be revised."),
    ] = None,
) -> Response:
    decided = None if decision is None else DECISIONS[decision]
    rows = await plans.page(op.tx, page.last("plans"), [status, thread_id, spec_name, decided], page.rows)
    return await op.respond(page.body(rows, "id"))


@router.get("/plans/{plan_id}", summary="A plan at its current revision", response_model=views.PlanView)
async def read_plan(plan_id: PlanId, op: Reading, plans: Plans) -> Response:
    return await op.respond(to_wire(views.PlanView, await plans.named(op.tx, None, plan_id)))


@router.get(
    "/plans/{plan_id}/revisions",
    summary="Every revision that was stored",
    response_model=views.RevisionList,
)
async def list_plan_revisions(plan_id: PlanId, op: Reading, plans: Plans) -> Response:
    return await op.respond(whole_list(await plans.revisions(op.tx, plan_id)))


@router.get(
    "/plans/{plan_id}/transitions",
    summary="Every change of its status, by whom and why",
    response_model=views.TransitionList,
)
async def list_plan_transitions(plan_id: PlanId, op: Reading, plans: Plans) -> Response:
    return await op.respond(whole_list(await plans.transitions(op.tx, plan_id)))


@router.get(
    "/plans/{plan_id}/actions",
    summary="Its actions: status, attempts, results",
    response_model=views.ActionList,
)
async def list_plan_actions(plan_id: PlanId, op: Reading, plans: Plans) -> Response:
    return await op.respond(whole_list(await plans.actions(op.tx, plan_id)))


@router.get(
    "/plans/{plan_id}/graph",
    summary="Read which action of a plan waits for which",
    response_model=views.GraphView,
)
async def read_plan_graph(
    request: Request,
    plan_id: PlanId,
    caller: Annotated[Caller, calling("read")],
    plans: Plans,
) -> Response:
    if MERMAID in request.headers.get("accept", ""):
        chart = await draw_plan_graph(request, plan_id, caller, plans)
        chart.headers["Vary"] = "Accept"
        return chart
    plan, rows = await _plan_and_rows(request, plan_id, caller, plans)
    # In a thread: a plan may have a thousand actions.
    response = await asyncio.to_thread(lambda: json_response(draw_plan(plan, rows).wire()))
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
    caller: Annotated[Caller, calling("read")],
    plans: Plans,
) -> Response:
    plan, rows = await _plan_and_rows(request, plan_id, caller, plans)
    text = await asyncio.to_thread(lambda: draw_plan(plan, rows).mermaid())
    return FlowchartResponse(text)


async def _plan_and_rows(
    request: Request, plan_id: str, caller: Caller, plans: PlanService
) -> tuple[Any, Any]:
    async with begin(request, caller) as op:
        return await plans.standing(op.tx, plan_id)


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
