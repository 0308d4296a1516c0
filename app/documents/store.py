"""All SQL of documents. Writes are only added to the log. The current document is replaced in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from app.base.postgres.database import Database, Tx
from app.documents.bodies import Change
from app.documents.models import Author, Checkpoint, Document, DocumentId, LockedDocument, WriteRow

MAX_LISTED_VALUE_BYTES = 4096

LOAD = (
    "SELECT head, body, base, forgotten FROM documents WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3"
)
# Writers of one document wait for each other here: the number of a write is the order in which they commit.
LOCK = """
SELECT head, body, base, forgotten, checkpoint, since_bytes FROM documents
 WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3
   FOR NO KEY UPDATE
"""
OPEN = """
INSERT INTO documents (tenant_id, owner_id, kind, thread_id, base, body) VALUES ($1, $2, $3, $4, $5, $5)
ON CONFLICT (tenant_id, owner_id, kind) DO NOTHING
"""
SIZE = "SELECT octet_length(body) FROM documents WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3"
OBJECTS_OF_QUERY = "SELECT kind FROM documents WHERE tenant_id = $1 AND owner_id = $2 ORDER BY kind"
COLUMNS = (
    "kind, n, path, method, size_bytes, glimpse, failed, work_id, query_id, agent, forked_from, principal, at"
)
# The document and its log change in one statement.
ADD = f"""
WITH saved AS (
    UPDATE documents SET head = $4, body = $17::bytea, since_bytes = $18, checkpoint = CASE WHEN $9 THEN $4 ELSE checkpoint END
     WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3)
INSERT INTO document_writes (tenant_id, owner_id, kind, n, path, method, value, size_bytes, glimpse, checkpoint, work_id, part,
       failed, query_id, agent, forked_from, principal)
VALUES ($1, $2, $3, $4, $5, $6, $7::bytea, octet_length($7::bytea), $8, CASE WHEN $9 THEN $17::bytea END, $10, $11, $12, $13,
       $14, $15, $16)
RETURNING {COLUMNS}, NULL::bytea AS value
"""
# The result of a call has the parts 0, 1, ...; the writes of its handler have the parts -1, -2, ...
WRITES_OF_CALL = f"""
SELECT {COLUMNS}, value FROM document_writes WHERE tenant_id = $1 AND work_id = $2 AND part >= 0 ORDER BY part
"""
WRITES_OF_CALLS = f"""
SELECT {COLUMNS}, value FROM document_writes WHERE tenant_id = $1 AND work_id = ANY ($2) AND part >= 0 ORDER BY kind, n
"""
LOG = f"""
SELECT {COLUMNS}, CASE WHEN size_bytes <= {MAX_LISTED_VALUE_BYTES} THEN value END AS value FROM document_writes
 WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3 AND ($4::bigint IS NULL OR n < $4)
   AND n > coalesce((SELECT forgotten FROM documents WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3), 0)
 ORDER BY n DESC LIMIT $5
"""
CHECKPOINT = """
SELECT n, checkpoint AS body FROM document_writes
 WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3 AND n > $5 AND n <= $4 AND checkpoint IS NOT NULL
 ORDER BY n DESC LIMIT 1
"""
BETWEEN = """
SELECT path, method, value FROM document_writes
 WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3 AND n > $4 AND n <= $5 ORDER BY n
"""
WRITTEN_AT = "SELECT at FROM document_writes WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3 AND n = $4"
NEXT_OWN_PART = """
SELECT least(min(part), 0) - 1 FROM document_writes WHERE tenant_id = $1 AND work_id = $2
"""
FIRST_OWN_WRITE = f"""
SELECT {COLUMNS}, NULL::bytea AS value FROM document_writes WHERE tenant_id = $1 AND work_id = $2 AND part = -1
"""
# The number of the last write stays: no number is used twice.
DELETE_WRITES = """
UPDATE documents SET body = base, checkpoint = head, since_bytes = 0, forgotten = head, purge_due = true
 WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3 AND head > forgotten
"""
PURGE = "SELECT purge_forgotten_writes($1)"
RUNTIME_OF = "SELECT runtime_id FROM queries WHERE tenant_id = $1 AND id = $2"
SAVE_FILLED_CALL = """
INSERT INTO call_variables (tenant_id, work_id, query_id, args, filled) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, work_id) DO NOTHING
"""
FILLED_CALL = "SELECT args, filled FROM call_variables WHERE tenant_id = $1 AND work_id = $2"


async def load(tx: Tx, *, document: DocumentId) -> Document | None:
    row = await tx.row(LOAD, tx.tenant, document.owner_id, document.kind)
    return None if row is None else Document(**row)


async def size(tx: Tx, *, document: DocumentId) -> int:
    """Return the size of a document in bytes, 0 before its first write."""
    return await tx.value(SIZE, tx.tenant, document.owner_id, document.kind) or 0


async def objects_of_query(tx: Tx, *, query_id: str) -> list[str]:
    """Return the names of the query's data objects that were written to."""
    return [row["kind"] for row in await tx.fetch(OBJECTS_OF_QUERY, tx.tenant, query_id)]


