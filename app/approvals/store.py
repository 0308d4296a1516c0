"""All SQL of approvals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from plangate.spec.models import ApprovalRule

from app.approvals.models import ApprovalRow, GrantRow, Vote
from app.base.postgres.database import Database, Tx

COLUMNS = """id, kind, target, digest, original_subject, edits, grant_id, glimpses, rule, query_id, work_id, agent, thread_id,
 runtime_id, tenant_id, requested_by, status, requested_at, expires_at, decided_at, decided_by, decision, feedback, partial,
 CASE WHEN kind = 'plan' THEN (SELECT coalesce(p.labels ->> p.status, p.status) FROM plans p
                                WHERE p.tenant_id = $1 AND p.id = target) END AS label"""
# Idempotent by work and kind: after a crash the same gate finds the approval it had opened. A call of executePlan
# may stand behind two gates, its own and the plan's.
OPEN = f"""
INSERT INTO approvals (tenant_id, id, kind, target, digest, subject, glimpses, rule, query_id, work_id, agent, thread_id,
       runtime_id, requested_by, status, expires_at)
VALUES ($1, $2, $3, $4, sha256($5), $5, $6, $7, $8, $9, $10, $11, $12, $13, 'pending',
        now() + make_interval(secs => $14::float8 / 1000))
ON CONFLICT (tenant_id, work_id, kind) DO NOTHING RETURNING {COLUMNS}
"""
BY_WORK = "SELECT id FROM approvals WHERE tenant_id = $1 AND work_id = $2 AND kind = $3"
ENDED = """
SELECT id, status, digest, subject, original_subject, rule, feedback, partial FROM approvals
 WHERE tenant_id = $1 AND work_id = $2 AND kind = $3 AND status <> 'pending'
"""
# The operator's floor as it is now, and whether the work stands at this gate already: one statement a gate.
STANDING = """
SELECT t.approval_floor::text AS floor, a.id IS NOT NULL AS asked
  FROM tenants t LEFT JOIN approvals a ON a.tenant_id = $1 AND a.work_id = $2 AND a.kind = $3
 WHERE t.tenant_id = $1
"""
BY_ID = f"SELECT {COLUMNS} FROM approvals WHERE tenant_id = $1 AND id = $2"
QUERY_OF = "SELECT query_id FROM approvals WHERE tenant_id = $1 AND id = $2"
QUERIES_OF = (
    "SELECT DISTINCT query_id FROM approvals WHERE tenant_id = $1 AND id = ANY ($2) ORDER BY query_id"
)
LOCK = f"""
SELECT {COLUMNS}, subject, expires_at <= now() AS late FROM approvals WHERE tenant_id = $1 AND id = $2 FOR UPDATE
"""
SUBJECT = "SELECT subject FROM approvals WHERE tenant_id = $1 AND id = $2"
# The compare-and-set: of any number of decisions one finds the row still pending, by the database's clock.
DECIDE = f"""
UPDATE approvals SET status = $3, decided_at = now(), decided_by = $4, decision = $5, feedback = $6, partial = $7
 WHERE tenant_id = $1 AND id = $2 AND status = 'pending' AND ($3 IN ('expired', 'cancelled') OR expires_at > now())
RETURNING {COLUMNS}
"""
# Decided by a grant: the row is there for the record, and says whose word it was.
REMEMBERED = f"""
UPDATE approvals SET status = 'approved', decided_at = now(), decided_by = $3, decision = 'approve', grant_id = $4
 WHERE tenant_id = $1 AND id = $2 AND status = 'pending' RETURNING {COLUMNS}
"""
# The caller holds the row. An edit that leads back to what was asked for leaves no original.
REPLACE = f"""
UPDATE approvals SET subject = $3, digest = sha256($3), original_subject = nullif(coalesce(original_subject, subject), $3),
       glimpses = $4, edits = edits + 1
 WHERE tenant_id = $1 AND id = $2 AND status = 'pending' RETURNING {COLUMNS}
