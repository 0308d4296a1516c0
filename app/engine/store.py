"""All SQL of the execution of queries, and of the work records that a run is rebuilt from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal

import orjson

from app.base.postgres.database import Database, Tx
from app.engine.models import DueEnding, LockedQuery, PastRun, QueryRecord, QueryTotals, WorkEntry
from app.journal.ended_work import ended_work
from app.journal.models import QueryKey, Work
from app.llm.messages import Usage
from app.usage.columns import USAGE_SUMS

SET_REQUEST = "UPDATE queries SET request = $3 WHERE tenant_id = $1 AND id = $2"
RECORD = """
SELECT tenant_id AS tenant, id, thread_id, runtime_id, kind, agent, principal, prompt, request, wake, worked_ms FROM queries
 WHERE tenant_id = $1 AND id = $2
"""
WORK_COLUMNS = """id, parent_id, kind, name, agent, status, position, tool_invocation_id, attempts, input_tokens,
 output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_usd, input, output, error, started_at,
 ended_at"""
WORK = f"SELECT {WORK_COLUMNS} FROM work_records WHERE tenant_id = $1 AND query_id = $2 ORDER BY id"
# The finished runs of an agent in a thread, in the order in which they began by the database's clock: they run one
# after another, each begins after the one before is on record. Those before a run that is on record ($4), and after
# the newest that its memory leaves out ($5); the newest $6 of them.
PAST_RUNS = """
SELECT r.id AS work_id, r.query_id, r.started_at, r.input_size + (
       SELECT coalesce(sum(coalesce(octet_length(c.output), 0) + coalesce(octet_length(c.error), 0)), 0)
         FROM work_records c WHERE c.tenant_id = $1 AND c.query_id = r.query_id AND c.parent_id = r.id) ::bigint AS size
  FROM (SELECT id, query_id, started_at, coalesce(octet_length(input), 0) AS input_size FROM work_records
         WHERE tenant_id = $1 AND thread_id = $2 AND agent = $3 AND kind = 'agent' AND status = 'succeeded'
           AND started_at < coalesce((SELECT started_at FROM work_records WHERE tenant_id = $1 AND id = $4), 'infinity')
           AND started_at > coalesce((SELECT started_at FROM work_records WHERE tenant_id = $1 AND id = $5), '-infinity')
         ORDER BY started_at DESC, id DESC LIMIT $6) r
 ORDER BY r.started_at, r.id
"""
RECORDS_OF = f"""
SELECT {WORK_COLUMNS} FROM work_records WHERE tenant_id = $1 AND query_id = ANY ($2)
   AND (id = ANY ($3) OR (parent_id = ANY ($3) AND kind IN ('model_call', 'tool_call'))) ORDER BY id
"""
# The last answered model call of the run before this one ($4).
LAST_CALL = f"""
SELECT {WORK_COLUMNS} FROM work_records WHERE tenant_id = $1 AND kind = 'model_call' AND status = 'succeeded'
   AND (query_id, parent_id) = (
       SELECT query_id, id FROM work_records
        WHERE tenant_id = $1 AND thread_id = $2 AND agent = $3 AND kind = 'agent' AND status = 'succeeded'
          AND started_at < coalesce((SELECT started_at FROM work_records WHERE tenant_id = $1 AND id = $4), 'infinity')
        ORDER BY started_at DESC, id DESC LIMIT 1)
 ORDER BY position DESC LIMIT 1
"""
AGENTS_OF_THREAD = """
SELECT DISTINCT agent FROM work_records WHERE tenant_id = $1 AND thread_id = $2 AND kind = 'agent' ORDER BY agent
"""
LOCK_FOR_END = """
SELECT status, reason, thread_id, agent FROM queries WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE
"""
LOCK_ENDING = """
SELECT ending_code AS code, ending_message AS message FROM queries
 WHERE tenant_id = $1 AND id = $2 AND ending_code IS NOT NULL AND ended_at IS NULL FOR NO KEY UPDATE
"""
CLAIM_ENDINGS = "SELECT tenant_id, id FROM claim_endings($1, $2)"
STRANDED = "SELECT tenant_id, id FROM stranded_queries($1)"
# A higher epoch fences off whoever works on it: ending a query from outside needs nobody's consent. It ends by the clock:
# until its row was locked it went on, and what is closed here may have begun after this transaction did.
END = """
UPDATE queries SET status = $5, reason = $3, error = $4, ended_at = clock_timestamp(), lease_epoch = lease_epoch + 1,
       lease_owner = NULL, lease_expires_at = NULL
 WHERE tenant_id = $1 AND id = $2 RETURNING ended_at
"""
CLOSE_WORK = """
UPDATE work_records SET ended_at = $5, status = CASE kind WHEN 'query' THEN $3 ELSE 'cancelled' END,
       error = CASE kind WHEN 'query' THEN $4 ELSE error END
 WHERE tenant_id = $1 AND query_id = $2 AND ended_at IS NULL
