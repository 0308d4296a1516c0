"""How a query ends as failed or cancelled: one transaction, whoever ends it, that needs nothing of its run.

What is open below the query (gates, calls, plans) is closed, its records too, and a higher epoch fences off
whoever works on it (docs/decisions/0003).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import orjson

from app.agents import store
from app.agents.model_calls import usage_data
from app.base.database import Tx
from app.base.ids import age_ms, with_prefix
from app.journal import store as journal_store
from app.journal.models import Event, Scope, event
from app.llm.messages import Usage

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
    """Ends a query that is not over; the caller holds its row."""
    for hook in hooks:
        await hook(tx, query_id, code)
    row = await store.lock_for_end(tx, query_id)  # closing a gate may have woken it
    scope = Scope(query_id, row["thread_id"], with_prefix("wrk_", query_id), None, row["agent"])
    error = {"code": code, "message": message}
    told = [
        *summaries(scope, totals_data(*await store.totals(tx, query_id))),
        event(scope, "query-status", **{"from": row["status"], "to": to, "reason": code}),
        event(scope, "error", error=error),
    ]
    await journal_store.append(tx, query_id, told)
    await store.end(tx, query_id, to, code, orjson.dumps(error))


def totals_data(usage: Usage, cost_usd: float | None, model_calls: int) -> dict[str, Any]:
    """Without a known price there is no cost, never zero."""
    return {"usage": usage_data(usage), "costUsd": cost_usd, "modelCalls": model_calls}


def summaries(scope: Scope, totals: dict[str, Any]) -> list[Event]:
    """What a query used and how long it took: told before its end."""
    return [
        event(scope, "data-cost-summary", data=totals),
        event(scope, "data-latency-summary", data={"elapsedMs": age_ms(scope.query_id)}),
    ]
