"""Ranges and headers of files, and repeated uploads."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import httpx
import pytest

from app.base.blobs.store import PIECE_BYTES
from tests.support.client import Caller, good, refused
from tests.support.world import World

BODY = b"0123456789"
TAG = f'"{hashlib.sha256(BODY).hexdigest()}"'
OTHER = f'"{"0" * 64}"'


async def thread(api: Caller) -> str:
    return str((await api.do("/threads", {}))["id"])


async def at_both(api: Caller, body: bytes) -> list[str]:
    """Where the body is read: a file, and an artifact."""
    home = await thread(api)
    made = good(await api.request("PUT", f"/artifacts/design/a?threadId={home}", content=body))
    return [f"/threads/{home}/files/artifacts/design/a", f"/artifacts/{made['id']}/content"]


async def asked(api: Caller, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    return await api.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})


@pytest.mark.parametrize(
    ("range", "part"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=2-5", (2, 6)),
        ("bytes=2-", (2, 10)),
        ("bytes=9-99", (9, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        ("Bytes=0-9", (0, 10)),
    ],
)
async def test_a_range_is_returned(api: Caller, range: str, part: tuple[int, int]) -> None:
    for path in await at_both(api, BODY):
        found = await asked(api, path, range=range)
        assert (found.status_code, found.content) == (206, BODY[slice(*part)])
        assert found.headers["content-range"] == f"bytes {part[0]}-{part[1] - 1}/10"
        assert found.headers["content-length"] == str(len(found.content))
        assert (found.headers["etag"], found.headers["accept-ranges"]) == (TAG, "bytes")


@pytest.mark.parametrize("range", ["bytes=10-", "bytes=10-20", f"bytes={10**17}-", "bytes=-0"])
async def test_a_range_out_of_bounds_is_a_416(api: Caller, range: str) -> None:
    for path in await at_both(api, BODY):
        found = await asked(api, path, range=range)
        refused(found, 416, "range_not_satisfiable")
        assert found.headers["content-range"] == "bytes */10"


@pytest.mark.parametrize(
    "range",
    [
        "bytes=0-1,4-5",
        "bytes=5-2",
        "bytes=-",
        "bytes=a-b",
        "bytes",
        "items=0-1",
        f"bytes={'9' * 5000}-",
        "bytes=٠-٣",
    ],
)
async def test_several_ranges_return_the_whole_body(api: Caller, range: str) -> None:
    (path, _) = await at_both(api, BODY)
    found = await api.request("GET", path, headers={b"range": range.encode()})  # type: ignore[dict-item]
    assert (found.status_code, found.content) == (200, BODY)
    assert "content-range" not in found.headers


async def test_an_empty_body_is_returned_whole(api: Caller) -> None:
    for path in await at_both(api, b""):
        for range in ("bytes=0-", "bytes=-1"):
            found = await asked(api, path, range=range)
            assert (found.status_code, found.content) == (200, b"")


async def test_if_range_requires_the_same_body(api: Caller) -> None:
    for path in await at_both(api, BODY):
        for known, expected in (
            (TAG, 206),
            (OTHER, 200),
            (f"W/{TAG}", 200),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 200),
        ):
            found = await asked(api, path, range="bytes=1-2", if_range=known)
            assert (found.status_code, found.content) == (expected, b"12" if expected == 206 else BODY)
        assert (await asked(api, path, range="bytes=1-2", if_none_match=TAG)).status_code == 304
        refused(await asked(api, path, range="bytes=99-", if_match=OTHER), 412)


async def test_the_headers_alone(api: Caller, plangate: World) -> None:
    for path in await at_both(api, BODY):
        whole = await api.get(path)
        for range in ("bytes=1-2", "bytes=99-"):
            found = await asked(api, path, "HEAD", range=range)
            assert (found.status_code, found.content) == (200, b"")
            assert found.headers == whole.headers
        assert (await asked(api, path, "HEAD", if_none_match=TAG)).status_code == 304
        assert (await asked(plangate.other, path, "HEAD")).status_code == 404
        assert (await asked(plangate.other, path, range="bytes=0-1")).status_code == 404


async def test_large_ranges_are_streamed(api: Caller) -> None:
    body = os.urandom(3 * PIECE_BYTES)
    for path in await at_both(api, body):
        for begin, end in (
            (1, 3 * PIECE_BYTES),
            (PIECE_BYTES, 2 * PIECE_BYTES),
            (PIECE_BYTES - 1, PIECE_BYTES + 1),
        ):
            found = await asked(api, path, range=f"bytes={begin}-{end - 1}")
            assert found.content == body[begin:end]


def cut_short(blobs: Path, body: bytes) -> None:
    for kept in blobs.rglob(hashlib.sha256(body).hexdigest()):
        kept.write_bytes(body[:-1])


async def test_a_range_of_a_missing_body_is_an_error(api: Caller, plangate: World) -> None:
    for path in await at_both(api, BODY):
        cut_short(Path(plangate.site.blobs), BODY)
        refused(await asked(api, path, range="bytes=0-1"), 503, "blob_lost")
        assert (await asked(api, path, "HEAD")).status_code == 503


# -- uploads


async def upload(api: Caller, home: str, body: bytes, name: str = "a", **headers: str) -> httpx.Response:
    given = {k.replace("_", "-"): v for k, v in headers.items()}
    return await api.request("PUT", f"/artifacts/design/{name}?threadId={home}", content=body, headers=given)


async def test_if_match_guards_an_upload(api: Caller) -> None:
    home = await thread(api)
    refused(await upload(api, home, b"x", if_match=TAG), 412, "file_changed")
    good(await upload(api, home, BODY, if_none_match="*"))
    refused(await upload(api, home, b"x", if_none_match="*"), 412, "file_changed")
    refused(await upload(api, home, b"x", if_match=OTHER), 412, "file_changed")
    refused(await upload(api, home, b"x", if_match="x"), 400, "malformed")
    assert len((await api.read("/artifacts"))["items"]) == 1
    assert (await api.get(f"/threads/{home}/files/artifacts/design/a")).content == BODY
    good(await upload(api, home, b"x", if_match=TAG))
    assert (await api.get(f"/threads/{home}/files/artifacts/design/a")).content == b"x"


async def test_a_repeated_upload_is_stored_once(api: Caller) -> None:
    home = await thread(api)
    first = await upload(api, home, b"one", idempotency_key="k", if_none_match="*")
    good(await upload(api, home, b"two"))
    again = await upload(api, home, b"one", idempotency_key="k", if_none_match="*")
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["location"] == first.headers["location"]
    assert (await api.get(f"/threads/{home}/files/artifacts/design/a")).content == b"two"
    refused(await upload(api, home, b"two", idempotency_key="k"), 409)
    other = await api.request(
        "PUT",
        f"/artifacts/design/a?threadId={home}&title=x",
        content=b"one",
        headers={"idempotency-key": "k"},
    )
    refused(other, 409)
    assert len((await api.read("/artifacts"))["items"]) == 2
