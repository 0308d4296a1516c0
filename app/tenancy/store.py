"""All SQL of tenants, keys and secrets."""

from __future__ import annotations

from typing import Any

from app.base.postgres.database import Tx

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


async def put_secret(tx: Tx, name: str, sealed: bytes) -> Any:
    return await tx.row(PUT_SECRET, tx.tenant, name, sealed)


async def secret(tx: Tx, name: str) -> bytes | None:
    sealed: bytes | None = await tx.value(GET_SECRET, tx.tenant, name)
    return sealed


async def secrets(tx: Tx, after: str | None, limit: int) -> list[Any]:
    return await tx.fetch(LIST_SECRETS, tx.tenant, after, limit)


async def delete_secret(tx: Tx, name: str) -> bool:
    return await tx.run(DELETE_SECRET, tx.tenant, name) == "DELETE 1"
