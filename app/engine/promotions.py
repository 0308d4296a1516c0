"""What happens to work when a standby was promoted (docs/decisions/0070).

The database itself stops work after a promotion that may have lost commits (migrations/functions/may_dispatch.sql). Every
process looks for a promotion from time to time, and the first one that finds it decides whether work may continue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from app.base.errors import Unavailable
from app.base.logs.processors import Throttle
from app.base.logs.structured import structlog
from app.base.postgres.database import Database, Tx
from app.engine import lease_store

log = structlog.get_logger(__name__)

PAGE_QUERIES = 500


class Promotions:
    """The promotions of standbys, as this process sees them."""

    def __init__(self, db: Database, *, synchronous: bool) -> None:
        """Set up the view. `synchronous`: the operator declares that only a standby with every acknowledged commit is promoted."""
        self._db = db
        self._synchronous = synchronous
        self._throttle = Throttle()
        self._task: asyncio.Task[None] | None = None
        self.needs_recovery = False

    async def check(self) -> bool:
        """Record the timeline of the database. Return whether work is stopped until `plangate recover`. Raise Unavailable."""
        self.needs_recovery = await lease_store.enter_timeline(self._db, lossless=self._synchronous)
        self._db.metrics.recovery_needed.set(self.needs_recovery)
        return self.needs_recovery

    async def watch(self) -> None:
        """Check, and log from time to time that work is stopped. Raise Unavailable."""
        if not await self.check():
            self._throttle.reset()
        elif self._throttle.allow():
            log.error("database.recovery_needed")

    def check_soon(self) -> None:
        """Check as soon as the database takes a statement."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._retry(), name="promotion")

    async def _retry(self) -> None:
        with contextlib.suppress(Unavailable):  # then the next heartbeat checks
            await self.watch()


async def unfinished_queries(db: Database) -> AsyncIterator[tuple[str, str]]:
    """Yield the tenant and the id of each query that has not ended."""
    after = ("", "")
    while page := await lease_store.unfinished_queries(db, after=after, limit=PAGE_QUERIES):
        for query in page:
            yield query
        after = page[-1]


async def fence_query(tx: Tx, *, query_id: str) -> None:
    """Take the query from the process that works on it, whose memory may be ahead of the database."""
    await lease_store.fence_query(tx, query_id=query_id)


async def end_recovery(db: Database) -> None:
    """Let work continue."""
    await lease_store.end_recovery(db)
