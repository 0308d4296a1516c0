"""All SQL of approvals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any

import orjson
from plangate.spec.models import ApprovalRule
from plangate.statuses import ApprovalStatus, EndedApprovalStatus

from app.approvals.models import (
    ApprovalRequest,
    ApprovalRow,
    Comment,
    DecidersGroup,
    Decision,
    EndedApproval,
    GateKind,
    GateState,
    GrantRow,
    PendingCounts,
    PendingGroup,
    Voter,
    VoteRow,
)
from app.base.ids import id_range
from app.base.json import strict_json
from app.base.postgres.database import Database, Tx
from app.base.postgres.pages import PageStatements, cut_at_bytes, fetch_page, split_rows
from app.tenancy.floor import parse_floor

COLUMNS = """id, kind, target, digest, original_subject, edits, grant_id, glimpses, rule, query_id, work_id, agent, thread_id,
 runtime_id, tenant_id AS tenant, requested_by, status, requested_at, expires_at, decided_at, decided_by, decision, feedback,
 partial, waiting_parents, waiting_actions,
 CASE WHEN kind = 'plan' THEN (SELECT coalesce(p.labels ->> p.status, p.status) FROM plans p
                           WHERE p.tenant_id = $1 AND p.id = target) END AS label"""
# Idempotent by work and kind: after a crash the same gate finds the approval it had opened. A call of executePlan
# may stand behind two gates, its own and the plan's.
INSERT = f"""
INSERT INTO approvals (tenant_id, id, kind, target, digest, subject, glimpses, rule, query_id, work_id, agent, thread_id,
       runtime_id, requested_by, status, expires_at, waiting_actions, waiting_parents)
VALUES ($1, $2, $3, $4, sha256($5), $5, $6, $7, $8, $9, $10, $11, $12, $13, 'pending',
        now() + make_interval(secs => $14::float8 / 1000), $15, (
        WITH RECURSIVE above (parent_id, kind, depth) AS (
            SELECT w.parent_id, w.kind, 1 FROM work_records w WHERE w.tenant_id = $1 AND w.id = $9
             UNION ALL
            SELECT w.parent_id, w.kind, depth + 1 FROM above JOIN work_records w ON w.tenant_id = $1 AND w.id = above.parent_id
             WHERE depth < 1000)
        SELECT greatest(count(*) - 1, 0) FROM above WHERE kind = 'agent'))
ON CONFLICT (tenant_id, work_id, kind) DO NOTHING RETURNING {COLUMNS}
"""
OF_WORK = "SELECT EXISTS (SELECT FROM approvals WHERE tenant_id = $1 AND work_id = $2 AND kind = $3)"
ENDED = """
SELECT id, status, digest, subject, original_subject, rule, feedback, partial FROM approvals
 WHERE tenant_id = $1 AND work_id = $2 AND kind = $3 AND status <> 'pending'
"""
# The operator's floor as it is now, and whether the work opened this gate before: one statement a gate.
GATE_STATE = """
SELECT t.approval_floor::text AS floor, a.id IS NOT NULL AS was_requested
  FROM tenants t LEFT JOIN approvals a ON a.tenant_id = $1 AND a.work_id = $2 AND a.kind = $3
 WHERE t.tenant_id = $1
"""
BY_ID = f"SELECT {COLUMNS} FROM approvals WHERE tenant_id = $1 AND id = $2"
QUERY_OF = "SELECT query_id FROM approvals WHERE tenant_id = $1 AND id = $2"
QUERIES_OF = (
    "SELECT DISTINCT query_id FROM approvals WHERE tenant_id = $1 AND id = ANY ($2) ORDER BY query_id"
)
LOCK = f"""
SELECT {COLUMNS}, subject, expires_at <= now() AS is_late FROM approvals WHERE tenant_id = $1 AND id = $2 FOR UPDATE
"""
# Empty if it was deleted together with its thread.
SUBJECT = "SELECT coalesce(subject, '') FROM approvals WHERE tenant_id = $1 AND id = $2"
# The compare-and-set: of any number of decisions one finds the row still pending, by the database's clock.
DECIDE = f"""
UPDATE approvals SET status = $3, decided_at = now(), decided_by = $4, decision = $5, feedback = $6, partial = $7
 WHERE tenant_id = $1 AND id = $2 AND status = 'pending' AND ($3 IN ('expired', 'cancelled') OR expires_at > now())
