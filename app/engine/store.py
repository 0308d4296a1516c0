"""All SQL of queries and of the work records a run is rebuilt from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from app.base.postgres.database import Database, Tx
from app.engine.models import PastRun, QueryRecord, WorkRow
from app.journal.models import Work
from app.journal.writer import ended_work
from app.llm.messages import Usage

SET_REQUEST = "UPDATE queries SET request = $3 WHERE tenant_id = $1 AND id = $2"
RECORD = """
SELECT id, thread_id, runtime_id, kind, agent, principal, prompt, request, wake, worked_ms FROM queries
 WHERE tenant_id = $1 AND id = $2
"""
WORK_COLUMNS = """id, parent_id, kind, name, agent, status, position, tool_invocation_id, attempts, input_tokens,
 output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_usd, input, output, error, started_at,
 ended_at"""
WORK = f"SELECT {WORK_COLUMNS} FROM work_records WHERE tenant_id = $1 AND query_id = $2 ORDER BY id"
# The finished runs of an agent in a thread, in the order in which they began by the database's clock: they run one
# after another, each begins after the one before is on record. Those before a run that is on record ($4), and after
# the newest that its memory leaves out ($5).
PAST_RUNS = """
SELECT r.id, r.query_id, coalesce(octet_length(r.input), 0) + (
       SELECT coalesce(sum(coalesce(octet_length(c.output), 0) + coalesce(octet_length(c.error), 0)), 0)
         FROM work_records c WHERE c.tenant_id = $1 AND c.query_id = r.query_id AND c.parent_id = r.id) AS size
  FROM work_records r
 WHERE r.tenant_id = $1 AND r.thread_id = $2 AND r.agent = $3 AND r.kind = 'agent' AND r.status = 'succeeded'
   AND r.started_at < coalesce((SELECT started_at FROM work_records WHERE tenant_id = $1 AND id = $4), 'infinity')
   AND r.started_at > coalesce((SELECT started_at FROM work_records WHERE tenant_id = $1 AND id = $5), '-infinity')
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
LOCK_FOR_END = """
SELECT status, reason, thread_id, agent, lease_epoch FROM queries WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE
"""
LOCK_ENDING = """
SELECT ending_code, ending_message FROM queries
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


async def load_query(tx: Tx, query_id: str) -> QueryRecord | None:
    row = await tx.row(RECORD, tx.tenant, query_id)
    if row is None:
        return None
    return QueryRecord(
        tx.tenant,
        row["id"],
        row["thread_id"],
        row["runtime_id"],
        row["kind"],
        row["agent"],
        row["principal"],
        row["prompt"],
        orjson.loads(row["request"]),
        row["wake"],
        row["worked_ms"],
    )


async def load_work(tx: Tx, query_id: str) -> list[WorkRow]:
    return [_work_row(r) for r in await tx.fetch(WORK, tx.tenant, query_id)]


async def past_runs(
    tx: Tx, thread_id: str, agent: str, before: str | None, after: str | None
) -> list[PastRun]:
    """Return the agent's finished runs in a thread, oldest first: all of them, or those before and after
    the given runs."""
    rows = await tx.fetch(PAST_RUNS, tx.tenant, thread_id, agent, before, after)
    return [PastRun(r["id"], r["query_id"], int(r["size"])) for r in rows]


async def records_of_runs(tx: Tx, runs: Sequence[PastRun]) -> list[WorkRow]:
    """Return the records of these runs, and of the model calls and tool calls below them."""
    if not runs:
        return []
    ids = [r.work_id for r in runs]
    return [_work_row(r) for r in await tx.fetch(RECORDS_OF, tx.tenant, [r.query_id for r in runs], ids)]


async def last_call(tx: Tx, thread_id: str, agent: str, before: str) -> WorkRow | None:
    """Return the last answered model call of this agent's previous run, or None."""
    row = await tx.row(LAST_CALL, tx.tenant, thread_id, agent, before)
    return None if row is None else _work_row(row)


def _usage(row: Any) -> Usage:
    return Usage(
        row["input_tokens"],
        row["output_tokens"],
        row["cache_read_tokens"],
        row["cache_write_tokens"],
        row["reasoning_tokens"],
    )


def _work_row(row: Any) -> WorkRow:
    return WorkRow(
        row["id"],
        row["parent_id"],
        row["kind"],
        row["name"],
        row["agent"],
        row["status"],
        row["position"],
        row["tool_invocation_id"],
        row["attempts"],
        _usage(row),
        row["cost_usd"],
        row["input"],
        row["output"],
        row["error"],
        row["started_at"],
        row["ended_at"],
    )


async def lock_for_end(tx: Tx, query_id: str) -> Any:
    return await tx.row(LOCK_FOR_END, tx.tenant, query_id)


async def lock_ending(tx: Tx, query_id: str) -> Any:
    """Lock a query that is to be ended. Return None if it has ended."""
    return await tx.row(LOCK_ENDING, tx.tenant, query_id)


async def set_request(tx: Tx, query_id: str, request: bytes) -> None:
    await tx.run(SET_REQUEST, tx.tenant, query_id, request)


async def claim_endings(db: Database, limit: int, again_s: float) -> list[tuple[str, str]]:
    """Return (tenant, id) of queries that must be ended now. Each is returned again only after `again_s` seconds."""
    return [(r["tenant_id"], r["id"]) for r in await db.call(CLAIM_ENDINGS, limit, again_s)]


async def stranded_queries(db: Database, limit: int) -> list[tuple[str, str]]:
    """Return (tenant, id) of queries that have ended while calls, gates or plans below them are still open."""
    return [(r["tenant_id"], r["id"]) for r in await db.call(STRANDED, limit)]


async def end(tx: Tx, query_id: str, status: str, reason: str, error: bytes) -> None:
    ended_at = await tx.value(END, tx.tenant, query_id, reason, error, status)
    rows = await tx.fetch(CLOSE_WORK, tx.tenant, query_id, status, error, ended_at)
    tx.reports += [ended_work(Work(**r)) for r in rows]
    await tx.run(NOTIFY_WAKE, tx.tenant, query_id)


USAGE = """coalesce(sum(w.input_tokens), 0)::bigint AS input_tokens, coalesce(sum(w.output_tokens), 0)::bigint AS output_tokens,
 coalesce(sum(w.cache_read_tokens), 0)::bigint AS cache_read_tokens,
 coalesce(sum(w.cache_write_tokens), 0)::bigint AS cache_write_tokens,
 coalesce(sum(w.reasoning_tokens), 0)::bigint AS reasoning_tokens, sum(w.cost_usd::numeric)::float8 AS cost_usd"""
TOTALS = f"""
SELECT {USAGE}, count(*) AS model_calls FROM work_records w
 WHERE w.tenant_id = $1 AND w.query_id = $2 AND w.kind = 'model_call'
"""


async def totals(tx: Tx, query_id: str) -> tuple[Usage, float | None, int]:
    """Return the query's usage, its cost in US dollars, and its number of model calls, from its work
    records."""
    row = await tx.row(TOTALS, tx.tenant, query_id)
    return _usage(row), row["cost_usd"], row["model_calls"]


REQUEST = "SELECT request, status, reason FROM queries WHERE tenant_id = $1 AND id = $2"


async def request(tx: Tx, query_id: str) -> Any:
    return await tx.row(REQUEST, tx.tenant, query_id)
