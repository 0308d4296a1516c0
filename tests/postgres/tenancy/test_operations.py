"""What the operator sees: the tenants of an installation and its processes. What an admin sees of the own tenant."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from app.tenancy.views import MAX_COUNTED
from tests.postgres.tenancy.test_sessions import sign_in
from tests.support import specs
from tests.support.client import Caller, refused
from tests.support.world import World


async def test_the_operator_sees_tenants_and_what_they_use(plangate: World, api: Caller) -> None:
    await plangate.tenant("third", runningQueries=3)
    await api.register(specs.scripted(specs.tool("pay", approval="always")))
    query = await api.submit(specs.script(("pay", {"n": 1})))
    await api.gate(query["id"])
    await api.until(query["id"], "waiting")
    first = await api.read("/tenants", limit=2)
    rest = await api.read("/tenants", cursor=first["nextCursor"])
    acme, other, third = first["items"] + rest["items"]
    assert [t["id"] for t in (acme, other, third)] == ["acme", "other", "third"]
    assert (acme["waitingQueries"], acme["pendingApprovals"], other["waitingQueries"]) == (1, 1, 0)
    assert third["limits"]["runningQueries"] == 3
    assert rest["nextCursor"] is None


async def test_the_operator_sees_processes_and_how_they_ended(
    plangate: World, second: World, api: Caller, owner: Any
) -> None:
    items = (await api.read("/processes"))["items"]
    assert len(items) >= 2
    assert all(p["endedAt"] is None and p["silentS"] < 60 and p["pid"] > 0 for p in items)
    await owner.execute(
        "UPDATE processes SET ended_at = now(), end_reason = 'stopped' WHERE id = $1", items[0]["id"]
    )
    ended = (await api.read("/processes"))["items"][-1]
    assert (ended["id"], ended["endReason"]) == (items[0]["id"], "stopped")
    await owner.execute(
        "UPDATE processes SET ended_at = now() - interval '2 h' WHERE id = $1", items[0]["id"]
    )
    assert items[0]["id"] not in [p["id"] for p in (await api.read("/processes"))["items"]]


@pytest.mark.parametrize("path", ["/tenants", "/processes"])
async def test_keys_of_tenants_see_neither(plangate: World, path: str) -> None:
    admin = await plangate.key("admin", "read")
    refused(await admin.get(path), 403)


@pytest.mark.parametrize("path", ["/tenants", "/processes"])
async def test_as_many_requests_as_the_pool_has_connections_twice_over(plangate: World, path: str) -> None:
    """A request that held one connection and waited for another would wait for its like."""
    pool, _ = plangate.services.db.connection_counts()
    operator = plangate.operator()
    responses = await asyncio.gather(*(operator.get(path) for _ in range(2 * pool)))
    assert [response.status_code for response in responses] == [200] * 2 * pool


@pytest.mark.parametrize("path", ["/tenants", "/processes"])
@pytest.mark.parametrize("tenant", [None, "new"])
async def test_operator_routes_create_no_tenant(plangate: World, path: str, tenant: str | None) -> None:
    await plangate.operator(tenant).read(path)
    tenants = (await plangate.operator().read("/tenants"))["items"]
    assert [each["id"] for each in tenants] == ["acme", "other"]


async def test_operator_routes_reject_unknown_keys_and_parameters(plangate: World) -> None:
    refused(await plangate.operator().get("/tenants", name="acme"), 422)
    refused(await Caller(plangate.http, None).get("/processes"), 401)


FILL = """
INSERT INTO runtimes (tenant_id, id, name, version, digest, wire) VALUES ('acme', 'rt_1', 'r', 1, 'x', '{}');
INSERT INTO threads (tenant_id, id) SELECT 'acme', 'thr_' || n FROM generate_series(1, 4000) n;
INSERT INTO queries (tenant_id, id, thread_id, runtime_id, kind, agent, status, principal, prompt, request, ended_at)
SELECT 'acme', 'qry_' || n, 'thr_' || n % 4000 + 1, 'rt_1', 'agent', 'a',
       CASE WHEN n > 18500 THEN 'queued' WHEN n > 18495 THEN 'running' WHEN n > 17000 THEN 'waiting' ELSE 'succeeded' END,
       'p', 'x', '{}', CASE WHEN n <= 17000 THEN now() END
  FROM generate_series(1, 20000) n;
