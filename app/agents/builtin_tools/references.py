"""The built-in toolkit `references`: `resolveRef` and `glimpseRef`."""

from __future__ import annotations

from app.agents.resolved_values import resolve_part, resolved_answer
from app.base.errors import PlangateError
from app.base.postgres.database import Tx
from app.calls.toolkit import ToolCall
from app.references.service import ReferenceService
from app.references.values import MAX_REFERENCE_BYTES
from app.tools.results import Answer, ToolError, ToolResult


class ReferenceTools:
    """The tools `resolveRef` and `glimpseRef`."""

    def __init__(self, references: ReferenceService) -> None:
        self._references = references

    async def resolve(self, call: ToolCall) -> ToolResult:
        """Return the value and its glimpse or, if the value is too large, how to read a part. If the result has an
        output path, return the value alone."""
        kind, id, path = call.args["kind"], call.args["id"], call.args.get("path")
        limit = MAX_REFERENCE_BYTES if call.to_path else call.run.tool_result_max_bytes
        try:
            reference, part = await resolve_part(call.run, self._references, kind, id, path, limit)
        except PlangateError as error:
            return ToolError(error.detail, error.kind)
        if call.to_path and part.note is not None:
            return ToolError(part.note, "too_large")

        async def note(tx: Tx) -> None:
            shown_bytes = 0 if call.to_path else part.shown_bytes
            await self._references.note(tx, call.scope.work_id, "resolve", [reference], shown_bytes)
            if shown_bytes:
                await self._references.pin_for_query(tx, kind, id, call.run.query.id)

        await call.run.in_fenced_transaction(note)
        return resolved_answer(reference, path, part, to_path=call.to_path)

    async def glimpse(self, call: ToolCall) -> ToolResult:
        kind, id = call.args["kind"], call.args["id"]
        try:
            reference = await call.run.read(lambda tx: self._references.glimpse(tx, kind, id))
        except PlangateError as error:
            return ToolError(error.detail, error.kind)
        return Answer(reference.wire())
