"""Pages of lists are bounded in bytes and in the records that they examine, and their cursors skip nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.approvals import store as approvals
from app.base.postgres.pages import MAX_PAGE_BYTES, PageStatements
from app.plans import store as plans
from app.queries import store as queries
from app.tools import store as tools
from tests.support import specs
from tests.support.client import Caller
from tests.support.world import World

LARGE = 900_000
PARENTS = """
INSERT INTO runtimes (tenant_id, id, name, version, digest, wire) VALUES ('acme', 'rt_1', 'r', 1, 'x', '{}');
INSERT INTO threads (tenant_id, id) VALUES ('acme', 'thr_1');
"""
# $1 rows with $2 bytes of text each. Of many rows, the oldest one differs from the others.
FILL = {
    "plans": """
WITH p AS (
    INSERT INTO plans (tenant_id, id, thread_id, runtime_id, spec_name, status, revision)
    SELECT 'acme', 'pln_01kjphwjg0' || lpad(n::text, 16, '0'), 'thr_1', 'rt_1', CASE n WHEN 1 THEN 'rare' ELSE 's' END,
           CASE n WHEN 1 THEN 'executed' ELSE 'draft' END, 1 FROM generate_series(1, $1::int) n)
INSERT INTO plan_revisions (tenant_id, plan_id, revision, body, digest, stored_by, decision)
SELECT 'acme', 'pln_01kjphwjg0' || lpad(n::text, 16, '0'), 1, body, sha256(body), 'wrk_' || n, CASE n WHEN 1 THEN 'reject' END
  FROM generate_series(1, $1::int) n, convert_to('{"text":"' || repeat('x', $2::int) || '"}', 'UTF8') AS body
""",
    "queries": """
INSERT INTO queries (tenant_id, id, thread_id, runtime_id, kind, agent, status, principal, prompt, request, ended_at)
SELECT 'acme', 'qry_01kjphwjg0' || lpad(n::text, 16, '0'), 'thr_1', 'rt_1', 'agent', 'a',
       CASE n WHEN 1 THEN 'failed' ELSE 'succeeded' END, 'p', repeat('x', $2::int), '{}', now()
  FROM generate_series(1, $1::int) n
""",
    "approvals": """
INSERT INTO approvals (tenant_id, id, kind, target, digest, subject, glimpses, rule, query_id, work_id, agent, thread_id,
       runtime_id, requested_by, status, expires_at)
SELECT 'acme', 'apr_01kjphwjg0' || lpad(n::text, 16, '0'), 'tool', 't', sha256('x'), 'x', glimpses, '{"kind": "always"}', 'qry_1',
       'wrk_' || n, 'a', 'thr_1', 'rt_1', 'p', 'pending', now() + interval '1 h'
  FROM generate_series(1, $1::int) n, convert_to('{"args":"' || repeat('x', $2::int) || '"}', 'UTF8') AS glimpses
""",
    "grants": """
WITH a AS (
    INSERT INTO approvals (tenant_id, id, kind, target, digest, subject, glimpses, rule, query_id, work_id, agent, thread_id,
           runtime_id, requested_by, status, expires_at, decided_at)
    VALUES ('acme', 'apr_1', 'tool', 't', sha256('x'), 'x', '{}', '{"kind": "always"}', 'qry_1', 'wrk_1', 'a', 'thr_1', 'rt_1',
            'p', 'approved', now(), now()))
INSERT INTO approval_grants (tenant_id, id, approval_id, thread_id, agent, tool, definition_digest, args, args_digest, free,
       granted_by, expires_at, revoked_at)
SELECT 'acme', 'grt_01kjphwjg0' || lpad(n::text, 16, '0'), 'apr_1', 'thr_1', CASE n WHEN 1 THEN 'rare' ELSE 'a' END,
       CASE n WHEN 1 THEN 'rare' ELSE 't' END, '', args, sha256(args), '{}', 'p', now() + interval '1 h',
       CASE n WHEN 1 THEN now() END
  FROM generate_series(1, $1::int) n, convert_to('{"text":"' || repeat('x', $2::int) || '"}', 'UTF8') AS args
""",
    "approvals/apr_01kjphwjg00000000000000001/comments": """
WITH a AS (
    INSERT INTO approvals (tenant_id, id, kind, target, digest, subject, glimpses, rule, query_id, work_id, agent, thread_id,
           runtime_id, requested_by, status, expires_at, decided_at)
    VALUES ('acme', 'apr_01kjphwjg00000000000000001', 'tool', 't', sha256('x'), 'x', '{}', '{"kind": "always"}', 'qry_1',
            'wrk_1', 'a', 'thr_1', 'rt_1', 'p', 'approved', now(), now()))
