"""The one path of every tool call: parse, validate, gate, record the intent, dispatch, check and bound the result.

Three outcomes go to the loop: a result, an error that the model can act on, and waiting, which is not an outcome
but the query going to sleep inside the call (see run.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from plangate.spec.approvals import tool_rule
from plangate.spec.models import AgentSpec, ApprovalRule, ToolSpec
from plangate.spec.toolkits import BuiltinTool as BuiltinDefinition

from app.agents.loop import Call
from app.agents.model_calls import as_written
from app.agents.run import QueryFailed, QueryRun, through_outages
from app.agents.toolkit import Answer, BuiltinTool, Outcome, SubAgent, ToolCall, ToolError
from app.approvals.models import ApprovalRequest
from app.approvals.service import Approvals
from app.base import jsongate
from app.base.database import Tx
from app.base.errors import Malformed
from app.base.schemacheck import SchemaChecker
from app.journal import store as journal_store
from app.journal.models import Entry, Scope, Work, WorkStatus, event
from app.llm.messages import ToolDefinition
from app.references.service import References
from app.runtimes.predicates import required
from app.tools import store as calls_store
from app.tools.client import ClientCalls
from app.tools.models import CLAIM_WITHIN_MS, DEFAULT_TIMEOUT_MS, ClientCall, definition_digest

RESULT_MAX_BYTES = 64 * 1024
CLIENT_HOLD_S = 2.0  # how long a call that nobody took keeps its worker
TRUNCATED = (
    "The turn was cut at the model's output limit, so this call was not made: its arguments may be incomplete. "
    "Write shorter arguments, or make fewer calls in one turn."
)


@dataclass(frozen=True, slots=True)
class AgentTools:
    """What one agent may call: the builtin tools of its toolkits and the tools its spec names."""

    builtin: Mapping[str, BuiltinDefinition]
    declared: Mapping[str, ToolSpec]

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The tools as a model is told of them."""
        return (
            *(ToolDefinition(t.name, t.description, dict(t.input_schema)) for t in self.builtin.values()),
            *(ToolDefinition(t.name, t.description, dict(t.input_schema)) for t in self.declared.values()),
        )

    def names(self) -> list[str]:
        return sorted([*self.builtin, *self.declared])


