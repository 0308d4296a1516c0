"""`Idempotency-Key`: a 2xx is stored in the transaction of its effect and given again, byte for byte, for 24 h."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from app.base.errors import Conflict, FieldError, Invalid
from app.base.postgres.database import Database, Tx

MAX_KEY_CHARS = 255

# Two requests with one key at the same time: the second is told to wait, it does not queue behind a lock.
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


class InProgress(Conflict):
    """The first request with this key is still being worked on."""

    kind, title = "in_progress", "The same request is in progress"
    retry_after_s = 1


def validate_key(key: str) -> None:
    """Raise Invalid if this cannot be an Idempotency-Key. Routes that store nothing check it too."""
    if not 0 < len(key) <= MAX_KEY_CHARS:
        message = f"must have 1 to {MAX_KEY_CHARS} characters; this one has {len(key)}"
        raise Invalid(f"Idempotency-Key {message}.", [FieldError("header:Idempotency-Key", message)])


@dataclass(frozen=True, slots=True)
class Key:
    """One key of one caller for one path, and the hash of the body it came with."""

    principal: str
    method: str
    path: str
    key: str
    body_hash: bytes

    @classmethod
    def of(cls, principal: str, method: str, path: str, key: str, body: bytes) -> Key:
        validate_key(key)
        return cls(principal, method, path, key, hashlib.sha256(body).digest())


@dataclass(frozen=True, slots=True)
class Stored:
    """The first answer. `object_id` stands in where the answer itself is not kept (secrets, streams)."""

    status: int
    location: str | None
    object_id: str | None
    body: bytes | None


async def begin(tx: Tx, key: Key) -> Stored | None:
    """Return the stored response of an earlier request, or None for the first request, which now holds the
    key."""
    where = (tx.tenant, key.principal, key.method, key.path, key.key)
    if not await tx.value(TRY_LOCK, *where):
        raise InProgress("A request with this Idempotency-Key is in progress; ask again in a second.")
    row = await tx.row(FIND, *where)
    if row is None:
        return None
    if row["body_hash"] != key.body_hash:
        raise Conflict("This Idempotency-Key was used with another body; nothing was changed. Use a new key.")
    return Stored(row["status"], row["location"], row["object_id"], row["body"])


async def finish(tx: Tx, key: Key, answer: Stored) -> None:
    await tx.run(
        STORE,
        tx.tenant,
        key.principal,
        key.method,
        key.path,
        key.key,
        key.body_hash,
        answer.status,
        answer.location,
        answer.object_id,
        answer.body,
    )


async def sweep(db: Database) -> int:
    """Forgets keys that are older than a day, in small batches."""
    return int((await db.call(SWEEP, 500))[0][0])
