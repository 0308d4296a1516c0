"""All SQL of outgoing calls. Leases and deadlines are by the database's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from plangate.statuses import CallStatus

from app.base.postgres.database import Database, Tx
from app.base.postgres.pages import PageStatements, fetch_page
from app.tools.models import ClaimableTool, ClaimFilter, OutgoingCall, Purpose

# Idempotent by the work: a query that is loaded again finds its offer.
OFFER = """
INSERT INTO outgoing_calls (tenant_id, work_id, query_id, purpose, sender, name, definition_digest, request, replay,
       status, claim_before, claim_within_ms, timeout_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'open', now() + make_interval(secs => $10::float8 / 1000), $10, $11)
ON CONFLICT (tenant_id, work_id) DO NOTHING
"""
OUTCOME = "SELECT status, result FROM outgoing_calls WHERE tenant_id = $1 AND work_id = $2"
OFFERED = "SELECT work_id FROM outgoing_calls WHERE tenant_id = $1 AND query_id = $2 AND purpose <> 'action'"
# Each open call goes to one claimant: locked rows are skipped, and the state changes with the claim.
CLAIM = """
UPDATE outgoing_calls c SET status = 'claimed', claim_token_hash = $6, claimed_by = $5, attempts = c.attempts + 1,
       claimed_until = now() + make_interval(secs => least($7::float8, c.timeout_ms) / 1000),
       run_before = now() + make_interval(secs => c.timeout_ms::float8 / 1000)
 WHERE c.tenant_id = $1 AND c.work_id = ANY (ARRAY(
    SELECT o.work_id FROM outgoing_calls o
      JOIN unnest($2::text[], $3::text[]) AS served(name, digest) ON o.name = served.name
           AND (served.digest IS NULL OR o.definition_digest = served.digest)
     WHERE o.tenant_id = $1 AND o.sender = 'client' AND o.status = 'open' AND o.claim_before > now()
       AND (SELECT may_dispatch())
       AND (o.purpose = 'tool' OR $8) AND ($9::text IS NULL OR o.purpose = $9)
       AND ($10::text IS NULL OR o.query_id = $10)
       AND ($11::text IS NULL AND $12::text IS NULL OR EXISTS (
            SELECT FROM queries q WHERE q.tenant_id = $1 AND q.id = o.query_id
               AND ($11::text IS NULL OR q.thread_id = $11) AND ($12::text IS NULL OR q.runtime_id = $12)))
     ORDER BY o.created_at LIMIT $4 FOR UPDATE OF o SKIP LOCKED))
RETURNING c.work_id, c.query_id, c.purpose, c.name, c.definition_digest, c.request, c.attempts, c.claimed_until, c.timeout_ms
"""
# A claim whose response was lost is repeated under the token that the claimant chose, by the same principal and within
# what its key may serve.
RECLAIM = """
SELECT work_id, query_id, purpose, name, definition_digest, request, attempts, claimed_until, timeout_ms FROM outgoing_calls
 WHERE tenant_id = $1 AND status = 'claimed' AND claim_token_hash = $2 AND claimed_until > now()
   AND claimed_by = $3 AND name = ANY ($4) AND (purpose = 'tool' OR $5) ORDER BY work_id
"""
HEARTBEAT = """
UPDATE outgoing_calls SET claimed_until = least(now() + make_interval(secs => $4::float8 / 1000), run_before)
 WHERE tenant_id = $1 AND work_id = $2 AND status = 'claimed' AND claim_token_hash = $3 AND claimed_until > now()
RETURNING claimed_until
"""
HOLDS = """
SELECT query_id, name, purpose FROM outgoing_calls
 WHERE tenant_id = $1 AND work_id = $2 AND status = 'claimed' AND claim_token_hash = $3 AND claimed_until > now()
"""
FINISH = """
UPDATE outgoing_calls SET status = 'done', result = $4, done_at = now()
 WHERE tenant_id = $1 AND work_id = $2 AND claim_token_hash = $3 AND status = 'claimed' AND claimed_until > now()
RETURNING query_id
"""
# A result that comes after its claim lapsed is evidence for people, and nothing else.
KEEP_LATE = """
UPDATE outgoing_calls SET late_result = $4 WHERE tenant_id = $1 AND work_id = $2 AND claim_token_hash = $3 RETURNING status, result
"""
RELEASE = """
UPDATE outgoing_calls SET status = 'open', claim_token_hash = NULL, claimed_by = NULL, claimed_until = NULL,
       attempts = attempts - 1
 WHERE tenant_id = $1 AND work_id = $2 AND claim_token_hash = $3 AND status = 'claimed'
