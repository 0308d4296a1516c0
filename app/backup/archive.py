"""The directory of a backup: its parts and its manifest. It is complete or does not exist."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.backup.errors import BackupError

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
DUMP: Final = "database.dump"
BLOBS: Final = "blobs"
BLOB_LIST: Final = "blobs.jsonl"
PARTS: Final = frozenset({MANIFEST, DUMP, BLOBS, BLOB_LIST})


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(_Model):
    """A file of the backup."""

    bytes: int
    sha256: str


class Bodies(_Model):
    """The bodies that the database names. `store` is "directory", or "bucket" for bodies that are saved separately;
    `lost` are digests of bodies that were not readable when the backup was made."""

    store: str
    count: int = 0
    bytes: int = 0
    lost: list[str] = Field(default_factory=list)


class Manifest(_Model):
    """The contents of a backup, and what a restore needs to know before it begins."""

    format: int
    plangate: str
    created_at: str
    schema_revision: str
    postgres: str
    postgres_major: int
    database: Part
    blob_list: Part
    bodies: Bodies
    marker: str | None
    """The base64 of what the secret key sealed; only that key opens it."""
    roles: list[str]
    scan_functions: list[str]


class Body(NamedTuple):
    """A line of the list of bodies."""

    tenant: str
    digest: str
    size: int
    named: bool


def write_body(body: Body) -> bytes:
    return json.dumps(body).encode() + b"\n"


def bodies(folder: Path) -> Iterator[Body]:
    """Return the bodies that are listed in a backup, one at a time: there may be millions."""
    with (folder / BLOB_LIST).open("rb") as lines:
        for line in lines:
            yield Body(*json.loads(line))


def part(path: Path) -> Part:
    """Return the size and digest of a file. Reads the whole file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Part(bytes=os.fstat(file.fileno()).st_size, sha256=digest)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a backup.

    Raises:
        BackupError: it is no backup, or one that this version cannot read.
    """
    try:
        text = (folder / MANIFEST).read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BackupError(
            f"{folder} is not a backup: it has no {MANIFEST}. Name the directory that `plangate backup` wrote."
        ) from error
    try:
        fields = json.loads(text)
        if isinstance(fields, dict) and fields.get("format") != FORMAT:
            raise BackupError(
                f"{folder} has the backup format {fields.get('format')!r}, and this version reads {FORMAT}. "
                "Restore it with the version of Plangate that wrote it."
            )
        return Manifest.model_validate(fields)
    except (ValueError, ValidationError) as error:
        raise BackupError(f"{folder / MANIFEST} is damaged: use another backup.") from error


def check_part(folder: Path, name: str, expected: Part) -> None:
    """Raise BackupError unless the file has the size and digest of the manifest."""
    try:
        actual = part(folder / name)
    except FileNotFoundError as error:
        raise BackupError(f"{folder / name} is missing: the backup is not whole. Use another one.") from error
    if actual != expected:
        raise BackupError(
            f"{folder / name} is damaged: its SHA-256 is {actual.sha256}, and it was {expected.sha256} when the backup was "
            "made. Use another backup."
        )


class NewFolder(NamedTuple):
    """A directory that a backup is written into. A child that writes there inherits the descriptor `lock`, so that no
    other backup begins before that child ends."""

    path: Path
    lock: int


@contextmanager
def new_folder(to: Path) -> Iterator[NewFolder]:
    """Yield a directory to write a backup into. After the block it is synced and renamed to `to`; after an error it is
    removed. A directory that a killed backup left is replaced.

    Raises:
        BackupError: the name is taken, or another backup is being written to it.
    """
    if os.path.lexists(to):
        raise BackupError(
            f"{to} exists already. Name a directory that does not exist; the backup creates it."
        )
    if not to.parent.is_dir():
        raise BackupError(f"The directory {to.parent} does not exist. Create it, or name another place.")
    folder = to.with_name(f"{to.name}.partial")
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(
                f"Another backup is being written to {folder}. Wait until it and its pg_dump have ended."
            ) from None
        strange = {path.name for path in folder.iterdir()} - PARTS
        if strange:
            raise BackupError(f"{folder} has files that no backup wrote ({min(strange)}). Move them away.")
        folder.chmod(0o700)
        try:
            _clear(folder)
            yield NewFolder(folder, lock)
            sync(folder)
            if os.path.lexists(to):
                raise BackupError(f"{to} was created meanwhile. Name another directory.")
            folder.rename(to)
        except BaseException:
            _clear(folder)
            with suppress(OSError):
                folder.rmdir()
            raise
        sync(to.parent)
    finally:
        os.close(lock)


def _clear(folder: Path) -> None:
    for name in PARTS:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sync(folder: Path) -> None:
    """Sync a directory, so that its entries survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
