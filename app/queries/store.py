"""All SQL of queries and threads but that of their execution (app/engine/store.py)."""

from __future__ import annotations

from typing import Any

from app.base.postgres.database import Database, Tx
from app.engine.store import USAGE

SUBMIT = """
SELECT outcome, thread_id, epoch, bodies FROM submit_query($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14)
"""

ACTIVE_IN_THREAD = """
SELECT id FROM queries WHERE tenant_id = $1 AND thread_id = $2 AND status IN ('queued', 'running', 'waiting') ORDER BY id
"""

THREAD_BY_KEY = "SELECT id, runtime_id FROM threads WHERE tenant_id = $1 AND key = $2"

THREAD_BY_ID = "SELECT id, runtime_id FROM threads WHERE tenant_id = $1 AND id = $2"


async def submit(tx: Tx, *args: Any) -> Any:
    return await tx.row(SUBMIT, *args)


async def active_in_thread(tx: Tx, thread_id: str) -> list[str]:
    return [r["id"] for r in await tx.fetch(ACTIVE_IN_THREAD, tx.tenant, thread_id)]


async def thread_by_key(tx: Tx, key: str) -> Any:
    return await tx.row(THREAD_BY_KEY, tx.tenant, key)


async def thread_by_id(tx: Tx, thread_id: str) -> Any:
    return await tx.row(THREAD_BY_ID, tx.tenant, thread_id)


QUERY = """q.id, q.thread_id, q.runtime_id, q.kind, q.agent, q.status, q.reason, q.principal, q.prompt, q.request, q.output,
 q.error, q.created_at, q.started_at, q.ended_at"""

FULL = f"""
SELECT {QUERY}, u.* FROM queries q CROSS JOIN LATERAL (
       SELECT {USAGE} FROM work_records w WHERE w.tenant_id = $1 AND w.query_id = q.id) u
 WHERE q.tenant_id = $1 AND q.id = $2
"""

PAGE = f"""
SELECT {QUERY}, u.* FROM queries q CROSS JOIN LATERAL (
       SELECT {USAGE} FROM work_records w WHERE w.tenant_id = $1 AND w.query_id = q.id) u
 WHERE q.tenant_id = $1 AND ($2::text IS NULL OR q.id < $2) AND ($3::text IS NULL OR q.status = $3)
   AND ($4::text IS NULL OR q.thread_id = $4) AND ($5::text IS NULL OR q.runtime_id = $5)
   AND ($6::text IS NULL OR q.agent = $6)
 ORDER BY q.id DESC LIMIT $7
"""


async def full(tx: Tx, query_id: str) -> Any:
    return await tx.row(FULL, tx.tenant, query_id)


async def page(tx: Tx, *args: Any) -> list[Any]:
    return await tx.fetch(PAGE, tx.tenant, *args)


LOCK_THREAD = "SELECT 1 FROM threads WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE"

MAKE_THREAD = """
INSERT INTO threads AS t (tenant_id, id, key, runtime_id) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, key) DO UPDATE SET key = EXCLUDED.key RETURNING t.id
"""


async def lock_thread(tx: Tx, thread_id: str) -> bool:
    """Lock the thread, so that no query in it begins or ends until the transaction ends. Return whether it
    exists."""
    return await tx.value(LOCK_THREAD, tx.tenant, thread_id) is not None


async def make_thread(tx: Tx, thread_id: str, key: str | None, runtime_id: str | None) -> str:
    return str(await tx.value(MAKE_THREAD, tx.tenant, thread_id, key, runtime_id))


DUE_LIMITS = "SELECT tenant_id, id FROM due_limits($1)"

IS_PAST_LIMIT = """
SELECT status = 'waiting' AND reason = 'limit_reached' AND parked_at <= now() - interval '7 days'
  FROM queries WHERE tenant_id = $1 AND id = $2
"""

THREAD_COLUMNS = "t.id, t.key, t.runtime_id, t.created_at"

THREAD = f"SELECT {THREAD_COLUMNS} FROM threads t WHERE t.tenant_id = $1 AND t.id = $2"

THREADS = f"""
SELECT {THREAD_COLUMNS} FROM threads t WHERE t.tenant_id = $1 AND ($2::text IS NULL OR t.id < $2) ORDER BY t.id DESC LIMIT $3
"""

AGENTS_OF_THREAD = """
SELECT DISTINCT agent FROM work_records WHERE tenant_id = $1 AND thread_id = $2 AND kind = 'agent' ORDER BY agent
"""


async def due_limits(db: Database, limit: int) -> list[tuple[str, str]]:
    return [(r["tenant_id"], r["id"]) for r in await db.call(DUE_LIMITS, limit)]


async def is_past_limit(tx: Tx, query_id: str) -> bool:
    """Return whether the query still waits at a limit that nobody raised in time. The caller holds its row."""
    return bool(await tx.value(IS_PAST_LIMIT, tx.tenant, query_id))


async def thread(tx: Tx, thread_id: str) -> Any:
    return await tx.row(THREAD, tx.tenant, thread_id)


async def threads(tx: Tx, before: str | None, limit: int) -> list[Any]:
    return await tx.fetch(THREADS, tx.tenant, before, limit)


async def agents_of_thread(tx: Tx, thread_id: str) -> list[str]:
    return [r["agent"] for r in await tx.fetch(AGENTS_OF_THREAD, tx.tenant, thread_id)]


FORGET_THREAD = "SELECT outcome, queries FROM delete_thread($1, $2)"

FORGET_REST = "SELECT purge_thread($1, $2)"

DUE_DELETIONS = "SELECT tenant_id, id FROM due_deletions($1)"


async def delete_thread(tx: Tx, thread_id: str, queries: int) -> tuple[str, list[str]]:
    """Begins the end of a thread and of so many of its queries. `no_thread`; `busy`, with those that are not over;
    `deleted`."""
    row = await tx.row(FORGET_THREAD, thread_id, queries)
    return row["outcome"], row["queries"] or []


async def purge_thread(tx: Tx, thread_id: str, rows: int, within_s: float) -> bool:
    """Remove about `rows` rows of a deleted thread. Return whether none is left, or another process is
    removing them. Raise StatementTimeout."""
    ((done,),) = await tx.fetch_within(within_s, FORGET_REST, thread_id, rows)
    return bool(done)


async def due_deletions(db: Database, limit: int) -> list[tuple[str, str]]:
    return [(r["tenant_id"], r["id"]) for r in await db.call(DUE_DELETIONS, limit)]
