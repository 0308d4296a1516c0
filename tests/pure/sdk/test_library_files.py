"""`runtime.files` and `ctx.files`: their requests."""

from __future__ import annotations

from typing import Any

import pytest
from plangate import Files, define_tool

from tests.pure.sdk.fake_service import FakeService, fake_service
from tests.pure.sdk.test_library_artifacts import spec

THREAD = "thr_" + "0" * 26
AT = f"/threads/{THREAD}/files"
BYTES = b"\x00\xff\x89PNG"


def serve_files(service: FakeService) -> None:
    service.texts[("GET", f"{AT}/a b.txt")] = (200, "é", {"content-type": "application/octet-stream"})
    service.answers[("PUT", f"{AT}/a b.png")] = lambda body: (
        201,
        {"path": "a b.png", "sizeBytes": len(body)},
    )
    service.answers[("DELETE", f"{AT}/a b.txt")] = lambda _: (200, {"path": "a b.txt"})
    service.answers[("POST", "/artifacts")] = lambda body: (201, {"id": "art_1", **body})
    pages = iter([([{"path": "a"}], "next"), ([{"path": "b"}], None)])

    def page(_: Any) -> tuple[int, Any]:
        items, cursor = next(pages)
        return 200, {"items": items, "nextCursor": cursor}

    service.answers[("GET", AT)] = page


async def test_files_are_read_written_listed_and_published() -> None:
    async with fake_service() as service:
        serve_files(service)
        async with service.runtime(spec()) as runtime:
            files = runtime.files(THREAD)
            assert isinstance(files, Files)
            assert await files.read("a b.txt", version=2) == "é".encode()
            assert service.searched[-1] == {"version": "2"}
            assert await files.read_text("a b.txt") == "é"
            assert (await files.write("a b.png", BYTES))["sizeBytes"] == len(BYTES)
            assert (await files.write("a b.png", "é", media_type="text/x-own"))["sizeBytes"] == 2
            assert service.bodies("PUT", f"{AT}/a b.png") == [BYTES, "é".encode()]
            assert service.headers("PUT", f"{AT}/a b.png")[1]["content-type"] == "text/x-own"
            assert [file["path"] for file in await files.list("a/", limit=5)] == ["a", "b"]
            assert service.searched[-1] == {"prefix": "a/", "limit": "4", "cursor": "next"}
            assert await files.delete("a b.txt") == {"path": "a b.txt"}
            published = await files.publish("design", "a b.png", title="A")
            assert published == {
                "id": "art_1",
                "threadId": THREAD,
                "channel": "design",
                "path": "a b.png",
                "title": "A",
            }


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_a_handler_has_the_files_of_its_thread(is_async: bool) -> None:
    async def later(args: Any, ctx: Any) -> Any:
        await ctx.files.write("a b.png", BYTES)
        listed = [file["path"] for file in await ctx.files.list()]
        return [
            listed,
            await ctx.files.read_text("a b.txt"),
            (await ctx.files.publish("design", "a"))["workId"],
        ]

    def now(args: Any, ctx: Any) -> Any:
        ctx.files.write("a b.png", BYTES)
        listed = [file["path"] for file in ctx.files.list()]
        return [listed, ctx.files.read_text("a b.txt"), ctx.files.publish("design", "a")["workId"]]

    async with fake_service() as service:
        serve_files(service)
        async with service.runtime(spec(define_tool("keep", {}, handler=later if is_async else now))):
            (served,) = service.bodies("POST", "/tool-calls/claim")[0]["tools"]
            posted = await service.outcome({**served, "args": {}, "context": {"threadId": THREAD}})
    assert posted == {"output": [["a", "b"], "é", "wrk_0"]}
    assert service.bodies("PUT", f"{AT}/a b.png") == [BYTES]


@pytest.mark.parametrize(
    ("content", "told"), [(None, "not None"), ({"a": 1}, "not a dict"), (3, "not a int")]
)
async def test_content_is_bytes_or_text(content: Any, told: str) -> None:
    async with fake_service() as service, service.runtime(spec()) as runtime:
        with pytest.raises(TypeError, match=r"^the content of a file is bytes or text, ") as refused:
            await runtime.files(THREAD).write("a", content)
    assert str(refused.value).endswith(told)


@pytest.mark.parametrize("path", ["", "/", None, 3])
async def test_a_file_has_a_path(path: Any) -> None:
    async with fake_service() as service, service.runtime(spec()) as runtime:
        with pytest.raises(ValueError, match=r"is not the path of a file, such as reports/today\.md"):
            await runtime.files(THREAD).read(path)


@pytest.mark.parametrize("thread_id", ["", None, 3])
async def test_files_are_of_a_thread(thread_id: Any) -> None:
    async with fake_service() as service, service.runtime(spec()) as runtime:
        with pytest.raises(ValueError, match=r"^thread_id is "):
            runtime.files(thread_id)
