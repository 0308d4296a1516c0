"""Saving: a dump of one snapshot first, then the bodies that this snapshot names.

Nothing is lost between the two: a body is stored before a row names it, it never changes, and it is collected at the
earliest a day after the last row that named it was deleted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.backup import archive, programs, store
from app.backup.archive import Bodies, Body, Manifest
from app.backup.children import running
from app.backup.copying import copy_bodies
from app.backup.errors import BackupError
from app.base.blobs.local import LocalBlobs
from app.base.blobs.store import StoreUnavailable
from app.base.postgres import hosts

READ_AT_ONCE = 1000


async def save(dsn: str, blobs: str, to: Path, version: str) -> Manifest:
    """Save the database of `dsn`, and the bodies in `blobs` unless that is a bucket, to the new directory `to`.

    Raises:
        BackupError: nothing was saved; the message says why.
        StoreUnavailable: the bodies cannot be read, or the disk of the backup is full.
    """
    connection = await hosts.connect(dsn, timeout=programs.CONNECT_SECONDS)
    try:
        await connection.execute(store.LET_IT_TAKE_TIME)
        facts = await connection.fetchrow(store.FACTS)
        _check(facts)
        chosen = programs.choose(facts["major"], await asyncio.to_thread(programs.installed))
        with archive.new_folder(to) as folder, _full_disk_named(to):
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                manifest = await _dump(connection, facts, dsn, chosen, folder)
            bodies = await _save_bodies(blobs, folder.path)
            whole = Manifest(**manifest, plangate=version, bodies=bodies)
            await asyncio.to_thread(
                _write, folder.path / archive.MANIFEST, whole.model_dump_json(indent=2).encode()
            )
            return whole
    finally:
        await connection.close()


@contextlib.contextmanager
def _full_disk_named(to: Path) -> Iterator[None]:
    """Turn the error of a full disk into a BackupError that names the directory on that disk."""
    try:
        yield
    except (OSError, StoreUnavailable) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BackupError(
                f"Nothing was saved: the disk of {to} is full. Free some space, or name another place."
            ) from error
        raise


def _check(facts: Any) -> None:
    if not facts["has_schema"]:
        raise BackupError(
            f"The database {facts['database']!r} has no schema of Plangate. Name the database that the service uses."
        )
    if not facts["reads_all"]:
        raise BackupError(
            f"The login {facts['login']!r} does not see all rows: row-level security is forced for it. Back up with a login of "
            "its own, which the service never uses, and set PLANGATE_BACKUP_URL to it:\n"
            "  CREATE ROLE plangate_backup LOGIN PASSWORD '...' BYPASSRLS IN ROLE pg_read_all_data;"
        )


async def _dump(
    connection: Any, facts: Any, dsn: str, chosen: programs.Programs, folder: archive.NewFolder
) -> dict[str, Any]:
    """Dump the snapshot of the open transaction, and list what else a restore needs of it."""
    snapshot = await connection.fetchval(store.EXPORT_SNAPSHOT)
    marker = await connection.fetchval(store.MARKER)
    with _create(folder.path / archive.BLOB_LIST) as lines:
        if facts["has_blobs"]:
            async for row in connection.cursor(store.BLOBS, prefetch=READ_AT_ONCE):
                body = Body(row["tenant_id"], row["digest"].hex(), row["size_bytes"], row["named"])
                lines.write(archive.write_body(body))
        lines.flush()
        os.fsync(lines.fileno())
    url, env = programs.login(dsn)
    arguments = ["--format=custom", "--no-password", f"--snapshot={snapshot}", f"--dbname={url}"]
    dump = folder.path / archive.DUMP
    pg_dump, inherited = chosen.folder / "pg_dump", (folder.lock,)
    async with running(pg_dump, *arguments, f"--file={dump}", env=env, inherited=inherited) as child:
        await child.succeed()
    return {
        "format": archive.FORMAT,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "schema_revision": await connection.fetchval(store.REVISION),
        "postgres": facts["version"],
        "postgres_major": facts["major"],
        "database": await asyncio.to_thread(archive.part, dump),
        "blob_list": await asyncio.to_thread(archive.part, folder.path / archive.BLOB_LIST),
        "marker": None if marker is None else base64.b64encode(marker).decode(),
        "roles": [row["role"] for row in await connection.fetch(store.ROLES)],
        "scan_functions": [row["function"] for row in await connection.fetch(store.SCAN_FUNCTIONS)],
    }


async def _save_bodies(blobs: str, folder: Path) -> Bodies:
    if "://" in blobs:
        return Bodies(store="bucket")
    target = LocalBlobs(folder / archive.BLOBS)
    await asyncio.to_thread(target.prepare)
    count, size, lost = await copy_bodies(archive.bodies(folder), LocalBlobs(Path(blobs)), target)
    # What nothing names may be collected, or still be on its way in.
    return Bodies(
        store="directory", count=count, bytes=size, lost=[body.digest for body in lost if body.named]
    )


def _create(path: Path) -> Any:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _write(path: Path, data: bytes) -> None:
    with _create(path) as file:
        file.write(data + b"\n")
        file.flush()
        os.fsync(file.fileno())
