"""All SQL of workspaces. Versions are only added; one row per path points at the current version."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from app.base.postgres.database import Database, Tx
from app.workspace.models import FileAuthor, FileRow, ReservedBody, StoredBody, WorkspaceCounts

# Registers a body before it is stored: from here on the collector leaves it alone for a day. A collector that deletes this
# body at the moment holds its row: this waits for it, and the body is stored again afterwards. A new body (no transaction
# updated its row before: xmax) counts against its tenant, whose row orders concurrent additions. A body whose `used_at` is
# in the future may be deleted at any moment until then (PUT_OFF).
WANT = """
WITH wanted AS (
    INSERT INTO blobs (tenant_id, digest, size_bytes) VALUES ($1, $2, $3)
    ON CONFLICT (tenant_id, digest) DO UPDATE SET used_at = greatest(blobs.used_at, now())
    RETURNING xmax = 0 AS is_new, used_at > clock_timestamp() AS doubtful),
counted AS (
    UPDATE tenants SET blob_bytes = blob_bytes + $3 WHERE tenant_id = $1 AND (SELECT is_new FROM wanted)
    RETURNING blob_bytes, (limits ->> 'bytes')::bigint AS most)
SELECT w.doubtful, coalesce(c.blob_bytes > c.most, false) AS too_much, c.blob_bytes, c.most
  FROM wanted w LEFT JOIN counted c ON true
"""
NAMED = "UPDATE blobs SET named = true WHERE tenant_id = $1 AND digest = $2 AND NOT named"
DUE = "SELECT tenant_id, digest FROM due_blobs($1)"
# Locks the row until the body is deleted: a writer of the same body waits.
TAKE = """
SELECT 1 FROM blobs WHERE tenant_id = $1 AND digest = $2 AND NOT named AND used_at < now() - interval '24 hours' FOR UPDATE
"""
# A deletion whose outcome is unknown may take effect later: nothing stores the body again within a minute. The collector
# tries again a day later, after all bodies that are due now.
PUT_OFF = "UPDATE blobs SET used_at = now() + interval '1 minute' WHERE tenant_id = $1 AND digest = $2"
IS_NAMED = """
SELECT EXISTS (SELECT FROM workspace_versions v WHERE v.tenant_id = $1 AND v.digest = $2)
    OR EXISTS (SELECT FROM artifacts a WHERE a.tenant_id = $1 AND a.digest = $2)
"""
DROP = """
WITH gone AS (DELETE FROM blobs WHERE tenant_id = $1 AND digest = $2 RETURNING size_bytes)
UPDATE tenants SET blob_bytes = blob_bytes - (SELECT size_bytes FROM gone)
 WHERE tenant_id = $1 AND EXISTS (SELECT FROM gone)
"""

# Writers of one workspace wait for each other here.
LOCK = "SELECT files, bytes FROM workspaces WHERE tenant_id = $1 AND thread_id = $2 FOR NO KEY UPDATE"
OPEN = "INSERT INTO workspaces (tenant_id, thread_id) VALUES ($1, $2) ON CONFLICT DO NOTHING"
COUNT = "UPDATE workspaces SET files = files + $3, bytes = bytes + $4 WHERE tenant_id = $1 AND thread_id = $2"
THREAD = "SELECT 1 FROM threads WHERE tenant_id = $1 AND id = $2"
# A deletion of the thread waits for this, or this waits for it.
LOCK_THREAD = f"{THREAD} FOR KEY SHARE"

COLUMNS = """v.thread_id, v.path, v.version, v.digest, v.size_bytes, v.media_type, v.work_id, v.query_id, v.written_by,
 v.forked_from, v.at"""
FILE = f"""
SELECT {COLUMNS} FROM workspace_files f JOIN workspace_versions v ON v.tenant_id = $1 AND v.thread_id = f.thread_id
   AND v.path = f.path AND v.version = f.version WHERE f.tenant_id = $1 AND f.thread_id = $2 AND f.path = $3
"""
VERSION = f"""
SELECT {COLUMNS} FROM workspace_versions v
 WHERE v.tenant_id = $1 AND v.thread_id = $2 AND v.path = $3 AND v.version = $4
"""
OF_CALL = f"SELECT {COLUMNS} FROM workspace_versions v WHERE v.tenant_id = $1 AND v.work_id = $2"
# OFFSET: one index scan for each file, never all versions of the thread.
LIST = f"""
SELECT {COLUMNS} FROM (
       SELECT * FROM workspace_files f
        WHERE f.tenant_id = $1 AND f.thread_id = $2 AND NOT f.deleted AND f.path >= $3 AND ($4::text IS NULL OR f.path < $4)
          AND f.path > $5 ORDER BY f.path LIMIT $6) f CROSS JOIN LATERAL (
       SELECT * FROM workspace_versions w WHERE w.tenant_id = $1 AND w.thread_id = f.thread_id
          AND w.path = f.path AND w.version = f.version OFFSET 0) v
 ORDER BY f.path