async def load_object(tx: Tx, *, query_id: str, name: str) -> bytes:
    """Return a data object that was written to."""
    body: bytes = (await tx.row(LOAD, tx.tenant, query_id, name))["body"]
    return body


async def lock(tx: Tx, *, document: DocumentId, base: bytes) -> LockedDocument:
    """Lock the row of a document until the transaction ends. It is created from `base` on first use."""
    key = (tx.tenant, document.owner_id, document.kind)
    row = await tx.row(LOCK, *key)
    if row is None:
        await tx.run(OPEN, *key, document.thread_id, base)
        row = await tx.row(LOCK, *key)
    return LockedDocument(**row)


async def add_write(
    tx: Tx,
    *,
    document: DocumentId,
    n: int,
    body: bytes,
    since_bytes: int,
    change: Change,
    glimpse: Any,
    is_checkpoint: bool,
    author: Author,
    forked_from: str | None,
) -> WriteRow:
    """Add a write to the log, and replace the current document, whose row is locked, with `body`. A checkpoint also has the
    whole document in the log."""
    return _write(
        await tx.row(
            ADD,
            tx.tenant,
            document.owner_id,
            document.kind,
            n,
            change.path,
            change.method,
            change.value,
            orjson.dumps(glimpse),
            is_checkpoint,
            author.work_id,
            author.part,
            author.failed,
            author.query_id,
            author.agent,
            forked_from,
            author.principal,
            body,
            since_bytes,
        )
    )


async def next_own_part(tx: Tx, *, work_id: str) -> int:
    """Return the part number for the next write of a call's handler. The caller has locked its query."""
    part: int = await tx.value(NEXT_OWN_PART, tx.tenant, work_id)
    return part


async def first_own_write(tx: Tx, *, work_id: str) -> WriteRow | None:
    """Return the first write that a call made itself, besides its result."""
    row = await tx.row(FIRST_OWN_WRITE, tx.tenant, work_id)
    return None if row is None else _write(row)


async def delete_writes(tx: Tx, *, document: DocumentId) -> None:
    """Empty a document and hide its writes, which `purge` removes."""
    await tx.run(DELETE_WRITES, tx.tenant, document.owner_id, document.kind)


async def purge(db: Database, *, limit: int) -> int:
    """Remove at most `limit` writes that were deleted. Return how many were removed."""
    (row,) = await db.call(PURGE, limit)
    return int(row[0])


async def runtime_of_query(tx: Tx, *, query_id: str) -> str:
    runtime_id: str = await tx.value(RUNTIME_OF, tx.tenant, query_id)
    return runtime_id


async def writes_of_call(tx: Tx, *, work_id: str) -> list[WriteRow]:
    """Return what the result of a call wrote to its output paths."""
    return [_write(row) for row in await tx.fetch(WRITES_OF_CALL, tx.tenant, work_id)]


async def writes_of_calls(tx: Tx, *, work_ids: Sequence[str]) -> list[WriteRow]:
    """Return what the results of these calls wrote, with the values, per document in the order of its log."""
    return [_write(row) for row in await tx.fetch(WRITES_OF_CALLS, tx.tenant, work_ids)]


async def log(tx: Tx, *, document: DocumentId, before: int | None, limit: int) -> list[WriteRow]:
    """Return writes before the one with this number, newest first."""
    rows = await tx.fetch(LOG, tx.tenant, document.owner_id, document.kind, before, limit)
    return [_write(row) for row in rows]


async def last_checkpoint(tx: Tx, *, document: DocumentId, after: int, to: int) -> Checkpoint | None:
    """Return the last checkpoint after the write `after` and up to the write `to`, or None."""
    row = await tx.row(CHECKPOINT, tx.tenant, document.owner_id, document.kind, to, after)
    return None if row is None else Checkpoint(**row)


async def changes(tx: Tx, *, document: DocumentId, after: int, to: int) -> tuple[Change, ...]:
    """Return the writes after the write `after` and up to the write `to`, in order."""
    rows = await tx.fetch(BETWEEN, tx.tenant, document.owner_id, document.kind, after, to)
    return tuple(Change(**row) for row in rows)


async def time_of_write(tx: Tx, *, document: DocumentId, n: int) -> datetime | None:
    at: datetime | None = await tx.value(WRITTEN_AT, tx.tenant, document.owner_id, document.kind, n)
    return at


async def save_filled_call(tx: Tx, *, work_id: str, query_id: str, args: bytes, filled: bytes) -> None:
    """Record the arguments of a call, as written and with the values of its variables, unless they are on record."""
    await tx.run(SAVE_FILLED_CALL, tx.tenant, work_id, query_id, args, filled)


async def load_filled_call(tx: Tx, *, work_id: str) -> tuple[bytes, bytes] | None:
    """Return the arguments of a call, as written and with the values of its variables, or None."""
    row = await tx.row(FILLED_CALL, tx.tenant, work_id)
    return None if row is None else (row["args"], row["filled"])


def _write(row: Any) -> WriteRow:
    return WriteRow(**{**row, "glimpse": orjson.loads(row["glimpse"])})
