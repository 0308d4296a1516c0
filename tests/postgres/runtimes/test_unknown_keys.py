"""Floods of unknown API keys cost the database little and do not affect others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest_asyncio

from app.api.http import create_app
from app.base.keys import new_key
from tests.support.client import Caller, good, refused
from tests.support.world import World

BURST = 100  # five seconds' worth of the default


@pytest_asyncio.fixture
async def elsewhere(idle: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client with another address."""
    transport = httpx.ASGITransport(create_app(idle.services), client=("192.0.2.9", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://plangate", timeout=30) as http:
        yield http


def counted(world: World, outcome: str) -> float:
    name = "plangate_unknown_keys_total"
    return world.services.metrics.registry.get_sample_value(name, {"outcome": outcome}) or 0


async def test_a_flood_of_unknown_keys_is_limited_before_its_bodies_are_read(
    idle: World, elsewhere: httpx.AsyncClient
) -> None:
    known = await idle.key("read")
    good(await known.get("/queries"))
    read: list[bool] = []

    async def body() -> AsyncIterator[bytes]:
        read.append(True)
        yield b"{}"

    statuses = []
    for _ in range(3 * BURST):
        headers = {"authorization": f"Bearer {new_key()[0]}", "content-type": "application/json"}
        response = await idle.http.post("/queries", content=body(), headers=headers)
        statuses.append(response.status_code)
    assert not read
    assert set(statuses) == {401, 429}
    assert statuses[:BURST] == [401] * BURST
    assert counted(idle, "looked_up") == statuses.count(401)
    assert counted(idle, "limited") == statuses.count(429)

    response = httpx.Response(401)
    for _ in range(BURST):  # a slow machine gets some more tries
        if response.status_code == 401:
            response = await Caller(idle.http, new_key()[0]).get("/queries")
    problem = refused(response, 429, "too_many_unknown_keys")
    assert "unknown API keys a second" in problem["detail"]
    idle.services.tenancy.expire_cached_keys()
    good(await known.get("/queries"))  # a key that this process has seen
    fresh = await idle.key("read")
    good(await Caller(elsewhere, fresh.key).get("/queries"))


async def test_an_unknown_key_is_looked_up_rarely(idle: World) -> None:
    caller = Caller(idle.http, new_key()[0])
    for _ in range(10):
        refused(await caller.get("/queries"), 401)
    assert (counted(idle, "looked_up"), counted(idle, "remembered")) == (1, 9)
    assert len(idle.services.tenancy.unknown_keys) == 1


async def test_concurrent_requests_with_a_new_key_are_all_accepted(idle: World) -> None:
    caller = await idle.key("read")
    answers = await asyncio.gather(*(caller.get("/queries") for _ in range(3 * BURST)))
    assert {answer.status_code for answer in answers} <= {200, 429}  # the tenant's own limit
    assert all(answer.json().get("type") != "too_many_unknown_keys" for answer in answers)
    assert [answer.status_code for answer in answers].count(200) >= 50


async def test_a_revoked_key_is_unknown_at_once_and_stays_so(idle: World) -> None:
    caller = await idle.key("read")
    good(await caller.get("/queries"))
    (row,) = await idle.sql("SELECT id FROM api_keys WHERE principal = 'ann'")
    good(await idle.api.delete(f"/keys/{row['id']}"))
    for _ in range(3):
        refused(await caller.get("/queries"), 401)
