"""Execute an approved plan: dispatch its actions, with one row per action, and send nothing twice.

The rows decide. A run that continues an execution reads them, skips finished actions, waits for those in flight, and sends
the rest. A batch is one dispatch, and its rows share one outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from plangate.spec.variables import VariablePath
from plangate.statuses import ActionStatus, PlanStatus, WorkStatus

from app.base.ids import new_id
from app.base.json import strict_json
from app.base.json.limits import LIMITS
from app.base.json.offload import is_small, offload, weight
from app.base.postgres.database import Tx
from app.calls.dispatch import CallDispatcher, LeasedCall
from app.documents.call_records import writes_of_calls
from app.documents.models import WriteRow
from app.documents.service import PreparationNeeded
from app.documents.writing import WriteRejected
from app.engine.query_run import QueryRun
from app.engine.service import close_action, open_action
from app.engine.work_data import work_data
from app.events import WorkEndEvent, WorkStartEvent
from app.journal.models import Entry, Event, Scope, Work, event
from app.journal.service import append_events
from app.plans import artifacts, store
from app.plans import body as bodies
from app.plans.body import ActionResult
from app.plans.dispatch import DispatchBatch, DispatchPlanner
from app.plans.graph import REF, ExecutionOrder
from app.plans.models import Actor, Plan, PlanAction, plan_labels
from app.plans.progress import ExecutionFlow
from app.plans.service import PlanService, action_event
from app.plans.states import ACTION_LIFE, awaits_result, is_executing, was_sent
from app.plans.summary import execution_summary
from app.runtimes.models import Runtime
from app.tools.ledger import AcquiredCall, acquire_on_record, dump_result
from app.tools.models import OutgoingCall
from app.tools.results import ToolResult
from app.variables.service import NO_DOCUMENTS, GatheredDocuments, ResultWrite, VariableScope
from app.variables.values import OutputPath, VariableError, describe_errors, is_text

MAX_PARALLEL = 8


@dataclass(frozen=True, slots=True)
class OfferedCall:
    """A call that was offered for a batch, now or in an earlier run. `acquired`: the call, if this process may send it now, or
    its result, if it has already ended. `unknown`: its outcome is recorded as unknown."""

    call: OutgoingCall
    acquired: AcquiredCall | ToolResult | None = None
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class UnsentCall:
    """The call of action `n`, valid only if the action was never sent."""

    n: int
    call: OutgoingCall


@dataclass(frozen=True, slots=True)
class DispatchedAction:
    """Action `n`, whose dispatch is on record. Its call may be sent until `until_s` (`uptime_s`)."""

    n: int
    offered: OfferedCall
    until_s: float


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The end of a batch, whose writes were applied. `next_action` was dispatched in the same transaction."""

    next_action: DispatchedAction | None = None


RecordedEnd = tuple[list[WriteRow], DispatchedAction | None]
"""The writes of a batch that is over, and the action that was dispatched in the same transaction."""

RecordEnd = Callable[[ActionResult, ResultWrite | None], Awaitable[RecordedEnd | None]]


