"""All SQL of references. The clock is the database's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from app.base.postgres.database import Database, Tx

Use = Literal["create", "resolve", "hydrate"]

# A pin of a query ends with the query, whoever ends it and however: nothing has to remove it.
PINNED = """EXISTS (SELECT FROM reference_pins p WHERE p.tenant_id = $1 AND p.kind = r.kind AND p.id = r.id
                     AND (p.until IS NULL OR p.until > now())
                     AND (p.holder_id NOT LIKE 'qry_%' OR EXISTS (
                          SELECT FROM queries q WHERE q.tenant_id = $1 AND q.id = p.holder_id
                             AND q.status IN ('queued', 'running', 'waiting'))))"""
THERE = (
    f"(r.value IS NOT NULL AND NOT r.deleted AND (r.expires_at IS NULL OR r.expires_at > now() OR {PINNED}))"
)
# The same value again stores nothing twice: the later expiry and the first glimpse stand. One that had expired or was
# deleted is made anew. Only in the transaction that makes it is it as old as the transaction.
CREATE = f"""
INSERT INTO reference_values AS r (tenant_id, kind, id, value, digest, size_bytes, glimpse, work_id, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now() + make_interval(secs => $9::float8 / 1000))
ON CONFLICT (tenant_id, kind, id) DO UPDATE SET
    value = CASE WHEN {THERE} THEN r.value ELSE EXCLUDED.value END,
    digest = CASE WHEN {THERE} THEN r.digest ELSE EXCLUDED.digest END,
    glimpse = CASE WHEN {THERE} THEN r.glimpse ELSE EXCLUDED.glimpse END,
    work_id = CASE WHEN {THERE} THEN r.work_id ELSE EXCLUDED.work_id END,
    created_at = CASE WHEN {THERE} THEN r.created_at ELSE now() END,
    expires_at = CASE WHEN NOT {THERE} THEN EXCLUDED.expires_at
                      WHEN r.expires_at IS NULL OR EXCLUDED.expires_at IS NULL THEN NULL
                      ELSE greatest(r.expires_at, EXCLUDED.expires_at) END,
    deleted = false
RETURNING created_at = now() AS created, glimpse, size_bytes, digest, created_at, expires_at
"""
STATES = f"""
SELECT n.kind, n.id, r.glimpse, r.size_bytes, r.digest, r.created_at, r.expires_at, r.deleted, {THERE} AS there
  FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS n(kind, id, place)
  LEFT JOIN reference_values r ON r.tenant_id = $1 AND r.kind = n.kind AND r.id = n.id ORDER BY n.place
"""
VALUE = "SELECT value FROM reference_values WHERE tenant_id = $1 AND kind = $2 AND id = $3"
# Values are stored out of line and uncompressed, so that a piece costs no more than itself.
PIECE = "SELECT substring(value FROM $4 FOR $5) FROM reference_values WHERE tenant_id = $1 AND kind = $2 AND id = $3"
PIN = f"""
INSERT INTO reference_pins AS p (tenant_id, kind, id, holder_id, until)
SELECT $1, r.kind, r.id, $4, now() + make_interval(secs => $5::float8 / 1000)
  FROM unnest($2::text[], $3::text[]) AS n(kind, id)
  JOIN reference_values r ON r.tenant_id = $1 AND r.kind = n.kind AND r.id = n.id AND {THERE}
ON CONFLICT (tenant_id, kind, id, holder_id) DO UPDATE SET until = EXCLUDED.until
"""
# All but these.
UNPIN = """
DELETE FROM reference_pins WHERE tenant_id = $1 AND holder_id = $2
   AND (kind, id) NOT IN (SELECT * FROM unnest($3::text[], $4::text[]))
