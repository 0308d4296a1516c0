"""All SQL of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plangate.statuses import ActionStatus, CallStatus, Decision, PlanStatus, WorkStatus

from app.base.json import strict_json
from app.base.postgres.database import Tx
from app.base.postgres.pages import PageStatements, cut_at_bytes, fetch_page, split_rows
from app.journal.ended_work import EndedWork
from app.journal.models import Scope
from app.plans.models import ActionState, Actor, Plan, PlanAction, PlanRevision, PlanTransition
from app.runtimes.models import SealedSigningSecret
from app.tools.models import OutgoingCall

COLUMNS = """p.id, p.key, p.thread_id, p.runtime_id, p.spec_name, p.status, p.revision, p.copied_from, p.query_id, p.result,
 coalesce(p.labels ->> p.status, p.status) AS label, p.created_at, p.updated_at, r.body, r.digest, r.decision, r.feedback,
 r.partial, r.facts, r.variables"""
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
INSERT_TRANSITION = """
INSERT INTO plan_transitions (tenant_id, plan_id, n, from_status, to_status, revision, by, work_id, approval_id, digest)
SELECT $1, $2, coalesce(max(n), 0) + 1, $3, $4, $5, $6, $7, $8, $9 FROM plan_transitions WHERE tenant_id = $1 AND plan_id = $2
"""
RECORD_DECISION = """
UPDATE plan_revisions SET decision = $4, feedback = $5, partial = $6 WHERE tenant_id = $1 AND plan_id = $2 AND revision = $3
"""
SAVE_FACTS = "UPDATE plan_revisions SET facts = $4 WHERE tenant_id = $1 AND plan_id = $2 AND revision = $3"
OPEN_GATE = """
SELECT id FROM approvals WHERE tenant_id = $1 AND kind = 'plan' AND target = $2 AND status = 'pending'
"""
# A query in the thread got the approval, and the call that requested it is not over: it begins the plan next.
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
ACTION_PAGE = cut_at_bytes(
    f"{ACTIONS} AND index > $3 ORDER BY index LIMIT $4",
    size="coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)",
    order="index",
)
SOME_ACTIONS = f"{ACTIONS} AND index = ANY ($3) ORDER BY index"
ACTION_STATES = """
SELECT index, status, attempts FROM plan_actions WHERE tenant_id = $1 AND plan_id = $2 ORDER BY index
"""
MOVE_ACTIONS = """
UPDATE plan_actions SET status = $5, attempts = attempts + ($5 = 'dispatched')::int, work_id = coalesce($6, work_id),
       result = coalesce($7, result), error = $8, settled_by = coalesce($9, settled_by), updated_at = now()
 WHERE tenant_id = $1 AND plan_id = $2 AND index = ANY ($3) AND status = ANY ($4)
RETURNING index
"""
DISPATCH_ACTION = "SELECT sealed, previous FROM dispatch_action($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
END_ACTION = "SELECT end_action($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
INSERT_SNAPSHOT = """
INSERT INTO plan_snapshots (tenant_id, work_id, kind, body)
SELECT $1, $2, kind, body FROM unnest($3::text[], $4::bytea[]) AS t (kind, body)
"""
SNAPSHOT = "SELECT kind, body FROM plan_snapshots WHERE tenant_id = $1 AND work_id = $2"
# The statuses of `is_executing`, as the index plans_executing names them.
EXECUTING_OF_QUERY = """
SELECT id FROM plans WHERE tenant_id = $1 AND query_id = $2 AND status = 'executing' ORDER BY id
"""
# Plans that were approved for the query and that it did not begin.
APPROVED_DRAFTS_OF_QUERY = """
SELECT DISTINCT p.id FROM approvals a JOIN plans p ON p.tenant_id = $1 AND p.id = a.target
 WHERE a.tenant_id = $1 AND a.query_id = $2 AND a.kind = 'plan' AND a.status = 'approved' AND p.status = 'draft' ORDER BY p.id
"""
# The newest $3 plans, of the thread $4: the candidates of a page (docs/decisions/0018).
_CANDIDATES = """
SELECT * FROM plans WHERE tenant_id = $1 AND id < coalesce($2, 'pln_~') AND {which} ORDER BY id DESC LIMIT $3
"""
_FILTERED = f"""
SELECT {COLUMNS} FROM ({{candidates}}) AS p
  JOIN plan_revisions r ON r.tenant_id = $1 AND r.plan_id = p.id AND r.revision = p.revision
 WHERE ($6::text IS NULL OR p.status = $6) AND ($7::text IS NULL OR p.spec_name = $7)
   AND ($8::text IS NULL OR r.decision = $8)
 ORDER BY p.id DESC LIMIT $5
