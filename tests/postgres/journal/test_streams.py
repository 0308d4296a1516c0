"""Streams: contiguous, resumable, the same bytes for every reader, ended by the terminal event."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.deployment import Deployment
from app.events import CustomEvent
from app.journal.models import Scope, event
from app.journal.service import append_events
from app.journal.store import MAX_EXAMINED_EVENTS
from tests.support import specs
from tests.support.client import Caller, good, refused
from tests.support.cluster import Cluster
from tests.support.sse import Frame, follow, frames, open_tenant, wire
from tests.support.world import World, world

HOSTILE = (
    'CR\rLF\nboth\r\nsep\u2028par\u2029nel\x85quote"back\\slash tab\t emoji 🙂 \x1b data: x\n\nid: 9\n\n'
)
pytestmark = pytest.mark.timeout(20)


async def finished(api: Caller, text: str = "Hello there.", **parts: Any) -> str:
    await api.register(specs.mock(text, **parts))
    query = await api.run()
    assert query["status"] == "succeeded"
    return str(query["id"])


def check_contiguous(got: list[Frame], first: int = 1) -> None:
    seqs = [f.envelope["seq"] for f in got]
    assert seqs == list(range(first, first + len(got)))
    assert [f.event for f in got] == [f.envelope["type"] for f in got]
    terminal = [f.event for f in got if f.event in ("finish", "error")]
    assert terminal == [got[-1].event]


async def test_a_finished_query_replays_from_its_first_event(plangate: World, api: Caller) -> None:
    query = await finished(api)
    got = await follow(plangate, query)
    check_contiguous(got)
    assert [f.event for f in got[:3]] == ["query-status", "query-status", "work-start"]
    assert "".join(f.envelope["text"] for f in got if f.event == "text") == "Hello there."
    assert got[-1].envelope["output"] == "Hello there."


async def test_live_replayed_and_listed_are_the_same_bytes(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    live = asyncio.create_task(follow(plangate, query))
    await api.serve("add", HOSTILE)
    seen = await live
    check_contiguous(seen)
    assert await follow(plangate, query) == seen
    listed = await api.get(f"/queries/{query}/events", limit=500)
    assert listed.content.startswith(b'{"events":[' + ",".join(f.data for f in seen).encode() + b"]")
    for n in range(len(seen)):
        assert (await follow(plangate, query, n)) == seen[n:]


async def test_resuming_from_an_event_id_continues_with_the_next(plangate: World, api: Caller) -> None:
    query = await finished(api)
    seen = await follow(plangate, query)
    async with wire(plangate) as client:
        path = f"/queries/{query}/stream"
        for n in (1, 3, len(seen) - 1):
            by_header = await client.get(path, headers={"last-event-id": seen[n - 1].id})
            by_query = await client.get(path, params={"after": seen[n - 1].id})
            both = {"last-event-id": seen[n - 1].id}
            header_wins = await client.get(path, headers=both, params={"after": seen[0].id})
            assert frames(by_header.text) == frames(by_query.text) == frames(header_wins.text) == seen[n:]
        over = await client.get(path, headers={"last-event-id": seen[-1].id})
        assert frames(over.text) == []


async def test_streams_have_the_headers_that_proxies_and_browsers_need(plangate: World, api: Caller) -> None:
    query = await finished(api)
    async with wire(plangate) as client:
        got = await client.get(f"/queries/{query}/stream")
    assert got.headers["content-type"].startswith("text/event-stream")
    assert got.headers["cache-control"] == "no-store"
    assert got.headers["x-accel-buffering"] == "no"
    assert got.text.startswith("retry: ")


async def test_framing_survives_any_content(plangate: World, api: Caller) -> None:
    text = HOSTILE + "x" * 100
    query = await finished(api, text)
    async with wire(plangate) as client:
        got = frames((await client.get(f"/queries/{query}/stream")).text)
    check_contiguous(got)
    assert "".join(f.envelope["text"] for f in got if f.event == "text") == text
    assert got[-1].envelope["output"] == text


@pytest.mark.parametrize("shared_bytes", [64 * 1024 * 1024, pytest.param(0, marks=pytest.mark.long)])
async def test_a_field_of_five_megabytes_arrives_complete(
    cluster: Cluster, site: Deployment, shared_bytes: int
) -> None:
    """From a copy that readers share and, where there is no room for one, in slices from the database."""
    async with world(site, cluster.operator_key, large_event_bytes=shared_bytes) as running:
        await five_megabytes(running, running.api)


async def five_megabytes(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    await api.until(query, "waiting")
    text = "é\r\n" * 1_250_000
    scope = Scope(query, "thr", "wrk", None, "solo")
    async with plangate.services.db.transaction("acme") as tx:
        await append_events(
            tx, query_id=query, events=[event(scope, CustomEvent, event_type="big", data=text)]
        )
    await api.do(f"/queries/{query}/cancel")
    async with wire(plangate) as client:
        responses = [client.get(f"/queries/{query}/stream") for _ in range(3)]
        several = [frames(r.text) for r in await asyncio.gather(*responses)]
    for got in several:
        check_contiguous(got)
        assert [f.envelope["data"] for f in got if f.event == "custom"] == [text]
    assert plangate.services.streams.shared_bytes == 0


async def test_events_written_in_sql_reach_a_live_reader(plangate: World, api: Caller) -> None:
    """A cancellation is written by the door, after events that this process's writer handed over itself."""
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    live = asyncio.create_task(follow(plangate, query, patience_s=5))
    await api.until(query, "waiting")
    await asyncio.sleep(0.1)
    await api.do(f"/queries/{query}/cancel")
    seen = await live
    check_contiguous(seen)
    assert seen[-1].envelope["error"]["code"] == "cancelled"


