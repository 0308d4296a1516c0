"""The gate in front of a tool call: which rule is in force, whether a person must decide, and what he decided."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from plangate.events import WorkEndEvent, WorkStartEvent
from plangate.spec.approvals import ResolvedRule, tool_rule
from plangate.spec.models import AgentSpec, ApprovalRule
from plangate.spec.toolkits import BUILTIN_TOOL_TOOLKITS, GATED_BUILTIN_TOOLS, POLICY_TOOLS
from plangate.spec.transports import ClientTransport

from app.approvals.models import ApprovalRequest
from app.approvals.service import ApprovalService
from app.approvals.subject import approved_args, tool_subject
from app.base.ids import new_id
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.json.process_pool import JsonProcessPool
from app.base.postgres.database import Tx
from app.calls.dispatch import CallDispatcher
from app.engine.query_run import QueryFailed, QueryRun
from app.engine.work_data import work_data
from app.journal.models import Entry, Scope, Work, event
from app.llm.messages import ToolUse
from app.runtimes.predicate_pool import PredicatePool
from app.runtimes.predicates import predicate_digest
from app.tools.models import CallOutcome, OutgoingCall
from app.tools.results import ToolError
from app.variables.values import FilledCall, approval_glimpses

ASK_WITHIN_MS = 30_000  # silence of the process that answers for a predicate means that a person is asked


@dataclass(frozen=True, slots=True)
class ApprovedArguments:
    """The arguments that may be sent; `replaced`: they are an approver's, not the model's."""

    args: dict[str, Any]
    replaced: bool = False


class ToolGate:
    def __init__(
        self, approvals: ApprovalService, dispatch: CallDispatcher, processes: JsonProcessPool
    ) -> None:
        self._predicates = PredicatePool(processes)
        self._approvals = approvals
        self._dispatch = dispatch

    async def passed(
        self, run: QueryRun, agent: AgentSpec, scope: Scope, use: ToolUse, call: FilledCall, definition: str
    ) -> ApprovedArguments | ToolError:
        """Return the arguments that may be sent (the call's own or an approver's), or the error that the
        model gets instead."""
        name, args = use.name, call.args
        resolved, asked = await self._rule(run, agent, scope, name)
        if not asked and not await self._needs_approval(run, agent, scope, resolved.rule, use, call):
            return ApprovedArguments(args)
        subject = await offload(
            tool_subject, name, definition, args, run.runtime.digest, size=len(call.text or b"")
        )
        request = ApprovalRequest(
            kind="tool",
            target=name,
            subject=subject,
            glimpses=approval_glimpses(call),
            rule=resolved.rule,
            scope=scope,
            runtime_id=run.runtime.id,
            requested_by=run.query.principal,
            expires_in_ms=resolved.expires_in_ms(run.query.request.get("approvalExpiresInMs")),
        )
        await run.in_fenced_transaction(lambda tx: self._approvals.request(tx, request))
        decided = await run.wait(
            lambda: run.look(lambda tx: self._approvals.decided(tx, scope.work_id, "tool")),
            reason="approval",
        )
        if decided.status == "approved":
            if decided.subject == subject and await offload(_sha256, subject) == decided.digest:
                return ApprovedArguments(args)
            approved = await offload(
                approved_args, subject, decided.subject, decided.original, decided.digest, size=len(subject)
            )
            if approved is None:
                return ToolError(
                    "The call differs from what was approved, so it was not made.", "approval_mismatch"
                )
            return ApprovedArguments(approved, replaced=True)
        if decided.status == "expired" and decided.fails_query:
            raise QueryFailed("approval_expired", f"Nobody decided about {name} in time.")
        if decided.status == "expired":
            return ToolError("Nobody decided in time, so the call was not made.", "approval_expired")
        feedback = f" Feedback: {decided.feedback}" if decided.feedback else ""
        return ToolError(f"The call was rejected and not made.{feedback}", "rejected")

    async def _rule(
        self, run: QueryRun, agent: AgentSpec, scope: Scope, name: str
    ) -> tuple[ResolvedRule, bool]:
        """Return the rule in force, and whether an approval of this call was requested before. Such a call
        keeps its rule even if the operator's floor has changed since. The floor applies to no builtin tools
        but those that are gated by default and those that follow the policies."""
        spec = run.runtime.spec
        resolved = tool_rule(spec, agent.name, name)
        ungated = name in BUILTIN_TOOL_TOOLKITS and name not in GATED_BUILTIN_TOOLS | POLICY_TOOLS
        if ungated and resolved.rule.kind == "never":
            return resolved, False
        standing = await run.look(lambda tx: self._approvals.standing(tx, scope.work_id, "tool"))
        return tool_rule(spec, agent.name, name, standing.floor), standing.asked

    async def _needs_approval(
        self,
        run: QueryRun,
        agent: AgentSpec,
        scope: Scope,
        rule: ApprovalRule,
        use: ToolUse,
        call: FilledCall,
    ) -> bool:
        """Return whether this call needs approval. A call that passed its gate before the query was parked
        is not gated again, even if the rule, or the cost that a predicate sees, has changed. A dynamic
        rule evaluates its predicate; if that fails or is missing, a person decides."""
        if rule.kind == "never" or await self._already_passed(run, scope):
            return False
        predicate = run.runtime.spec.approval_predicates.get(rule.value or "")
        if rule.kind == "always" or predicate is None or rule.value is None:
            return True
        ctx = {
            "tool": use.name,
            "agent": agent.name,
            "threadId": run.query.thread_id,
            "queryId": run.query.id,
            "resourceId": run.lease.tenant,
            "spentUsd": run.totals()["costUsd"] or 0.0,
        }
        if isinstance(predicate, str):
            return await self._predicates.requires_approval(predicate, call.args, ctx, call.text)
        return await self._ask_client_predicate(run, agent, scope, rule.value, use.id, call, ctx)

    async def _already_passed(self, run: QueryRun, scope: Scope) -> bool:
        """Return whether the call has passed its gate: it was offered, waits at the gate of a plan, or has
        work below it."""
        if any(work.kind != "predicate" for work in run.tree.below(scope.work_id)):
            return True
        return await run.look(lambda tx: self._was_begun(tx, scope.work_id))

    async def _was_begun(self, tx: Tx, work_id: str) -> bool:
        return await self._dispatch.calls.known(tx, work_id) or await self._approvals.asked(
            tx, work_id, "plan"
        )

    async def _ask_client_predicate(
        self,
        run: QueryRun,
        agent: AgentSpec,
        scope: Scope,
        predicate: str,
        tool_use_id: str,
        asked: FilledCall,
        ctx: dict[str, Any],
    ) -> bool:
        """Return whether a client process says that this call needs approval. An error, no answer, or
        anything but a boolean counts as yes. The question has a work record of its own, so that it is
        asked once."""
        found = run.tree.below(scope.work_id, "predicate")
        work = Work(
            id=found[0].id if found else new_id("wrk_"),
            parent_id=scope.work_id,
            kind="predicate",
            name=predicate,
            agent=agent.name,
            status="running",
        )
        inner = run.scope(work.id, scope.work_id, agent.name)
        if not found:
            told = event(inner, WorkStartEvent, data=work_data(work))
            await run.commit(Entry([told], [work]))
        call = OutgoingCall(
            work_id=work.id,
            query_id=run.query.id,
            purpose="predicate",
            name=f"predicates.{predicate}",
            definition_digest=predicate_digest(run.runtime.name, predicate),
            request=await offload(
                strict_json.dumps,
                {"args": asked.args, "predicate": ctx, "context": run.call_context(scope, tool_use_id)},
                size=len(asked.text or b""),
            ),
            replay="never",  # a claim that lapses is silence, too
            timeout_ms=ASK_WITHIN_MS,
            transport=ClientTransport(claim_within_ms=ASK_WITHIN_MS),
            idempotency_key=work.id,
        )
        outcome = await self._dispatch.outcome(run, call)
        answered = outcome.status == "done" and isinstance(outcome.output, bool)
        if not (found and found[0].over):
            ended = replace(
                work,
                status="succeeded" if answered else "failed",
                output=strict_json.dumps(outcome.output) if answered else None,
                error=None if answered else strict_json.dumps(_predicate_error(predicate, outcome)),
            )
            await run.commit(Entry([event(inner, WorkEndEvent, data=work_data(ended))], [ended]))
        return bool(outcome.output) if answered else True


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _predicate_error(predicate: str, outcome: CallOutcome) -> dict[str, str]:
    """Why a person was asked."""
    if outcome.error is not None:
        why = outcome.error
    elif outcome.status == "done":
        why = f"it returned {type(outcome.output).__name__}, not a boolean"
    else:
        why = "no process answered in time"
    return {"code": "predicate_failed", "message": f"The predicate {predicate!r} did not answer: {why}."}
