"""Open streams: how many a tenant and a key may have, and that many open at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from plangate.events import CustomEvent

from app.assembly import Site
from app.journal import store
from app.journal.models import Scope, event
from tests.support import specs
from tests.support.client import Caller, eventually, refused
from tests.support.cluster import Cluster
from tests.support.sse import served, wire
from tests.support.world import World, world

pytestmark = pytest.mark.timeout(60)


@contextlib.asynccontextmanager
async def streaming(
    address: str, caller: Caller, path: str, **request: object
) -> AsyncIterator[httpx.Response]:
    """A stream that was answered, open for the length of the block."""
    method = "POST" if request else "GET"
    async with (
        httpx.AsyncClient(base_url=address, timeout=20, trust_env=False) as client,
        client.stream(method, path, headers=caller.headers, **request) as response,  # type: ignore[arg-type]
    ):
        if not response.is_success:
            await response.aread()
        yield response


async def no_streams(running: World) -> None:
    await eventually(
        lambda: asyncio.sleep(0, running.services.streams.open_streams.count == 0), "all streams ended"
    )


async def test_a_tenant_may_have_so_many_open_streams(plangate: World) -> None:
    await plangate.tenant("small", openStreams=2)
    small = plangate.operator("small")
    await small.register(specs.mock(tenant="small"))
    async with served(plangate) as address, contextlib.AsyncExitStack() as first:
        for path in ("/events/stream", "/tool-calls/stream"):
            assert (await first.enter_async_context(streaming(address, small, path))).status_code == 200
        for path, request in (
            ("/events/stream", {}),
            ("/tool-calls/stream", {}),
            ("/queries/stream", {"json": {"prompt": "hi"}}),
        ):
            async with streaming(address, small, path, **request) as response:
                detail = refused(response, 429, "too_many_requests")["detail"]
            assert detail.startswith("The tenant 'small' has 2 streams open in this process")
            assert response.headers["retry-after"]
        assert (await small.read("/queries"))["items"] == [], "no query was made"
        async with streaming(address, plangate.api, "/events/stream") as response:
            assert response.status_code == 200, "another tenant has its own"
        await first.aclose()
        await no_streams(plangate)
        async with streaming(address, small, "/events/stream") as response:
            assert response.status_code == 200
    await no_streams(plangate)


async def test_a_key_may_have_fewer_open_streams_than_its_tenant(plangate: World) -> None:
    await plangate.tenant("small", openStreams=3, openStreamsPerKey=1)
    one, two = [await plangate.key("read", tenant="small", principal=p) for p in ("one", "two")]
    async with served(plangate) as address, streaming(address, one, "/events/stream") as response:
        assert response.status_code == 200
        async with streaming(address, one, "/events/stream") as response:
            assert "has 1 streams open" in refused(response, 429)["detail"]
        async with streaming(address, two, "/events/stream") as response:
            assert response.status_code == 200


async def test_a_stream_that_is_refused_counts_no_more(plangate: World) -> None:
    missing = "/queries/qry_" + "0" * 26 + "/stream"
    refused(await plangate.api.get(missing), 404)
    refused(await plangate.api.request("GET", "/events/stream", headers={"last-event-id": "x"}), 400)
    refused(await plangate.api.post("/queries/stream", {"prompt": "x"}), 404)
    assert plangate.services.streams.open_streams.count == 0


async def test_a_hundred_streams_opened_at_once_are_all_answered(
    cluster: Cluster, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read their history two at a time, and leave the rest of the pool to other requests."""
    reading, most = 0, 0
    stream_page = store.stream_page

    async def counted(*args: Any) -> Any:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        try:
            return await stream_page(*args)
        finally:
            reading -= 1

    monkeypatch.setattr(store, "stream_page", counted)
    async with world(site, cluster.operator_key, pool_size=4, stream_reads=2) as running:
        api = running.api
        await api.register(specs.scripted(specs.tool("add")))
        query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
        await api.until(query, "waiting")
        scope = Scope(query, "thr", "wrk", None, "solo")
        async with running.services.db.transaction("acme") as tx:
            large = [event(scope, CustomEvent, event_type="big", data="x" * 10_000) for _ in range(12)]
            await store.append(tx, query, large)
        await api.do(f"/queries/{query}/cancel")

        async def read(client: httpx.AsyncClient) -> int:
            response = await client.get(f"/queries/{query}/stream")
            assert response.status_code == 200
            return len(response.content)

        async with wire(running) as client:
            sizes = await asyncio.gather(*(read(client) for _ in range(100)))
        assert len(set(sizes)) == 1
        assert sizes[0] > 120_000
        assert most == 2
        await no_streams(running)
