"""The built-in toolkit `memory`: how agents without variables read and write beyond their thread."""

from __future__ import annotations

from typing import Any

import orjson
from plangate.spec.variables import InvalidVariable, VariablePath, parse_place

from app.base.json.offload import offload
from app.base.postgres.database import Tx
from app.calls.toolkit import BuiltinTool, ToolCall
from app.documents.call_records import first_own_write
from app.documents.models import MEMORY, Author, DocumentId, WriteRequest, WriteRow
from app.documents.service import DocumentService
from app.documents.writing import WriteRejected, json_type
from app.events import StateWriteEvent
from app.journal.models import event
from app.journal.service import append_events
from app.tools.results import Answer, ToolError, ToolResult
from app.variables.service import VariableService
from app.variables.values import VariableError


class MemoryTools:
    """The tools `recall` and `remember`."""

    def __init__(self, documents: DocumentService, variables: VariableService) -> None:
        self._documents = documents
        self._variables = variables

    def verbs(self) -> dict[str, BuiltinTool]:
        return {"recall": self._recall, "remember": self._remember}

    async def _recall(self, call: ToolCall) -> ToolResult:
        path = _parse(call.args["path"]) if "path" in call.args else VariablePath(MEMORY)
        if isinstance(path, ToolError):
            return path
        try:
            return Answer(await self._variables.value_at(call.run, path, call.scope.work_id))
        except VariableError as error:
            return ToolError(f"Nothing was recalled. {error}", "not_found")

    async def _remember(self, call: ToolCall) -> ToolResult:
        path = _parse(call.args["path"])
        if isinstance(path, ToolError):
            return path
        document = DocumentId.memory(call.run.runtime.name)
        method, value = call.args.get("method", "set"), call.args["value"]
        data = await offload(orjson.dumps, value)
        request = WriteRequest(document, path, method, value, data=data)

        async def write(tx: Tx) -> WriteRow:
            scope = call.scope
            done = await first_own_write(tx, work_id=scope.work_id)
            if done is not None:  # before a crash
                return done
            # Part -1: the result of the call itself may go to a path as well.
            author = Author(scope.work_id, scope.query_id, scope.agent, part=-1)
            row = await self._documents.write(tx, request, author, prepared)
            change = event(scope, StateWriteEvent, data=row.change())
            await append_events(tx, query_id=scope.query_id, events=[change], epoch=call.run.lease.epoch)
            return row

        try:
            prepared = await self._documents.prepare_large(call.run.read, request)
            row = await call.run.in_fenced_transaction(write)
        except WriteRejected as error:
            return ToolError(f"Nothing was remembered: {error}.", "not_written")
        return Answer(_receipt(row, value))


def _receipt(row: WriteRow, value: Any) -> dict[str, Any]:
    return {"written": [row.change()], "type": json_type(value), "sizeBytes": row.size_bytes}


def _parse(place: str) -> VariablePath | ToolError:
    """Return the path of a place in the memory, or the error for the model."""
    try:
        return parse_place(MEMORY, place)
    except InvalidVariable as error:
        return ToolError(
            f"The path cannot be used: {error}. Write keys joined by dots, such as customer.name.", "bad_path"
        )
