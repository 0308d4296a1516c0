"""Store immutable bodies by tenant and content, in a local directory or a bucket.

An incoming body is spooled to disk, so that it is never in memory as a whole. Once its digest is known, it is
stored under that digest. Stores never see a name that a tenant chose: every name is a hash that we computed.
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
"""The offset of the first byte and of the byte after the last one; never empty."""

PIECE_BYTES: Final = 64 * 1024
"""How much of a body one reader holds in memory, such as a download for a slow client."""

BUFFER_BYTES: Final = 1024 * 1024
SYNC_INTERVAL_BYTES: Final = 64 * 1024 * 1024
"""Sync a large body in steps of this size, so that its end does not wait for all of it."""


class BlobStoreError(Unavailable):
    """The blob store is broken or unavailable, and the operator must know."""

    kind, title = "blobs_failed", "Stored files are unavailable"


class BlobLost(BlobStoreError):
    """A stored body is missing or has changed."""

    kind, title = "blob_lost", "A stored file cannot be read"

    def __init__(self, digest: bytes, why: str) -> None:
        super().__init__(
            f"The stored body {digest.hex()} {why}. The operator must restore it in the blob store (PLANGATE_BLOBS)."
        )


class StoreUnavailable(BlobStoreError):
    """The blob store is temporarily unavailable.

    `client_message` is the message of the bucket's client. It may reveal the address or credentials of the
    bucket, so it is logged and never sent to callers.
    """

    kind, title = "store_unavailable", "The blob store is temporarily unavailable"

    def __init__(self, detail: str, *, client_message: str = "", retry_after_s: int = 1) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.client_message = client_message

    def __str__(self) -> str:
        return self.client_message or self.detail


class BlobStore(Protocol):
    """Storage of bodies. Every method may raise StoreUnavailable."""

    def spool(self) -> Spool:
        """Return an async context manager for an incoming body."""
        ...

    async def keep(self, tenant: str, spool: Spool) -> None:
        """Store the spooled body durably under its digest. Storing the same bytes again replaces them."""
        ...

    def read(
        self, tenant: str, digest: bytes, size: int, part: ByteRange | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the body, or a part of it, in pieces. Raise BlobLost.

        The last piece of a whole body is yielded only after its digest was verified. For a part, only the
        body's size is verified.
        """
        ...

    async def delete(self, tenant: str, digest: bytes) -> None:
        """Delete a body. Do nothing if it does not exist."""
        ...

    async def sweep(self, older_than_s: float) -> int:
        """Remove what interrupted uploads left behind. Return the number of removed files."""
        ...

    async def aclose(self) -> None: ...


class BlobFile:
    """A file descriptor that is used in threads and closed once.

    The lock keeps `use` and `aclose` apart: the number of a closed descriptor may belong to another file.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    @classmethod
    async def open(cls, work: Callable[[], int]) -> BlobFile:
        """Open a file in a thread with `work`. If the caller is canceled meanwhile, the file is closed."""
        opening = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return cls(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_file)
            raise

    async def use(self, work: Callable[[int], T]) -> T:
        """Run `work` with the descriptor in a thread and return its result."""

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


def _close_file(descriptor: asyncio.Future[int]) -> None:
    if not descriptor.cancelled() and descriptor.exception() is None:
        os.close(descriptor.result())


class Spool:
    """An incoming body on disk, with its size and digest so far. `remove_file` removes a body that was not
    stored."""

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
        """Append to the body."""
        self._buffer += data
        self.size += len(data)
        if len(self._buffer) >= BUFFER_BYTES:
            await self._flush()

    async def end(self) -> bytes:
        """Return the SHA-256 of the body, once all of it is durable in the spool."""
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
    """Raise StoreUnavailable for errors of the disk."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"The blob store is unavailable: {error.strerror or error}. If this persists, the operator must check it."
        ) from error


def blob_path(tenant: str, digest: bytes) -> tuple[str, str, str]:
    """Return two nested folders and the file name of a body, all of them hashes."""
    text = digest.hex()
    return hashlib.sha256(tenant.encode()).hexdigest()[:32], text[:2], text


class DigestChecker:
    """Pass the pieces of a body on, and verify its digest before the last one. A part cannot be verified."""

    def __init__(self, digest: bytes, *, whole: bool) -> None:
        self._digest = digest
        self._hash = hashlib.sha256()
        self._whole = whole

    def check(self, piece: bytes, *, last: bool) -> bytes:
        """Return the piece. Raise BlobLost before the last piece if the digest differs."""
        if not self._whole:
            return piece
        self._hash.update(piece)
        if last and self._hash.digest() != self._digest:
            raise BlobLost(self._digest, "has changed")
        return piece