RETURNING {COLUMNS}
"""
# Decided by a grant: the row is the record of it, and names the principal who gave the grant.
APPROVE_BY_GRANT = f"""
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
# The newest $5 approvals that one index gives in order: the candidates of a page (docs/decisions/0018). $6 is used by one
# form alone, so that no plan has to serve two of them.
_CANDIDATES = """
SELECT * FROM approvals WHERE tenant_id = $1 AND id < coalesce($2, 'apr_~') AND id >= $3 AND id < $4 AND {which}
 ORDER BY id DESC LIMIT $5
"""
_OF_QUERY = _CANDIDATES.format(which="query_id = $6::text")
_PENDING = _CANDIDATES.format(which="status = 'pending' AND $6::text IS NULL")
_ALL = _CANDIDATES.format(which="$6::text IS NULL")
# Glimpses are JSON, so text is also searched in the form that it has in a JSON string.
_FILTERED = f"""
SELECT {COLUMNS} FROM ({{candidates}}) AS approvals
 WHERE ($8::text IS NULL OR status = $8) AND ($9::text IS NULL OR thread_id = $9) AND ($10::text IS NULL OR kind = $10)
   AND ($11::text IS NULL OR agent = $11) AND ($12::text IS NULL OR (kind = 'tool' AND target = $12))
   AND ($13::text IS NULL OR runtime_id IN (SELECT r.id FROM runtimes r WHERE r.tenant_id = $1 AND r.name = $13))
   AND ($14::text IS NULL OR requested_by = $14)
   AND ($15::timestamptz IS NULL OR requested_at >= $15) AND ($16::timestamptz IS NULL OR requested_at < $16)
   AND ($17::text IS NULL OR EXISTS (
        SELECT FROM (VALUES (lower($17::text)), (lower(substr(to_json($17::text)::text, 2, length(to_json($17::text)::text) - 2))))
            AS wanted (text)
         WHERE strpos(lower(concat_ws(' ', target, agent, requested_by, feedback,
               CASE WHEN octet_length(glimpses) <= 65536 THEN convert_from(glimpses, 'UTF8') END)), wanted.text) > 0))
 ORDER BY id DESC LIMIT $7
"""
_SIZE = """octet_length(glimpses) + octet_length(rule) + coalesce(octet_length(original_subject), 0)
 + coalesce(octet_length(feedback), 0) + coalesce(octet_length(partial), 0)"""
