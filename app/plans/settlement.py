"""A person says what became of an action whose outcome nobody knows."""

from __future__ import annotations

from typing import Any, Literal

from app.base.errors import Conflict, FieldError, Invalid, NotFound
from app.base.json import strict_json
from app.base.postgres.database import Tx
from app.documents.writing import WriteRejected
from app.engine import lease_store as queue_store
from app.engine import store as queries_store
from app.journal import store as journal_store
from app.plans import body as bodies
from app.plans import store
from app.plans.models import Plan
from app.plans.service import PlanService
from app.plans.states import PLAN_LIFE
from app.plans.variables import deliver_result, load_graph
from app.tools.results import Answer, Outcome, ToolError
from app.variables.service import VariableScope, query_documents

Settlement = Literal["succeeded", "failed", "retry"]


async def settle(
    plans: PlanService, tx: Tx, plan_id: str, index: int, outcome: Settlement, details: Any, by: str
) -> dict[str, Any]:
    """Record what a person says about an action whose outcome is unknown. Actions of one dispatch share it."""
    plan = await plans.named(tx, None, plan_id)
    if plan.query_id is not None:
        await queue_store.lock(tx, plan.query_id)
    await store.lock(tx, plan.id)
    plan = await plans.named(tx, None, plan_id)
    rows = await store.actions(tx, plan.id)
    if not 0 <= index < len(rows):
        raise NotFound(f"The plan has no action {index}.")
    if rows[index]["status"] != "unknown":
        raise Conflict(
            f"Action {index} is {rows[index]['status']}; only an unknown outcome can be settled.",
            extra={"action": (await plans.action_views(tx, plan.id, [rows[index]]))[0]},
        )
    together = [r for r in rows if r["work_id"] == rows[index]["work_id"] and r["status"] == "unknown"]
    scope = await plans.scope_of_execution(tx, plan)
    over = plan.status in PLAN_LIFE.terminal
    if outcome == "retry":
        if over:
            raise Conflict(
                "The plan is over and sends nothing more. Settle the action as succeeded or failed."
            )
        await plans.move_actions(tx, plan.id, scope, together, "pending", settled_by=by)
    else:
        said: dict[str, Any] = {"settledBy": by, "details": details}
        size = len(strict_json.dumps(said)) * len(together)
        if size > bodies.MAX_KEPT_TOGETHER:
            told = (
                f"{len(together)} actions were sent together, and each keeps the details: that would be {size} bytes, "
                f"more than {bodies.MAX_KEPT_TOGETHER}"
            )
            raise Invalid(f"{told}.", [FieldError("/details", told)])
        if not over:
            written_to = await _settle_output(plans, tx, plan, rows[index], outcome, details)
            said |= {"writtenTo": written_to} if written_to else {}
        parts = {"result" if outcome == "succeeded" else "error": strict_json.dumps(said)}
        await plans.move_actions(tx, plan.id, scope, together, outcome, settled_by=by, **parts)
    if plan.query_id is not None and not over:
        await queue_store.wake(tx, plan.query_id)
    return (await plans.action_views(tx, plan.id, await store.actions(tx, plan.id, [index])))[0]


async def _settle_output(
    plans: PlanService, tx: Tx, plan: Plan, row: Any, outcome: str, details: Any
) -> list[str]:
    """Write what a person says about an action to its output path, as a result or an error."""
    if not plan.variables or plan.query_id is None:
        return []
    graph = await load_graph(plan)
    step = graph.steps[row["index"]]
    query = await queries_store.load_query(tx, plan.query_id)
    scope = await journal_store.load_scope(tx, row["work_id"])
    if step.call.output is None or query is None or scope is None:
        return []
    runtime = await plans.runtime_of(tx, plan)
    given = query_documents(runtime.spec, query.request)
    holder = VariableScope(plan.thread_id, plan.query_id, given, runtime.spec.state_schema, runtime.name)
    known: Outcome = (
        Answer(details)
        if outcome == "succeeded"
        else ToolError(f"A person settled it as failed: {strict_json.dumps(details).decode()}", "settled")
    )
    try:
        rows = await deliver_result(tx, plans.variables, holder, scope, step.call.output, known)
    except WriteRejected as refused:
        raise Invalid(
            f"The details cannot be written to the action's path: {refused}.",
            [FieldError("/details", str(refused))],
        ) from refused
    return [written.path for written in rows]
