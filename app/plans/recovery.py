"""Mark the actions of a query as unknown, because the record of their dispatch may be lost."""

from __future__ import annotations

from dataclasses import replace

from app.base.ids import new_id
from app.base.json.offload import loads, offload
from app.base.postgres.database import Tx
from app.engine.service import close_action, open_action
from app.plans import body as bodies
from app.plans import store
from app.plans.dispatch import DispatchPlanner
from app.plans.plan_reader import load_graph
from app.plans.service import PlanService
from app.plans.states import awaits_result
from app.tools.ledger import has_result, record_intent


async def doubt_actions(plans: PlanService, tx: Tx, query_id: str) -> int:
    """Mark every action as unknown that the query's plans have begun or have yet to send, unless repeating it is safe or its
    result has arrived. Return their number. The caller holds the query's row, and then marks the calls of these actions."""
    doubted = 0
    for plan_id in await store.executing_of_query(tx, query_id=query_id):
        await store.lock(tx, plan_id=plan_id)
        plan = await plans.load(tx, None, plan_id)
        runtime = await plans.runtime_of(tx, plan)
        execution = await plans.scope_of_execution(tx, plan)
        actions = bodies.parse_actions(await offload(loads, plan.body))
        is_graph = plan.variables and (await load_graph(plan)).has_variables
        planner = DispatchPlanner(tx.tenant, query_id, runtime, plan, actions, None, graph=is_graph)
        rows = {row.index: row for row in await store.actions(tx, plan_id=plan.id)}
        for batch in planner.all:
            open_rows = [rows[n] for n in batch.indexes if awaits_result(rows[n].status)]
            if not open_rows or batch.resolved.dispatcher.replay == "safe":
                continue
            work_id = open_rows[0].work_id
            if work_id is not None and await has_result(tx, work_id):
                continue
            call = planner.call(batch, work_id or new_id("wrk_"), b"")
            scope = replace(execution, work_id=call.work_id, parent_work_id=execution.work_id)
            if work_id is None:
                await record_intent(tx, call)
                await open_action(
                    tx,
                    id=call.work_id,
                    query_id=query_id,
                    thread_id=plan.thread_id,
                    parent_id=execution.work_id,
                    name=call.name,
                    agent=scope.agent,
                )
            await plans.move_actions(tx, plan.id, scope, open_rows, "unknown", work_id=call.work_id)
            await close_action(tx, id=call.work_id, status="unknown")
            doubted += len(open_rows)
    return doubted
