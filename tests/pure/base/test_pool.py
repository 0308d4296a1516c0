"""The pool of database connections, with connections that need no database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.base.postgres import pool as pools
from app.base.postgres.pool import ConnectionPool


class Connection:
    """What the pool uses of a connection of asyncpg."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = False
        self.answers = True

    def is_closed(self) -> bool:
        return self.closed

    async def close(self, *, timeout: float) -> None:
        if not self.answers:
            await asyncio.sleep(3600)
        self.closed = True

    def terminate(self) -> None:
        self.closed = True


class Server:
    """Opens connections, numbered from 0, and counts its restarts as the pool notices them."""

    def __init__(self) -> None:
        self.opened: list[Connection] = []
        self.noticed_restarts = 0
        self.rejects = False

    async def connect(self) -> Any:
        await asyncio.sleep(0)
        if self.rejects:
            raise ConnectionRefusedError
        self.opened.append(Connection(len(self.opened)))
        return self.opened[-1]

    def note_restart(self) -> None:
        self.noticed_restarts += 1

    def restart(self) -> None:
        for connection in self.opened:
            connection.closed = True

    def pool(self, size: int) -> ConnectionPool:
        return ConnectionPool(self.connect, self.note_restart, size=size)


async def use(pool: ConnectionPool, *, of: int = 1) -> list[int]:
    """Use this many connections at once. Return their numbers."""
    everyone = asyncio.Barrier(of)

    async def hold() -> int:
        async with pool.acquire() as connection:
            await everyone.wait()
            return int(connection.raw.number)

    async with asyncio.timeout(5):
        return sorted(await asyncio.gather(*(hold() for _ in range(of))))


async def test_connections_are_used_again_and_bounded() -> None:
    server = Server()
    pool = server.pool(2)
    assert await use(pool) == await use(pool) == [0]
    assert await use(pool, of=2) == [0, 1]
    async with pool.acquire(), pool.acquire():
        assert pool.in_use == pool.size == 2
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), pool.acquire():
                pass
    assert pool.in_use == 0
    assert await use(pool, of=2) == [0, 1]


async def test_callers_get_connections_in_their_order() -> None:
    pool = Server().pool(1)
    served: list[int] = []

    async def work(number: int) -> None:
        async with pool.acquire():
            served.append(number)
            await asyncio.sleep(0)

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(work(number))
    assert served == list(range(20))


async def test_canceled_callers_and_failed_attempts_keep_no_slot() -> None:
    server = Server()
    pool = server.pool(1)
    async with pool.acquire():
        waiting = [asyncio.create_task(use(pool)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
    assert await asyncio.gather(*waiting[1:]) == [[0], [0]]
    with pytest.raises(KeyError):
        async with pool.acquire() as connection:
            await connection.invalidate()
            raise KeyError
    server.rejects = True
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            await use(pool)
    server.rejects = False
    assert await use(pool) == [1]
    assert pool.in_use == 0


async def test_an_invalid_connection_is_closed_and_replaced() -> None:
    server = Server()
    pool = server.pool(1)
    async with pool.acquire() as connection:
        waiting = asyncio.create_task(use(pool))
        await asyncio.sleep(0)
        await connection.invalidate()
        assert server.opened[0].closed
    assert await waiting == [1]
    assert server.noticed_restarts == 0


async def test_a_connection_is_terminated_if_its_close_is_canceled() -> None:
    server = Server()
    pool = server.pool(1)

    async def work() -> None:
        async with pool.acquire() as connection:
            connection.raw.answers = False
            await connection.invalidate()

    working = asyncio.create_task(work())
    await asyncio.sleep(0.01)
    assert not server.opened[0].closed
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert server.opened[0].closed
    assert await use(pool) == [1]


async def test_all_connections_are_replaced_after_a_restart_of_the_server() -> None:
    server = Server()
    pool = server.pool(3)
    async with pool.acquire() as in_use:
        assert await use(pool, of=2) == [1, 2]
        [last_used] = await use(pool)
        next_one = 3 - last_used
        server.opened[next_one].closed = True
        assert await use(pool) == [3]
        assert server.opened[last_used].closed
        assert in_use.raw.number == 0
        assert not in_use.raw.closed
    assert await use(pool, of=3) == [3, 4, 5]
    assert server.opened[0].closed
    assert server.noticed_restarts == 1
    server.restart()
    assert await use(pool, of=3) == [6, 7, 8]
    assert server.noticed_restarts == 2


async def test_old_connections_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    pool = server.pool(1)
    assert await use(pool) == [0]
    monkeypatch.setattr(pools, "RECYCLE_S", 0.0)
    assert await use(pool) == [1]
    assert server.opened[0].closed
    assert server.noticed_restarts == 0


async def test_closing_the_pool_closes_what_is_idle() -> None:
    server = Server()
    pool = server.pool(3)
    await use(pool, of=3)
    async with pool.acquire() as connection:
        await pool.aclose()
        assert [opened.closed for opened in server.opened].count(False) == 1
        assert not connection.raw.closed