LIST_OF_QUERY = PageStatements.from_candidates(_FILTERED, _OF_QUERY, size=_SIZE, examined="$5")
LIST_PENDING = PageStatements.from_candidates(_FILTERED, _PENDING, size=_SIZE, examined="$5")
LIST_ALL = PageStatements.from_candidates(_FILTERED, _ALL, size=_SIZE, examined="$5")
COUNT_PENDING = """
WITH counted AS MATERIALIZED (
    SELECT kind, agent, runtime_id, expires_at FROM approvals
     WHERE tenant_id = $1 AND status = 'pending' ORDER BY id LIMIT $2)
SELECT kind, agent, (SELECT name FROM runtimes r WHERE r.tenant_id = $1 AND r.id = runtime_id) AS runtime,
       count(*) AS pending, min(expires_at) AS next_expires_at
  FROM counted GROUP BY 1, 2, 3 ORDER BY pending DESC, kind, agent, runtime
"""
# The approvals of COUNT_PENDING, by what `can_decide` needs. Votes void by an edit do not count.
COUNT_BY_DECIDERS = """
WITH counted AS MATERIALIZED (
    SELECT id, edits, CASE WHEN convert_from(rule, 'UTF8')::jsonb #> '{approvers,notRequester}' = 'true' THEN requested_by END
                      AS excluded_requester
      FROM approvals WHERE tenant_id = $1 AND status = 'pending' ORDER BY id LIMIT $2),
voted AS (
    SELECT v.approval_id, array_agg(v.principal ORDER BY v.principal) AS principals,
           array_agg(v.key_id ORDER BY v.principal) AS key_ids
      FROM counted c JOIN approval_votes v ON v.tenant_id = $1 AND v.approval_id = c.id AND v.edits = c.edits GROUP BY 1)
SELECT excluded_requester, coalesce(principals, '{}') AS principals, coalesce(key_ids, '{}') AS key_ids, count(*) AS pending
  FROM counted LEFT JOIN voted ON approval_id = id GROUP BY 1, 2, 3
"""
INSERT_COMMENT = """
INSERT INTO approval_comments (tenant_id, id, approval_id, principal, text) VALUES ($1, $2, $3, $4, $5)
RETURNING id, approval_id, principal, text, created_at
"""
COUNT_COMMENTS = "SELECT count(*) FROM approval_comments WHERE tenant_id = $1 AND approval_id = $2"
COMMENTS = cut_at_bytes(
    """
SELECT id, approval_id, principal, text, created_at FROM approval_comments
 WHERE tenant_id = $1 AND approval_id = $2 AND ($3::text IS NULL OR id < $3) ORDER BY id DESC LIMIT $4
""",
    size="octet_length(text)",
    order="id DESC",
)

MAX_EXAMINED = 2_000
MAX_SEARCHED = 500  # their texts are read, up to 64 KiB each


@dataclass(frozen=True, slots=True)
class ApprovalFilter:
    """Which approvals a list has; None excludes nothing. `tool` is the target of a tool call, `runtime` a name, `requester`
    a principal; `since` and `before` bound `requestedAt`. `text` is searched in target, agent, requester, feedback and
    glimpses, without regard to case."""

    status: ApprovalStatus | None = None
    query_id: str | None = None
    thread_id: str | None = None
    kind: GateKind | None = None
    agent: str | None = None
    tool: str | None = None
    runtime: str | None = None
    requester: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    text: str | None = None

    def candidates(self, after: str | None) -> tuple[Any, ...]:
        """Return the parameters $2 to $6 of the lists. `after` is the id after which the page begins."""
        lowest, highest = id_range("apr_", self.since, self.before)
        examined = MAX_EXAMINED if self.text is None else MAX_SEARCHED
        return after, lowest, highest, examined, self.query_id

    def conditions(self) -> tuple[Any, ...]:
        """Return the parameters from $8 on."""
        names = (self.status, self.thread_id, self.kind, self.agent, self.tool, self.runtime, self.requester)
        return *names, self.since, self.before, self.text


@dataclass(frozen=True, slots=True)
class LockedApproval:
    """An approval whose row the transaction holds. `subject` is None if it was deleted together with its thread."""

    approval: ApprovalRow
    subject: bytes | None
    is_late: bool  # its time has passed, by the database's clock


def _rule(data: bytes) -> ApprovalRule:
    return ApprovalRule.model_validate(orjson.loads(data))


def _approval(row: Any) -> ApprovalRow:
    return ApprovalRow(**{**row, "rule": _rule(row["rule"])})


async def insert(tx: Tx, *, approval_id: str, request: ApprovalRequest) -> ApprovalRow | None:
    """Insert a pending approval. Return None if this work opened this gate before."""
    row = await tx.row(
        INSERT,
        tx.tenant,
        approval_id,
        request.kind,
        request.target,
        request.subject,
        strict_json.dumps(request.glimpses),
        strict_json.dumps(request.rule.to_wire()),
        request.scope.query_id,
        request.scope.work_id,
        request.scope.agent,
        request.scope.thread_id,
        request.runtime_id,
        request.requested_by,
        float(request.expires_in_ms),
        request.waiting_actions,
    )
    return None if row is None else _approval(row)


