"""Invariants of a database after the faults."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tests.processes.acceptance.house import House
from tests.storm.figures import Figures

POISONED = """
SELECT id FROM queries WHERE status = 'failed' AND convert_from(error, 'UTF8')::jsonb->>'code' = 'poisoned'
"""

UNENDED = "SELECT id, status, reason, crashes, lease_owner FROM queries WHERE ended_at IS NULL"

STRANDED = """
WITH ended AS (SELECT * FROM queries WHERE ended_at IS NOT NULL)
SELECT 'plan executing' AS what, p.id FROM plans p JOIN ended q ON q.id = p.query_id WHERE p.status = 'executing'
UNION ALL
SELECT 'action ' || a.status, a.work_id FROM plan_actions a JOIN plans p ON p.id = a.plan_id JOIN ended q
    ON q.id = p.query_id WHERE a.status IN ('pending', 'dispatched')
UNION ALL
SELECT 'call ' || c.status, c.work_id FROM outgoing_calls c JOIN ended q ON q.id = c.query_id
 WHERE c.status IN ('open', 'claimed')
UNION ALL
SELECT 'work open', w.id FROM work_records w JOIN ended q ON q.id = w.query_id WHERE w.ended_at IS NULL
UNION ALL
SELECT 'approval pending', a.id FROM approvals a JOIN ended q ON q.id = a.query_id WHERE a.status = 'pending'
UNION ALL
SELECT 'lease held', q.id FROM ended q WHERE q.lease_owner IS NOT NULL
UNION ALL
SELECT 'journal with a gap', q.id FROM ended q JOIN events e ON e.query_id = q.id
 GROUP BY q.id, q.next_seq HAVING count(*) <> q.next_seq - 1 OR max(e.seq) <> q.next_seq - 1
UNION ALL
SELECT 'terminal event missing, repeated or not last', q.id FROM ended q JOIN events e ON e.query_id = q.id
 GROUP BY q.id HAVING count(*) FILTER (WHERE e.type IN ('finish', 'error')) <> 1
    OR max(e.seq) <> max(e.seq) FILTER (WHERE e.type IN ('finish', 'error'))
"""

ATTEMPTS = """
SELECT query_id, max((convert_from(body, 'UTF8')::jsonb->>'at')::timestamptz) AS at FROM events
 WHERE type = 'step-retry' AND query_id = ANY($1) GROUP BY 1
"""

MOVED = """
SELECT query_id, min((convert_from(body, 'UTF8')::jsonb->>'at')::timestamptz) AS at FROM events
 WHERE query_id = ANY($1) AND (convert_from(body, 'UTF8')::jsonb->>'at')::timestamptz > to_timestamp($2) GROUP BY 1
"""


def poisoned(house: House) -> list[str]:
    """Return the queries that were set aside."""
    return [row["id"] for row in house.sql(POISONED)]


def stranded(house: House) -> list[str]:
    """Return what belongs to an ended query and has not ended."""
    return sorted({f"{row['what']}: {row['id']}" for row in house.sql(STRANDED)})


def wait_until_ended(house: House, patience_s: float) -> list[dict[str, Any]]:
    """Wait until every query has ended, and return those that have not in time."""
    deadline = time.monotonic() + patience_s
    while (left := house.sql(UNENDED)) and time.monotonic() < deadline:
        time.sleep(0.3)
    return left


def attempts(house: House, queries: Sequence[str]) -> dict[str, float]:
    """Return when the newest further attempt of each query began, by the clock of `time.time`."""
    return {row["query_id"]: _clock(row["at"]) for row in house.sql(ATTEMPTS, list(queries))}


def first_moves(house: House, queries: Sequence[str], since: float) -> dict[str, float]:
    """Return when each query got its first event after `since`."""
    return {row["query_id"]: _clock(row["at"]) for row in house.sql(MOVED, list(queries), since)}


def check_innocent(house: House, figures: Figures, patience_s: float, guilty: Sequence[str] = ()) -> None:
    """Wait for the end of all queries, and check that none was set aside and nothing is stranded."""
    left = wait_until_ended(house, patience_s)
    figures.exactly("queries that did not end", len(left), 0)
    innocent = [id for id in poisoned(house) if id not in guilty]
    figures.exactly("innocent queries set aside", len(innocent), 0)
    found = stranded(house)
    figures.exactly("stranded plans, actions, calls and gates", len(found), 0)
    for what in [*(f"not ended: {row}" for row in left[:5]), *innocent[:5], *found[:5]]:
        print(f"  {figures.scenario}: {what}", flush=True)


def _clock(at: datetime) -> float:
    return at.timestamp()
