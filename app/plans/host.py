"""Store and execute plans for a host without a model, through the same gates and records."""

from __future__ import annotations

from typing import Any

from app.base.ids import new_id
from app.base.json.offload import loads, offload
from app.base.postgres.database import Database, Tx
from app.engine.service import add_host_work
from app.journal.models import Scope
from app.plans import body as bodies
from app.plans import store
from app.plans.models import Actor, Plan
from app.plans.service import PlanService
from app.queries.models import AcceptedSubmission, Submission
from app.queries.service import QueryService
from app.tenancy.models import Caller
from app.variables.service import VariableScope


class HostPlanService:
    def __init__(self, db: Database, plans: PlanService, queries: QueryService) -> None:
        self._db = db
        self._plans = plans
        self._queries = queries

    async def prepare_store(
        self,
        tenant: str,
        *,
        spec_name: str,
        runtime_id: str | None,
        runtime: str | None,
        thread_id: str | None,
        thread_key: str | None,
    ) -> None:
        """Compile the schema of a plan that is to be stored, before the transaction of the request. Raise NotFound."""
        async with self._db.transaction(tenant) as tx:
            submission = Submission("", runtime_id, runtime, thread_id, thread_key)
            version = await self._queries.runtime_for(tx, submission)
        spec = version.plans.get(spec_name)
        await self._plans.compile_schema(version, spec_name, variables=spec is not None and spec.variables)

    async def prepare_execute(self, tenant: str, plan_id: str) -> None:
        """Compile the schema of a plan of which a copy may be stored, before the transaction of the request. Raise
        NotFound."""
        async with self._db.transaction(tenant) as tx:
            plan = await self._plans.load(tx, None, plan_id)
            version = await self._queries.runtime_for(tx, Submission("", plan.runtime_id))
        await self._plans.compile_schema(version, plan.spec_name, variables=plan.variables)

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
        submission = Submission("", runtime_id, runtime, thread_id, thread_key)
        version = await self._queries.runtime_for(tx, submission)
        thread = await self._queries.thread_for(tx, submission, version)
        work_id = new_id("wrk_")
        await add_host_work(tx, id=work_id, thread_id=thread, name=spec_name, principal=caller.principal)
        actor = Actor(Scope("", thread, work_id, None, ""), caller.principal)
        spec = version.plans.get(spec_name)
        variable_scope = VariableScope.of_request(version, {}, thread) if spec and spec.variables else None
        return await self._plans.store(
            tx, version, spec_name, body, key, actor, variable_scope=variable_scope
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
        plan = await self._plans.load(tx, None, plan_id)
        thread = plan.thread_id
        if thread_id is not None or thread_key is not None:
            submission = Submission("", plan.runtime_id, thread_id=thread_id, thread_key=thread_key)
            version = await self._queries.runtime_for(tx, submission)
            thread = await self._queries.thread_for(tx, submission, version)
        for thread_id_to_lock in sorted({thread, plan.thread_id}):
            await self._queries.hold_thread(tx, thread_id_to_lock)
        await store.lock(tx, plan_id=plan.id)
        plan = await self._plans.load(tx, None, plan_id)
        await self._plans.check_no_approval(tx, plan)
        if plan.status == "draft":
            self._plans.check_unanswered(plan)
        runtime = await self._queries.runtime_for(tx, Submission("", plan.runtime_id))
        if plan.status != "draft" or thread != plan.thread_id:
            work_id = new_id("wrk_")
            await add_host_work(
                tx, id=work_id, thread_id=thread, name=plan.spec_name, principal=caller.principal
            )
            actor = Actor(Scope("", thread, work_id, None, ""), caller.principal)
            flat = bodies.flatten_payload(runtime.plans[plan.spec_name], await offload(loads, plan.body))
            variable_scope = VariableScope.of_request(runtime, {}, thread) if plan.variables else None
            plan = await self._plans.store(
                tx, runtime, plan.spec_name, flat, None, actor, plan.id, variable_scope=variable_scope
            )
        submission = Submission(
            "", plan.runtime_id, thread_id=plan.thread_id, inputs=inputs, traceparent=traceparent
        )
        accepted = await self._queries.accept_plan(tx, caller, submission, runtime, plan.id)
        return accepted, plan.id