RETURNING query_id
"""
CALL_OF = "SELECT query_id, name, purpose FROM outgoing_calls WHERE tenant_id = $1 AND work_id = $2"
# The service takes a call of its own under the epoch of its lease: the intent, before the first byte. A call that an
# earlier epoch took may have left; it is sent again only where that is safe.
TAKE = """
UPDATE outgoing_calls SET
       status = CASE WHEN status = 'claimed' AND epoch <> $4 AND replay = 'never' THEN 'unknown' ELSE 'claimed' END,
       attempts = attempts + 1, epoch = $4, claimed_by = $3
 WHERE tenant_id = $1 AND work_id = $2 AND sender = 'service' AND status IN ('open', 'claimed')
RETURNING status, request, attempts
"""
SETTLE = """
UPDATE outgoing_calls SET status = $4, result = $5, done_at = now()
 WHERE tenant_id = $1 AND work_id = $2 AND sender = 'service' AND status = 'claimed' AND epoch = $3
"""
# Only a call that nobody ever held was certainly not made; a call that lapsed and was offered again may have been. A call
# that ends every process that takes it is offered for at most $3 claims; after that, $4 is its result.
LAPSE = """
UPDATE outgoing_calls SET
       status = CASE WHEN status = 'open' AND attempts = 0 THEN 'withdrawn'
                     WHEN status = 'claimed' AND replay = 'safe' AND attempts < $3 THEN 'open' ELSE 'unknown' END,
       claim_before = CASE WHEN status = 'claimed' AND replay = 'safe' AND attempts < $3
                           THEN now() + make_interval(secs => claim_within_ms / 1000) ELSE claim_before END,
       result = CASE WHEN status = 'claimed' AND replay = 'safe' AND attempts >= $3 THEN $4::bytea END,
       claimed_until = NULL, claimed_by = NULL
 WHERE tenant_id = $1 AND work_id = $2
   AND ((status = 'claimed' AND claimed_until <= now()) OR (status = 'open' AND claim_before <= now()))
RETURNING status
"""
WITHDRAW = """
UPDATE outgoing_calls SET status = CASE WHEN status = 'open' AND attempts = 0 THEN 'withdrawn' ELSE 'unknown' END
 WHERE tenant_id = $1 AND query_id = $2 AND status IN ('open', 'claimed')
"""
# Of a query whose newest commits may be lost: nobody knows whether a call was sent, or whether it was recorded at all.
DOUBT = """
UPDATE outgoing_calls SET status = 'unknown', result = $3, claimed_until = NULL
 WHERE tenant_id = $1 AND query_id = $2 AND status IN ('open', 'claimed') AND replay = 'never' RETURNING purpose
"""
DOUBT_UNRECORDED = """
INSERT INTO outgoing_calls (tenant_id, work_id, query_id, purpose, sender, name, definition_digest, request, replay, status,
       timeout_ms, result)
SELECT $1, w.id, $2, 'tool', 'service', w.name, '', '', 'never', 'unknown', 0, $4 FROM work_records w
 WHERE w.tenant_id = $1 AND w.query_id = $2 AND w.kind = 'tool_call' AND w.status IN ('running', 'waiting')
   AND w.name = ANY ($3)
ON CONFLICT (tenant_id, work_id) DO NOTHING RETURNING work_id
"""
DUE = "SELECT tenant_id, work_id FROM due_calls($1)"
# The newest $3 calls, of the query $4: the candidates of a page (docs/decisions/0018).
_CANDIDATES = """
SELECT * FROM outgoing_calls WHERE tenant_id = $1 AND work_id < coalesce($2, 'wrk_~') AND {which}
 ORDER BY work_id DESC LIMIT $3
"""
_FILTERED = """
SELECT work_id, query_id, purpose, sender, name, status, attempts, claimed_by, created_at, done_at,
       octet_length(late_result) AS late_bytes, CASE WHEN octet_length(late_result) <= $7 THEN late_result END AS late_result
  FROM ({candidates}) AS calls WHERE ($6::text IS NULL OR status = $6)
 ORDER BY work_id DESC LIMIT $5
