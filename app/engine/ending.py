"""End a query as failed or canceled, in one transaction that needs nothing of its run.

Gates, calls, plans and work records that are open below the query are closed, and a higher epoch fences off the process
that works on it (docs/decisions/0003). A query that was set aside, or whose end failed in one transaction, is fenced
first and then ended in several transactions (`QueryEndings`, docs/decisions/0019).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

import orjson

from app.base.ids import age_ms, with_prefix
from app.base.logs.structured import structlog
from app.base.postgres.database import Database, Tx
from app.engine import store
from app.engine.models import QueryTotals
from app.engine.worker import for_each_due
from app.events import DataCostSummaryEvent, DataLatencySummaryEvent, ErrorEvent, QueryStatusEvent
from app.journal.models import Event, Scope, event
from app.journal.service import append_events

log = structlog.get_logger(__name__)

REPAIR_EVERY_S: Final = 600.0
REPAIR_MORE_S: Final = 10.0  # while there are more than one batch
REPAIR_BATCH: Final = 100
DUE_BATCH: Final = 100

EndHook = Callable[[Tx, str, str], Awaitable[None]]
"""What a feature does in the transaction that ends a query early, called as `(tx, query_id, reason)`."""


async def end_early(
    tx: Tx,
    hooks: Sequence[EndHook],
    query_id: str,
    to: Literal["failed", "cancelled"],
    code: str,
    message: str,
) -> None:
    """End a query that has not ended. The caller holds its row."""
    for hook in hooks:
        await hook(tx, query_id, code)
    await write_end(tx, query_id, to, code, message)


async def write_end(
    tx: Tx, query_id: str, to: Literal["failed", "cancelled"], code: str, message: str
) -> None:
    """Write the last events of a query and its end; everything below it is closed."""
    query = await store.lock_for_end(tx, query_id=query_id)  # closing a gate may have woken it
    assert query is not None  # the caller has locked its row
    scope = Scope(query_id, query.thread_id, with_prefix("wrk_", query_id), None, query.agent)
    error = {"code": code, "message": message}
    events = [
        *summary_events(scope, await store.load_totals(tx, query_id=query_id)),
        event(scope, QueryStatusEvent, from_=query.status, to=to, reason=code),
        event(scope, ErrorEvent, error=error),
    ]
    await append_events(tx, query_id=query_id, events=events)
    await store.end_query(tx, query_id=query_id, status=to, reason=code, error=orjson.dumps(error))


def summary_events(scope: Scope, totals: QueryTotals) -> list[Event]:
    """Return the events with the usage and the duration of a query; they precede its end."""
    return [
        event(scope, DataCostSummaryEvent, data=totals.to_wire()),
        event(scope, DataLatencySummaryEvent, data={"elapsedMs": age_ms(scope.query_id)}),
    ]


class QueryEndings:
    """Ends queries that are claimed only to be ended: each hook in a transaction of its own, the terminal event last.

    Until all hooks have succeeded, the query stays `running`, fenced, and this is tried again.
    """

    def __init__(self, db: Database, hooks: Sequence[EndHook], retry_s: float = 10.0) -> None:
        self._db = db
        self._hooks = hooks
        self._retry_s = retry_s
        self._next_repair_s = 0.0

    async def finish_due(self) -> int:
        """End the queries that are due; return how many were due. Safe in any number of processes at once."""
        due = await store.claim_endings(self._db, limit=DUE_BATCH, again_s=self._retry_s)
        await for_each_due(due, self._finish)
        return len(due)

    async def _finish(self, tenant: str, query_id: str) -> None:
        for hook in self._hooks:
            async with self._db.transaction(tenant) as tx:
                due = await store.lock_ending(tx, query_id=query_id)
                if due is None:
                    return
                await hook(tx, query_id, due.code)
        async with self._db.transaction(tenant) as tx:
            due = await store.lock_ending(tx, query_id=query_id)
            if due is not None:
                await write_end(tx, query_id, "failed", due.code, due.message)

    async def repair_stranded(self) -> int:
        """Close what is still open below queries that have ended, which an earlier version could leave behind. Return the
        number of such queries. Their journals have ended, so only rows change."""
        now = time.monotonic()
        if now < self._next_repair_s:
            return 0
        stranded = await store.stranded_queries(self._db, limit=REPAIR_BATCH)
        await for_each_due(stranded, self._repair)
        self._next_repair_s = now + (REPAIR_EVERY_S if len(stranded) < REPAIR_BATCH else REPAIR_MORE_S)
        return len(stranded)

    async def _repair(self, tenant: str, query_id: str) -> None:
        log.warning("query.repaired", query_id=query_id)
        for hook in self._hooks:
            async with self._db.transaction(tenant) as tx:
                query = await store.lock_for_end(tx, query_id=query_id)
                if query is None:
                    return  # it was deleted
                await hook(tx, query_id, query.reason or query.status)
