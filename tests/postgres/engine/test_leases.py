"""Leases: each query has one worker, which may write only while it holds the lease."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.engine import lease_store
from app.engine.models import QueryClaim
from app.engine.query_run import QueryRun
from app.engine.service import wake_query
from app.events import CustomEvent
from app.journal.models import Entry, Lease, LeaseLost, QueryChange, Scope, event
from app.journal.writer import ParkRejected
from tests.support import specs
from tests.support.client import Caller, eventually, output_of, refused
from tests.support.world import World, world

EXPIRE = "UPDATE queries SET lease_expires_at = now() - interval '1 s' WHERE status = 'running'"
PAUSED = specs.tool("pay", approval="always")


async def queued(idle: World, count: int, **parts: Any) -> list[str]:
    await idle.api.register(specs.mock())
    return [(await idle.api.submit(**parts))["id"] for _ in range(count)]


async def claim(w: World, limit: int = 100, owner: str = "me") -> list[QueryClaim]:
    return await lease_store.claim(w.services.db, owner=owner, limit=limit, lease_s=10.0)


async def test_concurrent_claims_give_each_query_to_one_worker(idle: World) -> None:
    ids = await queued(idle, 20)
    claims = await asyncio.gather(*(claim(idle, 7, f"w{n}") for n in range(6)))
    got = [c.query_id for taken in claims for c in taken]
    assert sorted(got) == sorted(ids)
    assert {c.epoch for taken in claims for c in taken} == {1}
    assert await claim(idle) == []


async def test_queries_of_a_thread_run_in_order_one_at_a_time(idle: World) -> None:
    first, second = await queued(idle, 2, threadKey="t")
    assert [c.query_id for c in await claim(idle)] == [first]
    assert await claim(idle) == []
    await idle.api.do(f"/queries/{first}/cancel")
    assert [c.query_id for c in await claim(idle)] == [second]


async def test_running_queries_of_a_tenant_are_limited(idle: World) -> None:
    await idle.tenant("small", runningQueries=2)
    small = idle.operator("small")
    await small.register(specs.mock(tenant="small"))
    theirs = {(await small.submit())["id"] for _ in range(5)}
    ours = set(await queued(idle, 3))
    taken = await claim(idle)
    assert ours <= {c.query_id for c in taken}
    assert len([c for c in taken if c.query_id in theirs]) == 2
    assert await claim(idle) == []
    running = next(c.query_id for c in taken if c.query_id in theirs)
    await small.do(f"/queries/{running}/cancel")
    assert len(await claim(idle)) == 1


async def test_tenants_take_turns(idle: World) -> None:
    ours = set(await queued(idle, 4))
    await idle.other.register(specs.mock(tenant="other"))
    theirs = {(await idle.other.submit())["id"] for _ in range(4)}
    taken = {c.query_id for c in await claim(idle, 4)}
    assert (len(taken & ours), len(taken & theirs)) == (2, 2)


async def test_an_expired_lease_is_taken_over_and_its_owner_is_fenced(idle: World, owner: Any) -> None:
    (query,) = await queued(idle, 1)
    (first,) = await claim(idle, owner="one")
    assert await claim(idle, owner="two") == []
    await owner.execute(EXPIRE)
    (second,) = await claim(idle, owner="two")
    assert (second.query_id, second.epoch, second.lost) == (query, 2, True)
    journal = idle.services.journal
    scope = Scope(query, "thr", "wrk", None, "solo")
    entry = Entry([event(scope, CustomEvent, event_type="x", data={})])
    stale = Lease("acme", query, first.epoch, 1e12)
    with pytest.raises(LeaseLost):
        await journal.commit(stale, entry)
    assert stale.lost
    with pytest.raises(LeaseLost):
        await journal.commit(stale, entry)
    assert await idle.api.events(query, "custom") == []
    await journal.commit(Lease("acme", query, second.epoch, 1e12), entry)
    assert len(await idle.api.events(query, "custom")) == 1
    assert (
        await lease_store.report_process(
            idle.services.db, id="one", leases=[("acme", query, 1)], lease_s=10.0
        )
        == set()
    )
    assert (
        await lease_store.report_process(
            idle.services.db, id="two", leases=[("other", query, 2)], lease_s=10.0
        )
        == set()
    )
    assert await lease_store.report_process(
        idle.services.db, id="two", leases=[("acme", query, 2)], lease_s=10.0
    ) == {query}


async def test_a_fenced_owner_changes_nothing(idle: World, owner: Any) -> None:
    (query,) = await queued(idle, 1)
    await claim(idle)
    await owner.execute(EXPIRE)
    await claim(idle)
    run = object.__new__(QueryRun)
    run.db, run.lease = idle.services.db, Lease("acme", query, 1, 1e12)
    called = False

    async def verb(_tx: Any) -> None:
        nonlocal called
        called = True

    with pytest.raises(LeaseLost):
        await run.in_fenced_transaction(verb)
    assert not called
    assert run.lease.lost


async def test_a_released_query_can_be_claimed_at_once(idle: World) -> None:
    (query,) = await queued(idle, 1)
    (first,) = await claim(idle)
    await lease_store.release(idle.services.db, owner="another", leases=[("acme", query, first.epoch)])
    assert await claim(idle) == []
    await lease_store.release(idle.services.db, owner="me", leases=[("acme", query, first.epoch)])
    (again,) = await claim(idle)
    assert (again.epoch, again.lost) == (2, False)


async def test_a_draining_process_releases_its_queries(site: Any, cluster: Any, idle: World) -> None:
    async with world(site, cluster.operator_key) as leaving:
        await leaving.api.register(specs.scripted(specs.tool("add")))
        query = (await leaving.api.submit(specs.script(("add", {"n": 1}))))["id"]
        (call,) = await leaving.api.claim("add")
    lease = await idle.sql("SELECT status, lease_owner, lease_expires_at, crashes FROM queries")
    assert [tuple(r) for r in lease] in ([("running", None, None, 0)], [("waiting", None, None, 0)])
    async with world(site, cluster.operator_key):
        assert (await idle.api.result(call, 5)).json()["adopted"]
        ended = await idle.api.ended(query)
    assert output_of(ended) == [{"tool": "add", "result": 5}]


async def test_a_run_is_rebuilt_from_records_without_repeating_work(
    site: Any, cluster: Any, idle: World, owner: Any
) -> None:
    """A worker that vanished: nothing was released, its lease ran out."""
    async with world(site, cluster.operator_key) as first:
        await first.api.register(specs.scripted(specs.tool("add"), PAUSED))
        query = (await first.api.submit(specs.script(("add", {"n": 1}), ("pay", {"n": 2}))))["id"]
        await first.api.serve("add", 1)
        approval = await first.api.gate(query)
    await idle.api.decide(approval["id"])
    await owner.execute("UPDATE queries SET lease_owner = 'gone', lease_expires_at = now() - interval '1 s'")
    async with world(site, cluster.operator_key):
        call = await idle.api.serve("pay", 2)
        ended = await idle.api.ended(query)
    assert call["args"] == {"n": 2}
    assert output_of(ended) == [{"tool": "add", "result": 1}, {"tool": "pay", "result": 2}]
    assert [e["seq"] for e in await idle.api.events(query)] == list(
        range(1, len(await idle.api.events(query)) + 1)
    )
    rows = await idle.sql("SELECT name, attempts FROM outgoing_calls ORDER BY created_at")
    assert [tuple(r) for r in rows] == [("add", 1), ("pay", 1)]


async def test_a_wake_up_in_the_moment_of_parking_refuses_the_parking(idle: World) -> None:
    (query,) = await queued(idle, 1)
    (taken,) = await claim(idle)
    lease = Lease("acme", query, taken.epoch, 1e12)
    async with idle.services.db.transaction("acme") as tx:
        assert await wake_query(tx, query_id=query)
    with pytest.raises(ParkRejected):
        await idle.services.journal.commit(lease, Entry(change=QueryChange("waiting", "approval", 0)))
    assert await idle.value("SELECT status FROM queries") == "running"
    await idle.services.journal.commit(lease, Entry(change=QueryChange("waiting", "approval", 1)))
    assert await idle.value("SELECT status FROM queries") == "waiting"
    async with idle.services.db.transaction("acme") as tx:
        assert await wake_query(tx, query_id=query)
    assert [c.query_id for c in await claim(idle)] == [query]


async def test_queries_of_one_thread_run_in_order_across_processes(plangate: World, second: World) -> None:
    await plangate.api.register(specs.mock())
    sent = []
    for n in range(8):
        sent.append((await (second if n % 2 else plangate).api.submit(threadKey="t"))["id"])
    for id in sent:
        assert (await plangate.api.ended(id))["status"] == "succeeded"
    rows = await plangate.sql("SELECT id FROM queries ORDER BY started_at, id")
    assert [r["id"] for r in rows] == sent


async def test_the_claim_loop_survives_an_error(plangate: World, owner: Any) -> None:
    await plangate.api.register(specs.mock())
    signature = "(text, int, float8, boolean, int)"
    await owner.execute(f"ALTER FUNCTION claim_queries{signature} RENAME TO claim_queries_")
    plangate.services.worker.on_notify("")
    await asyncio.sleep(0.2)
    await owner.execute(f"ALTER FUNCTION claim_queries_{signature} RENAME TO claim_queries")
    first = await plangate.api.submit(threadKey="t")
    second = await plangate.api.submit(threadKey="t")
    assert first["id"] < second["id"]
    assert (await plangate.api.ended(second["id"]))["status"] == "succeeded"


async def test_the_running_process_drops_a_canceled_query(
    plangate: World, second: World, api: Caller
) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    (call,) = await api.claim("add")
    cancelled = await second.api.do(f"/queries/{query}/cancel")
    assert (cancelled["status"], cancelled["error"]["code"]) == ("cancelled", "cancelled")

    async def idle_now() -> bool:
        return plangate.services.worker.busy == 0

    await eventually(idle_now, "the worker lets go", 3)
    assert (await api.result(call, 5)).json()["adopted"] is False
    refused(
        await api.post(f"/tool-calls/{call['workId']}/heartbeat", {"claimToken": call["claimToken"]}), 409
    )
    assert [e["type"] for e in await api.events(query)].count("error") == 1