"""
_SIZE = "coalesce(octet_length(late_result), 0)"
LIST_OF_QUERY = PageStatements.from_candidates(
    _FILTERED, _CANDIDATES.format(which="query_id = $4::text"), size=_SIZE, examined="$3", key="work_id"
)
LIST = PageStatements.from_candidates(
    _FILTERED, _CANDIDATES.format(which="$4::text IS NULL"), size=_SIZE, examined="$3", key="work_id"
)
MAX_EXAMINED: Final = 2_000
# A person decided to send a call again whose outcome is unknown.
REOPEN = """
UPDATE outgoing_calls SET status = 'open', claim_token_hash = NULL, claimed_by = NULL, claimed_until = NULL, result = NULL,
       epoch = NULL, done_at = NULL, request = $3, claim_before = now() + make_interval(secs => $4::float8 / 1000)
 WHERE tenant_id = $1 AND work_id = $2 AND status = 'unknown'
"""
CLAIM_OF = "SELECT sender, status, claimed_by FROM outgoing_calls WHERE tenant_id = $1 AND work_id = $2"
NOTIFY = "SELECT pg_notify('plangate_calls', $1)"


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The status of a call, and the JSON of its result if it has one: `{"output": ...}` or `{"error": ...}`."""

    status: CallStatus
    result: bytes | None


@dataclass(frozen=True, slots=True)
class StartedAttempt:
    """A call that the service took. `status` is `unknown` if it must not be sent again."""

    status: Literal["claimed", "unknown"]
    request: bytes
    attempts: int


@dataclass(frozen=True, slots=True)
class ClaimedCallRow:
    """A call that a client process has claimed."""

    work_id: str
    query_id: str
    purpose: Purpose
    name: str
    definition_digest: str
    request: bytes
    attempts: int
    claimed_until: datetime
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CallHead:
    """What a call is of."""

    query_id: str
    name: str
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class CallClaim:
    """Who may act as a call. `claimed_by`: the principal that claimed it last."""

    sender: Literal["client", "service"]
    status: CallStatus
    claimed_by: str | None


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Which calls a list has; None excludes nothing."""

    status: CallStatus | None = None
    query_id: str | None = None


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call in a list. `late_result` is None if it is larger than the caller wants."""

    work_id: str
    query_id: str
    purpose: Purpose
    sender: Literal["client", "service"]
    name: str
    status: CallStatus
    attempts: int
    claimed_by: str | None
    created_at: datetime
    done_at: datetime | None
    late_bytes: int | None
    late_result: bytes | None


async def offer(tx: Tx, *, call: OutgoingCall) -> bool:
    """Insert an open call. Return False if it was offered before."""
    done = await tx.run(
        OFFER,
        tx.tenant,
        call.work_id,
        call.query_id,
        call.purpose,
        call.sender,
        call.name,
        call.definition_digest,
        call.request,
        call.replay,
        call.claim_within_ms,
        call.timeout_ms,
    )
    return done == "INSERT 0 1"


async def reopen(tx: Tx, *, call: OutgoingCall) -> None:
    await tx.run(REOPEN, tx.tenant, call.work_id, call.request, call.claim_within_ms)


async def take(tx: Tx, *, work_id: str, by: str, epoch: int) -> StartedAttempt | None:
    """Start an attempt of the service. Return None if the call has ended or belongs to clients."""
    row = await tx.row(TAKE, tx.tenant, work_id, by, epoch)
    return None if row is None else StartedAttempt(**row)


async def settle(tx: Tx, *, work_id: str, epoch: int, status: CallStatus, result: bytes) -> None:
    await tx.run(SETTLE, tx.tenant, work_id, epoch, status, result)


async def stored_result(tx: Tx, *, work_id: str) -> StoredResult | None:
    row = await tx.row(OUTCOME, tx.tenant, work_id)
    return None if row is None else StoredResult(**row)


async def offered(tx: Tx, *, query_id: str) -> list[str]:
    return [r["work_id"] for r in await tx.fetch(OFFERED, tx.tenant, query_id)]


async def claim(
    tx: Tx,
    *,
    tools: Sequence[ClaimableTool],
    limit: int,
    by: str,
    token_hash: bytes,
    lease_ms: int,
    with_actions: bool,
    only: ClaimFilter,
) -> list[ClaimedCallRow]:
    rows = await tx.fetch(
        CLAIM,
        tx.tenant,
        [tool.name for tool in tools],
        [tool.definition_digest for tool in tools],
        limit,
        by,
        token_hash,
        float(lease_ms),
        with_actions,
        only.purpose,
        only.query_id,
        only.thread_id,
        only.runtime_id,
    )
    return [ClaimedCallRow(**row) for row in rows]


