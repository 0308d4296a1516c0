"""The verbs of documents: write, read, read as it was, fork."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from plangate.spec.variables import VariablePath

from app.base.errors import NotFound, TooLarge
from app.base.ids import is_id
from app.base.json.limits import LIMITS
from app.base.json.offload import offload
from app.base.json.process_pool import JsonProcessPool
from app.base.postgres.database import Database, Tx
from app.base.schema.checker import SchemaChecker
from app.documents import store
from app.documents.bodies import Change, apply_change, apply_changes, glimpse_body
from app.documents.glimpses import glimpse_value
from app.documents.models import EMPTY, Author, Document, DocumentId, WriteRow
from app.documents.writing import Method, WriteRejected

CHECKPOINT_WRITES: Final = 100
CHECKPOINT_BYTES: Final = 1024 * 1024
"""A write keeps the whole document beside it after so many writes, or so many bytes of values, without: reading a
document as it was costs that much at most, or the size of the document where that is more."""

PURGED_AT_ONCE: Final = 100
"""Deleted writes that one transaction removes: each holds a value of at most 16 MiB, and some a whole document."""


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """A document after a write, made before the transaction that writes it, from the document after its write `head`, when
    the writes up to `forgotten` were deleted."""

    head: int
    forgotten: int
    body: bytes

    def fits(self, row: Any) -> bool:
        """Return whether the document is still the one that this was made from."""
        return (self.head, self.forgotten) == (row["head"], row["forgotten"])


@dataclass(frozen=True, slots=True)
class PastDocument:
    """A document before some writes, to be put together."""

    body: bytes
    changes: tuple[Change, ...]

    @property
    def size(self) -> int:
        return len(self.body) + sum(len(change.value) for change in self.changes)


class DocumentService:
    """Large documents are parsed and put together in processes of their own."""

    def __init__(self, schemas: SchemaChecker, processes: JsonProcessPool) -> None:
        self._schemas = schemas
        self._processes = processes

    # -- writing ---------------------------------------------------------------------------------------------

    async def ahead(
        self,
        held: Document,
        document: DocumentId,
        target: VariablePath,
        method: Method,
        value: Any,
        *,
        schema: Mapping[str, Any] | None = None,
        data: bytes | None = None,
    ) -> PreparedWrite:
        """Compute what a write makes of the stored document. If the document is large, call this while no transaction is
        open. `data` is the value as JSON, if the caller has it. Raises WriteRefused."""
        written = data if data is not None else await offload(orjson.dumps, value)
        change = Change(str(target), method, written)
        return PreparedWrite(
            held.head, held.forgotten, await self._after(held.body, document.kind, change, schema)
        )

    async def prepare_large(
        self,
        read: Callable[[Callable[[Tx], Awaitable[Document | None]]], Awaitable[Document | None]],
        document: DocumentId,
        target: VariablePath,
        method: Method,
        value: Any,
        *,
        base: bytes = EMPTY,
        schema: Mapping[str, Any] | None = None,
        data: bytes | None = None,
    ) -> PreparedWrite | None:
        """Compute a write of a large value, or to a large document, while no transaction is open; return None for any
        other write. `read` runs a function in a transaction of its own, `data` is the value as JSON, if the caller
        has it. Raise WriteRejected."""
        written = data if data is not None else await offload(orjson.dumps, value)
        left = LIMITS.process_bytes - len(written)

        async def look(tx: Tx) -> Document | None:
            if await store.size(tx, document) <= left:
                return None
            return await store.held_document(tx, document) or Document(0, base)

        held = await read(look)
        if held is None:
            return None
        return await self.ahead(held, document, target, method, value, schema=schema, data=written)

    async def write(
        self,
        tx: Tx,
        document: DocumentId,
        target: VariablePath,
        method: Method,
        value: Any,
        author: Author,
        *,
        base: bytes = EMPTY,
        schema: Mapping[str, Any] | None = None,
        made: PreparedWrite | None = None,
        data: bytes | None = None,
    ) -> WriteRow:
        """Add a write to the log and apply it to the document. `base` is the initial value of the document,
        `data` the value as JSON, if available. Raise WriteRejected if nothing was written."""
        row = await store.lock(tx, document, base)
        written = data if data is not None else await offload(orjson.dumps, value)
        change = Change(str(target), method, written)
        if made is not None and made.fits(row):
            body = made.body
        else:
            body = await self._after(row["body"], document.kind, change, schema)
        return await _add(tx, document, row, body, change, glimpse_value(value), author)

    async def _after(self, body: bytes, kind: str, change: Change, schema: Mapping[str, Any] | None) -> bytes:
        size = len(body) + len(change.value)
        parts = (body, kind, change, schema, self._schemas)
        try:
            return await offload(apply_change, *parts, size=size, processes=self._processes)
        except TooLarge as error:
            raise WriteRejected(
                "the document exceeds the processing limit for a single document: keep a large value as a reference and "
                "write its handle"
            ) from error

    async def glimpse(self, found: Document) -> Any:
        """Return the glimpse of a document. Raise TooManyRequests."""
        size = len(found.body)
        return await offload(glimpse_body, found.body, size=size, processes=self._processes, request=True)

    async def begin_from(
        self, tx: Tx, document: DocumentId, found: Document, glimpse: Any, forked_from: str
    ) -> WriteRow:
        """Write the first entry of a state that begins as a copy of another."""
        row = await store.lock(tx, document, EMPTY)
        change = Change(str(VariablePath(document.kind)), "set", found.body)
        return await _add(tx, document, row, found.body, change, glimpse, None, forked_from)

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(self, tx: Tx, document: DocumentId, at: int | None = None) -> Document:
        """Return the document, now or right after its write `at` (0: its initial value). Raise NotFound."""
        found, past = await self._history(tx, document, at)
        return found if past is None else Document(found.head, await self._fold(past), found.base)

    async def state_of(self, db: Database, tenant: str, thread_id: str, at: int | None) -> Document:
        """Return the state of a thread, now or right after its write `at`. Raise NotFound or TooManyRequests."""
        return await self._read_for_request(
            db, tenant, DocumentId.state(thread_id), at, lambda tx: thread_exists(tx, thread_id)
        )

    async def memory_of(self, db: Database, tenant: str, runtime_name: str, at: int | None) -> Document:
        """Return the memory of a runtime's name, now or right after its write `at`. Raise NotFound or
        TooManyRequests."""
        return await self._read_for_request(db, tenant, DocumentId.memory(runtime_name), at)

    async def _read_for_request(
        self,
        db: Database,
        tenant: str,
        document: DocumentId,
        at: int | None,
        check: Callable[[Tx], Awaitable[None]] | None = None,
    ) -> Document:
        """Return a document. An older version is rebuilt while no transaction is open."""
        async with db.transaction(tenant) as tx:
            if check is not None:
                await check(tx)
            found, past = await self._history(tx, document, at)
        return (
            found if past is None else Document(found.head, await self._fold(past, request=True), found.base)
        )

    async def _history(
        self, tx: Tx, document: DocumentId, at: int | None
    ) -> tuple[Document, PastDocument | None]:
        held = await store.held_document(tx, document) or Document(0, EMPTY)
        if at is None or at == held.head:
            return held, None
        if at > held.head:
            raise NotFound(f"There is no write {at}: the last one is {held.head}.")
        if 0 < at <= held.forgotten:
            raise NotFound(f"Write {at} was deleted, with all writes up to {held.forgotten}.")
        kept = await store.checkpoint(tx, document, at, held.forgotten)
        n, body = (kept["n"], kept["body"]) if kept is not None else (held.forgotten, held.base)
        if n == at:
            return Document(at, body, held.base), None
        rows = await store.between(tx, document, n, at)
        changes = tuple(Change(r["path"], r["method"], r["value"]) for r in rows)
        return Document(at, b"", held.base), PastDocument(body, changes)

    async def _fold(self, past: PastDocument, *, request: bool = False) -> bytes:
        parts = (past.body, past.changes)
        return await offload(
            apply_changes, *parts, size=past.size, processes=self._processes, request=request
        )


async def _add(
    tx: Tx,
    document: DocumentId,
    row: Any,
    body: bytes,
    change: Change,
    glimpse: Any,
    author: Author | None,
    forked_from: str | None = None,
) -> WriteRow:
    n, since = row["head"] + 1, row["since_bytes"] + len(change.value)
    keeps = n - row["checkpoint"] >= CHECKPOINT_WRITES or since >= max(CHECKPOINT_BYTES, len(body))
    written = await store.add(
        tx,
        document,
        n,
        change.path,
        change.method,
        change.value,
        orjson.dumps(glimpse),
        body if keeps else None,
        author.work_id if author else None,
        author.part if author else 0,
        author.failed if author else False,
        author.query_id if author else None,
        author.agent if author else None,
        forked_from,
        author.principal if author else None,
    )
    await store.save(tx, document, n, body, n if keeps else row["checkpoint"], 0 if keeps else since)
    return written


async def log(tx: Tx, document: DocumentId, before: int | None, limit: int) -> list[WriteRow]:
    """Return the writes to the state of a thread or to a memory, newest first. Raise NotFound."""
    if document.thread_id is not None:
        await thread_exists(tx, document.thread_id)
    return await store.log(tx, document, before, limit)


async def purge_forgotten(db: Database) -> int:
    """Remove writes of deleted memories. Return how many were removed."""
    total = 0
    while True:
        removed = await store.purge(db, PURGED_AT_ONCE)
        total += removed
        if removed < PURGED_AT_ONCE:
            return total


async def thread_exists(tx: Tx, thread_id: str) -> None:
    if not is_id("thr_", thread_id) or not await store.thread_exists(tx, thread_id):
        raise NotFound(f"There is no thread {thread_id!r}.")