async def exists(tx: Tx, *, work_id: str, kind: GateKind) -> bool:
    return bool(await tx.value(OF_WORK, tx.tenant, work_id, kind))


async def ended_of_work(tx: Tx, *, work_id: str, kind: GateKind) -> EndedApproval | None:
    """Return the approval that this work opened, or None while it is pending."""
    row = await tx.row(ENDED, tx.tenant, work_id, kind)
    if row is None:
        return None
    return EndedApproval(
        id=row["id"],
        status=row["status"],
        digest=row["digest"],
        subject=row["subject"],
        original=row["original_subject"],
        fails_query=_rule(row["rule"]).on_expiry == "fail",
        feedback=row["feedback"],
        partial=None if row["partial"] is None else orjson.loads(row["partial"]),
    )


async def gate_state(tx: Tx, *, work_id: str, kind: GateKind) -> GateState:
    row = await tx.row(GATE_STATE, tx.tenant, work_id, kind)
    return GateState(floor=parse_floor(row["floor"]), was_requested=row["was_requested"])


async def by_id(tx: Tx, *, approval_id: str) -> ApprovalRow | None:
    row = await tx.row(BY_ID, tx.tenant, approval_id)
    return None if row is None else _approval(row)


async def query_id_of(tx: Tx, *, approval_id: str) -> str | None:
    query_id: str | None = await tx.value(QUERY_OF, tx.tenant, approval_id)
    return query_id


async def query_ids_of(tx: Tx, *, approval_ids: Sequence[str]) -> list[str]:
    return [r["query_id"] for r in await tx.fetch(QUERIES_OF, tx.tenant, approval_ids)]


async def lock(tx: Tx, *, approval_id: str) -> LockedApproval:
    columns = dict(await tx.row(LOCK, tx.tenant, approval_id))
    subject, is_late = columns.pop("subject"), columns.pop("is_late")
    return LockedApproval(_approval(columns), subject, is_late)


async def subject(tx: Tx, *, approval_id: str) -> bytes | None:
    """Return the subject, which is empty if it was deleted together with its thread; None if there is no such
    approval."""
    data: bytes | None = await tx.value(SUBJECT, tx.tenant, approval_id)
    return data


async def decide(
    tx: Tx,
    *,
    approval_id: str,
    status: EndedApprovalStatus,
    decision: Decision | None = None,
) -> ApprovalRow | None:
    """End a pending approval. Return None if it is not pending, or its time has passed. `decision` is None if no
    person decided."""
    columns: tuple[Any, ...] = (None, None, None, None)
    if decision is not None:
        partial = None if decision.partial is None else strict_json.dumps(decision.partial)
        columns = (decision.by, decision.decision, decision.feedback, partial)
    row = await tx.row(DECIDE, tx.tenant, approval_id, status, *columns)
    return None if row is None else _approval(row)


async def approve_by_policy(tx: Tx, *, approval_id: str) -> None:
    await tx.run(DECIDE, tx.tenant, approval_id, "approved", "policy", "approve", None, None)


async def approve_by_grant(tx: Tx, *, approval_id: str, by: str, grant_id: str) -> ApprovalRow:
    return _approval(await tx.row(APPROVE_BY_GRANT, tx.tenant, approval_id, by, grant_id))


async def replace_subject(tx: Tx, *, approval_id: str, subject: bytes, glimpses: bytes) -> ApprovalRow:
    return _approval(await tx.row(REPLACE, tx.tenant, approval_id, subject, glimpses))


async def open_of_query(tx: Tx, *, query_id: str) -> list[str]:
    return [r["id"] for r in await tx.fetch(OPEN_OF_QUERY, tx.tenant, query_id)]


