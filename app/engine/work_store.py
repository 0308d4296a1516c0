"""The SQL of work records that other features write: those of actions and hosts."""

from __future__ import annotations

from plangate.statuses import WorkStatus

from app.base.postgres.database import Tx
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