"""
REPIN = "UPDATE reference_pins SET until = now() + make_interval(secs => $3::float8 / 1000) WHERE tenant_id = $1 AND holder_id = $2"
LIST = f"""
SELECT kind, id, glimpse, size_bytes, created_at, expires_at, work_id FROM reference_values r
 WHERE r.tenant_id = $1 AND {THERE} AND ($2::timestamptz IS NULL OR (created_at, kind, id) < ($2, $3, $4))
 ORDER BY created_at DESC, kind DESC, id DESC LIMIT $5
"""
LIST_OF_KIND = f"""
SELECT kind, id, glimpse, size_bytes, created_at, expires_at, work_id FROM reference_values r
 WHERE r.tenant_id = $1 AND kind = $5 AND {THERE} AND ($2::timestamptz IS NULL OR (created_at, id) < ($2, $3))
 ORDER BY created_at DESC, id DESC LIMIT $4
"""
DELETE = """
UPDATE reference_values SET value = NULL, deleted = true WHERE tenant_id = $1 AND kind = $2 AND id = $3 AND value IS NOT NULL
"""
# Idempotent by the work, which may do the same again after a crash.
NOTE_USES = """
INSERT INTO reference_uses (tenant_id, work_id, use, kind, id, size_bytes, prompt_bytes)
SELECT $1, $2, $3, kind, id, size_bytes, $7 FROM unnest($4::text[], $5::text[], $6::bigint[]) AS n(kind, id, size_bytes)
ON CONFLICT (tenant_id, work_id, use, kind, id) DO UPDATE SET prompt_bytes = EXCLUDED.prompt_bytes
"""
SWEEP = "SELECT sweep_references($1)"


async def create(tx: Tx, *args: Any) -> Any:
    return await tx.row(CREATE, tx.tenant, *args)


async def states(tx: Tx, handles: Sequence[tuple[str, str]]) -> list[Any]:
    return await tx.fetch(STATES, tx.tenant, [kind for kind, _ in handles], [id for _, id in handles])


async def value(tx: Tx, kind: str, id: str) -> bytes | None:
    found: bytes | None = await tx.value(VALUE, tx.tenant, kind, id)
    return found


async def piece(tx: Tx, kind: str, id: str, at: int, size: int) -> bytes | None:
    """So many bytes of the value from the one at `at`, which is 0 for the first."""
    found: bytes | None = await tx.value(PIECE, tx.tenant, kind, id, at + 1, size)
    return found


async def pin(tx: Tx, handles: Sequence[tuple[str, str]], plan_id: str, for_ms: float | None) -> None:
    await tx.run(PIN, tx.tenant, [kind for kind, _ in handles], [id for _, id in handles], plan_id, for_ms)


async def repin(tx: Tx, plan_id: str, for_ms: float | None) -> None:
    await tx.run(REPIN, tx.tenant, plan_id, for_ms)


async def unpin(tx: Tx, plan_id: str, but_for: Sequence[tuple[str, str]] = ()) -> None:
    await tx.run(UNPIN, tx.tenant, plan_id, [kind for kind, _ in but_for], [id for _, id in but_for])


async def page(tx: Tx, kind: str | None, before: Any, limit: int) -> list[Any]:
    """`before` is (created_at, kind, id) of the last one seen, of Nones for the first page."""
    if kind is None:
        return await tx.fetch(LIST, tx.tenant, *before, limit)
    created_at, _, id = before
    return await tx.fetch(LIST_OF_KIND, tx.tenant, created_at, id, limit, kind)


async def delete(tx: Tx, kind: str, id: str) -> None:
    await tx.run(DELETE, tx.tenant, kind, id)


async def note_uses(
    tx: Tx, work_id: str, use: Use, sizes: Sequence[tuple[str, str, int]], prompt_bytes: int
) -> None:
    kinds, ids, bytes_ = ([size[n] for size in sizes] for n in range(3))
    await tx.run(NOTE_USES, tx.tenant, work_id, use, kinds, ids, bytes_, prompt_bytes)


async def sweep(db: Database, limit: int) -> int:
    return int((await db.call(SWEEP, limit))[0][0])
