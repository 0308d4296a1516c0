"""Carrying out an approved plan: dispatch through the write boundary, one row an action, nothing sent twice.

The rows decide: whoever begins again reads them, leaves what is finished, waits for what is under way, and sends
what was never sent. A batch is one dispatch and its rows share one outcome.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from plangate.events import WorkEndEvent, WorkStartEvent
from plangate.statuses import PlanStatus

from app.base.ids import new_id
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.postgres.database import Tx
from app.calls.dispatch import CallDispatcher, LeasedCall
from app.documents import store as state_store
from app.documents.models import WriteRow
from app.documents.service import PreparedWrite
from app.documents.writing import WriteRejected
from app.engine import work_records
from app.engine.query_run import QueryRun
from app.engine.work_data import work_data
from app.journal import store as journal_store
from app.journal.models import Entry, Scope, Work, event
from app.plans import artifacts, store
from app.plans import body as bodies
from app.plans.body import Verdict
from app.plans.dispatch import DispatchBatch, DispatchPlanner
from app.plans.graph import ExecutionOrder
from app.plans.models import Plan, plan_labels
from app.plans.service import Actor, PlanService
from app.plans.states import ACTION_LIFE
from app.plans.summary import execution_summary
from app.plans.variables import ExecutionFlow, deliver_result, parse_documents, prepare_large_write
from app.runtimes.models import Runtime
from app.tools.ledger import AcquiredCall
from app.tools.models import CallOutcome, OutgoingCall
from app.tools.results import Answer, Outcome, ToolError
from app.variables.service import GatheredDocuments, VariableScope
from app.variables.values import OutputPath, VariableError, describe_errors

MAX_PARALLEL = 8
NO_TEXTS = GatheredDocuments({}, {}, frozenset())


@dataclass(frozen=True, slots=True)
class OfferedCall:
    """A call that was offered for a shipment, now or before. `taken`: this process may send it now, or how it ended
    before that. `unknown`: nobody knows what became of it, and that is on record."""

    call: OutgoingCall
    taken: AcquiredCall | CallOutcome | None = None
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Where a result goes, and what a large one makes of the document there."""

    output: OutputPath
    made: PreparedWrite | None
    data: bytes | None


