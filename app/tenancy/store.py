"""All SQL of tenants, keys and secrets."""

from __future__ import annotations

from typing import Any

from app.base.postgres.database import Database, Tx

FIND = "SELECT id, tenant_id, principal, scopes, tools, expires_at FROM find_key($1)"
CREATE_TENANT = "SELECT create_tenant($1, $2, $3::text::jsonb, $4::text::jsonb)"
# For the owner of the database only: the service's role cannot change a tenant.
SET_TENANT = "SELECT set_tenant($1, $2::text::jsonb, $3::text::jsonb)"
APPROVAL_FLOOR = "SELECT approval_floor::text FROM tenants WHERE tenant_id = $1"
TENANT = "SELECT tenant_id, limits::text AS limits, reference_secret FROM tenants WHERE tenant_id = $1"
INSERT_KEY = """
INSERT INTO api_keys (tenant_id, id, hash, principal, scopes, tools, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING created_at
"""
KEY_COLUMNS = "id, principal, scopes, tools, created_at, created_by, expires_at, revoked_at"
LIST_KEYS = f"""
SELECT {KEY_COLUMNS} FROM api_keys WHERE tenant_id = $1 AND ($2::text IS NULL OR id < $2) ORDER BY id DESC LIMIT $3
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
RETURNING created_at, updated_at
"""
GET_SECRET = "SELECT sealed FROM secrets WHERE tenant_id = $1 AND name = $2"
LIST_SECRETS = """
SELECT name, created_at, updated_at FROM secrets WHERE tenant_id = $1 AND ($2::text IS NULL OR name > $2)
 ORDER BY name LIMIT $3
"""
DELETE_SECRET = "DELETE FROM secrets WHERE tenant_id = $1 AND name = $2"


async def find_key(tx: Tx, hash: bytes) -> Any:
    return await tx.row(FIND, hash)


async def create_tenant(tx: Tx, tenant: str, secret: bytes, limits: str, floor: str) -> bool:
    return bool(await tx.value(CREATE_TENANT, tenant, secret, limits, floor))


async def approval_floor(tx: Tx) -> str:
    return str(await tx.value(APPROVAL_FLOOR, tx.tenant))


async def tenant(tx: Tx) -> Any:
    return await tx.row(TENANT, tx.tenant)


async def insert_key(tx: Tx, *args: Any) -> Any:
    return await tx.row(INSERT_KEY, tx.tenant, *args)


async def keys(tx: Tx, before: str | None, limit: int) -> list[Any]:
    return await tx.fetch(LIST_KEYS, tx.tenant, before, limit)


async def revoke_key(tx: Tx, key_id: str) -> bool:
    return await tx.run(REVOKE_KEY, tx.tenant, key_id) == "UPDATE 1"


async def find_session(tx: Tx, hash: bytes) -> Any:
    return await tx.row(FIND_SESSION, hash)


async def insert_session(tx: Tx, *args: Any) -> Any:
    return await tx.value(INSERT_SESSION, tx.tenant, *args)


async def take_ticket(tx: Tx, hash: bytes) -> bool:
    return await tx.value(TAKE_TICKET, tx.tenant, hash) is not None


async def delete_session(tx: Tx, session_id: str) -> bool:
    return await tx.run(DELETE_SESSION, tx.tenant, session_id) == "DELETE 1"


async def trim_sessions(tx: Tx, key_id: str, is_ticket: bool, most: int) -> None:
    await tx.run(TRIM_SESSIONS, tx.tenant, key_id, is_ticket, most)


async def sweep_sessions(db: Database, limit: int) -> int:
    return int((await db.call(SWEEP_SESSIONS, limit))[0][0])


async def put_secret(tx: Tx, name: str, sealed: bytes) -> Any:
    return await tx.row(PUT_SECRET, tx.tenant, name, sealed)


async def secret(tx: Tx, name: str) -> bytes | None:
    sealed: bytes | None = await tx.value(GET_SECRET, tx.tenant, name)
    return sealed


async def secrets(tx: Tx, after: str | None, limit: int) -> list[Any]:
    return await tx.fetch(LIST_SECRETS, tx.tenant, after, limit)


async def delete_secret(tx: Tx, name: str) -> bool:
    return await tx.run(DELETE_SECRET, tx.tenant, name) == "DELETE 1"
