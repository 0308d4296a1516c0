"""The SQL of work records that other features write: those of actions and hosts; and which of them are in the sums of usage."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from plangate.statuses import WorkStatus

from app.base.postgres.database import Database, Tx
from app.journal.ended_work import EndedWork

OPEN_ACTION = """
INSERT INTO work_records (tenant_id, id, query_id, thread_id, parent_id, kind, name, agent, status)
VALUES ($1, $2, $3, $4, $5, 'action', $6, $7, 'running')
ON CONFLICT (tenant_id, id) DO UPDATE SET status = 'running', ended_at = NULL, attempts = work_records.attempts + 1
"""
CLOSE_ACTION = """
UPDATE work_records SET status = $3, output = $4, error = $5, ended_at = clock_timestamp() WHERE tenant_id = $1 AND id = $2
RETURNING id, kind, status
"""
ADD_HOST = """
INSERT INTO work_records (tenant_id, id, thread_id, kind, name, agent, status, ended_at)
VALUES ($1, $2, $3, 'host', $4, $5, 'succeeded', now())
"""
UNSUMMED = "SELECT tenant_id, id FROM unsummed_work($1, $2)"
TRY_LOCK_SUMS = "SELECT pg_try_advisory_xact_lock(hashtextextended('usage sums/' || $1, 0))"
MARK_SUMMED = """
UPDATE work_records SET summed = true WHERE tenant_id = $1 AND id = ANY ($2) AND NOT summed RETURNING id, query_id
"""


async def open_action(
    tx: Tx, *, id: str, query_id: str, thread_id: str, parent_id: str, name: str, agent: str
) -> None:
    """Open the record of an action, or open it again for another attempt."""
    await tx.run(OPEN_ACTION, tx.tenant, id, query_id, thread_id, parent_id, name, agent)


async def close_action(
    tx: Tx, *, id: str, status: WorkStatus, output: bytes | None = None, error: bytes | None = None
) -> None:
    """Close the record of an action, and report it once the transaction is durable."""
    rows = await tx.fetch(CLOSE_ACTION, tx.tenant, id, status, output, error)
    tx.reports += [EndedWork(**row) for row in rows]


async def add_host_work(tx: Tx, *, id: str, thread_id: str, name: str, principal: str = "") -> None:
    """Add the record of something that a host did without a query."""
    await tx.run(ADD_HOST, tx.tenant, id, thread_id, name, principal)


async def unsummed(db: Database, *, age_s: float, limit: int) -> dict[str, list[str]]:
    """Return the ids of records without a parent that ended so long ago and are in no sum yet, by tenant."""
    found: dict[str, list[str]] = {}
    for row in await db.call(UNSUMMED, timedelta(seconds=age_s), limit):
        found.setdefault(row["tenant_id"], []).append(row["id"])
    return found


async def try_to_lock_sums(tx: Tx) -> bool:
    """Return whether this transaction alone adds to the sums of its tenant."""
    return bool(await tx.value(TRY_LOCK_SUMS, tx.tenant))


async def mark_summed(tx: Tx, *, ids: Sequence[str]) -> list[tuple[str, str | None]]:
    """Mark records as summed up. Return those that were not, each with its query."""
    return [(row["id"], row["query_id"]) for row in await tx.fetch(MARK_SUMMED, tx.tenant, list(ids))]