async def reclaim(
    tx: Tx, *, token_hash: bytes, by: str, names: Sequence[str], with_actions: bool
) -> list[ClaimedCallRow]:
    rows = await tx.fetch(RECLAIM, tx.tenant, token_hash, by, list(names), with_actions)
    return [ClaimedCallRow(**row) for row in rows]


async def heartbeat(tx: Tx, *, work_id: str, token_hash: bytes, lease_ms: int) -> datetime | None:
    """Extend a claim. Return until when, or None if it has lapsed."""
    until: datetime | None = await tx.value(HEARTBEAT, tx.tenant, work_id, token_hash, float(lease_ms))
    return until


async def held_call(tx: Tx, *, work_id: str, token_hash: bytes) -> CallHead | None:
    """Return the call if this token holds the claim on it."""
    row = await tx.row(HOLDS, tx.tenant, work_id, token_hash)
    return None if row is None else CallHead(**row)


async def finish(tx: Tx, *, work_id: str, token_hash: bytes, result: bytes) -> bool:
    """Record the result of a claimed call. Return False if the claim has lapsed."""
    return await tx.value(FINISH, tx.tenant, work_id, token_hash, result) is not None


async def keep_late(tx: Tx, *, work_id: str, token_hash: bytes, result: bytes) -> StoredResult | None:
    """Store a late result as evidence. Return None if this token never held the call."""
    row = await tx.row(KEEP_LATE, tx.tenant, work_id, token_hash, result)
    return None if row is None else StoredResult(**row)


async def release(tx: Tx, *, work_id: str, token_hash: bytes) -> bool:
    """Offer a claimed call again. Return False if this token does not hold it."""
    return await tx.value(RELEASE, tx.tenant, work_id, token_hash) is not None


async def doubt(tx: Tx, *, query_id: str, result: bytes) -> int:
    """Mark the open and claimed calls of a query as unknown, unless repeating them is safe. Return how many were not calls of
    actions."""
    rows = await tx.fetch(DOUBT, tx.tenant, query_id, result)
    return sum(row["purpose"] != "action" for row in rows)


async def doubt_unrecorded(tx: Tx, *, query_id: str, tools: Sequence[str], result: bytes) -> int:
    """Record unanswered calls of these tools as unknown that have no record. Return their number."""
    return len(await tx.fetch(DOUBT_UNRECORDED, tx.tenant, query_id, list(tools), result))


async def head(tx: Tx, *, work_id: str) -> CallHead | None:
    row = await tx.row(CALL_OF, tx.tenant, work_id)
    return None if row is None else CallHead(**row)


async def load_claim(tx: Tx, *, work_id: str) -> CallClaim | None:
    row = await tx.row(CLAIM_OF, tx.tenant, work_id)
    return None if row is None else CallClaim(**row)


async def lapse(tx: Tx, *, work_id: str, max_claims: int, final_result: bytes) -> CallStatus | None:
    """End a claim or an offer whose time has passed. Return the new status, or None if its time has not passed."""
    status: CallStatus | None = await tx.value(LAPSE, tx.tenant, work_id, max_claims, final_result)
    return status


async def withdraw(tx: Tx, *, query_id: str) -> None:
    await tx.run(WITHDRAW, tx.tenant, query_id)


async def due(db: Database, *, limit: int) -> list[tuple[str, str]]:
    """Return the tenants and work ids of calls whose time has passed."""
    return [(r["tenant_id"], r["work_id"]) for r in await db.call(DUE, limit)]


async def page(
    tx: Tx, *, after: str | None, limit: int, filters: CallFilter, max_late_bytes: int
) -> tuple[list[CallRow], str | None]:
    """Return up to `limit` calls, newest first, and the id after which the next page begins, or None on the last."""
    rows, last = await fetch_page(
        tx,
        LIST if filters.query_id is None else LIST_OF_QUERY,
        candidates=(after, MAX_EXAMINED, filters.query_id),
        limit=limit,
        filters=(filters.status, max_late_bytes),
    )
    return [CallRow(**row) for row in rows], last


async def notify_clients(tx: Tx) -> None:
    """Announce to the tenant's processes, on commit, that there may be calls to claim."""
    await tx.run(NOTIFY, tx.tenant)
