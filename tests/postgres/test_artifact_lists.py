"""What lists and lineages of artifacts read of the database, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.artifacts import service, store
from tests.support import specs
from tests.support.client import Caller, output_of
from tests.support.world import World

COUNT = 20_000
# So many records of one thread, the newest the one with the greatest number; each replaces the one before it.
FILL = """
INSERT INTO artifacts (tenant_id, id, thread_id, n, record, previous, mac, channel, path, is_directory, digest, body_bytes,
                       work_id, parent_work_id, query_id, agent, call_id, plan_id, action_index, replaces, created_at)
SELECT 'acme', 'art_' || lpad(n::text, 26, '0'), $1, n, convert_to(json_build_object('id', 'art_' || lpad(n::text, 26, '0'),
         'channel', 'design', 'kind', 'file', 'path', 'p' || n, 'sizeBytes', 0,
         'digest', json_build_object('value', repeat('0', 64)),
         'createdAt', '2026-11-01T00:00:00Z', 'producer', json_build_object('workId', 'wrk_1', 'kind', 'agent',
         'threadId', $1::text))::text, 'UTF8'),
       '', '', CASE WHEN n % 2 = 0 THEN 'design' ELSE 'patch' END, 'p' || n, false, sha256(''), 0,
       'wrk_1', 'wrk_0', 'qry_1', CASE WHEN n % 2 = 0 THEN 'ann' ELSE 'bob' END, 'wrk_2', 'pln_1', 1,
       CASE WHEN n > 1 THEN 'art_' || lpad((n - 1)::text, 26, '0') END, now() - make_interval(secs => $2 - n)
  FROM generate_series(1, $2::int) n
