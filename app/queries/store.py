"""All SQL of queries and threads but that of their execution (app/engine/store.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from app.base.ids import id_range
from app.base.json import strict_json
from app.base.postgres.database import Database, Tx
from app.base.postgres.pages import PageStatements, fetch_page
from app.journal.models import QueryKey
from app.queries.models import NewQuery, QueryFilter, QueryRow, SubmitResult, ThreadRow
from app.usage.columns import USAGE_SUMS

SUBMIT = """
SELECT s.outcome, s.thread_id, s.epoch, s.bodies
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
              $10::bytea[], $11::text[], $12::text[], $13::text[])
       WITH ORDINALITY AS a(id, thread_id, new_thread_id, thread_key, runtime_id, kind, agent, principal, prompt, request, if_busy,
                            owner, newest_of, n)
 CROSS JOIN LATERAL submit_query(a.id, a.thread_id, a.new_thread_id, a.thread_key, a.runtime_id, a.kind, a.agent, a.principal,
                                 a.prompt, a.request, a.if_busy, a.owner, $14, a.newest_of) s
 ORDER BY a.n
"""
ACTIVE_IN_THREAD = """
SELECT id FROM queries WHERE tenant_id = $1 AND thread_id = $2 AND status IN ('queued', 'running', 'waiting') ORDER BY id
"""
_COLUMNS = """q.id, q.thread_id, q.runtime_id, q.kind, q.agent, q.status, q.reason, q.principal, q.prompt, q.request, q.output,
 q.error, q.created_at, q.started_at, q.ended_at"""
_SUMS = f"SELECT {USAGE_SUMS} FROM work_records w WHERE w.tenant_id = $1 AND w.query_id = q.id"
ONE = f"""
SELECT {_COLUMNS}, u.* FROM queries q CROSS JOIN LATERAL ({_SUMS}) u WHERE q.tenant_id = $1 AND q.id = $2
"""
# The newest $5 queries that one index returns in order: the candidates of a page (docs/decisions/0018). Each list has its own
# statement, so that no plan has to serve two indexes. $6 is the thread or the status of the list.
_CANDIDATES = """
SELECT * FROM queries WHERE tenant_id = $1 AND id < coalesce($2, 'qry_~') AND id >= $3 AND id < $4 AND {which}
 ORDER BY id DESC LIMIT $5
"""
_OF_THREAD = _CANDIDATES.format(which="thread_id = $6::text")
_OF_STATUS = _CANDIDATES.format(which="status = $6::text")
_ALL = _CANDIDATES.format(which="$6::text IS NULL")
_FILTERED = f"""
SELECT {_COLUMNS}, u.* FROM (
    SELECT * FROM ({{candidates}}) AS candidates
     WHERE ($8::text IS NULL OR status = $8) AND ($9::text IS NULL OR runtime_id = $9) AND ($10::text IS NULL OR agent = $10)
       AND ($11::text IS NULL OR runtime_id IN (SELECT r.id FROM runtimes r WHERE r.tenant_id = $1 AND r.name = $11))
       AND ($12::text IS NULL OR principal = $12)
       AND ($13::timestamptz IS NULL OR created_at >= $13) AND ($14::timestamptz IS NULL OR created_at < $14)
       AND ($15::text IS NULL OR strpos(lower(left(prompt, 10000)), lower($15)) > 0)
       AND ($16::text IS NULL OR reason = $16)
     ORDER BY id DESC LIMIT $7) q CROSS JOIN LATERAL ({_SUMS}) u
 ORDER BY q.id DESC
"""
_SIZE = "octet_length(prompt) + octet_length(request) + coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0)"
PAGE_OF_THREAD = PageStatements.from_candidates(_FILTERED, _OF_THREAD, size=_SIZE, examined="$5")
PAGE_OF_STATUS = PageStatements.from_candidates(_FILTERED, _OF_STATUS, size=_SIZE, examined="$5")
PAGE = PageStatements.from_candidates(_FILTERED, _ALL, size=_SIZE, examined="$5")
DUE_LIMITS = "SELECT tenant_id, id FROM due_limits($1)"
IS_PAST_LIMIT = """
SELECT status = 'waiting' AND reason = 'limit_reached' AND parked_at <= now() - interval '7 days'
  FROM queries WHERE tenant_id = $1 AND id = $2
