"""Write a tenant into an encrypted file: one snapshot of its rows, and the bodies that they name."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from app.base.blobs.store import BlobLost, BlobStore
from app.base.clock import rfc3339
from app.base.sealing import Sealer, UnsealError
from app.transfer import store
from app.transfer.encryption import EncryptedWriter
from app.transfer.errors import TransferError
from app.transfer.frames import FORMAT, Header, Kind, Tally, TenantManifest, write_frame, write_json
from app.transfer.tables import CREDENTIALS, SEALED, TABLES

ROWS_FRAME_BYTES: Final = 1024 * 1024
"""The size of a frame of rows, which one transaction of the import inserts. A larger row has a frame of its own."""


async def export_tenant(
    tenant: str,
    to: Path,
    passphrase: str,
    *,
    dsn: str,
    sealer: Sealer,
    blobs: BlobStore,
    version: str,
    with_secrets: bool = True,
) -> TenantManifest:
    """Write a tenant into the new file `to`, which only its owner can read. After an error there is no such file.

    `dsn`: the login that owns the schema. `version`: of Plangate, for messages.

    Raises:
        TransferError: there is no such tenant, it is not here in full, or its secrets cannot be opened.
        StoreUnavailable: the blob store does not work.
    """
    async with store.open_snapshot(dsn, tenant) as connection:
        state = await store.state(connection, tenant)
        if state not in ("active", "parked"):
            raise TransferError(_STATES[state].format(tenant=tenant))
        header = Header(
            format=FORMAT,
            plangate=version,
            created_at=rfc3339(datetime.now(UTC)),
            tenant=tenant,
            schema_revision=await store.revision(connection),
            columns={
                table: columns
                for table, columns in (await store.columns_of_tables(connection)).items()
                if table in SEALED or table in TABLES
            },
            parked=state == "parked",
            has_secrets=with_secrets,
        )
        with _new_file(to) as file:
            writer = EncryptedWriter(file, passphrase)
            export = _Export(connection, writer, header, sealer)
            await export.write_bodies(blobs)
            await export.write_sealed()
            await export.write_tables()
            manifest = export.write_manifest()
            writer.close()
    return manifest


_STATES: Final = {
    None: "There is no tenant {tenant!r}.",
    "moved": "The tenant {tenant!r} was moved to another cell: export it there.",
    "importing": "The tenant {tenant!r} is not here in full: its import did not end. Run the import again.",
}


class _Export:
    """One export, frame by frame."""

    def __init__(self, connection: Any, writer: EncryptedWriter, header: Header, sealer: Sealer) -> None:
        self._connection = connection
        self._writer = writer
        self._header = header
        self._tenant = header.tenant
        self._sealer = sealer
        self._tally = Tally()
        write_frame(writer, Kind.HEADER, header.model_dump_json().encode())

    async def write_bodies(self, blobs: BlobStore) -> None:
        """Write the bodies of the snapshot. A body that the blob store has lost is listed in the manifest."""
        async for row in store.bodies(self._connection, self._tenant):
            digest, size = row["digest"], row["size_bytes"]
            write_json(self._writer, Kind.BODY, {"digest": digest.hex(), "size": size})
            try:
                async for piece in blobs.read(self._tenant, digest, size):
                    write_frame(self._writer, Kind.PIECE, piece)
            except BlobLost:
                write_frame(self._writer, Kind.LOST)
                if row["named"]:  # a body that nothing names may be collected meanwhile
                    self._tally.lost.append(digest.hex())
            else:
                write_frame(self._writer, Kind.END)
                self._tally.add_body(size)

    async def write_sealed(self) -> None:
        """Write the rows of tables with sealed values, with the values opened."""
        for table, sealed in SEALED.items():
            if sealed.is_optional and not self._header.has_secrets:
                continue
            async for rows in store.sealed_rows(self._connection, self._tenant, table):
                for row in rows:
                    for column in sealed.columns:
                        row[column] = self._open(row[column], sealed.context(self._tenant, row), table)
                    if table == "tenants" and not self._header.has_secrets:
                        row["reference_secret"] = None
                write_json(self._writer, Kind.SEALED, {"table": table, "rows": rows})

    def _open(self, stored: str | None, context: str, table: str) -> str | None:
        if stored is None:
            return None
        try:
            plain = self._sealer.open(bytes.fromhex(stored.removeprefix("\\x")), context)
        except UnsealError as error:
            raise TransferError(f"A value in the table {table} cannot be opened: {error}.") from error
        return base64.b64encode(plain).decode()

    async def write_tables(self) -> None:
        """Write the rows of all other tables."""
        for table in TABLES:
            if table in CREDENTIALS and not self._header.has_secrets:
                continue
            if table == "sessions" and not self._header.parked:
                continue  # a session that ended after a backup must not come back
            write_frame(self._writer, Kind.TABLE, table.encode())
            rows = _Rows(self._writer, self._tally, table)
            columns = store.names(table, self._header.columns[table])
            await store.copy_rows(self._connection, self._tenant, table, columns, rows.write)
            rows.flush()

    def write_manifest(self) -> TenantManifest:
        manifest = self._tally.manifest()
        write_frame(self._writer, Kind.MANIFEST, manifest.model_dump_json().encode())
        return manifest


class _Rows:
    """Writes rows in frames of whole rows."""

    def __init__(self, writer: EncryptedWriter, tally: Tally, table: str) -> None:
        self._writer = writer
        self._tally = tally
        self._table = table
        self._buffer = bytearray()

    async def write(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) >= ROWS_FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the whole rows of the buffer. COPY ends every row, and nothing else, with a newline."""
        end = self._buffer.rfind(b"\n") + 1
        if end:
            data = bytes(self._buffer[:end])
            del self._buffer[:end]
            self._tally.add_rows(self._table, data.count(b"\n"), data)
            write_frame(self._writer, Kind.ROWS, data)


@contextmanager
def _new_file(to: Path) -> Iterator[BinaryIO]:
    """Yield a file that becomes `to` after the block. After an error it is removed. Raise TransferError."""
    if os.path.lexists(to):
        raise TransferError(f"{to} exists already. Name a file that does not exist; the export creates it.")
    part = to.with_name(f"{to.name}.partial")
    try:
        part.unlink(missing_ok=True)  # of an export that was killed
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise TransferError(f"{part} cannot be created: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb", buffering=1024 * 1024) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(part, to)  # unlike a rename, it replaces nothing
        part.unlink()
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise TransferError(f"{to} cannot be written: {error.strerror}.") from error
        raise