INSERT INTO approval_comments (tenant_id, id, approval_id, principal, text)
SELECT 'acme', 'cmt_01kjphwjg0' || lpad(n::text, 16, '0'), 'apr_01kjphwjg00000000000000001', 'p', repeat('x', $2::int)
  FROM generate_series(1, $1::int) n
""",
    "tool-calls": """
WITH q AS (
    INSERT INTO queries (tenant_id, id, thread_id, runtime_id, kind, agent, status, principal, prompt, request, ended_at)
    VALUES ('acme', 'qry_1', 'thr_1', 'rt_1', 'agent', 'a', 'succeeded', 'p', 'x', '{}', now()))
INSERT INTO outgoing_calls (tenant_id, work_id, query_id, purpose, sender, name, definition_digest, request, replay, status,
       claim_before, timeout_ms)
SELECT 'acme', 'wrk_01kjphwjg0' || lpad(n::text, 16, '0'), 'qry_1', 'tool', 'client', 'add', '', '{}', 'never',
       CASE n WHEN 1 THEN 'unknown' ELSE 'done' END, now(), 1000 FROM generate_series(1, $1::int) n WHERE $2::int IS NOT NULL
""",
}


async def pages(api: Caller, path: str, **filters: Any) -> list[list[dict[str, Any]]]:
    """The items of every page, up to the last."""
    read = await api.read(path, limit=500, **filters)
    items = [read["items"]]
    while read["nextCursor"] is not None:
        read = await api.read(path, limit=500, cursor=read["nextCursor"], **filters)
        items.append(read["items"])
    return items


@pytest.mark.parametrize(
    "name",
    ["plans", "queries", "approvals", "approvals/apr_01kjphwjg00000000000000001/comments", "grants"],
)
async def test_a_page_is_bounded_in_bytes(idle: World, owner: Any, name: str) -> None:
    await owner.execute(PARENTS)
    await owner.execute(FILL[name], 10, LARGE)
    found = await pages(idle.api, f"/{name}")
    assert [len(page) for page in found] == [MAX_PAGE_BYTES // LARGE, MAX_PAGE_BYTES // LARGE, 2]
    ids = [item["id"] for page in found for item in page]
    assert ids == sorted(set(ids), reverse=True)
    assert len(ids) == 10


@pytest.mark.parametrize(
    ("name", "filters"),
    [
        ("plans", {"status": "executed"}),
        ("plans", {"specName": "rare", "threadId": "thr_1"}),
        ("plans", {"decision": "rejected"}),
        ("grants", {"active": "false"}),
        ("grants", {"agent": "rare", "threadId": "thr_1"}),
        ("grants", {"tool": "rare"}),
        ("tool-calls", {"status": "unknown"}),
        ("tool-calls", {"status": "unknown", "queryId": "qry_1"}),
    ],
)
async def test_a_page_examines_a_bounded_number_of_records(
    idle: World, owner: Any, name: str, filters: dict[str, str]
) -> None:
    """Of 4,100 records, only the oldest matches: two empty pages come before it."""
    await owner.execute(PARENTS)
    await owner.execute(FILL[name], 4_100, 1)
    found = await pages(idle.api, f"/{name}", **filters)
    assert [len(page) for page in found] == [0, 0, 1]


LISTS = {
    "queries": (queries.PAGE, "queries"),
    "queries of a thread": (queries.PAGE_OF_THREAD, "queries"),
    "queries of a status": (queries.PAGE_OF_STATUS, "queries"),
    "plans": (plans.LIST, "plans"),
    "plans of a thread": (plans.LIST_OF_THREAD, "plans"),
    "approvals": (approvals.LIST_ALL, "approvals"),
    "pending approvals": (approvals.LIST_PENDING, "approvals"),
    "approvals of a query": (approvals.LIST_OF_QUERY, "approvals"),
    "grants": (approvals.GRANTS, "approval_grants"),
    "grants of a thread": (approvals.GRANTS_OF_THREAD, "approval_grants"),
    "tool calls": (tools.LIST, "outgoing_calls"),
    "tool calls of a query": (tools.LIST_OF_QUERY, "outgoing_calls"),
}
# The planner multiplies the rows per page by the pages that a table really has.
MILLION_ROWS = """
UPDATE pg_class SET reltuples = 1000000, relpages = greatest(pg_relation_size(oid) / 8192, 1)
 WHERE relname = $1 OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = $1::regclass)
