"""The verbs of plans. Every transition is a row, an event and the change itself, in one transaction."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plangate.events import ActionStatusChangeEvent, PlanStatusChangeEvent
from plangate.spec.models import PlanSpec
from plangate.statuses import ActionStatus, PlanStatus

from app.approvals.models import ApprovalRow
from app.artifacts.service import ArtifactService
from app.base.errors import Conflict, FieldError, Invalid, NotFound
from app.base.ids import new_id
from app.base.json import strict_json
from app.base.json.offload import loads, offload
from app.base.postgres.database import Database, Tx
from app.base.responses import to_wire
from app.base.schema.checker import SchemaChecker
from app.engine import work_records
from app.engine.query_run import QueryRun
from app.journal import store as journal_store
from app.journal.models import Event, Scope, event
from app.plans import body as bodies
from app.plans import store, views
from app.plans.artifacts import ArtifactTexts
from app.plans.body import Verdict
from app.plans.models import Plan, plan_labels, revision_status
from app.plans.prechecks import validate_known_actions
from app.plans.states import ACTION_LIFE, PLAN_LIFE
from app.plans.variables import (
    INPUT,
    PlanReader,
    StoredDocuments,
    check_graph,
    effective_inputs,
    take_snapshot,
)
from app.references.service import ReferenceService
from app.runtimes.models import Runtime
from app.runtimes.service import Runtimes
from app.tools import store as calls_store
from app.tools.models import CallOutcome
from app.variables.service import VariableScope, VariableService

MAX_PLAN_KEY_CHARS = 200


class PlanAlreadyApproved(Conflict):
    kind, title = "plan_already_approved", "The plan was approved and cannot be changed"


class PlanGateOpen(Conflict):
    kind, title = "plan_gate_open", "The plan waits for a decision"


class PlanRejected(Conflict):
    kind, title = "plan_rejected", "This revision of the plan was rejected"


@dataclass(frozen=True, slots=True)
class Actor:
    """On whose behalf a plan changes: a work record of a query, or a host's."""

    scope: Scope
    by: str
    approval_id: str | None = None


