"""Bodies of files in a directory of this machine, or in one that several machines share.

Every step into the directory is relative to an open descriptor and follows no link, and what is read must be a plain
file with one name and the digest it is looked up by: a link, a pipe or a changed file that somebody planted there
leads nowhere. The directory itself may be a link: the operator named it.
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

from app.base.blobs.store import PIECE_BYTES, BlobLost, Checker, File, Part, Spool, place_of, told

INCOMING: Final = "incoming"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PLAIN: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_SWEPT_AT_ONCE: Final = 10_000


class LocalBlobs:
    """A directory, which `prepare` makes, for its owner alone. One that is gone later, or another one in its place since it was
    unmounted, is not made again: what would be kept there would be lost."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def prepare(self) -> None:
        """Makes the directory. Raises OSError if this process cannot write into it."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._folder(INCOMING, make=True) as folder:
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    def spool(self) -> Spool:
        name = secrets.token_hex(16)

        def opened() -> int:
            with self._folder(INCOMING) as folder:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _PLAIN
                return os.open(name, flags, 0o600, dir_fd=folder)

        def done() -> None:
            with suppress(OSError), self._folder(INCOMING) as folder:
                os.unlink(name, dir_fd=folder)

        return LocalSpool(name, opened, done)

    async def keep(self, tenant: str, spool: Spool) -> None:
        assert isinstance(spool, LocalSpool)
        digest = await spool.end()

        def work() -> None:
            *folders, name = place_of(tenant, digest)
            with self._folder(INCOMING) as source, self._folder(*folders, make=True) as target:
                # It takes the place of whatever has the name, and follows nothing.
                os.rename(spool.name, name, src_dir_fd=source, dst_dir_fd=target)
                os.fsync(target)

        with told():
            await asyncio.to_thread(work)

    async def read(
        self, tenant: str, digest: bytes, size: int, part: Part | None = None
    ) -> AsyncGenerator[bytes, None]:
        file = await File.opened(lambda: self._open(tenant, digest, size))
        checker = Checker(digest, whole=part is None)
        try:
            at, end = part or (0, size)
            while True:
                most = min(PIECE_BYTES, end - at)
                with told():
                    piece = await file.use(lambda fd, at=at, most=most: os.pread(fd, most, at))  # type: ignore[misc]
                at += len(piece)
                if not piece and at < end:
                    raise BlobLost(digest, "was cut short")
                yield checker.take(piece, last=at >= end)
                if at >= end:
                    return
        finally:
            await file.aclose()

    def _open(self, tenant: str, digest: bytes, size: int) -> int:
        *folders, name = place_of(tenant, digest)
        try:
            with self._folder(*folders) as folder:
                # Not blocking: a pipe would wait for a writer.
                fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _PLAIN, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                self._need_root()
                raise BlobLost(digest, "is not there") from error
            with told():
                raise
        found = os.fstat(fd)
        # Without a name it is still what was kept: it was kept again, or deleted, this very moment.
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_size != size:
            os.close(fd)
            raise BlobLost(digest, "is not what was kept")
        return fd

    async def delete(self, tenant: str, digest: bytes) -> None:
        def work() -> None:
            *folders, name = place_of(tenant, digest)
            try:
                with self._folder(*folders) as folder:
                    os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                self._need_root()

        with told():
            await asyncio.to_thread(work)

    async def sweep(self, older_than_s: float) -> int:
        def work() -> int:
            before, gone = time.time() - older_than_s, 0
            with suppress(FileNotFoundError), self._folder(INCOMING) as folder:
                for name in os.listdir(folder)[:_SWEPT_AT_ONCE]:
                    with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < before:
                            os.unlink(name, dir_fd=folder)
                            gone += 1
            return gone

        with told():
            return await asyncio.to_thread(work)

    async def aclose(self) -> None:
        return None

    def _need_root(self) -> None:
        """What is not found may be where it was, and the whole directory away. Raises StoreUnavailable then."""
        with told(), self._folder(INCOMING):
            pass

    @contextmanager
    def _folder(self, *names: str, make: bool = False) -> Iterator[int]:
        """A descriptor of a folder, reached without following a link."""
        fd = os.open(self._root, _FOLDER)
        try:
            for name in names:
                inner = self._into(fd, name, make=make)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def _into(self, fd: int, name: str, *, make: bool) -> int:
        if make:
            try:
                os.mkdir(name, 0o700, dir_fd=fd)
                os.fsync(fd)
            except FileExistsError:
                pass
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)


class LocalSpool(Spool):
    """A file in the folder of what comes in."""

    def __init__(self, name: str, *parts: object) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.name = name