"""


async def explain(owner: Any, table: str, sql: str, *args: Any, analyze: bool = False) -> dict[str, Any]:
    """Return the plan of a statement under the statistics of a million rows. Leave the statistics as they were."""
    transaction = owner.transaction()
    await transaction.start()
    try:
        await owner.execute(MILLION_ROWS, table)
        options = "ANALYZE, FORMAT JSON" if analyze else "FORMAT JSON"
        statement = await owner.prepare(f"EXPLAIN ({options}) {sql}")
        text = await statement.fetchval(*args)
    finally:
        await transaction.rollback()
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a plan and everything below it."""
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


@pytest.mark.parametrize("name", list(LISTS))
async def test_a_list_of_a_million_records_reads_them_in_the_order_of_an_index(
    idle: World, owner: Any, name: str
) -> None:
    statements, table = LISTS[name]
    assert isinstance(statements, PageStatements)
    await owner.execute(PARENTS)
    await owner.execute(FILL[name.split(" of ")[0].removeprefix("pending ").replace(" ", "-")], 4_100, 1)
    await owner.execute(f"ANALYZE {table}")
    index_key = {"query": "qry_1", "thread": "thr_1", "status": "succeeded"}.get(name.split()[-1])
    bounds = ("", "~") if table in ("queries", "approvals") else ()
    candidates = ["acme", None, *bounds, 5_000, index_key]
    parameters = (await owner.prepare(statements.page)).get_parameters()
    filters = [4096 if p.name.startswith("int") else None for p in parameters[len(candidates) + 1 :]]
    for sql, args in ((statements.last, candidates), (statements.page, [*candidates, 51, *filters])):
        for node in nodes(await explain(owner, table, sql, *args)):
            if node.get("Relation Name") == table:
                assert node["Node Type"] in ("Index Scan", "Index Only Scan"), node
                assert node["Scan Direction"] == "Backward", node


async def test_a_list_of_queries_of_one_status_reads_no_others(idle: World, owner: Any) -> None:
    """Of 4,100 queries, only the oldest failed."""
    await owner.execute(PARENTS)
    await owner.execute(FILL["queries"], 4_100, 1)
    await owner.execute("ANALYZE queries")
    found = await pages(idle.api, "/queries", status="failed")
    assert [[item["id"] for item in page] for page in found] == [["qry_01kjphwjg0" + "1".zfill(16)]]
    args = ("acme", None, "", "~", 5_000, "failed", 51, "failed", *(None,) * 8)
    plan = await explain(owner, "queries", queries.PAGE_OF_STATUS.page, *args, analyze=True)
    reads = [
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(plan)
        if node.get("Relation Name") == "queries"
    ]
    assert sum(reads) == 1


async def test_messages_of_a_thread_come_in_pages_from_the_newest_run_back(api: Caller, owner: Any) -> None:
    await api.register(specs.mock("ok"))
    for n in range(6):
        thread = (await api.run(f"{n}", threadKey="t"))["threadId"]
    await owner.execute(
        "UPDATE work_records SET input = input || convert_to(repeat('x', $1), 'UTF8') WHERE kind = 'agent'",
        LARGE,
    )
    prompts = [f"{n}{'x' * LARGE}" for n in range(6)]
    path, cursor = f"/threads/{thread}/messages", {}
    heard: list[str] = []
    sizes = []
    while True:
        response = await api.get(path, agent="solo", **cursor)
        page = response.json()
        said = [m["blocks"][0]["text"] for m in page["items"] if m["role"] == "user"]
        heard = said + heard
        sizes.append(len(response.content))
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert heard == prompts
    assert len(sizes) > 1
    assert max(sizes) < MAX_PAGE_BYTES + 10_000


async def test_revisions_are_listed_without_their_bodies_and_read_one_by_one(api: Caller) -> None:
    await api.register(specs.planning())
    plan: dict[str, Any] = {}
    for _ in range(3):
        body = {"specName": "Routing", "planId": "p", "threadKey": "t", "body": specs.BODY}
        plan = await api.do("/plans", body)
    path = f"/plans/{plan['id']}/revisions"
    first = await api.read(path, limit=2)
    second = await api.read(path, limit=2, cursor=first["nextCursor"])
    assert second["nextCursor"] is None
    items = first["items"] + second["items"]
    assert [(item["revision"], item["status"]) for item in items] == [
        (3, "draft"),
        (2, "replaced"),
        (1, "replaced"),
    ]
    assert not any("body" in item for item in items)
    for item in items:
        revision = await api.read(f"{path}/{item['revision']}")
        assert revision == {**item, "body": plan["body"], "partial": None}
    missing = (await api.get(f"{path}/4")).json()
    assert (missing["status"], missing["type"]) == (404, "not_found")
