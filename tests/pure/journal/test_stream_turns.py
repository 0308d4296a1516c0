"""Turns of streams at the database: limited, new streams first, none lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from app.base.errors import Unavailable
from app.base.postgres.database import Database
from app.journal.reads import PrioritySemaphore, StreamReads


async def test_new_streams_are_served_first() -> None:
    turns = PrioritySemaphore(1)
    order: list[str] = []

    async def take(name: str, first: bool) -> None:
        await turns.acquire(priority=first)
        order.append(name)
        await asyncio.sleep(0)
        turns.release()

    await turns.acquire(priority=False)
    waiting = [
        asyncio.create_task(take(n, n.startswith("open"))) for n in ("read 1", "read 2", "open 1", "open 2")
    ]
    await asyncio.sleep(0)
    assert turns.waiting_count == 4
    turns.release()
    await asyncio.gather(*waiting)
    assert order == ["open 1", "open 2", "read 1", "read 2"]
    assert turns.waiting_count == 0


@pytest.mark.parametrize("at_once", [1, 2])
async def test_the_turn_of_a_canceled_stream_passes_to_the_next(at_once: int) -> None:
    turns = PrioritySemaphore(at_once)
    for _ in range(at_once):
        await turns.acquire(priority=False)
    tasks = [asyncio.create_task(turns.acquire(priority=False)) for _ in range(4)]
    await asyncio.sleep(0)
    tasks[0].cancel()  # while it waits
    turns.release()  # to the second
    tasks[1].cancel()  # before it knows
    await asyncio.wait(tasks[:3])
    assert [t.cancelled() for t in tasks[:3]] == [True, True, False]
    turns.release()
    await tasks[3]


class Away:
    """A database that cannot be reached."""

    def __init__(self) -> None:
        self.tried = 0

    @asynccontextmanager
    async def transaction(self, _tenant: str) -> AsyncIterator[Any]:
        self.tried += 1
        await asyncio.sleep(0)
        raise Unavailable("test")
        yield


async def test_waiting_streams_detect_an_outage_once() -> None:
    away = Away()
    reads = StreamReads(cast(Database, away), 1)

    async def read() -> None:
        with pytest.raises(Unavailable):
            async with reads.transaction("acme"):
                pass

    await asyncio.gather(*(read() for _ in range(100)))
    assert away.tried == 1
    await read()
    assert away.tried == 2
