"""Limits on open streams of a tenant and of a key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from app.deployment import Deployment
from app.events import CustomEvent
from app.journal.models import Scope, event
from app.journal.service import append_events
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


async def test_open_streams_of_a_tenant_are_limited(plangate: World) -> None:
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


async def test_open_streams_of_a_key_are_limited(plangate: World) -> None:
    await plangate.tenant("small", openStreams=3, openStreamsPerKey=1)
    one, two = [await plangate.key("read", tenant="small", principal=p) for p in ("one", "two")]
    async with served(plangate) as address, streaming(address, one, "/events/stream") as response:
        assert response.status_code == 200
        async with streaming(address, one, "/events/stream") as response:
            assert "has 1 streams open" in refused(response, 429)["detail"]
        async with streaming(address, two, "/events/stream") as response:
            assert response.status_code == 200


async def test_a_rejected_stream_does_not_count(plangate: World) -> None:
    missing = "/queries/qry_" + "0" * 26 + "/stream"
    refused(await plangate.api.get(missing), 404)
    refused(await plangate.api.request("GET", "/events/stream", headers={"last-event-id": "x"}), 400)
    refused(await plangate.api.post("/queries/stream", {"prompt": "x"}), 404)
    assert plangate.services.streams.open_streams.count == 0


async def test_a_hundred_streams_opened_at_once_are_all_answered(cluster: Cluster, site: Deployment) -> None:
    """They read their history two at a time, and leave the rest of the pool to other requests."""
    async with world(site, cluster.operator_key, pool_size=4, stream_reads=2) as running:
        pages = running.faults.probe("count(*) OVER () AS count")
        api = running.api
        await api.register(specs.scripted(specs.tool("add")))
        query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
        await api.until(query, "waiting")
        scope = Scope(query, "thr", "wrk", None, "solo")
        async with running.services.db.transaction("acme") as tx:
            large = [event(scope, CustomEvent, event_type="big", data="x" * 10_000) for _ in range(12)]
            await append_events(tx, query_id=query, events=large)
        await api.do(f"/queries/{query}/cancel")

        async def read(client: httpx.AsyncClient) -> int:
            response = await client.get(f"/queries/{query}/stream")
            assert response.status_code == 200
            return len(response.content)

        async with wire(running) as client:
            sizes = await asyncio.gather(*(read(client) for _ in range(100)))
        assert len(set(sizes)) == 1
        assert sizes[0] > 120_000
        assert pages.most_open == 2
        await no_streams(running)
