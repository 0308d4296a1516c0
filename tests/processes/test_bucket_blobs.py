"""Bodies in a bucket (the moto server) behave like those in a directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import httpx
import pytest

from app.base.blobs.bucket import PART_BYTES
from app.base.blobs.store import PIECE_BYTES, BlobLost, BlobStore, StoreUnavailable
from app.base.logs.processors import error_names
from app.deployment import open_blobs
from tests.support.moto import bucket
from tests.support.service import folder, serving

ACCESS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with bucket("files") as url:
        yield url


@pytest.fixture
def blobs(s3: str, monkeypatch: pytest.MonkeyPatch) -> BlobStore:
    for name, value in {**ACCESS, "AWS_ENDPOINT_URL": s3}.items():
        monkeypatch.setenv(name, value)
    return open_blobs("s3://files/below/here")


async def kept(blobs: BlobStore, data: bytes, tenant: str = "acme") -> bytes:
    async with blobs.spool() as spool:
        for at in range(0, len(data), 100_000):
            await spool.write(data[at : at + 100_000])
        await blobs.keep(tenant, spool)
        return spool.digest


async def whole(blobs: BlobStore, digest: bytes, size: int, tenant: str = "acme") -> bytes:
    return b"".join([piece async for piece in blobs.read(tenant, digest, size)])


def key(digest: bytes, tenant: str = "acme") -> str:
    return f"below/here/{hashlib.sha256(tenant.encode()).hexdigest()[:32]}/{digest.hex()[:2]}/{digest.hex()}"


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES + 1, 2 * PART_BYTES + 1])
async def test_bodies_round_trip(blobs: BlobStore, s3: str, size: int) -> None:
    data = os.urandom(size)
    digest = await kept(blobs, data)
    assert await kept(blobs, data) == digest
    assert await whole(blobs, digest, size) == data
    async with httpx.AsyncClient() as http:
        assert (await http.get(f"{s3}/files/{key(digest)}")).content == data
    with pytest.raises(BlobLost):
        await whole(blobs, digest, size, "other")
    await blobs.delete("other", digest)
    await blobs.delete("acme", digest)
    await blobs.delete("acme", digest)
    with pytest.raises(BlobLost, match="is missing"):
        await whole(blobs, digest, size)


async def test_a_part_of_a_body(blobs: BlobStore) -> None:
    data = os.urandom(2 * PIECE_BYTES + 1)
    digest = await kept(blobs, data)
    for begin, end in (
        (0, 1),
        (PIECE_BYTES - 1, PIECE_BYTES + 1),
        (1, len(data)),
        (len(data) - 1, len(data)),
    ):
        pieces = [piece async for piece in blobs.read("acme", digest, len(data), (begin, end))]
        assert b"".join(pieces) == data[begin:end]
    with pytest.raises(BlobLost):
        await anext(blobs.read("acme", digest, len(data) + 1, (0, 1)))


async def test_damaged_bytes_are_not_returned(blobs: BlobStore, s3: str) -> None:
    digest = await kept(blobs, b"what was kept")
    async with httpx.AsyncClient() as http:
        for data in (b"something else", b"What was kept"):
            await http.put(f"{s3}/files/{key(digest)}", content=data)
            with pytest.raises(BlobLost, match="has changed"):
                await whole(blobs, digest, 13)


async def test_a_missing_bucket_is_reported(blobs: BlobStore) -> None:
    """To who asked; what its client said, the bucket's name and its address, is for the operator alone."""
    other = open_blobs("s3://nothing")
    with pytest.raises(StoreUnavailable) as caught:
        await kept(other, b"x")
    assert caught.value.detail == (
        "The blob store is unavailable: the bucket is unreachable or rejects the request. "
        "If this persists, the operator must check it."
    )
    assert " not found: Error performing " in error_names(caught.value)


@pytest.mark.parametrize("url", ["s3://", "s3:///x", "gs://x", "http://x", "s3://key:secret@x", "s3://x?y"])
def test_an_invalid_bucket_url_is_rejected(url: str) -> None:
    with pytest.raises(SystemExit, match=r"^PLANGATE_BLOBS is a directory or a bucket: "):
        open_blobs(url)


def test_a_service_keeps_files_in_a_bucket(s3: str) -> None:
    environment = {**ACCESS, "AWS_ENDPOINT_URL": s3, "PLANGATE_BLOBS": "s3://files/service"}
    with folder() as at, serving(at, environment, new_data=True) as service:
        headers = {"authorization": f"Bearer {service.key}", "plangate-tenant": "acme"}
        with httpx.Client(base_url=service.url, headers=headers, timeout=30) as http:
            thread = http.post("/threads", json={}).json()["id"]
            assert http.put(f"/threads/{thread}/files/a", content=b"x" * 300_000).status_code == 201
            assert http.get(f"/threads/{thread}/files/a").content == b"x" * 300_000
        assert not (at / "data" / "blobs").exists()
    assert b"service/" in httpx.get(f"{s3}/files").content
