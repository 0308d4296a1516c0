"""All SQL of documents. The log is only added to; the present document stands beside it and is replaced with each
write, in its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from app.base.postgres.database import Database, Tx
from app.documents.models import Document, DocumentId, WriteRow

VALUE_SHOWN_BYTES = 4096  # of a value, in a list of writes

HELD = (
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
SAVE = """
UPDATE documents SET head = $4, body = $5, checkpoint = $6, since_bytes = $7
 WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3
"""
SIZE = "SELECT octet_length(body) FROM documents WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3"
OF_QUERY = "SELECT kind FROM documents WHERE tenant_id = $1 AND owner_id = $2 ORDER BY kind"
COLUMNS = (
    "kind, n, path, method, size_bytes, glimpse, failed, work_id, query_id, agent, forked_from, principal, at"
)
ADD = f"""
INSERT INTO document_writes (tenant_id, owner_id, kind, n, path, method, value, size_bytes, glimpse, checkpoint, work_id, part,
       failed, query_id, agent, forked_from, principal)
VALUES ($1, $2, $3, $4, $5, $6, $7::bytea, octet_length($7::bytea), $8, $9, $10, $11, $12, $13, $14, $15, $16)
RETURNING {COLUMNS}, NULL::bytea AS value
"""
# What a call returned has the parts 0, 1, ...; what its handler wrote itself has -1, -2, ...
OF_CALL = f"""
SELECT {COLUMNS}, value FROM document_writes WHERE tenant_id = $1 AND work_id = $2 AND part >= 0 ORDER BY part
"""
OF_CALLS = f"""
SELECT {COLUMNS}, value FROM document_writes WHERE tenant_id = $1 AND work_id = ANY ($2) AND part >= 0 ORDER BY kind, n
"""
LOG = f"""
SELECT {COLUMNS}, CASE WHEN size_bytes <= {VALUE_SHOWN_BYTES} THEN value END AS value FROM document_writes
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
OWN_WRITE = f"""
SELECT {COLUMNS}, NULL::bytea AS value FROM document_writes WHERE tenant_id = $1 AND work_id = $2 AND part = -1
"""
# The number of the last write stays: no number is given out twice.
FORGET = """
UPDATE documents SET body = base, checkpoint = head, since_bytes = 0, forgotten = head, purge_due = true
 WHERE tenant_id = $1 AND owner_id = $2 AND kind = $3 AND head > forgotten
"""
PURGE = "SELECT purge_forgotten_writes($1)"
RUNTIME_OF = "SELECT runtime_id FROM queries WHERE tenant_id = $1 AND id = $2"
THREAD = "SELECT 1 FROM threads WHERE tenant_id = $1 AND id = $2"
KEEP_CALL = """
INSERT INTO call_variables (tenant_id, work_id, query_id, args, filled) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, work_id) DO NOTHING
"""
KEPT_CALL = "SELECT args, filled FROM call_variables WHERE tenant_id = $1 AND work_id = $2"


async def held_document(tx: Tx, document: DocumentId) -> Document | None:
    row = await tx.row(HELD, tx.tenant, document.owner_id, document.kind)
    return None if row is None else Document(row["head"], row["body"], row["base"], row["forgotten"])


async def size(tx: Tx, document: DocumentId) -> int:
    """Of a document, in bytes; 0 where nothing was written to it yet."""
    return await tx.value(SIZE, tx.tenant, document.owner_id, document.kind) or 0


async def of_query(tx: Tx, query_id: str) -> list[str]:
    """Return the names of the query's data objects that were written to."""
    return [r["kind"] for r in await tx.fetch(OF_QUERY, tx.tenant, query_id)]


async def body_of_query(tx: Tx, query_id: str, kind: str) -> bytes:
    """Return a data object that was written to."""
    row = await tx.row(HELD, tx.tenant, query_id, kind)
    body: bytes = row["body"]
    return body


