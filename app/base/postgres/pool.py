"""A pool of asyncpg connections.

It is our own because asyncpg's pool starts a task for each release, and SQLAlchemy's takes a third of the CPU of a
server's imports (docs/decisions/0080).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

RECYCLE_S: Final = 1800.0
"""The age at which a connection is replaced instead of used again."""
CLOSE_TIMEOUT_S: Final = 2.0


@dataclass(slots=True, eq=False)
class PooledConnection:
    """A connection of the pool. `raw` is asyncpg's."""

    raw: Any
    generation: int
    opened_at: float
    is_valid: bool = True

    async def invalidate(self) -> None:
        """Close the connection. It does not return to the pool."""
        self.is_valid = False
        try:
            await asyncio.shield(self.raw.close(timeout=CLOSE_TIMEOUT_S))
        except asyncio.CancelledError:
            self.raw.terminate()
            raise
        except Exception:  # noqa: BLE001 - the server does not answer
            self.raw.terminate()


class ConnectionPool:
    """At most `size` connections, which `connect` opens when they are needed. Callers wait for one in their order.

    A server that restarts closes all its connections. If a connection is found closed when it leaves the pool, `on_restart`
    is called and all connections of the pool are replaced, those in use included once they return.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Any]], on_restart: Callable[[], None], *, size: int
    ) -> None:
        self.size: Final = size
        """The most connections that may be open."""
        self.in_use = 0
        self._connect = connect
        self._on_restart = on_restart
        self._slots = asyncio.Semaphore(size)
        self._idle: deque[PooledConnection] = deque()
        self._generation = 0

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[PooledConnection]:
        """Yield a connection. It is not reset afterward: the caller returns it clean, or invalidates it.

        Waits without a limit while all connections are in use. Raises the error of `connect` if none can be opened.
        """
        async with self._slots:
            self.in_use += 1
            try:
                connection = await self._take()
                try:
                    yield connection
                finally:
                    if connection.is_valid:
                        self._idle.append(connection)
            finally:
                self.in_use -= 1

    async def _take(self) -> PooledConnection:
        """Return the connection that was idle for the longest time, or a new one."""
        while self._idle:
            connection = self._idle.popleft()
            if connection.generation == self._generation:
                if connection.raw.is_closed():
                    self._generation += 1
                    self._on_restart()
                elif time.monotonic() - connection.opened_at < RECYCLE_S:
                    return connection
            await connection.invalidate()
        generation = self._generation  # read first: a restart during the connect makes this connection stale
        return PooledConnection(await self._connect(), generation, time.monotonic())

    async def aclose(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            await self._idle.popleft().invalidate()
