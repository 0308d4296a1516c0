"""Read the file of a tenant into another deployment. Until the end, nobody sees the tenant there."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from app.artifacts.chain import Chainer
from app.artifacts.moved_chains import restart_chains
from app.base.blobs.store import BlobStore
from app.base.postgres.database import Tx
from app.base.sealing import Sealer
from app.tenancy.moves import ReplacementKey, finish_import, replace_keys
from app.transfer import store
from app.transfer.encryption import EncryptedReader
from app.transfer.errors import TransferError
from app.transfer.frames import FileFrame, Header, Kind, Tally, TenantManifest, parse_header, read_frames
from app.transfer.tables import CREDENTIALS, DELETION_ORDER, SEALED, TABLES

SETTLE_INTERVAL_S: Final = 0.2
SETTLE_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ImportedTenant:
    """What an import read."""

    header: Header
    manifest: TenantManifest
    new_keys: list[ReplacementKey]


async def import_tenant(
    path: Path,
    passphrase: str,
    *,
    dsn: str,
    sealer: Sealer,
    chainer: Chainer,
    blobs: BlobStore,
    cell: str | None = None,
    with_secrets: bool = True,
) -> ImportedTenant:
    """Read the file of a tenant that does not exist here. `dsn`: the login that owns the schema.

    If the tenant was parked for a move, each of its keys gets a new one, which names `cell`.

    The rows are inserted in batches, so a large tenant delays no stream of the others. After an error the tenant is not
    visible, and the import can be run again: it first deletes what the last one left.

    Raises:
        TransferError: the file is damaged, truncated, of another passphrase or schema; or the tenant exists.
        StoreUnavailable: the blob store does not work.
    """
    with _open(path) as file:
        frames = read_frames(EncryptedReader(file, passphrase))
        header = parse_header(next(frames))
        async with store.open_session(dsn, header.tenant) as connection:
            await _check_schema(connection, header)
            await _claim(connection, header.tenant)
            keep_secrets = with_secrets and header.has_secrets
            reading = _Import(connection, header, sealer, blobs, keep_secrets=keep_secrets)
            manifest = await reading.run(frames)
            await restart_chains(Tx(connection, header.tenant), chainer)
            new_keys = await replace_keys(Tx(connection, header.tenant), cell) if header.parked else []
            await _wait_until_settled(connection)
            await finish_import(connection, header.tenant)
    return ImportedTenant(header, manifest, new_keys)


def _open(path: Path) -> Any:
    try:
        return path.open("rb", buffering=1024 * 1024)
    except OSError as error:
        raise TransferError(f"{path} cannot be read: {error.strerror}.") from error


async def _check_schema(connection: Any, header: Header) -> None:
    """Raise TransferError unless the tables are those of the file."""
    here = await store.revision(connection)
    if header.schema_revision != here:
        if header.schema_revision > here:
            age, advice = "a newer", "Upgrade this deployment to that version, and import again."
        else:
            age, advice = "an older", "Upgrade the deployment that wrote the file, and export again."
        raise TransferError(
            f"The file has the schema {header.schema_revision} of {age} version of Plangate ({header.plangate}), and this "
            f"database has {here}. {advice}"
        )
    existing = await store.columns_of_tables(connection)
    different = sorted(t for t, columns in header.columns.items() if existing.get(t) != columns)
    if different or {*SEALED, *TABLES} - header.columns.keys():
        raise TransferError(
            f"The file was written by another version of Plangate ({header.plangate}), whose tables differ: "
            f"{', '.join(different) or 'some are missing'}. Upgrade the older deployment, and export or import again."
        )


async def _claim(connection: Any, tenant: str) -> None:
    """Raise TransferError if the tenant exists, or is being imported. Delete what an earlier import left."""
    if not await store.lock_import(connection, tenant):
        raise TransferError(
            f"The tenant {tenant!r} is being imported by another process. Wait for it to end."
        )
    state = await store.state(connection, tenant)
    if state == "importing":
        await store.delete_tenant(connection, tenant, DELETION_ORDER)
    elif state is not None:
        raise TransferError(
            f"The tenant {tenant!r} exists here already; nothing was changed. An import only creates tenants."
        )


async def _wait_until_settled(connection: Any) -> None:
    """Wait until no transaction is open that began before the last batch: a stream that starts at the oldest open
    transaction would send all imported events as new."""
    last = await store.current_xid(connection)
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while await store.oldest_open_xid(connection) <= last:
        if time.monotonic() >= deadline:
            raise TransferError(
                "Another transaction of this database server stays open for too long, so the import cannot end. End that "
                "transaction, and run the import again."
            )
        await asyncio.sleep(SETTLE_INTERVAL_S)


class _Import:
    """One import, frame by frame."""

    def __init__(
        self, connection: Any, header: Header, sealer: Sealer, blobs: BlobStore, *, keep_secrets: bool
    ) -> None:
        self._connection = connection
        self._header = header
        self._tenant = header.tenant
        self._sealer = sealer
        self._blobs = blobs
        self._keep_secrets = keep_secrets
        self._tally = Tally()
        self._table = ""
        self._has_tenant = False

    async def run(self, frames: Iterator[FileFrame]) -> TenantManifest:
        """Read all frames after the header. Return the manifest, which agrees with what was read."""
        for frame in frames:
            match frame.kind:
                case Kind.BODY:
                    await self._read_body(frame, frames)
                case Kind.SEALED:
                    await self._read_sealed(frame)
                case Kind.TABLE:
                    self._table = frame.data.decode()
                case Kind.ROWS:
                    await self._read_rows(frame.data)
                case Kind.MANIFEST:
                    self._require_tenant()
                    manifest = TenantManifest.model_validate_json(frame.data)
                    counted = self._tally.manifest().model_copy(update={"lost": manifest.lost})
                    if counted != manifest:
                        raise TransferError("The file does not hold what its manifest says: export it again.")
                    return manifest
                case _:
                    raise TransferError("The frames of the file are in an unknown order: export it again.")
        raise TransferError("The file has no manifest: it was not written completely.")

    async def _read_body(self, first: FileFrame, frames: Iterator[FileFrame]) -> None:
        body = orjson.loads(first.data)
        async with self._blobs.spool() as spool:
            for frame in frames:
                if frame.kind is not Kind.PIECE:
                    break
                await spool.write(frame.data)
            if frame.kind is Kind.END:
                if await spool.end() != bytes.fromhex(body["digest"]) or spool.size != body["size"]:
                    raise TransferError(f"The body {body['digest']} is damaged: export the tenant again.")
                await self._blobs.keep(self._tenant, spool)
                self._tally.add_body(spool.size)

    async def _read_sealed(self, frame: FileFrame) -> None:
        content = orjson.loads(frame.data)
        table, sealed = content["table"], SEALED[content["table"]]
        if sealed.is_optional and not self._keep_secrets:
            return
        for row in content["rows"]:
            if row["tenant_id"] != self._tenant:
                raise TransferError(f"The file has rows of another tenant than {self._tenant!r}.")
            if table != "tenants":
                self._require_tenant()
            else:
                self._has_tenant = True
                row.update(state="importing", moved_to=None)
                if row["reference_secret"] is None or not self._keep_secrets:
                    row["reference_secret"] = base64.b64encode(os.urandom(32)).decode()
            for column in sealed.columns:
                if row[column] is not None:
                    plain = base64.b64decode(row[column])
                    row[column] = "\\x" + self._sealer.seal(plain, sealed.context(self._tenant, row)).hex()
            await store.insert_sealed_row(self._connection, table, row)

    def _require_tenant(self) -> None:
        """Raise TransferError unless the row of the tenant was read: without it, the rows would be those of a tenant that is
        created later."""
        if not self._has_tenant:
            raise TransferError("The file does not begin with its tenant: export it again.")

    async def _read_rows(self, data: bytes) -> None:
        table = self._table
        if table not in TABLES:
            raise TransferError(f"The file has rows of an unknown table {table!r}.")
        self._require_tenant()
        count = data.count(b"\n")
        self._tally.add_rows(table, count, data)
        if table in CREDENTIALS and not self._keep_secrets:
            return
        columns = store.names(table, self._header.columns[table])
        if await store.insert_rows(self._connection, table, columns, data) != count:
            raise TransferError(
                f"The table {table} of the file has rows of another tenant than {self._tenant!r}, or that no export writes."
            )
