"""All SQL of approvals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from app.approvals.models import ApprovalRow
from app.base.database import Database, Tx

COLUMNS = """id, kind, target, digest, glimpses, rule, query_id, work_id, agent, thread_id, runtime_id, tenant_id,
 requested_by, status, requested_at, expires_at, decided_at, decided_by, decision, feedback, partial"""
# Idempotent by work and kind: after a crash the same gate finds the approval it had opened. A call of executePlan
# may stand behind two gates, its own and the plan's.
OPEN = f"""
INSERT INTO approvals (tenant_id, id, kind, target, digest, subject, glimpses, rule, query_id, work_id, agent, thread_id,
       runtime_id, requested_by, status, expires_at)
VALUES ($1, $2, $3, $4, sha256($5), $5, $6, $7, $8, $9, $10, $11, $12, $13, 'pending',
        now() + make_interval(secs => $14::float8 / 1000))
ON CONFLICT (tenant_id, work_id, kind) DO NOTHING RETURNING {COLUMNS}
"""
BY_WORK = """
SELECT id, status, digest, decided_by, feedback, partial FROM approvals WHERE tenant_id = $1 AND work_id = $2 AND kind = $3
"""
BY_ID = f"SELECT {COLUMNS} FROM approvals WHERE tenant_id = $1 AND id = $2"
QUERY_OF = "SELECT query_id FROM approvals WHERE tenant_id = $1 AND id = $2"
QUERIES_OF = (
    "SELECT DISTINCT query_id FROM approvals WHERE tenant_id = $1 AND id = ANY ($2) ORDER BY query_id"
)
LOCK = f"SELECT {COLUMNS}, expires_at <= now() AS late FROM approvals WHERE tenant_id = $1 AND id = $2 FOR UPDATE"
SUBJECT = "SELECT subject FROM approvals WHERE tenant_id = $1 AND id = $2"
# The compare-and-set: of any number of decisions one finds the row still pending, by the database's clock.
DECIDE = f"""
UPDATE approvals SET status = $3, decided_at = now(), decided_by = $4, decision = $5, feedback = $6, partial = $7
 WHERE tenant_id = $1 AND id = $2 AND status = 'pending' AND ($3 IN ('expired', 'cancelled') OR expires_at > now())
RETURNING {COLUMNS}
"""
OPEN_OF_QUERY = (
    "SELECT id FROM approvals WHERE tenant_id = $1 AND query_id = $2 AND status = 'pending' ORDER BY id"
)
VOTE = """
INSERT INTO approval_votes (tenant_id, approval_id, principal, decision) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
"""
VOTES = """
SELECT approval_id, principal, decision, at FROM approval_votes WHERE tenant_id = $1 AND approval_id = ANY ($2) ORDER BY at
"""
DUE = "SELECT tenant_id, id FROM due_approvals($1)"
LIST = f"""
SELECT {COLUMNS} FROM approvals
 WHERE tenant_id = $1 AND ($2::text IS NULL OR id < $2) AND ($3::text IS NULL OR status = $3)
   AND ($4::text IS NULL OR query_id = $4) AND ($5::text IS NULL OR thread_id = $5) AND ($6::text IS NULL OR kind = $6)
 ORDER BY id DESC LIMIT $7
"""


def row_of(row: Any) -> ApprovalRow:
    return ApprovalRow(
        row["id"],
        row["kind"],
        row["target"],
        row["digest"],
        row["glimpses"],
        orjson.loads(row["rule"]),
        row["query_id"],
        row["work_id"],
        row["agent"],
        row["thread_id"],
        row["runtime_id"],
        row["tenant_id"],
        row["requested_by"],
        row["status"],
        row["requested_at"],
        row["expires_at"],
        row["decided_at"],
        row["decided_by"],
        row["decision"],
        row["feedback"],
        row["partial"],
    )


async def open_(tx: Tx, *args: Any) -> Any:
    return await tx.row(OPEN, tx.tenant, *args)


async def by_work(tx: Tx, work_id: str, kind: str) -> Any:
    return await tx.row(BY_WORK, tx.tenant, work_id, kind)


async def by_id(tx: Tx, approval_id: str) -> Any:
    return await tx.row(BY_ID, tx.tenant, approval_id)


async def query_of(tx: Tx, approval_id: str) -> str | None:
    found: str | None = await tx.value(QUERY_OF, tx.tenant, approval_id)
    return found


async def queries_of(tx: Tx, ids: Sequence[str]) -> list[str]:
    return [r["query_id"] for r in await tx.fetch(QUERIES_OF, tx.tenant, list(ids))]


async def lock(tx: Tx, approval_id: str) -> Any:
    return await tx.row(LOCK, tx.tenant, approval_id)


async def subject(tx: Tx, approval_id: str) -> bytes | None:
    found: bytes | None = await tx.value(SUBJECT, tx.tenant, approval_id)
    return found


async def decide(
    tx: Tx,
    approval_id: str,
    status: str,
    by: str | None,
    decision: str | None,
    feedback: str | None,
    partial: bytes | None,
) -> Any:
    return await tx.row(DECIDE, tx.tenant, approval_id, status, by, decision, feedback, partial)


async def open_of_query(tx: Tx, query_id: str) -> list[str]:
    return [r["id"] for r in await tx.fetch(OPEN_OF_QUERY, tx.tenant, query_id)]


async def vote(tx: Tx, approval_id: str, principal: str, decision: str) -> None:
    await tx.run(VOTE, tx.tenant, approval_id, principal, decision)


async def votes(tx: Tx, ids: list[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in await tx.fetch(VOTES, tx.tenant, ids):
        found.setdefault(row["approval_id"], []).append(row)
    return found


async def due(db: Database, limit: int) -> list[tuple[str, str]]:
    return [(r["tenant_id"], r["id"]) for r in await db.call(DUE, limit)]


async def page(tx: Tx, *args: Any) -> list[Any]:
    return await tx.fetch(LIST, tx.tenant, *args)
