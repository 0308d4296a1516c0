"""All SQL of the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from app.base.postgres.database import Database, Tx
from app.journal.models import (
    HEAD_BYTES,
    LARGE_EVENT_BYTES,
    Event,
    EventFilter,
    EventHead,
    FilteredEvents,
    History,
    JournalEvent,
    LargeEvent,
    Page,
    Pending,
    QueryHead,
    QueryKey,
    Scope,
    StoredEvent,
    TenantPosition,
    Work,
)

# One function call a batch (migrations/functions/journal_commit.sql).
COMMIT = "SELECT * FROM journal_commit($1, $2, $3, $4)"
APPEND = "SELECT append_events($1, $2, $3, $4)"
# At most $5 events and $6 bytes, but at least one event. Bodies above $7 bytes are left out and read separately. Events of a
# deleted query are not returned: they are removed in no order, so what is left has gaps.
PAGE = f"""
SELECT seq, type, size, head, body, count FROM (
    SELECT seq, type, octet_length(body) AS size, CASE WHEN octet_length(body) <= $7 THEN body END AS body,
           CASE WHEN octet_length(body) > $7 THEN substring(body FOR {HEAD_BYTES}) END AS head,
           row_number() OVER w AS n, sum(octet_length(body)) OVER w AS total, count(*) OVER () AS count
      FROM (
        SELECT seq, type, body FROM events
         WHERE tenant_id = $1 AND query_id = $2 AND seq > $3 AND ($4::text[] IS NULL OR type = ANY ($4))
           AND EXISTS (SELECT FROM queries WHERE tenant_id = $1 AND id = $2)
         ORDER BY seq LIMIT $5) p
    WINDOW w AS (ORDER BY seq)) s
 WHERE n = 1 OR total <= $6 ORDER BY seq
"""
BODY_SLICE = """
SELECT substring(body FROM $4 FOR $5) FROM events
 WHERE tenant_id = $1 AND query_id = $2 AND seq = $3
"""
MOVED_QUERIES = "SELECT n, deleted FROM moved_queries($1, $2, $3)"
TENANT_EVENTS = "SELECT n FROM tenants_with_events($1, $2)"
HEADS = "SELECT tenant_id AS tenant, id AS query_id, next_seq, wake, epoch, live FROM query_heads($1, $2)"
# Only what committed before the oldest open transaction: nothing can still appear below that line. Bytes as in PAGE. The
# filters see the first $11 events: events that they let through may be rare among millions.
TENANT_PAGE = f"""
SELECT query_id, seq, type, xid, size, head, body, found FROM (
    SELECT query_id, seq, type, xid, octet_length(body) AS size, count(*) OVER () AS found,
           CASE WHEN octet_length(body) <= $10 THEN body END AS body,
           CASE WHEN octet_length(body) > $10 THEN substring(body FOR {HEAD_BYTES}) END AS head,
           row_number() OVER w AS n, sum(octet_length(body)) OVER w AS total
      FROM (
        SELECT e.query_id, e.seq, e.type, e.body, e.xid::text::bigint AS xid FROM (
            SELECT xid, query_id, seq, type, body FROM events
             WHERE tenant_id = $1 AND (xid, query_id, seq) > ($2::text::xid8, $3, $4)
               AND xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid, query_id, seq LIMIT $11) e
         WHERE CASE WHEN $5::text[] IS NULL THEN e.type NOT IN ('text', 'reasoning', 'tool-progress')
                    ELSE e.type = ANY ($5) END
           -- Not EXISTS, which Postgres may answer by reading all queries of the runtime or thread.
           AND ($6::text IS NULL OR $6 = (SELECT q.runtime_id FROM queries q WHERE q.tenant_id = $1 AND q.id = e.query_id))
           AND ($7::text IS NULL OR $7 = (SELECT q.thread_id FROM queries q WHERE q.tenant_id = $1 AND q.id = e.query_id))
         ORDER BY e.xid, e.query_id, e.seq LIMIT $8) p
    WINDOW w AS (ORDER BY xid, query_id, seq)) s
 WHERE n = 1 OR total <= $9 ORDER BY xid, query_id, seq