async def test_a_reader_in_another_process_sees_the_same(plangate: World, second: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    here = asyncio.create_task(follow(plangate, query))
    there = asyncio.create_task(follow(second, query))
    await second.api.serve("add", 1)
    assert await here == await there


async def test_lost_notifications_are_recovered_within_seconds(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    await api.until(query, "waiting")
    await plangate.services.listener.aclose()
    live = asyncio.create_task(follow(plangate, query, patience_s=8))
    await api.serve("add", 1)
    check_contiguous(await live)


async def test_types_filter_events_but_not_the_end(plangate: World, api: Caller) -> None:
    query = await finished(api)
    everything = await follow(plangate, query)
    texts = await follow(plangate, query, 0, "text")
    assert texts == [f for f in everything if f.event == "text"]
    path = f"/queries/{query}/events"
    page = await api.read(path, types="text,finish")
    assert [e["type"] for e in page["events"]] == ["text", "finish"]
    assert page["done"] is True
    page = await api.read(path, types="text")
    assert [e["type"] for e in page["events"]] == ["text"]
    assert page["done"] is True, "nothing more of these types will come"
    body = refused(await api.get(path, types="text,nonsense"), 422, "invalid")
    assert body["errors"][0]["pointer"] == "query:types"
    assert "nonsense" in body["errors"][0]["message"]


async def test_pages_cover_the_journal_once(api: Caller) -> None:
    query = await finished(api)
    everything = await api.events(query)
    seen: list[Any] = []
    params: dict[str, str] = {}
    while True:
        page = await api.read(f"/queries/{query}/events", limit=2, **params)
        seen += page["events"]
        if page["done"]:
            break
        params = {"after": page["nextCursor"]}
    assert seen == everything


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "00000000.0.1", "0123456789", "9" * 400, "G.b.c", "000000000000.0000000000.-1", "1"],
)
async def test_an_invalid_cursor_is_malformed(api: Caller, cursor: str) -> None:
    query = await finished(api)
    response = await api.request("GET", f"/queries/{query}/events", headers={"last-event-id": cursor or "?"})
    refused(response, 400, "malformed")


async def test_a_cursor_names_an_event_of_its_query(plangate: World, api: Caller) -> None:
    query = await finished(api)
    another = (await api.run())["id"]
    path = f"/queries/{query}/events"
    first, *_, last = [f.id for f in await follow(plangate, query)]
    assert "another query" in refused(await api.get(f"/queries/{another}/events", after=last), 400)["detail"]
    assert (await api.read(path, after=last))["nextCursor"] == last, "nothing follows"
    digest, tail, seq = last.split(".")
    for missing in (f"{digest}.{tail}.{int(seq) + 1}", f"{first.split('.')[0]}.{tail}.{seq}"):
        body = refused(await api.get(path, after=missing), 409, "history_rewound")
        assert "does not have the event" in body["detail"]
        stream = f"/queries/{query}/stream"
        refused(await api.request("GET", stream, headers={"last-event-id": missing}), 409, "history_rewound")


