"""Carrying out an approved plan: dispatch through the write boundary, one row an action, nothing sent twice.

The rows decide: whoever begins again reads them, leaves what is finished, waits for what is under way, and sends
what was never sent. A batch is one dispatch and its rows share one outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import orjson
from plangate.spec.models import ToolSpec
from plangate.spec.transports import ToolDispatcher

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
from app.tools.client import ClientCalls
from app.tools.models import CLAIM_WITHIN_MS, DEFAULT_TIMEOUT_MS, CallOutcome, ClientCall, definition_digest

CLIENT_HOLD_S = 2.0
MAX_PARALLEL = 8


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Actions that are sent together: all of a batch, or one."""

    indexes: tuple[int, ...]
    boundary: Boundary
    key: str


class Execution:
    """One plan being carried out inside one run of a query."""

    def __init__(
        self,
        plans: Plans,
        calls: ClientCalls,
        run: QueryRun,
        runtime: Runtime,
        plan: Plan,
        who: Who,
        inputs: Any,
    ) -> None:
        self._plans = plans
        self._calls = calls
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

    def _dispatches(self) -> list[Dispatch]:
        found, _ = bodies.boundaries(self._runtime.spec, [a.kind for a in self._actions])
        tenant, plan = self._run.lease.tenant, self._plan
        if "*" in found:
            key = bodies.idempotency_key(tenant, plan.id, plan.revision, None)
            return [Dispatch(tuple(range(len(self._actions))), found["*"], key)] if self._actions else []
        return [
            Dispatch((n,), found[a.kind], bodies.idempotency_key(tenant, plan.id, plan.revision, n))
            for n, a in enumerate(self._actions)
        ]

    async def _dispatch_all(self, execution_id: str) -> None:
        """So many lanes that take the next dispatch in turn; what waits for a person holds its lane."""
        dispatches = self._dispatches()
        limits = self._runtime.spec.limits
        lanes = min((limits and limits.max_parallel_actions) or MAX_PARALLEL, len(dispatches))
        left = iter(dispatches)

        async def lane() -> None:
            for dispatch in left:
                await self._dispatch(execution_id, dispatch)

        if lanes:
            await self._run.branches([lane() for _ in range(lanes)])

    async def _dispatch(self, execution_id: str, dispatch: Dispatch) -> None:
        """One dispatch to its end, from wherever its rows stand; a settled `retry` comes round again."""
        while (
            sent := await self._run.durably(lambda tx: self._send(tx, execution_id, dispatch))
        ) is not None:
            await self._outcome(execution_id, dispatch, sent)

    async def _outcome(self, execution_id: str, dispatch: Dispatch, work_id: str) -> None:
        """Waits for what became of a dispatch and records it; where nobody knows, waits for a person."""
        outcome = await self._run.wait(
            lambda: self._run.look(lambda tx: self._news(tx, dispatch, work_id)),
            reason="client_call",
            hold_s=CLIENT_HOLD_S,
        )
        await self._run.durably(lambda tx: self._record(tx, execution_id, dispatch, work_id, outcome))
        if outcome.status == "unknown":
            await self._run.wait(
                lambda: self._run.look(lambda tx: self._settled(tx, dispatch)), reason="outcome_unknown"
            )

    async def _rows(self, tx: Tx, dispatch: Dispatch) -> list[Any]:
        rows = await store.actions(tx, self._plan.id)
        return [rows[n] for n in dispatch.indexes]

    async def _settled(self, tx: Tx, dispatch: Dispatch) -> bool | None:
        rows = await self._rows(tx, dispatch)
        return None if any(r["status"] == "unknown" for r in rows) else True

    async def _news(self, tx: Tx, dispatch: Dispatch, work_id: str) -> CallOutcome | None:
        rows = await self._rows(tx, dispatch)
        if any(r["status"] == "unknown" for r in rows):
            return CallOutcome("unknown")
        return await self._calls.outcome(tx, work_id)

    async def _send(self, tx: Tx, execution_id: str, dispatch: Dispatch) -> str | None:
        """Says `dispatched` and offers the call in one transaction: the intent is on record before anybody can
        take it. None when there is nothing left to do; for rows that were sent before, their work."""
        await store.lock(tx, self._plan.id)
        rows = await self._rows(tx, dispatch)
        sent = [r for r in rows if r["status"] in ("dispatched", "unknown")]
        if sent:
            return str(sent[0]["work_id"])
        open_rows = [r for r in rows if r["status"] == "pending"]
        if not open_rows:
            return None
        work_id = open_rows[0]["work_id"] or new_id("wrk_")  # a retry goes on under the same identity
        scope = self._run.scope(work_id, execution_id, self._who.scope.agent)
        await self._plans.move_actions(
            tx, self._plan.id, scope, open_rows, ActionStatus.DISPATCHED, work_id=work_id
        )
        dispatcher = dispatch.boundary.dispatcher
        tool = self._tool_of(dispatch)
        call = ClientCall(
            work_id=work_id,
            query_id=self._run.query.id,
            purpose="action",
            name=bodies.served_name(dispatch.boundary),
            definition_digest=definition_digest(tool) if tool else dispatch.boundary.digest,
            request=jsongate.dumps(self._request(dispatch, [r["attempts"] + 1 for r in open_rows])),
            replay=dispatcher.replay,
            claim_within_ms=getattr(dispatcher, "claim_within_ms", None) or CLAIM_WITHIN_MS,
            timeout_ms=dispatcher.timeout_ms or DEFAULT_TIMEOUT_MS,
        )
        if open_rows[0]["work_id"]:
            await self._calls.offer_again(tx, call)
        else:
            await self._calls.offer(tx, call)
        await store.open_action_work(
            tx, work_id, self._run.query.id, self._run.query.thread_id, execution_id, call.name, scope.agent
        )
        return work_id

    def _tool_of(self, dispatch: Dispatch) -> ToolSpec | None:
        """The declared tool that carries the action out, where the dispatcher is one."""
        dispatcher = dispatch.boundary.dispatcher
        return self._runtime.tools[dispatcher.tool] if isinstance(dispatcher, ToolDispatcher) else None

    def _request(self, dispatch: Dispatch, attempts: list[int]) -> dict[str, Any]:
        tenant, plan = self._run.lease.tenant, self._plan
        actions = []
        for n in dispatch.indexes:
            own = bodies.idempotency_key(tenant, plan.id, plan.revision, n)
            actions.append({**self._actions[n].wire(), "index": n, "idempotencyKey": own})
        return {
            "planId": plan.id,
            "specName": plan.spec_name,
            "revision": plan.revision,
            "digest": plan.digest.hex(),
            "idempotencyKey": dispatch.key,
            "actions": actions,
            "inputs": self._inputs,
            "attempt": max(attempts),
            **({"args": actions[0]["payload"]} if self._tool_of(dispatch) else {}),
            "context": {
                "queryId": self._run.query.id,
                "threadId": plan.thread_id,
                "runtimeId": plan.runtime_id,
            },
        }

    async def _record(
        self, tx: Tx, execution_id: str, dispatch: Dispatch, work_id: str, outcome: CallOutcome
    ) -> None:
        rows = [r for r in await self._rows(tx, dispatch) if r["status"] == "dispatched"]
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