"""
LAST_EXAMINED = f"""
SELECT e.xid::text::bigint AS xid, e.query_id, e.seq, substring(e.body FOR {HEAD_BYTES}) AS head, octet_length(e.body) AS size
  FROM (SELECT query_id, seq FROM events
         WHERE tenant_id = $1 AND (xid, query_id, seq) > ($2::text::xid8, $3, $4)
           AND xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid, query_id, seq OFFSET $5 LIMIT 1) last
  JOIN events e ON e.tenant_id = $1 AND e.query_id = last.query_id AND e.seq = last.seq
"""
MAX_EXAMINED_EVENTS: Final = 5_000  # of a page of a tenant's events
MAX_JSON_PAGE_BYTES: Final = 256 * 1024  # of a page that is answered as JSON
NO_SIZE_LIMIT: Final = 2**31 - 1


async def commit_batch(
    db: Database, *, origin: str, batch: list[Pending]
) -> tuple[list[str | None], list[int]]:
    """Commit a batch: one transaction, one multi-row insert, one notification. Return an outcome and a first
    seq per entry."""
    (row,) = await db.call(
        COMMIT,
        origin,
        [_entry_row(p) for p in batch],
        [(n, e.type, e.body) for n, p in enumerate(batch, 1) for e in p.events],
        [(n, *_work_values(w)) for n, p in enumerate(batch, 1) for w in merge_records(p.work)],
    )
    return row["outcomes"], row["first_seqs"]


def _entry_row(pending: Pending) -> tuple[Any, ...]:
    """Return a `journal_entry` (migrations/tables/06_journal.sql)."""
    lease, progress = pending.lease, any(w.is_progress for w in pending.work)
    end = _change_values(pending.change) if pending.change else (None,) * 5
    return (lease.tenant, lease.query_id, lease.epoch, pending.number, progress, *end)


WORK_COLUMNS = (
    "id",
    "parent_id",
    "kind",
    "name",
    "agent",
    "status",
    "position",
    "tool_invocation_id",
    "provider",
    "model",
    "prompt_cache_key",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
    "price_date",
    "prompt_bytes",
    "prompt_tokens",
    "prompt_usd",
    "attempts",
    "input",
    "output",
    "error",
)
_change_values = attrgetter("status", "reason", "wake", "output", "error")
_work_values = attrgetter(*WORK_COLUMNS)


def merge_records(work: Sequence[Work]) -> list[Work]:
    """Merge versions of the same record: an upsert may not touch a row twice.

    Fields that the later version lacks come from the earlier one.
    """
    merged: dict[str, Work] = {}
    for record in work:
        earlier = merged.get(record.id)
        merged[record.id] = record if earlier is None else _merge_record(earlier, record)
    return list(merged.values())


def _merge_record(earlier: Work, later: Work) -> Work:
    values = {c: getattr(later, c) for c in WORK_COLUMNS}
    for column in ("provider", "model", "prompt_cache_key", "price_date", "input", "output", "error"):
        if values[column] is None:
            values[column] = getattr(earlier, column)
    return Work(**values)


async def append_events(
    tx: Tx, *, query_id: str, events: Sequence[Event], epoch: int | None = None
) -> int | None:
    """Append events to a query in the caller's transaction, so that they commit with the change they
    describe.

    With `epoch`, return None if the query is no longer held under it.
    """
    first: int | None = await tx.value(
        APPEND, query_id, epoch, [e.type for e in events], [e.body for e in events]
    )
    return first


async def load_page(
    tx: Tx, *, query_id: str, after: int, limit: int, types: Sequence[str] | None = None
) -> list[StoredEvent]:
    """Return a page of whole events: at most MAX_JSON_PAGE_BYTES, or one event."""
    rows = await tx.fetch(PAGE, tx.tenant, query_id, after, types, limit, MAX_JSON_PAGE_BYTES, NO_SIZE_LIMIT)
    return [StoredEvent(r["seq"], r["type"], r["body"]) for r in rows]


async def load_stream_page(tx: Tx, *, query_id: str, after: int, limit: int) -> Page:
    """Return a page of at most LARGE_EVENT_BYTES, or one larger event without its body."""
    size = LARGE_EVENT_BYTES
    rows = await tx.fetch(PAGE, tx.tenant, query_id, after, None, limit, size, size)
    count = rows[0]["count"] if rows else 0
    return Page([_event_from_row(row) for row in rows], complete=len(rows) == count < limit)


def _event_from_row(row: Any) -> JournalEvent:
    if row["body"] is None:
        return LargeEvent(row["seq"], row["type"], row["size"], row["head"])
    return StoredEvent(row["seq"], row["type"], row["body"])


async def load_body_slice(tx: Tx, *, query_id: str, seq: int, at: int, size: int) -> bytes | None:
    """Return `size` bytes of an event's body from offset `at`; None if it was deleted."""
    body: bytes | None = await tx.value(BODY_SLICE, tx.tenant, query_id, seq, at + 1, size)
    return body


