"""How a query ends as failed or cancelled: one transaction, whoever ends it, that needs nothing of its run.

What is open below the query (gates, calls, plans) is closed, its records too, and a higher epoch fences off
whoever works on it (docs/decisions/0003). A query that was set aside, or whose end failed in one transaction, is
fenced first and then ended in several (`Endings`, docs/decisions/0019).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal

import orjson
import structlog
from plangate.events import DataCostSummaryEvent, DataLatencySummaryEvent, ErrorEvent, QueryStatusEvent
from plangate.events import Usage as TokenCounts

from app.base.ids import age_ms, with_prefix
from app.base.postgres.database import Database, Tx
from app.base.responses import to_wire
from app.engine import store
from app.engine.worker import for_each_due
from app.journal import store as journal_store
from app.journal.models import Event, Scope, event
from app.llm.messages import Usage

log = structlog.get_logger(__name__)

REPAIR_EVERY_S: Final = 600.0
REPAIR_MORE_S: Final = 10.0  # while there are more than one look finds

# What features above and beside do in the transaction that ends a query before its time.
EndHook = Callable[[Tx, str, str], Awaitable[None]]


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
    row = await store.lock_for_end(tx, query_id)  # closing a gate may have woken it
    scope = Scope(query_id, row["thread_id"], with_prefix("wrk_", query_id), None, row["agent"])
    error = {"code": code, "message": message}
    told = [
        *summary_events(scope, totals_data(*await store.totals(tx, query_id))),
        event(scope, QueryStatusEvent, from_=row["status"], to=to, reason=code),
        event(scope, ErrorEvent, error=error),
    ]
    await journal_store.append(tx, query_id, told)
    await store.end(tx, query_id, to, code, orjson.dumps(error))


def totals_data(usage: Usage, cost_usd: float | None, model_calls: int) -> dict[str, Any]:
    """Without a known price there is no cost, never zero."""
    return {"usage": to_wire(TokenCounts, usage), "costUsd": cost_usd, "modelCalls": model_calls}


def summary_events(scope: Scope, totals: dict[str, Any]) -> list[Event]:
    """Return the events with the usage and the duration of a query; they precede its end."""
    return [
        event(scope, DataCostSummaryEvent, data=totals),
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
        """End the queries that are due; return how many were found. Safe in any number of processes at once."""
        due = await store.claim_endings(self._db, 100, self._retry_s)
        await for_each_due(due, self._finish)
        return len(due)

    async def _finish(self, tenant: str, query_id: str) -> None:
        for hook in self._hooks:
            async with self._db.transaction(tenant) as tx:
                row = await store.lock_ending(tx, query_id)
                if row is None:
                    return
                await hook(tx, query_id, row["ending_code"])
        async with self._db.transaction(tenant) as tx:
            row = await store.lock_ending(tx, query_id)
            if row is not None:
                await write_end(tx, query_id, "failed", row["ending_code"], row["ending_message"])

    async def repair_stranded(self) -> int:
        """Close what is still open below queries that have ended, which an earlier version could leave behind. Return the
        number of such queries. Their journals have ended, so only rows change."""
        now = time.monotonic()
        if now < self._next_repair_s:
            return 0
        found = await store.stranded_queries(self._db, 100)
        await for_each_due(found, self._repair)
        self._next_repair_s = now + (REPAIR_EVERY_S if len(found) < 100 else REPAIR_MORE_S)
        return len(found)

    async def _repair(self, tenant: str, query_id: str) -> None:
        log.warning("query.repaired", query_id=query_id)
        for hook in self._hooks:
            async with self._db.transaction(tenant) as tx:
                row = await store.lock_for_end(tx, query_id)
                if row is None:
                    return  # it was deleted
                await hook(tx, query_id, row["reason"] or row["status"])
