"""The first request of a process costs as much as any other."""

from __future__ import annotations

import time

import httpx

from app.api.http import create_app


async def test_routes_are_built_before_the_first_request() -> None:
    """FastAPI builds them with the first request: 0.1 s in one callback of the event loop."""
    transport = httpx.ASGITransport(create_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://plangate") as client:
        before = time.thread_time()
        assert (await client.get("/nothing-there")).status_code == 404
        assert time.thread_time() - before < 0.04
