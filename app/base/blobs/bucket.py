"""Store bodies in a bucket of an S3-compatible store.

Address and credentials come from the variables that AWS's own tools read (AWS_ENDPOINT_URL,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, machine roles). An incoming body waits on the local disk
until its digest is known.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import S3Store

from app.base.blobs.store import (
    PIECE_BYTES,
    BlobLost,
    ByteRange,
    DigestChecker,
    Spool,
    StoreUnavailable,
    blob_path,
)

PART_BYTES: Final = 8 * 1024 * 1024
MAX_CONCURRENT_PARTS: Final = 2
MISSING_ERRORS: Final = (NotFoundError, FileNotFoundError)
RETRY_CONFIG: Final = {"max_retries": 3, "retry_timeout": timedelta(seconds=10)}


@dataclass(frozen=True, slots=True)
class BucketLimits:
    """How long the service waits for a bucket."""

    silence_s: float = 4.0
    """How long a bucket may stay silent, unless another limit applies."""

    upload_bytes_per_s: int = 256 * 1024
    """A slower upload is aborted."""

    deletion_s: float = 3.0
    """Less than the limit of a transaction: one is open during the deletion."""


class BucketBlobs:
    """Blobs in `s3://bucket` or `s3://bucket/prefix`."""

    def __init__(self, url: str, limits: BucketLimits | None = None) -> None:
        """Take the bucket's URL. Connect with the first body. Raise ValueError."""
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc or parts.query or parts.username:
            raise ValueError("the URL of a bucket must be s3://bucket or s3://bucket/prefix")
        self._prefix = parts.path.strip("/")
        self._limits = limits or BucketLimits()
        endpoint = os.environ.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", ""))
        self._store = S3Store(
            parts.netloc,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": "5s",
                "timeout": "1h",
            },
            retry_config=RETRY_CONFIG,  # type: ignore[arg-type]
        )

    def spool(self) -> Spool:
        def open_file() -> int:
            fd, name = tempfile.mkstemp(prefix="plangate-")
            os.unlink(name)  # it disappears when its descriptor is closed
            return fd

        return Spool(open_file, lambda: None)

    async def keep(self, tenant: str, spool: Spool) -> None:
        digest = await spool.end()
        with translate_bucket_errors():
            async with asyncio.timeout(self._limits.silence_s + spool.size / self._limits.upload_bytes_per_s):
                await obstore.put_async(
                    self._store,
                    self._key(tenant, digest),
                    _pieces(spool),
                    chunk_size=PART_BYTES,
                    max_concurrency=MAX_CONCURRENT_PARTS,
                )

    async def read(
        self, tenant: str, digest: bytes, size: int, part: ByteRange | None = None
    ) -> AsyncGenerator[bytes, None]:
        try:
            with translate_bucket_errors(*MISSING_ERRORS):
                async with asyncio.timeout(self._limits.silence_s):
                    result = await obstore.get_async(
                        self._store,
                        self._key(tenant, digest),
                        options=None if part is None else {"range": part},
                    )
        except MISSING_ERRORS as error:
            raise BlobLost(digest, "is missing") from error
        # Take the body out of the result: obstore releases a result from its thread only with its next call, and
        # until then the connection of an unread body would stay open.
        pieces = aiter(result.stream(min_chunk_size=PIECE_BYTES))
        if result.meta["size"] != size:
            raise BlobLost(digest, "has changed")
        checker, (at, end) = DigestChecker(digest, whole=part is None), part or (0, size)
        if size == 0:
            yield checker.check(b"", last=True)
            return
        while at < end:
            with translate_bucket_errors():
                async with asyncio.timeout(self._limits.silence_s):
                    data = bytes(await anext(pieces, b""))
            if not data:
                raise BlobLost(digest, "is truncated")
            at += len(data)
            yield checker.check(data, last=at >= end)

    async def delete(self, tenant: str, digest: bytes) -> None:
        with translate_bucket_errors(), suppress(*MISSING_ERRORS):
            async with asyncio.timeout(self._limits.deletion_s):
                await obstore.delete_async(self._store, self._key(tenant, digest))

    async def sweep(self, older_than_s: float) -> int:
        """Do nothing: interrupted uploads are in no directory, and the bucket's own rules remove their
        parts."""
        return 0

    async def aclose(self) -> None:
        return None

    def _key(self, tenant: str, digest: bytes) -> str:
        return "/".join([*([self._prefix] if self._prefix else []), *blob_path(tenant, digest)])


async def _pieces(spool: Spool) -> AsyncIterator[bytes]:
    at = 0
    while piece := await spool.use(lambda fd, at=at: os.pread(fd, PIECE_BYTES, at)):  # type: ignore[misc]
        yield piece
        at += len(piece)


@contextmanager
def translate_bucket_errors(*through: type[Exception]) -> Iterator[None]:
    """Raise StoreUnavailable for errors of the bucket, except those in `through`, which the caller
    handles."""
    try:
        yield
    except (BaseError, OSError, TimeoutError) as error:
        if isinstance(error, through):
            raise
        message = (str(error).splitlines() or [""])[0][:300]
        why = "the bucket is unreachable or rejects the request" if message else "the bucket does not respond"
        raise StoreUnavailable(
            f"The blob store is unavailable: {why}. If this persists, the operator must check it.",
            client_message=message,
        ) from error
