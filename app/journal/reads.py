"""How streams read the database: a few at once, so that other requests always find a connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.base.errors import Unavailable
from app.base.postgres.database import Database, Tx


class StreamReads:
    """Transactions of streams, `at_once` at a time. The wait for a turn does not count as a wait for the database."""

    def __init__(self, db: Database, at_once: int) -> None:
        self._db = db
        self._turns = Turns(at_once)
        self._outages = 0

    @property
    def waiting(self) -> int:
        return self._turns.waiting

    @asynccontextmanager
    async def transaction(self, tenant: str, *, opening: bool = False) -> AsyncIterator[Tx]:
        """A transaction under `tenant`, when it is this one's turn: `opening` streams go first, because their clients
        wait for an answer. Raises Unavailable, also if the database was found to be away meanwhile: a long queue does
        not try it one by one."""
        outages = self._outages
        await self._turns.acquire(first=opening)
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


class Turns:
    """A semaphore with two queues."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._first: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._first) + len(self._others)

    async def acquire(self, *, first: bool) -> None:
        if self._free > 0:  # then nobody waits
            self._free -= 1
            return
        queue = self._first if first else self._others
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
        for queue in (self._first, self._others):
            while queue:
                turn = queue.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1
