"""The builtin toolkit `agents`, and `references` as a model sees it."""

from __future__ import annotations

from app.base.errors import PlangateError
from app.calls.toolkit import ToolCall
from app.references.service import ReferenceService
from app.references.values import MAX_REFERENCE_BYTES
from app.tools.results import Answer, Outcome, ToolError

RESOLVE_MAX_BYTES = 64 * 1024


class ReferenceTools:
    """`resolveRef` and `glimpseRef`."""

    def __init__(self, references: ReferenceService) -> None:
        self._references = references

    async def resolve(self, call: ToolCall) -> Outcome:
        kind, id, path = call.args["kind"], call.args["id"], call.args.get("path")
        limit = MAX_REFERENCE_BYTES if call.to_path else RESOLVE_MAX_BYTES
        try:
            reference, data = await call.run.look(
                lambda tx: self._references.for_model(tx, kind, id, path, limit)
            )
            part = await self._references.shown(reference, data, path, limit)
        except PlangateError as error:
            return ToolError(error.detail, error.kind)
        await call.run.in_fenced_transaction(
            lambda tx: self._references.note(
                tx, call.scope.work_id, "resolve", [reference], 0 if call.to_path else part.shown_bytes
            )
        )
        return Answer(part.content)

    async def glimpse(self, call: ToolCall) -> Outcome:
        kind, id = call.args["kind"], call.args["id"]
        try:
            reference = await call.run.look(lambda tx: self._references.glimpse(tx, kind, id))
        except PlangateError as error:
            return ToolError(error.detail, error.kind)
        return Answer(reference.wire())
