"""The verbs of plans. Every transition is a row, an event and the change itself, in one transaction."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from plangate.spec.models import PlanSpec
from plangate.statuses import ActionStatus, PlanStatus

from app.approvals.models import ApprovalRow
from app.artifacts.service import ArtifactService
from app.base.errors import Conflict, FieldError, Invalid, NotFound
from app.base.ids import new_id
from app.base.json import strict_json
from app.base.json.offload import loads, offload, weight
from app.base.json.process_pool import JsonProcessPool
from app.base.postgres.database import Database, Tx
from app.base.responses import to_wire
from app.base.schema.checker import SchemaChecker
from app.engine.query_run import QueryRun
from app.engine.service import close_action
from app.events import ActionStatusChangeEvent, PlanStatusChangeEvent
from app.journal.models import Event, Scope, event
from app.journal.service import append_events, load_scope
from app.plans import body as bodies
from app.plans import store, views
from app.plans.artifacts import ArtifactTexts
from app.plans.body import ActionResult
from app.plans.changes import compare_bodies
from app.plans.models import (
    ActionState,
    Actor,
    Plan,
    PlanAction,
    PlanRevision,
    PlanTransition,
    RevisionPair,
    plan_labels,
)
from app.plans.plan_reader import PlanReader
from app.plans.prechecks import check_graph, name_places, validate_known_actions
from app.plans.snapshot import StoredDocuments, effective_inputs, take_snapshot
from app.plans.states import ACTION_LIFE, PLAN_LIFE, awaits_result
from app.plans.store import PlanFilter
from app.references.service import ReferenceExpired, ReferenceNotFound, ReferenceService
from app.runtimes.models import Runtime
from app.runtimes.service import Runtimes
from app.tools.ledger import abandoned_result
from app.tools.results import ToolError
from app.variables.service import INPUT, VariableScope, VariableService

MAX_PLAN_KEY_CHARS = 200
MAX_PLAN_REFERENCES = 100


class PlanAlreadyApproved(Conflict):
    kind, title = "plan_already_approved", "The plan was approved and cannot be changed"


class PlanApprovalPending(Conflict):
    kind, title = "plan_approval_pending", "The plan waits for a decision"


class PlanRejected(Conflict):
    kind, title = "plan_rejected", "This revision of the plan was rejected"


SMALL_COMPARISON_BYTES: Final = 4096
"""Of two revisions: about 100 actions of the smallest kind, which take 20 ms."""


def action_event(
    scope: Scope, plan_id: str, index: int, kind: str, current: ActionStatus, to: ActionStatus
) -> Event:
    """Return the event of a change of an action's status."""
    data = {"planId": plan_id, "index": index, "kind": kind, "from": current, "to": to}
    return event(scope, ActionStatusChangeEvent, data=data)