async def insert_vote(tx: Tx, *, approval_id: str, edits: int, vote: Decision) -> VoteRow:
    """Record a vote on the subject after `edits` edits. The caller holds the approval's row."""
    return VoteRow(
        **await tx.row(VOTE, tx.tenant, approval_id, edits, vote.by, vote.key_id, vote.decision, vote.scope)
    )


async def votes(tx: Tx, *, approval_ids: Sequence[str]) -> dict[str, list[VoteRow]]:
    """Return the votes that count, oldest first."""
    votes: dict[str, list[VoteRow]] = {}
    for row in await tx.fetch(VOTES, tx.tenant, approval_ids):
        columns = dict(row)
        votes.setdefault(columns.pop("approval_id"), []).append(VoteRow(**columns))
    return votes


async def due(db: Database, *, limit: int) -> list[tuple[str, str]]:
    """Return the tenants and ids of approvals whose time has passed."""
    return [(r["tenant_id"], r["id"]) for r in await db.call(DUE, limit)]


async def page(
    tx: Tx, *, after: str | None, limit: int, filters: ApprovalFilter
) -> tuple[list[ApprovalRow], str | None]:
    """Return up to `limit` approvals, newest first, and the id after which the next page begins, or None on the last."""
    match filters:
        case ApprovalFilter(query_id=str()):
            statements = LIST_OF_QUERY
        case ApprovalFilter(status="pending"):
            statements = LIST_PENDING
        case _:
            statements = LIST_ALL
    rows, last = await fetch_page(
        tx, statements, candidates=filters.candidates(after), limit=limit, filters=filters.conditions()
    )
    return [_approval(row) for row in rows], last


async def count_by_deciders(tx: Tx, *, most: int) -> list[DecidersGroup]:
    """Count up to `most` pending approvals by who cannot decide them."""
    return [
        DecidersGroup(
            row["excluded_requester"],
            [Voter(*each) for each in zip(row["principals"], row["key_ids"], strict=True)],
            row["pending"],
        )
        for row in await tx.fetch(COUNT_BY_DECIDERS, tx.tenant, most)
    ]


async def count_pending(tx: Tx, *, most: int, groups: int, can_decide: int) -> PendingCounts:
    """Count up to `most` pending approvals. Return at most `groups` groups, the largest first."""
    rows = await tx.fetch(COUNT_PENDING, tx.tenant, most + 1)
    pending = sum(row["pending"] for row in rows)
    return PendingCounts(
        pending=min(pending, most),
        can_decide=can_decide,
        is_complete=pending <= most,
        next_expires_at=min((row["next_expires_at"] for row in rows), default=None),
        groups=[
            PendingGroup(row["kind"], row["agent"], row["runtime"] or "", row["pending"])
            for row in rows[:groups]
        ],
    )


async def insert_comment(tx: Tx, *, comment_id: str, approval_id: str, by: str, text: str) -> Comment:
    return Comment(**await tx.row(INSERT_COMMENT, tx.tenant, comment_id, approval_id, by, text))


async def count_comments(tx: Tx, *, approval_id: str) -> int:
    return int(await tx.value(COUNT_COMMENTS, tx.tenant, approval_id))


async def comments(
    tx: Tx, *, approval_id: str, after: str | None, limit: int
) -> tuple[list[Comment], str | None]:
    """Return up to `limit` comments on an approval, newest first, and the id after which the next page begins, or None on
    the last."""
    rows, has_more = split_rows(await tx.fetch(COMMENTS, tx.tenant, approval_id, after, limit + 1), limit)
    return [Comment(**row) for row in rows], rows[-1]["id"] if has_more else None


GRANT_COLUMNS = """g.id, g.approval_id, g.thread_id, g.agent, g.tool, g.definition_digest, g.args, g.free, g.granted_by,
 g.created_at, g.expires_at, g.revoked_at, g.revoked_by, g.revoked_at IS NULL AND g.expires_at > now() AS active"""
