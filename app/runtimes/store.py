"""All SQL of registered runtimes."""

from __future__ import annotations

from collections.abc import Collection

from app.base.postgres.database import Tx
from app.runtimes.models import RuntimeHead, RuntimeRecord, SealedSigningSecret

COLUMNS = "id, name, version, digest, created_at, retired_at"
BY_ID = f"SELECT {COLUMNS}, wire FROM runtimes WHERE tenant_id = $1 AND id = $2"
LATEST = """
SELECT id FROM runtimes WHERE tenant_id = $1 AND name = $2 AND retired_at IS NULL ORDER BY version DESC LIMIT 1
"""
OF_THREAD = """
SELECT coalesce((SELECT q.runtime_id FROM queries q WHERE q.tenant_id = $1 AND q.thread_id = $2 ORDER BY q.id DESC LIMIT 1),
                t.runtime_id) FROM threads t WHERE t.tenant_id = $1 AND t.id = $2
"""
NAME_EXISTS = "SELECT EXISTS (SELECT FROM runtimes WHERE tenant_id = $1 AND name = $2)"
SAME = "SELECT id FROM runtimes WHERE tenant_id = $1 AND name = $2 AND digest = $3"
# The versions of one line are given out under a lock, so that two registrations do not fight for a number.
LOCK_LINE = "SELECT pg_advisory_xact_lock(hashtextextended($1 || '/' || $2, 1))"
INSERT = f"""
INSERT INTO runtimes (tenant_id, id, name, version, digest, wire)
VALUES ($1, $2, $3, coalesce((SELECT max(version) FROM runtimes WHERE tenant_id = $1 AND name = $3), 0) + 1, $4, $5)
RETURNING {COLUMNS}, wire
"""
REVIVE = "UPDATE runtimes SET retired_at = NULL WHERE tenant_id = $1 AND id = $2"
RETIRE = "UPDATE runtimes SET retired_at = coalesce(retired_at, now()) WHERE tenant_id = $1 AND id = $2"
LIST = f"""
SELECT {COLUMNS} FROM runtimes WHERE tenant_id = $1 AND ($2::text IS NULL OR id < $2) AND ($3::text IS NULL OR name = $3)
 ORDER BY id DESC LIMIT $4
"""
TENANTS = "SELECT tenant_id FROM tenant_ids() LIMIT $1"
MENTIONED = """
SELECT word FROM unnest($2::text[]) AS word
 WHERE EXISTS (
    SELECT FROM (SELECT wire FROM runtimes WHERE tenant_id = $1 AND retired_at IS NULL ORDER BY id DESC LIMIT $3) AS newest
     WHERE position(convert_to('"' || word || '"', 'UTF8') IN newest.wire) > 0)
"""
NEW_SIGNING_SECRET = """
INSERT INTO signing_secrets (tenant_id, runtime_name, sealed) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
"""
ROTATE_SIGNING_SECRET = """
UPDATE signing_secrets SET previous = sealed, previous_until = now() + make_interval(secs => $4::float8), sealed = $3,
       created_at = now()
 WHERE tenant_id = $1 AND runtime_name = $2
"""
SIGNING_SECRET = """
SELECT sealed, CASE WHEN previous_until > now() THEN previous END AS previous FROM signing_secrets
 WHERE tenant_id = $1 AND runtime_name = $2
"""


async def by_id(tx: Tx, *, runtime_id: str) -> RuntimeRecord | None:
    row = await tx.row(BY_ID, tx.tenant, runtime_id)
    return None if row is None else RuntimeRecord(**row)


async def latest(tx: Tx, *, name: str) -> str | None:
    """Return the id of the newest version of this name that is not retired, or None."""
    runtime_id: str | None = await tx.value(LATEST, tx.tenant, name)
    return runtime_id


async def of_thread(tx: Tx, *, thread_id: str) -> str | None:
    """Return the version of the newest query of a thread, or else the one that it began with, or None."""
    runtime_id: str | None = await tx.value(OF_THREAD, tx.tenant, thread_id)
    return runtime_id


async def tenants(tx: Tx, *, limit: int) -> list[str]:
    return [row["tenant_id"] for row in await tx.fetch(TENANTS, limit)]


async def mentioned(tx: Tx, *, words: Collection[str], limit: int) -> set[str]:
    """Return the words that are a JSON string in one of the newest runtimes of the tenant, at most `limit` of them."""
    return {row["word"] for row in await tx.fetch(MENTIONED, tx.tenant, list(words), limit)}


async def name_exists(tx: Tx, *, name: str) -> bool:
    return bool(await tx.value(NAME_EXISTS, tx.tenant, name))


async def same(tx: Tx, *, name: str, digest: bytes) -> str | None:
    """Lock the versions of a name, and return the id of the version with this content, or None."""
    await tx.run(LOCK_LINE, tx.tenant, name)
    runtime_id: str | None = await tx.value(SAME, tx.tenant, name, digest)
    return runtime_id


async def insert(tx: Tx, *, runtime_id: str, name: str, digest: bytes, wire: bytes) -> RuntimeRecord:
    """Insert the next version of a name, whose versions `same` has locked."""
    return RuntimeRecord(**await tx.row(INSERT, tx.tenant, runtime_id, name, digest, wire))


async def revive(tx: Tx, *, runtime_id: str) -> None:
    """Undo the retirement of a version."""
    await tx.run(REVIVE, tx.tenant, runtime_id)


async def retire(tx: Tx, *, runtime_id: str) -> None:
    await tx.run(RETIRE, tx.tenant, runtime_id)


async def page(tx: Tx, *, before: str | None, name: str | None, limit: int) -> list[RuntimeHead]:
    """Return versions, newest first."""
    return [RuntimeHead(**row) for row in await tx.fetch(LIST, tx.tenant, before, name, limit)]


async def new_signing_secret(tx: Tx, *, runtime_name: str, sealed: bytes) -> bool:
    """Insert the secret of a name. Return False if it has one."""
    return await tx.run(NEW_SIGNING_SECRET, tx.tenant, runtime_name, sealed) == "INSERT 0 1"


async def rotate_signing_secret(tx: Tx, *, runtime_name: str, sealed: bytes, old_signs_for_s: float) -> bool:
    """Replace the secret of a name. Return False if it has none."""
    return await tx.run(ROTATE_SIGNING_SECRET, tx.tenant, runtime_name, sealed, old_signs_for_s) == "UPDATE 1"


async def signing_secret(tx: Tx, *, runtime_name: str) -> SealedSigningSecret | None:
    row = await tx.row(SIGNING_SECRET, tx.tenant, runtime_name)
    return None if row is None else SealedSigningSecret(**row)
