"""The SQL of telemetry: ended records, and counts of waiting work in the whole installation."""

from __future__ import annotations

from collections.abc import Sequence

from app.base.postgres.database import Database, Tx
from app.telemetry.spans import Count, EndedRecord

# A record that a person reopened meanwhile (an action to be tried again) is exported when it ends again. Texts are read
# only if the operator wants them on spans ($3). The stop reason of a model call is cut from the end of its output,
# because Postgres cannot parse JSON that contains NUL.
ENDED = """
SELECT w.id, w.parent_id, w.kind, w.name, w.agent, w.status, w.query_id, w.thread_id, w.tool_invocation_id, w.provider,
       w.model, w.prompt_cache_key, w.input_tokens, w.output_tokens, w.cache_read_tokens, w.cache_write_tokens,
       w.reasoning_tokens, w.cost_usd, w.price_date, w.attempts, w.error, w.started_at, w.ended_at, q.runtime_id,
       r.name AS runtime_name,
       CASE WHEN w.kind = 'query' THEN convert_from(q.request, 'UTF8')::json ->> 'traceparent' END AS traceparent,
       CASE WHEN w.kind = 'model_call' THEN substring(encode(substring(w.output FROM greatest(length(w.output) - 40, 1)),
                                                             'escape') FROM '"stopReason":"([a-z_]+)"}$') END AS stop_reason,
       CASE WHEN $3 THEN w.input END AS input, CASE WHEN $3 THEN w.output END AS output,
       CASE WHEN $3 AND w.kind = 'query' THEN q.prompt END AS prompt
  FROM work_records w
  JOIN queries q ON q.tenant_id = $1 AND q.id = w.query_id
  JOIN runtimes r ON r.tenant_id = $1 AND r.id = q.runtime_id
 WHERE w.tenant_id = $1 AND w.id = ANY ($2) AND w.ended_at IS NOT NULL ORDER BY w.ended_at, w.id
"""
# Records that a crashed process may have ended without exporting them.
RECENTLY_ENDED = """
SELECT id FROM work_records
 WHERE tenant_id = $1 AND query_id = $2 AND ended_at > now() - make_interval(secs => $3::float8) ORDER BY id
"""
COUNTS = "SELECT name, label, value FROM operator_counts()"


async def ended_records(tx: Tx, *, work_ids: Sequence[str], content: bool) -> list[EndedRecord]:
    """Return those of the records that have ended, oldest first; with `content`, also their texts."""
    return [EndedRecord(**row) for row in await tx.fetch(ENDED, tx.tenant, list(work_ids), content)]


async def recently_ended(tx: Tx, *, query_id: str, within_s: float) -> list[str]:
    """Return the ids of the query's records that ended in the last seconds."""
    return [row["id"] for row in await tx.fetch(RECENTLY_ENDED, tx.tenant, query_id, within_s)]


async def counts(db: Database) -> list[Count]:
    """Return the counts of all tenants together."""
    return [Count(**row) for row in await db.call(COUNTS)]
