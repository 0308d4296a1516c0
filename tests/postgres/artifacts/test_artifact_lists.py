"""How many rows lists and lineages of artifacts read from the database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from app.artifacts import service, store
from app.artifacts.models import ArtifactFilter, ArtifactStatus
from app.artifacts.service import MAX_SCANNED_ARTIFACTS
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
    found = json.loads(await plangate.value(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *args))
    scans = [node for node in nodes(found[0]["Plan"]) if "Relation Name" in node]
    return float(
        sum((n["Actual Rows"] + n.get("Rows Removed by Filter", 0)) * n["Actual Loops"] for n in scans)
    )


@pytest.fixture
async def many(api: Caller, owner: Any) -> str:
    return await filled(api, owner, COUNT)


async def test_a_page_examines_a_bounded_number_of_records(plangate: World, many: str) -> None:
    """Also where no record, or hardly one, passes all filters: all but the newest are superseded."""
    now = datetime.now(UTC)
    middle = f"art_{COUNT // 2:026}"
    for filters in (
        ArtifactFilter(),
        ArtifactFilter(work_id="wrk_1"),
        ArtifactFilter(parent_work_id="wrk_0"),
        ArtifactFilter(call_id="wrk_2"),
        ArtifactFilter(plan_id="pln_1"),
        ArtifactFilter(plan_id="pln_1", action_index=1),
        ArtifactFilter(plan_id="pln_1", action_index=2),
        ArtifactFilter(query_id="qry_1"),
        ArtifactFilter(thread_id=many),
        ArtifactFilter(agent="ann"),
        ArtifactFilter(channel="design"),
        ArtifactFilter(tag="big"),
        ArtifactFilter(channel="design", agent="bob"),  # share none
        ArtifactFilter(tag="big", channel="nothing"),
        ArtifactFilter(thread_id=many, tag="nothing"),
        ArtifactFilter(since=now - timedelta(days=300)),
    ):
        for before in (None, middle):
            for status in (None, *get_args(ArtifactStatus)):
                asked = replace(filters, before=before, status=status)
                sql, args = store.page_sql("acme", asked, 51, MAX_SCANNED_ARTIFACTS)
                read = await rows_read(plangate, sql, *args)
                # Two rows a record at most: what it is found by, and what replaces it; and those that are shown again.
                assert read <= 4 * MAX_SCANNED_ARTIFACTS, (asked, read)
    for filters in (
        ArtifactFilter(),
        ArtifactFilter(thread_id=many),
        ArtifactFilter(tag="big"),
        ArtifactFilter(agent="ann", tag="big"),
    ):
        sql, args = store.page_sql("acme", filters, 51, MAX_SCANNED_ARTIFACTS)
        assert await rows_read(plangate, sql, *args) <= 10 * 51, filters


async def test_filtered_records_shorten_a_page_and_the_next_page_continues(api: Caller, owner: Any) -> None:
    count = MAX_SCANNED_ARTIFACTS + 10
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


async def test_a_model_gets_every_match_however_many_records_are_filtered(api: Caller, owner: Any) -> None:
    thread = await filled(api, owner, MAX_SCANNED_ARTIFACTS + 10)
    await owner.execute("UPDATE artifacts SET channel = 'rare' WHERE n IN (3, 5)")
    agents = [specs.agent("chief", role="coordinator", routes=["helper"]), specs.agent("helper")]
    await api.register(specs.scripted(agents=agents))
    asked = {"channel": "rare", "status": "superseded"}
    query = await api.run(specs.script(("artifact_list", asked)), threadId=thread)
    (found,) = output_of(query)
    assert [a["id"] for a in found["result"]] == [f"art_{5:026}", f"art_{3:026}"]


async def test_the_newest_of_a_path_and_a_lineage_use_indexes(
    plangate: World, api: Caller, many: str
) -> None:
    last, first = f"art_{COUNT:026}", f"art_{1:026}"
    for path, at_most in (("p7", 3), ("nothing", 0)):
        assert await rows_read(plangate, store.NEWEST_AT, "acme", many, "patch", path) <= at_most
    for sql, id in ((store.DESCENDANTS, first), (store.ANCESTORS, last)):
        read = await rows_read(
            plangate, sql, "acme", id, service.MAX_LINEAGE_DEPTH, store.MAX_WALK_STEPS, 500
        )
        assert read <= 2 * store.MAX_WALK_STEPS, (id, read)
    lineage = await api.read(f"/artifacts/{first}/lineage")
    assert [step["depth"] for step in lineage["descendants"]] == [1] * service.MAX_LINEAGE_ARTIFACTS


async def test_a_bounded_number_of_competitors_is_listed(plangate: World, api: Caller, owner: Any) -> None:
    await filled(api, owner, 300)
    await owner.execute("UPDATE artifacts SET replaces = $1 WHERE n > 1", f"art_{1:026}")
    found = await api.read(f"/artifacts/art_{300:026}")
    assert found["competesWith"] == [f"art_{n:026}" for n in range(2, 2 + store.MAX_LISTED_COMPETITORS)]
