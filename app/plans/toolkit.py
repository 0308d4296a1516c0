"""The built-in plan tools.

Storing needs no approval; executing always passes the gate. After a crash the same call finds its approval, its
transitions and its rows by its work id, and continues.
"""

from __future__ import annotations

import asyncio
from typing import Any, assert_never

import orjson
from plangate.spec.variable_schemas import has_variables

from app.approvals.models import EndedApproval
from app.approvals.service import ApprovalService
from app.base.errors import MAX_LISTED_ERRORS, PlangateError
from app.base.json.offload import loads, offload
from app.calls.dispatch import CallDispatcher
from app.calls.toolkit import ToolCall
from app.engine.query_run import QueryFailed, QueryRun
from app.plans import store
from app.plans.executor import PlanExecution
from app.plans.gate import PlanGate
from app.plans.models import Actor
from app.plans.plan_reader import PlanReader
from app.plans.progress import ExecutionFlow, ExecutionView
from app.plans.service import PlanService
from app.plans.snapshot import StoredDocuments, effective_inputs
from app.plans.states import PLAN_LIFE
from app.references.service import ReferenceService
from app.tools.results import Answer, ToolError, ToolResult
from app.variables.service import VariableScope


class PlanTools:
    def __init__(
        self,
        plans: PlanService,
        approvals: ApprovalService,
        references: ReferenceService,
        dispatch: CallDispatcher,
    ) -> None:
        self._plans = plans
        self._approvals = approvals
        self._dispatch = dispatch
        self._gate = PlanGate(plans, approvals, references)

    # -- the tools -------------------------------------------------------------------------------------------

    async def store(self, call: ToolCall) -> ToolResult:
        args = call.args
        if args["specName"] != call.agent.plan_name:
            return ToolError(f"{call.agent.name} stores plans of {call.agent.plan_name!r} only.")
        actor, runtime = Actor(call.scope, call.agent.name), call.run.runtime
        spec = runtime.plans.get(args["specName"])
        variables = has_variables(call.agent) or bool(spec and spec.variables)
        variable_scope = VariableScope.of(call.run) if variables else None
        await self._plans.compile_schema(runtime, args["specName"], variables=variables)
        try:
            plan = await call.run.in_fenced_transaction(
                lambda tx: self._plans.store(
                    tx,
                    runtime,
                    args["specName"],
                    args["body"],
                    args.get("planId"),
                    actor,
                    variable_scope=variable_scope,
                )
            )
        except PlangateError as error:
            return tool_error(error)
        return Answer(plan.for_model())

    async def get(self, call: ToolCall) -> ToolResult:
        try:
            plan = await call.run.read(
                lambda tx: self._plans.load(tx, call.run.query.thread_id, call.args["planId"])
            )
        except PlangateError as error:
            return tool_error(error)
        return Answer({**plan.for_model(), "body": await offload(loads, plan.body)})

    async def execute(self, call: ToolCall) -> ToolResult:
        actor = Actor(call.scope, call.agent.name)
        return await self._execute(
            call.run, call.args["planId"], call.args.get("inputs"), actor, call.agent.name
        )

    async def execute_for_host(self, run: QueryRun) -> ToolResult:
        """Execute the plan of a query of kind `plan` (`POST /plans/{id}/execute`)."""
        scope = run.scope(run.query.root_work_id, None, run.query.agent)
        request = run.query.request
        return await self._execute(
            run, request["planId"], request.get("inputs"), Actor(scope, run.query.principal), None
        )

    # -- gate and execution ----------------------------------------------------------------------------------

    async def _execute(
        self, run: QueryRun, name: str, inputs: Any, actor: Actor, agent: str | None
    ) -> ToolResult:
        read = PlanReader()
        try:
            texts = await self._gate.prepare_request(run, name, read, inputs, actor)
            plan = await run.in_fenced_transaction(
                lambda tx: self._gate.request_approval(tx, run, name, read, inputs, actor, agent, texts)
            )
        except PlangateError as error:
            return tool_error(error)
        decided = await run.wait(
            lambda: run.read(lambda tx: self._approvals.outcome(tx, actor.scope.work_id, "plan")),
            reason="approval",
        )
        if decided.status == "expired" and decided.fails_query:
            raise QueryFailed("approval_expired", f"Nobody decided about the plan {plan.name} in time.")
        if decided.status != "approved":
            return rejection_result(decided)
        actor = Actor(actor.scope, actor.by, decided.id)
        await read.preload(plan)
        try:
            plan = await run.in_fenced_transaction(
                lambda tx: self._gate.begin(tx, run, plan.id, read, inputs, actor, decided)
            )
        except PlangateError as error:
            await run.in_fenced_transaction(lambda tx: self._plans.leave_draft(tx, plan.id))
            return tool_error(error)
        if plan.status in PLAN_LIFE.terminal:  # a crash came after its end
            return execution_result(orjson.loads(plan.result or b"{}"))
        flow = None
        if plan.variables:
            snapshot = StoredDocuments(
                await run.read(lambda tx: store.snapshot(tx, work_id=actor.scope.work_id))
            )
            graph = await read.graph(plan)
            flow = (
                ExecutionFlow(graph, await asyncio.to_thread(ExecutionView, snapshot))
                if graph.has_variables
                else None
            )
            inputs = effective_inputs(run, inputs)
        body = await read.body(plan)
        execution = PlanExecution(
            self._plans, self._dispatch, run, run.runtime, plan, body, actor, inputs, flow
        )
        return execution_result(await execution.carry_out())


def rejection_result(decided: EndedApproval) -> ToolResult:
    """Return the result of executePlan when the plan was not approved. The revision carries the feedback since the
    decision."""
    match decided.status:
        case "approved":
            raise ValueError(f"{decided.id} was approved")
        case "rejected":
            return Answer({"rejected": True, "feedback": decided.feedback})
        case "revised":
            return Answer({"should_revise": True, "feedback": decided.feedback, "partial": decided.partial})
        case "expired":
            return ToolError(
                "Nobody decided in time. Execute the plan again to request a new approval.",
                "approval_expired",
            )
        case "cancelled":
            return ToolError("The request for approval was withdrawn.", "approval_cancelled")
        case _:
            assert_never(decided.status)


def execution_result(result: dict[str, Any]) -> ToolResult:
    """Return the result of executePlan. A dispatcher that returned an invalid value fails the call
    (plans.md)."""
    errors = [action["error"] for action in result.get("actions", ()) if "error" in action]
    bad = next((e["message"] for e in errors if e.get("code") == "bad_dispatch_result"), None)
    return Answer(result) if bad is None else ToolError(bad, "bad_dispatch_result")


def tool_error(error: PlangateError) -> ToolError:
    """Return an error that the model can act on: what is wrong, and where."""
    errors = getattr(error, "errors", ())[:MAX_LISTED_ERRORS]
    listed = "".join(f" {f.pointer}: {f.message}." for f in errors)
    return ToolError(error.detail + listed, error.kind)
