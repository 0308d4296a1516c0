"""All SQL of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.base.postgres.database import Tx
from app.plans.models import Plan

COLUMNS = """p.id, p.key, p.thread_id, p.runtime_id, p.spec_name, p.status, p.revision, p.copied_from, p.query_id, p.result,
 coalesce(p.labels ->> p.status, p.status) AS label, p.created_at, p.updated_at, r.body, r.digest, r.decision, r.feedback,
 r.partial, r.variables"""
JOIN = "plans p JOIN plan_revisions r ON r.tenant_id = $1 AND r.plan_id = p.id AND r.revision = p.revision"
BY_ID = f"SELECT {COLUMNS} FROM {JOIN} WHERE p.tenant_id = $1 AND p.id = $2"
BY_KEY = f"SELECT {COLUMNS} FROM {JOIN} WHERE p.tenant_id = $1 AND p.thread_id = $2 AND p.key = $3"
LOCK = "SELECT 1 FROM plans WHERE tenant_id = $1 AND id = $2 FOR UPDATE"
STORED_BY = "SELECT plan_id FROM plan_revisions WHERE tenant_id = $1 AND stored_by = $2"
INSERT = """
INSERT INTO plans (tenant_id, id, key, thread_id, runtime_id, spec_name, status, revision, copied_from, labels)
VALUES ($1, $2, $3, $4, $5, $6, 'draft', 1, $7, $8::text::jsonb) ON CONFLICT (tenant_id, thread_id, key) DO NOTHING
"""
INSERT_REVISION = """
INSERT INTO plan_revisions (tenant_id, plan_id, revision, body, variables, digest, stored_by)
VALUES ($1, $2, $3, $4, $5, sha256($4), $6)
"""
NEXT_REVISION = """
UPDATE plans SET revision = revision + 1, runtime_id = $3, labels = $4::text::jsonb, updated_at = now()
 WHERE tenant_id = $1 AND id = $2 RETURNING revision
"""
MOVE = """
UPDATE plans SET status = $4, updated_at = now(), query_id = coalesce($5, query_id), result = coalesce($6, result)
 WHERE tenant_id = $1 AND id = $2 AND status = $3
"""
TRANSITION = """
INSERT INTO plan_transitions (tenant_id, plan_id, n, from_status, to_status, revision, by, work_id, approval_id, digest)
SELECT $1, $2, coalesce(max(n), 0) + 1, $3, $4, $5, $6, $7, $8, $9 FROM plan_transitions WHERE tenant_id = $1 AND plan_id = $2
"""
DECIDED = """
UPDATE plan_revisions SET decision = $4, feedback = $5, partial = $6 WHERE tenant_id = $1 AND plan_id = $2 AND revision = $3
"""
OPEN_GATE = """
SELECT id FROM approvals WHERE tenant_id = $1 AND kind = 'plan' AND target = $2 AND status = 'pending'
"""
# The query that works in the thread was told yes, and the call that asked is not over: it begins the plan next.
ABOUT_TO_BEGIN = """
SELECT EXISTS (SELECT FROM queries q
  JOIN approvals a ON a.tenant_id = $1 AND a.query_id = q.id
  JOIN work_records w ON w.tenant_id = $1 AND w.id = a.work_id
 WHERE q.tenant_id = $1 AND q.thread_id = $2 AND q.status IN ('running', 'waiting')
   AND a.kind = 'plan' AND a.target = $3 AND a.status = 'approved' AND w.ended_at IS NULL)
"""
INSERT_ACTIONS = """
INSERT INTO plan_actions (tenant_id, plan_id, index, revision, kind, status, idempotency_key)
SELECT $1, $2, n - 1, $3, kind, 'pending', key FROM unnest($4::text[], $5::text[]) WITH ORDINALITY AS t (kind, key, n)
"""
ACTIONS = """
SELECT index, revision, kind, status, attempts, idempotency_key, work_id, result, error, settled_by, updated_at
  FROM plan_actions WHERE tenant_id = $1 AND plan_id = $2
