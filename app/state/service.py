"""The verbs of documents: write, read, read as it was."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson
from plangate.spec.variables import MISSING, Expression, Reference, parse

from app.base import jsongate
from app.base.database import Tx
from app.base.errors import NotFound
from app.base.ids import is_id
from app.base.schemacheck import CompiledSchema
from app.state import store
from app.state.glimpses import brief
from app.state.models import EMPTY, STATE, Author, Document, DocumentId, WriteRow
from app.state.writing import Method, Write, WriteRefused, applied, folded, kind_of

MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024
AT_ONCE_BYTES: Final = (
    256 * 1024
)  # what is parsed and written between the events of other queries; more in a thread

CHECKPOINT_WRITES: Final = 100
CHECKPOINT_BYTES: Final = 1024 * 1024
"""A write keeps the whole document beside it after so many writes, or so many bytes of values, without: reading a
document as it was costs that much at most, or the size of the document where that is more."""


async def write(
    tx: Tx,
    document: DocumentId,
    target: Reference,
    method: Method,
    value: Any,
    author: Author,
    *,
    base: bytes = EMPTY,
    schema: CompiledSchema | None = None,
) -> WriteRow:
    """Adds a write to the log and folds it into the document; `base` is what the document begins as. Raises
    WriteRefused, and nothing was written."""
    row = await store.lock(tx, document, base)
    encoded = jsongate.dumps(value)

    def work() -> bytes:
        return _after(_loaded(row["body"]), document.kind, Write(target.path, method, value), schema)

    large = len(row["body"]) + len(encoded) > AT_ONCE_BYTES
    body = await asyncio.to_thread(work) if large else work()
    return await _add(tx, document, row, body, str(target), method, encoded, brief(value), author)


def _after(document: Any, kind: str, change: Write, schema: CompiledSchema | None) -> bytes:
    after = applied(document, change)
    if kind == STATE and not isinstance(after, dict):
        raise WriteRefused(f"the state of a thread is an object, and would be {kind_of(after)}")
    body = jsongate.dumps(after)
    if len(body) > MAX_DOCUMENT_BYTES:
        raise WriteRefused(
            f"the document would have {len(body)} bytes of JSON, more than {MAX_DOCUMENT_BYTES}: write less, or keep a "
            "large value as a reference and write its handle"
        )
    flaws = schema.errors(after) if schema is not None else []
    if flaws:
        listed = "; ".join(f"{f.pointer or '/'}: {f.message}" for f in flaws)
        raise WriteRefused(f"the state would not match the runtime's stateSchema: {listed}")
    return body


async def _add(
    tx: Tx,
    document: DocumentId,
    row: Any,
    body: bytes,
    path: str,
    method: Method,
    value: bytes,
    glimpse: Any,
    author: Author | None,
    forked_from: str | None = None,
) -> WriteRow:
    n, since = row["head"] + 1, row["since_bytes"] + len(value)
    keeps = n - row["checkpoint"] >= CHECKPOINT_WRITES or since >= max(CHECKPOINT_BYTES, len(body))
    written = await store.add(
        tx,
        document,
        n,
        path,
        method,
        value,
        jsongate.dumps(glimpse),
        body if keeps else None,
        author.work_id if author else None,
        author.part if author else 0,
        author.failed if author else False,
        author.query_id if author else None,
        author.agent if author else None,
        forked_from,
    )
    await store.save(tx, document, n, body, n if keeps else row["checkpoint"], 0 if keeps else since)
    return written


async def begin_from(tx: Tx, document: DocumentId, body: bytes, forked_from: str) -> WriteRow:
    """The first write of a state that begins as another one was."""
    row = await store.lock(tx, document, EMPTY)
    path = str(Reference(document.kind))
    return await _add(
        tx, document, row, body, path, "set", body, brief(orjson.loads(body)), None, forked_from
    )


async def read(tx: Tx, document: DocumentId, at: int | None = None) -> Document:
    """The document, or as it was right after its write `at` (0: as it began). Raises NotFound."""
    held = await store.held(tx, document) or Document(0, EMPTY)
    if at is None or at == held.head:
        return held
    if at > held.head:
        raise NotFound(f"There is no write {at}: the last one is {held.head}.")
    kept = await store.checkpoint(tx, document, at)
    after, body = (kept["n"], kept["body"]) if kept is not None else (0, held.base)
    rows = await store.between(tx, document, after, at)

    def fold() -> bytes:
        writes = (Write(_path(r["path"]), r["method"], orjson.loads(r["value"])) for r in rows)
        return jsongate.dumps(folded(_loaded(body), writes))

    large = len(body) + sum(len(r["value"]) for r in rows) > AT_ONCE_BYTES
    return Document(at, await asyncio.to_thread(fold) if large else fold(), held.base)


def _loaded(body: bytes) -> Any:
    return orjson.loads(body) if body else MISSING


def _path(text: str) -> Any:
    parsed = parse(text)
    assert isinstance(parsed, Expression)  # it was written as one
    return next(parsed.references()).path


async def state_of(tx: Tx, thread_id: str, at: int | None) -> Document:
    """The state of a thread. Raises NotFound."""
    await thread_exists(tx, thread_id)
    return await read(tx, DocumentId.state(thread_id), at)


async def log(tx: Tx, thread_id: str, before: int | None, limit: int) -> list[WriteRow]:
    """The writes to a thread's state, newest first. Raises NotFound."""
    await thread_exists(tx, thread_id)
    return await store.log(tx, DocumentId.state(thread_id), before, limit)


async def thread_exists(tx: Tx, thread_id: str) -> None:
    if not is_id("thr_", thread_id) or not await store.thread_exists(tx, thread_id):
        raise NotFound(f"There is no thread {thread_id!r}.")