RETURNING id, parent_id, kind, name, agent, status, provider, input_tokens, output_tokens, cache_read_tokens,
          cache_write_tokens, cost_usd, attempts
"""
NOTIFY_WAKE = "SELECT pg_notify('plangate_wake', $1 || '/' || $2), pg_notify('plangate_wake', '')"


async def load_query(tx: Tx, *, query_id: str) -> QueryRecord | None:
    row = await tx.row(RECORD, tx.tenant, query_id)
    return None if row is None else QueryRecord(**{**row, "request": orjson.loads(row["request"])})


async def load_work(tx: Tx, *, query_id: str) -> list[WorkEntry]:
    """Return the work records of a query, oldest first."""
    return [_work_entry(row) for row in await tx.fetch(WORK, tx.tenant, query_id)]


async def past_runs(
    tx: Tx,
    *,
    thread_id: str,
    agent: str,
    before: str | None = None,
    after: str | None = None,
    newest: int | None = None,
) -> list[PastRun]:
    """Return the agent's finished runs in a thread, oldest first: all of them, or those before and after
    the given runs, or the newest of these."""
    rows = await tx.fetch(PAST_RUNS, tx.tenant, thread_id, agent, before, after, newest)
    return [PastRun(**row) for row in rows]


async def records_of_runs(tx: Tx, *, runs: Sequence[PastRun]) -> list[WorkEntry]:
    """Return the records of these runs, and of the model calls and tool calls below them."""
    if not runs:
        return []
    ids = [r.work_id for r in runs]
    return [_work_entry(r) for r in await tx.fetch(RECORDS_OF, tx.tenant, [r.query_id for r in runs], ids)]


async def last_call(tx: Tx, *, thread_id: str, agent: str, before: str) -> WorkEntry | None:
    """Return the last answered model call of this agent's previous run, or None."""
    row = await tx.row(LAST_CALL, tx.tenant, thread_id, agent, before)
    return None if row is None else _work_entry(row)


async def agents_of_thread(tx: Tx, *, thread_id: str) -> list[str]:
    """Return the names of the agents that ran in a thread."""
    return [r["agent"] for r in await tx.fetch(AGENTS_OF_THREAD, tx.tenant, thread_id)]


def _usage(values: dict[str, Any]) -> Usage:
    """Take the columns of the usage out of the values of a row."""
    return Usage(**{field.name: values.pop(field.name) for field in fields(Usage)})


def _work_entry(row: Any) -> WorkEntry:
    values = dict(row)
    return WorkEntry(usage=_usage(values), **values)


async def lock_for_end(tx: Tx, *, query_id: str) -> LockedQuery | None:
    """Lock the query's row. Return None if there is no such query."""
    row = await tx.row(LOCK_FOR_END, tx.tenant, query_id)
    return None if row is None else LockedQuery(**row)


async def lock_ending(tx: Tx, *, query_id: str) -> DueEnding | None:
    """Lock a query that is to be ended. Return None if it has ended."""
    row = await tx.row(LOCK_ENDING, tx.tenant, query_id)
    return None if row is None else DueEnding(**row)


async def save_request(tx: Tx, *, query_id: str, request: bytes) -> None:
    await tx.run(SET_REQUEST, tx.tenant, query_id, request)


async def claim_endings(db: Database, *, limit: int, again_s: float) -> list[QueryKey]:
    """Return (tenant, id) of queries that must be ended now. Each is returned again only after `again_s` seconds."""
    return [(row["tenant_id"], row["id"]) for row in await db.call(CLAIM_ENDINGS, limit, again_s)]


async def stranded_queries(db: Database, *, limit: int) -> list[QueryKey]:
    """Return (tenant, id) of queries that have ended while calls, gates or plans below them are still open."""
    return [(row["tenant_id"], row["id"]) for row in await db.call(STRANDED, limit)]


async def end_query(
    tx: Tx, *, query_id: str, status: Literal["failed", "cancelled"], reason: str, error: bytes
) -> None:
    """End a query and close its open work records. `error` is stored JSON."""
    ended_at = await tx.value(END, tx.tenant, query_id, reason, error, status)
    rows = await tx.fetch(CLOSE_WORK, tx.tenant, query_id, status, error, ended_at)
    tx.reports += [ended_work(Work(**row)) for row in rows]
    await tx.run(NOTIFY_WAKE, tx.tenant, query_id)


TOTALS = f"""
SELECT {USAGE_SUMS}, count(*) AS model_calls FROM work_records
 WHERE tenant_id = $1 AND query_id = $2 AND kind = 'model_call'
"""


async def load_totals(tx: Tx, *, query_id: str) -> QueryTotals:
    """Return what the query has used, from its work records."""
    values = dict(await tx.row(TOTALS, tx.tenant, query_id))
    return QueryTotals(usage=_usage(values), **values)