"""
LOCK_THREAD = "SELECT 1 FROM threads WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE"
CREATE_THREAD = """
INSERT INTO threads AS t (tenant_id, id, key, runtime_id) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, key) DO UPDATE SET key = EXCLUDED.key RETURNING t.id
"""
THREAD = "SELECT id, key, runtime_id, created_at FROM threads WHERE tenant_id = $1"
THREAD_BY_ID = f"{THREAD} AND id = $2"
THREAD_BY_KEY = f"{THREAD} AND key = $2"
THREADS = f"{THREAD} AND ($2::text IS NULL OR id < $2) ORDER BY id DESC LIMIT $3"
DELETE_THREAD = "SELECT outcome, queries FROM delete_thread($1, $2)"
PURGE_THREAD = "SELECT purge_thread($1, $2)"
DUE_DELETIONS = "SELECT tenant_id, id FROM due_deletions($1)"

MAX_EXAMINED: Final = 5_000
MAX_SEARCHED: Final = 1_000  # their prompts are read


async def submit(
    tx: Tx, *, queries: Sequence[NewQuery], owners: Sequence[str | None], lease_s: float
) -> list[SubmitResult]:
    """Accept queries and write their first events. `owners`: for each query, the process that starts it if it can start now, or
    None."""
    rows = await tx.fetch(
        SUBMIT,
        [q.id for q in queries],
        [q.submission.thread_id for q in queries],
        [q.new_thread_id for q in queries],
        [q.submission.thread_key for q in queries],
        [q.runtime_id for q in queries],
        [q.kind for q in queries],
        [q.agent for q in queries],
        [q.principal for q in queries],
        [q.submission.prompt for q in queries],
        [strict_json.dumps(q.request) for q in queries],
        [q.submission.if_busy for q in queries],
        owners,
        [q.newest_of for q in queries],
        lease_s,
    )
    return [SubmitResult(**row) for row in rows]


async def load_query(tx: Tx, *, query_id: str) -> QueryRow | None:
    row = await tx.row(ONE, tx.tenant, query_id)
    return None if row is None else QueryRow(**row)


async def query_page(
    tx: Tx, *, after: str | None, filters: QueryFilter, limit: int
) -> tuple[list[QueryRow], str | None]:
    """Return up to `limit` queries, newest first, and the id after which the next page begins, or None on the last."""
    lowest, highest = id_range("qry_", filters.since, filters.before)
    examined = MAX_EXAMINED if filters.text is None else MAX_SEARCHED
    if filters.thread_id is not None:
        statements, index_key = PAGE_OF_THREAD, filters.thread_id
    elif filters.status is not None:
        statements, index_key = PAGE_OF_STATUS, filters.status
    else:
        statements, index_key = PAGE, None
    candidates = (after, lowest, highest, examined, index_key)
    names = (filters.status, filters.runtime_id, filters.agent, filters.runtime, filters.principal)
    rows, last = await fetch_page(
        tx,
        statements,
        candidates=candidates,
        limit=limit,
        filters=(*names, filters.since, filters.before, filters.text, filters.reason),
    )
    return [QueryRow(**row) for row in rows], last


async def active_in_thread(tx: Tx, *, thread_id: str) -> list[str]:
    """Return the ids of the thread's queries that have not ended, oldest first."""
    return [row["id"] for row in await tx.fetch(ACTIVE_IN_THREAD, tx.tenant, thread_id)]


async def due_limits(db: Database, *, limit: int) -> list[QueryKey]:
    """Return queries that have waited at a limit for seven days."""
    return [(row["tenant_id"], row["id"]) for row in await db.call(DUE_LIMITS, limit)]


async def is_past_limit(tx: Tx, *, query_id: str) -> bool:
    """Return whether the query still waits at a limit that nobody raised in time. The caller has locked its row."""
    return bool(await tx.value(IS_PAST_LIMIT, tx.tenant, query_id))


async def find_thread(tx: Tx, *, thread_id: str | None = None, key: str | None = None) -> ThreadRow | None:
    """Return the thread with this id, else the thread with this key, else None."""
    row = None
    if thread_id is not None:
        row = await tx.row(THREAD_BY_ID, tx.tenant, thread_id)
    elif key is not None:
        row = await tx.row(THREAD_BY_KEY, tx.tenant, key)
    return None if row is None else ThreadRow(**row)


async def thread_page(tx: Tx, *, before: str | None, limit: int) -> list[ThreadRow]:
    """Return the tenant's threads, newest first."""
    return [ThreadRow(**row) for row in await tx.fetch(THREADS, tx.tenant, before, limit)]


async def lock_thread(tx: Tx, *, thread_id: str) -> bool:
    """Lock the thread, so that no query in it begins or ends until the transaction ends. Return whether it
    exists."""
    return await tx.value(LOCK_THREAD, tx.tenant, thread_id) is not None


async def create_thread(tx: Tx, *, thread_id: str, key: str | None, runtime_id: str | None) -> str:
    """Create a thread unless one has this key. Return the id of the thread with this key, or of the new one."""
    return str(await tx.value(CREATE_THREAD, tx.tenant, thread_id, key, runtime_id))


async def delete_thread(
    tx: Tx, *, thread_id: str, queries: int
) -> tuple[Literal["no_thread", "busy", "deleted"], list[str]]:
    """Hide a thread and its `queries` newest queries. If the outcome is `busy`, return the queries that have not ended."""
    row = await tx.row(DELETE_THREAD, thread_id, queries)
    return row["outcome"], row["queries"] or []


async def purge_thread(tx: Tx, *, thread_id: str, rows: int, within_s: float) -> bool:
    """Remove about `rows` rows of a deleted thread. Return whether none is left, or another process is
    removing them. Raise StatementTimeout."""
    (row,) = await tx.fetch_within(within_s, PURGE_THREAD, thread_id, rows)
    return bool(row["purge_thread"])


async def due_deletions(db: Database, *, limit: int) -> list[QueryKey]:
    """Return (tenant, id) of deleted threads that still have rows."""
    return [(row["tenant_id"], row["id"]) for row in await db.call(DUE_DELETIONS, limit)]
