"""Writes over HTTP: by the handler of a call while the call is in flight, and by other programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from plangate.spec.variables import Expression, InvalidVariable, VariablePath, parse

from app.base.errors import FieldError, Invalid, NotFound
from app.base.postgres.database import Database, Tx
from app.documents import store
from app.documents.models import Author, Document, DocumentId, WriteRequest, WriteRow
from app.documents.service import DocumentService, PreparedWrite
from app.documents.writing import WriteRejected
from app.engine.service import lock_query
from app.events import StateWriteEvent
from app.journal.models import Scope, event
from app.journal.service import append_events, load_scope
from app.tools.claim_check import require_claim


def parse_target(text: str, kind: str) -> VariablePath:
    """Return the place in the state or the memory that a path names. Raise Invalid."""
    try:
        parsed = parse(text)
    except InvalidVariable as error:
        raise _invalid_write(f"{error}", "/path") from error
    paths = list(parsed.paths()) if isinstance(parsed, Expression) else []
    if len(paths) != 1 or paths[0].kind != kind or not paths[0].path:
        raise _invalid_write(f"the path must name one place in the {kind}, such as †{kind}.total", "/path")
    return paths[0]


async def runtime_of_call(tx: Tx, document: DocumentId, work_id: str) -> str:
    """Return the id of the runtime of the call that writes. Raise NotFound, or Invalid for a call of another thread."""
    scope = await _scope(tx, document, work_id)
    return await store.runtime_of_query(tx, query_id=scope.query_id)


async def prepare(
    db: Database, tenant: str, documents: DocumentService, write: WriteRequest
) -> PreparedWrite | None:
    """Compute a write to a large document while no transaction is open; return None for any other write. Raise
    Invalid."""

    async def read(load: Callable[[Tx], Awaitable[Document | None]]) -> Document | None:
        async with db.transaction(tenant) as tx:
            return await load(tx)

    try:
        return await documents.prepare_large(read, write)
    except WriteRejected as error:
        raise _invalid_write(str(error), "/value") from error


async def add(
    tx: Tx,
    documents: DocumentService,
    write: WriteRequest,
    prepared: PreparedWrite | None,
    principal: str,
    work_id: str | None,
) -> WriteRow:
    """Add a write to the log: for the handler of a call, with the event of the call's query, or for a program that belongs
    to no call. Raise Invalid, or Forbidden or Conflict unless the principal holds the call."""
    author, scope = Author(principal=principal), None
    if work_id is not None:
        scope = await _scope(tx, write.document, work_id)
        await lock_query(tx, query_id=scope.query_id)  # before any document, as everywhere
        await require_claim(tx, work_id, principal, rejection="Nothing was written")
        part = await store.next_own_part(tx, work_id=work_id)
        author = Author(work_id, scope.query_id, scope.agent, part)
    try:
        row = await documents.write(tx, write, author, prepared)
    except WriteRejected as error:
        raise _invalid_write(str(error), "/value") from error
    if scope is not None:
        events = [event(scope, StateWriteEvent, data=row.change())]
        await append_events(tx, query_id=scope.query_id, events=events)
    return row


async def _scope(tx: Tx, document: DocumentId, work_id: str) -> Scope:
    scope = await load_scope(tx, work_id=work_id)
    if scope is None:
        raise NotFound(f"There is no work record {work_id!r} of a query.")
    if document.thread_id not in (None, scope.thread_id):
        raise invalid_work("workId is work of another thread")
    return scope


def invalid_work(why: str) -> Invalid:
    """Return the error for a `workId` that does not belong to the document."""
    return _invalid_write(why, "/workId")


def _invalid_write(why: str, pointer: str) -> Invalid:
    return Invalid(f"Nothing was written: {why}.", [FieldError(pointer, why)])
