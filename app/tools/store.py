"""All SQL of outgoing calls. Leases and deadlines are by the database's clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.base.postgres.database import Database, Tx
from app.tools.models import ClaimFilter

# Idempotent by the work: a query that is rebuilt finds the offer it had made.
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
       AND (o.purpose = 'tool' OR $8) AND ($9::text IS NULL OR o.purpose = $9)
       AND ($10::text IS NULL OR o.query_id = $10)
       AND ($11::text IS NULL AND $12::text IS NULL OR EXISTS (
            SELECT FROM queries q WHERE q.tenant_id = $1 AND q.id = o.query_id
               AND ($11::text IS NULL OR q.thread_id = $11) AND ($12::text IS NULL OR q.runtime_id = $12)))
     ORDER BY o.created_at LIMIT $4 FOR UPDATE OF o SKIP LOCKED))
RETURNING c.work_id, c.query_id, c.purpose, c.name, c.definition_digest, c.request, c.attempts, c.claimed_until, c.timeout_ms
"""
# A claim whose answer was lost is asked for again under the token that the claimant chose, by who made it and within
# what his key may serve.
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
HELD = """
SELECT query_id, name FROM outgoing_calls
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
# The service takes a call of its own under the epoch of its lease: the intent, before the first byte. One that an
# earlier epoch had taken may have left; it is sent again only where that is safe.
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
# Only what nobody ever held was certainly not made: what lapsed and was offered again may have been. A call that ends
# whoever takes it is not offered for ever: not after so many claims ($3), then $4 says so.
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
RETURNING status, query_id
"""
WITHDRAW = """
UPDATE outgoing_calls SET status = CASE WHEN status = 'open' AND attempts = 0 THEN 'withdrawn' ELSE 'unknown' END
 WHERE tenant_id = $1 AND query_id = $2 AND status IN ('open', 'claimed')
"""
DUE = "SELECT tenant_id, work_id FROM due_calls($1)"
LIST = """
SELECT work_id, query_id, purpose, sender, name, status, attempts, claimed_by, created_at, done_at,
       octet_length(late_result) AS late_bytes, CASE WHEN octet_length(late_result) <= $6 THEN late_result END AS late_result
  FROM outgoing_calls
 WHERE tenant_id = $1 AND ($2::text IS NULL OR work_id < $2) AND ($3::text IS NULL OR status = $3)
   AND ($4::text IS NULL OR query_id = $4)
 ORDER BY work_id DESC LIMIT $5
"""
TELL = "SELECT pg_notify('plangate_calls', $1)"


async def offer(tx: Tx, *args: Any) -> bool:
    return await tx.run(OFFER, tx.tenant, *args) == "INSERT 0 1"


async def take(tx: Tx, work_id: str, by: str, epoch: int) -> Any:
    return await tx.row(TAKE, tx.tenant, work_id, by, epoch)


async def settle(tx: Tx, work_id: str, epoch: int, status: str, result: bytes) -> None:
    await tx.run(SETTLE, tx.tenant, work_id, epoch, status, result)


async def outcome(tx: Tx, work_id: str) -> Any:
    return await tx.row(OUTCOME, tx.tenant, work_id)


async def offered(tx: Tx, query_id: str) -> list[str]:
    return [r["work_id"] for r in await tx.fetch(OFFERED, tx.tenant, query_id)]


async def claim(
    tx: Tx,
    names: Sequence[str],
    digests: Sequence[str | None],
    limit: int,
    by: str,
    token_hash: bytes,
    lease_ms: int,
    actions: bool,
    only: ClaimFilter,
) -> list[Any]:
    return await tx.fetch(
        CLAIM,
        tx.tenant,
        list(names),
        list(digests),
        limit,
        by,
        token_hash,
        float(lease_ms),
        actions,
        only.purpose,
        only.query_id,
        only.thread_id,
        only.runtime_id,
    )


async def reclaim(tx: Tx, token_hash: bytes, by: str, names: Sequence[str], actions: bool) -> list[Any]:
    return await tx.fetch(RECLAIM, tx.tenant, token_hash, by, list(names), actions)


async def heartbeat(tx: Tx, work_id: str, token_hash: bytes, lease_ms: int) -> Any:
    return await tx.value(HEARTBEAT, tx.tenant, work_id, token_hash, float(lease_ms))


async def held(tx: Tx, work_id: str, token_hash: bytes) -> Any:
    return await tx.row(HELD, tx.tenant, work_id, token_hash)


async def finish(tx: Tx, work_id: str, token_hash: bytes, result: bytes) -> str | None:
    found: str | None = await tx.value(FINISH, tx.tenant, work_id, token_hash, result)
    return found


async def keep_late(tx: Tx, work_id: str, token_hash: bytes, result: bytes) -> Any:
    return await tx.row(KEEP_LATE, tx.tenant, work_id, token_hash, result)


async def release(tx: Tx, work_id: str, token_hash: bytes) -> str | None:
    found: str | None = await tx.value(RELEASE, tx.tenant, work_id, token_hash)
    return found


async def call_of(tx: Tx, work_id: str) -> Any:
    return await tx.row(CALL_OF, tx.tenant, work_id)


async def lapse(tx: Tx, work_id: str, most_claims: int, why: bytes) -> Any:
    return await tx.row(LAPSE, tx.tenant, work_id, most_claims, why)


async def withdraw(tx: Tx, query_id: str) -> None:
    await tx.run(WITHDRAW, tx.tenant, query_id)


async def due(db: Database, limit: int) -> list[tuple[str, str]]:
    return [(r["tenant_id"], r["work_id"]) for r in await db.call(DUE, limit)]


async def page(tx: Tx, *args: Any) -> list[Any]:
    return await tx.fetch(LIST, tx.tenant, *args)


async def tell(tx: Tx) -> None:
    await tx.run(TELL, tx.tenant)


REOPEN = """
UPDATE outgoing_calls SET status = 'open', claim_token_hash = NULL, claimed_by = NULL, claimed_until = NULL, result = NULL,
       epoch = NULL, done_at = NULL, request = $3, claim_before = now() + make_interval(secs => $4::float8 / 1000)
 WHERE tenant_id = $1 AND work_id = $2 AND status = 'unknown'
"""


async def reopen(tx: Tx, work_id: str, request: bytes, claim_within_ms: float | None) -> None:
    await tx.run(REOPEN, tx.tenant, work_id, request, claim_within_ms)