"""
OPEN_OF_QUERY = (
    "SELECT id FROM approvals WHERE tenant_id = $1 AND query_id = $2 AND status = 'pending' ORDER BY id"
)
VOTE = """
INSERT INTO approval_votes (tenant_id, approval_id, edits, principal, key_id, decision, scope) VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING principal, key_id, decision, scope, at
"""
VOTES = """
SELECT v.approval_id, v.principal, v.key_id, v.decision, v.scope, v.at
  FROM approval_votes v JOIN approvals a ON a.tenant_id = $1 AND a.id = v.approval_id AND a.edits = v.edits
 WHERE v.tenant_id = $1 AND v.approval_id = ANY ($2) ORDER BY v.at, v.principal
"""
DUE = "SELECT tenant_id, id FROM due_approvals($1)"
LIST = f"""
SELECT {COLUMNS} FROM approvals
 WHERE tenant_id = $1 AND ($2::text IS NULL OR id < $2) AND ($3::text IS NULL OR status = $3)
   AND ($4::text IS NULL OR query_id = $4) AND ($5::text IS NULL OR thread_id = $5) AND ($6::text IS NULL OR kind = $6)
 ORDER BY id DESC LIMIT $7
"""


def rule_from_stored(stored: bytes) -> ApprovalRule:
    return ApprovalRule.model_validate(orjson.loads(stored))


def approval_from_row(row: Any) -> ApprovalRow:
    return ApprovalRow(
        row["id"],
        row["kind"],
        row["target"],
        row["digest"],
        row["original_subject"],
        row["edits"],
        row["grant_id"],
        row["glimpses"],
        rule_from_stored(row["rule"]),
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
        row["label"],
    )


async def open_approval(tx: Tx, *args: Any) -> Any:
    return await tx.row(OPEN, tx.tenant, *args)


async def by_work(tx: Tx, work_id: str, kind: str) -> str | None:
    found: str | None = await tx.value(BY_WORK, tx.tenant, work_id, kind)
    return found


async def ended_of_work(tx: Tx, work_id: str, kind: str) -> Any:
    return await tx.row(ENDED, tx.tenant, work_id, kind)


async def gate_state(tx: Tx, work_id: str, kind: str) -> Any:
    return await tx.row(STANDING, tx.tenant, work_id, kind)


async def by_id(tx: Tx, approval_id: str) -> Any:
    return await tx.row(BY_ID, tx.tenant, approval_id)


async def query_id_of(tx: Tx, approval_id: str) -> str | None:
    found: str | None = await tx.value(QUERY_OF, tx.tenant, approval_id)
    return found


async def query_ids_of(tx: Tx, ids: Sequence[str]) -> list[str]:
    return [r["query_id"] for r in await tx.fetch(QUERIES_OF, tx.tenant, list(ids))]


async def lock(tx: Tx, approval_id: str) -> Any:
    return await tx.row(LOCK, tx.tenant, approval_id)


async def subject(tx: Tx, approval_id: str) -> Any:
    """Return the row with the subject, which is deleted together with its thread."""
    return await tx.row(SUBJECT, tx.tenant, approval_id)


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


async def set_grant(tx: Tx, approval_id: str, by: str, grant_id: str) -> ApprovalRow:
    return approval_from_row(await tx.row(REMEMBERED, tx.tenant, approval_id, by, grant_id))


async def replace(tx: Tx, approval_id: str, subject: bytes, glimpses: bytes) -> ApprovalRow:
    return approval_from_row(await tx.row(REPLACE, tx.tenant, approval_id, subject, glimpses))


async def open_of_query(tx: Tx, query_id: str) -> list[str]:
    return [r["id"] for r in await tx.fetch(OPEN_OF_QUERY, tx.tenant, query_id)]


async def vote(
    tx: Tx, approval_id: str, edits: int, principal: str, key_id: str, decision: str, scope: str | None
) -> Vote:
    """Record a vote on the subject after `edits` edits. The caller holds the approval's row."""
    return _vote(await tx.row(VOTE, tx.tenant, approval_id, edits, principal, key_id, decision, scope))


