"""Settle actions whose outcome is unknown."""

from __future__ import annotations

from typing import Any, Literal

from app.base.errors import Conflict, FieldError, Invalid, NotFound
from app.base.json import strict_json
from app.base.postgres.database import Tx
from app.documents.writing import WriteRejected
from app.engine.service import load_query, lock_query, wake_query
from app.journal.service import load_scope
from app.plans import body as bodies
from app.plans import store
from app.plans.models import Plan, PlanAction
from app.plans.plan_reader import load_graph
from app.plans.service import PlanService
from app.plans.states import PLAN_LIFE
from app.tools.results import Answer, ToolError, ToolResult
from app.variables.service import VariableScope, result_write

Settlement = Literal["succeeded", "failed", "retry"]


async def settle(
    plans: PlanService, tx: Tx, plan_id: str, index: int, outcome: Settlement, details: Any, by: str
) -> dict[str, Any]:
    """Record the outcome of an action that a person settles. Actions of one dispatch share it. Raise NotFound, Conflict
    or Invalid."""
    plan = await plans.load(tx, None, plan_id)
    if plan.query_id is not None:
        await lock_query(tx, query_id=plan.query_id)
    await store.lock(tx, plan_id=plan.id)
    plan = await plans.load(tx, None, plan_id)
    rows = await store.actions(tx, plan_id=plan.id)
    if not 0 <= index < len(rows):
        raise NotFound(f"The plan has no action {index}.")
    if rows[index].status != "unknown":
        raise Conflict(
            f"Action {index} is {rows[index].status}; only an unknown outcome can be settled.",
            extra={"action": (await plans.action_views(tx, plan.id, [rows[index]]))[0]},
        )
    batch = [r for r in rows if r.work_id == rows[index].work_id and r.status == "unknown"]
    scope = await plans.scope_of_execution(tx, plan)
    is_over = plan.status in PLAN_LIFE.terminal
    if outcome == "retry":
        if is_over:
            raise Conflict(
                "The plan is over and sends nothing more. Settle the action as succeeded or failed."
            )
        await plans.move_actions(tx, plan.id, scope, batch, "pending", settled_by=by)
    else:
        report: dict[str, Any] = {"settledBy": by, "details": details}
        size = len(strict_json.dumps(report)) * len(batch)
        if size > bodies.MAX_BATCH_RESULT_BYTES:
            message = (
                f"{len(batch)} actions were sent together, and each keeps the details: that would be {size} bytes, "
                f"more than {bodies.MAX_BATCH_RESULT_BYTES}"
            )
            raise Invalid(f"{message}.", [FieldError("/details", message)])
        if not is_over:
            written_to = await _settle_output(plans, tx, plan, rows[index], outcome, details)
            report |= {"writtenTo": written_to} if written_to else {}
        data = strict_json.dumps(report)
        result, error = (data, None) if outcome == "succeeded" else (None, data)
        await plans.move_actions(
            tx, plan.id, scope, batch, outcome, settled_by=by, result=result, error=error
        )
    if plan.query_id is not None and not is_over:
        await wake_query(tx, query_id=plan.query_id)
    settled = await store.actions(tx, plan_id=plan.id, indexes=[index])
    return (await plans.action_views(tx, plan.id, settled))[0]


async def _settle_output(
    plans: PlanService, tx: Tx, plan: Plan, row: PlanAction, outcome: str, details: Any
) -> list[str]:
    """Write the details to the output path of the action, as a result or an error. Return the paths. Raise Invalid."""
    if not plan.variables or plan.query_id is None:
        return []
    graph = await load_graph(plan)
    step = graph.steps[row.index]
    query = await load_query(tx, query_id=plan.query_id)
    scope = await load_scope(tx, work_id=row.call_id)
    if step.call.output is None or query is None or scope is None:
        return []
    runtime = await plans.runtime_of(tx, plan)
    variable_scope = VariableScope.of_request(runtime, query.request, plan.thread_id, plan.query_id)
    result: ToolResult = (
        Answer(details)
        if outcome == "succeeded"
        else ToolError(f"A person settled it as failed: {strict_json.dumps(details).decode()}", "settled")
    )
    try:
        write = await result_write(step.call.output, result)
        rows = [] if write is None else await plans.variables.write(tx, variable_scope, scope, write)
    except WriteRejected as error:
        raise Invalid(
            f"The details cannot be written to the action's path: {error}.",
            [FieldError("/details", str(error))],
        ) from error
    return [row.path for row in rows]