INSERT_GRANT = """
INSERT INTO approval_grants (tenant_id, id, approval_id, thread_id, agent, tool, definition_digest, args, args_digest, free,
       granted_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, sha256($8), $9, $10, now() + make_interval(secs => $11::float8))
"""
# A grant is for the runtimes of the name under which it was made: another runtime may send the same tool anywhere.
# The caller judges the votes behind it. There are few: while one covers a call, nobody is asked about it.
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
# As of approvals: $3 grants are examined, of the thread $4.
_GRANT_CANDIDATES = """
SELECT * FROM approval_grants WHERE tenant_id = $1 AND id < coalesce($2, 'grt_~') AND {which} ORDER BY id DESC LIMIT $3
"""
_FILTERED_GRANTS = f"""
SELECT {GRANT_COLUMNS} FROM ({{candidates}}) AS g
 WHERE ($6::text IS NULL OR g.agent = $6) AND ($7::text IS NULL OR g.tool = $7)
   AND ($8::boolean IS NULL OR (g.revoked_at IS NULL AND g.expires_at > now()) = $8)
 ORDER BY g.id DESC LIMIT $5
"""
GRANTS_OF_THREAD = PageStatements.from_candidates(
    _FILTERED_GRANTS,
    _GRANT_CANDIDATES.format(which="thread_id = $4::text"),
    size="octet_length(args)",
    examined="$3",
)
GRANTS = PageStatements.from_candidates(
    _FILTERED_GRANTS,
    _GRANT_CANDIDATES.format(which="$4::text IS NULL"),
    size="octet_length(args)",
    examined="$3",
)


@dataclass(frozen=True, slots=True)
class GrantFilter:
    """The filters of a list of grants; None matches everything."""

    thread_id: str | None = None
    agent: str | None = None
    tool: str | None = None
    active: bool | None = None


@dataclass(frozen=True, slots=True)
class CoveredCalls:
    """The calls that a grant covers: of a tool in one definition, by one agent in one thread, with these arguments,
    except for the `free` ones."""

    thread_id: str
    agent: str
    tool: str
    definition_digest: str
    args: bytes
    free: list[str]


@dataclass(frozen=True, slots=True)
class CoveringGrant:
    """A grant that covers a call, and the principals whose votes are behind it."""

    id: str
    granted_by: str
    voters: list[str]


async def insert_grant(
    tx: Tx, *, grant_id: str, approval_id: str, calls: CoveredCalls, by: str, valid_s: float
) -> None:
    await tx.run(INSERT_GRANT, tx.tenant, grant_id, approval_id, *astuple(calls), by, valid_s)


async def covering_grants(tx: Tx, *, calls: CoveredCalls, runtime_id: str) -> list[CoveringGrant]:
    """Return the grants for these calls that are active, newest first."""
    return [CoveringGrant(**row) for row in await tx.fetch(COVERING, tx.tenant, *astuple(calls), runtime_id)]


async def revoke_grant(tx: Tx, *, grant_id: str, by: str) -> None:
    await tx.run(REVOKE_GRANT, tx.tenant, grant_id, by)


async def grant(tx: Tx, *, grant_id: str) -> GrantRow | None:
    row = await tx.row(GRANT, tx.tenant, grant_id)
    return None if row is None else GrantRow(**row)


async def grants(
    tx: Tx, *, after: str | None, limit: int, filters: GrantFilter
) -> tuple[list[GrantRow], str | None]:
    """Return up to `limit` grants, newest first, and the id after which the next page begins, or None on the last."""
    rows, last = await fetch_page(
        tx,
        GRANTS if filters.thread_id is None else GRANTS_OF_THREAD,
        candidates=(after, MAX_EXAMINED, filters.thread_id),
        limit=limit,
        filters=(filters.agent, filters.tool, filters.active),
    )
    return [GrantRow(**row) for row in rows], last
