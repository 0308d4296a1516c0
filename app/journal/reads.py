"""How streams read the database: a few at once, so that other requests always find a connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.base.database import Database, Tx
from app.base.errors import Unavailable


class StreamReads:
    """Transactions of streams, `at_once` at a time. The wait for a turn does not count as a wait for the database."""

    def __init__(self, db: Database, at_once: int) -> None:
        self._db = db
        self._turns = asyncio.Semaphore(at_once)
        self._outages = 0
        self.waiting = 0

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[Tx]:
        """A transaction under `tenant`, when it is this one's turn. Raises Unavailable, also if the database was found
        to be away meanwhile: a long queue does not try it one by one."""
        outages = self._outages
        self.waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self.waiting -= 1
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