"""
_SIZE = """octet_length(body) + coalesce(octet_length(result), 0) + coalesce(octet_length(feedback), 0)
 + coalesce(octet_length(partial), 0) + coalesce(octet_length(facts), 0)"""
LIST_OF_THREAD = PageStatements.from_candidates(
    _FILTERED, _CANDIDATES.format(which="thread_id = $4::text"), size=_SIZE, examined="$3"
)
LIST = PageStatements.from_candidates(
    _FILTERED, _CANDIDATES.format(which="$4::text IS NULL"), size=_SIZE, examined="$3"
)
_REVISION = """
SELECT r.revision, {body} AS body, digest, stored_by, stored_at, decision, feedback, {partial} AS partial, facts,
       p.status AS plan_status, r.revision = p.revision AS is_current
  FROM plan_revisions r JOIN plans p ON p.tenant_id = $1 AND p.id = r.plan_id
 WHERE r.tenant_id = $1 AND r.plan_id = $2"""
REVISION = _REVISION.format(body="body", partial="partial") + " AND r.revision = $3"
REVISIONS = cut_at_bytes(
    _REVISION.format(body="NULL::bytea", partial="NULL::bytea")
    + " AND r.revision < coalesce($3, r.revision + 1) ORDER BY r.revision DESC LIMIT $4",
    size="coalesce(octet_length(feedback), 0) + coalesce(octet_length(facts), 0)",
    order="revision DESC",
)
REVISION_BODY = "SELECT body FROM plan_revisions WHERE tenant_id = $1 AND plan_id = $2 AND revision = $3"
TRANSITIONS = """
SELECT n, from_status AS from_, to_status AS to, revision, at, by, work_id, approval_id, digest FROM plan_transitions
 WHERE tenant_id = $1 AND plan_id = $2 AND n > $3 ORDER BY n LIMIT $4
"""
EXECUTING_WORK = """
SELECT work_id FROM plan_transitions WHERE tenant_id = $1 AND plan_id = $2 AND to_status = 'executing'
"""

MAX_EXAMINED: Final = 2_000


@dataclass(frozen=True, slots=True)
class PlanFilter:
    """The filters of a list of plans; None matches everything."""

    status: PlanStatus | None = None
    thread_id: str | None = None
    spec_name: str | None = None
    decision: Decision | None = None


def _plan(row: Any) -> Plan | None:
    return None if row is None else Plan(**row)


async def find(tx: Tx, *, thread_id: str | None, name: str) -> Plan | None:
    """Return a plan by its `pln_` id, or by the key that a planner chose in this thread."""
    if name.startswith("pln_"):
        plan = _plan(await tx.row(BY_ID, tx.tenant, name))
        if plan is not None and thread_id in (None, plan.thread_id):
            return plan
    if thread_id is None:
        return None
    return _plan(await tx.row(BY_KEY, tx.tenant, thread_id, name))


async def lock(tx: Tx, *, plan_id: str) -> None:
    await tx.run(LOCK, tx.tenant, plan_id)


async def id_of_work(tx: Tx, *, work_id: str) -> str | None:
    """Return the id of the plan that this work stored."""
    plan_id: str | None = await tx.value(STORED_BY, tx.tenant, work_id)
    return plan_id


async def insert(
    tx: Tx,
    *,
    plan_id: str,
    key: str | None,
    thread_id: str,
    runtime_id: str,
    spec_name: str,
    copied_from: str | None,
    labels: Mapping[str, str],
) -> bool:
    """Insert a draft without a revision. Return False if the thread has a plan with this key."""
    args = (tx.tenant, plan_id, key, thread_id, runtime_id, spec_name, copied_from, _json(labels))
    return await tx.run(INSERT, *args) == "INSERT 0 1"


def _json(labels: Mapping[str, str]) -> str:
    return strict_json.dumps(labels).decode()


async def insert_revision(
    tx: Tx, *, plan_id: str, revision: int, body: bytes, variables: bool, work_id: str
) -> None:
    await tx.run(INSERT_REVISION, tx.tenant, plan_id, revision, body, variables, work_id)


async def next_revision(tx: Tx, *, plan_id: str, runtime_id: str, labels: Mapping[str, str]) -> int:
    """Count the revision up and return it."""
    return int(await tx.value(NEXT_REVISION, tx.tenant, plan_id, runtime_id, _json(labels)))


async def move(
    tx: Tx,
    *,
    plan_id: str,
    current: PlanStatus,
    to: PlanStatus,
    query_id: str | None = None,
    result: bytes | None = None,
) -> bool:
    """Change the status of a plan. Return False if it is not `current`."""
    return await tx.run(MOVE, tx.tenant, plan_id, current, to, query_id, result) == "UPDATE 1"


async def insert_transition(
    tx: Tx, *, plan: Plan, from_: PlanStatus | None, to: PlanStatus, actor: Actor
) -> None:
    """Record a change of the plan's status, at its current revision."""
    work = (actor.by, actor.scope.work_id, actor.approval_id)
    await tx.run(INSERT_TRANSITION, tx.tenant, plan.id, from_, to, plan.revision, *work, plan.digest)


