"""All SQL of sources and of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson
from plangate.spec.catalog_toolkit import EntryKind

from app.base.postgres.database import Tx
from app.catalog.entries import CatalogEntry, Layer, SearchMatch
from app.catalog.models import EntryFilter, Source, SourceLimits, StatementRecord

SETTINGS = ("schemas", "paths", "sensitive", "null_values", "immutable")

SOURCE_COLUMNS = """s.name, s.kind, s.secret, s.settings, s.declared, s.profile, s.profile_query_id, s.profiled_at,
 s.created_at, s.updated_at, q.status AS profile_status, q.thread_id AS profile_thread"""
FROM_SOURCES = "sources s LEFT JOIN queries q ON q.tenant_id = $1 AND q.id = s.profile_query_id"
SOURCE = f"SELECT {SOURCE_COLUMNS} FROM {FROM_SOURCES} WHERE s.tenant_id = $1 AND s.name = $2"
SOURCES = f"""
SELECT {SOURCE_COLUMNS} FROM {FROM_SOURCES} WHERE s.tenant_id = $1 AND ($2::text IS NULL OR s.name > $2)
 ORDER BY s.name LIMIT $3
"""
LOCK_SOURCE = "SELECT 1 FROM sources WHERE tenant_id = $1 AND name = $2 FOR NO KEY UPDATE"
SOURCE_NAMES = "SELECT name FROM sources WHERE tenant_id = $1 ORDER BY name"
# No row comes back for a source that the operator declared and a request would replace.
PUT_SOURCE = """
INSERT INTO sources (tenant_id, name, kind, secret, settings, declared) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, name) DO UPDATE SET kind = EXCLUDED.kind, secret = EXCLUDED.secret, settings = EXCLUDED.settings,
       declared = EXCLUDED.declared, updated_at = now()
 WHERE EXCLUDED.declared OR NOT sources.declared RETURNING xmax = 0 AS created
"""
DELETE_SOURCE = "DELETE FROM sources WHERE tenant_id = $1 AND name = $2"
CLUSTER_IDENTITY = "SELECT system_identifier::text FROM pg_control_system()"
RECORD_STATEMENT = """
INSERT INTO source_statements (tenant_id, work_id, query_id, source, sql, rows, bytes, elapsed_ms, truncated, error)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant_id, work_id) DO UPDATE SET source = EXCLUDED.source, sql = EXCLUDED.sql, rows = EXCLUDED.rows,
       bytes = EXCLUDED.bytes, elapsed_ms = EXCLUDED.elapsed_ms, truncated = EXCLUDED.truncated, error = EXCLUDED.error
"""

SET_PROFILE_QUERY = "UPDATE sources SET profile_query_id = $3 WHERE tenant_id = $1 AND name = $2"
SET_PROFILE = """
UPDATE sources SET profile = $3, profiled_at = now() WHERE tenant_id = $1 AND name = $2 AND profile_query_id = $4
"""
# Writers of a tenant's catalog wait for each other: an entry is merged from what a profile found and what people wrote.
LOCK_CATALOG = "SELECT pg_advisory_xact_lock(hashtextextended('catalog/' || $1, 0))"
ENTRY_COLUMNS = "id, kind, found, written, created_at, updated_at"
ENTRIES_BY_ID = f"SELECT {ENTRY_COLUMNS} FROM catalog_entries WHERE tenant_id = $1 AND id = ANY ($2)"
ENTRIES_BY_NAME = f"""
SELECT {ENTRY_COLUMNS} FROM catalog_entries
 WHERE tenant_id = $1 AND kind = $2 AND (lower(qualified_name) = lower($3) OR lower(name) = lower($3)
       OR lower(coalesce(source || '.', '') || name) = lower($3)) AND ($4::text[] IS NULL OR source = ANY ($4))
 ORDER BY id LIMIT 20
"""
NAMES_OF_KIND = """
SELECT qualified_name FROM catalog_entries WHERE tenant_id = $1 AND kind = $2 AND ($3::text[] IS NULL OR source = ANY ($3))
 ORDER BY id LIMIT 2000
