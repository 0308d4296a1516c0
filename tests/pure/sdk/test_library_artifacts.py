"""Artifacts and state from Python: requests of hosts and of calls."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import plangate
import pytest
from plangate import define_runtime, define_specialist, define_tool
from plangate.context import IdempotencyKeys
from plangate.thread_state import document_path

from tests.pure.sdk.fake_service import FakeService, fake_service

THREAD = {"id": "thr_1", "key": "t"}
RECORD = {"id": "art_1", "channel": "design", "path": "a.md"}


def spec(*tools: Any) -> plangate.DefinedRuntime:
    return define_runtime("acme", [define_specialist("helper", "m-1", "You help.", tools=list(tools))])


def kept(service: FakeService) -> None:
    """The service has one artifact, and a state of its thread."""
    service.answers[("POST", "/threads")] = lambda body: (200, THREAD)
    service.answers[("POST", "/artifacts")] = lambda body: (201, RECORD)
    service.answers[("PUT", "/artifacts/design/a.md")] = lambda body: (201, RECORD)
    service.answers[("GET", "/artifacts/art_1")] = lambda body: (200, RECORD)
    for verb in ("withdraw", "choose"):
        service.answers[("POST", f"/artifacts/art_1/{verb}")] = lambda body: (201, RECORD)
    service.answers[("GET", "/artifacts/art_1/lineage")] = lambda body: (200, {"ancestors": []})
    service.answers[("GET", "/artifacts")] = lambda body: (200, {"items": [RECORD], "nextCursor": None})
    service.texts[("GET", "/artifacts/art_1/content")] = (200, "one\n", {"content-type": "text/markdown"})
    service.answers[("GET", "/threads/thr_1/state")] = lambda body: (
        200,
        {"threadId": "thr_1", "write": 2, "document": {"totals": {"net.eur": 3}, "rows": [{"n": None}]}},
    )
    service.answers[("POST", "/threads/thr_1/state/log")] = lambda body: (201, {"write": 3, **body})


def asked(service: FakeService, method: str, path: str) -> list[dict[str, str]]:
    """The parameters of these requests."""
    both = zip(service.asked, service.searched, strict=True)
    return [said for (how, where, _, _), said in both if (how, where) == (method, path)]


async def test_a_host_publishes_uploads_lists_and_reads() -> None:
    async with fake_service() as service:
        kept(service)
        async with service.runtime(spec()) as runtime:
            made = await runtime.artifacts.publish(
                "t",
                "design",
                "a.md",
                summary="How.",
                media_type="text/x-design",
                parent_artifact_ids=("art_0",),
                tags=["big"],
                metadata={"n": 1},
            )
            assert made == RECORD
            await runtime.artifacts.upload("thr_1", "design", "a.md", "é", title="It", tags=["a b"])
            await runtime.artifacts.upload("t", "design", "a.md", b"\xff", media_type="image/png")
            since = datetime(2026, 1, 2, tzinfo=UTC)
            found = await runtime.artifacts.list(thread_id="t", channel="design", since=since, limit=7)
            assert found == [RECORD]
            await runtime.artifacts.list(include_superseded=True)
            assert await runtime.artifacts.get("art_1") == RECORD
            assert await runtime.artifacts.read("art_1", "x/y") == b"one\n"
            assert await runtime.artifacts.lineage("art_1") == {"ancestors": []}
            assert await runtime.artifacts.withdraw("art_1", "Old.") == RECORD
            assert await runtime.artifacts.choose("art_1", ("art_3",), "Better.") == RECORD
            with pytest.raises(TypeError, match=r"^over must be a list of ids, not a string$"):
                await runtime.artifacts.choose("art_1", "art_3", "Better.")
            with pytest.raises(plangate.NotFound):
                await runtime.artifacts.get("art_2")
    assert service.bodies("POST", "/artifacts/art_1/withdraw") == [{"reason": "Old."}]
    assert service.bodies("POST", "/artifacts/art_1/choose") == [{"over": ["art_3"], "reason": "Better."}]
    assert service.bodies("POST", "/artifacts") == [
        {
            "threadId": "thr_1",
            "channel": "design",
            "path": "a.md",
            "summary": "How.",
            "mediaType": "text/x-design",
            "parentArtifactIds": ["art_0"],
            "tags": ["big"],
            "metadata": {"n": 1},
        }
    ]
    put = ("PUT", "/artifacts/design/a.md")
    assert service.bodies(*put) == ["é".encode(), b"\xff"]
    assert [headers.get("content-type") for headers in service.headers(*put)] == [None, "image/png"]
    assert asked(service, *put) == [
        {"title": "It", "tag": "a b", "threadId": "thr_1"},
        {"threadId": "thr_1"},
    ]
    assert asked(service, "GET", "/artifacts") == [
        {"threadId": "thr_1", "channel": "design", "since": "2026-01-02T00:00:00+00:00", "limit": "7"},
        {"includeSuperseded": "true", "limit": "50"},
    ]
    assert asked(service, "GET", "/artifacts/art_1/content") == [{"path": "x/y"}]


async def test_invalid_content_is_rejected_at_once() -> None:
    async with fake_service() as service:
        kept(service)
        async with service.runtime(spec()) as runtime:
            with pytest.raises(TypeError, match=r"^the body of an artifact is bytes or text, not a int$"):
                await runtime.artifacts.upload("t", "design", "a.md", 1)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match=r"^thread_id is a string of 1 to 200 characters$"):
                await runtime.artifacts.publish("", "design", "a.md")
            with pytest.raises(ValueError, match=r"^'\.\.' is not an id"):
                await runtime.artifacts.get("..")
        assert service.bodies("POST", "/artifacts") == []


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_a_handler_publishes_and_writes_under_its_call(sync: bool) -> None:
    def blocking(args: Any, ctx: Any) -> Any:
        made = ctx.artifacts.publish("design", "a.md", summary="How.")
        ctx.artifacts.publish("design", "a.md", summary="How.")
        ctx.artifacts.upload("design", "a.md", b"one", kind="report")
        found = ctx.artifacts.list(channel="design") + ctx.artifacts.list(thread_id=None)
        text = ctx.artifacts.read(made["id"]).decode()
        got = ctx.artifacts.get("art_1"), ctx.artifacts.lineage("art_1")
        ctx.state.push("rows", {"n": 1})
        return [found, text, got, ctx.state.get('totals."net.eur"'), ctx.state.get("no", 5)]

    async def awaited(args: Any, ctx: Any) -> Any:
        made = await ctx.artifacts.publish("design", "a.md", summary="How.")
        await ctx.artifacts.publish("design", "a.md", summary="How.")
        await ctx.artifacts.upload("design", "a.md", b"one", kind="report")
        found = await ctx.artifacts.list(channel="design") + await ctx.artifacts.list(thread_id=None)
        text = (await ctx.artifacts.read(made["id"])).decode()
        got = await ctx.artifacts.get("art_1"), await ctx.artifacts.lineage("art_1")
        await ctx.state.push("rows", {"n": 1})
        return [found, text, got, await ctx.state.get('totals."net.eur"'), await ctx.state.get("no", 5)]

    tool = define_tool("keep", {}, handler=blocking if sync else awaited)
    async with fake_service() as service:
        kept(service)
        async with service.runtime(spec(tool)):
            (served,) = service.bodies("POST", "/tool-calls/claim")[0]["tools"]
            call = {**served, "args": {}, "context": {"threadId": "thr_1", "agent": "helper"}}
            posted = await service.outcome(call)
            assert posted == {"output": [[RECORD, RECORD], "one\n", [RECORD, {"ancestors": []}], 3, 5]}
            again = await service.outcome(call)  # another call: its keys are its own
            assert again == posted
    said = {"threadId": "thr_1", "channel": "design", "path": "a.md", "summary": "How."}
    calls = ("wrk_0", "wrk_0", "wrk_1", "wrk_1")
    assert service.bodies("POST", "/artifacts") == [{**said, "workId": call} for call in calls]
    keys = [headers["idempotency-key"] for headers in service.headers("POST", "/artifacts")]
    assert len(set(keys)) == 4 and [key.split(".")[0] for key in keys] == list(calls)
    assert keys[:2] == [f"{keys[0][:-2]}.1", f"{keys[0][:-2]}.2"]
    uploaded = [headers["idempotency-key"] for headers in service.headers("PUT", "/artifacts/design/a.md")]
    assert [key.split(".")[0] for key in uploaded] == ["wrk_0", "wrk_1"]
    assert asked(service, "PUT", "/artifacts/design/a.md")[0] == {
        "kind": "report",
        "threadId": "thr_1",
        "workId": "wrk_0",
    }
    assert asked(service, "GET", "/artifacts")[:2] == [
        {"threadId": "thr_1", "channel": "design", "limit": "50"},
        {"limit": "50"},
    ]
    writes = service.bodies("POST", "/threads/thr_1/state/log")
    assert writes[0] == {"workId": "wrk_0", "path": "†state.rows", "method": "push", "value": {"n": 1}}


def test_idempotency_keys_are_stable_across_repeats() -> None:
    first, again = IdempotencyKeys("wrk_1"), IdempotencyKeys("wrk_1")
    bodies = [{"a": 1}, {"a": 2}, {"a": 1}]
    keys = [first.next_key("/x", body) for body in bodies]
    assert sorted(again.next_key("/x", body) for body in reversed(bodies)) == sorted(keys)
    assert len(set(keys)) == 3
    assert (
        IdempotencyKeys("wrk_2").next_key("/x", {"a": 1}) not in keys
        and IdempotencyKeys("wrk_1").next_key("/y", {"a": 1}) not in keys
    )


async def test_upload_keys_depend_on_their_content() -> None:
    """So that a call that is made again gets the records of before, in whatever order it asks."""

    async def upload(args: Any, ctx: Any) -> Any:
        for body, title in (("a", "1"), ("b", "1"), ("a", "1"), ("a", "2")):
            await ctx.artifacts.upload("design", "a.md", body, title=title)

    async with fake_service() as service:
        kept(service)
        async with service.runtime(spec(define_tool("keep", {}, handler=upload))) as runtime:
            (served,) = service.bodies("POST", "/tool-calls/claim")[0]["tools"]
            await service.outcome({**served, "args": {}, "context": {"threadId": "thr_1", "agent": "helper"}})
            for _ in range(2):
                await runtime.artifacts.upload("t", "design", "a.md", "a", title="1")
    keys = [headers["idempotency-key"] for headers in service.headers("PUT", "/artifacts/design/a.md")]
    assert len(set(keys)) == 6
    assert keys[0][:-2] == keys[2][:-2] and [keys[0][-2:], keys[2][-2:]] == [".1", ".2"]


@pytest.mark.parametrize("method", ["set", "merge", "assign", "push", "concat"])
async def test_every_method_of_a_write(method: str) -> None:
    async def write(args: Any, ctx: Any) -> Any:
        return await getattr(ctx.state, method)('a."b.c"', [1])

    async with fake_service() as service:
        kept(service)
        async with service.runtime(spec(define_tool("keep", {}, handler=write))):
            (served,) = service.bodies("POST", "/tool-calls/claim")[0]["tools"]
            posted = await service.outcome({**served, "args": {}, "context": {"threadId": "thr_1"}})
    expected = {"workId": "wrk_0", "path": '†state.a."b.c"', "method": method, "value": [1]}
    assert posted == {"output": {"write": 3, **expected}}


async def test_the_whole_state_and_null_values_are_read() -> None:
    async def look(args: Any, ctx: Any) -> Any:
        return [sorted(await ctx.state.get()), await ctx.state.get("rows.0.n", 5)]

    async with fake_service() as service:
        kept(service)
        async with service.runtime(spec(define_tool("keep", {}, handler=look))):
            (served,) = service.bodies("POST", "/tool-calls/claim")[0]["tools"]
            posted = await service.outcome({**served, "args": {}, "context": {"threadId": "thr_1"}})
    assert posted == {"output": [["rows", "totals"], None]}


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("a..b", "is not a path: "),
        ("", "is not a path: "),
        ("a || †state.b", "is more than one path"),
        ("a b", "is not a path: "),
        ("†state.total", "is not a path: write it as after †state., such as totals.net"),
        ("††total", "is not a path: write it as after †state., such as totals.net"),
        (None, "is not a path: write it as after †state., such as totals.net"),
        (0, "is not a path: write it as after †state., such as totals.net"),
    ],
)
def test_invalid_paths_are_rejected(place: Any, why: str) -> None:
    with pytest.raises(ValueError, match="^" + repr(place).replace("|", r"\|")) as refused:
        document_path("state", place)
    assert why in str(refused.value)


async def test_a_call_without_a_thread_has_neither() -> None:
    async with (
        fake_service() as service,
        service.runtime(spec(define_tool("keep", {}, handler=lambda a, c: c.state))),
    ):
        (served,) = service.bodies("POST", "/tool-calls/claim")[0]["tools"]
        posted = await service.outcome({**served, "args": {}})
    assert posted["error"].startswith("AttributeError: this call has no 'state'; it has agent, ")
