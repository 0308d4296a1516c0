"""Only the death of a process counts against its queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.agents.limits import AgentLimits
from app.assembly import FeatureLimits
from app.base.ids import new_id
from app.engine import ending, lease_store
from app.engine.ending import QueryEndings
from app.engine.models import QueryClaim
from app.engine.processes import ProcessLocks, ProcessRecord
from app.engine.service import mark_for_ending, wake_query
from app.journal.models import Entry, Lease, QueryChange, Work
from tests.support import specs
from tests.support.world import World, world

EXPIRE = "UPDATE queries SET lease_expires_at = now() - interval '1 s' WHERE status = 'running'"
LEASE_S = 10.0


class Processes:
    """Processes of which only the records exist."""

    def __init__(self, w: World, owner: Any) -> None:
        self.db = w.services.db
        self._owner = owner

    async def started(self, id: str, parent: str | None = None, *, lock: bool = False) -> str:
        await lease_store.register_process(
            self.db, id=id, parent_id=parent, host="test", pid=1, holds_lock=lock
        )
        return id

    async def claim(self, id: str) -> dict[str, QueryClaim]:
        return {c.query_id: c for c in await lease_store.claim(self.db, owner=id, limit=100, lease_s=LEASE_S)}

    async def claim_suspects(self, id: str, limit: int = 100, company: int = 0) -> dict[str, QueryClaim]:
        claims = await lease_store.claim(
            self.db, owner=id, limit=limit, lease_s=LEASE_S, suspects=True, company=company
        )
        return {c.query_id: c for c in claims}

    async def counts(self, query_id: str) -> tuple[int, int]:
        """How many deaths of shared processes, and of child processes of its own, count against a query."""
        row = await self._owner.fetchrow(
            "SELECT c.deaths, c.own_deaths FROM queries q,"
            " lost_lease_counts(q.tenant_id, q.id, q.crashes, q.progress_epoch) c WHERE q.id = $1",
            query_id,
        )
        return row["deaths"], row["own_deaths"]

    async def die(self, id: str) -> None:
        assert await lease_store.end_process(self.db, id=id, reason="died", lease_s=LEASE_S)

    async def died_with(self, *ids: str) -> None:
        """Processes claim everything and die, one after the other."""
        for id in ids:
            await self.started(id)
            assert await self.claim(id)
            await self.die(id)

    async def presumed_dead(self, id: str) -> bool:
        """Whether this process is presumed dead after a minute of silence."""
        await lease_store.presume_dead(self.db, silent_s=60.0)
        reason = await self._owner.fetchval("SELECT end_reason FROM processes WHERE id = $1", id)
        return bool(reason == "presumed_dead")

    async def lapse(self) -> None:
        """The leases run out, and nobody knows why."""
        await self._owner.execute(EXPIRE)


@pytest.fixture
def processes(idle: World, owner: Any) -> Processes:
    return Processes(idle, owner)


async def queued(idle: World, count: int) -> list[str]:
    await idle.api.register(specs.mock())
    return [(await idle.api.submit())["id"] for _ in range(count)]


def progress() -> Entry:
    return Entry(work=[Work(new_id("wrk_"), None, "model_call", "m", "solo", "succeeded")])


# -- what counts


async def test_an_expired_lease_moves_the_query_without_counting(idle: World, processes: Processes) -> None:
    (query,) = await queued(idle, 1)
    for name in ("prc_a", "prc_b", "prc_a", "prc_b", "prc_a"):
        await processes.started(name)
        found = await processes.claim(name)
        assert await processes.counts(query) == (0, 0)
        for alive in ("prc_a", "prc_b"):
            await lease_store.report_process(
                processes.db, id=alive, leases=[("acme", query, found[query].epoch)], lease_s=LEASE_S
            )
        await processes.lapse()


async def test_a_death_counts_once_for_every_query_in_flight(idle: World, processes: Processes) -> None:
    a, b = await queued(idle, 2)
    await processes.started("prc_a")
    await processes.claim("prc_a")
    await processes.die("prc_a")
    assert not await lease_store.end_process(processes.db, id="prc_a", reason="died", lease_s=LEASE_S)
    found = await processes.claim(await processes.started("prc_b"))
    assert {q: c.lost for q, c in found.items()} == {a: True, b: True}
    assert await processes.counts(a) == await processes.counts(b) == (1, 0)


async def test_a_silent_process_is_presumed_dead_only_by_writable_time(
    idle: World, processes: Processes, owner: Any
) -> None:
    (query,) = await queued(idle, 1)
    await processes.started("prc_a")
    await processes.claim("prc_a")
    await processes.lapse()
    await owner.execute("UPDATE processes SET heartbeat_at = now() - interval '1 day'")
    assert not await processes.presumed_dead("prc_a"), "nobody could write meanwhile"
    found = await processes.claim(await processes.started("prc_b"))
    assert await processes.counts(query) == (0, 0)
    await owner.execute("UPDATE writable_time SET elapsed_ms = elapsed_ms + 61000")
    await lease_store.report_process(
        processes.db, id="prc_b", leases=[("acme", query, found[query].epoch)], lease_s=LEASE_S
    )
    assert await processes.presumed_dead("prc_a")
    await lease_store.end_process(processes.db, id="prc_b", reason="stopped", lease_s=LEASE_S)
    assert query in await processes.claim("prc_c")
    assert await processes.counts(query) == (1, 0)


async def test_a_presumed_death_is_taken_back_when_the_process_reports_again(
    idle: World, processes: Processes, owner: Any
) -> None:
    (query,) = await queued(idle, 1)
    await processes.started("prc_a")
    await processes.claim("prc_a")
    await processes.lapse()
    await processes.claim(await processes.started("prc_b"))
    await owner.execute("UPDATE writable_time SET elapsed_ms = elapsed_ms + 61000")
    await owner.execute("UPDATE processes SET heartbeat_ms = 61000 WHERE id <> 'prc_a'")
    assert await processes.presumed_dead("prc_a")
    await lease_store.report_process(processes.db, id="prc_a", leases=[], lease_s=LEASE_S)
    assert await owner.fetchval("SELECT end_reason FROM processes WHERE id = 'prc_a'") is None
    await processes.die("prc_b")
    assert query in await processes.claim("prc_a")
    assert await processes.counts(query) == (1, 0), "that of prc_b alone"


async def test_an_outage_adds_next_to_nothing_to_writable_time(
    idle: World, processes: Processes, owner: Any
) -> None:
    await processes.started("prc_a")
    await owner.execute("UPDATE writable_time SET ticked_at = now() - interval '1 hour'")
    await lease_store.report_process(processes.db, id="prc_a", leases=[], lease_s=LEASE_S)
    assert await owner.fetchval("SELECT elapsed_ms FROM writable_time") <= 5000


async def test_a_claim_whose_response_was_lost_counts_against_no_query(
    idle: World, processes: Processes, owner: Any
) -> None:
    (query,) = await queued(idle, 1)
    await processes.started("prc_a")
    await processes.claim("prc_a")  # and the response does not arrive
    await lease_store.report_process(processes.db, id="prc_a", leases=[], lease_s=LEASE_S)
    assert await processes.claim("prc_b") == {}, "it may still be on its way"
    await owner.execute("UPDATE queries SET resumed_at = now() - interval '6 s'")
    await lease_store.report_process(processes.db, id="prc_a", leases=[], lease_s=LEASE_S)
    await processes.die("prc_a")
    found = await processes.claim("prc_b")
    assert not found[query].lost
    assert await processes.counts(query) == (0, 0)


async def test_progress_resets_the_count(idle: World, processes: Processes) -> None:
    (query,) = await queued(idle, 1)
    await processes.died_with("prc_a")
    claim = (await processes.claim(await processes.started("prc_b")))[query]
    lease = Lease("acme", query, claim.epoch)
    await idle.services.journal.commit(
        lease, Entry(work=[Work(new_id("wrk_"), None, "model_call", "m", "solo", "running")])
    )
    await processes.die("prc_b")
    assert await processes.claim("prc_c") == {}, "a model call that was only begun will be repeated"
    claim = (await processes.claim_suspects(await processes.started("prc_child", "prc_c")))[query]
    assert await processes.counts(query) == (2, 0)
    await idle.services.journal.commit(Lease("acme", query, claim.epoch), progress())
    await lease_store.end_process(processes.db, id="prc_child", reason="stopped", lease_s=LEASE_S)
    assert query in await processes.claim("prc_c")
    assert await processes.counts(query) == (0, 0)


async def test_a_query_that_parks_or_is_released_is_innocent(idle: World, processes: Processes) -> None:
    a, b = await queued(idle, 2)
    await processes.died_with("prc_a", "prc_b")
    found = await processes.claim_suspects(await processes.started("prc_child", "prc_p"))
    await idle.services.journal.commit(
        Lease("acme", a, found[a].epoch), Entry(change=QueryChange("waiting", "approval", 0))
    )
    async with idle.services.db.transaction("acme") as tx:
        await wake_query(tx, query_id=a)
    await lease_store.end_process(processes.db, id="prc_child", reason="stopped", lease_s=LEASE_S)
    assert set(await processes.claim("prc_c")) == {a}
    assert set(await processes.claim_suspects("prc_d")) == {b}
    assert (await processes.counts(a), await processes.counts(b)) == ((0, 0), (2, 0))


# -- suspects


async def test_after_two_deaths_queries_run_in_child_processes(idle: World, processes: Processes) -> None:
    suspects = await queued(idle, 16)
    await processes.died_with("prc_a", "prc_b")
    assert await processes.claim(await processes.started("prc_c")) == {}
    assert await lease_store.count_suspects(processes.db) == 16
    (fresh,) = await queued(idle, 1)
    assert set(await processes.claim("prc_c")) == {fresh}
    taken: set[str] = set()
    for n in range(8):
        taken |= set(await processes.claim_suspects(await processes.started(f"prc_k{n}", "prc_c"), 2))
    assert taken == set(suspects)


async def test_the_queries_of_a_dead_child_are_split_until_one_is_the_culprit(
    idle: World, processes: Processes
) -> None:
    await queued(idle, 5)
    await processes.died_with("prc_a", "prc_b")
    culprit: str | None = None
    sizes = []
    for n in range(4):
        found = await processes.claim_suspects(await processes.started(f"prc_k{n}", "prc_p"))
        culprit = culprit or min(found)
        while culprit not in found:  # the others survive theirs
            for query, claim in found.items():
                await idle.services.journal.commit(
                    Lease("acme", query, claim.epoch), Entry(change=QueryChange("succeeded", output=b"1"))
                )
            found = await processes.claim_suspects(f"prc_k{n}")
        sizes.append(len(found))
        assert await processes.counts(culprit) == (2, 0)
        assert await lease_store.culprits(processes.db, fatal_deaths=3) == []
        await processes.die(f"prc_k{n}")
        if len(found) == 1:
            break
    assert sizes == [5, 3, 2, 1]
    (found_out,) = await lease_store.culprits(processes.db, fatal_deaths=3)
    assert (found_out.query_id, found_out.deaths, found_out.own_deaths) == (culprit, 2, 1)


async def test_a_query_that_must_run_alone_shares_no_child(idle: World, processes: Processes) -> None:
    (query,) = await queued(idle, 1)
    await processes.died_with("prc_a", "prc_b")
    await processes.claim_suspects(await processes.started("prc_k", "prc_p"))
    await processes.die("prc_k")
    assert await processes.claim_suspects(await processes.started("prc_l", "prc_p"), company=1) == {}
    assert set(await processes.claim_suspects("prc_l")) == {query}


async def test_a_childs_own_deaths_are_not_reset_by_progress(idle: World, processes: Processes) -> None:
    (query,) = await queued(idle, 1)
    await processes.died_with("prc_a", "prc_b")
    claim = (await processes.claim_suspects(await processes.started("prc_k", "prc_p")))[query]
    await idle.services.journal.commit(Lease("acme", query, claim.epoch), progress())
    await processes.die("prc_k")
    claim = (await processes.claim_suspects(await processes.started("prc_l", "prc_p")))[query]
    assert claim.share == 1
    assert await processes.counts(query) == (0, 1)


async def test_a_child_that_ran_another_query_identifies_no_culprit(
    idle: World, processes: Processes
) -> None:
    a, b = await queued(idle, 2)
    await processes.died_with("prc_a", "prc_b")
    found = await processes.claim_suspects(await processes.started("prc_k", "prc_p"))
    await idle.services.journal.commit(
        Lease("acme", a, found[a].epoch), Entry(change=QueryChange("succeeded", output=b"1"))
    )
    assert await lease_store.end_process(processes.db, id="prc_k", reason="died", lease_s=LEASE_S, queries=2)
    assert await processes.counts(b) == (2, 0)
    assert await lease_store.culprits(processes.db, fatal_deaths=3) == []
    assert await processes.claim_suspects(await processes.started("prc_l", "prc_p"), company=1) == {}
    await processes.claim_suspects("prc_l")
    assert await lease_store.end_process(processes.db, id="prc_l", reason="died", lease_s=LEASE_S, queries=1)
    assert await processes.counts(b) == (2, 1)


async def test_children_end_with_their_parent_without_counting(idle: World, processes: Processes) -> None:
    (query,) = await queued(idle, 1)
    await processes.died_with("prc_a", "prc_b")
    await processes.started("prc_p")
    assert await processes.claim_suspects(await processes.started("prc_k", "prc_p"))
    await processes.die("prc_p")
    assert query in await processes.claim_suspects(await processes.started("prc_l", "prc_q"))
    assert await processes.counts(query) == (2, 0)


# -- file locks


async def test_a_free_file_lock_is_a_death_and_a_held_one_is_not(
    idle: World, processes: Processes, owner: Any, tmp_path: Path
) -> None:
    (query,) = await queued(idle, 1)
    ours, theirs = ProcessLocks(tmp_path / "processes"), ProcessLocks(tmp_path / "processes")
    dead = ProcessRecord(processes.db, "prc_dead", LEASE_S, locks=theirs)
    watch = ProcessRecord(processes.db, "prc_watch", LEASE_S, locks=ours)
    await dead.register()
    await watch.register()
    await processes.claim("prc_dead")
    await owner.execute("UPDATE writable_time SET elapsed_ms = elapsed_ms + 600000")
    assert not await processes.presumed_dead("prc_dead")
    assert await watch.find_deaths() == 0
    assert await processes.claim("prc_watch") == {}
    theirs.release("prc_dead")  # as the kernel does when a process ends
    assert await watch.find_deaths() == 1
    assert query in await processes.claim("prc_watch")
    assert await processes.counts(query) == (1, 0)
    assert not (tmp_path / "processes" / "prc_dead.lock").exists()


async def test_a_graceful_stop_is_not_a_death(site: Any, cluster: Any, owner: Any) -> None:
    async with world(site, cluster.operator_key) as w:
        assert await owner.fetchval("SELECT end_reason FROM processes") is None
        started = w.services.worker.owner
    row = await owner.fetchrow("SELECT id, end_reason FROM processes")
    assert tuple(row) == (started, "stopped")


async def test_an_unregistered_process_gets_no_lease(site: Any, cluster: Any, owner: Any) -> None:
    limits = FeatureLimits(worker_tick_s=0.05)
    async with world(site, cluster.operator_key, limits=limits, started=False) as w:
        registrations = w.faults.fail("register_process", times=2)
        await w.services.start()
        await w.api.register(specs.mock())
        query = (await w.api.submit())["id"]
        assert (await w.api.ended(query))["status"] == "succeeded"
        owners = await owner.fetch("SELECT id FROM processes")
    assert registrations.seen >= 3
    assert len(owners) == 1


# -- ending step by step


async def test_a_query_set_aside_is_ended_with_its_plan_and_calls(
    plangate: World, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One hook fails at first: what others closed stays closed, and no terminal event is written before it succeeds."""
    api = plangate.api
    await api.register(specs.scripted(specs.tool("add"), specs.tool("pay", approval="always")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    (call,) = await api.claim("add")
    fails = True

    async def hook(tx: Any, query_id: str, code: str) -> None:
        if fails:
            raise ValueError("a plan that cannot be read")

    services = plangate.services
    for task in services.worker._tasks:
        if task.get_name() == "worker-periodic":
            task.cancel()  # the worker's own endings have no hook that fails
    runner = services.worker._advance.__self__  # type: ignore[attr-defined]
    endings = QueryEndings(services.db, (*runner._end_hooks, hook), retry_s=0.0)
    epoch = await owner.fetchval("SELECT lease_epoch FROM queries WHERE id = $1", query)
    async with services.db.transaction("acme") as tx:
        await mark_for_ending(
            tx, query_id=query, epoch=epoch, code="poisoned", message="It ended 3 processes."
        )
    monkeypatch.setattr("app.engine.ending.log", ending.log)
    await endings.finish_due()
    found = await api.read(f"/queries/{query}")
    assert (found["status"], found["error"]) == ("running", None)
    rows = (await api.read("/tool-calls", queryId=query))["items"]
    assert [r["status"] for r in rows] == ["unknown"]
    assert "error" not in [e["type"] for e in await api.events(query)]
    fails = False
    await endings.finish_due()
    ended = await api.read(f"/queries/{query}")
    assert (ended["status"], ended["error"]) == (
        "failed",
        {"code": "poisoned", "message": "It ended 3 processes."},
    )
    types = [e["type"] for e in await api.events(query)]
    assert (types[-1], types.count("error")) == ("error", 1)
    assert (await api.result(call, 5)).json()["adopted"] is False


async def test_a_query_whose_end_fails_in_one_transaction_is_ended_in_several(
    idle: World, owner: Any, site: Any, cluster: Any
) -> None:
    await idle.api.register(specs.mock())
    query = (await idle.api.submit())["id"]
    tried = 0

    async def broken(*_: Any) -> Any:
        raise ValueError("no runtime")

    async def hook(tx: Any, query_id: str, code: str) -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise ValueError("a plan that cannot be read")

    limits = FeatureLimits(agents=AgentLimits(max_loads=1))
    async with world(site, cluster.operator_key, started=False, limits=limits) as w:
        w.services.runtimes.get = broken  # type: ignore[method-assign]
        runner = w.services.worker._advance.__self__  # type: ignore[attr-defined]
        runner._end_hooks = (hook,)
        await w.services.start()
        ended = await w.api.ended(query)
    assert (ended["error"]["code"], tried) == ("internal_error", 1), "the periodic task has hooks of its own"


async def test_rows_stranded_by_an_earlier_version_are_repaired(plangate: World, owner: Any) -> None:
    """A query that was ended without its hooks: its plan is executing, its actions dispatched, where nobody can settle."""
    api = plangate.api
    await api.register(specs.planning())
    query = (await api.submit(specs.store_and_execute()))["id"]
    await api.decide((await api.gate(query))["id"])
    await api.claim("actions")
    await owner.execute(
        "UPDATE queries SET status = 'failed', reason = 'poisoned', ended_at = now(), lease_epoch = lease_epoch + 1,"
        " lease_owner = NULL, lease_expires_at = NULL WHERE id = $1",
        query,
    )
    before = await api.events(query)
    services = plangate.services
    runner = services.worker._advance.__self__  # type: ignore[attr-defined]
    assert await QueryEndings(services.db, runner._end_hooks).repair_stranded() == 1
    (plan,) = (await api.read("/plans"))["items"]
    rows = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    assert (plan["status"], {r["status"] for r in rows}) == ("failed", {"unknown"})
    assert await api.events(query) == before, "its journal had ended"
    await api.do(f"/plans/{plan['id']}/actions/0", {"outcome": "succeeded", "details": "seen"})
    row = (await api.read(f"/plans/{plan['id']}/actions"))["items"][0]
    assert row["status"] == "succeeded"
    assert await api.events(query) == before
    assert await QueryEndings(services.db, runner._end_hooks).repair_stranded() == 0


async def test_a_full_worker_moves_expired_leases_on(idle: World, processes: Processes) -> None:
    (query,) = await queued(idle, 1)
    await processes.died_with("prc_a", "prc_b")
    await processes.claim_suspects(await processes.started("prc_k", "prc_p"))
    await processes.lapse()
    assert await lease_store.count_suspects(processes.db) == 0
    assert await lease_store.claim(processes.db, owner="prc_full", limit=0, lease_s=LEASE_S) == []
    assert await lease_store.count_suspects(processes.db) == 1
    assert set(await processes.claim_suspects("prc_l")) == {query}