"""
FILES_AMONG = """
SELECT path FROM workspace_files WHERE tenant_id = $1 AND thread_id = $2 AND path = ANY ($3) AND NOT deleted LIMIT 1
"""
BELOW = """
SELECT path FROM workspace_files
 WHERE tenant_id = $1 AND thread_id = $2 AND path >= $3 AND path < $4 AND NOT deleted ORDER BY path LIMIT 1
"""
# Of the folders of a path and the path itself, from the top, the first that looks like another file, or like the folder of
# a file. A folder that exists was checked when it was created. OFFSET: one or two index scans for each.
ALIKE = """
SELECT n.path AS name, f.path
  FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS n(path, skeleton, place) CROSS JOIN LATERAL (
       (SELECT path FROM workspace_files WHERE tenant_id = $1 AND thread_id = $2 AND NOT deleted
           AND skeleton = n.skeleton COLLATE "C" AND path <> n.path LIMIT 1)
       UNION ALL
       (SELECT path FROM workspace_files WHERE tenant_id = $1 AND thread_id = $2 AND NOT deleted
           AND skeleton >= (n.skeleton || '/') COLLATE "C" AND skeleton < (n.skeleton || '0') COLLATE "C" LIMIT 1)
       OFFSET 0) f
 WHERE NOT EXISTS (SELECT FROM workspace_files WHERE tenant_id = $1 AND thread_id = $2 AND NOT deleted
                      AND path >= (n.path || '/') COLLATE "C" AND path < (n.path || '0') COLLATE "C" OFFSET 0)
 ORDER BY n.place LIMIT 1
"""
ADD = f"""
INSERT INTO workspace_versions AS v (tenant_id, thread_id, path, version, digest, size_bytes, media_type, work_id, query_id,
       written_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
RETURNING {COLUMNS}
"""
POINT = """
INSERT INTO workspace_files (tenant_id, thread_id, path, version, skeleton, deleted) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, thread_id, path) DO UPDATE SET version = EXCLUDED.version, deleted = EXCLUDED.deleted
"""
# The files of a thread, current or as of a time; a version keeps its number.
# With $5, the newest versions that were published: a file by its digest, a file of a directory by the time.
FORK = """
WITH directories AS MATERIALIZED (
    SELECT path, created_at FROM artifacts
     WHERE $5 AND tenant_id = $1 AND thread_id = $2 AND is_directory AND ($4::timestamptz IS NULL OR created_at <= $4)),
copied AS (
    INSERT INTO workspace_versions (tenant_id, thread_id, path, version, digest, size_bytes, media_type, query_id, written_by,
           forked_from)
    SELECT tenant_id, $3, path, version, digest, size_bytes, media_type, query_id, written_by, thread_id FROM (
        SELECT DISTINCT ON (path) * FROM workspace_versions v
         WHERE v.tenant_id = $1 AND v.thread_id = $2 AND ($4::timestamptz IS NULL OR v.at <= $4)
           AND (NOT $5 OR digest IS NULL
                OR EXISTS (SELECT FROM artifacts a WHERE a.tenant_id = $1 AND a.thread_id = $2 AND a.path = v.path
                              AND a.digest = v.digest AND ($4::timestamptz IS NULL OR a.created_at <= $4) OFFSET 0)
                OR EXISTS (SELECT FROM directories d WHERE starts_with(v.path, d.path || '/') AND v.at <= d.created_at
                              AND NOT EXISTS (SELECT FROM workspace_versions l WHERE l.tenant_id = $1 AND l.thread_id = $2
                                                 AND l.path = v.path AND l.version > v.version AND l.at <= d.created_at)))
         ORDER BY path, version DESC) latest
     WHERE digest IS NOT NULL
    RETURNING path, version, size_bytes),
pointed AS (
    INSERT INTO workspace_files (tenant_id, thread_id, path, version, skeleton)
    SELECT f.tenant_id, $3, f.path, c.version, f.skeleton
      FROM copied c CROSS JOIN LATERAL (
           SELECT * FROM workspace_files w WHERE w.tenant_id = $1 AND w.thread_id = $2 AND w.path = c.path OFFSET 0) f)
