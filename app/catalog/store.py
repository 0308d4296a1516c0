"""All SQL of sources and of the catalog."""

from __future__ import annotations

from typing import Any

from app.base.postgres.database import Tx
from app.catalog.models import Source

SOURCE_COLUMNS = """s.name, s.kind, s.secret, s.settings, s.declared, s.profile, s.profile_query_id, s.profiled_at,
 s.created_at, s.updated_at, q.status AS profile_status"""
FROM_SOURCES = "sources s LEFT JOIN queries q ON q.tenant_id = $1 AND q.id = s.profile_query_id"
SOURCE = f"SELECT {SOURCE_COLUMNS} FROM {FROM_SOURCES} WHERE s.tenant_id = $1 AND s.name = $2"
SOURCES = f"""
SELECT {SOURCE_COLUMNS} FROM {FROM_SOURCES} WHERE s.tenant_id = $1 AND ($2::text IS NULL OR s.name > $2)
 ORDER BY s.name LIMIT $3
"""
SOURCE_NAMES = "SELECT name FROM sources WHERE tenant_id = $1 ORDER BY name"
# No row comes back for a source that the operator declared and a request would replace.
PUT_SOURCE = """
INSERT INTO sources (tenant_id, name, kind, secret, settings, declared) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, name) DO UPDATE SET kind = EXCLUDED.kind, secret = EXCLUDED.secret, settings = EXCLUDED.settings,
       declared = EXCLUDED.declared, updated_at = now()
 WHERE EXCLUDED.declared OR NOT sources.declared RETURNING created_at, xmax = 0 AS created
"""
DELETE_SOURCE = "DELETE FROM sources WHERE tenant_id = $1 AND name = $2"
CLUSTER_IDENTITY = "SELECT system_identifier::text FROM pg_control_system()"
NOTE_STATEMENT = """
INSERT INTO source_statements (tenant_id, work_id, query_id, source, sql, rows, bytes, elapsed_ms, truncated, error)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant_id, work_id) DO UPDATE SET source = EXCLUDED.source, sql = EXCLUDED.sql, rows = EXCLUDED.rows,
       bytes = EXCLUDED.bytes, elapsed_ms = EXCLUDED.elapsed_ms, truncated = EXCLUDED.truncated, error = EXCLUDED.error
"""


async def source(tx: Tx, name: str) -> Source | None:
    row = await tx.row(SOURCE, tx.tenant, name)
    return None if row is None else Source.from_row(row)


async def sources(tx: Tx, after: str | None, limit: int) -> list[Source]:
    return [Source.from_row(row) for row in await tx.fetch(SOURCES, tx.tenant, after, limit)]


async def source_names(tx: Tx) -> list[str]:
    return [row["name"] for row in await tx.fetch(SOURCE_NAMES, tx.tenant)]


async def put_source(tx: Tx, made: Source) -> Any:
    """Return the row, or None if the operator declared the source and this is a request."""
    return await tx.row(
        PUT_SOURCE, tx.tenant, made.name, made.kind, made.secret, made.settings(), made.declared
    )


async def delete_source(tx: Tx, name: str) -> bool:
    return await tx.run(DELETE_SOURCE, tx.tenant, name) == "DELETE 1"


async def cluster_identity(tx: Tx) -> str:
    """Return what identifies the cluster of the service's own database, and its replicas."""
    found: str = await tx.value(CLUSTER_IDENTITY)
    return found


async def note_statement(tx: Tx, *args: Any) -> None:
    await tx.run(NOTE_STATEMENT, tx.tenant, *args)
