"""The steps behind a gate: check the result of a call, write it to its path, and bound it for the prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from plangate.spec.gate_checks import TOOL_RESULT
from plangate.spec.toolkits import RESOLVE

from app.base.errors import TooLarge
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.postgres.database import Tx
from app.base.schema.checker import SchemaChecker
from app.calls.toolkit import CallStep, ToolCall
from app.documents.writing import WriteRejected
from app.engine.query_run import retry_while_unavailable
from app.journal.service import append_events
from app.references.glimpses import MAX_GLIMPSE_BYTES
from app.references.service import ReferenceService
from app.tools.results import Answer, ToolError, ToolResult
from app.variables.service import VariableService

READ: Final = f"read a part with {RESOLVE} and a path"
NO_READER: Final = "ask for less: you have no tool that reads it"


@dataclass(frozen=True, slots=True)
class OutputValidator:
    """Turns a result that does not match the tool's outputSchema into an error."""

    inner: CallStep
    schemas: SchemaChecker

    async def call(self, call: ToolCall) -> ToolResult:
        result = await self.inner.call(call)
        schema = None if call.declared is None else call.declared.output_schema
        if schema is None or isinstance(result, ToolError):
            return result
        errors = await offload(self.schemas.errors, schema, result.value)
        if not errors:
            return result
        messages = "; ".join(f"{e.pointer or '/'}: {e.message}" for e in errors)
        return ToolError(
            f"{call.name} ran, but its result does not match its outputSchema: {messages}", "bad_result"
        )


@dataclass(frozen=True, slots=True)
class ResultDelivery:
    """Writes the result of a call with an output path to that path, and returns a receipt. A result that
    cannot be written goes to the model as part of an error."""

    inner: CallStep
    variables: VariableService
    bounds: ResultBounds

    async def call(self, call: ToolCall) -> ToolResult:
        result, output = await self.inner.call(call), call.filled.output
        if output is None:
            return result
        if call.name == RESOLVE:  # `_output` in a stored value is data
            output = replace(output, picks=False)
        try:
            return await self.variables.deliver(call.run, call.scope, output, result)
        except WriteRejected as error:
            if isinstance(result, ToolError):
                return replace(result, message=f"{result.message} (It could not be written: {error}.)")
            value = result.value if result.record is None else result.record
            bounded = await self.bounds.bound(call, replace(result, value=value))
            text = bounded.message if isinstance(bounded, ToolError) else bounded.value
            return ToolError(
                f"{call.name} ran, but its result was not written: {error}. Its result: {text}", "not_written"
            )


class ResultBounds:
    """Bounds results to what a prompt can contain."""

    def __init__(self, references: ReferenceService) -> None:
        self._references = references

    async def bound(self, call: ToolCall, answer: Answer) -> ToolResult:
        """Return the answer with the text for the model as its value. A value that is too large for a prompt
        becomes a reference with its own glimpse or, if that is too large as well, a generic one. A tool
        that returns a record bounds its value itself."""
        value = answer.value
        if answer.record is not None:
            return replace(answer, value=strict_json.dumps(value).decode())
        data = value.encode() if isinstance(value, str) else answer.text
        if data is None:
            data = await offload(strict_json.dumps, value)
        if len(data) <= call.run.tool_result_max_bytes:
            return replace(answer, value=data.decode(), text=None)
        try:
            handle = await self._store(call, value)
        except TooLarge as error:
            return ToolError(f"{call.name} ran, but its result cannot be kept. {error.detail}", "bad_result")
        handle["note"] = (
            f"The result of {call.name} has {len(data)} bytes, too many for a prompt. It is kept under this handle: pass "
            f"the handle on, or {READ if RESOLVE in call.tools.builtin else NO_READER}."
        )
        return replace(answer, value=strict_json.dumps(handle).decode(), text=None)

    async def _store(self, call: ToolCall, value: Any) -> dict[str, Any]:
        """Store a value as a reference and return its handle. Raise TooLarge."""
        own = value.get("glimpse") if isinstance(value, dict) else None
        glimpse = own if len(await offload(strict_json.dumps, own)) <= MAX_GLIMPSE_BYTES else None
        run, scope = call.run, call.scope
        prepared = await retry_while_unavailable(
            lambda: self._references.prepare_unchecked(run.lease.tenant, TOOL_RESULT, value, glimpse)
        )

        async def store(tx: Tx) -> dict[str, Any]:
            reference = await self._references.keep(tx, prepared, scope.work_id)
            if reference.created:
                await append_events(
                    tx, query_id=run.query.id, events=[reference.event(scope)], epoch=run.lease.epoch
                )
            return reference.handle()

        return await run.in_fenced_transaction(store)


@dataclass(frozen=True, slots=True)
class ResultLimit:
    """Bounds answers to what a prompt can contain."""

    inner: CallStep
    bounds: ResultBounds

    async def call(self, call: ToolCall) -> ToolResult:
        result = await self.inner.call(call)
        return result if isinstance(result, ToolError) else await self.bounds.bound(call, result)
