"""Limit the concurrent database reads of streams, so that other requests always find a connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.base.errors import Unavailable
from app.base.postgres.database import Database, Tx


class StreamReads:
    """Transactions of streams, `max_concurrent` at a time. Waiting for a turn does not count as waiting for
    the database."""

    def __init__(self, db: Database, max_concurrent: int) -> None:
        self._db = db
        self._turns = PrioritySemaphore(max_concurrent)
        self._outages = 0

    @property
    def waiting_count(self) -> int:
        return self._turns.waiting_count

    @asynccontextmanager
    async def transaction(self, tenant: str, *, is_opening: bool = False) -> AsyncIterator[Tx]:
        """Open a transaction for `tenant` when it is this stream's turn. Raise Unavailable.

        Streams with `is_opening` go first, because their clients wait for a response. If another stream found
        the database unavailable meanwhile, this raises at once: a long queue does not retry one by one.
        """
        outages = self._outages
        await self._turns.acquire(priority=is_opening)
        try:
            if self._outages != outages:
                raise Unavailable("The database cannot be reached; try again in a moment.")
            try:
                async with self._db.transaction(tenant) as tx:
                    yield tx
            except Unavailable:
                self._outages += 1
                raise
        finally:
            self._turns.release()


class PrioritySemaphore:
    """A semaphore with two queues."""

    def __init__(self, max_concurrent: int) -> None:
        self._free = max_concurrent
        self._priority_queue: deque[asyncio.Future[None]] = deque()
        self._normal_queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting_count(self) -> int:
        return len(self._priority_queue) + len(self._normal_queue)

    async def acquire(self, *, priority: bool) -> None:
        if self._free > 0:  # then nobody waits
            self._free -= 1
            return
        queue = self._priority_queue if priority else self._normal_queue
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was this one's turn already
                self.release()
            elif turn in queue:
                queue.remove(turn)
            raise

    def release(self) -> None:
        for queue in (self._priority_queue, self._normal_queue):
            while queue:
                turn = queue.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1