async def record_decision(
    tx: Tx,
    *,
    plan_id: str,
    revision: int,
    decision: Decision,
    feedback: str | None,
    partial: bytes | None,
) -> None:
    await tx.run(RECORD_DECISION, tx.tenant, plan_id, revision, decision, feedback, partial)


async def save_facts(tx: Tx, *, plan_id: str, revision: int, facts: bytes) -> None:
    """Store the facts of a revision as JSON."""
    await tx.run(SAVE_FACTS, tx.tenant, plan_id, revision, facts)


async def has_pending_approval(tx: Tx, *, plan_id: str) -> bool:
    return bool(await tx.value(OPEN_GATE, tx.tenant, plan_id))


async def is_about_to_begin(tx: Tx, *, thread_id: str, plan_id: str) -> bool:
    """Return whether the draft was approved and its requester is about to begin it. Call it after
    `has_pending_approval`, so that no decision falls in between."""
    return bool(await tx.value(ABOUT_TO_BEGIN, tx.tenant, thread_id, plan_id))


async def insert_actions(
    tx: Tx, *, plan_id: str, revision: int, kinds: Sequence[str], keys: Sequence[str]
) -> None:
    """Insert the actions of an approved plan, with their idempotency keys."""
    await tx.run(INSERT_ACTIONS, tx.tenant, plan_id, revision, kinds, keys)


async def actions(tx: Tx, *, plan_id: str, indexes: Sequence[int] | None = None) -> list[PlanAction]:
    """Return all actions of a plan, or those with these indexes."""
    if indexes is None:
        rows = await tx.fetch(ALL_ACTIONS, tx.tenant, plan_id)
    else:
        rows = await tx.fetch(SOME_ACTIONS, tx.tenant, plan_id, indexes)
    return [PlanAction(**row) for row in rows]


async def action_page(tx: Tx, *, plan_id: str, after: int, limit: int) -> tuple[list[PlanAction], int | None]:
    """Return up to `limit` actions after the index `after`, in order, and the index after which the next page begins, or
    None on the last."""
    rows, has_more = split_rows(await tx.fetch(ACTION_PAGE, tx.tenant, plan_id, after, limit + 1), limit)
    return [PlanAction(**row) for row in rows], rows[-1]["index"] if has_more else None


async def action_states(tx: Tx, *, plan_id: str) -> list[ActionState]:
    """Return the statuses of the actions of a plan without their results, which may be large."""
    return [ActionState(**row) for row in await tx.fetch(ACTION_STATES, tx.tenant, plan_id)]


async def move_actions(
    tx: Tx,
    *,
    plan_id: str,
    indexes: Sequence[int],
    current: Sequence[ActionStatus],
    to: ActionStatus,
    work_id: str | None = None,
    result: bytes | None = None,
    error: bytes | None = None,
    settled_by: str | None = None,
) -> frozenset[int]:
    """Move the actions that have a `current` status, and return their indexes."""
    rows = await tx.fetch(
        MOVE_ACTIONS, tx.tenant, plan_id, indexes, current, to, work_id, result, error, settled_by
    )
    return frozenset(row["index"] for row in rows)


