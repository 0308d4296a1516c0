"""All SQL of tenants, keys, sessions and secrets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from app.base.postgres.database import Database, Tx
from app.tenancy.models import (
    OPERATOR_TENANT,
    ApiKey,
    Caller,
    SecretRecord,
    Session,
    StoredSession,
    TenantInfo,
    TenantRecord,
)

FIND_KEY = "SELECT id, tenant_id, principal, scopes, tools, expires_at FROM find_key($1)"
CREATE_TENANT = "SELECT create_tenant($1, $2, $3::text::jsonb, $4::text::jsonb)"
# For the owner of the database only: the service's role cannot change a tenant.
SET_TENANT = "SELECT set_tenant($1, $2::text::jsonb, $3::text::jsonb)"
# The next four are for the owner of the database only.
CHANGE_STATE = """
UPDATE tenants SET state = $3, moved_to = $4 WHERE tenant_id = $1 AND state = ANY ($2) RETURNING state
"""
STATE = "SELECT state FROM tenants WHERE tenant_id = $1"
MOVED_TO = "SELECT moved_to FROM tenants WHERE tenant_id = $1 AND state = 'moved'"
VALID_KEYS = """
SELECT id, principal, scopes, tools, created_at, created_by, expires_at, revoked_at FROM api_keys
 WHERE tenant_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()) ORDER BY id
"""
FINISH_IMPORT = """
WITH shown AS (
    UPDATE tenants SET state = 'active', history = $2 WHERE tenant_id = $1 AND state = 'importing' RETURNING tenant_id)
SELECT pg_notify('plangate_wake', '') FROM shown
"""
APPROVAL_FLOOR = "SELECT approval_floor::text FROM tenants WHERE tenant_id = $1"
TENANT = "SELECT limits::text AS limits, reference_secret, state, moved_to FROM tenants WHERE tenant_id = $1"
INSERT_KEY = """
INSERT INTO api_keys (tenant_id, id, hash, principal, scopes, tools, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING id, principal, scopes, tools, created_at, created_by, expires_at, revoked_at
"""
LIST_KEYS = """
SELECT id, principal, scopes, tools, created_at, created_by, expires_at, revoked_at FROM api_keys
 WHERE tenant_id = $1 AND ($2::text IS NULL OR id < $2) ORDER BY id DESC LIMIT $3
"""
REVOKE_KEY = "UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE tenant_id = $1 AND id = $2"
FIND_SESSION = """
SELECT id, tenant_id, principal, scopes, tools, key_tenant_id, key_id, key_expires_at, is_ticket, expires_at
  FROM find_session($1)
"""
# The length of a session is counted by the database's clock, and no session outlives its key.
INSERT_SESSION = """
INSERT INTO sessions (tenant_id, id, hash, is_ticket, key_tenant_id, key_id, principal, scopes, tools, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, least(now() + $10::float8 * interval '1 second', $11::timestamptz))
RETURNING expires_at
"""
# Of two requests with one ticket, the second finds no row once the first has committed.
TAKE_TICKET = """
DELETE FROM sessions WHERE tenant_id = $1 AND hash = $2 AND is_ticket AND expires_at > now() RETURNING id
"""
DELETE_SESSION = "DELETE FROM sessions WHERE tenant_id = $1 AND id = $2"
TRIM_SESSIONS = """
DELETE FROM sessions WHERE tenant_id = $1 AND id IN (
  SELECT id FROM sessions WHERE tenant_id = $1 AND key_id = $2 AND is_ticket = $3 ORDER BY id DESC OFFSET $4)
"""
SWEEP_SESSIONS = "SELECT sweep_sessions($1)"
PUT_SECRET = """
INSERT INTO secrets (tenant_id, name, sealed) VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, name) DO UPDATE SET sealed = EXCLUDED.sealed, updated_at = now()
RETURNING name, created_at, updated_at
"""
GET_SECRET = "SELECT sealed FROM secrets WHERE tenant_id = $1 AND name = $2"
LIST_SECRETS = """
SELECT name, created_at, updated_at FROM secrets WHERE tenant_id = $1 AND ($2::text IS NULL OR name > $2)
 ORDER BY name LIMIT $3
