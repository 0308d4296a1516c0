"""Restoring: the bodies first, then the database in one transaction, which also begins another history."""

from __future__ import annotations

import asyncio
import base64
import secrets
from pathlib import Path
from typing import Any

from app.backup import archive, programs, store
from app.backup.archive import Manifest
from app.backup.children import running
from app.backup.copying import copy_bodies
from app.backup.errors import BackupError
from app.base.blobs.local import LocalBlobs
from app.base.blobs.store import BlobStore
from app.base.postgres import hosts
from app.base.postgres.migrate import MIGRATION_LOCK, schema_revisions
from app.base.sealing import Sealer, UnsealError, derive_key


def check_backup(folder: Path) -> Manifest:
    """Return the manifest of a backup whose files are the ones that were written. The bodies are checked as they are
    copied. Reads the whole dump.

    Raises:
        BackupError: the backup is not whole, damaged, or of a newer version.
    """
    manifest = archive.read_manifest(folder)
    if manifest.schema_revision not in schema_revisions():
        raise BackupError(
            f"{folder} was made by Plangate {manifest.plangate} with the schema {manifest.schema_revision}, which this "
            "version does not know. Restore it with that version or a newer one."
        )
    archive.check_part(folder, archive.DUMP, manifest.database)
    archive.check_part(folder, archive.BLOB_LIST, manifest.blob_list)
    return manifest


def check_key(manifest: Manifest, master: bytes) -> None:
    """Raise BackupError unless this master key opens what the backup holds."""
    if manifest.marker is None:
        return
    try:
        Sealer(derive_key(master, "installation")).open(base64.b64decode(manifest.marker), "installation")
    except UnsealError as error:
        raise BackupError(
            "The secret key is not the one that this backup was sealed with, so its secrets could not be opened. Set "
            "PLANGATE_SECRET_KEY to that key, or with the embedded Postgres put its file into DATA_DIR/secret-key."
        ) from error


async def restore(folder: Path, manifest: Manifest, dsn: str, blobs: BlobStore) -> int:
    """Restore a backup into the empty database of `dsn`, whose login must own it. Return how many bodies were copied.

    The database changes in one transaction at the end: after an error it is empty, and the restore can be repeated.

    Raises:
        BackupError: the database is not empty, or does not take the backup.
        StoreUnavailable: the bodies cannot be stored.
    """
    connection = await hosts.connect(dsn, timeout=programs.CONNECT_SECONDS)
    try:
        await connection.execute(store.LET_IT_TAKE_TIME)
        # Processes of the service that start now wait for this lock before they create a schema.
        if not await connection.fetchval(store.TRY_LOCK, MIGRATION_LOCK):
            raise BackupError("Another process restores or migrates this database. Wait for it to end.")
        facts = await connection.fetchrow(store.FACTS)
        await _check_target(connection, facts, manifest)
        chosen = programs.choose(manifest.postgres_major, await asyncio.to_thread(programs.installed))
        await connection.execute(store.MAKE_ROLES)
        missing = [row["role"] for row in await connection.fetch(store.MISSING_ROLES, manifest.roles)]
        if missing:
            raise BackupError(
                f"The backup grants rights to roles that do not exist here: {', '.join(missing)}. Create them first."
            )
        count = await _restore_bodies(folder, manifest, blobs)
        await _load(chosen, dsn, folder / archive.DUMP, manifest.scan_functions)
        return count
    finally:
        await connection.close()


async def _check_target(connection: Any, facts: Any, manifest: Manifest) -> None:
    database = facts["database"]
    existing = await connection.fetchval(store.NOT_EMPTY)
    if existing is not None:
        raise BackupError(
            f"The database {database!r} is not empty: it has {existing}. A restore accepts only an empty database: use a new "
            "one, or a new data directory."
        )
    if await connection.fetchval(store.SERVICES):
        raise BackupError(
            f"Processes of Plangate are connected to the database {database!r}. Stop them, then restore."
        )
    if facts["major"] < manifest.postgres_major:
        raise BackupError(
            f"The backup was made on PostgreSQL {manifest.postgres}, and the server of {database!r} is {facts['version']}. "
            f"Restore it into PostgreSQL {manifest.postgres_major} or newer."
        )


async def _restore_bodies(folder: Path, manifest: Manifest, blobs: BlobStore) -> int:
    if manifest.bodies.store != "directory":
        return 0
    source = LocalBlobs(folder / archive.BLOBS)
    count, _, lost = await copy_bodies(archive.bodies(folder), source, blobs)
    damaged = {body.digest for body in lost if body.named}.difference(manifest.bodies.lost)
    if damaged:
        raise BackupError(
            f"{folder / archive.BLOBS} is damaged: {len(damaged)} bodies are missing or not what was saved, such as "
            f"{min(damaged)}. The database was not changed. Use another backup."
        )
    return count


async def _load(chosen: programs.Programs, dsn: str, dump: Path, functions: list[str]) -> None:
    """Restore the dump in one transaction, and commit only after all of it was read."""
    url, env = programs.login(dsn)
    psql = ("-X", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1", f"--dbname={url}", "--file=-")
    pipe = asyncio.subprocess.PIPE
    async with (
        running(
            chosen.folder / "pg_restore", "--no-owner", "--file=-", str(dump), env=env, stdout=pipe
        ) as reader,
        running(chosen.folder / "psql", *psql, env=env, stdin=pipe) as writer,
    ):
        source, target = reader.process.stdout, writer.process.stdin
        assert source is not None and target is not None
        try:
            target.write(b"BEGIN;\n")
            while data := await source.read(1024 * 1024):
                target.write(data)
                await target.drain()
            await reader.succeed()
            target.write(store.finish(functions, secrets.randbits(62)).encode())
            await target.drain()
            target.close()
        except (BrokenPipeError, ConnectionResetError):
            pass  # psql ended at an error, and says which
        await writer.succeed()
