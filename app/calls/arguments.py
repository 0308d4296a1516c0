"""The steps before the gate: they pass on only calls with complete, valid arguments without variables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from plangate.spec.variable_schemas import schema_without_meta

from app.base.errors import Malformed
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.schema.checker import SchemaChecker
from app.calls.toolkit import CallStep, ToolCall
from app.tools.results import ToolError, ToolResult
from app.variables.service import VariableService
from app.variables.values import FilledCall, describe_errors

TRUNCATED = (
    "The turn was cut at the model's output limit, so this call was not made: its arguments may be incomplete. "
    "Write shorter arguments, or make fewer calls in one turn."
)


@dataclass(frozen=True, slots=True)
class TruncationCheck:
    """Rejects the calls of a turn that was cut off."""

    inner: CallStep

    async def call(self, call: ToolCall) -> ToolResult:
        if call.truncated:
            return ToolError(TRUNCATED, "turn_truncated")
        return await self.inner.call(call)


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Waits until the query has time left for another call."""

    inner: CallStep

    async def call(self, call: ToolCall) -> ToolResult:
        await call.run.within_time(call.scope.work_id)
        return await self.inner.call(call)


@dataclass(frozen=True, slots=True)
class ArgumentParser:
    """Parses what the model wrote, if the tool exists."""

    inner: CallStep

    async def call(self, call: ToolCall) -> ToolResult:
        names = call.tools.names()
        if call.name not in names:
            return ToolError(
                f"There is no tool {call.name!r}. You can call: {', '.join(names) or 'none'}.", "unknown_tool"
            )
        args = await offload(_parse_arguments, call.use.arguments)
        if isinstance(args, ToolError):
            return args
        return await self.inner.call(replace(call, filled=FilledCall(args)))


@dataclass(frozen=True, slots=True)
class VariableFiller:
    """Replaces variables by their values, if the agent has the toolkit `variables`."""

    inner: CallStep
    variables: VariableService

    async def call(self, call: ToolCall) -> ToolResult:
        if not call.tools.variables:
            return await self.inner.call(call)
        schema = call.tools.argument_schema(call.name)
        filled = await self.variables.fill(call.run, call.scope, call.name, schema, call.args)
        if isinstance(filled, ToolError):
            return filled
        return await self.inner.call(replace(call, filled=filled))


@dataclass(frozen=True, slots=True)
class ArgumentValidator:
    """Rejects arguments that do not match the schema of the tool."""

    inner: CallStep
    schemas: SchemaChecker

    async def call(self, call: ToolCall) -> ToolResult:
        schema = call.tools.argument_schema(call.name)
        if call.tools.variables:
            schema = schema_without_meta(schema)
        errors = await offload(self.schemas.errors, schema, call.args)
        if not errors:
            return await self.inner.call(call)
        messages, by_variable = describe_errors(errors, call.filled.sources)
        return ToolError(
            f"The arguments do not match the tool's schema, so the call was not made: {messages}",
            "variable_error" if by_variable else "bad_arguments",
        )


def _parse_arguments(text: str) -> dict[str, Any] | ToolError:
    try:
        args = strict_json.parse(text.encode() or b"{}")
    except (Malformed, UnicodeEncodeError) as error:
        return ToolError(
            f"The arguments are not valid JSON, so the call was not made: {error}", "bad_arguments"
        )
    if not isinstance(args, dict):
        return ToolError("The arguments must be a JSON object; the call was not made.", "bad_arguments")
    return args