class PlanService:
    def __init__(
        self,
        db: Database,
        references: ReferenceService,
        runtimes: Runtimes,
        schemas: SchemaChecker,
        variables: VariableService,
        artifacts: ArtifactService,
        processes: JsonProcessPool,
    ) -> None:
        self.variables = variables
        self._processes = processes
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
        actor: Actor,
        copied_from: str | None = None,
        *,
        variable_scope: VariableScope | None,
    ) -> Plan:
        """Store a draft, or the next revision of one. Idempotent by the work that stores it. With a `variable_scope`,
        strings that begin with a dagger are variables, and lead into its documents."""
        stored_id = await store.id_of_work(tx, work_id=actor.scope.work_id)
        if stored_id is not None:
            return await self.load(tx, None, stored_id)
        spec = self._spec(runtime, spec_name)
        refusal = f"The body does not match the plan {spec_name}."
        variables = variable_scope is not None
        draft = await self._draft(runtime, spec, body, refusal, variables)
        data, actions, references = draft.data, draft.actions, draft.references
        if variable_scope is not None:
            size = bodies.offload_size(data, len(actions))
            errors, variable_references = await check_graph(
                tx, self.variables, variable_scope, runtime, actions, size
            )
            if errors:
                raise Invalid(
                    f"The variables of the plan {spec_name} do not fit together.",
                    [FieldError("/body" + f.pointer, f.message) for f in errors],
                )
            references = list(dict.fromkeys([*references, *variable_references]))
        if len(references) > MAX_PLAN_REFERENCES:
            raise Invalid(
                f"A plan names at most {MAX_PLAN_REFERENCES} references, so that people can read what they approve; this "
                f"one names {len(references)}. Put values that belong together into one reference, or make several plans.",
                [FieldError("/body/actions", f"names {len(references)} references")],
            )
        kinds = [a.kind for a in actions]
        _, missing = bodies.resolve_dispatchers(runtime.spec, spec, kinds)
        if missing and kinds:
            raise Invalid(
                f"No dispatcher of the runtime carries out {', '.join(missing)}; declare one under actionDispatchers."
            )
        if key is not None and not 0 < len(key) <= MAX_PLAN_KEY_CHARS:
            raise Invalid(f"planId has 1 to {MAX_PLAN_KEY_CHARS} characters.")
        labels = plan_labels(spec)
        existing = None if key is None else await store.find(tx, thread_id=actor.scope.thread_id, name=key)
        if existing is None and key is not None and key.startswith("pln_"):
            raise NotFound(f"There is no plan {key!r} in this thread.")
        if existing is None:
            plan_id = new_id("pln_")
            if not await store.insert(
                tx,
                plan_id=plan_id,
                key=key,
                thread_id=actor.scope.thread_id,
                runtime_id=runtime.id,
                spec_name=spec_name,
                copied_from=copied_from,
                labels=labels,
            ):
                raise Conflict(f"A plan {key!r} was stored at the same moment; store yours again.")
            revision = 1
        else:
            plan_id, revision = await self._revise(tx, existing, spec_name, runtime, labels)
        await store.insert_revision(
            tx,
            plan_id=plan_id,
            revision=revision,
            body=data,
            variables=variables,
            work_id=actor.scope.work_id,
        )
        try:
            await self._references.pin(tx, references, plan_id)
        except (ReferenceExpired, ReferenceNotFound) as error:
            size = bodies.offload_size(data, len(actions))
            raise await name_places(error, actions, variables, size) from error
        plan = await self.load(tx, None, plan_id)
        if revision == 1:
            await store.insert_transition(tx, plan=plan, from_=None, to="draft", actor=actor)
        await self._emit(
            tx,
            actor,
            [self.status_event(actor.scope, runtime, plan, None if revision == 1 else "draft", "draft")],
        )
        return plan

    async def _draft(
        self, runtime: Runtime, spec: PlanSpec, body: Any, refusal: str, variables: bool
    ) -> bodies.PlanDraft:
        """Return the stored form of a body. Raise Invalid."""
        paths = bodies.prescribed_paths(runtime.spec, spec)

        def work() -> tuple[bodies.PlanDraft | None, list[FieldError]]:
            normal, errors = bodies.normalize(spec, body, self.schemas, variables=variables, prescribed=paths)
            return None if errors else bodies.PlanDraft.from_body(normal), errors

        # in a thread: the first body of a schema, which a tenant may have made as large as one can be, takes a second
        draft, errors = await asyncio.to_thread(work)
        if draft is None:
            raise Invalid(refusal, [FieldError("/body" + f.pointer, f.message) for f in errors])
        return draft

    async def compile_schema(self, runtime: Runtime, spec_name: str, *, variables: bool) -> None:
        """Compile the schema of a plan before a transaction needs it. Do nothing for a plan that is not declared."""
        spec = runtime.plans.get(spec_name)
        if spec is not None:
            compile_for = partial(bodies.compile_schema, variables=variables)
            await offload(compile_for, spec, self.schemas, size=weight(spec.schema_))

    async def check_body(self, runtime: Runtime, plan: Plan) -> None:
        """Raise Invalid unless a draft that was stored under another runtime, or another version, is valid
        for this one."""
        if plan.runtime_id != runtime.id:
            spec = self._spec(runtime, plan.spec_name)
            refusal = (
                f"The plan {plan.name} was stored under another version of the runtime, and does not match the plan "
                f"{spec.name} of this one; store the next revision first."
            )
            body = bodies.flatten_payload(spec, await offload(loads, plan.body))
            await self._draft(runtime, spec, body, refusal, plan.variables)

    async def _revise(
        self, tx: Tx, existing: Plan, spec_name: str, runtime: Runtime, labels: Mapping[str, str]
    ) -> tuple[str, int]:
        await store.lock(tx, plan_id=existing.id)
        current = await self.load(tx, None, existing.id)
        if current.status != "draft":
            raise PlanAlreadyApproved(
                f"The plan {current.name} is {current.status}: what was approved does not change. Store a new plan."
            )
        if current.spec_name != spec_name:
            raise Conflict(f"The plan {current.name} is a {current.spec_name}, not a {spec_name}.")
        await self.check_no_approval(tx, current)
        revision = await store.next_revision(tx, plan_id=current.id, runtime_id=runtime.id, labels=labels)
        return current.id, revision

    async def check_no_approval(self, tx: Tx, plan: Plan) -> None:
        """Raise PlanApprovalPending if somebody is about to decide, PlanAlreadyApproved if the draft was approved and its
        requester is about to begin it. In this order, so that no decision falls in between."""
        if await store.has_pending_approval(tx, plan_id=plan.id):
            raise PlanApprovalPending(
                f"The plan {plan.name} is waiting for a decision. Decide its pending approval first."
            )
        if plan.status == "draft" and await store.is_about_to_begin(
            tx, thread_id=plan.thread_id, plan_id=plan.id
        ):
            raise PlanAlreadyApproved(
                f"The plan {plan.name} was approved and is about to be carried out. Store a new plan."
            )

    def check_unanswered(self, plan: Plan) -> None:
        """Raise PlanRejected if the current revision was rejected or sent back."""
        if plan.decision is not None:
            raise PlanRejected(
                f"Revision {plan.revision} of the plan {plan.name} was answered with {plan.decision!r}"
                + (f" and the feedback {plan.feedback!r}" if plan.feedback else "")
                + ". Store the next revision first; it needs an approval of its own."
            )

    def _spec(self, runtime: Runtime, name: str) -> PlanSpec:
        spec = runtime.plans.get(name)
        if spec is None:
            known = ", ".join(sorted(runtime.plans)) or "none"
            raise Invalid(
                f"The runtime declares no plan {name!r}.", [FieldError("/specName", f"declared are: {known}")]
            )
        return spec

    async def check_inputs(self, run: QueryRun, inputs: Any) -> None:
        """Raise Invalid unless the inputs of an execution, merged over those of its query, fit the runtime."""
        schema = run.runtime.spec.input_schema
        if schema is None:
            return
        errors = await offload(self.schemas.errors, schema, effective_inputs(run, inputs))
        if errors:
            raise Invalid(
                "The inputs do not match the runtime's inputSchema.",
                [FieldError("/inputs" + f.pointer, f.message) for f in errors],
            )

    async def check_and_snapshot(
        self,
        tx: Tx,
        run: QueryRun,
        plan: Plan,
        read: PlanReader,
        inputs: Any,
        actor: Actor,
        texts: ArtifactTexts,
    ) -> StoredDocuments:
        """Store the documents that the plan's variables lead into as it reaches its gate. Raise Invalid if a variable
        that no action provides has no value, or an action that is known now does not match the plan's schema."""
        variable_scope = VariableScope.of(run)
        initial = {**variable_scope.initial, INPUT: effective_inputs(run, inputs)}
        variable_scope = replace(variable_scope, initial=initial)
        work_id = actor.scope.work_id
        body, graph = await read.body(plan), await read.graph(plan)
        snapshot = await take_snapshot(tx, self.variables, variable_scope, graph, work_id, texts)
        spec = self._spec(run.runtime, plan.spec_name)
        errors = await validate_known_actions(tx, self.variables, self.schemas, spec, body, graph, snapshot)
        if errors:
            raise Invalid("The plan is invalid once its variables are resolved.", errors)
        return snapshot

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
        actor: Actor,
        *,
        query_id: str | None = None,
        result: bytes | None = None,
    ) -> Plan:
        """Apply one transition of the table. Raise Conflict. The caller has locked the plan's row."""
        PLAN_LIFE.check(plan.status, to)
        if not await store.move(
            tx, plan_id=plan.id, current=plan.status, to=to, query_id=query_id, result=result
        ):
            raise Conflict(f"The plan {plan.name} is not {plan.status} any more.")
        await store.insert_transition(tx, plan=plan, from_=plan.status, to=to, actor=actor)
        await self._emit(tx, actor, [self.status_event(actor.scope, runtime, plan, plan.status, to)])
        if to == "approved":
            await self._references.hold(tx, plan.id, until_over=True)
        elif to in PLAN_LIFE.terminal:
            await self._references.unpin(tx, plan.id)
        return await self.load(tx, None, plan.id)

    async def _emit(self, tx: Tx, actor: Actor, events: list[Event]) -> None:
        if actor.scope.query_id:  # a host that stores a plan has no query to tell
            await append_events(tx, query_id=actor.scope.query_id, events=events)

    async def move_actions(
        self,
        tx: Tx,
        plan_id: str,
        scope: Scope,
        actions: Sequence[PlanAction],
        to: ActionStatus,
        *,
        work_id: str | None = None,
        result: bytes | None = None,
        error: bytes | None = None,
        settled_by: str | None = None,
    ) -> None:
        """Move actions of a plan to a status, with an event each, unless their status has changed meanwhile."""
        for action in actions:
            ACTION_LIFE.check(action.status, to)
        moved = await store.move_actions(
            tx,
            plan_id=plan_id,
            indexes=[action.index for action in actions],
            current=sorted({action.status for action in actions}),
            to=to,
            work_id=work_id,
            result=result,
            error=error,
            settled_by=settled_by,
        )
        events = [
            action_event(scope, plan_id, action.index, action.kind, action.status, to)
            for action in actions
            if action.index in moved
        ]
        if events and scope.query_id:
            await append_events(tx, query_id=scope.query_id, events=events)

    async def on_gate_closed(self, tx: Tx, approval: ApprovalRow, subject: bytes) -> None:
        """In the transaction in which a gate closes without an approval: the revision that was asked about carries
        what was said of it and is not presented again, whatever is stored meanwhile."""
        if approval.decision is not None:
            revision = (await offload(loads, subject))["revision"]
            await store.record_decision(
                tx,
                plan_id=approval.target,
                revision=revision,
                decision=approval.decision,
                feedback=approval.feedback,
                partial=approval.partial,
            )
        await self.leave_draft(tx, approval.target)

    # -- the end of a query ----------------------------------------------------------------------------------

    async def end_of_query(self, tx: Tx, query_id: str, reason: str) -> None:
        """Close the plans that an ending query executes. Actions that were never claimed are skipped, claimed ones
        are unknown (in their work records, too), and the plan fails. A plan that was approved but not started becomes
        a draft again, and that approval can no longer start it. Call this after the query's offers were withdrawn."""
        for plan_id in await store.approved_drafts_of_query(tx, query_id=query_id):
            await store.lock(tx, plan_id=plan_id)
            await self.leave_draft(tx, plan_id)
        for plan_id in await store.executing_of_query(tx, query_id=query_id):
            await store.lock(tx, plan_id=plan_id)
            plan = await self.load(tx, None, plan_id)
            runtime = await self._runtimes.get(tx.tenant, plan.runtime_id, tx)
            scope = await self.scope_of_execution(tx, plan)
            actions = bodies.parse_actions(await offload(loads, plan.body))
            closed = set[str]()  # the actions of one dispatch share a record
            rows = await store.actions(tx, plan_id=plan_id)
            actions_by_work = Counter(row.work_id for row in rows)
            for row in rows:
                if awaits_result(row.status):
                    spec = runtime.plans[plan.spec_name]
                    by_tool = bodies.is_tool_call(runtime.spec, spec, actions[row.index])
                    result_of_action = await self._result_of_abandoned(tx, row, by_tool=by_tool)
                    result, error = result_of_action.dump(actions_by_work[row.work_id])
                    await self.move_actions(
                        tx, plan_id, scope, [row], result_of_action.status, result=result, error=error
                    )
                    if result_of_action.status != "skipped" and row.call_id not in closed:
                        closed.add(row.call_id)
                        await close_action(
                            tx, id=row.call_id, status=result_of_action.status, output=result, error=error
                        )
            label = plan_labels(runtime.plans.get(plan.spec_name)).get("failed", "failed")
            result = strict_json.dumps({"status": "failed", "label": label, "reason": reason})
            await self.move(tx, runtime, plan, "failed", Actor(scope, "service"), result=result)

    async def _result_of_abandoned(self, tx: Tx, row: PlanAction, *, by_tool: bool) -> ActionResult:
        """Return the result of an action whose query is ending. A result that has already arrived counts, but is not
        written to an output path. A pending action has a call if it was sent earlier and a person settled it as
        `retry`."""
        call = None if row.work_id is None else await abandoned_result(tx, row.work_id)
        if call is None:
            return ActionResult("skipped")
        if isinstance(call, ToolError) and call.status == "unknown":
            return ActionResult.unknown("The query ended before the outcome was settled.")
        return ActionResult.from_call(call, by_tool=by_tool)

    async def runtime_of(self, tx: Tx, plan: Plan) -> Runtime:
        """Return the version of the runtime that the plan was stored for."""
        return await self._runtimes.get(tx.tenant, plan.runtime_id, tx)

    async def scope_of_execution(self, tx: Tx, plan: Plan) -> Scope:
        """Return the position of a plan's execution in its query's tree of work."""
        work_id = await store.executing_work(tx, plan_id=plan.id)
        scope = await load_scope(tx, work_id=work_id) if work_id else None
        return scope or Scope(plan.query_id or "", plan.thread_id, work_id or "", None, "")

    async def leave_draft(self, tx: Tx, plan_id: str) -> None:
        """Reset a plan whose gate closed without execution to a plain draft, unless another approval is pending
        for it; its reference pins expire again."""
        plan = await self.load(tx, None, plan_id)
        if plan.status == "draft" and not await store.has_pending_approval(tx, plan_id=plan_id):
            await self._references.hold(tx, plan_id, until_over=False)

    # -- reading ---------------------------------------------------------------------------------------------

    async def load(self, tx: Tx, thread_id: str | None, name: str) -> Plan:
        """Return a plan by its `pln_` id, or by the key that a planner chose in this thread."""
        plan = await store.find(tx, thread_id=thread_id, name=name)
        if plan is None:
            raise NotFound(f"There is no plan {name!r}" + (" in this thread." if thread_id else "."))
        return plan

    async def page(
        self, tx: Tx, after: str | None, limit: int, filters: PlanFilter
    ) -> tuple[list[Plan], str | None]:
        """Return up to `limit` plans, newest first, and the id after which the next page begins, or None on the last."""
        return await store.page(tx, after=after, limit=limit, filters=filters)

    async def revisions(
        self, tx: Tx, plan_id: str, before: int | None, limit: int
    ) -> tuple[list[PlanRevision], int | None]:
        """Return up to `limit` revisions of a plan without their bodies, newest first, and the revision before which the
        next page begins, or None on the last. Raise NotFound."""
        await self.load(tx, None, plan_id)
        return await store.revisions(tx, plan_id=plan_id, before=before, limit=limit)

    async def revision(self, tx: Tx, plan_id: str, number: int) -> PlanRevision:
        """Return a revision of a plan. Raise NotFound."""
        plan = await self.load(tx, None, plan_id)
        revision = await store.revision(tx, plan_id=plan_id, revision=number)
        if revision is None:
            raise NotFound(f"The plan {plan.name} has {plan.revision} revisions, and no revision {number}.")
        return revision

    async def revision_pair(self, tx: Tx, plan_id: str, *, earlier: int | None, later: int) -> RevisionPair:
        """Return two revisions to compare; without `earlier`, `later` and the one before. Raise NotFound or Invalid."""
        plan = await self.load(tx, None, plan_id)
        if earlier is None:
            earlier = later - 1
        if not 0 < earlier < later:
            message = f"must be an earlier revision than {later}"
            raise Invalid(
                f"Revision {later} cannot be compared: `from` {message}.", [FieldError("query:from", message)]
            )
        before = await store.revision_body(tx, plan_id=plan_id, revision=earlier)
        after = await store.revision_body(tx, plan_id=plan_id, revision=later)
        if before is None or after is None:
            raise NotFound(f"The plan {plan.name} has {plan.revision} revisions, and no revision {later}.")
        spec = (await self._runtimes.get(tx.tenant, plan.runtime_id, tx)).plans.get(plan.spec_name)
        return RevisionPair(plan.id, earlier, later, before, after, spec.action_keys if spec else {})

    async def changes(self, pair: RevisionPair) -> dict[str, Any]:
        """Return what changed between two revisions, for a response. Call it outside of transactions: large bodies are
        compared in a process, and a request may have to wait for one. Raise TooLarge or TooManyRequests."""
        bodies_and_keys = (pair.before, pair.after, pair.keys)
        if len(pair.before) + len(pair.after) <= SMALL_COMPARISON_BYTES:
            changes = compare_bodies(*bodies_and_keys)
        else:
            async with self._processes.open(request=True) as process:
                changes = await process.run(compare_bodies, *bodies_and_keys)
        return {"planId": pair.plan_id, "from": pair.earlier, "to": pair.later, **changes}

    async def stored_documents(self, tx: Tx, work_id: str) -> StoredDocuments:
        """Return the documents that were stored when this work brought the plan to its gate."""
        return StoredDocuments(await store.snapshot(tx, work_id=work_id))

    async def transitions(
        self, tx: Tx, plan_id: str, after: int, limit: int
    ) -> tuple[list[PlanTransition], int | None]:
        """Return up to `limit` changes of a plan's status, oldest first, and the number after which the next page begins,
        or None on the last. Raise NotFound."""
        await self.load(tx, None, plan_id)
        changes = await store.transitions(tx, plan_id=plan_id, after=after, limit=limit + 1)
        return changes[:limit], changes[limit - 1].n if len(changes) > limit else None

    async def actions(
        self, tx: Tx, plan_id: str, after: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return up to `limit` actions of a plan that was approved, for a response, in order, and the index after which
        the next page begins, or None on the last. Raise NotFound."""
        await self.load(tx, None, plan_id)
        actions, last = await store.action_page(tx, plan_id=plan_id, after=after, limit=limit)
        return await self.action_views(tx, plan_id, actions), last

    async def action_views(self, tx: Tx, plan_id: str, actions: Sequence[PlanAction]) -> list[dict[str, Any]]:
        """Return actions for a response, with the artifacts that their calls published."""
        artifacts = await self._artifacts.of_actions(tx, plan_id, [(a.index, a.work_id) for a in actions])
        rows = []
        for action in actions:
            first, has_more = artifacts[action.index]
            rows.append(to_wire(views.ActionView, action, artifacts=first, has_more_artifacts=has_more))
        return rows

    async def with_action_states(self, tx: Tx, plan_id: str) -> tuple[Plan, list[ActionState]]:
        """Return a plan and, once it was approved, the states of its actions. Raise NotFound."""
        return await self.load(tx, None, plan_id), await store.action_states(tx, plan_id=plan_id)
