"""The builtin toolkit `references`: `resolveRef` and `glimpseRef`."""

from __future__ import annotations

from app.agents.resolved_values import RESOLVE_MAX_BYTES, resolve_part, resolved_answer
from app.base.errors import PlangateError
from app.base.postgres.database import Tx
from app.calls.toolkit import ToolCall
from app.references.service import ReferenceService
from app.references.values import MAX_REFERENCE_BYTES
from app.tools.results import Answer, Outcome, ToolError


class ReferenceTools:
    """`resolveRef` and `glimpseRef`."""

    def __init__(self, references: ReferenceService) -> None:
        self._references = references

    async def resolve(self, call: ToolCall) -> Outcome:
        """Return the value and its glimpse, or where the value is too large, how to read a part. With a path for the
        result, return the value alone."""
        kind, id, path = call.args["kind"], call.args["id"], call.args.get("path")
        limit = MAX_REFERENCE_BYTES if call.to_path else RESOLVE_MAX_BYTES
        try:
            reference, part = await resolve_part(call.run, self._references, kind, id, path, limit)
        except PlangateError as error:
            return ToolError(error.detail, error.kind)

        async def note(tx: Tx) -> None:
            shown = 0 if call.to_path else part.shown_bytes
            await self._references.note(tx, call.scope.work_id, "resolve", [reference], shown)
            if shown:
                await self._references.pin_for_query(tx, kind, id, call.run.query.id)

        await call.run.in_fenced_transaction(note)
        return resolved_answer(reference, path, part, to_path=call.to_path)

    async def glimpse(self, call: ToolCall) -> Outcome:
        kind, id = call.args["kind"], call.args["id"]
        try:
            reference = await call.run.look(lambda tx: self._references.glimpse(tx, kind, id))
        except PlangateError as error:
            return ToolError(error.detail, error.kind)
        return Answer(reference.wire())