"""
DELETE_SECRET = "DELETE FROM secrets WHERE tenant_id = $1 AND name = $2"

LIST_TENANTS = "SELECT * FROM list_tenants($1, $2, $3)"
DESCRIBE_TENANT = "SELECT * FROM describe_tenant($1, $2)"


async def find_key(tx: Tx, *, hash: bytes) -> Caller | None:
    """Return the owner of a key of any tenant, or None if the key is unknown, expired or revoked."""
    row = await tx.row(FIND_KEY, hash)
    return None if row is None else _caller(row, key_id=row["id"], expires_at=row["expires_at"])


async def find_session(tx: Tx, *, hash: bytes) -> StoredSession | None:
    """Return a session or ticket of any tenant, or None if it is unknown or expired, or its key is not valid."""
    row = await tx.row(FIND_SESSION, hash)
    if row is None:
        return None
    session = Session(id=row["id"], expires_at=row["expires_at"], key_tenant=row["key_tenant_id"])
    caller = _caller(row, key_id=row["key_id"], expires_at=row["key_expires_at"], session=session)
    return StoredSession(caller=caller, is_ticket=row["is_ticket"])


def _caller(row: Any, *, key_id: str, expires_at: datetime | None, session: Session | None = None) -> Caller:
    """Return the caller in a row. A session has no operator's key: it belongs to one tenant."""
    return Caller(
        tenant=row["tenant_id"],
        principal=row["principal"],
        scopes=frozenset(row["scopes"]),
        key_id=key_id,
        tools=None if row["tools"] is None else frozenset(row["tools"]),
        has_operator_key=session is None and row["tenant_id"] == OPERATOR_TENANT,
        expires_at=expires_at,
        session=session,
    )


async def create_tenant(tx: Tx, *, tenant: str, secret: bytes, limits: str, floor: str) -> bool:
    """Create a tenant, with its limits and approval floor as JSON. Return False if it exists."""
    return bool(await tx.value(CREATE_TENANT, tenant, secret, limits, floor))


async def set_tenant(connection: Any, *, tenant: str, limits: str | None, floor: str | None) -> bool:
    """Replace the limits or the floor, as JSON, over a connection of the schema's owner. Return False if there is no
    such tenant."""
    return bool(await connection.fetchval(SET_TENANT, tenant, limits, floor))


async def change_state(
    connection: Any, *, tenant: str, before: Sequence[str], after: str, moved_to: str | None = None
) -> bool:
    """Change the state of a tenant, over a connection of the schema's owner, if it is one of `before`."""
    return await connection.fetchval(CHANGE_STATE, tenant, list(before), after, moved_to) is not None


async def tenant_state(connection: Any, *, tenant: str) -> str | None:
    """Return the state of a tenant, over a connection of the schema's owner, or None if there is no such tenant."""
    state: str | None = await connection.fetchval(STATE, tenant)
    return state


async def cell_of_moved_tenant(connection: Any, *, tenant: str) -> str | None:
    """Return the cell that a tenant was moved to, over a connection of the schema's owner, or None if it was not moved."""
    cell: str | None = await connection.fetchval(MOVED_TO, tenant)
    return cell


async def valid_keys(tx: Tx) -> list[ApiKey]:
    """Return the keys of the transaction's tenant that are in force."""
    return [ApiKey(**row) for row in await tx.fetch(VALID_KEYS, tx.tenant)]


async def finish_import(connection: Any, *, tenant: str, history: int) -> None:
    """Show an imported tenant, over a connection of the schema's owner, and let its queries run."""
    if await connection.fetchrow(FINISH_IMPORT, tenant, history) is None:
        raise RuntimeError(f"the tenant {tenant!r} is not being imported")


async def approval_floor(tx: Tx) -> str:
    """Return the floor of the transaction's tenant as JSON."""
    return str(await tx.value(APPROVAL_FLOOR, tx.tenant))


async def tenant_record(tx: Tx) -> TenantRecord | None:
    row = await tx.row(TENANT, tx.tenant)
    if row is None:
        return None
    return TenantRecord(
        limits=orjson.loads(row["limits"]),
        sealed_reference_secret=row["reference_secret"],
        state=row["state"],
        moved_to=row["moved_to"],
    )


