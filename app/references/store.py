"""All SQL of references. The clock is the database's."""

from __future__ import annotations

from typing import Any

from app.base.database import Database, Tx

# The same value again stores nothing twice: the later expiry and the first glimpse stand. A value that was swept
# or deleted comes back.
CREATE = """
INSERT INTO reference_values AS r (tenant_id, kind, id, value, size_bytes, glimpse, work_id, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, now() + make_interval(secs => $8::float8 / 1000))
ON CONFLICT (tenant_id, kind, id) DO UPDATE SET
    value = coalesce(r.value, EXCLUDED.value), deleted = false,
    expires_at = CASE WHEN r.expires_at IS NULL AND r.value IS NOT NULL THEN NULL
                      WHEN EXCLUDED.expires_at IS NULL THEN NULL
                      ELSE greatest(r.expires_at, EXCLUDED.expires_at) END
RETURNING (xmax = 0) AS created, glimpse, size_bytes, created_at, expires_at
"""
PINNED = """EXISTS (SELECT FROM reference_pins p WHERE p.tenant_id = r.tenant_id AND p.kind = r.kind AND p.id = r.id
                     AND (p.until IS NULL OR p.until > now()))"""
STATE = f"""
SELECT r.glimpse, r.size_bytes, r.created_at, r.expires_at, r.deleted,
       (r.value IS NOT NULL AND NOT r.deleted AND (r.expires_at IS NULL OR r.expires_at > now() OR {PINNED})) AS there
  FROM reference_values r WHERE r.tenant_id = $1 AND r.kind = $2 AND r.id = $3
"""
VALUE = "SELECT value FROM reference_values WHERE tenant_id = $1 AND kind = $2 AND id = $3"
PIN = """
INSERT INTO reference_pins AS p (tenant_id, kind, id, plan_id, until)
VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5::float8 / 1000))
ON CONFLICT (tenant_id, kind, id, plan_id) DO UPDATE SET until = EXCLUDED.until
"""
UNPIN = "DELETE FROM reference_pins WHERE tenant_id = $1 AND plan_id = $2"
REPIN = "UPDATE reference_pins SET until = now() + make_interval(secs => $3::float8 / 1000) WHERE tenant_id = $1 AND plan_id = $2"
LIST = """
SELECT kind, id, glimpse, size_bytes, created_at, expires_at, work_id FROM reference_values r
 WHERE tenant_id = $1 AND value IS NOT NULL AND NOT deleted AND (expires_at IS NULL OR expires_at > now())
   AND ($2::text IS NULL OR kind = $2) AND ($3::timestamptz IS NULL OR (created_at, kind, id) < ($3, $4, $5))
 ORDER BY created_at DESC, kind DESC, id DESC LIMIT $6
"""
DELETE = """
UPDATE reference_values SET value = NULL, deleted = true WHERE tenant_id = $1 AND kind = $2 AND id = $3 AND value IS NOT NULL
"""
SWEEP = "SELECT sweep_references($1)"


async def create(tx: Tx, *args: Any) -> Any:
    return await tx.row(CREATE, tx.tenant, *args)


async def state(tx: Tx, kind: str, id: str) -> Any:
    return await tx.row(STATE, tx.tenant, kind, id)


async def value(tx: Tx, kind: str, id: str) -> bytes | None:
    found: bytes | None = await tx.value(VALUE, tx.tenant, kind, id)
    return found


async def pin(tx: Tx, kind: str, id: str, plan_id: str, for_ms: float | None) -> None:
    await tx.run(PIN, tx.tenant, kind, id, plan_id, for_ms)


async def repin(tx: Tx, plan_id: str, for_ms: float | None) -> None:
    await tx.run(REPIN, tx.tenant, plan_id, for_ms)


async def unpin(tx: Tx, plan_id: str) -> None:
    await tx.run(UNPIN, tx.tenant, plan_id)


async def page(tx: Tx, *args: Any) -> list[Any]:
    return await tx.fetch(LIST, tx.tenant, *args)


async def delete(tx: Tx, kind: str, id: str) -> bool:
    return await tx.run(DELETE, tx.tenant, kind, id) == "UPDATE 1"


async def sweep(db: Database, limit: int) -> int:
    return int((await db.call(SWEEP, limit))[0][0])
