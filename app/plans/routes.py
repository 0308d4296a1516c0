"""Plans over HTTP: reading, settling, and for hosts storing and executing without a model."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field, model_validator

from app.base.postgres.database import Tx
from app.plans import settlement, views
from app.plans.drawing import draw_plan
from app.plans.service import PlanService
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
    json_response,
    page,
    reading,
    traceparent_of,
)
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["plans"])

PlanId = Annotated[str, Path(max_length=100)]

MERMAID = "text/vnd.mermaid"


class Settle(Body):
    """What became of an action whose outcome is unknown; `retry` sends it again under the same key."""

    outcome: Literal["succeeded", "failed", "retry"]
    details: Any = None


class StorePlan(Body):
    """A plan that a host stores. The thread is named by id or by a key of your own; without either a new one is made."""

    spec_name: Annotated[str, Field(max_length=100)]
    body: dict[str, Any]
    runtime_id: Annotated[str, Field(max_length=100)] | None = None
    runtime: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    plan_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
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


def plans_of(request: Request) -> PlanService:
    plans: PlanService = request.app.state.services.plans
    return plans


@router.post(
    "/plans",
    status_code=201,
    summary="Store a plan without a model",
    description="The same `planId` in the same thread makes the next revision of a draft.",
    response_model=views.PlanView,
)
async def store_plan(
    request: Request, body: StorePlan, caller: Annotated[Caller, calling("plans:write")]
) -> Response:
    host = request.app.state.services.host_plans

    async def store(tx: Tx) -> Reply:
        plan = await host.store(
            tx,
            caller,
            spec_name=body.spec_name,
            body=body.body,
            key=body.plan_id,
            runtime_id=body.runtime_id,
            runtime=body.runtime,
            thread_id=body.thread_id,
            thread_key=body.thread_key,
        )
        return Reply(plan.wire(), 201, f"/plans/{plan.id}", plan.id)

    return await answer(request, caller, store)


@router.post(
    "/plans/{plan_id}/execute",
    status_code=202,
    summary="Execute a plan through its gate, as a query",
    description="A plan that was ever approved runs once: executing it again, or in another thread, executes a copy.",
    response_model=views.AcceptedPlan,
)
async def execute_plan(
    request: Request, plan_id: PlanId, body: ExecutePlan, caller: Annotated[Caller, calling("plans:write")]
) -> Response:
    host = request.app.state.services.host_plans

    async def execute(tx: Tx) -> Reply:
        accepted, executed = await host.execute(
            tx, caller, plan_id, body.inputs, body.thread_id, body.thread_key, traceparent_of(request)
        )
        wire = {**accepted.wire(), "planId": executed}
        return Reply(wire, 202, wire["links"]["self"], accepted.id)

    return await answer(request, caller, execute)


@router.get("/plans", summary="List plans, newest first", response_model=views.PlanPage)
async def list_plans(
    request: Request,
    caller: Annotated[Caller, calling("read")],
    limit: Limit = 50,
    cursor: Cursor = None,
    status: Literal["draft", "approved", "executing", "executed", "failed"] | None = None,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    spec_name: Annotated[str | None, Query(alias="specName", max_length=100)] = None,
) -> Response:
    position = before(request, "plans", cursor)

    async def listed(tx: Tx) -> Any:
        rows = await plans_of(request).page(
            tx, str(position[0]) if position else None, [status, thread_id, spec_name], limit + 1
        )
        return page(request, "plans", rows, limit, lambda r: [r["id"]])

    return await reading(request, caller, listed)


@router.get("/plans/{plan_id}", summary="A plan at its current revision", response_model=views.PlanView)
async def read_plan(
    request: Request, plan_id: PlanId, caller: Annotated[Caller, calling("read")]
) -> Response:
    async def read(tx: Tx) -> Any:
        return (await plans_of(request).named(tx, None, plan_id)).wire()

    return await reading(request, caller, read)


@router.get(
    "/plans/{plan_id}/revisions",
    summary="Every revision that was stored",
    response_model=views.RevisionList,
)
async def plan_revisions(
    request: Request, plan_id: PlanId, caller: Annotated[Caller, calling("read")]
) -> Response:
    return await reading(request, caller, lambda tx: _items(plans_of(request).revisions(tx, plan_id)))


@router.get(
    "/plans/{plan_id}/transitions",
    summary="Every change of its status, by whom and why",
    response_model=views.TransitionList,
)
async def plan_transitions(
    request: Request, plan_id: PlanId, caller: Annotated[Caller, calling("read")]
) -> Response:
    return await reading(request, caller, lambda tx: _items(plans_of(request).transitions(tx, plan_id)))


@router.get(
    "/plans/{plan_id}/actions",
    summary="Its actions: status, attempts, results",
    response_model=views.ActionList,
)
async def plan_actions(
    request: Request, plan_id: PlanId, caller: Annotated[Caller, calling("read")]
) -> Response:
    return await reading(request, caller, lambda tx: _items(plans_of(request).actions(tx, plan_id)))


@router.get(
    "/plans/{plan_id}/graph",
    summary="Who waits for whom, as JSON or as a Mermaid flowchart",
    description=f"A flowchart with `Accept: {MERMAID}` or `format=mermaid`; the parameter wins.",
    response_model=views.GraphView,
    responses={200: {"content": views.DIAGRAM}},
)
async def plan_graph(
    request: Request,
    plan_id: PlanId,
    caller: Annotated[Caller, calling("read")],
    format: Literal["json", "mermaid"] | None = None,
) -> Response:
    async with door_of(request).db.transaction(caller.tenant) as tx:
        plan, rows = await plans_of(request).standing(tx, plan_id)
    chart = format == "mermaid" or (format is None and MERMAID in request.headers.get("accept", ""))

    def draw() -> Response:
        drawing = draw_plan(plan, rows)
        return Response(drawing.mermaid(), media_type=MERMAID) if chart else json_response(drawing.wire())

    response = await asyncio.to_thread(draw)  # a thousand actions are much to draw
    response.headers["Vary"] = "Accept"
    return response


async def _items(rows: Any) -> dict[str, Any]:
    return {"items": await rows, "nextCursor": None}


@router.post(
    "/plans/{plan_id}/actions/{index}",
    summary="Settle an action whose outcome is unknown",
    response_model=views.ActionView,
)
async def settle_action(
    request: Request,
    plan_id: PlanId,
    index: Annotated[int, Path(ge=0, le=100_000)],
    body: Settle,
    caller: Annotated[Caller, calling("plans:settle")],
) -> Response:
    async def settle(tx: Tx) -> Reply:
        return Reply(
            await settlement.settle(
                plans_of(request), tx, plan_id, index, body.outcome, body.details, caller.principal
            )
        )

    return await answer(request, caller, settle)
