"""The commands `plangate tenants export` and `plangate tenants import`: which deployment, which keys, and what they print."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from app.api.database_startup import prepare_database
from app.artifacts.chain import Chainer
from app.artifacts.verify import tenant_problems
from app.base.blobs.store import BlobStore
from app.base.keys import CELL_NAME
from app.base.postgres.database import TENANT_ID, Database, open_database
from app.base.sealing import Sealer, derive_key
from app.commands.admin import require_database
from app.deployment import Deployment, find_deployment, open_blobs, prepare_blobs
from app.settings import Settings
from app.tenancy.installation import check_master_key
from app.transfer import moving
from app.transfer.errors import TransferError
from app.transfer.exporting import export_tenant
from app.transfer.frames import TenantManifest
from app.transfer.importing import import_tenant

MIN_PASSPHRASE_CHARS = 12
SHOWN_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The output of an export, and the digests of bodies that could not be saved."""

    lines: list[str]
    lost: list[str]


@dataclass(frozen=True, slots=True)
class _OpenDeployment:
    """A deployment, its database, the keys that its master key gives, and the bodies of its files."""

    deployment: Deployment
    db: Database
    sealer: Sealer
    chainer: Chainer
    blobs: BlobStore


@contextlib.asynccontextmanager
async def _open_site(settings: Settings) -> AsyncIterator[_OpenDeployment]:
    _check_blobs(settings)
    site = await asyncio.to_thread(find_deployment, settings)
    try:
        await prepare_database(site, wait_s=0)
        await check_master_key(site.migrate_dsn, site.master)
        await asyncio.to_thread(prepare_blobs, site.blobs)
        db, blobs = open_database(site.dsn, size=2), open_blobs(site.blobs)
        try:
            yield _OpenDeployment(
                site,
                db,
                Sealer(derive_key(site.master, "secrets")),
                Chainer(derive_key(site.master, "artifacts")),
                blobs,
            )
        finally:
            await blobs.aclose()
            await db.aclose()
    finally:
        await asyncio.to_thread(site.release)


def _check_blobs(settings: Settings) -> None:
    if settings.database_url is not None and settings.blobs is None:
        raise TransferError(
            "PLANGATE_BLOBS is needed with DATABASE_URL: where the service keeps the bodies of files, a directory or "
            "s3://bucket/prefix."
        )


async def export(
    settings: Settings, tenant: str, to: Path, passphrase: str, *, with_secrets: bool, park: bool = False
) -> ExportReport:
    """Write a tenant into a file. With `park`, stop it first, to be moved. Raises TransferError, NotFound and Conflict."""
    _check(tenant, passphrase)
    require_database(settings)
    async with _open_site(settings) as site:
        if park:
            await moving.park(tenant, dsn=site.deployment.migrate_dsn)
        await _check_chains(site, tenant)
        manifest = await export_tenant(
            tenant,
            to,
            passphrase,
            dsn=site.deployment.migrate_dsn,
            sealer=site.sealer,
            blobs=site.blobs,
            version=metadata.version("plangate-server"),
            with_secrets=with_secrets,
        )
    lines = [f"Exported the tenant {tenant} to {to}: {_contents(manifest)}."]
    if park:
        lines.append(
            f"{tenant} is parked: its requests get a 503. After the import, send its users to the other cell: "
            f"plangate tenants redirect {tenant} CELL. To let it continue here instead: plangate tenants resume {tenant}"
        )
    return ExportReport(lines, manifest.lost)


async def _check_chains(site: _OpenDeployment, tenant: str) -> None:
    """Raise TransferError if records of artifacts were changed: the import would give them MACs of their own."""
    problems = [p async for p in tenant_problems(site.db, site.chainer, tenant, {})]
    if problems:
        shown = "\n  ".join(problems[:SHOWN_PROBLEMS])
        raise TransferError(
            f"Records of artifacts of {tenant} are not as the service wrote them, so nothing was exported:\n  {shown}\n"
            "`plangate verify` shows all problems. Restore the records from a backup first."
        )