ANALYZE;
"""


async def test_counts_of_a_tenant_are_bounded_and_read_from_indexes(idle: World, owner: Any) -> None:
    """Of 20,000 queries, 17,000 are over, and more wait or are queued than are counted."""
    await owner.execute(FILL)
    read = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'queries'"
    await owner.execute("SELECT pg_stat_reset()")
    acme, other = (await idle.operator().read("/tenants"))["items"]
    assert (acme["queuedQueries"], acme["waitingQueries"]) == (MAX_COUNTED, MAX_COUNTED)
    assert (acme["runningQueries"], other["runningQueries"]) == (5, 0)
    await asyncio.sleep(1.2)  # each session reports its numbers once a second
    assert await owner.fetchval(read) == 0


PROCESSES = """
INSERT INTO processes (id, host, pid, holds_lock, heartbeat_ms)
SELECT 'proc_' || n, 'h', n, false, 0 FROM generate_series(1, 200) n;
UPDATE queries SET lease_owner = 'proc_7', lease_expires_at = now() + interval '1 h'
 WHERE tenant_id = 'acme' AND status = 'running';
"""


async def test_the_running_queries_of_all_processes_are_counted_in_one_scan(idle: World, owner: Any) -> None:
    await owner.execute(FILL)
    await owner.execute(PROCESSES)
    listed = (await idle.operator().read("/processes"))["items"]
    running = {process["id"]: process["runningQueries"] for process in listed}
    assert running["proc_7"] == 5
    assert len(running) >= 200
    assert sum(running.values()) == 5
    body = await owner.fetchval("SELECT prosrc FROM pg_proc WHERE proname = 'list_processes'")
    explained = await owner.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {body.replace('p_limit', '500')}")
    scans = re.findall(r'"Relation Name": "queries".*?"Actual Loops": (\d+)', explained, re.DOTALL)
    assert scans == ["1"]


async def test_a_session_of_the_operator_sees_both_and_one_for_somebody_else_neither(
    plangate: World, api: Caller
) -> None:
    own = await sign_in(plangate, key=str(api.key), tenant="acme")
    assert (await own.read("/whoami"))["operator"] is True
    for path in ("/tenants", "/processes"):
        assert (await own.read(path))["items"]
    for body in (
        {"key": str(api.key), "tenant": "acme", "principal": "ann"},
        {
            "ticket": str(
                (await api.do("/session/tickets", None, headers={"plangate-principal": "ann"}))["ticket"]
            )
        },
        {"key": str((await plangate.key("admin", principal="operator")).key)},
    ):
        other = await sign_in(plangate, **body)
        assert (await other.read("/whoami"))["operator"] is False
        for path in ("/tenants", "/processes"):
            refused(await other.get(path), 403)


async def test_an_admin_reads_the_limits_and_use_of_the_own_tenant(plangate: World, api: Caller) -> None:
    await plangate.tenant("other", runningQueries=3)
    await api.register(specs.scripted(specs.tool("pay", approval="always")))
    query = await api.submit(specs.script(("pay", {"n": 1})))
    await api.until(query["id"], "waiting")
    mine = await (await plangate.key("admin")).read("/tenant")
    (listed,) = (item for item in (await api.read("/tenants"))["items"] if item["id"] == "acme")
    assert mine == listed
    assert (mine["id"], mine["waitingQueries"], mine["pendingApprovals"]) == ("acme", 1, 1)
    refused(await (await plangate.key("read")).get("/tenant"), 403)


async def test_the_statement_of_the_guide_measures_what_a_tenant_has_in_the_database(
    plangate: World, api: Caller, owner: Any
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text("utf-8")
    statement = page.split("```sql\nSELECT tenant_id, pg_size_pretty")[1].split("```")[0]
    await api.register(specs.spec(references=[{"name": "Rows", "schema": {}}]))
    await api.do("/references", {"kind": "Rows", "value": "x" * 300_000})
    (row,) = await owner.fetch(f"SELECT tenant_id, pg_size_pretty{statement}")
    assert (row[0], row[1]) == ("acme", "293 kB")
    assert (await plangate.operator().read("/tenants"))["items"][0]["blobBytes"] == 0
