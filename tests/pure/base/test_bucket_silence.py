"""A bucket that stops responding times out."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator

import pytest

from app.base.blobs.bucket import BucketBlobs, BucketLimits
from app.base.blobs.store import BlobLost, StoreUnavailable

BODY = b"x" * 100_000
DIGEST = hashlib.sha256(BODY).digest()
SILENT = r"^The blob store is unavailable: the bucket does not respond\. If this persists, the operator must check it\.$"


class Silent:
    """Answers with the beginning of an answer, and no more. The connection stays open."""

    def __init__(self) -> None:
        self.answer = b""
        self.left = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.answer)
            await reader.read(-1)  # until the client leaves
            self.left.set()


IMPATIENT = BucketLimits(silence_s=0.3, deletion_s=0.3, upload_bytes_per_s=1_000_000)
PATIENT = BucketLimits(silence_s=10.0)


@pytest.fixture
async def silent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Silent]:
    made = Silent()
    server = await asyncio.start_server(made, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    yield made
    server.close()


async def whole(blobs: BucketBlobs) -> bytes:
    return b"".join([piece async for piece in blobs.read("acme", DIGEST, len(BODY))])


@pytest.mark.timeout(20)
async def test_a_silent_bucket_times_out(silent: Silent) -> None:
    blobs = BucketBlobs("s3://bucket", IMPATIENT)
    async with blobs.spool() as spool:
        await spool.write(BODY)
        with pytest.raises(StoreUnavailable, match=SILENT):
            await blobs.keep("acme", spool)
    with pytest.raises(StoreUnavailable, match=SILENT):
        await whole(blobs)
    with pytest.raises(StoreUnavailable, match=SILENT):
        await blobs.delete("acme", DIGEST)


def head(size: int) -> bytes:
    return (
        f'HTTP/1.1 200 OK\r\ncontent-length: {size}\r\netag: "x"\r\n'
        "last-modified: Sat, 21 Nov 2026 17:32:34 GMT\r\n\r\n"
    ).encode()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("sent", [0, 50_000])
async def test_a_bucket_that_stops_within_a_body_times_out(silent: Silent, sent: int) -> None:
    silent.answer = head(len(BODY)) + BODY[:sent]
    with pytest.raises(StoreUnavailable, match=SILENT):
        await whole(BucketBlobs("s3://bucket", IMPATIENT))


async def test_a_body_of_the_wrong_length_is_rejected(silent: Silent) -> None:
    silent.answer = head(len(BODY) + 1)
    with pytest.raises(BlobLost, match="has changed"):
        await whole(BucketBlobs("s3://bucket", PATIENT))


async def test_the_connection_of_a_rejected_body_closes(silent: Silent) -> None:
    """It stayed open in one of four calls or so: until the next call, or for good."""
    silent.answer = head(len(BODY) + 1)
    blobs = BucketBlobs("s3://bucket", PATIENT)
    for _ in range(20):
        silent.left.clear()
        with pytest.raises(BlobLost):
            await whole(blobs)
        async with asyncio.timeout(10):
            await silent.left.wait()