async def import_file(settings: Settings, file: Path, passphrase: str, *, with_secrets: bool) -> list[str]:
    """Import the file of a tenant. Return what to print. Raises TransferError."""
    async with _open_site(settings) as site:
        if (
            settings.cell is not None
        ):  # first: from now on, another cell that uses this store must not delete bodies in it
            await moving.mark_blobs(settings.cell, blobs=site.blobs)
        imported = await import_tenant(
            file,
            passphrase,
            dsn=site.deployment.migrate_dsn,
            sealer=site.sealer,
            chainer=site.chainer,
            blobs=site.blobs,
            cell=settings.cell,
            with_secrets=with_secrets,
        )
    header, manifest = imported.header, imported.manifest
    lines = [f"Imported the tenant {header.tenant} of {header.created_at}: {_contents(manifest)}."]
    if manifest.lost:
        lines.append(f"Bodies that were lost before the export: {len(manifest.lost)}.")
    if not (with_secrets and header.has_secrets):
        lines.append(
            "It has no keys or secrets. Create them, and register its runtimes again to get new signing secrets."
        )
    lines.append("Cursors of /events from before get a 409 history_rewound.")
    if not header.parked:
        lines.append(
            "The file is a backup of a running tenant: actions that were dispatched after it may be dispatched again."
        )
    if imported.new_keys:
        lines.append(
            "New keys, shown only once (replaced key, principal, new key). The old keys work until you revoke them:"
        )
        lines += [f"{new.replaces}  {new.key.principal}  {new.text}" for new in imported.new_keys]
    return lines


async def resume(settings: Settings, tenant: str) -> None:
    """Let a parked tenant continue here. Raises NotFound and Conflict."""
    require_database(settings)
    async with _open_site(settings) as site:
        await moving.resume(tenant, dsn=site.deployment.migrate_dsn)


async def redirect(settings: Settings, tenant: str, cell: str) -> None:
    """Send the users of a parked tenant to another cell. Raises TransferError, NotFound and Conflict."""
    if not CELL_NAME.fullmatch(cell):
        raise TransferError(
            f"{cell!r} is not the name of a cell: use 1 to 32 lowercase letters, digits and hyphens, with no hyphen at "
            "either end."
        )
    if cell == settings.cell:
        raise TransferError(f"{cell!r} is this cell: name the one that imported the tenant.")
    require_database(settings)
    async with _open_site(settings) as site:
        await moving.redirect(tenant, cell, dsn=site.deployment.migrate_dsn)


def describe_removal(settings: Settings, tenant: str, *, keep_bodies: bool) -> list[str]:
    """Return what `remove` is about to delete. Raises TransferError."""
    _check_blobs(settings)
    where = settings.blobs or str(settings.data_dir / "blobs")
    if keep_bodies:
        return [f"Deletes all rows of the tenant {tenant}. The bodies of its files stay in {where}."]
    return [
        f"Deletes all rows of the tenant {tenant}, and the bodies of its files in {where}.",
        "If the cell that it was moved to keeps its bodies there, too, it loses them: then use --keep-bodies.",
    ]


async def remove(settings: Settings, tenant: str, *, keep_bodies: bool) -> None:
    """Delete what is left of a tenant that was moved. Raises TransferError."""
    require_database(settings)
    async with _open_site(settings) as site:
        await moving.remove(
            tenant, dsn=site.deployment.migrate_dsn, blobs=site.blobs, keep_bodies=keep_bodies
        )


def _check(tenant: str, passphrase: str) -> None:
    if not TENANT_ID.match(tenant):
        raise TransferError(
            "A tenant id is 1 to 63 characters a-z, 0-9, - and _, and begins with a letter or digit."
        )
    if len(passphrase) < MIN_PASSPHRASE_CHARS:
        raise TransferError(f"The passphrase must have at least {MIN_PASSPHRASE_CHARS} characters.")


def _contents(manifest: TenantManifest) -> str:
    rows = sum(count.rows for count in manifest.tables.values())
    return f"{_count(rows, 'row', 'rows')} and {_count(manifest.bodies, 'body', 'bodies')} of files"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
