"""The gates of tool calls: which rule is in force, whether a person must decide, and what follows from the decision."""

from __future__ import annotations

from dataclasses import dataclass, replace

from plangate.json_pointer import json_pointer
from plangate.spec.approvals import ResolvedRule, tool_rule
from plangate.spec.toolkits import UNGATED_BUILTIN_TOOLS

from app.approvals.hidden_values import hide_reference_values
from app.approvals.models import ApprovalRequest, EndedApproval
from app.approvals.service import ApprovalService
from app.approvals.subject import approved_args, tool_subject
from app.base.digests import sha256
from app.base.json.offload import offload
from app.base.postgres.database import Tx
from app.calls.predicates import ApprovalPredicates
from app.calls.toolkit import CallStep, ToolCall
from app.engine.query_run import QueryFailed
from app.tools.ledger import was_offered
from app.tools.models import definition_digest
from app.tools.results import ToolError, ToolResult
from app.variables.values import FilledCall, approval_glimpses


@dataclass(frozen=True, slots=True)
class ApprovalGate:
    """Requests an approval of a call if the rule in force requires one, and waits for the decision."""

    inner: CallStep
    approvals: ApprovalService
    predicates: ApprovalPredicates

    async def call(self, call: ToolCall) -> ToolResult:
        run, scope = call.run, call.scope
        state = await run.read(lambda tx: self.approvals.gate_state(tx, scope.work_id, "tool"))
        resolved = tool_rule(run.runtime.spec, call.agent.name, call.name, state.floor)
        # A call whose approval was requested keeps its gate, even if the operator's floor has changed since.
        if not state.was_requested and not await self._needs_approval(call, resolved):
            return await self.inner.call(call)
        definition = "" if call.declared is None else definition_digest(call.declared)
        subject = await offload(tool_subject, call.name, definition, call.args, run.runtime.digest)
        request = ApprovalRequest(
            kind="tool",
            target=call.name,
            subject=subject,
            glimpses=approval_glimpses(call.filled),
            rule=resolved.rule,
            scope=scope,
            runtime_id=run.runtime.id,
            requested_by=run.query.principal,
            expires_in_ms=resolved.expires_in_ms(run.query.request.get("approvalExpiresInMs")),
        )
        await run.in_fenced_transaction(lambda tx: self.approvals.request(tx, request))
        ended = await run.wait(
            lambda: run.read(lambda tx: self.approvals.outcome(tx, scope.work_id, "tool")),
            reason="approval",
        )
        if ended.status != "approved":
            return _rejection(call, ended)
        if ended.subject == subject and await offload(sha256, subject) == ended.digest:
            return await self.inner.call(call)
        args = await offload(
            approved_args, subject, ended.subject, ended.original, ended.digest, size=len(subject)
        )
        if args is None:
            return ToolError(
                "The call differs from what was approved, so it was not made.", "approval_mismatch"
            )
        edited = replace(call, filled=FilledCall(args, output=call.filled.output))
        hidden = {json_pointer(s.place): s.variable for s in call.filled.sources if s.reads_reference()}
        if hidden:
            shown = await offload(hide_reference_values, args, call.args, hidden, size=len(subject))
        else:
            shown = args
        return replace(await self.inner.call(edited), edited_args=shown)

    async def _needs_approval(self, call: ToolCall, resolved: ResolvedRule) -> bool:
        """Return whether this call needs approval. A call that passed its gate before the query was parked
        is not gated again, even if the rule, or the cost that a predicate sees, has changed."""
        if resolved.rule.kind == "never" or await self._passed_before(call):
            return False
        return await self.predicates.require_approval(call, resolved.rule)

    async def _passed_before(self, call: ToolCall) -> bool:
        """Return whether the call has passed its gate: it was offered, waits at the gate of a plan, or has
        work below it."""
        work_id = call.scope.work_id
        if any(work.kind != "predicate" for work in call.run.tree.below(work_id)):
            return True

        async def is_known(tx: Tx) -> bool:
            return await was_offered(tx, work_id) or await self.approvals.was_requested(tx, work_id, "plan")

        return await call.run.read(is_known)


@dataclass(frozen=True, slots=True)
class BuiltinGate:
    """Lets built-in tools that follow no policy past the approval gate, unless a rule names the tool."""

    gate: ApprovalGate

    async def call(self, call: ToolCall) -> ToolResult:
        if call.name in UNGATED_BUILTIN_TOOLS:
            rule = tool_rule(call.run.runtime.spec, call.agent.name, call.name).rule
            if rule.kind == "never":
                return await self.gate.inner.call(call)
        return await self.gate.call(call)


def _rejection(call: ToolCall, ended: EndedApproval) -> ToolError:
    """Return the error of a call that was not approved. Raise QueryFailed if an expired approval fails the query."""
    if ended.status == "expired" and ended.fails_query:
        raise QueryFailed("approval_expired", f"Nobody decided about {call.name} in time.")
    if ended.status == "expired":
        return ToolError("Nobody decided in time, so the call was not made.", "approval_expired")
    feedback = f" Feedback: {ended.feedback}" if ended.feedback else ""
    return ToolError(f"The call was rejected and not made.{feedback}", "rejected")
