"""The SQL of Idempotency-Keys."""

from __future__ import annotations

from app.base.postgres.database import Database, Tx
from app.tenancy.models import IdempotencyKey, StoredResponse

# A second request with the same key at the same time is rejected; it does not queue behind a lock.
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended($1 || '|' || $2 || '|' || $3 || '|' || $4 || '|' || $5, 2))"
FIND = """
SELECT body_hash, status, location, object_id, body FROM idempotency
 WHERE tenant_id = $1 AND principal = $2 AND method = $3 AND path = $4 AND key = $5
   AND created_at > now() - interval '24 hours'
"""
STORE = """
INSERT INTO idempotency (tenant_id, principal, method, path, key, body_hash, status, location, object_id, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant_id, principal, method, path, key) DO UPDATE SET body_hash = EXCLUDED.body_hash,
  status = EXCLUDED.status, location = EXCLUDED.location, object_id = EXCLUDED.object_id, body = EXCLUDED.body,
  created_at = now()
"""
SWEEP = "SELECT sweep_idempotency($1)"


async def lock_key(tx: Tx, *, key: IdempotencyKey) -> bool:
    """Hold the key until the transaction ends. Return False if another request holds it."""
    return bool(await tx.value(TRY_LOCK, tx.tenant, key.principal, key.method, key.path, key.key))


async def load_response(tx: Tx, *, key: IdempotencyKey) -> StoredResponse | None:
    row = await tx.row(FIND, tx.tenant, key.principal, key.method, key.path, key.key)
    return None if row is None else StoredResponse(**row)


async def save_response(tx: Tx, *, key: IdempotencyKey, response: StoredResponse) -> None:
    await tx.run(
        STORE,
        tx.tenant,
        key.principal,
        key.method,
        key.path,
        key.key,
        response.body_hash,
        response.status,
        response.location,
        response.object_id,
        response.body,
    )


async def sweep_keys(db: Database, *, limit: int) -> int:
    """Delete up to `limit` keys that are older than a day. Return their number."""
    ((count,),) = await db.call(SWEEP, limit)
    return int(count)
