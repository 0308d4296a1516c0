"""Carrying out an approved plan: dispatch through the write boundary, one row an action, nothing sent twice.

The rows decide: whoever begins again reads them, leaves what is finished, waits for what is under way, and sends
what was never sent. A batch is one dispatch and its rows share one outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import orjson
from plangate.spec.transports import ToolDispatcher, Transport

from app.agents.dispatch import Dispatch
from app.agents.model_calls import work_data
from app.agents.run import QueryRun
from app.base import jsongate
from app.base.database import Tx
from app.base.ids import new_id
from app.journal import store as journal_store
from app.journal.models import Entry, Scope, Work, event
from app.plans import body as bodies
from app.plans import store
from app.plans.body import Boundary
from app.plans.models import Plan
from app.plans.service import Plans, Who
from app.plans.states import ActionStatus, PlanStatus
from app.runtimes.models import Runtime
from app.tools.models import DEFAULT_TIMEOUT_MS, CallOutcome, OutgoingCall, definition_digest

MAX_PARALLEL = 8


@dataclass(frozen=True, slots=True)
class Shipment:
    """Actions that are sent together: all of a batch, or one."""

    indexes: tuple[int, ...]
    boundary: Boundary
    key: str


class Execution:
    """One plan being carried out inside one run of a query."""

    def __init__(
        self,
        plans: Plans,
        dispatch: Dispatch,
        run: QueryRun,
        runtime: Runtime,
        plan: Plan,
        who: Who,
        inputs: Any,
    ) -> None:
        self._plans = plans
        self._dispatch = dispatch
        self._run = run
        self._runtime = runtime
        self._plan = plan
        self._who = who
        self._inputs = inputs
        self._actions = bodies.actions_of(orjson.loads(plan.body))

    async def carry_out(self) -> dict[str, Any]:
        """Brings every action to its end, then the plan; gives what executePlan answers."""
        work = self._execution_work()
        if not self._run.tree.below(self._who.scope.work_id, "plan_execution"):
            told = event(self._scope(work.id), "work-start", data=work_data(work))
            await self._run.commit(Entry([told], [work], opens_work=True))
        await self._dispatch_all(work.id)
        rows = await self._run.look(lambda tx: store.actions(tx, self._plan.id))
        answer = summary(rows)
        status = PlanStatus(answer["status"])
        ended = replace(work, status="succeeded" if status is PlanStatus.EXECUTED else "failed")
        told = event(self._scope(work.id), "work-end", data=work_data(ended))

        async def close(tx: Tx) -> None:
            await store.lock(tx, self._plan.id)
            plan = await self._plans.named(tx, None, self._plan.id)
            if plan.status is PlanStatus.EXECUTING:
                await self._plans.move(
                    tx, self._runtime, plan, status, self._who, result=jsongate.dumps(answer)
                )
                await store.close_action_work(tx, work.id, ended.status, None, None)
                await journal_store.append(tx, self._run.query.id, [told])

        await self._run.durably(close)
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
            input=jsongate.dumps({"planId": self._plan.id, "revision": self._plan.revision}),
        )

    def _scope(self, work_id: str) -> Scope:
        return self._run.scope(work_id, self._who.scope.work_id, self._who.scope.agent)

    def _shipments(self) -> list[Shipment]:
        found, _ = bodies.boundaries(self._runtime.spec, [a.kind for a in self._actions])
        tenant, plan = self._run.lease.tenant, self._plan
        if "*" in found:
            key = bodies.idempotency_key(tenant, plan.id, plan.revision, None)
            return [Shipment(tuple(range(len(self._actions))), found["*"], key)] if self._actions else []
        return [
            Shipment((n,), found[a.kind], bodies.idempotency_key(tenant, plan.id, plan.revision, n))
            for n, a in enumerate(self._actions)
        ]

    async def _dispatch_all(self, execution_id: str) -> None:
        """So many lanes that take the next shipment in turn; what waits for a person holds its lane."""
        shipments = self._shipments()
        limits = self._runtime.spec.limits
        lanes = min((limits and limits.max_parallel_actions) or MAX_PARALLEL, len(shipments))
        left = iter(shipments)

        async def lane() -> None:
            for shipment in left:
                await self._carry(execution_id, shipment)

        if lanes:
            await self._run.branches([lane() for _ in range(lanes)])

    async def _carry(self, execution_id: str, shipment: Shipment) -> None:
        """One shipment to its end, from wherever its rows stand; a settled `retry` comes round again."""
        while (
            call := await self._run.durably(lambda tx: self._send(tx, execution_id, shipment))
        ) is not None:
            await self._outcome(execution_id, shipment, call)

    async def _outcome(self, execution_id: str, shipment: Shipment, call: OutgoingCall) -> None:
        """Records what became of a shipment; where nobody knows, waits for a person."""
        outcome = await self._run.look(lambda tx: self._unsettled(tx, shipment))
        if outcome is None:
            outcome = await self._dispatch.outcome(self._run, call, offered=True)
        await self._run.durably(lambda tx: self._record(tx, execution_id, shipment, call.work_id, outcome))
        if outcome.status == "unknown":
            await self._run.wait(
                lambda: self._run.look(lambda tx: self._settled(tx, shipment)), reason="outcome_unknown"
            )

    async def _rows(self, tx: Tx, shipment: Shipment) -> list[Any]:
        rows = await store.actions(tx, self._plan.id)
        return [rows[n] for n in shipment.indexes]

    async def _settled(self, tx: Tx, shipment: Shipment) -> bool | None:
        return None if await self._unsettled(tx, shipment) else True

    async def _unsettled(self, tx: Tx, shipment: Shipment) -> CallOutcome | None:
        """An outcome that nobody knows, and that no person has settled yet."""
        rows = await self._rows(tx, shipment)
        return CallOutcome("unknown") if any(r["status"] == "unknown" for r in rows) else None

    async def _send(self, tx: Tx, execution_id: str, shipment: Shipment) -> OutgoingCall | None:
        """Says `dispatched` and writes the intent of the call in one transaction, before anybody can take it. None
        when there is nothing left to do; for rows that were sent before, the call they went with."""
        await store.lock(tx, self._plan.id)
        rows = await self._rows(tx, shipment)
        sent = [r for r in rows if r["status"] in ("dispatched", "unknown")]
        if sent:
            return self._call(shipment, str(sent[0]["work_id"]), max(r["attempts"] for r in sent))
        open_rows = [r for r in rows if r["status"] == "pending"]
        if not open_rows:
            return None
        again = open_rows[0]["work_id"]  # a retry goes on under the same identity
        call = self._call(shipment, again or new_id("wrk_"), max(r["attempts"] for r in open_rows) + 1)
        scope = self._run.scope(call.work_id, execution_id, self._who.scope.agent)
        await self._plans.move_actions(
            tx, self._plan.id, scope, open_rows, ActionStatus.DISPATCHED, work_id=call.work_id
        )
        await (self._dispatch.calls.offer_again if again else self._dispatch.calls.offer)(tx, call)
        await store.open_action_work(
            tx,
            call.work_id,
            self._run.query.id,
            self._run.query.thread_id,
            execution_id,
            call.name,
            scope.agent,
        )
        return call

    def _call(self, shipment: Shipment, work_id: str, attempt: int) -> OutgoingCall:
        """The call to the boundary; where that is a declared tool, to the code of the tool."""
        dispatcher = shipment.boundary.dispatcher
        transport: Transport
        if isinstance(dispatcher, ToolDispatcher):
            tool = self._runtime.tools[dispatcher.tool]
            transport, digest, timeout_ms = tool.transport, definition_digest(tool), tool.timeout_ms
        else:
            transport, digest, timeout_ms = dispatcher, shipment.boundary.digest, None
        return OutgoingCall(
            work_id=work_id,
            query_id=self._run.query.id,
            purpose="action",
            name=bodies.served_name(shipment.boundary),
            definition_digest=digest,
            request=jsongate.dumps(self._request(shipment, attempt)),
            replay=dispatcher.replay,
            timeout_ms=dispatcher.timeout_ms or timeout_ms or DEFAULT_TIMEOUT_MS,
            transport=transport,
            idempotency_key=shipment.key,
        )

    def _request(self, shipment: Shipment, attempt: int) -> dict[str, Any]:
        tenant, plan = self._run.lease.tenant, self._plan
        actions = []
        for n in shipment.indexes:
            own = bodies.idempotency_key(tenant, plan.id, plan.revision, n)
            actions.append({**self._actions[n].wire(), "index": n, "idempotencyKey": own})
        return {
            "planId": plan.id,
            "specName": plan.spec_name,
            "revision": plan.revision,
            "digest": plan.digest.hex(),
            "idempotencyKey": shipment.key,
            "actions": actions,
            "inputs": self._inputs,
            "attempt": attempt,
            **(
                {"args": actions[0]["payload"]}
                if isinstance(shipment.boundary.dispatcher, ToolDispatcher)
                else {}
            ),
            "context": {
                "queryId": self._run.query.id,
                "threadId": plan.thread_id,
                "runtimeId": plan.runtime_id,
            },
        }

    async def _record(
        self, tx: Tx, execution_id: str, shipment: Shipment, work_id: str, outcome: CallOutcome
    ) -> None:
        rows = [r for r in await self._rows(tx, shipment) if r["status"] == "dispatched"]
        if not rows:
            return
        scope = self._run.scope(work_id, execution_id, self._who.scope.agent)
        to, parts = bodies.judged(outcome)
        await self._plans.move_actions(tx, self._plan.id, scope, rows, to, **parts)
        status = {"succeeded": "succeeded", "unknown": "unknown"}.get(to, "failed")
        await store.close_action_work(tx, work_id, status, parts.get("result"), parts.get("error"))


def summary(rows: list[Any]) -> dict[str, Any]:
    """What executePlan answers: the actions, how many entities they touched, in words. The rows of one dispatch
    share a result, which counts once."""
    results = {r["work_id"]: orjson.loads(r["result"]) for r in rows if r["result"] is not None}
    failed = [r for r in rows if r["status"] not in ("succeeded", "skipped")]
    affected = sum(r.get("entitiesAffected", 0) for r in results.values())
    words = [r["summary"] for r in results.values() if r.get("summary")]
    done = sum(r["status"] == "succeeded" for r in rows)
    return {
        "status": "failed" if failed else "executed",
        "actions": [
            {
                "index": r["index"],
                "kind": r["kind"],
                "status": r["status"],
                **({"error": orjson.loads(r["error"])} if r["error"] is not None else {}),
            }
            for r in rows
        ],
        "entitiesAffected": affected,
        "summary": " ".join(words) or f"{done} of {len(rows)} actions took effect.",
    }
