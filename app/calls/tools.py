"""The innermost steps of a tool call: run the built-in tool, or dispatch the call of a declared one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plangate.spec.models import ToolSpec

from app.calls.dispatch import CallDispatcher
from app.calls.toolkit import BuiltinTool, CallStep, ToolCall
from app.tools.models import DEFAULT_TIMEOUT_MS, OutgoingCall, definition_digest, tool_request
from app.tools.results import ToolError, ToolResult, explain_error


@dataclass(frozen=True, slots=True)
class BuiltinTools:
    """Runs built-in tools in this process. `declared` gets the calls of all others."""

    toolkits: Mapping[str, BuiltinTool]
    declared: CallStep

    async def call(self, call: ToolCall) -> ToolResult:
        if call.declared is not None:
            return await self.declared.call(call)
        # Other calls may have used up the time while this one waited at its gate.
        await call.run.within_time(call.scope.work_id)
        return await self.toolkits[call.name](call)


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    """Sends calls of declared tools to the code that runs them. The intent is on record first."""

    dispatch: CallDispatcher

    async def call(self, call: ToolCall) -> ToolResult:
        tool = call.tools.declared[call.name]
        result = await self.dispatch.outcome(call.run, _outgoing_call(call, tool))
        if isinstance(result, ToolError):
            not_served = f"No process claimed the call of {tool.name} in time, so it was not made."
            return explain_error(result, tool.name, not_served)
        return result


def _outgoing_call(call: ToolCall, tool: ToolSpec) -> OutgoingCall:
    run, scope = call.run, call.scope
    return OutgoingCall(
        work_id=scope.work_id,
        query_id=run.query.id,
        purpose="tool",
        name=tool.name,
        definition_digest=definition_digest(tool),
        request=tool_request(run.call_context(scope, call.use_id), call.args, call.filled.text),
        replay=tool.replay_rule(),
        timeout_ms=tool.timeout_ms or DEFAULT_TIMEOUT_MS,
        transport=tool.transport,
        idempotency_key=scope.work_id,
    )
