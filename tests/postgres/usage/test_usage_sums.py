"""What ended is summed up by the hour. Whether it is in the sums yet or not, the answers are the same."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.engine.usage_sums import UsageSums
from app.usage import store
from tests.postgres.usage.test_usage_cost import rows_of
from tests.support import specs
from tests.support.client import Caller
from tests.support.world import World

SUMMED = [name for name, grouping in store.GROUPINGS.items() if grouping.of_sum is not None]
FIRST = datetime(2026, 2, 1, tzinfo=UTC)
# Queries every few minutes, each in a moment of its own: with two calls and two uses, and some of them in vain.
WORK = """
INSERT INTO work_records (tenant_id, id, query_id, thread_id, parent_id, kind, name, agent, status, model, input_tokens,
                          cost_usd, prompt_bytes, prompt_tokens, prompt_usd, started_at, ended_at)
SELECT 'acme', 'wrk_' || kind || n, 'qry_' || n, 'thr_1', 'wrk_' || parent || n, kind, 'x', 'agent ' || n % 3,
       CASE WHEN kind = 'query' AND n % 5 = 0 THEN 'failed' ELSE 'succeeded' END, 'model ' || n % 2, n,
       CASE WHEN n % 4 > 0 AND kind = 'model_call' THEN n * 0.000001 END, CASE WHEN n % 7 > 0 THEN 101 END, 31,
       CASE WHEN n % 4 > 0 THEN 0.001 END, timestamptz '2026-02-01' + n * $2::interval,
       CASE WHEN n % 11 > 0 THEN timestamptz '2026-02-01' + n * $2::interval END
  FROM generate_series(1, $1::int) n,
       (VALUES ('query', NULL), ('agent', 'query'), ('model_call', 'agent')) k(kind, parent)
"""
REFERENCES = """
INSERT INTO reference_uses (tenant_id, work_id, use, kind, id, size_bytes, prompt_bytes, at)
SELECT 'acme', 'wrk_agent' || n, 'resolve', 'K', 'x', n, 1, timestamptz '2026-02-01' + n * $2::interval
  FROM generate_series(1, $1::int) n
"""
ARTIFACTS = """
INSERT INTO artifact_uses (tenant_id, work_id, artifact_id, size_bytes, prompt_bytes, at)
SELECT 'acme', 'wrk_model_call' || n, 'art_1', 2 * n, 1, timestamptz '2026-02-01' + n * $2::interval
  FROM generate_series(1, $1::int) n
"""


async def filled(owner: Any, queries: int, every: timedelta) -> None:
    await owner.execute("SET session_replication_role = replica")  # what these rows belong to is left out
    for statement in (WORK, REFERENCES, ARTIFACTS):
        await owner.execute(statement, queries, every)


def sums(plangate: World) -> UsageSums:
    """The periodic task of a process, which takes no time for granted."""
    return UsageSums(plangate.services.db, interval_s=0, settled_s=0)


def rounded(found: Any) -> Any:
    """Without the last digits of dollars: floats are added up in another order."""
    if isinstance(found, dict):
        return {name: rounded(value) for name, value in found.items()}
    if isinstance(found, list):
        return [rounded(value) for value in found]
    return round(found, 9) if isinstance(found, float) else found


async def answers(api: Caller, ranges: list[tuple[datetime, datetime]]) -> list[Any]:
    return [
        rounded(await api.read("/usage", groupBy=by, **{"from": since.isoformat(), "to": until.isoformat()}))
        for by in SUMMED
        for since, until in ranges
    ]


async def test_sums_give_the_same_answers_as_the_work(idle: World, owner: Any) -> None:
    """For whole days, for hours, and for ranges that begin and end within an hour, also within the same one."""
    await filled(owner, 300, timedelta(minutes=13))
    ranges = [
        (FIRST, FIRST + timedelta(days=4)),
        (FIRST + timedelta(hours=5), FIRST + timedelta(hours=29)),
        (FIRST + timedelta(hours=5, minutes=17), FIRST + timedelta(hours=29, minutes=46, microseconds=1)),
        (FIRST + timedelta(hours=5, minutes=17), FIRST + timedelta(hours=6)),
        (FIRST + timedelta(hours=5), FIRST + timedelta(hours=5, minutes=40)),
        (FIRST + timedelta(hours=5, minutes=17), FIRST + timedelta(hours=5, minutes=40)),
        (FIRST + timedelta(hours=5, minutes=50), FIRST + timedelta(hours=6, minutes=10)),
    ]
    before = await answers(idle.api, ranges)
    assert before[0]["totals"]["modelCalls"] == 300
    await owner.execute(
        "UPDATE work_records SET ended_at = NULL WHERE parent_id IS NULL AND query_id > 'qry_2'"
    )
    assert 0 < await sums(idle).add_ended() < 200
    assert await answers(idle.api, ranges) == before
    await owner.execute("UPDATE work_records SET ended_at = started_at WHERE parent_id IS NULL")
    assert await sums(idle).add_ended() > 100
    assert await answers(idle.api, ranges) == before
    assert (
        await owner.fetchval("SELECT count(*) FROM work_records WHERE parent_id IS NULL AND NOT summed") == 0
    )
    await owner.execute("DELETE FROM reference_uses")
    assert await answers(idle.api, ranges[:2]) == [a for n, a in enumerate(before) if n % len(ranges) < 2]


async def test_queries_of_a_service_are_summed_up_once(
    plangate: World, second: World, api: Caller, owner: Any
) -> None:
    await api.register(specs.mock())
    for _ in range(3):
        await api.run()
    now = datetime.now(UTC)
    ranges = [(now.replace(minute=0, second=0, microsecond=0), now + timedelta(hours=2))]
    before = await answers(api, ranges)
    assert before[0]["totals"]["modelCalls"] == 3
    added = await asyncio.gather(*(sums(world).add_ended() for world in (plangate, second, plangate)))
    assert sum(added) == 3
    assert await sums(plangate).add_ended() == 0
    assert await answers(api, ranges) == before
    assert await owner.fetchval("SELECT sum(model_calls) FROM usage_sums") == 3


async def test_queries_that_have_just_ended_are_not_summed_up_yet(plangate: World, api: Caller) -> None:
    """What was still on its way when a query was canceled may be written after its end."""
    await api.register(specs.mock())
    await api.run()
    assert await UsageSums(plangate.services.db, interval_s=0).add_ended() == 0


@pytest.mark.parametrize("by", SUMMED)
async def test_usage_of_many_queries_reads_few_rows(idle: World, owner: Any, by: str) -> None:
    await filled(owner, 5000, timedelta(minutes=1))
    await owner.execute("UPDATE work_records SET ended_at = started_at WHERE parent_id IS NULL")
    assert await sums(idle).add_ended() == 5000
    await owner.execute("ANALYZE work_records, artifact_uses, reference_uses, usage_sums")
    async with idle.services.db.transaction("acme") as tx:
        sql = f"EXPLAIN (ANALYZE, FORMAT JSON) {store.USAGE_BY[by]}"
        found = await tx.value(sql, "acme", FIRST, FIRST + timedelta(days=4), None, 50)
    assert rows_of(json.loads(found)[0]["Plan"]) < 20_000, "a few for each hour and agent"