class PlanExecution:
    """The execution of a plan in one run of a query."""

    def __init__(
        self,
        plans: PlanService,
        dispatch: CallDispatcher,
        run: QueryRun,
        runtime: Runtime,
        plan: Plan,
        body: dict[str, Any],
        actor: Actor,
        inputs: Any,
        flow: ExecutionFlow | None = None,
    ) -> None:
        """`body` is the parsed body of the plan."""
        self._plans = plans
        self._dispatch = dispatch
        self._run = run
        self._runtime = runtime
        self._plan = plan
        self._actor = actor
        self._flow = flow
        self._body = body
        self._actions = bodies.parse_actions(body)
        self._planner = DispatchPlanner(
            run.lease.tenant, run.query.id, runtime, plan, self._actions, inputs, graph=flow is not None
        )
        self._order = ExecutionOrder([frozenset()] * len(self._planner.all))
        self._schema_size = 0 if flow is None else weight(runtime.plans[plan.spec_name].schema_)
        self._idle: list[asyncio.Future[None]] = []
        self._writing = asyncio.Lock()  # from the preparation of a large write until it is recorded

    async def carry_out(self) -> dict[str, Any]:
        """Carry out every action, end the plan, and return the result of executePlan."""
        work = self._execution_work()
        if not self._run.tree.below(self._actor.scope.work_id, "plan_execution"):
            start = event(self._scope(work.id), WorkStartEvent, data=work_data(work))
            await self._run.commit(Entry([start], [work]))
        await self._dispatch_all(work.id)
        rows = await self._run.read(lambda tx: store.actions(tx, plan_id=self._plan.id))
        summary = await offload(execution_summary, rows, size=sum(len(row.result or b"") for row in rows))
        status: PlanStatus = summary["status"]
        labels = plan_labels(self._runtime.plans.get(self._plan.spec_name))
        summary = {"status": status, "label": labels.get(status, status), **summary}
        ended_work = replace(work, status="succeeded" if status == "executed" else "failed")
        end = event(self._scope(work.id), WorkEndEvent, data=work_data(ended_work))

        async def close(tx: Tx) -> None:
            await store.lock(tx, plan_id=self._plan.id)
            plan = await self._plans.load(tx, None, self._plan.id)
            if is_executing(plan.status):
                await self._plans.move(
                    tx, self._runtime, plan, status, self._actor, result=strict_json.dumps(summary)
                )
                await close_action(tx, id=work.id, status=ended_work.status)
                await append_events(tx, query_id=self._run.query.id, events=[end])

        await self._run.in_fenced_transaction(close)
        return summary

    def _execution_work(self) -> Work:
        existing = self._run.tree.below(self._actor.scope.work_id, "plan_execution")
        return Work(
            id=existing[0].id if existing else new_id("wrk_"),
            parent_id=self._actor.scope.work_id,
            kind="plan_execution",
            name=self._plan.spec_name,
            agent=self._actor.scope.agent,
            status="running",
            input=strict_json.dumps({"planId": self._plan.id, "revision": self._plan.revision}),
        )

    def _scope(self, work_id: str) -> Scope:
        return self._run.scope(work_id, self._actor.scope.work_id, self._actor.scope.agent)

    async def _dispatch_all(self, execution_id: str) -> None:
        """Dispatch all batches, in order and several at once. A batch that waits for a person counts as one of them."""
        if self._flow is not None:  # an earlier run of the query may have begun
            rows = await self._run.read(lambda tx: self._start_actions(tx, None))
            in_flight = {r.index for r in rows if was_sent(r.status)}
            self._order = ExecutionOrder(self._flow.graph.needs, in_flight)
            for row in rows:
                if row.status in ACTION_LIFE.terminal:
                    self._order.done(row.index)
        order = self._order
        limits = self._runtime.spec.limits
        parallel = min((limits and limits.max_parallel_actions) or MAX_PARALLEL, len(self._planner.all))

        async def dispatch_ready() -> None:
            dispatched: DispatchedAction | None = None
            while not order.finished:
                n = order.take() if dispatched is None else dispatched.n
                if n is None:
                    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._idle.append(turn)
                    await self._run.suspend(turn, "client_call")
                    continue
                dispatched = await self._carry_out_batch(execution_id, n, dispatched)
                order.done(n)
                # A branch without a dispatched action takes a ready one itself.
                others = order.ready - (1 if dispatched is None else 0)
                self._resume_idle(len(self._idle) if order.finished else others)

        if parallel and not order.finished:
            await self._run.branches([dispatch_ready() for _ in range(parallel)])

    def _resume_idle(self, count: int) -> None:
        while count > 0 and self._idle:
            count -= self._run.resume(self._idle.pop())

    async def _carry_out_batch(
        self, execution_id: str, n: int, dispatched: DispatchedAction | None
    ) -> DispatchedAction | None:
        """Carry out a batch, from the state of its rows to its end. Send it again after a person settled it as `retry`.
        `dispatched`: the batch, if its dispatch was recorded with the end of another. Return the action that was dispatched
        with the end of this one."""
        batch = self._planner.all[n]
        while True:
            if dispatched is None:
                payloads = await self._payloads(execution_id, batch)
                unsent = (
                    None if isinstance(payloads, ActionResult) else await self._unsent_call(batch, payloads)
                )
                until_s = self._dispatch.send_until_s()
                renew_s = None if batch.transport.kind == "client" else self._dispatch.lease_s
                send = partial(
                    self._send, execution_id=execution_id, batch=batch, payloads=payloads, unsent=unsent
                )
                offered = await self._run.in_fenced_transaction(send, renew_s=renew_s)
            else:
                offered, until_s, dispatched = dispatched.offered, dispatched.until_s, None
            if offered is None:
                break
            if isinstance(offered, ActionResult):
                end = await self._close(execution_id, batch, new_id("wrk_"), offered)
            else:
                end = await self._outcome(execution_id, batch, offered, until_s)
            if end is not None:
                return end.next_action
        if self._flow is not None:
            await self._run.read(lambda tx: self._start_actions(tx, batch.indexes))
        return None

    async def _start_actions(self, tx: Tx, indexes: tuple[int, ...] | None) -> list[PlanAction]:
        """Read the states of actions and what they wrote, for the actions that depend on them, and return
        their rows."""
        assert self._flow is not None
        rows = await store.actions(tx, plan_id=self._plan.id, indexes=indexes)
        finished = {r.index: r for r in rows if r.status in ACTION_LIFE.terminal}
        work_ids = [
            r.work_id for n, r in finished.items() if r.work_id and self._flow.graph.steps[n].call.output
        ]
        writes_by_work: dict[str | None, list[WriteRow]] = {}
        for write in await writes_of_calls(tx, work_ids=work_ids) if work_ids else []:
            writes_by_work.setdefault(write.work_id, []).append(write)
        for n, row in finished.items():
            await self._flow.ended(n, row.status, writes_by_work.get(row.work_id, ()))
        return rows

    async def _outcome(
        self, execution_id: str, batch: DispatchBatch, offered: OfferedCall, until_s: float
    ) -> BatchEnd | None:
        """Record the outcome of a batch; if it is unknown, wait for a person to settle it. Return None unless the batch is
        over and its writes were applied."""
        if not offered.unknown:
            call, outcome = offered.call, offered.acquired
            if outcome is None or isinstance(outcome, AcquiredCall):
                leased = None if outcome is None else LeasedCall(outcome, until_s)
                outcome = await self._dispatch.outcome_of_offered_call(self._run, call, leased)
            result = ActionResult.from_call(outcome, by_tool=batch.by_tool)
            end = await self._close(execution_id, batch, call.work_id, result, (call, outcome))
            if result.status != "unknown":
                return end
        await self._run.wait(
            lambda: self._run.read(lambda tx: self._is_settled(tx, batch)), reason="outcome_unknown"
        )
        return None

    async def _rows(self, tx: Tx, batch: DispatchBatch) -> list[PlanAction]:
        return await store.actions(tx, plan_id=self._plan.id, indexes=batch.indexes)

    async def _is_settled(self, tx: Tx, batch: DispatchBatch) -> bool | None:
        rows = await self._rows(tx, batch)
        return None if any(r.status == "unknown" for r in rows) else True

    async def _send(
        self,
        tx: Tx,
        execution_id: str,
        batch: DispatchBatch,
        payloads: list[dict[str, Any]] | ActionResult,
        unsent: OutgoingCall | None,
    ) -> OfferedCall | ActionResult | None:
        """Move the actions to `dispatched` and record the intent of the call in one transaction, before any process can
        claim it. For rows that were sent before, return their call; if they cannot be sent, the result; None if all have
        ended. No other transaction moves the actions, since this one holds their query. `unsent`: the call of a single action,
        used only if the action was never sent."""
        if unsent is not None:
            acquired, events = await self._dispatch_unsent(
                tx, execution_id, UnsentCall(batch.indexes[0], unsent)
            )
            if acquired is not None:
                await append_events(tx, query_id=self._run.query.id, events=events)
                return OfferedCall(unsent, acquired)
        rows = await self._rows(tx, batch)
        sent_rows = [r for r in rows if was_sent(r.status)]
        if sent_rows:
            # It is sent as it was recorded.
            call = self._planner.call(batch, sent_rows[0].call_id, b"")
            return OfferedCall(call, unknown=any(r.status == "unknown" for r in sent_rows))
        open_rows = [r for r in rows if r.status == "pending"]
        if not open_rows:
            return None
        earlier_work_id = open_rows[0].work_id  # a retry keeps its work record
        if isinstance(payloads, ActionResult):
            return payloads if earlier_work_id is None else not_retried(payloads)
        request = self._planner.request(batch, payloads, max(r.attempts for r in open_rows) + 1)
        call = self._planner.call(
            batch, earlier_work_id or new_id("wrk_"), await offload(strict_json.dumps, request)
        )
        scope = self._run.scope(call.work_id, execution_id, self._actor.scope.agent)
        await self._plans.move_actions(
            tx, self._plan.id, scope, open_rows, "dispatched", work_id=call.work_id
        )
        await (self._dispatch.calls.offer_again if earlier_work_id else self._dispatch.calls.offer)(tx, call)
        await self._open_work(tx, call.work_id, execution_id, call.name, scope.agent)
        if call.sender == "client":
            return OfferedCall(call)
        return OfferedCall(call, await self._take(tx, call))

    async def _take(self, tx: Tx, call: OutgoingCall) -> AcquiredCall | ToolResult:
        return await self._dispatch.calls.take(tx, call, self._runtime.name, self._run.lease.epoch)

    async def _open_work(self, tx: Tx, work_id: str, parent_id: str, name: str, agent: str) -> None:
        query = self._run.query
        await open_action(
            tx,
            id=work_id,
            query_id=query.id,
            thread_id=query.thread_id,
            parent_id=parent_id,
            name=name,
            agent=agent,
        )

    async def _payloads(self, execution_id: str, batch: DispatchBatch) -> list[dict[str, Any]] | ActionResult:
        """Return the fields of the actions with their variables replaced and validated, or the reason why
        an action is not sent. No transaction is open while large values are filled in."""
        flow = self._flow
        if flow is None:
            return [self._actions[n].payload for n in batch.indexes]
        (n,) = batch.indexes
        why = flow.skip_reason(n)
        if why is not None:
            return ActionResult.skipped(why)
        try:
            stored = await self._stored_values(execution_id, flow, n)
            async with flow.turn:
                size = max(stored.size + flow.view.size, self._schema_size)
                return await offload(self._fill, flow, n, stored, size=size)
        except VariableError as error:
            return ActionResult.failed("variable_error", f"Nothing was sent. {error}")

    async def _unsent_call(self, batch: DispatchBatch, payloads: list[dict[str, Any]]) -> OutgoingCall | None:
        """Return the call of a single action, valid only if it was never sent. Return None if this process does not send it, or
        if it is a batch, reads references or is large."""
        if not self._is_sent_alone(batch):
            return None
        request = self._planner.request(batch, payloads, 1)
        data = await offload(strict_json.dumps, request)
        return self._planner.call(batch, new_id("wrk_"), data) if len(data) <= LIMITS.inline_bytes else None

    def _is_sent_alone(self, batch: DispatchBatch) -> bool:
        """Return whether this process sends the batch, and it is one action without references."""
        return (
            len(batch.indexes) == 1
            and batch.transport.kind != "client"
            and not self._actions[batch.indexes[0]].references
        )

    def _next_call(self, n: int, status: ActionStatus, write: ResultWrite | None) -> UnsentCall | None:
        """Return the call of the action that runs once action `n` is over, and reserve that action. Return None if there is
        none, or if preparing it is slow or needs the database: the result of `n` must not wait."""
        following = self._order.reserve_after(n)
        if following is None:
            return None
        request = self._next_request(n, status, write, following)
        if request is None or not is_small(request):
            self._order.put_back(following)
            return None
        batch = self._planner.all[following]
        return UnsentCall(following, self._planner.call(batch, new_id("wrk_"), strict_json.dumps(request)))

    def _next_request(
        self, n: int, status: ActionStatus, write: ResultWrite | None, following: int
    ) -> dict[str, Any] | None:
        batch, flow = self._planner.all[following], self._flow
        if not self._is_sent_alone(batch):
            return None
        if flow is None:
            return self._planner.request(batch, [self._actions[following].payload], 1)
        written = 0 if write is None else len(write.data)
        size = max(flow.view.size + written, self._schema_size)
        if size > LIMITS.inline_bytes or flow.turn.locked() or self._stored_roots(flow, following):
            return None
        with flow.assume_ended(n, status, write):
            try:
                reason = flow.skip_reason(following)
                payloads = self._fill(flow, following, NO_DOCUMENTS) if reason is None else None
            except VariableError:
                return None
        return self._planner.request(batch, payloads, 1) if isinstance(payloads, list) else None

    async def _dispatch_unsent(
        self, tx: Tx, execution_id: str, unsent: UnsentCall
    ) -> tuple[AcquiredCall | None, list[Event]]:
        """Record the dispatch of an action that was never sent. Return the call, which this process may send once the
        transaction is committed, or None if the action was sent before or is over; and its events, to be appended."""
        call, action = unsent.call, self._actions[unsent.n]
        scope = self._run.scope(call.work_id, execution_id, self._actor.scope.agent)
        is_recorded, secret = await store.dispatch_action(
            tx,
            plan_id=self._plan.id,
            index=unsent.n,
            scope=scope,
            call=call,
            by=self._dispatch.calls.origin,
            epoch=self._run.lease.epoch,
            signed_for=self._runtime.name if call.is_signed else None,
        )
        if not is_recorded:
            return None, []
        change = action_event(scope, self._plan.id, unsent.n, action.kind, "pending", "dispatched")
        return acquire_on_record(call, secret), [change]

    def _stored_roots(self, flow: ExecutionFlow, n: int) -> list[VariablePath]:
        return [root for root in flow.graph.steps[n].call.roots() if root.kind == REF or is_text(root)]

    async def _stored_values(self, execution_id: str, flow: ExecutionFlow, n: int) -> GatheredDocuments:
        """Return the references and artifact texts that an action reads. A text must match what was approved. Raise
        VariableError."""
        roots = self._stored_roots(flow, n)
        if not roots:
            return NO_DOCUMENTS
        variable_scope = VariableScope.of_stored_values(self._plan.thread_id)
        gathered = await self._plans.variables.gather_all(self._run, variable_scope, execution_id, roots)
        return await asyncio.to_thread(
            artifacts.check_texts, gathered, flow.view.documents_by_id(artifacts.TEXTS)
        )

    def _fill(
        self, flow: ExecutionFlow, n: int, stored: GatheredDocuments
    ) -> list[dict[str, Any]] | ActionResult:
        """Return the fields of an action of a graph, or why it is not sent. Raise VariableError."""
        values = {**flow.records(n), **stored.values()}
        why = flow.missing_alternatives_reason(n, values)
        if why is not None:
            return ActionResult.skipped(why)
        call = flow.fill(n, values, stored.why)
        spec = self._runtime.plans[self._plan.spec_name]
        errors = bodies.action_errors(spec, self._body, n, call.args, self._plans.schemas)
        if errors:
            listed, _ = describe_errors(errors, call.sources)
            return ActionResult.failed(
                "variable_error", f"Nothing was sent: the action does not match its schema: {listed}"
            )
        return [call.args]

    def _output_path(self, batch: DispatchBatch) -> OutputPath | None:
        """Return the path of the result of a batch."""
        return None if self._flow is None else self._flow.graph.steps[batch.indexes[0]].call.output

    async def _close(
        self,
        execution_id: str,
        batch: DispatchBatch,
        work_id: str,
        result: ActionResult,
        call_and_result: tuple[OutgoingCall, ToolResult] | None = None,
    ) -> BatchEnd | None:
        """Record the outcome of a batch and of its call, and write the result to its path, all or nothing. An action whose
        result could not be written has failed, although it ran. Return None unless the batch is over and the actions that
        depend on it were notified."""
        record = partial(self._record_end, execution_id, batch, work_id, call_and_result)
        status, output = result.status, self._output_path(batch)
        try:
            if output is None or status not in ("succeeded", "failed"):
                recorded = await record(result, None)
            else:
                recorded = await self._record_with_write(execution_id, work_id, output, result, record)
        except WriteRejected as error:
            has_run = result.status == "succeeded"
            text = (
                "The action ran, but its result"
                if has_run
                else f"{str((result.error or {}).get('message')).rstrip('.')}. This error"
            )
            unwritten = ActionResult.failed("not_written", f"{text} was not written: {error}.")
            status = unwritten.status
            recorded = await record(unwritten, None)
        if recorded is None or status not in ACTION_LIFE.terminal:
            return None
        writes, next_action = recorded
        if self._flow is not None:
            (n,) = batch.indexes
            await self._flow.ended(n, status, writes)
        return BatchEnd(next_action)

    async def _record_with_write(
        self, execution_id: str, work_id: str, output: OutputPath, result: ActionResult, record: RecordEnd
    ) -> RecordedEnd | None:
        """Record an outcome with a write of the result to its path. Raise WriteRejected."""
        assert self._flow is not None
        scope = self._run.scope(work_id, execution_id, self._actor.scope.agent)
        prepare = partial(self._plans.variables.prepare_write, self._run, scope, output, result.tool_result())
        async with self._writing:  # else another write of the plan could come first
            try:
                # The snapshot has the documents that the plan writes to.
                return await record(result, await prepare(known_bytes=self._flow.view.size))
            except PreparationNeeded:
                return await record(result, await prepare())

    async def _record_end(
        self,
        execution_id: str,
        batch: DispatchBatch,
        work_id: str,
        call_and_result: tuple[OutgoingCall, ToolResult] | None,
        result: ActionResult,
        write: ResultWrite | None,
    ) -> RecordedEnd | None:
        """Record the outcome of a batch. If it was a single action that was sent, also record the dispatch of the action that
        runs next, so that each action of a chain costs one transaction. Return None if the outcome was recorded before."""
        if call_and_result is None or len(batch.indexes) > 1:

            async def record(tx: Tx) -> list[WriteRow] | None:
                if call_and_result is not None:
                    await self._dispatch.settle(tx, self._run, *call_and_result)
                return await self._record(tx, execution_id, batch, work_id, result, write)

            writes = await self._run.in_fenced_transaction(record)
            return None if writes is None else (writes, None)
        (n,) = batch.indexes
        unsent = None
        if result.status in ACTION_LIFE.terminal:
            unsent = self._next_call(n, result.status, write)
        until_s = self._dispatch.send_until_s()
        next_action: DispatchedAction | None = None
        try:
            recorded = await self._run.in_fenced_transaction(
                await self._prepare_action_end(execution_id, n, *call_and_result, result, write, unsent),
                renew_s=None if unsent is None else self._dispatch.lease_s,
            )
            if recorded is not None and unsent is not None and recorded[1] is not None:
                next_action = DispatchedAction(unsent.n, OfferedCall(unsent.call, recorded[1]), until_s)
        finally:
            if unsent is not None and next_action is None:
                self._order.put_back(unsent.n)
                self._resume_idle(self._order.ready)
        return None if recorded is None else (recorded[0], next_action)

    async def _prepare_action_end(
        self,
        execution_id: str,
        n: int,
        call: OutgoingCall,
        outcome: ToolResult,
        result: ActionResult,
        write: ResultWrite | None,
        unsent: UnsentCall | None,
    ) -> Callable[[Tx], Awaitable[tuple[list[WriteRow], AcquiredCall | None] | None]]:
        """Return a function that records the outcome of an action in a transaction, and the dispatch of the action `unsent`. It
        returns the writes and the call of `unsent` if this process may send it; or None if the outcome was recorded before."""
        if result.error is not None and write is not None:
            error = {**result.error, "writtenTo": [str(path) for path in write.paths]}
            result = replace(result, error=error)
        data, error_data = await offload(result.dump, size=weight(result.result))
        call_row = await dump_result(outcome) if call.sender == "service" else None
        scope = self._run.scope(call.work_id, execution_id, self._actor.scope.agent)
        kind = self._actions[n].kind

        async def record(tx: Tx) -> tuple[list[WriteRow], AcquiredCall | None] | None:
            is_recorded = await store.end_action(
                tx,
                plan_id=self._plan.id,
                index=n,
                work_id=call.work_id,
                status=result.status,
                result=data,
                error=error_data,
                epoch=self._run.lease.epoch,
                call_row=call_row,
            )
            if not is_recorded:
                return None
            await self._run.record_progress(tx)
            writes: list[WriteRow] = []
            events: list[Event] = []
            if write is not None:
                variable_scope = VariableScope.of(self._run)
                writes, events = await self._plans.variables.write_once(tx, variable_scope, scope, write)
            events.append(action_event(scope, self._plan.id, n, kind, "dispatched", result.status))
            acquired: AcquiredCall | None = None
            if unsent is not None:
                acquired, changes = await self._dispatch_unsent(tx, execution_id, unsent)
                events += changes
            await append_events(tx, query_id=self._run.query.id, events=events)
            return writes, acquired

        return record

    async def _record(
        self,
        tx: Tx,
        execution_id: str,
        batch: DispatchBatch,
        work_id: str,
        result: ActionResult,
        write: ResultWrite | None,
    ) -> list[WriteRow] | None:
        """Record the outcome of a batch whose rows say how it was sent. Return the writes to the path, or None if it was
        recorded before."""
        rows = [r for r in await self._rows(tx, batch) if awaits_result(r.status)]
        if not rows:
            return None
        await self._run.record_progress(tx)
        scope = self._run.scope(work_id, execution_id, self._actor.scope.agent)
        status, is_unsent = result.status, rows[0].status == "pending"
        if is_unsent and status == "skipped":  # it has no work record
            scope, work_id = self._run.scope(execution_id, self._actor.scope.work_id, scope.agent), ""
        elif is_unsent and status == "unknown":
            work_id = rows[0].call_id
            scope = self._run.scope(work_id, execution_id, scope.agent)
        elif is_unsent:
            name = bodies.client_call_name(batch.resolved)
            await self._open_work(tx, work_id, execution_id, name, scope.agent)
        writes: list[WriteRow] = []
        if write is not None:
            writes = await self._plans.variables.write(
                tx, VariableScope.of(self._run), scope, write, self._run.lease.epoch
            )
            if result.error is not None:
                paths = [row.path for row in writes]
                result = replace(result, error={**result.error, "writtenTo": paths})
        data, error = await offload(result.dump, len(rows), size=weight(result.result))
        await self._plans.move_actions(
            tx,
            self._plan.id,
            scope,
            rows,
            status,
            work_id=work_id or None,
            result=data,
            error=error,
        )
        if work_id:
            end: WorkStatus = status if status == "succeeded" or status == "unknown" else "failed"
            await close_action(tx, id=work_id, status=end, output=data, error=error)
        return writes


def not_retried(why: ActionResult) -> ActionResult:
    """Return the result of a retry that cannot be sent: the outcome of the earlier attempt stays unknown."""
    return ActionResult.unknown(f"It was sent before, and not again. {(why.error or {}).get('message')}")
