"""The cost of summing usage grows linearly with the number of calls."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from app.usage import store
from tests.support.client import Caller
from tests.support.world import World

DAY = {"from": "2026-02-01", "to": "2026-02-02"}
SHAPES = {
    "one run that published a lot": (1, 2000, 2000),
    "runs that published once": (2000, 1, 1),
    "runs that published nothing": (2000, 1, 0),
}
WORK = """
INSERT INTO work_records (tenant_id, id, query_id, thread_id, parent_id, kind, name, agent, status, input_tokens,
                          prompt_bytes, prompt_tokens, started_at)
SELECT 'acme', 'wrk_' || kind || run || '_' || n, 'qry_' || run, 'thr_1', parent || run || '_1', kind, 'x', 'a',
       CASE WHEN kind = 'query' AND run % 2 = 0 THEN 'failed' ELSE 'succeeded' END, 1, 4, 1,
       timestamptz '2026-02-01' + n * interval '2 s'
  FROM (VALUES ('query', NULL, 1), ('agent', 'wrk_query', 1), ('model_call', 'wrk_agent', $2::int)) k(kind, parent, most),
       generate_series(1, $1::int) run, generate_series(1, k.most) n
"""
PUBLISHED = """
INSERT INTO artifacts (tenant_id, id, thread_id, n, record, previous, mac, channel, path, is_directory, digest, body_bytes,
                       work_id, created_at)
SELECT 'acme', 'art_' || lpad(run::text, 6, '0') || lpad(n::text, 6, '0'), 'thr_1', run * 1000000 + n, '', '', '', 'design',
       'p', false, '', 1, 'wrk_agent' || run || '_1', timestamptz '2026-02-01' + n * interval '2 s' + interval '1 s'
  FROM generate_series(1, $1::int) run, generate_series(1, $2::int) n
"""


USED = """
INSERT INTO artifact_uses (tenant_id, work_id, artifact_id, size_bytes, prompt_bytes, at)
SELECT 'acme', 'wrk_model_call' || run || '_' || n, 'art_1', 10, 2, timestamptz '2026-02-01' + n * interval '2 s'
  FROM generate_series(1, $1::int) run, generate_series(1, $2::int) n
"""


async def filled(owner: Any, runs: int, calls: int, artifacts: int) -> None:
    await owner.execute("SET session_replication_role = replica")  # what these rows belong to is left out
    await owner.execute(WORK, runs, calls)
    await owner.execute(PUBLISHED, runs, artifacts)


def rows_of(node: dict[str, Any]) -> int:
    """How many rows went through a plan, those that were looked at and left out too."""
    left_out = sum(v for k, v in node.items() if k.startswith("Rows Removed by"))
    mine = (node["Actual Rows"] + left_out) * node["Actual Loops"]
    return int(mine) + sum(rows_of(below) for below in node.get("Plans", ()))


@pytest.mark.parametrize("counted", [False, True], ids=["nobody counted it", "counted"])
@pytest.mark.parametrize("shape", list(SHAPES))
async def test_rows_read_grow_linearly_with_calls(
    plangate: World, owner: Any, shape: str, counted: bool
) -> None:
    """2,000 calls, and so little memory that the planner must do without a hash of what it believes is large."""
    await filled(owner, *SHAPES[shape])
    await owner.execute(USED, *SHAPES[shape][:2])
    if counted:
        await owner.execute("ANALYZE work_records, artifacts, reference_uses, artifact_uses")
    for by, sql in store.USAGE_BY.items():
        async with plangate.services.db.transaction("acme") as tx:
            await tx.run("SET LOCAL work_mem = '64kB'")
            asked = (datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 2, 2, tzinfo=UTC), None, 50)
            found = await tx.value(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", "acme", *asked)
        assert rows_of(json.loads(found)[0]["Plan"]) < 200 * 2000, by


async def test_the_uses_of_many_queries_are_estimated(api: Caller, owner: Any) -> None:
    await filled(owner, 2000, 1, 0)
    await owner.execute(USED, 2000, 1)
    totals = (await api.read("/usage", groupBy="day", **DAY))["totals"]["artifacts"]
    assert (totals["uses"], totals["keptOutBytes"]) == (2000, 16_000)
    estimate = {"tokens": 4000, "tokensFromBytes": 16_000, "costUsd": None, "costFromBytes": 0}
    assert totals["estimate"] == estimate


async def test_each_of_many_artifacts_has_its_own_call(api: Caller, owner: Any) -> None:
    """One run, 5,000 artifacts, a call before each."""
    await filled(owner, 1, 5000, 5000)
    found = await api.read("/usage", groupBy="artifact", limit=500, **DAY)
    assert found["totals"]["modelCalls"] == 5000
    assert [i["modelCalls"] for i in found["items"]] == [1] * 500
    assert [i["key"] for i in found["items"]] == [f"art_000001{n:06}" for n in range(5000, 4500, -1)]


async def test_a_call_leads_to_the_first_of_simultaneous_artifacts(api: Caller, owner: Any) -> None:
    """Also one that began in that very moment; and to the first of the last ones where none came after."""
    await filled(owner, 1, 9, 0)  # calls after 2, 4, ... 18 seconds
    for id, second in (("art_b", 8), ("art_a", 8), ("art_d", 14), ("art_c", 14)):
        made = PUBLISHED.replace("'art_' || lpad(run::text, 6, '0') || lpad(n::text, 6, '0')", f"'{id}'")
        made = made.replace("run * 1000000 + n", "1 + (SELECT count(*) FROM artifacts)")
        await owner.execute(made.replace("interval '1 s'", f"interval '{second - 2} s'"), 1, 1)
    groups = (await api.read("/usage", groupBy="artifact", **DAY))["items"]
    assert [(i["key"], i["modelCalls"]) for i in groups] == [("art_c", 5), ("art_a", 4)]
