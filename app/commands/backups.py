"""The commands `plangate backup` and `plangate restore`: which database, which bodies, and what they print."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from app.backup import restore as restoring
from app.backup import save as saving
from app.backup.archive import Manifest
from app.backup.errors import BackupError
from app.base import embedded_postgres
from app.base.sealing import derive_key
from app.commands.admin import require_database
from app.deployment import find_deployment, open_blobs, prepare_blobs
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The output of a backup, and the digests of bodies that could not be saved."""

    lines: list[str]
    lost: list[str]


async def save(settings: Settings, to: Path) -> BackupReport:
    """Save the database that the settings name and its bodies. Raises BackupError and NotFound."""
    require_database(settings)
    if settings.database_url is None:
        blobs = settings.blobs or str(settings.data_dir / "blobs")
        postgres = await asyncio.to_thread(embedded_postgres.start, settings.data_dir, create=False)
        try:
            manifest = await _save(postgres.dsn(user=embedded_postgres.BACKUP), blobs, to)
        finally:
            await asyncio.to_thread(postgres.release)
    else:
        if settings.blobs is None:
            raise BackupError(
                "PLANGATE_BLOBS is needed with DATABASE_URL: where the service keeps the bodies of files, a directory or "
                "s3://bucket/prefix."
            )
        blobs = settings.blobs
        dsn = settings.backup_url or settings.migrate_url or settings.database_url
        manifest = await _save(dsn, blobs, to)
    return BackupReport(_report(settings, manifest, to, blobs), manifest.bodies.lost)


async def _save(dsn: str, blobs: str, to: Path) -> Manifest:
    return await saving.save(dsn, blobs, to, metadata.version("plangate-server"))


def _report(settings: Settings, manifest: Manifest, to: Path, blobs: str) -> list[str]:
    database = f"the database ({_size(manifest.database.bytes)}, PostgreSQL {manifest.postgres})"
    bodies = f"{manifest.bodies.count} bodies of files ({_size(manifest.bodies.bytes)})"
    local = manifest.bodies.store == "directory"
    lines = [f"Saved {database}{f' and {bodies}' if local else ''} to {to}"]
    if not local:
        lines.append(f"Not in the backup: the bodies of files in {blobs}. Save the bucket after this backup.")
    key = "PLANGATE_SECRET_KEY"
    if settings.database_url is None and settings.secret_key is None:
        key = str(settings.data_dir / "secret-key")
    lines.append(
        f"Not in the backup: the secret key ({key}). Save it in another place: the backup is of no use without it."
    )
    return lines


async def restore(settings: Settings, folder: Path) -> list[str]:
    """Restore a backup into the empty database that the settings name. Return what to print. Raises BackupError."""
    manifest = await asyncio.to_thread(restoring.check_backup, folder)
    if settings.database_url is not None and settings.blobs is None:
        raise BackupError(
            "PLANGATE_BLOBS is needed with DATABASE_URL: where the service is to find the bodies of files, a directory or "
            "s3://bucket/prefix."
        )
    if settings.database_url is None:
        _check_embedded_key(settings, manifest)
    site = await asyncio.to_thread(find_deployment, settings)
    try:
        restoring.check_key(manifest, site.master)
        await asyncio.to_thread(prepare_blobs, site.blobs)
        blobs = open_blobs(site.blobs)
        try:
            count = await restoring.restore(folder, manifest, site.migrate_dsn, blobs)
        finally:
            await blobs.aclose()
    finally:
        await asyncio.to_thread(site.release)
    lines = [
        f"Restored the database of {manifest.created_at} and {count} bodies of files. Start the service."
    ]
    if manifest.bodies.store == "bucket":
        lines.append("The backup has no bodies of files: restore the bucket, and set PLANGATE_BLOBS to it.")
    lines.append(
        "Cursors from before are answered 409 history_rewound. Actions that were dispatched after the backup may be "
        "dispatched again."
    )
    return lines


def _check_embedded_key(settings: Settings, manifest: Manifest) -> None:
    """Check the secret key before anything is created: the service would create another one where there is none."""
    text = settings.secret_key
    if text is None:
        path = settings.data_dir / "secret-key"
        try:
            text = path.read_text("utf-8").strip()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise BackupError(
                f"The secret key of the backup is needed: put its file into {path}, readable by its owner only, or set "
                "PLANGATE_SECRET_KEY."
            ) from error
    restoring.check_key(manifest, derive_key(text.encode(), "master"))


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count} bytes"