class ToolCalls:
    """Brings tool calls to their answers."""

    def __init__(
        self,
        toolkits: Mapping[str, BuiltinTool],
        approvals: Approvals,
        references: References,
        client_calls: ClientCalls,
        schemas: SchemaChecker,
    ) -> None:
        self._toolkits = toolkits
        self._approvals = approvals
        self._references = references
        self._client_calls = client_calls
        self._schemas = schemas

    async def answer(
        self,
        run: QueryRun,
        agent: AgentSpec,
        parent_id: str,
        tools: AgentTools,
        call: Call,
        *,
        truncated: bool,
        depth: int,
        sub_agent: SubAgent,
    ) -> Call:
        """The call with its answer, on record when this returns."""
        scope = run.scope(call.work_id, parent_id, agent.name)
        if truncated:
            outcome: Outcome = ToolError(TRUNCATED, "turn_truncated")
        else:
            outcome = await self._outcome(run, agent, scope, tools, call, depth, sub_agent)
        return await self._record(run, agent, scope, call, outcome)

    async def _outcome(
        self,
        run: QueryRun,
        agent: AgentSpec,
        scope: Scope,
        tools: AgentTools,
        call: Call,
        depth: int,
        sub_agent: SubAgent,
    ) -> Outcome:
        name = call.use.name
        builtin, declared = tools.builtin.get(name), tools.declared.get(name)
        if builtin is None and declared is None:
            return ToolError(
                f"There is no tool {name!r}. You can call: {', '.join(tools.names()) or 'none'}.",
                "unknown_tool",
            )
        schema = builtin.input_schema if builtin else declared.input_schema if declared else {}
        args = self._arguments(call.use.arguments, schema)
        if isinstance(args, ToolError):
            return args
        definition = definition_digest(declared) if declared else ""
        allowed = await self._gate(run, agent, scope, name, args, definition)
        if isinstance(allowed, ToolError):
            return allowed
        args = allowed
        if declared is not None:
            return await self._client(run, agent, scope, declared, args)
        handler = self._toolkits[name]
        return await handler(ToolCall(run, agent, scope, name, args, depth, sub_agent))

    def _arguments(self, written: str, schema: Mapping[str, Any]) -> dict[str, Any] | ToolError:
        try:
            args = jsongate.parse(written.encode() or b"{}")
        except (Malformed, UnicodeEncodeError) as error:
            return ToolError(
                f"The arguments are not valid JSON, so the call was not made: {error}", "bad_arguments"
            )
        if not isinstance(args, dict):
            return ToolError("The arguments must be a JSON object; the call was not made.", "bad_arguments")
        flaws = self._schemas.compile(schema).errors(args)
        if flaws:
            listed = "; ".join(f"{f.pointer or '/'}: {f.message}" for f in flaws)
            return ToolError(
                f"The arguments do not match the tool's schema, so the call was not made: {listed}",
                "bad_arguments",
            )
        return args

    # -- the gate --------------------------------------------------------------------------------------------

    async def _gate(
        self, run: QueryRun, agent: AgentSpec, scope: Scope, name: str, args: dict[str, Any], definition: str
    ) -> dict[str, Any] | ToolError:
        """The arguments that may be sent: those of the call, or nothing."""
        resolved = tool_rule(run.runtime.spec, agent.name, name)
        if not await self._needs_approval(run, agent, scope, resolved.rule, name, args):
            return args
        subject = jsongate.canonical(
            {"tool": name, "definitionDigest": definition, "args": args, "runtimeVersion": run.runtime.digest}
        )
        request = ApprovalRequest(
            kind="tool",
            target=name,
            subject=subject,
            glimpses={"args": args},
            rule=resolved.rule,
            scope=scope,
            runtime_id=run.runtime.id,
            requested_by=run.query.principal,
            expires_in_ms=run.query.request.get("approvalExpiresInMs"),
        )
        await run.durably(lambda tx: self._approvals.request(tx, request))
        decided = await run.wait(
            lambda: run.look(lambda tx: self._approvals.decided(tx, scope.work_id, "tool")),
            reason="approval",
        )
        if decided.status == "approved":
            if decided.digest != hashlib.sha256(subject).digest():
                return ToolError(
                    "The call differs from what was approved, so it was not made.", "approval_mismatch"
                )
            return args
        if decided.status == "expired" and resolved.rule.on_expiry == "fail":
            raise QueryFailed("approval_expired", f"Nobody decided about {name} in time.")
        if decided.status == "expired":
            return ToolError("Nobody decided in time, so the call was not made.", "approval_expired")
        feedback = f" Feedback: {decided.feedback}" if decided.feedback else ""
        return ToolError(f"The call was rejected and not made.{feedback}", "rejected")

    async def _needs_approval(
        self,
        run: QueryRun,
        agent: AgentSpec,
        scope: Scope,
        rule: ApprovalRule,
        name: str,
        args: dict[str, Any],
    ) -> bool:
        """A dynamic rule asks its predicate; one that errs or is not there asks a person. It is asked once: a call
        that comes back after its query slept keeps to its gate, or goes on where it was sent, although the cost
        that the predicate sees has moved meanwhile."""
        if rule.kind != "dynamic":
            return rule.kind == "always"
        if await run.look(lambda tx: self._approvals.asked(tx, scope.work_id, "tool")):
            return True
        if run.tree.below(scope.work_id):
            return False
        if await run.look(lambda tx: self._begun(tx, scope.work_id)):
            return False
        expression = run.runtime.spec.approval_predicates.get(rule.value or "")
        ctx = {
            "tool": name,
            "agent": agent.name,
            "threadId": run.query.thread_id,
            "queryId": run.query.id,
            "resourceId": run.lease.tenant,
            "spentUsd": run.totals()["costUsd"] or 0.0,
        }
        return not isinstance(expression, str) or required(expression, args, ctx)

    async def _begun(self, tx: Tx, work_id: str) -> bool:
        """Whether the call passed its gate before: it was offered, or stands at the gate of a plan."""
        return await calls_store.outcome(tx, work_id) is not None or await self._approvals.asked(
            tx, work_id, "plan"
        )

    # -- dispatch --------------------------------------------------------------------------------------------

    async def _client(
        self, run: QueryRun, agent: AgentSpec, scope: Scope, tool: ToolSpec, args: dict[str, Any]
    ) -> Outcome:
        """Offers the call to the user's processes; the row is the intent, committed before anybody can take it."""
        call = ClientCall(
            work_id=scope.work_id,
            query_id=run.query.id,
            purpose="tool",
            name=tool.name,
            definition_digest=definition_digest(tool),
            request=jsongate.dumps(
                {
                    "args": args,
                    "context": {
                        "toolUseId": scope.work_id,
                        "queryId": run.query.id,
                        "threadId": run.query.thread_id,
                        "agent": agent.name,
                        "runtimeId": run.runtime.id,
                    },
                }
            ),
            replay=tool.replay_rule(),
            claim_within_ms=getattr(tool.transport, "claim_within_ms", None) or CLAIM_WITHIN_MS,
            timeout_ms=tool.timeout_ms or DEFAULT_TIMEOUT_MS,
        )
        await run.durably(lambda tx: self._client_calls.offer(tx, call))
        done = await run.wait(
            lambda: run.look(lambda tx: self._client_calls.outcome(tx, scope.work_id)),
            reason="client_call",
            hold_s=CLIENT_HOLD_S,
        )
        if done.status == "unknown":
            return ToolError(
                f"Whether {tool.name} ran is not known: the process that had taken the call did not answer in time. "
                "Do not assume either; check before you repeat it.",
                "outcome_unknown",
            )
        if done.status == "withdrawn":
            return ToolError(f"Nobody took the call of {tool.name} in time; it was not made.", "not_served")
        if done.error is not None:
            return ToolError(done.error, "tool_error")
        if tool.output_schema is not None:
            flaws = self._schemas.compile(tool.output_schema).errors(done.output)
            if flaws:
                listed = "; ".join(f"{f.pointer or '/'}: {f.message}" for f in flaws)
                return ToolError(
                    f"{tool.name} ran, but its result does not match its outputSchema: {listed}", "bad_result"
                )
        return Answer(done.output)

    # -- the record ------------------------------------------------------------------------------------------

    async def _record(
        self, run: QueryRun, agent: AgentSpec, scope: Scope, call: Call, outcome: Outcome
    ) -> Call:
        if isinstance(outcome, Answer):
            text = await self._bounded(run, scope, call.use.name, outcome.value)
            body: dict[str, Any] = {"state": "result", "result": _readable(text)}
            closed = _closed(agent, scope, call, "succeeded", output=text.encode())
            answered = replace(call, answer=text)
        else:
            error = {"code": outcome.code, "message": outcome.message}
            body = {"state": "error", "error": error}
            status: WorkStatus = "unknown" if outcome.code == "outcome_unknown" else "failed"
            closed = _closed(agent, scope, call, status, error=orjson.dumps(error))
            answered = replace(call, answer=outcome.message, is_error=True)
        told = event(
            scope,
            "tool-invocation",
            toolInvocationId=call.use.id,
            toolName=call.use.name,
            args=as_written(call.use.arguments),
            **body,
        )
        await run.commit(Entry(items=[told], work=[closed]))
        return answered

    async def _bounded(self, run: QueryRun, scope: Scope, tool: str, value: Any) -> str:
        """The text for the model. What is too large for a prompt becomes a reference with its glimpse."""
        text = value if isinstance(value, str) else jsongate.dumps(value).decode()
        size = len(text.encode())
        if size <= RESULT_MAX_BYTES:
            return text
        glimpse = value.get("glimpse") if isinstance(value, dict) else None

        tenant = run.lease.tenant
        prepared = await through_outages(
            lambda: self._references.prepare_unchecked(tenant, "ToolResult", value, glimpse)
        )

        async def keep(tx: Tx) -> dict[str, Any]:
            made = await self._references.keep(tx, prepared, scope.work_id)
            if made.created:
                await journal_store.append(tx, run.query.id, [made.event(scope)], run.lease.epoch)
            return made.handle()

        handle = await run.durably(keep)
        return jsongate.dumps(
            {
                **handle,
                "note": f"The result of {tool} has {size} bytes, too many for a prompt. It is kept under this "
                "handle: pass the handle on, or read a part with resolveRef and a path.",
            }
        ).decode()


def _closed(
    agent: AgentSpec,
    scope: Scope,
    call: Call,
    status: WorkStatus,
    output: bytes | None = None,
    error: bytes | None = None,
) -> Work:
    return Work(
        id=scope.work_id,
        parent_id=scope.parent_work_id,
        kind="tool_call",
        name=call.use.name,
        agent=agent.name,
        status=status,
        position=call.position,
        tool_invocation_id=call.use.id,
        output=output,
        error=error,
    )


def _readable(text: str) -> Any:
    """The result as JSON where it is JSON, for readers of the journal."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