"""
ALL_ACTIONS = f"{ACTIONS} ORDER BY index"
SOME_ACTIONS = f"{ACTIONS} AND index = ANY ($3) ORDER BY index"
STANDING = """
SELECT index, status, attempts FROM plan_actions WHERE tenant_id = $1 AND plan_id = $2 ORDER BY index
"""
MOVE_ACTIONS = """
UPDATE plan_actions SET status = $5, attempts = attempts + ($5 = 'dispatched')::int, work_id = coalesce($6, work_id),
       result = coalesce($7, result), error = $8, settled_by = coalesce($9, settled_by), updated_at = now()
 WHERE tenant_id = $1 AND plan_id = $2 AND index = ANY ($3) AND status = ANY ($4)
RETURNING index
"""
KEEP_SNAPSHOT = """
INSERT INTO plan_snapshots (tenant_id, work_id, kind, body)
SELECT $1, $2, kind, body FROM unnest($3::text[], $4::bytea[]) AS t (kind, body)
"""
SNAPSHOT = "SELECT kind, body FROM plan_snapshots WHERE tenant_id = $1 AND work_id = $2"
EXECUTING_OF_QUERY = (
    "SELECT id FROM plans WHERE tenant_id = $1 AND query_id = $2 AND status = 'executing' ORDER BY id"
)
# What its approvals let through and it did not begin.
APPROVED_DRAFTS_OF_QUERY = """
SELECT DISTINCT p.id FROM approvals a JOIN plans p ON p.tenant_id = $1 AND p.id = a.target
 WHERE a.tenant_id = $1 AND a.query_id = $2 AND a.kind = 'plan' AND a.status = 'approved' AND p.status = 'draft' ORDER BY p.id
"""
LIST = f"""
SELECT {COLUMNS} FROM {JOIN} WHERE p.tenant_id = $1 AND ($2::text IS NULL OR p.id < $2)
   AND ($3::text IS NULL OR p.status = $3) AND ($4::text IS NULL OR p.thread_id = $4)
   AND ($5::text IS NULL OR p.spec_name = $5) AND ($6::text IS NULL OR r.decision = $6) ORDER BY p.id DESC LIMIT $7
"""
REVISIONS = """
SELECT r.revision, body, digest, stored_by, stored_at, decision, feedback, partial, p.status AS plan_status,
       p.revision AS current
  FROM plan_revisions r JOIN plans p ON p.tenant_id = $1 AND p.id = r.plan_id
 WHERE r.tenant_id = $1 AND r.plan_id = $2 ORDER BY r.revision
"""
TRANSITIONS = """
SELECT n, from_status, to_status, revision, at, by, work_id, approval_id, digest FROM plan_transitions
 WHERE tenant_id = $1 AND plan_id = $2 ORDER BY n