async def insert_key(
    tx: Tx,
    *,
    key_id: str,
    hash: bytes,
    principal: str,
    scopes: Sequence[str],
    tools: Sequence[str] | None,
    created_by: str,
    expires_at: datetime | None,
) -> ApiKey:
    row = await tx.row(
        INSERT_KEY, tx.tenant, key_id, hash, principal, list(scopes), tools, created_by, expires_at
    )
    return ApiKey(**row)


async def keys(tx: Tx, *, before: str | None, limit: int) -> list[ApiKey]:
    return [ApiKey(**row) for row in await tx.fetch(LIST_KEYS, tx.tenant, before, limit)]


async def revoke_key(tx: Tx, *, key_id: str) -> bool:
    """Revoke a key. Return False if there is no such key; revoking it again changes nothing."""
    return await tx.run(REVOKE_KEY, tx.tenant, key_id) == "UPDATE 1"


async def insert_session(
    tx: Tx,
    *,
    session_id: str,
    hash: bytes,
    is_ticket: bool,
    key_tenant: str,
    key_id: str,
    principal: str,
    scopes: Sequence[str],
    tools: Sequence[str] | None,
    lifetime_s: float,
    key_expires_at: datetime | None,
) -> datetime:
    """Insert a session or ticket. Return when it expires."""
    expires_at: datetime = await tx.value(
        INSERT_SESSION,
        tx.tenant,
        session_id,
        hash,
        is_ticket,
        key_tenant,
        key_id,
        principal,
        scopes,
        tools,
        lifetime_s,
        key_expires_at,
    )
    return expires_at


async def take_ticket(tx: Tx, *, hash: bytes) -> bool:
    """Use up a ticket. Return False if it was used or has expired."""
    return await tx.value(TAKE_TICKET, tx.tenant, hash) is not None


async def delete_session(tx: Tx, *, session_id: str) -> bool:
    return await tx.run(DELETE_SESSION, tx.tenant, session_id) == "DELETE 1"


async def trim_sessions(tx: Tx, *, key_id: str, is_ticket: bool, most: int) -> None:
    """Delete all but the newest `most` sessions, or tickets, of a key."""
    await tx.run(TRIM_SESSIONS, tx.tenant, key_id, is_ticket, most)


async def sweep_sessions(db: Database, *, limit: int) -> int:
    """Delete up to `limit` expired sessions of all tenants. Return how many."""
    return int((await db.call(SWEEP_SESSIONS, limit))[0]["sweep_sessions"])


async def put_secret(tx: Tx, *, name: str, sealed: bytes) -> SecretRecord:
    return SecretRecord(**await tx.row(PUT_SECRET, tx.tenant, name, sealed))


async def secret(tx: Tx, *, name: str) -> bytes | None:
    """Return the sealed value, or None if there is no such secret."""
    sealed: bytes | None = await tx.value(GET_SECRET, tx.tenant, name)
    return sealed


async def secrets(tx: Tx, *, after: str | None, limit: int) -> list[SecretRecord]:
    return [SecretRecord(**row) for row in await tx.fetch(LIST_SECRETS, tx.tenant, after, limit)]


async def delete_secret(tx: Tx, *, name: str) -> bool:
    return await tx.run(DELETE_SECRET, tx.tenant, name) == "DELETE 1"


async def list_tenants(db: Database, *, after: str | None, limit: int, max_counted: int) -> list[TenantInfo]:
    """Return tenants by id, from the one after `after` on. Each count ends at `max_counted`."""
    rows = await db.call(LIST_TENANTS, after, limit, max_counted)
    return [TenantInfo(**{**row, "limits": row["limits"].encode()}) for row in rows]


async def load_tenant_info(tx: Tx, *, max_counted: int) -> TenantInfo:
    """Return the limits of the tenant of the transaction, and what it uses. Each count ends at `max_counted`."""
    row = await tx.row(DESCRIBE_TENANT, tx.tenant, max_counted)
    return TenantInfo(**{**row, "limits": row["limits"].encode()})
