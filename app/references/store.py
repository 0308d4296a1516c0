"""All SQL of references. The clock is the database's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import orjson

from app.base.postgres.database import Database, Tx
from app.references.models import Handle, PreparedReference, Reference, ReferenceFilter, ReferenceState
from app.references.views import ListedReference

Use = Literal["create", "resolve", "hydrate"]

# A pin of a query ends with the query: nothing has to remove it.
# Not EXISTS: Postgres may answer it by reading every pin and every active query of the tenant into a hash table.
PINNED = """(SELECT true FROM reference_pins p WHERE p.tenant_id = $1 AND p.kind = r.kind AND p.id = r.id
              AND (p.until IS NULL OR p.until > now())
              AND (p.holder_id NOT LIKE 'qry_%' OR (
                   SELECT q.status IN ('queued', 'running', 'waiting') FROM queries q
                    WHERE q.tenant_id = $1 AND q.id = p.holder_id)) LIMIT 1) IS TRUE"""
THERE = (
    f"(r.value IS NOT NULL AND NOT r.deleted AND (r.expires_at IS NULL OR r.expires_at > now() OR {PINNED}))"
)
# A value that exists is not stored twice: the later expiry and the first glimpse count. An expired or deleted value is
# created again. Only in the transaction that creates a value is it as old as the transaction.
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
RETURNING kind, id, created_at = now() AS created, glimpse, size_bytes, digest, created_at, expires_at
"""
STATES = f"""
SELECT n.kind, n.id, r.glimpse, r.size_bytes, r.digest, r.created_at, r.expires_at, r.deleted, {THERE} AS there
  FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS n(kind, id, place)
  LEFT JOIN reference_values r ON r.tenant_id = $1 AND r.kind = n.kind AND r.id = n.id ORDER BY n.place
"""
VALUE = "SELECT value FROM reference_values WHERE tenant_id = $1 AND kind = $2 AND id = $3"
# Values are stored out of line and uncompressed, so reading a piece does not read the whole value.
PIECE = "SELECT substring(value FROM $4 FOR $5) FROM reference_values WHERE tenant_id = $1 AND kind = $2 AND id = $3"
PIN = f"""
INSERT INTO reference_pins AS p (tenant_id, kind, id, holder_id, until)
SELECT $1, r.kind, r.id, $4, now() + make_interval(secs => $5::float8 / 1000)
  FROM unnest($2::text[], $3::text[]) AS n(kind, id)
  JOIN reference_values r ON r.tenant_id = $1 AND r.kind = n.kind AND r.id = n.id AND {THERE}
ON CONFLICT (tenant_id, kind, id, holder_id) DO UPDATE SET until = EXCLUDED.until
"""
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
# Idempotent by the work, which repeats the use after a crash.
NOTE_USES = """
INSERT INTO reference_uses (tenant_id, work_id, use, kind, id, size_bytes, prompt_bytes)
SELECT $1, $2, $3, kind, id, size_bytes, $7 FROM unnest($4::text[], $5::text[], $6::bigint[]) AS n(kind, id, size_bytes)
ON CONFLICT (tenant_id, work_id, use, kind, id) DO UPDATE SET prompt_bytes = EXCLUDED.prompt_bytes
"""
SWEEP = "SELECT sweep_references($1)"


async def create(tx: Tx, *, prepared: PreparedReference, work_id: str | None) -> Reference:
    """Store a value, unless it exists. Return its reference, which says whether it was created."""
    ttl_ms = None if prepared.ttl_ms is None else float(prepared.ttl_ms)
    return _reference(
        await tx.row(
            CREATE,
            tx.tenant,
            prepared.kind,
            prepared.id,
            prepared.data,
            prepared.digest,
            len(prepared.data),
            prepared.glimpse,
            work_id,
            ttl_ms,
        )
    )


async def states(tx: Tx, *, handles: Sequence[Handle]) -> list[ReferenceState]:
    """Return the states of these references, in order."""
    states = []
    for row in map(dict, await tx.fetch(STATES, tx.tenant, *_columns(handles))):
        deleted, there = row.pop("deleted"), row.pop("there")
        reference = _reference(row) if there else None
        states.append(
            ReferenceState((row["kind"], row["id"]), reference, expired=deleted is False and not there)
        )
    return states


async def value(tx: Tx, *, handle: Handle) -> bytes | None:
    data: bytes | None = await tx.value(VALUE, tx.tenant, *handle)
    return data


async def piece(tx: Tx, *, handle: Handle, at: int, size: int) -> bytes | None:
    """Return at most `size` bytes of the value from the byte `at`, which is 0 for the first."""
    data: bytes | None = await tx.value(PIECE, tx.tenant, *handle, at + 1, size)
    return data


async def pin(tx: Tx, *, handles: Sequence[Handle], holder_id: str, for_ms: float | None) -> None:
    """Pin references for a plan or a query; for good if `for_ms` is None."""
    await tx.run(PIN, tx.tenant, *_columns(handles), holder_id, for_ms)


async def repin(tx: Tx, *, holder_id: str, for_ms: float | None) -> None:
    """Set the time that the pins of a plan or a query still last."""
    await tx.run(REPIN, tx.tenant, holder_id, for_ms)


async def unpin(tx: Tx, *, holder_id: str, except_for: Sequence[Handle] = ()) -> None:
    """Remove the pins of a plan or a query, except for these references."""
    await tx.run(UNPIN, tx.tenant, holder_id, *_columns(except_for))


async def page(tx: Tx, *, filters: ReferenceFilter, limit: int) -> list[ListedReference]:
    """Return references, newest first."""
    before = filters.before
    created_at, kind, id = (None, None, None) if before is None else before
    if filters.kind is None:
        rows = await tx.fetch(LIST, tx.tenant, created_at, kind, id, limit)
    else:
        rows = await tx.fetch(LIST_OF_KIND, tx.tenant, created_at, id, limit, filters.kind)
    return [ListedReference.model_construct(**row) for row in rows]


async def delete(tx: Tx, *, handle: Handle) -> None:
    await tx.run(DELETE, tx.tenant, *handle)


async def note_uses(
    tx: Tx, *, work_id: str, use: Use, references: Sequence[Reference], prompt_bytes: int
) -> None:
    columns = _columns([(r.kind, r.id) for r in references])
    sizes = [reference.size_bytes for reference in references]
    await tx.run(NOTE_USES, tx.tenant, work_id, use, *columns, sizes, prompt_bytes)


async def sweep(db: Database, *, limit: int) -> int:
    """Delete at most `limit` expired values. Return how many were deleted."""
    return int((await db.call(SWEEP, limit))[0][0])


def _columns(handles: Sequence[Handle]) -> tuple[list[str], list[str]]:
    return [kind for kind, _ in handles], [id for _, id in handles]


def _reference(row: Any) -> Reference:
    return Reference(**{**row, "glimpse": orjson.loads(row["glimpse"])})