async def votes(tx: Tx, ids: list[str]) -> dict[str, list[Vote]]:
    """Return the votes that count, oldest first."""
    found: dict[str, list[Vote]] = {}
    for row in await tx.fetch(VOTES, tx.tenant, ids):
        found.setdefault(row["approval_id"], []).append(_vote(row))
    return found


def _vote(row: Any) -> Vote:
    return Vote(row["principal"], row["key_id"], row["decision"], row["scope"], row["at"])


async def due(db: Database, limit: int) -> list[tuple[str, str]]:
    return [(r["tenant_id"], r["id"]) for r in await db.call(DUE, limit)]


async def page(tx: Tx, *args: Any) -> list[Any]:
    return await tx.fetch(LIST, tx.tenant, *args)


GRANT_COLUMNS = """g.id, g.approval_id, g.thread_id, g.agent, g.tool, g.definition_digest, g.args, g.free, g.granted_by,
 g.created_at, g.expires_at, g.revoked_at, g.revoked_by, g.revoked_at IS NULL AND g.expires_at > now() AS active"""
INSERT_GRANT = """
INSERT INTO approval_grants (tenant_id, id, approval_id, thread_id, agent, tool, definition_digest, args, args_digest, free,
       granted_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, sha256($8), $9, $10, now() + make_interval(secs => $11::float8))
"""
# A grant is for the runtimes of the name under which it was made: another runtime may send the same tool anywhere. What
# the votes behind it are worth, the caller knows. There are few: while one covers a call, nobody is asked about it.
COVERING = """
SELECT g.id, g.granted_by,
       ARRAY(SELECT v.principal FROM approval_votes v
              WHERE v.tenant_id = $1 AND v.approval_id = a.id AND v.edits = a.edits) AS voters
  FROM approval_grants g JOIN approvals a ON a.tenant_id = $1 AND a.id = g.approval_id
 WHERE g.tenant_id = $1 AND g.thread_id = $2 AND g.agent = $3 AND g.tool = $4 AND g.definition_digest = $5
   AND g.args_digest = sha256($6) AND g.free = $7 AND g.revoked_at IS NULL AND g.expires_at > now()
   AND (SELECT name FROM runtimes r WHERE r.tenant_id = $1 AND r.id = a.runtime_id)
     = (SELECT name FROM runtimes r WHERE r.tenant_id = $1 AND r.id = $8)
 ORDER BY g.id DESC LIMIT 100
"""
REVOKE_GRANT = """
UPDATE approval_grants SET revoked_at = now(), revoked_by = $3 WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL
"""
GRANT = f"SELECT {GRANT_COLUMNS} FROM approval_grants g WHERE g.tenant_id = $1 AND g.id = $2"
GRANTS = f"""
SELECT {GRANT_COLUMNS} FROM approval_grants g
 WHERE g.tenant_id = $1 AND ($2::text IS NULL OR g.id < $2) AND ($3::text IS NULL OR g.thread_id = $3)
   AND ($4::text IS NULL OR g.agent = $4) AND ($5::text IS NULL OR g.tool = $5)
   AND ($6::boolean IS NULL OR (g.revoked_at IS NULL AND g.expires_at > now()) = $6)
 ORDER BY g.id DESC LIMIT $7
"""


async def insert_grant(tx: Tx, *args: Any) -> None:
    await tx.run(INSERT_GRANT, tx.tenant, *args)


async def covering_grants(tx: Tx, *args: Any) -> list[Any]:
    return await tx.fetch(COVERING, tx.tenant, *args)


async def revoke_grant(tx: Tx, grant_id: str, by: str) -> None:
    await tx.run(REVOKE_GRANT, tx.tenant, grant_id, by)


async def grant(tx: Tx, grant_id: str) -> GrantRow | None:
    row = await tx.row(GRANT, tx.tenant, grant_id)
    return None if row is None else GrantRow(**row)


async def grants(tx: Tx, *args: Any) -> list[GrantRow]:
    return [GrantRow(**r) for r in await tx.fetch(GRANTS, tx.tenant, *args)]
