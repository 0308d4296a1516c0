"""Writes over HTTP: those that the handler of a call makes itself, while the call goes on, and those of other programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from plangate.events import StateWriteEvent
from plangate.spec.variables import Expression, InvalidVariable, VariablePath, parse

from app.base.errors import FieldError, Invalid, NotFound
from app.base.postgres.database import Database, Tx
from app.documents import store
from app.documents.models import Author, Document, DocumentId, WriteRow
from app.documents.service import DocumentService, PreparedWrite
from app.documents.writing import Method, WriteRejected
from app.engine import lease_store as queue_store
from app.engine.held_calls import check_call_held
from app.journal import store as journal_store
from app.journal.models import Scope, event


@dataclass(frozen=True, slots=True)
class CallWrite:
    """What a handler writes to the state of the thread of its call, or to the memory."""

    document: DocumentId
    work_id: str
    principal: str
    target: VariablePath
    method: Method
    value: Any


def parse_target(text: str, kind: str) -> VariablePath:
    """Return the place in the state, or in the memory, that a path names. Raise Invalid."""
    try:
        parsed = parse(text)
    except InvalidVariable as error:
        raise _invalid_write(f"{error}", "/path") from error
    references = list(parsed.paths()) if isinstance(parsed, Expression) else []
    if len(references) != 1 or references[0].kind != kind or not references[0].path:
        raise _invalid_write(f"the path must name one place in the {kind}, such as †{kind}.total", "/path")
    return references[0]


async def runtime_for_write(tx: Tx, asked: CallWrite) -> str:
    """Return the version of the runtime that the call is made in. Raise NotFound, or Invalid for work of another
    thread."""
    scope = await _scope(tx, asked)
    runtime_id: str = await store.runtime_of_query(tx, scope.query_id)
    return runtime_id


async def prepare_large_write(
    db: Database,
    tenant: str,
    documents: DocumentService,
    document: DocumentId,
    target: VariablePath,
    method: Method,
    value: Any,
    schema: Mapping[str, Any] | None = None,
) -> PreparedWrite | None:
    """Compute a write to a large document while no transaction is open; return None for any other write. Raise
    Invalid."""

    async def read(look: Callable[[Tx], Awaitable[Document | None]]) -> Document | None:
        async with db.transaction(tenant) as tx:
            return await look(tx)

    try:
        return await documents.prepare_large(read, document, target, method, value, schema=schema)
    except WriteRejected as error:
        raise _invalid_write(str(error), "/value") from error


async def write_from_outside(
    tx: Tx,
    documents: DocumentService,
    document: DocumentId,
    target: VariablePath,
    method: Method,
    value: Any,
    principal: str,
    made: PreparedWrite | None,
) -> WriteRow:
    """Add the write of a request that belongs to no call to the log. Raise Invalid."""
    try:
        return await documents.write(
            tx, document, target, method, value, Author.outside(principal), made=made
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
    if asked.document.thread_id not in (None, scope.thread_id):
        raise invalid_work("workId is work of another thread")
    return scope


def invalid_work(why: str) -> Invalid:
    """Return the error for a `workId` that does not belong to the document."""
    return _invalid_write(why, "/workId")


def _invalid_write(why: str, pointer: str) -> Invalid:
    return Invalid(f"Nothing was written: {why}.", [FieldError(pointer, why)])