class PlanService:
    def __init__(
        self,
        db: Database,
        references: ReferenceService,
        runtimes: Runtimes,
        schemas: SchemaChecker,
        variables: VariableService,
        artifacts: ArtifactService,
    ) -> None:
        self.variables = variables
        self._artifacts = artifacts
        self.schemas = schemas
        self._db = db
        self._references = references
        self._runtimes = runtimes

    # -- storing ---------------------------------------------------------------------------------------------

    async def store(
        self,
        tx: Tx,
        runtime: Runtime,
        spec_name: str,
        body: Any,
        key: str | None,
        who: Actor,
        copied_from: str | None = None,
        *,
        variables: bool,
        given: Mapping[str, Any],
    ) -> Plan:
        """Store a draft, or the next revision of one. Idempotent by the work that stores it. With
        `variables`, `given` are the documents that they may lead into besides the thread's state, by
        kind."""
        done = await store.find_by_work(tx, who.scope.work_id)
        if done is not None:
            return await self.named(tx, None, done)
        spec = self._spec(runtime, spec_name)
        refusal = f"The body does not match the plan {spec_name}."
        draft = await self._draft(runtime, spec, body, refusal, variables)
        data, actions, named = draft.data, draft.actions, draft.references
        if variables:
            holder = VariableScope(
                who.scope.thread_id,
                who.scope.query_id or None,
                given,
                runtime.spec.state_schema,
                runtime.name,
            )
            size = bodies.offload_size(data, len(actions))
            flaws, stored = await check_graph(
                tx, self.variables, holder, runtime, actions, who.scope.work_id, size
            )
            if flaws:
                raise Invalid(
                    f"The variables of the plan {spec_name} do not fit together.",
                    [FieldError("/body" + f.pointer, f.message) for f in flaws],
                )
            named = list(dict.fromkeys([*named, *stored]))
        kinds = [a.kind for a in actions]
        _, missing = bodies.resolve_dispatchers(runtime.spec, spec, kinds)
        if missing and kinds:
            raise Invalid(
                f"No dispatcher of the runtime carries out {', '.join(missing)}; declare one under actionDispatchers."
            )
        if key is not None and not 0 < len(key) <= MAX_PLAN_KEY_CHARS:
            raise Invalid(f"planId has 1 to {MAX_PLAN_KEY_CHARS} characters.")
        labels = strict_json.dumps(plan_labels(spec)).decode()
        existing = None if key is None else await store.find(tx, who.scope.thread_id, key)
        if existing is None and key is not None and key.startswith("pln_"):
            raise NotFound(f"There is no plan {key!r} in this thread.")
        if existing is None:
            plan_id = new_id("pln_")
            if not await store.insert(
                tx, plan_id, key, who.scope.thread_id, runtime.id, spec_name, copied_from, labels
            ):
                raise Conflict(f"A plan {key!r} was stored at the same moment; store yours again.")
            revision = 1
        else:
            plan_id, revision = await self._revise(tx, existing, spec_name, runtime, labels)
        await store.insert_revision(tx, plan_id, revision, data, variables, who.scope.work_id)
        await self._references.pin(tx, named, plan_id)
        plan = await self.named(tx, None, plan_id)
        if revision == 1:
            await store.transition(
                tx, plan_id, None, "draft", 1, who.by, who.scope.work_id, None, plan.digest
            )
        await self._emit(
            tx,
            who,
            [self.status_event(who.scope, runtime, plan, None if revision == 1 else "draft", "draft")],
        )
        return plan

    async def _draft(
        self, runtime: Runtime, spec: PlanSpec, body: Any, refusal: str, variables: bool
    ) -> bodies.PlanDraft:
        """Return the stored form of a body. Raise Invalid."""
        paths = bodies.prescribed_paths(runtime.spec, spec)

        def work() -> tuple[bodies.PlanDraft | None, list[FieldError]]:
            normal, flaws = bodies.normalize(spec, body, self.schemas, variables=variables, prescribed=paths)
            return None if flaws else bodies.PlanDraft.from_body(normal), flaws

        # in a thread: the first body of a schema, which a tenant may have made as large as one can be, takes a second
        draft, flaws = await asyncio.to_thread(work)
        if draft is None:
            raise Invalid(refusal, [FieldError("/body" + f.pointer, f.message) for f in flaws])
        return draft

    async def check_body(self, runtime: Runtime, plan: Plan) -> None:
        """Raise Invalid unless a draft that was stored under another runtime, or another version, is valid
        for this one."""
        if plan.runtime_id != runtime.id:
            spec = self._spec(runtime, plan.spec_name)
            refusal = (
                f"The plan {plan.called} was stored under another version of the runtime, and does not match the plan "
                f"{spec.name} of this one; store the next revision first."
            )
            body = bodies.flatten_payload(spec, await offload(loads, plan.body))
            await self._draft(runtime, spec, body, refusal, plan.variables)

    async def _revise(
        self, tx: Tx, existing: Plan, spec_name: str, runtime: Runtime, labels: str
    ) -> tuple[str, int]:
        await store.lock(tx, existing.id)
        current = await self.named(tx, None, existing.id)
        if current.status != "draft":
            raise PlanAlreadyApproved(
                f"The plan {current.called} is {current.status}: what was approved does not change. Store a new plan."
            )
        if current.spec_name != spec_name:
            raise Conflict(f"The plan {current.called} is a {current.spec_name}, not a {spec_name}.")
        if await store.open_gate(tx, current.id):
            raise PlanGateOpen(f"The plan {current.called} waits for a decision; store a revision after it.")
        if await store.is_about_to_begin(tx, current.thread_id, current.id):
            raise PlanAlreadyApproved(
                f"The plan {current.called} was approved and is about to be carried out: what was approved does not "
                "change. Store a new plan."
            )
        return current.id, await store.next_revision(tx, current.id, runtime.id, labels)

    def _spec(self, runtime: Runtime, name: str) -> PlanSpec:
        spec = runtime.plans.get(name)
        if spec is None:
            known = ", ".join(sorted(runtime.plans)) or "none"
            raise Invalid(
                f"The runtime declares no plan {name!r}.", [FieldError("/specName", f"declared are: {known}")]
            )
        return spec

    def check_inputs(self, run: QueryRun, inputs: Any) -> None:
        """Raise Invalid unless the inputs of an execution, merged over those of its query, fit the runtime."""
        schema = run.runtime.spec.input_schema
        flaws = (
            self.schemas.compile(schema).errors(effective_inputs(run, inputs)) if schema is not None else []
        )
        if flaws:
            raise Invalid(
                "The inputs do not match the runtime's inputSchema.",
                [FieldError("/inputs" + f.pointer, f.message) for f in flaws],
            )

    async def check_and_snapshot(
        self,
        tx: Tx,
        run: QueryRun,
        plan: Plan,
        read: PlanReader,
        inputs: Any,
        who: Actor,
        texts: ArtifactTexts,
    ) -> StoredDocuments:
        """As the gate of a plan with variables opens: what no action provides is there, the actions that are known now
        fit the plan's schema, and the documents that its variables lead into are kept; `texts` are those of artifacts.
        Raises Invalid."""
        holder = VariableScope.of(run)
        holder = replace(holder, given={**holder.given, INPUT: effective_inputs(run, inputs)})
        work_id = who.scope.work_id
        body, graph = await read.body(plan), await read.graph(plan)
        kept = await take_snapshot(tx, self.variables, holder, graph, work_id, texts)
        spec = self._spec(run.runtime, plan.spec_name)
        flaws = await validate_known_actions(
            tx, self.variables, self.schemas, spec, body, graph, kept, work_id
        )
        if flaws:
            raise Invalid("With the values of its variables the plan cannot be carried out.", flaws)
        return kept

    # -- moving ----------------------------------------------------------------------------------------------

    def status_event(self, scope: Scope, runtime: Runtime, plan: Plan, from_: str | None, to: str) -> Event:
        data = {
            "planId": plan.id,
            "revision": plan.revision,
            "from": from_,
            "to": to,
            "label": plan_labels(runtime.plans.get(plan.spec_name)).get(to, to),
        }
        return event(scope, PlanStatusChangeEvent, data=data)

    async def move(
        self,
        tx: Tx,
        runtime: Runtime,
        plan: Plan,
        to: PlanStatus,
        who: Actor,
        *,
        query_id: str | None = None,
        result: bytes | None = None,
    ) -> Plan:
        """One transition of the table, or a Conflict. The caller holds the plan's row."""
        PLAN_LIFE.check(plan.status, to)
        if not await store.move(tx, plan.id, plan.status, to, query_id, result):
            raise Conflict(f"The plan {plan.called} is not {plan.status} any more.")
        await store.transition(
            tx,
            plan.id,
            plan.status,
            to,
            plan.revision,
            who.by,
            who.scope.work_id,
            who.approval_id,
            plan.digest,
        )
        await self._emit(tx, who, [self.status_event(who.scope, runtime, plan, plan.status, to)])
        if to == "approved":
            await self._references.hold(tx, plan.id, until_over=True)
        elif to in PLAN_LIFE.terminal:
            await self._references.let_go(tx, plan.id)
        return await self.named(tx, None, plan.id)

    async def _emit(self, tx: Tx, who: Actor, events: list[Event]) -> None:
        if who.scope.query_id:  # a host that stores a plan has no query to tell
            await journal_store.append(tx, who.scope.query_id, events)

    async def move_actions(
        self, tx: Tx, plan_id: str, scope: Scope, rows: list[Any], to: ActionStatus, **parts: Any
    ) -> list[int]:
        """Move actions of a plan to a status, with an event each. `rows` have their current statuses."""
        for row in rows:
            ACTION_LIFE.check(row["status"], to)
        moved = await store.move_actions(
            tx, plan_id, [r["index"] for r in rows], sorted({r["status"] for r in rows}), to, **parts
        )
        told = [
            event(
                scope,
                ActionStatusChangeEvent,
                data={
                    "planId": plan_id,
                    "index": r["index"],
                    "kind": r["kind"],
                    "from": r["status"],
                    "to": to,
                },
            )
            for r in rows
            if r["index"] in moved
        ]
        if told and scope.query_id:
            await journal_store.append(tx, scope.query_id, told)
        return moved

    async def on_gate_closed(self, tx: Tx, approval: ApprovalRow, subject: bytes) -> None:
        """In the transaction in which a gate closes without an approval: the revision that was asked about carries
        what was said of it and is not presented again, whatever is stored meanwhile."""
        if approval.decision is not None:
            revision = (await offload(loads, subject))["revision"]
            said = (approval.decision, approval.feedback, approval.partial)
            await store.record_decision(tx, approval.target, revision, *said)
        await self.leave_draft(tx, approval.target)

    # -- the end of a query ----------------------------------------------------------------------------------

    async def end_of_query(self, tx: Tx, query_id: str, reason: str) -> None:
        """Close the plans that an ending query executes: actions that were never taken are skipped, taken
        ones are unknown, also on record, and the plan is failed. A plan that was approved but never
        begun becomes a draft that cannot begin under that approval. Runs after the offers of the query
        were withdrawn."""
        for plan_id in await store.approved_drafts_of_query(tx, query_id):
            await store.lock(tx, plan_id)
            await self.leave_draft(tx, plan_id)
        for plan_id in await store.executing_of_query(tx, query_id):
            await store.lock(tx, plan_id)
            plan = await self.named(tx, None, plan_id)
            runtime = await self._runtimes.get(tx.tenant, plan.runtime_id, tx)
            scope = await self.scope_of_execution(tx, plan)
            actions = bodies.parse_actions(await offload(loads, plan.body))
            closed = set[str]()  # the actions of one dispatch share a record
            rows = await store.actions(tx, plan_id)
            together = Counter(row["work_id"] for row in rows)
            for row in rows:
                if row["status"] in ("pending", "dispatched"):
                    spec = runtime.plans[plan.spec_name]
                    by_tool = bodies.is_tool_call(runtime.spec, spec, actions[row["index"]])
                    left = await self._result_of_abandoned(tx, row, by_tool=by_tool)
                    parts = left.parts(together[row["work_id"]])
                    await self.move_actions(tx, plan_id, scope, [row], left.status, **parts)
                    if left.status != "skipped" and row["work_id"] not in closed:
                        closed.add(row["work_id"])
                        said = parts.get("result"), parts.get("error")
                        await work_records.close_action(tx, row["work_id"], left.status, *said)
            label = plan_labels(runtime.plans.get(plan.spec_name)).get("failed", "failed")
            result = strict_json.dumps({"status": "failed", "label": label, "reason": reason})
            await self.move(tx, runtime, plan, "failed", Actor(scope, "service"), result=result)

    async def _result_of_abandoned(self, tx: Tx, row: Any, *, by_tool: bool) -> Verdict:
        """Return the result of an action whose query ends. A result that is in counts, but goes to no path.
        A pending action has a call if it was sent before and a person said `retry`."""
        call = None if row["work_id"] is None else await calls_store.outcome(tx, row["work_id"])
        if call is None or call["status"] == "withdrawn":
            return Verdict("skipped")
        if call["status"] != "done":
            return Verdict.unknown("The query ended before anybody said what became of it.")
        result = await offload(loads, call["result"])
        done = CallOutcome("done", result.get("output"), result.get("error"))
        return bodies.action_result(done, by_tool=by_tool)

    async def runtime_of(self, tx: Tx, plan: Plan) -> Runtime:
        """Return the version of the runtime that the plan was stored for."""
        return await self._runtimes.get(tx.tenant, plan.runtime_id, tx)

    async def scope_of_execution(self, tx: Tx, plan: Plan) -> Scope:
        """Where in its query a plan is executed."""
        work_id = await self.executing_work(tx, plan)
        scope = await journal_store.load_scope(tx, work_id) if work_id else None
        return scope or Scope(plan.query_id or "", plan.thread_id, work_id or "", None, "")

    async def executing_work(self, tx: Tx, plan: Plan) -> str | None:
        """Return the call that carries the plan out, or did."""
        moves = await store.transitions(tx, plan.id)
        return next((t["work_id"] for t in moves if t["to_status"] == "executing"), None)

    async def leave_draft(self, tx: Tx, plan_id: str) -> None:
        """Reset a plan whose gate closed without execution to a plain draft, unless another gate is open
        for it; its reference pins expire again."""
        plan = await self.named(tx, None, plan_id)
        if plan.status == "draft" and not await store.open_gate(tx, plan_id):
            await self._references.hold(tx, plan_id, until_over=False)

    # -- reading ---------------------------------------------------------------------------------------------

    async def named(self, tx: Tx, thread_id: str | None, name: str) -> Plan:
        """Return a plan by its `pln_` id, or by the key that a planner chose in this thread."""
        found = await store.find(tx, thread_id, name)
        if found is None:
            raise NotFound(f"There is no plan {name!r}" + (" in this thread." if thread_id else "."))
        return found

    async def page(
        self, tx: Tx, before: str | None, filters: list[str | None], limit: int
    ) -> list[dict[str, Any]]:
        return [to_wire(views.PlanView, plan) for plan in await store.page(tx, before, *filters, limit)]

    async def revisions(self, tx: Tx, plan_id: str) -> list[dict[str, Any]]:
        await self.named(tx, None, plan_id)
        return [
            to_wire(
                views.RevisionView,
                row,
                status=revision_status(
                    row["plan_status"], row["decision"], is_current=row["revision"] == row["current"]
                ),
            )
            for row in await store.revisions(tx, plan_id)
        ]

    async def transitions(self, tx: Tx, plan_id: str) -> list[dict[str, Any]]:
        await self.named(tx, None, plan_id)
        return [
            to_wire(views.TransitionView, row, from_=row["from_status"], to=row["to_status"])
            for row in await store.transitions(tx, plan_id)
        ]

    async def actions(self, tx: Tx, plan_id: str) -> list[dict[str, Any]]:
        await self.named(tx, None, plan_id)
        return await self.action_views(tx, plan_id, await store.actions(tx, plan_id))

    async def action_views(self, tx: Tx, plan_id: str, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Return rows of actions for a response, with what their calls published."""
        published = await self._artifacts.of_actions(tx, plan_id, [(r["index"], r["work_id"]) for r in rows])
        return [to_wire(views.ActionView, row, artifacts=published[row["index"]]) for row in rows]

    async def standing(self, tx: Tx, plan_id: str) -> tuple[Plan, list[Any]]:
        """Return a plan and, once it was approved, the states of its actions."""
        return await self.named(tx, None, plan_id), await store.action_states(tx, plan_id)
