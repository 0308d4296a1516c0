"""Bodies of files: immutable, by tenant and content. One small interface, a local directory or a bucket behind it.

A body comes in through a spool, on disk, so that it is never in memory as a whole; once its digest is known it is kept
under it. No name that a tenant chose reaches a store: every name in it is a hash that we computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from types import TracebackType
from typing import Final, Protocol, TypeVar

from app.base.errors import Unavailable

T = TypeVar("T")
ByteRange = tuple[int, int]
"""Where it begins in a body, and the first byte after it. It is not empty."""

PIECE_BYTES: Final = 64 * 1024  # what a download holds for a client that reads slowly
"""What one reader holds of a body."""

BUFFER_BYTES: Final = 1024 * 1024
SYNC_INTERVAL_BYTES: Final = 64 * 1024 * 1024
"""So much is on its way to the disk at most: the end of a large body does not wait for all of it."""


class BlobStoreError(Unavailable):
    """Something is wrong with where bodies are, which the operator must hear of."""

    kind, title = "blobs_failed", "Stored bodies cannot be used"


class BlobLost(BlobStoreError):
    """A body that should be there is not, or is not the one that was kept."""

    kind, title = "blob_lost", "A stored body cannot be read"

    def __init__(self, digest: bytes, why: str) -> None:
        super().__init__(
            f"The stored body {digest.hex()} {why}. The operator must restore it in the blob store (PLANGATE_BLOBS)."
        )


class StoreUnavailable(BlobStoreError):
    """The blob store cannot be used at the moment. `said`: what a bucket's client said of it, which may tell where the bucket
    is and how one gets in: for the log, and for no caller."""

    kind, title = "store_unavailable", "The blob store cannot be used at the moment"

    def __init__(self, detail: str, *, client_message: str = "", retry_after_s: int = 1) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.client_message = client_message

    def __str__(self) -> str:
        return self.client_message or self.detail


class BlobStore(Protocol):
    """Where bodies are. Every method may raise StoreUnavailable."""

    def spool(self) -> Spool:
        """For a body on its way in; an async context manager."""
        ...

    async def keep(self, tenant: str, spool: Spool) -> None:
        """Makes the spooled body durable under its digest; one that is there already is replaced by the same bytes."""
        ...

    def read(
        self, tenant: str, digest: bytes, size: int, part: ByteRange | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The body in pieces, its last one only once all of it is known to be what was kept. Of a part that is known only
        for the size of the body. Raises BlobLost."""
        ...

    async def delete(self, tenant: str, digest: bytes) -> None:
        """Nothing happens if it is not there."""
        ...

    async def sweep(self, older_than_s: float) -> int:
        """Removes what uploads that were cut off left behind; gives how many."""
        ...

    async def aclose(self) -> None: ...


class BlobFile:
    """A file descriptor that threads use and the event loop closes, never both at once: a number that was closed may
    be another file's by then."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    @classmethod
    async def open(cls, work: Callable[[], int]) -> BlobFile:
        """What `work` opens, in a thread. Who is cancelled meanwhile leaves nothing open."""
        opening = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return cls(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_file)
            raise

    async def use(self, work: Callable[[int], T]) -> T:
        """What `work` gives for the descriptor, in a thread."""

        def locked() -> T:
            with self._lock:
                if self._fd < 0:
                    raise OSError("the file was closed")
                return work(self._fd)

        return await asyncio.to_thread(locked)

    async def aclose(self) -> None:
        def locked() -> None:
            with self._lock:
                if self._fd >= 0:
                    os.close(self._fd)
                    self._fd = -1

        await asyncio.shield(asyncio.to_thread(locked))


def _close_file(opened: asyncio.Future[int]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        os.close(opened.result())


class Spool:
    """A body on its way in: on disk, with its size and its digest so far. `done` removes what was not kept."""

    def __init__(self, open_file: Callable[[], int], remove_file: Callable[[], None]) -> None:
        self.size = 0
        self._hash = hashlib.sha256()
        self._open_file = open_file
        self._remove_file = remove_file
        self._buffer = bytearray()
        self._synced = 0
        self._file: BlobFile | None = None

    async def __aenter__(self) -> Spool:
        with translate_disk_errors():
            self._file = await BlobFile.open(self._open_file)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        try:
            await self._file.aclose()
        finally:
            await asyncio.shield(asyncio.to_thread(self._remove_file))

    async def write(self, data: bytes) -> None:
        """Adds to the body."""
        self._buffer += data
        self.size += len(data)
        if len(self._buffer) >= BUFFER_BYTES:
            await self._flush()

    async def end(self) -> bytes:
        """The SHA-256 of the body, all of it durable in the spool."""
        await self._flush()
        await self.use(os.fsync)
        return self.digest

    @property
    def digest(self) -> bytes:
        return self._hash.digest()

    async def use(self, work: Callable[[int], T]) -> T:
        assert self._file is not None
        with translate_disk_errors():
            return await self._file.use(work)

    async def _flush(self) -> None:
        data, self._buffer = self._buffer, bytearray()
        sync = self.size - self._synced >= SYNC_INTERVAL_BYTES
        if sync:
            self._synced = self.size

        def work(fd: int) -> None:
            self._hash.update(data)
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
            if sync:
                os.fdatasync(fd)

        await self.use(work)


@contextlib.contextmanager
def translate_disk_errors() -> Iterator[None]:
    """What the disk says, as an error that a caller can act on."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"The blob store cannot be used: {error.strerror or error}. If this lasts, the operator must look at it."
        ) from error


def blob_path(tenant: str, digest: bytes) -> tuple[str, str, str]:
    """Folder, folder in it, name: hashes, all of them."""
    text = digest.hex()
    return hashlib.sha256(tenant.encode()).hexdigest()[:32], text[:2], text


class DigestChecker:
    """Lets the pieces of a body through, the last one only if all of it is what its digest says. Without the whole of it
    nobody knows."""

    def __init__(self, digest: bytes, *, whole: bool) -> None:
        self._digest = digest
        self._hash = hashlib.sha256()
        self._whole = whole

    def check(self, piece: bytes, *, last: bool) -> bytes:
        """Raises BlobLost."""
        if not self._whole:
            return piece
        self._hash.update(piece)
        if last and self._hash.digest() != self._digest:
            raise BlobLost(self._digest, "is not what was kept")
        return piece