"""


def plan_from_row(row: Any) -> Plan | None:
    return None if row is None else Plan(**row)


async def find(tx: Tx, thread_id: str | None, name: str) -> Plan | None:
    """By `pln_` id, else by the key that a planner chose in this thread."""
    if name.startswith("pln_"):
        found = plan_from_row(await tx.row(BY_ID, tx.tenant, name))
        if found is not None and thread_id in (None, found.thread_id):
            return found
    if thread_id is None:
        return None
    return plan_from_row(await tx.row(BY_KEY, tx.tenant, thread_id, name))


async def lock(tx: Tx, plan_id: str) -> None:
    await tx.run(LOCK, tx.tenant, plan_id)


async def find_by_work(tx: Tx, work_id: str) -> str | None:
    plan_id: str | None = await tx.value(STORED_BY, tx.tenant, work_id)
    return plan_id


async def insert(tx: Tx, *args: Any) -> bool:
    return await tx.run(INSERT, tx.tenant, *args) == "INSERT 0 1"


async def insert_revision(tx: Tx, *args: Any) -> None:
    await tx.run(INSERT_REVISION, tx.tenant, *args)


async def next_revision(tx: Tx, plan_id: str, runtime_id: str, labels: str) -> int:
    return int(await tx.value(NEXT_REVISION, tx.tenant, plan_id, runtime_id, labels))


async def move(
    tx: Tx, plan_id: str, current: str, to: str, query_id: str | None, result: bytes | None
) -> bool:
    return await tx.run(MOVE, tx.tenant, plan_id, current, to, query_id, result) == "UPDATE 1"


async def transition(tx: Tx, *args: Any) -> None:
    await tx.run(TRANSITION, tx.tenant, *args)


async def record_decision(tx: Tx, *args: Any) -> None:
    await tx.run(DECIDED, tx.tenant, *args)


async def open_gate(tx: Tx, plan_id: str) -> str | None:
    found: str | None = await tx.value(OPEN_GATE, tx.tenant, plan_id)
    return found


async def is_about_to_begin(tx: Tx, thread_id: str, plan_id: str) -> bool:
    """Return whether the draft was approved and its requester will begin it. Call it after `open_gate`, so
    that no decision falls in between."""
    return bool(await tx.value(ABOUT_TO_BEGIN, tx.tenant, thread_id, plan_id))


async def insert_actions(
    tx: Tx, plan_id: str, revision: int, kinds: Sequence[str], keys: Sequence[str]
) -> None:
    await tx.run(INSERT_ACTIONS, tx.tenant, plan_id, revision, kinds, keys)


async def actions(tx: Tx, plan_id: str, indexes: Sequence[int] | None = None) -> list[Any]:
    """All actions of a plan, or those with these indexes."""
    if indexes is None:
        return await tx.fetch(ALL_ACTIONS, tx.tenant, plan_id)
    return await tx.fetch(SOME_ACTIONS, tx.tenant, plan_id, indexes)


async def action_states(tx: Tx, plan_id: str) -> list[Any]:
    """Where the actions of a plan stand, without what became of them, which may be large."""
    return await tx.fetch(STANDING, tx.tenant, plan_id)


async def move_actions(
    tx: Tx,
    plan_id: str,
    indexes: list[int],
    current: list[str],
    to: str,
    *,
    work_id: str | None = None,
    result: bytes | None = None,
    error: bytes | None = None,
    settled_by: str | None = None,
) -> list[int]:
    """Move the actions that are at `current`, and return the moved ones in order."""
    rows = await tx.fetch(
        MOVE_ACTIONS, tx.tenant, plan_id, indexes, current, to, work_id, result, error, settled_by
    )
    return sorted(r["index"] for r in rows)


async def keep_snapshot(tx: Tx, work_id: str, kept: Mapping[str, bytes]) -> None:
    await tx.run(KEEP_SNAPSHOT, tx.tenant, work_id, list(kept), list(kept.values()))


async def snapshot(tx: Tx, work_id: str) -> dict[str, bytes]:
    """Return the documents as they were when the work opened the gate of its plan, by kind."""
    return {r["kind"]: r["body"] for r in await tx.fetch(SNAPSHOT, tx.tenant, work_id)}


async def executing_of_query(tx: Tx, query_id: str) -> list[str]:
    return [r["id"] for r in await tx.fetch(EXECUTING_OF_QUERY, tx.tenant, query_id)]


async def approved_drafts_of_query(tx: Tx, query_id: str) -> list[str]:
    return [r["id"] for r in await tx.fetch(APPROVED_DRAFTS_OF_QUERY, tx.tenant, query_id)]


async def page(tx: Tx, *args: Any) -> list[Plan]:
    return [p for r in await tx.fetch(LIST, tx.tenant, *args) if (p := plan_from_row(r)) is not None]


async def revisions(tx: Tx, plan_id: str) -> list[Any]:
    return await tx.fetch(REVISIONS, tx.tenant, plan_id)


async def transitions(tx: Tx, plan_id: str) -> list[Any]:
    return await tx.fetch(TRANSITIONS, tx.tenant, plan_id)