async def test_a_large_event_has_one_cursor_for_all_readers(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    await api.until(query, "waiting")
    live = asyncio.create_task(follow(plangate, query, patience_s=8))
    await asyncio.sleep(0.2)
    told = event(Scope(query, "thr", "wrk", None, "solo"), CustomEvent, event_type="x", data="x" * 100_000)
    async with plangate.services.db.transaction("acme") as tx:
        await append_events(tx, query_id=query, events=[told])
    await api.serve("add", 1)
    seen = await live
    large = next(f for f in seen if f.event == "custom")
    assert seen == await follow(plangate, query), "replayed"
    page = await api.read(f"/queries/{query}/events", types=large.event, limit=500)
    assert page["nextCursor"] == large.id
    rest = await api.read(f"/queries/{query}/events", after=large.id)
    assert rest["events"][0]["seq"] == large.envelope["seq"] + 1


async def test_after_a_promotion_only_lost_events_rewind_a_tenant(
    plangate: World, api: Caller, owner: Any
) -> None:
    await api.register(specs.mock())
    empty = (await plangate.other.read("/events"))["nextCursor"]
    query = (await api.run())["id"]
    kept = (await api.read("/events"))["nextCursor"]
    query_kept = (await api.read(f"/queries/{query}/events"))["nextCursor"]
    await api.run()
    lost = (await api.read("/events"))["nextCursor"]
    listed = await api.read("/events", after=kept)
    newest = "(SELECT max(xid) FROM events WHERE tenant_id = 'acme')"
    await owner.execute(f"UPDATE events SET body = body || ' ' WHERE xid = {newest}")
    assert (await api.get("/events", after=lost)).status_code == 200, "on the same timeline nothing is lost"
    function = "CREATE OR REPLACE FUNCTION database_timeline() RETURNS text LANGUAGE sql AS"
    await owner.execute(f"{function} $$ SELECT '000000FF' $$")
    for cursor in (lost, listed["nextCursor"]):
        refused(await api.get("/events", after=cursor), 409, "history_rewound")
    refused(await api.request("GET", "/events/stream", headers={"last-event-id": lost}), 409)
    assert len((await api.read("/events", after=kept))["events"]) == len(listed["events"])
    assert (await plangate.other.read("/events", after=empty))["events"] == []
    assert (await api.read(f"/queries/{query}/events", after=query_kept))["done"] is True


async def test_deltas_are_merged_and_join_to_the_text(api: Caller) -> None:
    text = "".join(f"word{n} " for n in range(500))
    query = await finished(api, text, providers={"anthropic": {"kind": "mock", "tokens": 500}})
    told = await api.events(query, "text")
    assert "".join(e["text"] for e in told) == text
    assert len(told) < 250
    assert {e["turn"] for e in told} == {1}


async def test_one_request_starts_a_query_and_follows_it(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    async with wire(plangate) as client:
        got = await client.post("/queries/stream", json={"prompt": "hi"})
    assert got.status_code == 200
    seen = frames(got.text)
    check_contiguous(seen)
    assert got.headers["location"] == f"/queries/{seen[0].envelope['queryId']}"


async def test_a_stream_ends_after_limit_events_and_resumes(plangate: World, api: Caller) -> None:
    start = (await api.read("/events"))["nextCursor"]
    query = await finished(api)
    everything = await follow(plangate, query)
    async with wire(plangate) as client:
        path = f"/queries/{query}/stream"
        first = frames((await client.get(path, params={"limit": 3})).text)
        rest = frames((await client.get(path, headers={"last-event-id": first[-1].id})).text)
        tenant = frames((await client.get("/events/stream", params={"limit": 2, "after": start})).text)
    assert (len(first), first + rest) == (3, everything)
    assert [f.data for f in tenant] == [f.data for f in everything if f.event != "text"][:2]
    refused(await api.get(path, limit=0), 422)


async def test_json_paths_honor_accept_event_stream(plangate: World, api: Caller) -> None:
    query = await finished(api)
    async with wire(plangate) as client:
        client.headers["accept"] = "text/event-stream"
        got = await client.get(f"/queries/{query}/events")
        posted = await client.post("/queries", json={"prompt": "hi"})
    assert frames(got.text) == await follow(plangate, query)
    assert frames(posted.text)[-1].event == "finish"


async def test_losing_the_connection_does_not_touch_the_query(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    async with (
        wire(plangate) as client,
        client.stream(
            "POST", "/queries/stream", json={"prompt": specs.script(("add", {"n": 1}))}
        ) as response,
    ):
        query = response.headers["location"].split("/")[-1]
        async for line in response.aiter_lines():
            if line.startswith("data:"):
                break
    await api.serve("add", 1)
    assert (await api.ended(query))["status"] == "succeeded"


async def test_a_revoked_key_ends_busy_streams(plangate: World, api: Caller) -> None:
    caller = await plangate.key("read", principal="leaver")
    key = next(k for k in (await api.read("/keys"))["items"] if k["principal"] == "leaver")
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    await api.until(query, "waiting")
    scope = Scope(query, "thr", "wrk", None, "solo")
    busy = True

    async def chatter() -> None:
        while busy:
            async with plangate.services.db.transaction("acme") as tx:
                await append_events(
                    tx, query_id=query, events=[event(scope, CustomEvent, event_type="tick", data={})]
                )
            await asyncio.sleep(0.3)

    noise = asyncio.create_task(chatter())
    async with wire(plangate) as client:
        started = asyncio.get_running_loop().time()

        async def read(path: str) -> float:
            async with client.stream("GET", path, headers=caller.headers) as response:
                assert response.status_code == 200
                async for _ in response.aiter_bytes():
                    pass
            return asyncio.get_running_loop().time()

        readers = [asyncio.create_task(read(p)) for p in (f"/queries/{query}/stream", "/events/stream")]
        await asyncio.sleep(0.2)
        good(await api.delete(f"/keys/{key['id']}"))
        revoked = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(8):
                ends = await asyncio.gather(*readers)
        finally:
            busy = False
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, noise, return_exceptions=True)
    assert revoked - started < 2
    assert max(ends) - revoked < 5


# -- everything of a tenant


async def tenant_stream(world: World, after: str | None, stop: asyncio.Event, *types: str) -> list[Frame]:
    reading = await open_tenant(world, after, *types)
    await stop.wait()
    return await reading.close()


async def test_the_tenant_stream_is_exact_under_concurrent_writes(
    plangate: World, second: World, api: Caller
) -> None:
    await api.register(specs.mock())
    stop = asyncio.Event()
    streaming = asyncio.create_task(tenant_stream(plangate, None, stop))
    await asyncio.sleep(0.1)
    submitted = await asyncio.gather(
        *((plangate if n % 2 else second).api.submit(threadKey=f"t{n % 7}") for n in range(30))
    )
    for accepted in submitted:
        await api.ended(accepted["id"])
    await asyncio.sleep(0.3)
    stop.set()
    seen = [(f.envelope["queryId"], f.envelope["seq"]) for f in await streaming]
    wanted = await plangate.sql("SELECT query_id, seq FROM events WHERE type <> 'text'")
    assert sorted(seen) == sorted((r["query_id"], r["seq"]) for r in wanted)
    for query in {q for q, _ in seen}:
        seqs = [s for q, s in seen if q == query]
        assert seqs == sorted(seqs)


async def test_the_tenants_stream_resumes_after_any_event(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    start = (await api.read("/events"))["nextCursor"]
    for _ in range(3):
        await api.run()
    whole = await api.read("/events", after=start, limit=500)
    assert whole["events"]
    stop = asyncio.Event()
    streaming = asyncio.create_task(tenant_stream(plangate, start, stop))
    await asyncio.sleep(0.2)
    stop.set()
    seen = await streaming
    assert [f.envelope for f in seen] == whole["events"]
    assert [e["type"] for e in whole["events"]].count("finish") == 3
    for n in (0, 5, len(seen) - 2):
        rest = await api.read("/events", after=seen[n].id, limit=500)
        assert rest["events"] == whole["events"][n + 1 :]


async def test_streams_of_a_tenant_share_reads_and_each_gets_everything_once(
    plangate: World, api: Caller
) -> None:
    await api.register(specs.mock())
    reads = plangate.faults.probe("octet_length(body) <= $10")
    readings = [await open_tenant(plangate, None, "finish") for _ in range(20)]
    slow = readings[0]
    slow.reads.clear()
    ended = [(await api.run())["id"] for _ in range(3)]
    for reading in readings[1:]:
        await reading.until(lambda body: body.count(b"event: finish") == 3)
    slow.reads.set()
    await slow.until(lambda body: body.count(b"event: finish") == 3)
    for reading in readings:
        assert [f.envelope["queryId"] for f in await reading.close()] == ended
    assert reads.count < 60, "fewer than one for each stream and query"


async def test_the_tenant_stream_waits_for_open_transactions(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("pay", approval="always"), name="asking"))
    await api.register(specs.mock())
    start = (await api.read("/events"))["nextCursor"]
    query = (await api.submit(specs.script(("pay", {"n": 1})), runtime="asking"))["id"]
    await api.until(query, "waiting")
    await api.run()
    scope = Scope(query, "thr", "wrk", None, "solo")
    async with plangate.services.db.transaction("acme") as tx:
        slow = event(scope, CustomEvent, event_type="slow", data={})
        insert = "INSERT INTO events (tenant_id, query_id, seq, type, body) VALUES ('acme', $1, 1000, 'custom', $2)"
        await tx.run(insert, query, slow.body)
        await api.run()
        during = await api.read("/events", after=start, types="custom,finish", limit=500)
        assert len(during["events"]) == 1, "only what began before the open write"
    after = await api.read("/events", after=during["nextCursor"], types="custom,finish", limit=500)
    assert [e["type"] for e in after["events"]] == ["custom", "finish"]


async def test_the_tenants_stream_filters(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    start = (await api.read("/events"))["nextCursor"]
    one, two = await api.run(), await api.run()
    listed = await api.read("/events", after=start, types="text", threadId=two["threadId"])
    assert [(e["type"], e["queryId"]) for e in listed["events"]] == [("text", two["id"])]
    assert one["id"] != two["id"]
    other = await api.read("/events", after=start, runtimeId="rt_" + "0" * 26)
    assert other["events"] == []


async def test_a_page_of_the_tenants_events_examines_a_bounded_number(plangate: World, api: Caller) -> None:
    """Two pages of events that the filter rejects come before the one that it lets through."""
    query = await finished(api)
    start = (await api.read("/events"))["nextCursor"]
    repeat = """
INSERT INTO events (tenant_id, query_id, seq, type, body)
SELECT e.tenant_id, e.query_id, 1000 + n, CASE WHEN n > $2 THEN 'finish' ELSE 'custom' END, e.body
  FROM events e, generate_series(1, $2 + 1) n WHERE e.tenant_id = 'acme' AND e.query_id = $1 AND e.type = 'finish'
"""
    async with plangate.services.db.transaction("acme") as tx:
        await tx.run(repeat, query, 2 * MAX_EXAMINED_EVENTS + 1)
    cursor, pages = start, []
    for _ in range(3):
        page = await api.read("/events", after=cursor, types="finish", runtimeId="rt_" + query[4:])
        assert page["events"] == []
        page = await api.read("/events", after=cursor, types="finish")
        assert page["nextCursor"] != cursor
        cursor = page["nextCursor"]
        pages.append([e["type"] for e in page["events"]])
    assert pages == [[], [], ["finish"]]
    async with wire(plangate) as client:
        params: dict[str, Any] = {"limit": 1, "after": start, "types": "finish"}
        (streamed,) = frames((await client.get("/events/stream", params=params)).text)
    assert streamed.envelope["seq"] == 1000 + 2 * MAX_EXAMINED_EVENTS + 2


async def test_a_cursor_of_another_tenant_is_rejected(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    await api.run()
    cursor = (await api.read("/events"))["nextCursor"]
    assert (await api.get("/events", after=cursor)).status_code == 200
    refused(await plangate.other.get("/events", after=cursor), 400, "malformed")


async def test_cursors_of_the_tenants_stream_are_signed(plangate: World, api: Caller) -> None:
    start = (await api.read("/events"))["nextCursor"]
    flipped = start[:-1] + ("A" if start[-1] != "A" else "B")
    refused(await api.get("/events", after=flipped), 400, "malformed")
    refused(await api.get("/events", after="nonsense"), 400, "malformed")


async def test_events_are_visible_only_to_their_tenant(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    start = (await plangate.other.read("/events"))["nextCursor"]
    await api.run()
    assert (await plangate.other.read("/events", after=start))["events"] == []


async def test_a_stream_ends_between_events_when_the_process_drains(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    await api.until(query, "waiting")
    live = asyncio.create_task(follow(plangate, query))
    await asyncio.sleep(0.1)
    plangate.services.streams.drain()
    seen = await live
    assert seen[-1].event == "query-status"
    assert [f.envelope["seq"] for f in seen] == list(range(1, len(seen) + 1))


async def test_a_stream_of_a_missing_query_is_a_404(api: Caller) -> None:
    refused(await api.get("/queries/qry_" + "0" * 26 + "/stream"), 404, "not_found")


def test_the_test_parser_follows_the_sse_format() -> None:
    assert frames("id: 1\r\nevent: a\rdata: {}\n\n: note\n\n") == [Frame("1", "a", "{}")]
    assert json.loads(frames('data: "\u2028"\n\n')[0].data) == "\u2028"
