"""Write documents, read them, current or of the past, and fork them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
from plangate.spec.variables import VariablePath

from app.base.errors import NotFound, TooLarge
from app.base.json.limits import LIMITS
from app.base.json.offload import offload, weight
from app.base.json.process_pool import JsonProcessPool
from app.base.postgres.database import Database, Tx
from app.base.schema.checker import SchemaChecker
from app.documents import store
from app.documents.bodies import Change, apply_change, apply_changes, glimpse_body
from app.documents.glimpses import glimpse_value
from app.documents.models import (
    EMPTY,
    Author,
    Document,
    DocumentId,
    DocumentLimits,
    LockedDocument,
    WriteRequest,
    WriteRow,
)
from app.documents.writing import WriteRejected
from app.workspace.service import require_thread

MAX_WRITES_PER_PURGE: Final = 100
"""Deleted writes that one transaction removes: each holds a value of at most 16 MiB, and some a whole document."""


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """A document after a write, computed before the transaction that adds the write: from the document after its write
    `head`, when the writes up to `forgotten` were deleted."""

    head: int
    forgotten: int
    body: bytes

    def applies_to(self, current: Document) -> bool:
        """Return whether the document is still the one that this was computed from."""
        return (self.head, self.forgotten) == (current.head, current.forgotten)


class PreparationNeeded(Exception):
    """A write turned out to be to a large document: prepare it while no transaction is open."""


@dataclass(frozen=True, slots=True)
class PastDocument:
    """A document before some writes, from which a later version is rebuilt."""

    body: bytes
    changes: tuple[Change, ...]

    @property
    def size(self) -> int:
        return len(self.body) + sum(len(change.value) for change in self.changes)


class DocumentService:
    """Large documents are parsed and rebuilt in other processes."""

    def __init__(
        self, schemas: SchemaChecker, processes: JsonProcessPool, limits: DocumentLimits | None = None
    ) -> None:
        self._schemas = schemas
        self._processes = processes
        self._limits = limits or DocumentLimits()

    # -- writing ---------------------------------------------------------------------------------------------

    async def compile_schema(self, write: WriteRequest) -> None:
        """Compile the schema of the document before a transaction needs it: a large one takes a second."""
        if write.schema is not None:
            await offload(self._schemas.compile, write.schema)

    async def prepare_large(
        self,
        read: Callable[[Callable[[Tx], Awaitable[Document | None]]], Awaitable[Document | None]],
        write: WriteRequest,
    ) -> PreparedWrite | None:
        """Compute the document after a write of a large value, or to a large document, while no transaction is open;
        return None for any other write. `read` runs a function in a transaction of its own. The schema of the document is
        compiled afterwards. Raise WriteRejected."""
        await self.compile_schema(write)
        change = await _change(write)

        async def load_large(tx: Tx) -> Document | None:
            size = await store.size(tx, document=write.document)
            if size + len(change.value) <= LIMITS.process_bytes:
                return None
            return await store.load(tx, document=write.document) or Document(0, write.base)

        current = await read(load_large)
        if current is None:
            return None
        body = await self._changed(current.body, write, change)
        return PreparedWrite(current.head, current.forgotten, body)

    async def write(
        self,
        tx: Tx,
        write: WriteRequest,
        author: Author,
        prepared: PreparedWrite | None = None,
        *,
        only_small: bool = False,
    ) -> WriteRow:
        """Add a write to the log and apply it to the document. Raise WriteRejected if nothing was written, and, with
        `only_small`, PreparationNeeded if the document is large."""
        current = await store.lock(tx, document=write.document, base=write.base)
        change = await _change(write)
        if only_small and len(current.body) + len(change.value) > LIMITS.process_bytes:
            raise PreparationNeeded
        if prepared is not None and prepared.applies_to(current):
            body = prepared.body
        else:
            body = await self._changed(current.body, write, change)
        return await self._add(tx, write.document, current, body, change, glimpse_value(write.value), author)

    async def _changed(self, body: bytes, write: WriteRequest, change: Change) -> bytes:
        """Return the document after a change. Raise WriteRejected."""
        size = max(len(body) + len(change.value), weight(write.schema))
        parts = (body, write.document.kind, change, write.schema, self._schemas, self._limits.document_bytes)
        try:
            return await offload(apply_change, *parts, size=size, processes=self._processes)
        except TooLarge as error:
            raise WriteRejected(
                "the document exceeds the processing limit for a single document: keep a large value as a reference and "
                "write its handle"
            ) from error

    async def glimpse(self, document: Document) -> Any:
        """Return the glimpse of a document. Raise TooManyRequests."""
        body = document.body
        return await offload(glimpse_body, body, size=len(body), processes=self._processes, request=True)

    async def begin_from(
        self, tx: Tx, document: DocumentId, origin: Document, glimpse: Any, forked_from: str
    ) -> WriteRow:
        """Write the first entry of a state that begins as a copy of another."""
        current = await store.lock(tx, document=document, base=EMPTY)
        change = Change(str(VariablePath(document.kind)), "set", origin.body)
        return await self._add(tx, document, current, origin.body, change, glimpse, Author(), forked_from)

    async def _add(
        self,
        tx: Tx,
        document: DocumentId,
        current: LockedDocument,
        body: bytes,
        change: Change,
        glimpse: Any,
        author: Author,
        forked_from: str | None = None,
    ) -> WriteRow:
        n, since_bytes = current.head + 1, current.since_bytes + len(change.value)
        is_checkpoint = n - current.checkpoint >= self._limits.checkpoint_writes or since_bytes >= max(
            self._limits.checkpoint_bytes, len(body)
        )
        return await store.add_write(
            tx,
            document=document,
            n=n,
            body=body,
            since_bytes=0 if is_checkpoint else since_bytes,
            change=change,
            glimpse=glimpse,
            is_checkpoint=is_checkpoint,
            author=author,
            forked_from=forked_from,
        )

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(self, tx: Tx, document: DocumentId, at: int | None = None) -> Document:
        """Return the document, now or right after its write `at` (0: its initial value). Raise NotFound."""
        return await self._rebuilt(*await self._history(tx, document, at))

    async def read_for_request(
        self, db: Database, tenant: str, document: DocumentId, at: int | None
    ) -> Document:
        """Return the state of a thread or a memory, now or right after its write `at`. Rebuild an earlier version while no
        transaction is open. Raise NotFound or TooManyRequests."""
        async with db.transaction(tenant) as tx:
            if document.thread_id is not None:
                await require_thread(tx, document.thread_id)
            history = await self._history(tx, document, at)
        return await self._rebuilt(*history, request=True)

    async def _history(
        self, tx: Tx, document: DocumentId, at: int | None
    ) -> tuple[Document, PastDocument | None]:
        """Return the document without its body, and what to rebuild it from; or the document and None."""
        current = await store.load(tx, document=document) or Document(0, EMPTY)
        if at is None or at == current.head:
            return current, None
        if at > current.head:
            raise NotFound(f"There is no write {at}: the last one is {current.head}.")
        deleted = current.forgotten
        if 0 < at <= deleted:
            raise NotFound(f"Write {at} was deleted, with all writes up to {deleted}.")
        checkpoint = await store.last_checkpoint(tx, document=document, after=deleted, to=at)
        n, body = (deleted, current.base) if checkpoint is None else (checkpoint.n, checkpoint.body)
        changes = () if n == at else await store.changes(tx, document=document, after=n, to=at)
        past = PastDocument(body, changes) if changes else None
        return Document(at, b"" if changes else body, current.base), past

    async def _rebuilt(
        self, document: Document, past: PastDocument | None, *, request: bool = False
    ) -> Document:
        if past is None:
            return document
        parts = (past.body, past.changes)
        body = await offload(
            apply_changes, *parts, size=past.size, processes=self._processes, request=request
        )
        return Document(document.head, body, document.base)


async def _change(write: WriteRequest) -> Change:
    data = write.data if write.data is not None else await offload(orjson.dumps, write.value)
    return Change(str(write.target), write.method, data)


async def list_writes(tx: Tx, document: DocumentId, before: int | None, limit: int) -> list[WriteRow]:
    """Return the writes to the state of a thread or to a memory, newest first. Raise NotFound."""
    if document.thread_id is not None:
        await require_thread(tx, document.thread_id)
    return await store.log(tx, document=document, before=before, limit=limit)


async def purge_forgotten(db: Database) -> int:
    """Remove writes of deleted memories. Return how many were removed."""
    total = 0
    while True:
        removed = await store.purge(db, limit=MAX_WRITES_PER_PURGE)
        total += removed
        if removed < MAX_WRITES_PER_PURGE:
            return total