async def dispatch_action(
    tx: Tx,
    *,
    plan_id: str,
    index: int,
    scope: Scope,
    call: OutgoingCall,
    by: str,
    epoch: int,
    signed_for: str | None,
) -> tuple[bool, SealedSigningSecret | None]:
    """Record the dispatch of an action that was never sent, and acquire its call for the process `by`. Return False if
    the action was sent before or is over; otherwise True and the secret that signs calls of the runtime `signed_for`."""
    row = await tx.row(
        DISPATCH_ACTION,
        plan_id,
        index,
        call.work_id,
        call.query_id,
        scope.thread_id,
        scope.parent_work_id,
        scope.agent,
        call.name,
        call.definition_digest,
        call.request,
        call.replay,
        call.timeout_ms,
        by,
        epoch,
        signed_for,
    )
    secret = None if row is None or row["sealed"] is None else SealedSigningSecret(**row)
    return row is not None, secret


async def end_action(
    tx: Tx,
    *,
    plan_id: str,
    index: int,
    work_id: str,
    status: ActionStatus,
    result: bytes | None,
    error: bytes | None,
    epoch: int,
    call_row: tuple[CallStatus, bytes] | None,
) -> bool:
    """Record the outcome of an action that was sent, with its work record and, if `call_row` is given, the status and result
    of its call. Return False if the outcome is on record."""
    work_status: WorkStatus = status if status == "succeeded" or status == "unknown" else "failed"
    outcome = (status, result, error, work_status, epoch, *(call_row or (None, None)))
    if not await tx.value(END_ACTION, plan_id, index, work_id, *outcome):
        return False
    tx.reports.append(EndedWork(work_id, "action", work_status))
    return True


async def insert_snapshot(tx: Tx, *, work_id: str, documents: Mapping[str, bytes]) -> None:
    """Store the documents that a plan reads, by kind, under the work that brings it to its gate."""
    await tx.run(INSERT_SNAPSHOT, tx.tenant, work_id, list(documents), list(documents.values()))


async def snapshot(tx: Tx, *, work_id: str) -> dict[str, bytes]:
    """Return the documents as of the moment when the work brought its plan to the gate, by kind."""
    return {row["kind"]: row["body"] for row in await tx.fetch(SNAPSHOT, tx.tenant, work_id)}


async def executing_of_query(tx: Tx, *, query_id: str) -> list[str]:
    """Return the ids of the plans that a query executes."""
    return [row["id"] for row in await tx.fetch(EXECUTING_OF_QUERY, tx.tenant, query_id)]


async def approved_drafts_of_query(tx: Tx, *, query_id: str) -> list[str]:
    """Return the ids of the plans that were approved for a query and that it did not begin."""
    return [row["id"] for row in await tx.fetch(APPROVED_DRAFTS_OF_QUERY, tx.tenant, query_id)]


async def page(
    tx: Tx, *, after: str | None, limit: int, filters: PlanFilter
) -> tuple[list[Plan], str | None]:
    """Return up to `limit` plans, newest first, and the id after which the next page begins, or None on the last."""
    rows, last = await fetch_page(
        tx,
        LIST if filters.thread_id is None else LIST_OF_THREAD,
        candidates=(after, MAX_EXAMINED, filters.thread_id),
        limit=limit,
        filters=(filters.status, filters.spec_name, filters.decision),
    )
    return [Plan(**row) for row in rows], last


async def revisions(
    tx: Tx, *, plan_id: str, before: int | None, limit: int
) -> tuple[list[PlanRevision], int | None]:
    """Return up to `limit` revisions of a plan without their bodies, newest first, and the revision before which the next
    page begins, or None on the last."""
    rows, has_more = split_rows(await tx.fetch(REVISIONS, tx.tenant, plan_id, before, limit + 1), limit)
    return [PlanRevision(**row) for row in rows], rows[-1]["revision"] if has_more else None


async def revision(tx: Tx, *, plan_id: str, revision: int) -> PlanRevision | None:
    row = await tx.row(REVISION, tx.tenant, plan_id, revision)
    return None if row is None else PlanRevision(**row)


async def revision_body(tx: Tx, *, plan_id: str, revision: int) -> bytes | None:
    body: bytes | None = await tx.value(REVISION_BODY, tx.tenant, plan_id, revision)
    return body


async def transitions(tx: Tx, *, plan_id: str, after: int, limit: int) -> list[PlanTransition]:
    """Return up to `limit` changes of a plan's status after the one with the number `after`, oldest first."""
    return [PlanTransition(**row) for row in await tx.fetch(TRANSITIONS, tx.tenant, plan_id, after, limit)]


async def executing_work(tx: Tx, *, plan_id: str) -> str | None:
    """Return the work that executes the plan, or executed it."""
    work_id: str | None = await tx.value(EXECUTING_WORK, tx.tenant, plan_id)
    return work_id