"""
PAGE = f"""
SELECT {ENTRY_COLUMNS} FROM catalog_entries
 WHERE tenant_id = $1 AND ($2::text IS NULL OR id > $2) AND ($3::text IS NULL OR kind = $3)
   AND ($4::text IS NULL OR source = $4) AND ($5::text IS NULL OR $5 = ANY (tags))
   AND ($6::text IS NULL OR parent_id = $6)
 ORDER BY id LIMIT $7
"""
CHILDREN = f"""
SELECT {ENTRY_COLUMNS} FROM catalog_entries WHERE tenant_id = $1 AND parent_id = ANY ($2) ORDER BY id LIMIT $3
"""
# How well each entry of the tenant matches, by meaning (full-text search) and by spelling (the share of the search's
# trigrams that its names have; docs/decisions/0028).
SEARCH = f"""
WITH query AS (SELECT websearch_to_tsquery('english', $2) AS q, $3::text[] AS grams)
SELECT {ENTRY_COLUMNS}, trigrams, text_rank, spelling,
       ARRAY(SELECT w FROM unnest($4::text[]) w WHERE search @@ plainto_tsquery('english', w)) AS words
  FROM (SELECT e.*, ts_rank(ARRAY[0.05, 0.2, 0.6, 1.0], e.search, a.q) AS text_rank,
               (SELECT count(*) FROM unnest(e.trigrams) g WHERE g = ANY (a.grams))::float
                   / greatest(cardinality(a.grams), 1) AS spelling
          FROM catalog_entries e, query a
         WHERE e.tenant_id = $1 AND (e.search @@ a.q OR e.trigrams && a.grams)
           AND ($5::text[] IS NULL OR e.kind = ANY ($5)) AND ($6::text[] IS NULL OR e.source IS NULL OR e.source = ANY ($6))
       ) matches
 WHERE text_rank > 0 OR spelling >= $7
 ORDER BY text_rank + spelling + CASE kind WHEN 'table' THEN 0.2 WHEN 'metric' THEN 0.2 WHEN 'column' THEN 0.1 ELSE 0 END
          DESC, id LIMIT $8
"""
RELATIONS = f"""
SELECT {ENTRY_COLUMNS} FROM catalog_entries
 WHERE tenant_id = $1 AND (kind = 'relationship' OR related <> '{{}}')
   AND ($2::text[] IS NULL OR source IS NULL OR source = ANY ($2)) ORDER BY id LIMIT $3
"""
TAGGED_COLUMNS = f"""
SELECT {ENTRY_COLUMNS} FROM catalog_entries
 WHERE tenant_id = $1 AND source = $2 AND kind = 'column' AND tags && ARRAY['sensitive', 'not-sensitive']
"""
SAVE_ENTRIES = """
INSERT INTO catalog_entries AS c (tenant_id, id, kind, name, qualified_name, source, parent_id, tags, related, found, found_by,
       written, search, trigrams)
SELECT $1, e.id, e.kind, e.name, e.qualified_name, e.source, e.parent_id, e.tags, e.related, convert_to(e.found, 'UTF8'),
       e.found_by, convert_to(e.written, 'UTF8'), setweight(to_tsvector('english', e.names), 'A')
       || setweight(to_tsvector('english', e.described), 'B') || setweight(to_tsvector('english', e.rest), 'D'), e.trigrams
  FROM jsonb_to_recordset($2::text::jsonb) AS e(id text, kind text, name text, qualified_name text, source text,
       parent_id text, tags text[], related text[], found text, found_by text, written text, names text, described text,
       rest text, trigrams text[])
ON CONFLICT (tenant_id, id) DO UPDATE SET name = EXCLUDED.name, qualified_name = EXCLUDED.qualified_name,
       source = EXCLUDED.source, parent_id = EXCLUDED.parent_id, tags = EXCLUDED.tags, related = EXCLUDED.related,
       found = EXCLUDED.found, found_by = coalesce(EXCLUDED.found_by, c.found_by),
       written = EXCLUDED.written, search = EXCLUDED.search,
       trigrams = EXCLUDED.trigrams, updated_at = CASE WHEN (c.found, c.written) IS DISTINCT FROM
       (EXCLUDED.found, EXCLUDED.written) THEN now() ELSE c.updated_at END
