"""Store bodies in a directory of this machine, or in one that several machines share.

Each step into the directory is relative to an open descriptor and follows no link. A file that is read must
be a regular file with one name and the digest it is looked up by, so links, pipes and changed files that
someone planted are rejected. The directory itself may be a link, because the operator named it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import stat
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from app.base.blobs.store import (
    PIECE_BYTES,
    BlobFile,
    BlobLost,
    ByteRange,
    DigestChecker,
    Spool,
    blob_path,
    translate_disk_errors,
)

SPOOL_FOLDER: Final = "incoming"
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_FILES_PER_SWEEP: Final = 10_000


class LocalBlobs:
    """A directory that `prepare` creates, readable by its owner only.

    If it disappears later, or is replaced because it was unmounted, it is not created again: bodies stored
    there would be lost.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def prepare(self) -> None:
        """Create the directory. Raise OSError if this process cannot write to it."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._open_folder(SPOOL_FOLDER, create=True) as folder:
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    def spool(self) -> Spool:
        name = secrets.token_hex(16)

        def open_file() -> int:
            with self._open_folder(SPOOL_FOLDER) as folder:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE_FLAGS
                return os.open(name, flags, 0o600, dir_fd=folder)

        def remove_file() -> None:
            with suppress(OSError), self._open_folder(SPOOL_FOLDER) as folder:
                os.unlink(name, dir_fd=folder)

        return LocalSpool(name, open_file, remove_file)

    async def keep(self, tenant: str, spool: Spool) -> None:
        assert isinstance(spool, LocalSpool)
        digest = await spool.end()

        def work() -> None:
            *folders, name = blob_path(tenant, digest)
            with (
                self._open_folder(SPOOL_FOLDER) as source,
                self._open_folder(*folders, create=True) as target,
            ):
                # The rename replaces whatever has the name, and follows no link.
                os.rename(spool.name, name, src_dir_fd=source, dst_dir_fd=target)
                os.fsync(target)

        with translate_disk_errors():
            await asyncio.to_thread(work)

    async def read(
        self, tenant: str, digest: bytes, size: int, part: ByteRange | None = None
    ) -> AsyncGenerator[bytes, None]:
        file = await BlobFile.open(lambda: self._open_body(tenant, digest, size))
        checker = DigestChecker(digest, whole=part is None)
        try:
            at, end = part or (0, size)
            while True:
                most = min(PIECE_BYTES, end - at)
                with translate_disk_errors():
                    piece = await file.use(lambda fd, at=at, most=most: os.pread(fd, most, at))  # type: ignore[misc]
                at += len(piece)
                if not piece and at < end:
                    raise BlobLost(digest, "is truncated")
                yield checker.check(piece, last=at >= end)
                if at >= end:
                    return
        finally:
            await file.aclose()

    def _open_body(self, tenant: str, digest: bytes, size: int) -> int:
        *folders, name = blob_path(tenant, digest)
        try:
            with self._open_folder(*folders) as folder:
                # Non-blocking: opening a pipe would wait for a writer.
                fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _FILE_FLAGS, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                self._require_root()
                raise BlobLost(digest, "is missing") from error
            with translate_disk_errors():
                raise
        status = os.fstat(fd)
        # A file without a name is still valid: it was just stored again, or deleted.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size != size:
            os.close(fd)
            raise BlobLost(digest, "has changed")
        return fd

    async def delete(self, tenant: str, digest: bytes) -> None:
        def work() -> None:
            *folders, name = blob_path(tenant, digest)
            try:
                with self._open_folder(*folders) as folder:
                    os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                self._require_root()

        with translate_disk_errors():
            await asyncio.to_thread(work)

    async def sweep(self, older_than_s: float) -> int:
        def work() -> int:
            before, removed = time.time() - older_than_s, 0
            with suppress(FileNotFoundError), self._open_folder(SPOOL_FOLDER) as folder:
                for name in os.listdir(folder)[:_MAX_FILES_PER_SWEEP]:
                    with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < before:
                            os.unlink(name, dir_fd=folder)
                            removed += 1
            return removed

        with translate_disk_errors():
            return await asyncio.to_thread(work)

    async def aclose(self) -> None:
        return None

    def _require_root(self) -> None:
        """Raise StoreUnavailable if the whole directory is missing, not just one body."""
        with translate_disk_errors(), self._open_folder(SPOOL_FOLDER):
            pass

    @contextmanager
    def _open_folder(self, *names: str, create: bool = False) -> Iterator[int]:
        """Yield a descriptor of a folder, opened without following links."""
        fd = os.open(self._root, _FOLDER_FLAGS)
        try:
            for name in names:
                inner = self._open_child(fd, name, create=create)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def _open_child(self, fd: int, name: str, *, create: bool) -> int:
        if create:
            try:
                os.mkdir(name, 0o700, dir_fd=fd)
                os.fsync(fd)
            except FileExistsError:
                pass
        return os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=fd)


class LocalSpool(Spool):
    """A spool file in the folder of incoming bodies."""

    def __init__(self, name: str, *parts: object) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.name = name
