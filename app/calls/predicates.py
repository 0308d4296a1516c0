"""The predicates of dynamic approval rules: whether a call with these arguments needs an approval."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from plangate.spec.models import ApprovalRule
from plangate.spec.transports import ClientTransport

from app.base.ids import new_id
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.json.process_pool import JsonProcessPool
from app.calls.dispatch import CallDispatcher
from app.calls.toolkit import ToolCall
from app.engine.work_data import work_data
from app.events import WorkEndEvent, WorkStartEvent
from app.journal.models import Entry, Work, event
from app.runtimes.predicate_pool import PredicatePool
from app.runtimes.predicates import predicate_digest
from app.tools.models import OutgoingCall
from app.tools.results import Answer, ToolResult

ANSWER_WITHIN_MS: Final = 30_000
"""If the process that answers for a predicate takes longer, a person decides."""


class ApprovalPredicates:
    """Evaluates the predicates of a runtime, here or in a client process."""

    def __init__(self, dispatch: CallDispatcher, processes: JsonProcessPool) -> None:
        self._dispatch = dispatch
        self._pool = PredicatePool(processes)

    async def require_approval(self, call: ToolCall, rule: ApprovalRule) -> bool:
        """Return whether a rule other than `never` requires an approval of this call. If the predicate of a
        dynamic rule fails or is missing, it does."""
        predicate = call.run.runtime.spec.approval_predicates.get(rule.value or "")
        if rule.kind == "always" or predicate is None or rule.value is None:
            return True
        run = call.run
        context = {
            "tool": call.name,
            "agent": call.agent.name,
            "threadId": run.query.thread_id,
            "queryId": run.query.id,
            "resourceId": run.lease.tenant,
            "spentUsd": run.totals().cost_usd or 0.0,
        }
        if isinstance(predicate, str):
            return await self._pool.requires_approval(predicate, call.args, context, call.filled.text)
        return await self._ask_client(call, rule.value, context)

    async def _ask_client(self, call: ToolCall, predicate: str, context: dict[str, Any]) -> bool:
        """Return whether a client process says that this call needs approval. An error, no answer, or
        anything but a boolean counts as yes. The question has a work record of its own, so that it is
        asked once."""
        run, parent_id = call.run, call.scope.work_id
        record = next(iter(run.tree.below(parent_id, "predicate")), None)
        work = Work(
            id=record.id if record else new_id("wrk_"),
            parent_id=parent_id,
            kind="predicate",
            name=predicate,
            agent=call.agent.name,
            status="running",
        )
        scope = run.scope(work.id, parent_id, call.agent.name)
        if record is None:
            await run.commit(Entry([event(scope, WorkStartEvent, data=work_data(work))], [work]))
        request = {
            "args": call.args,
            "predicate": context,
            "context": run.call_context(call.scope, call.use_id),
        }
        question = OutgoingCall(
            work_id=work.id,
            query_id=run.query.id,
            purpose="predicate",
            name=f"predicates.{predicate}",
            definition_digest=predicate_digest(run.runtime.name, predicate),
            request=await offload(strict_json.dumps, request),
            replay="never",  # a lapsed claim counts as no answer
            timeout_ms=ANSWER_WITHIN_MS,
            transport=ClientTransport(claim_within_ms=ANSWER_WITHIN_MS),
            idempotency_key=work.id,
        )
        result = await self._dispatch.outcome(run, question)
        required = result.value if isinstance(result, Answer) and isinstance(result.value, bool) else None
        if record is None or not record.over:
            ended = replace(
                work,
                status="failed" if required is None else "succeeded",
                output=None if required is None else strict_json.dumps(required),
                error=strict_json.dumps(_predicate_error(predicate, result)) if required is None else None,
            )
            await run.commit(Entry([event(scope, WorkEndEvent, data=work_data(ended))], [ended]))
        return required is not False


def _predicate_error(predicate: str, result: ToolResult) -> dict[str, str]:
    """Return the reason why a person decides."""
    if isinstance(result, Answer):
        why = f"it returned {type(result.value).__name__}, not a boolean"
    else:
        why = result.message or "no process answered in time"
    return {"code": "predicate_failed", "message": f"The predicate {predicate!r} did not answer: {why}."}