"""
# Entries that a profile did not find again; $3 NULL: all entries that profiles found.
LOST_ENTRIES = f"""
SELECT {ENTRY_COLUMNS} FROM catalog_entries
 WHERE tenant_id = $1 AND source = $2 AND found IS NOT NULL AND written IS NOT NULL AND found_by IS DISTINCT FROM $3
"""
DELETE_LOST = """
DELETE FROM catalog_entries
 WHERE tenant_id = $1 AND source = $2 AND found IS NOT NULL AND written IS NULL AND found_by IS DISTINCT FROM $3
"""
DELETE_ENTRY = "DELETE FROM catalog_entries WHERE tenant_id = $1 AND id = $2"
COUNT_FOUND = """
SELECT kind, count(*) AS n FROM catalog_entries WHERE tenant_id = $1 AND source = $2 AND found_by = $3 GROUP BY kind
"""


async def source(tx: Tx, *, name: str) -> Source | None:
    row = await tx.row(SOURCE, tx.tenant, name)
    return None if row is None else _source(row)


async def lock_source(tx: Tx, *, name: str) -> None:
    """Make another request that starts a profile of this source wait until the transaction ends."""
    await tx.run(LOCK_SOURCE, tx.tenant, name)


async def sources(tx: Tx, *, after: str | None, limit: int) -> list[Source]:
    return [_source(row) for row in await tx.fetch(SOURCES, tx.tenant, after, limit)]


async def source_names(tx: Tx) -> list[str]:
    return [row["name"] for row in await tx.fetch(SOURCE_NAMES, tx.tenant)]


async def put_source(tx: Tx, *, source: Source) -> bool | None:
    """Return whether the source is new, or None if the operator declared it and this is a request."""
    settings = {**{name: getattr(source, name) for name in SETTINGS}, "limits": asdict(source.limits)}
    columns = (source.name, source.kind, source.secret, orjson.dumps(settings), source.declared)
    created: bool | None = await tx.value(PUT_SOURCE, tx.tenant, *columns)
    return created


async def delete_source(tx: Tx, *, name: str) -> bool:
    return await tx.run(DELETE_SOURCE, tx.tenant, name) == "DELETE 1"


async def cluster_identity(tx: Tx) -> str:
    """Return the identity of the cluster of the service's own database, which its replicas share."""
    identity: str = await tx.value(CLUSTER_IDENTITY)
    return identity


async def record_statement(tx: Tx, *, record: StatementRecord) -> None:
    await tx.run(
        RECORD_STATEMENT,
        tx.tenant,
        record.work_id,
        record.query_id,
        record.source,
        record.sql,
        record.rows,
        record.bytes,
        record.elapsed_ms,
        record.truncated,
        record.error,
    )


# -- profiles and entries ------------------------------------------------------------------------------------


async def set_profile_query(tx: Tx, *, name: str, query_id: str) -> None:
    await tx.run(SET_PROFILE_QUERY, tx.tenant, name, query_id)


async def set_profile(tx: Tx, *, name: str, counts: dict[str, int], query_id: str) -> None:
    """Record the result of a profile, unless a newer one was started meanwhile."""
    await tx.run(SET_PROFILE, tx.tenant, name, orjson.dumps(counts), query_id)


async def lock_catalog(tx: Tx) -> None:
    """Make other writers of this tenant's catalog wait until the transaction ends."""
    await tx.run(LOCK_CATALOG, tx.tenant)


async def entries_by_id(tx: Tx, *, ids: Sequence[str]) -> dict[str, CatalogEntry]:
    return {entry.id: entry for entry in await _entries(tx, ENTRIES_BY_ID, list(ids))}


async def entries_by_name(
    tx: Tx, *, kind: EntryKind, name: str, sources: Sequence[str] | None
) -> list[CatalogEntry]:
    return await _entries(tx, ENTRIES_BY_NAME, kind, name, sources)