async def load_heads(db: Database, *, queries: Sequence[QueryKey]) -> list[QueryHead]:
    """Return the heads of these queries, of any tenant. Queries that do not exist are left out."""
    rows = await db.call(HEADS, [tenant for tenant, _ in queries], [id for _, id in queries])
    return [QueryHead(**row) for row in rows]


async def find_moved_queries(
    db: Database, *, awaited: Mapping[QueryKey, int]
) -> tuple[list[QueryKey], list[QueryKey]]:
    """Return those of these queries, of any tenant, that have the event with this number, and those that were
    deleted."""
    keys = list(awaited)
    rows = await db.call(
        MOVED_QUERIES, [tenant for tenant, _ in keys], [id for _, id in keys], list(awaited.values())
    )
    moved = [keys[row["n"] - 1] for row in rows if not row["deleted"]]
    return moved, [keys[row["n"] - 1] for row in rows if row["deleted"]]


async def find_tenant_events(db: Database, *, positions: Sequence[tuple[str, TenantPosition]]) -> list[int]:
    """Return the indexes of those positions of tenants that events may follow."""
    rows = await db.call(
        TENANT_EVENTS, [tenant for tenant, _ in positions], [str(at[0]) for _, at in positions]
    )
    return [row["n"] - 1 for row in rows]


async def load_tenant_page(
    tx: Tx, *, after: TenantPosition, filters: EventFilter, limit: int
) -> FilteredEvents:
    """Return a page of a tenant's whole events."""
    return await _tenant_page(tx, after, filters, limit, (MAX_JSON_PAGE_BYTES, NO_SIZE_LIMIT))


async def load_tenant_stream_page(
    tx: Tx, *, after: TenantPosition, filters: EventFilter, limit: int
) -> FilteredEvents:
    """Return a page of a tenant's events as in `load_stream_page`."""
    return await _tenant_page(tx, after, filters, limit, (LARGE_EVENT_BYTES, LARGE_EVENT_BYTES))


async def _tenant_page(
    tx: Tx, after: TenantPosition, filters: EventFilter, limit: int, sizes: tuple[int, int]
) -> FilteredEvents:
    xid, query_id, seq = after
    # First the last event that the page will examine: a deletion in between lets the page examine more, never less.
    last = await tx.row(LAST_EXAMINED, tx.tenant, str(xid), query_id, seq, MAX_EXAMINED_EVENTS - 1)
    rows = await tx.fetch(
        TENANT_PAGE,
        tx.tenant,
        str(xid),
        query_id,
        seq,
        filters.types,
        filters.runtime_id,
        filters.thread_id,
        limit,
        *sizes,
        MAX_EXAMINED_EVENTS,
    )
    found = rows[0]["found"] if rows else 0
    page = [((row["xid"], row["query_id"], row["seq"]), _event_from_row(row)) for row in rows]
    has_all = len(rows) == found < limit
    if not has_all or last is None:
        return FilteredEvents(page, None, complete=has_all)
    examined = _position_and_head(last)
    is_past = bool(page) and page[-1][0] > examined[0]
    return FilteredEvents(page, None if is_past else examined, complete=False)


