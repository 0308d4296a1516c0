"""`Idempotency-Key`: a 2xx response is stored in the same transaction as its effect and replayed byte for byte for 24
hours."""

from __future__ import annotations

from app.base.errors import Conflict, FieldError, Invalid
from app.base.postgres.database import Database, Tx
from app.tenancy import idempotency_store
from app.tenancy.models import IdempotencyKey, StoredResponse

MAX_KEY_CHARS = 255
SWEEP_BATCH_KEYS = 500


class InProgress(Conflict):
    """The first request with this key is still in progress."""

    kind, title = "in_progress", "The same request is in progress"
    retry_after_s = 1


def validate_key(key: str) -> None:
    """Raise Invalid if this cannot be an Idempotency-Key. Routes that store nothing check it too."""
    if not 0 < len(key) <= MAX_KEY_CHARS:
        message = f"must have 1 to {MAX_KEY_CHARS} characters; this one has {len(key)}"
        raise Invalid(f"Idempotency-Key {message}.", [FieldError("header:Idempotency-Key", message)])


async def begin(tx: Tx, key: IdempotencyKey) -> StoredResponse | None:
    """Return the stored response of an earlier request, or None for the first request, which now holds the
    key."""
    if not await idempotency_store.lock_key(tx, key=key):
        raise InProgress("A request with this Idempotency-Key is in progress; ask again in a second.")
    response = await idempotency_store.load_response(tx, key=key)
    if response is not None and response.body_hash != key.body_hash:
        raise Conflict("This Idempotency-Key was used with another body; nothing was changed. Use a new key.")
    return response


async def finish(tx: Tx, key: IdempotencyKey, response: StoredResponse) -> None:
    """Store the response of the first request with this key."""
    await idempotency_store.save_response(tx, key=key, response=response)


async def sweep(db: Database) -> int:
    """Delete keys that are older than a day, a batch at a time. Return their number."""
    return await idempotency_store.sweep_keys(db, limit=SWEEP_BATCH_KEYS)