async def names_of_kind(tx: Tx, *, kind: EntryKind, sources: Sequence[str] | None) -> list[str]:
    return [row["qualified_name"] for row in await tx.fetch(NAMES_OF_KIND, tx.tenant, kind, sources)]


async def page(tx: Tx, *, filters: EntryFilter, limit: int) -> list[CatalogEntry]:
    """Return entries by id."""
    f = filters
    return await _entries(tx, PAGE, f.after, f.kind, f.source, f.tag, f.parent_id, limit)


async def children(tx: Tx, *, parent_ids: Sequence[str], limit: int) -> list[CatalogEntry]:
    return await _entries(tx, CHILDREN, list(parent_ids), limit)


async def search(
    tx: Tx,
    *,
    text: str,
    grams: Sequence[str],
    words: Sequence[str],
    kinds: Sequence[str] | None,
    sources: Sequence[str] | None,
    min_spelling: float,
    limit: int,
) -> list[SearchMatch]:
    """Return the entries that match best, best first."""
    parameters = (text, list(grams), list(words), kinds, sources, min_spelling, limit)
    return [
        SearchMatch(_entry(row), row["text_rank"], row["spelling"], row["words"], row["trigrams"])
        for row in await tx.fetch(SEARCH, tx.tenant, *parameters)
    ]


async def relations(tx: Tx, *, sources: Sequence[str] | None, limit: int) -> list[CatalogEntry]:
    return await _entries(tx, RELATIONS, sources, limit)


async def tagged_columns(tx: Tx, *, source: str) -> list[CatalogEntry]:
    return await _entries(tx, TAGGED_COLUMNS, source)


async def save_entries(tx: Tx, *, entries: Sequence[CatalogEntry], found_by: str | None) -> None:
    """Store entries whole. Call `lock_catalog` before they are read."""
    rows = []
    for entry in entries:
        names, described, rest = entry.search_texts()
        rows.append(
            {
                "id": entry.id,
                "kind": entry.kind,
                "name": entry.name,
                "qualified_name": entry.qualified_name,
                "source": entry.source,
                "parent_id": entry.parent_id,
                "tags": entry.tags,
                "related": entry.related,
                "found": None if entry.found is None else entry.found.dumps().decode(),
                "found_by": None if entry.found is None else found_by,
                "written": None if entry.written is None else entry.written.dumps().decode(),
                "names": names,
                "described": described,
                "rest": rest,
                "trigrams": entry.trigrams(),
            }
        )
    if rows:
        await tx.run(SAVE_ENTRIES, tx.tenant, orjson.dumps(rows).decode())


async def lost_entries(tx: Tx, *, source: str, found_by: str | None) -> list[CatalogEntry]:
    """Return the entries with text of people that the profile did not find again."""
    return await _entries(tx, LOST_ENTRIES, source, found_by)


async def delete_lost(tx: Tx, *, source: str, found_by: str | None) -> None:
    await tx.run(DELETE_LOST, tx.tenant, source, found_by)


async def delete_entry(tx: Tx, *, id: str) -> None:
    await tx.run(DELETE_ENTRY, tx.tenant, id)


async def count_found(tx: Tx, *, source: str, found_by: str) -> dict[str, int]:
    """Return the number of entries that a profile found, by kind."""
    return {row["kind"]: row["n"] for row in await tx.fetch(COUNT_FOUND, tx.tenant, source, found_by)}


async def _entries(tx: Tx, sql: str, *parameters: Any) -> list[CatalogEntry]:
    return [_entry(row) for row in await tx.fetch(sql, tx.tenant, *parameters)]


def _entry(row: Any) -> CatalogEntry:
    found, written = Layer.loads(row["found"]), Layer.loads(row["written"])
    return CatalogEntry(row["id"], row["kind"], found, written, row["created_at"], row["updated_at"])


def _source(row: Any) -> Source:
    columns = dict(row)
    settings, profile = orjson.loads(columns.pop("settings")), columns.pop("profile")
    limits = SourceLimits(**settings.pop("limits"))
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
    counts = None if profile is None else orjson.loads(profile)
    return Source(**columns, **options, limits=limits, profile=counts)
