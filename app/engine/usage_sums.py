"""Add what ended queries used to the sums that `GET /usage` reads, so that its cost does not grow with their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.base.clock import uptime_s
from app.base.postgres.database import Database, StatementTimeout
from app.engine import work_store
from app.usage.service import add_to_sums

INTERVAL_S: Final = 10.0
SETTLED_S: Final = 60.0  # so long after its end, nothing of a query changes any more
MAX_BATCH: Final = 500  # queries of one transaction
MAX_QUERIES: Final = 20_000  # of one run of the task


class UsageSums:
    """The periodic task that adds up usage. Several processes share the work: one of them adds for a tenant at a time."""

    def __init__(self, db: Database, *, interval_s: float = INTERVAL_S, settled_s: float = SETTLED_S) -> None:
        self._db = db
        self._interval_s = interval_s
        self._settled_s = settled_s
        self._next_at = 0.0

    async def add_ended(self) -> int:
        """Add what ended and is settled, unless that was done a moment ago. Return how many queries and calls of hosts
        were added."""
        if uptime_s() < self._next_at:
            return 0
        self._next_at = uptime_s() + self._interval_s
        total, added, limit = 0, MAX_BATCH, MAX_BATCH
        while added == limit and total < MAX_QUERIES:
            added = 0
            try:
                unsummed = await work_store.unsummed(self._db, age_s=self._settled_s, limit=limit)
                for tenant, ids in unsummed.items():
                    added += await self._add(tenant, ids)
            except StatementTimeout:
                if limit == 1:
                    raise
                added = limit = max(1, limit // 10)  # queries with many records: fewer at once
                continue
            total += added
        return total

    async def _add(self, tenant: str, ids: Sequence[str]) -> int:
        async with self._db.transaction(tenant) as tx:
            if not await work_store.try_to_lock_sums(tx):
                return 0
            marked = await work_store.mark_summed(tx, ids=ids)
            await add_to_sums(
                tx,
                query_ids=[query_id for _, query_id in marked if query_id is not None],
                host_ids=[id for id, query_id in marked if query_id is None],
            )
        return len(marked)