class PlanExecution:
    """One plan being carried out inside one run of a query."""

    def __init__(
        self,
        plans: PlanService,
        dispatch: CallDispatcher,
        run: QueryRun,
        runtime: Runtime,
        plan: Plan,
        body: dict[str, Any],
        who: Actor,
        inputs: Any,
        flow: ExecutionFlow | None = None,
    ) -> None:
        """`body` is that of the plan, parsed."""
        self._plans = plans
        self._dispatch = dispatch
        self._run = run
        self._runtime = runtime
        self._plan = plan
        self._who = who
        self._flow = flow
        self._body = body
        self._actions = bodies.parse_actions(body)
        self._shipments = DispatchPlanner(
            run.lease.tenant, run.query.id, runtime, plan, self._actions, inputs, graph=flow is not None
        )
        self._idle: list[asyncio.Future[None]] = []
        self._writing = asyncio.Lock()  # held from where a large write is made ahead until it is on record

    async def carry_out(self) -> dict[str, Any]:
        """Brings every action to its end, then the plan; gives what executePlan answers."""
        work = self._execution_work()
        if not self._run.tree.below(self._who.scope.work_id, "plan_execution"):
            told = event(self._scope(work.id), WorkStartEvent, data=work_data(work))
            await self._run.commit(Entry([told], [work]))
        await self._dispatch_all(work.id)
        rows = await self._run.look(lambda tx: store.actions(tx, self._plan.id))
        answer = await offload(execution_summary, rows, size=sum(len(row["result"] or b"") for row in rows))
        status: PlanStatus = answer["status"]
        labels = plan_labels(self._runtime.plans.get(self._plan.spec_name))
        answer = {"status": status, "label": labels.get(status, status), **answer}
        ended = replace(work, status="succeeded" if status == "executed" else "failed")
        told = event(self._scope(work.id), WorkEndEvent, data=work_data(ended))

        async def close(tx: Tx) -> None:
            await store.lock(tx, self._plan.id)
            plan = await self._plans.named(tx, None, self._plan.id)
            if plan.status == "executing":
                await self._plans.move(
                    tx, self._runtime, plan, status, self._who, result=strict_json.dumps(answer)
                )
                await work_records.close_action(tx, work.id, ended.status, None, None)
                await journal_store.append(tx, self._run.query.id, [told])

        await self._run.in_fenced_transaction(close)
        return answer

    def _execution_work(self) -> Work:
        found = self._run.tree.below(self._who.scope.work_id, "plan_execution")
        return Work(
            id=found[0].id if found else new_id("wrk_"),
            parent_id=self._who.scope.work_id,
            kind="plan_execution",
            name=self._plan.spec_name,
            agent=self._who.scope.agent,
            status="running",
            input=strict_json.dumps({"planId": self._plan.id, "revision": self._plan.revision}),
        )

    def _scope(self, work_id: str) -> Scope:
        return self._run.scope(work_id, self._who.scope.work_id, self._who.scope.agent)

    async def _dispatch_all(self, execution_id: str) -> None:
        """So many lanes that take the next shipment that waits for no other; what waits for a person holds its lane."""
        shipments = self._shipments.all
        order = ExecutionOrder([frozenset()] * len(shipments))
        if self._flow is not None:  # an earlier run of the query may have begun
            rows = await self._run.look(lambda tx: self._start_actions(tx, None))
            outside = ("dispatched", "unknown")
            order = ExecutionOrder(
                self._flow.graph.needs, {r["index"] for r in rows if r["status"] in outside}
            )
            for row in rows:
                if row["status"] in ACTION_LIFE.terminal:
                    order.done(row["index"])
        limits = self._runtime.spec.limits
        lanes = min((limits and limits.max_parallel_actions) or MAX_PARALLEL, len(shipments))

        async def lane() -> None:
            while not order.finished:
                n = order.take()
                if n is None:
                    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._idle.append(turn)
                    await self._run.idle(turn, "client_call")
                    continue
                await self._carry_out_batch(execution_id, shipments[n])
                order.done(n)
                self._resume_lanes(len(self._idle) if order.finished else order.ready - 1)

        if lanes and not order.finished:
            await self._run.branches([lane() for _ in range(lanes)])

    def _resume_lanes(self, lanes: int) -> None:
        while lanes > 0 and self._idle:
            lanes -= self._run.resume(self._idle.pop())

    async def _carry_out_batch(self, execution_id: str, shipment: DispatchBatch) -> None:
        """One shipment to its end, from wherever its rows stand; a settled `retry` comes round again."""
        while True:
            texts = await self._load_texts(execution_id, shipment)
            payloads = await self._payloads(execution_id, shipment, texts)
            until_s = self._dispatch.send_until_s()
            renew_s = None if shipment.transport.kind == "client" else self._dispatch.lease_s
            sending = partial(self._send, execution_id=execution_id, shipment=shipment, payloads=payloads)
            sent = await self._run.in_fenced_transaction(sending, renew_s=renew_s)
            if sent is None:
                break
            if isinstance(sent, Verdict):
                over = await self._close(execution_id, shipment, new_id("wrk_"), sent)
            else:
                over = await self._outcome(execution_id, shipment, sent, until_s)
            if over:
                return
        if self._flow is not None:
            await self._run.look(lambda tx: self._start_actions(tx, shipment.indexes))

    async def _start_actions(self, tx: Tx, indexes: tuple[int, ...] | None) -> list[Any]:
        """Read the states of actions and what they wrote, for the actions that depend on them, and return
        their rows."""
        assert self._flow is not None
        rows = await store.actions(tx, self._plan.id, indexes)
        over = {r["index"]: r for r in rows if r["status"] in ACTION_LIFE.terminal}
        works = [
            r["work_id"] for n, r in over.items() if r["work_id"] and self._flow.graph.steps[n].call.output
        ]
        written: dict[str | None, list[WriteRow]] = {}
        for write in await state_store.of_calls(tx, works) if works else []:
            written.setdefault(write.work_id, []).append(write)
        for n, row in over.items():
            await self._flow.ended(n, row["status"], written.get(row["work_id"], ()))
        return rows

    async def _outcome(
        self, execution_id: str, shipment: DispatchBatch, sent: OfferedCall, until_s: float
    ) -> bool:
        """Record the outcome of a batch; if it is unknown, wait for a person to settle it. Return whether
        the batch is over and its writes were applied."""
        if not sent.unknown:
            call, outcome = sent.call, sent.taken
            if not isinstance(outcome, CallOutcome):
                ready = None if outcome is None else LeasedCall(outcome, until_s)
                outcome = await self._dispatch.outcome_of_offered_call(self._run, call, ready)
            verdict = bodies.action_result(outcome, by_tool=shipment.by_tool)
            over = await self._close(execution_id, shipment, call.work_id, verdict, (call, outcome))
            if outcome.status != "unknown":
                return over
        await self._run.wait(
            lambda: self._run.look(lambda tx: self._is_settled(tx, shipment)), reason="outcome_unknown"
        )
        return False

    async def _rows(self, tx: Tx, shipment: DispatchBatch) -> list[Any]:
        return await store.actions(tx, self._plan.id, shipment.indexes)

    async def _is_settled(self, tx: Tx, shipment: DispatchBatch) -> bool | None:
        rows = await self._rows(tx, shipment)
        return None if any(r["status"] == "unknown" for r in rows) else True

    async def _load_texts(self, execution_id: str, shipment: DispatchBatch) -> GatheredDocuments | Verdict:
        """Load the artifact texts that the action reads, if they match what was approved, while no
        transaction is open."""
        flow = self._flow
        roots = flow.texts(shipment.indexes[0]) if flow is not None else []
        if flow is None or not roots:
            return NO_TEXTS
        try:
            found = await self._plans.variables.texts(self._run, roots, execution_id)
        except VariableError as error:
            return not_sent(error)
        return await asyncio.to_thread(artifacts.check_texts, found, flow.view.kept(artifacts.TEXTS))

    async def _send(
        self, tx: Tx, execution_id: str, shipment: DispatchBatch, payloads: list[dict[str, Any]] | Verdict
    ) -> OfferedCall | Verdict | None:
        """Says `dispatched` and writes the intent of the call in one transaction, before anybody can take it. None
        when there is nothing left to do; for rows that were sent before, the call they went with; the verdict on one
        that is not to be sent. Nobody else moves actions meanwhile: the transaction holds their query."""
        rows = await self._rows(tx, shipment)
        sent = [r for r in rows if r["status"] in ("dispatched", "unknown")]
        if sent:
            # What was written then is what is sent.
            call = self._shipments.call(shipment, str(sent[0]["work_id"]), b"")
            return OfferedCall(call, unknown=any(r["status"] == "unknown" for r in sent))
        open_rows = [r for r in rows if r["status"] == "pending"]
        if not open_rows:
            return None
        again = open_rows[0]["work_id"]  # a retry goes on under the same identity
        if isinstance(payloads, Verdict):
            return payloads if again is None else not_retried(payloads)
        request = self._shipments.request(shipment, payloads, max(r["attempts"] for r in open_rows) + 1)
        call = self._shipments.call(
            shipment, again or new_id("wrk_"), await offload(strict_json.dumps, request)
        )
        scope = self._run.scope(call.work_id, execution_id, self._who.scope.agent)
        await self._plans.move_actions(
            tx, self._plan.id, scope, open_rows, "dispatched", work_id=call.work_id
        )
        await (self._dispatch.calls.offer_again if again else self._dispatch.calls.offer)(tx, call)
        await self._open_work(tx, call.work_id, execution_id, call.name, scope.agent)
        if call.sender == "client":
            return OfferedCall(call)
        return OfferedCall(call, await self._dispatch.calls.take(tx, call.work_id, self._run.lease.epoch))

    async def _open_work(self, tx: Tx, work_id: str, parent_id: str, name: str, agent: str) -> None:
        query = self._run.query
        await work_records.open_action(
            tx,
            id=work_id,
            query_id=query.id,
            thread_id=query.thread_id,
            parent_id=parent_id,
            name=name,
            agent=agent,
        )

    async def _payloads(
        self, execution_id: str, shipment: DispatchBatch, texts: GatheredDocuments | Verdict
    ) -> list[dict[str, Any]] | Verdict:
        """Return the fields of the actions with their variables replaced and validated, or the reason why
        an action is not sent. No transaction is open while large values are filled in."""
        flow = self._flow
        if flow is None:
            return [self._actions[n].payload for n in shipment.indexes]
        (n,) = shipment.indexes
        try:
            async with flow.turn:
                return await self._resolved_payloads(execution_id, flow, n, texts)
        except VariableError as error:
            return not_sent(error)

    async def _resolved_payloads(
        self, execution_id: str, flow: ExecutionFlow, n: int, texts: GatheredDocuments | Verdict
    ) -> list[dict[str, Any]] | Verdict:
        """Do the same for an action of a graph. Raises VariableError."""
        skipped = flow.skip_reason(n)
        if skipped is None and isinstance(texts, Verdict):
            return texts
        read = NO_TEXTS if isinstance(texts, Verdict) else texts
        values, why_not = {**flow.records(n), **await parse_documents(read)}, dict(read.why)
        size = read.size + flow.view.size
        roots = {root for root in flow.graph.steps[n].call.roots() if root.kind == "ref"}
        if roots and skipped is None:
            holder = VariableScope.of_stored_values(self._plan.thread_id)
            gathered = await self._run.look(
                lambda tx: self._plans.variables.gather(tx, holder, execution_id, roots)
            )
            values |= await parse_documents(gathered)
            why_not |= gathered.why
            size += gathered.size
        spec = self._runtime.plans[self._plan.spec_name]

        def work() -> list[dict[str, Any]] | Verdict:
            why = skipped or flow.missing_alternatives_reason(n, values)
            if why is not None:
                return Verdict("skipped", error={"code": "skipped", "message": why})
            made = flow.fill(n, values, why_not)
            flaws = bodies.action_errors(spec, self._body, n, made.args, self._plans.schemas)
            if flaws:
                listed, _ = describe_errors(flaws, made.sources)
                return Verdict.failed(
                    "variable_error", f"Nothing was sent: the action does not match its schema: {listed}"
                )
            return [made.args]

        return await offload(work, size=size)

    def _output_path(self, shipment: DispatchBatch) -> OutputPath | None:
        """Where the result of a shipment goes."""
        return None if self._flow is None else self._flow.graph.steps[shipment.indexes[0]].call.output

    async def _close(
        self,
        execution_id: str,
        shipment: DispatchBatch,
        work_id: str,
        verdict: Verdict,
        ended: tuple[OutgoingCall, CallOutcome] | None = None,
    ) -> bool:
        """Record the outcome of a batch and of its call, and write the result to its path, all or nothing.
        An action whose result could not be written has failed, although it ran. Return whether the batch
        is over and the actions that depend on it were notified."""

        async def record(tx: Tx, verdict: Verdict, way: WriteTarget | None) -> list[WriteRow] | None:
            if ended is not None:
                await self._dispatch.settle(tx, self._run, *ended)
            return await self._record(tx, execution_id, shipment, work_id, verdict, way)

        status, output = verdict.status, self._output_path(shipment)
        try:
            if output is None or status not in ("succeeded", "failed"):
                written = await self._run.in_fenced_transaction(lambda tx: record(tx, verdict, None))
            else:
                scope = self._run.scope(work_id, execution_id, self._who.scope.agent)
                async with self._writing:  # else one of the plan's own writes would come between
                    ready = await prepare_large_write(
                        self._plans.variables, self._run, scope, output, path_outcome(verdict)
                    )
                    way = WriteTarget(output, *ready)
                    written = await self._run.in_fenced_transaction(lambda tx: record(tx, verdict, way))
        except WriteRejected as refused:
            ran = verdict.status == "succeeded"
            said = (
                "The action ran, but its result"
                if ran
                else f"{str((verdict.error or {}).get('message')).rstrip('.')}. This error"
            )
            unwritten = Verdict.failed("not_written", f"{said} was not written: {refused}.")
            status = unwritten.status
            written = await self._run.in_fenced_transaction(lambda tx: record(tx, unwritten, None))
        if written is None or status not in ACTION_LIFE.terminal:
            return False
        if self._flow is not None:
            (n,) = shipment.indexes
            await self._flow.ended(n, status, written)
        return True

    async def _record(
        self,
        tx: Tx,
        execution_id: str,
        shipment: DispatchBatch,
        work_id: str,
        verdict: Verdict,
        way: WriteTarget | None,
    ) -> list[WriteRow] | None:
        """Return what was written to the path, or None if everything was on record before."""
        rows = [r for r in await self._rows(tx, shipment) if r["status"] in ("pending", "dispatched")]
        if not rows:
            return None
        await self._run.record_progress(tx)
        scope = self._run.scope(work_id, execution_id, self._who.scope.agent)
        status, unsent = verdict.status, rows[0]["status"] == "pending"
        if unsent and status == "skipped":  # no work was done for it
            scope, work_id = self._run.scope(execution_id, self._who.scope.work_id, scope.agent), ""
        elif unsent and status == "unknown":
            work_id = rows[0]["work_id"]
            scope = self._run.scope(work_id, execution_id, scope.agent)
        elif unsent:
            name = bodies.client_call_name(shipment.boundary)
            await self._open_work(tx, work_id, execution_id, name, scope.agent)
        written: list[WriteRow] = []
        if way is not None:
            holder, epoch = VariableScope.of(self._run), self._run.lease.epoch
            outcome = path_outcome(verdict)
            written = await deliver_result(
                tx, self._plans.variables, holder, scope, way.output, outcome, epoch, way.made, way.data
            )
            if written and verdict.error is not None:
                paths = [row.path for row in written]
                verdict = replace(verdict, error={**verdict.error, "writtenTo": paths})
        parts = await offload(_results_per_action, verdict.result, verdict, len(rows))
        await self._plans.move_actions(
            tx, self._plan.id, scope, rows, status, work_id=work_id or None, **parts
        )
        if work_id:
            told = {"succeeded": "succeeded", "unknown": "unknown"}.get(status, "failed")
            await work_records.close_action(tx, work_id, told, parts.get("result"), parts.get("error"))
        return written


def _results_per_action(_result: Any, verdict: Verdict, actions: int) -> dict[str, bytes]:
    return verdict.parts(actions)


def not_sent(error: VariableError) -> Verdict:
    return Verdict.failed("variable_error", f"Nothing was sent. {error}")


def path_outcome(verdict: Verdict) -> Outcome:
    """Return what is written to the path of an action with this result."""
    if verdict.error is None:
        return Answer(verdict.value)
    return ToolError(verdict.error["message"], verdict.error["code"])


def not_retried(why: Verdict) -> Verdict:
    """Of a retry that cannot be sent: what was sent before is as unknown as it was."""
    return Verdict.unknown(f"It was sent before, and not again. {(why.error or {}).get('message')}")
