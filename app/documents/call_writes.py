"""Writes that the handler of a call makes itself, while the call goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from plangate.events import StateWriteEvent
from plangate.spec.variables import Expression, InvalidVariable, VariablePath, parse

from app.base.errors import FieldError, Invalid, NotFound
from app.base.json.limits import LIMITS
from app.base.json.offload import offload
from app.base.postgres.database import Database, Tx
from app.documents import store
from app.documents.models import EMPTY, STATE, Author, Document, DocumentId, WriteRow
from app.documents.service import DocumentService, PreparedWrite
from app.documents.writing import Method, WriteRejected
from app.engine import lease_store as queue_store
from app.engine.held_calls import check_call_held
from app.journal import store as journal_store
from app.journal.models import Scope, event


@dataclass(frozen=True, slots=True)
class CallWrite:
    """What a handler writes to the state of the thread of its call."""

    thread_id: str
    work_id: str
    principal: str
    target: VariablePath
    method: Method
    value: Any

    @property
    def document(self) -> DocumentId:
        return DocumentId.state(self.thread_id)


def parse_target(text: str) -> VariablePath:
    """Return the place in the state that a path names. Raise Invalid."""
    try:
        parsed = parse(text)
    except InvalidVariable as error:
        raise _invalid_write(f"{error}", "/path") from error
    references = list(parsed.paths()) if isinstance(parsed, Expression) else []
    if len(references) != 1 or references[0].kind != STATE or not references[0].path:
        raise _invalid_write("a handler writes to one place in the state, such as †state.total", "/path")
    return references[0]


async def runtime_for_write(tx: Tx, asked: CallWrite) -> str:
    """Return the version of the runtime whose `stateSchema` applies. Raise NotFound, or Invalid for work of
    another thread."""
    scope = await _scope(tx, asked)
    runtime_id: str = await store.runtime_of_query(tx, scope.query_id)
    return runtime_id


async def prepare_large_write(
    db: Database, tenant: str, documents: DocumentService, asked: CallWrite, schema: Mapping[str, Any] | None
) -> PreparedWrite | None:
    """Of a write to a large document, what it makes of it: no transaction is open meanwhile. Raises Invalid."""
    async with db.transaction(tenant) as tx:
        size = await store.size(tx, asked.document) + len(await offload(orjson.dumps, asked.value))
        if size <= LIMITS.process_bytes:
            return None
        held = await store.held_document(tx, asked.document) or Document(0, EMPTY)
    try:
        return await documents.ahead(
            held, asked.document, asked.target, asked.method, asked.value, schema=schema
        )
    except WriteRejected as error:
        raise _invalid_write(str(error), "/value") from error


async def write(
    tx: Tx,
    documents: DocumentService,
    asked: CallWrite,
    schema: Mapping[str, Any] | None,
    made: PreparedWrite | None,
) -> WriteRow:
    """Add the write to the log, and emit the event to the call's query. Raise Invalid, or Forbidden or
    Conflict if the writer does not hold the call, or nobody does."""
    scope = await _scope(tx, asked)
    await queue_store.lock(tx, scope.query_id)  # before any document, as everywhere
    await check_call_held(tx, asked.work_id, asked.principal, undone="Nothing was written")
    author = Author(asked.work_id, scope.query_id, scope.agent, await store.next_own_part(tx, asked.work_id))
    try:
        row = await documents.write(
            tx, asked.document, asked.target, asked.method, asked.value, author, schema=schema, made=made
        )
    except WriteRejected as error:
        raise _invalid_write(str(error), "/value") from error
    await journal_store.append(tx, scope.query_id, [event(scope, StateWriteEvent, data=row.change())])
    return row


async def _scope(tx: Tx, asked: CallWrite) -> Scope:
    scope = await journal_store.load_scope(tx, asked.work_id)
    if scope is None:
        raise NotFound(f"There is no work record {asked.work_id!r} of a query.")
    if scope.thread_id != asked.thread_id:
        raise _invalid_write("workId is work of another thread", "/workId")
    return scope


def _invalid_write(why: str, pointer: str) -> Invalid:
    return Invalid(f"Nothing was written: {why}.", [FieldError(pointer, why)])