"""
TAGS = "INSERT INTO artifact_tags (tenant_id, tag, artifact_id) SELECT 'acme', 'big', id FROM artifacts"
# All came from the first, and the last from all.
PARENTS = """
INSERT INTO artifact_parents (tenant_id, artifact_id, parent_id)
SELECT 'acme', id, 'art_' || lpad('1', 26, '0') FROM artifacts WHERE n > 1
UNION SELECT 'acme', 'art_' || lpad($1::int::text, 26, '0'), id FROM artifacts WHERE n < $1
"""


async def filled(api: Caller, owner: Any, count: int) -> str:
    """A thread with so many artifacts; its id."""
    thread = str((await api.do("/threads", {"threadKey": "t"}))["id"])
    await owner.execute("SET session_replication_role = replica")  # what these rows belong to is left out
    await owner.execute(FILL, thread, count)
    await owner.execute(TAGS)
    await owner.execute(PARENTS, count)
    await owner.execute("ANALYZE artifacts, artifact_tags, artifact_parents")
    return thread


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


async def rows_read(plangate: World, sql: str, *args: Any) -> float:
    """How many rows the parts of a plan took from tables."""
    found = await plangate.value(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *args)
    scans = [node for node in nodes(found[0]["Plan"]) if "Relation Name" in node]
    return float(
        sum((n["Actual Rows"] + n.get("Rows Removed by Filter", 0)) * n["Actual Loops"] for n in scans)
    )


@pytest.fixture
async def many(api: Caller, owner: Any) -> str:
    return await filled(api, owner, COUNT)


async def test_a_page_reads_so_many_records_and_no_more(plangate: World, many: str) -> None:
    """Also where no record, or hardly one, passes all filters: all but the newest are superseded."""
    now = datetime.now(UTC)
    middle = f"art_{COUNT // 2:026}"
    for filters in (
        {},
        {"workId": "wrk_1"},
        {"parentWorkId": "wrk_0"},
        {"callId": "wrk_2"},
        {"planId": "pln_1"},
        {"planId": "pln_1", "actionIndex": 1},
        {"planId": "pln_1", "actionIndex": 2},
        {"queryId": "qry_1"},
        {"threadId": many},
        {"agent": "ann"},
        {"channel": "design"},
        {"tag": "big"},
        {"channel": "design", "agent": "bob"},  # share none
        {"tag": "big", "channel": "nothing"},
        {"threadId": many, "tag": "nothing"},
        {"since": now - timedelta(days=300), "from": "art_" + "0" * 26},
    ):
        for bounds in ({}, {"before": middle}):
            for status in (None, "active", "superseded", "withdrawn"):
                asked = {**filters, **bounds}
                sql, args = store.page_sql("acme", asked, status, 51, service.LOOKED_AT)
                read = await rows_read(plangate, sql, *args)
                # Two rows a record at most: what it is found by, and what replaces it; and those that are shown again.
                assert read <= 4 * service.LOOKED_AT, (asked, status, read)
    for filters in ({}, {"threadId": many}, {"tag": "big"}, {"agent": "ann", "tag": "big"}):
        sql, args = store.page_sql("acme", filters, None, 51, service.LOOKED_AT)
        assert await rows_read(plangate, sql, *args) <= 10 * 51, filters


async def test_what_is_left_out_makes_a_page_short_and_the_next_goes_on_behind_it(
    api: Caller, owner: Any
) -> None:
    count = service.LOOKED_AT + 10
    thread = await filled(api, owner, count)
    await owner.execute("UPDATE artifacts SET channel = 'rare' WHERE n = 3")
    page = await api.read("/artifacts", agent="bob", channel="rare", status="superseded")
    assert ([a["id"] for a in page["items"]], page["nextCursor"]) == ([f"art_{3:026}"], None)
    page = await api.read("/artifacts", threadId=thread, channel="rare", status="superseded")
    assert page["items"] == []
    page = await api.read(
        "/artifacts", threadId=thread, channel="rare", status="superseded", cursor=page["nextCursor"]
    )
    assert ([a["id"] for a in page["items"]], page["nextCursor"]) == ([f"art_{3:026}"], None)


async def test_a_model_gets_what_there_is_however_much_is_left_out(api: Caller, owner: Any) -> None:
    thread = await filled(api, owner, service.LOOKED_AT + 10)
    await owner.execute("UPDATE artifacts SET channel = 'rare' WHERE n IN (3, 5)")
    agents = [specs.agent("chief", role="coordinator", routes=["helper"]), specs.agent("helper")]
    await api.register(specs.scripted(agents=agents))
    asked = {"channel": "rare", "status": "superseded"}
    query = await api.run(specs.script(("artifact_list", asked)), threadId=thread)
    (found,) = output_of(query)
    assert [a["id"] for a in found["result"]] == [f"art_{5:026}", f"art_{3:026}"]


async def test_the_newest_of_a_path_and_a_lineage_are_found_without_reading_the_others(
    plangate: World, api: Caller, many: str
) -> None:
    last, first = f"art_{COUNT:026}", f"art_{1:026}"
    for path, at_most in (("p7", 3), ("nothing", 0)):
        assert await rows_read(plangate, store.NEWEST_AT, "acme", many, "patch", path) <= at_most
    for sql, id in ((store.DESCENDANTS, first), (store.ANCESTORS, last)):
        read = await rows_read(plangate, sql, "acme", id, service.LINEAGE_DEPTH, store.STEPS, 500)
        assert read <= 2 * store.STEPS, (id, read)
    lineage = await api.read(f"/artifacts/{first}/lineage")
    assert [step["depth"] for step in lineage["descendants"]] == [1] * service.LINEAGE_MOST


async def test_of_many_competitors_some_are_listed(plangate: World, api: Caller, owner: Any) -> None:
    await filled(api, owner, 300)
    await owner.execute("UPDATE artifacts SET replaces = $1 WHERE n > 1", f"art_{1:026}")
    found = await api.read(f"/artifacts/art_{300:026}")
    assert found["competesWith"] == [f"art_{n:026}" for n in range(2, 2 + store.COMPETING_MOST)]