async def lock(tx: Tx, document: DocumentId, base: bytes) -> Any:
    """Lock the row of a document, which is created from `base` on first use; nobody else writes to it until
    the transaction ends."""
    key = (tx.tenant, document.owner_id, document.kind)
    row = await tx.row(LOCK, *key)
    if row is None:
        await tx.run(OPEN, *key, document.thread_id, base)
        row = await tx.row(LOCK, *key)
    return row


async def save(tx: Tx, document: DocumentId, *args: Any) -> None:
    await tx.run(SAVE, tx.tenant, document.owner_id, document.kind, *args)


async def add(tx: Tx, document: DocumentId, *args: Any) -> WriteRow:
    return _row(await tx.row(ADD, tx.tenant, document.owner_id, document.kind, *args))


async def next_own_part(tx: Tx, work_id: str) -> int:
    """Of the next write that the handler of a call makes; under the lock of its query."""
    part: int = await tx.value(NEXT_OWN_PART, tx.tenant, work_id)
    return part


async def own_write(tx: Tx, work_id: str) -> WriteRow | None:
    """Return the first write that a call made itself, besides its result."""
    row = await tx.row(OWN_WRITE, tx.tenant, work_id)
    return None if row is None else _row(row)


async def forget(tx: Tx, document: DocumentId) -> bool:
    """Empty a document and hide its writes, which `purge` removes. Return whether there were any."""
    return await tx.run(FORGET, tx.tenant, document.owner_id, document.kind) == "UPDATE 1"


async def purge(db: Database, limit: int) -> int:
    """Remove at most `limit` writes that were deleted. Return how many were removed."""
    (row,) = await db.call(PURGE, limit)
    return int(row[0])


async def runtime_of_query(tx: Tx, query_id: str) -> Any:
    return await tx.value(RUNTIME_OF, tx.tenant, query_id)


async def of_call(tx: Tx, work_id: str) -> list[WriteRow]:
    """Return what the result of a call wrote to its output paths."""
    return [_row(r) for r in await tx.fetch(OF_CALL, tx.tenant, work_id)]


async def of_calls(tx: Tx, work_ids: Sequence[str]) -> list[WriteRow]:
    """Return what the results of these calls wrote, with the values, per document in the order of its log."""
    return [_row(r) for r in await tx.fetch(OF_CALLS, tx.tenant, work_ids)]


async def log(tx: Tx, document: DocumentId, before: int | None, limit: int) -> list[WriteRow]:
    return [_row(r) for r in await tx.fetch(LOG, tx.tenant, document.owner_id, document.kind, before, limit)]


async def checkpoint(tx: Tx, document: DocumentId, at: int, forgotten: int) -> Any:
    """Return the last checkpoint after the deleted writes and up to write `at`, or None."""
    return await tx.row(CHECKPOINT, tx.tenant, document.owner_id, document.kind, at, forgotten)


async def between(tx: Tx, document: DocumentId, after: int, to: int) -> list[Any]:
    return await tx.fetch(BETWEEN, tx.tenant, document.owner_id, document.kind, after, to)


async def written_at(tx: Tx, document: DocumentId, n: int) -> datetime | None:
    found: datetime | None = await tx.value(WRITTEN_AT, tx.tenant, document.owner_id, document.kind, n)
    return found


async def thread_exists(tx: Tx, thread_id: str) -> bool:
    return await tx.value(THREAD, tx.tenant, thread_id) is not None


async def keep_call(tx: Tx, work_id: str, query_id: str, args: bytes, filled: bytes) -> None:
    await tx.run(KEEP_CALL, tx.tenant, work_id, query_id, args, filled)


async def kept_call(tx: Tx, work_id: str) -> tuple[bytes, bytes] | None:
    row = await tx.row(KEPT_CALL, tx.tenant, work_id)
    return None if row is None else (row["args"], row["filled"])


def _row(row: Any) -> WriteRow:
    return WriteRow(
        row["kind"],
        row["n"],
        row["path"],
        row["method"],
        row["size_bytes"],
        orjson.loads(row["glimpse"]),
        row["failed"],
        row["work_id"],
        row["query_id"],
        row["agent"],
        row["forked_from"],
        row["principal"],
        row["at"],
        row["value"],
    )
