"""Plans of a host: stored and executed without a model, through the same gates and records."""

from __future__ import annotations

from typing import Any

from app.base.ids import new_id
from app.base.json.offload import loads, offload
from app.base.postgres.database import Tx
from app.engine import work_records
from app.journal.models import Scope
from app.plans import body as bodies
from app.plans import store
from app.plans.models import Plan
from app.plans.service import Actor, PlanGateOpen, PlanRejected, PlanService
from app.queries.service import AcceptedSubmission, QueryService, Submission
from app.tenancy.models import Caller
from app.variables.service import query_documents


class HostPlanService:
    def __init__(self, plans: PlanService, queries: QueryService) -> None:
        self._plans = plans
        self._queries = queries

    async def store(
        self,
        tx: Tx,
        caller: Caller,
        *,
        spec_name: str,
        body: Any,
        key: str | None,
        runtime_id: str | None,
        runtime: str | None,
        thread_id: str | None,
        thread_key: str | None,
    ) -> Plan:
        """Store a draft in a thread. A work record of kind `host` says who stored it."""
        asked = Submission("", runtime_id, runtime, thread_id, thread_key)
        chosen = await self._queries.runtime_for(tx, asked)
        thread = await self._queries.thread_for(tx, asked, chosen)
        work_id = new_id("wrk_")
        await work_records.add_host(tx, work_id, thread, spec_name, caller.principal)
        who = Actor(Scope("", thread, work_id, None, ""), caller.principal)
        spec = chosen.plans.get(spec_name)
        return await self._plans.store(
            tx,
            chosen,
            spec_name,
            body,
            key,
            who,
            variables=bool(spec and spec.variables),
            given=query_documents(chosen.spec, {}),
        )

    async def execute(
        self,
        tx: Tx,
        caller: Caller,
        plan_id: str,
        inputs: Any,
        thread_id: str | None = None,
        thread_key: str | None = None,
        traceparent: str | None = None,
    ) -> tuple[AcceptedSubmission, str]:
        """Start the query that executes the plan. If the plan was ever approved, or runs in another thread,
        a copy of it is executed."""
        plan = await self._plans.named(tx, None, plan_id)
        thread = plan.thread_id
        if thread_id is not None or thread_key is not None:
            asked = Submission("", plan.runtime_id, thread_id=thread_id, thread_key=thread_key)
            chosen = await self._queries.runtime_for(tx, asked)
            thread = await self._queries.thread_for(tx, asked, chosen)
        for held in sorted({thread, plan.thread_id}):
            await self._queries.hold_thread(tx, held)
        await store.lock(tx, plan.id)
        plan = await self._plans.named(tx, None, plan_id)
        if await store.open_gate(tx, plan.id):
            raise PlanGateOpen(f"The plan {plan.called} already waits for a decision.")
        if plan.status == "draft" and plan.decision is not None:
            raise PlanRejected(
                f"Revision {plan.revision} was answered with {plan.decision!r}; store the next revision first."
            )
        runtime = await self._queries.runtime_for(tx, Submission("", plan.runtime_id))
        if plan.status != "draft" or thread != plan.thread_id:
            work_id = new_id("wrk_")
            await work_records.add_host(tx, work_id, thread, plan.spec_name, caller.principal)
            who = Actor(Scope("", thread, work_id, None, ""), caller.principal)
            flat = bodies.flatten_payload(runtime.plans[plan.spec_name], await offload(loads, plan.body))
            plan = await self._plans.store(
                tx,
                runtime,
                plan.spec_name,
                flat,
                None,
                who,
                plan.id,
                variables=plan.variables,
                given=query_documents(runtime.spec, {}),
            )
        asked = Submission(
            "", plan.runtime_id, thread_id=plan.thread_id, inputs=inputs, traceparent=traceparent
        )
        accepted = await self._queries.accept_plan(tx, caller, asked, runtime, plan.id)
        return accepted, plan.id
