"""What is in the file of a tenant: a header, bodies of files, sealed rows, rows of tables, and a manifest at the end."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from app.base.postgres.database import TENANT_ID
from app.transfer.encryption import EncryptedReader
from app.transfer.errors import TransferError

FORMAT: Final = 1


class Kind(enum.Enum):
    """What a frame holds. A BODY is followed by PIECEs, and its END or LOST."""

    HEADER = b"H"
    BODY = b"B"
    PIECE = b"P"
    END = b"E"
    LOST = b"L"
    SEALED = b"S"
    TABLE = b"T"
    ROWS = b"R"
    MANIFEST = b"M"


class FileFrame(NamedTuple):
    kind: Kind
    data: bytes


class _FilePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(_FilePart):
    """What an import needs to know before it begins. `columns` are the names and types of each table's columns.

    `parked`: the tenant was parked before the export, so that it can continue elsewhere.
    """

    format: int
    plangate: str
    created_at: str
    tenant: str
    schema_revision: str
    columns: dict[str, list[str]]
    parked: bool
    has_secrets: bool


class RowCount(_FilePart):
    """The rows of a table: their number, bytes and SHA-256, as they are in the file."""

    rows: int
    bytes: int
    sha256: str


class TenantManifest(_FilePart):
    """What the file holds. `lost` are digests of bodies that the blob store had lost before the export."""

    tables: dict[str, RowCount]
    bodies: int
    body_bytes: int
    lost: list[str]


class Writer(Protocol):
    def write(self, data: bytes) -> None: ...


def write_frame(writer: Writer, kind: Kind, data: bytes = b"") -> None:
    writer.write(kind.value + len(data).to_bytes(4) + data)


def write_json(writer: Writer, kind: Kind, value: Any) -> None:
    write_frame(writer, kind, orjson.dumps(value))


def read_frames(reader: EncryptedReader) -> Iterator[FileFrame]:
    """Yield the frames up to the manifest, which is the last one. Raise TransferError."""
    while True:
        head = reader.read(5)
        try:
            kind = Kind(head[:1])
        except ValueError:
            raise TransferError("The file was written by another version of Plangate.") from None
        yield FileFrame(kind, reader.read(int.from_bytes(head[1:])))
        if kind is Kind.MANIFEST:
            if not reader.is_at_end():
                raise TransferError("The file continues after its manifest: it was not written by Plangate.")
            return


def parse_header(frame: FileFrame) -> Header:
    """Return the header. Raise TransferError for a file of another format."""
    fields = orjson.loads(frame.data)
    if frame.kind is not Kind.HEADER or fields.get("format") != FORMAT:
        raise TransferError("The file was written by another version of Plangate: import it with that one.")
    try:
        header = Header.model_validate(fields)
    except ValidationError as error:
        raise TransferError("The header of the file is not valid.") from error
    if not TENANT_ID.match(header.tenant):
        raise TransferError(f"The file names {header.tenant!r}, which cannot be the id of a tenant.")
    return header


@dataclass(slots=True)
class Tally:
    """Counts what is written or read, for the manifest. The two are compared."""

    bodies: int = 0
    body_bytes: int = 0
    lost: list[str] = field(default_factory=list)
    _tables: dict[str, list[Any]] = field(default_factory=dict)

    def add_rows(self, table: str, rows: int, data: bytes) -> None:
        counted = self._tables.setdefault(table, [0, 0, hashlib.sha256()])
        counted[0] += rows
        counted[1] += len(data)
        counted[2].update(data)

    def add_body(self, size: int) -> None:
        self.bodies += 1
        self.body_bytes += size

    def manifest(self) -> TenantManifest:
        tables = {
            t: RowCount(rows=c[0], bytes=c[1], sha256=c[2].hexdigest()) for t, c in self._tables.items()
        }
        return TenantManifest(tables=tables, bodies=self.bodies, body_bytes=self.body_bytes, lost=self.lost)