SELECT count(*) AS files, coalesce(sum(size_bytes), 0)::bigint AS bytes FROM copied
"""


async def reserve_body(tx: Tx, *, body: StoredBody) -> ReservedBody:
    """Register a body before it is stored."""
    return ReservedBody(**await tx.row(WANT, tx.tenant, body.digest, body.size))


async def mark_named(tx: Tx, *, digest: bytes) -> None:
    await tx.run(NAMED, tx.tenant, digest)


async def due_blobs(db: Database, *, limit: int) -> list[tuple[str, bytes]]:
    """Return the tenants and digests of bodies that may be deleted."""
    return [(row["tenant_id"], bytes.fromhex(row["digest"])) for row in await db.call(DUE, limit)]


async def lock_unnamed(tx: Tx, *, digest: bytes) -> bool:
    return await tx.value(TAKE, tx.tenant, digest) is not None


async def postpone(tx: Tx, *, digest: bytes) -> None:
    await tx.run(PUT_OFF, tx.tenant, digest)


async def is_named(tx: Tx, *, digest: bytes) -> bool:
    return bool(await tx.value(IS_NAMED, tx.tenant, digest))


async def delete_blob(tx: Tx, *, digest: bytes) -> None:
    await tx.run(DROP, tx.tenant, digest)


async def lock(tx: Tx, *, thread_id: str) -> WorkspaceCounts:
    """Return the counts of a workspace, created on first use, and lock it until the transaction ends."""
    row = await tx.row(LOCK, tx.tenant, thread_id)
    if row is None:
        await tx.run(OPEN, tx.tenant, thread_id)
        row = await tx.row(LOCK, tx.tenant, thread_id)
    return WorkspaceCounts(**row)


async def add_counts(tx: Tx, *, thread_id: str, counts: WorkspaceCounts) -> None:
    await tx.run(COUNT, tx.tenant, thread_id, counts.files, counts.bytes)


async def thread_exists(tx: Tx, *, thread_id: str) -> bool:
    return await tx.value(THREAD, tx.tenant, thread_id) is not None


async def lock_thread(tx: Tx, *, thread_id: str) -> bool:
    """Keep a thread from being deleted until the transaction ends. Return whether it exists."""
    return await tx.value(LOCK_THREAD, tx.tenant, thread_id) is not None


async def file(tx: Tx, *, thread_id: str, path: str) -> FileRow | None:
    """Return the last version, deleted or not."""
    return _row(await tx.row(FILE, tx.tenant, thread_id, path))


async def version(tx: Tx, *, thread_id: str, path: str, number: int) -> FileRow | None:
    return _row(await tx.row(VERSION, tx.tenant, thread_id, path, number))


async def version_of_call(tx: Tx, *, work_id: str) -> FileRow | None:
    return _row(await tx.row(OF_CALL, tx.tenant, work_id))


async def list_files(tx: Tx, *, thread_id: str, prefix: str, after: str, limit: int) -> list[FileRow]:
    """Return current files with this prefix after a path."""
    end = prefix_end(prefix) if prefix else None
    return [FileRow(**row) for row in await tx.fetch(LIST, tx.tenant, thread_id, prefix, end, after, limit)]


async def first_file_among(tx: Tx, *, thread_id: str, paths: Sequence[str]) -> str | None:
    path: str | None = await tx.value(FILES_AMONG, tx.tenant, thread_id, list(paths))
    return path


async def first_file_below(tx: Tx, *, thread_id: str, folder: str) -> str | None:
    """Return a file in this folder."""
    path: str | None = await tx.value(BELOW, tx.tenant, thread_id, f"{folder}/", f"{folder}0")
    return path


async def find_lookalike(
    tx: Tx, *, thread_id: str, names: Sequence[str], skeletons: Sequence[str]
) -> tuple[str, str] | None:
    """Return the first of these names that looks like another file or folder, and a file that is it or in
    it."""
    row = await tx.row(ALIKE, tx.tenant, thread_id, list(names), list(skeletons))
    return None if row is None else (row["name"], row["path"])


async def add_version(
    tx: Tx,
    *,
    thread_id: str,
    path: str,
    number: int,
    body: StoredBody | None,
    media_type: str,
    author: FileAuthor,
) -> FileRow:
    """Add a version of a file, without a body for its deletion."""
    digest, size = (None, 0) if body is None else (body.digest, body.size)
    what = (thread_id, path, number, digest, size, media_type)
    return FileRow(**await tx.row(ADD, tx.tenant, *what, author.work_id, author.query_id, author.name))


async def set_current_version(
    tx: Tx, *, thread_id: str, path: str, number: int, skeleton: str, deleted: bool = False
) -> None:
    await tx.run(POINT, tx.tenant, thread_id, path, number, skeleton, deleted)


async def fork(
    tx: Tx, *, thread_id: str, to: str, at: datetime | None, published_only: bool
) -> WorkspaceCounts:
    """Copy the files; return their number and bytes."""
    return WorkspaceCounts(**await tx.row(FORK, tx.tenant, thread_id, to, at, published_only))


def prefix_end(prefix: str) -> str:
    """Return a bound above every path with this prefix, in code point order: no path contains the last code
    point."""
    return prefix + chr(0x10FFFF)


def _row(row: Any) -> FileRow | None:
    return None if row is None else FileRow(**row)