def _position_and_head(row: Any) -> tuple[TenantPosition, EventHead]:
    return (row["xid"], row["query_id"], row["seq"]), EventHead(row["head"], row["size"])


SCOPE = """
SELECT query_id, thread_id, id AS work_id, parent_id AS parent_work_id, agent FROM work_records
 WHERE tenant_id = $1 AND id = $2
"""


async def load_scope(tx: Tx, *, work_id: str) -> Scope | None:
    """Return the place of a work record in its query, for events about it."""
    row = await tx.row(SCOPE, tx.tenant, work_id)
    return None if row is None or row["query_id"] is None else Scope(**row)


QUERY_EVENT_HEAD = f"""
SELECT substring(e.body FOR {HEAD_BYTES}) AS head, octet_length(e.body) AS size
  FROM queries q LEFT JOIN events e ON e.tenant_id = $1 AND e.query_id = $2 AND e.seq = $3
 WHERE q.tenant_id = $1 AND q.id = $2
"""
TENANT_EVENT_HEAD = f"""
SELECT substring(body FOR {HEAD_BYTES}) AS head, octet_length(body) AS size
  FROM events WHERE tenant_id = $1 AND query_id = $2 AND seq = $3 AND xid = $4::text::xid8
"""
NEWEST_EVENT = f"""
SELECT e.xid::text::bigint AS xid, e.query_id, e.seq, substring(e.body FOR {HEAD_BYTES}) AS head, octet_length(e.body) AS size
  FROM events e WHERE e.tenant_id = $1 AND e.xid < $2::text::xid8 ORDER BY e.xid DESC, e.query_id DESC, e.seq DESC LIMIT 1
"""


async def load_query_event_head(tx: Tx, *, query_id: str, seq: int) -> EventHead | None:
    """Return the head of a query's event, which is empty if there is no such event. Return None if the tenant has no such
    query."""
    row = await tx.row(QUERY_EVENT_HEAD, tx.tenant, query_id, seq)
    return None if row is None else EventHead(row["head"] or b"", row["size"] or 0)


async def load_tenant_event_head(tx: Tx, *, position: TenantPosition) -> EventHead | None:
    """Return the head of the event at this position, or None if there is no such event."""
    xid, query_id, seq = position
    row = await tx.row(TENANT_EVENT_HEAD, tx.tenant, query_id, seq, str(xid))
    return None if row is None else EventHead(row["head"], row["size"])


async def load_newest_event(tx: Tx, *, below: int) -> tuple[TenantPosition, EventHead] | None:
    """Return the position and the head of the tenant's newest event from a transaction before `below`, or None."""
    row = await tx.row(NEWEST_EVENT, tx.tenant, str(below))
    return None if row is None else _position_and_head(row)


IS_OVER_AFTER = """
SELECT NOT EXISTS (SELECT FROM events WHERE tenant_id = $1 AND query_id = $2 AND seq > $3
                      AND ($4::text[] IS NULL OR type = ANY ($4)))
       AND status IN ('succeeded', 'failed', 'cancelled')
  FROM queries WHERE tenant_id = $1 AND id = $2
"""


async def is_over_after(tx: Tx, *, query_id: str, seq: int, types: Sequence[str] | None = None) -> bool:
    """Return whether the query has ended, or was deleted, and no event (of these types) follows `seq`."""
    is_over: bool | None = await tx.value(IS_OVER_AFTER, tx.tenant, query_id, seq, types)
    return is_over is None or is_over  # None: it was deleted


HISTORY = """
SELECT database_generation() || CASE t.history WHEN 0 THEN '' ELSE '/' || t.history END AS generation,
       database_timeline() AS timeline, t.history <> 0 AS is_imported FROM tenants t WHERE t.tenant_id = $1
"""
OLDEST_OPEN_XID = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


async def load_history(tx: Tx) -> History:
    """Return which history of the database this transaction reads."""
    return History(**await tx.row(HISTORY, tx.tenant))


async def oldest_open_xid(tx: Tx) -> int:
    """Return the oldest transaction that may still be open: no event can appear below it anymore."""
    return int(await tx.value(OLDEST_OPEN_XID))
