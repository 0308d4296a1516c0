"""A tenant moves from one cell to another while it is used: nothing that was accepted is lost, and nothing runs in both."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from click.testing import Result
from typer.testing import CliRunner

from app.assembly import FeatureLimits
from app.base.errors import Conflict, NotFound, TenantNotReady
from app.base.ids import new_id
from app.base.keys import cell_of_key, new_key
from app.base.postgres.migrate import migrate
from app.base.sealing import derive_key
from app.commands import admin, transfers
from app.commands.main import cli
from app.deployment import Deployment, open_blobs, prepare_blobs
from app.engine import lease_store, parking, worker
from app.engine.worker import ActiveQuery
from app.events import CustomEvent
from app.journal.models import Entry, Lease, LeaseLost, Scope, event
from app.settings import Settings
from app.transfer import encryption, moving
from app.transfer.errors import TransferError
from tests.postgres.transfer.test_transfer import OTHER_MASTER, PASSPHRASE, count_rows, load, read_rows, save
from tests.support import specs
from tests.support.client import Caller, eventually, good, refused
from tests.support.cluster import Cluster, as_superuser
from tests.support.whole_tenant import everything, fill, pages
from tests.support.world import World, world

pytestmark = pytest.mark.long

QUICK = FeatureLimits(worker_tick_s=0.05)


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """One guess of a passphrase costs 0.4 s, on purpose."""
    monkeypatch.setattr(encryption, "_SCRYPT_N", 2**10)


@pytest.fixture
async def target(cluster: Cluster) -> AsyncIterator[tuple[Deployment, str]]:
    """Another cell, with another master key, without tenants, and the text of its operator's key."""
    site = replace(await cluster.empty(), master=OTHER_MASTER)
    await migrate(site.migrate_dsn)
    text, hash = new_key(cell="eu2")
    async with as_superuser(site) as connection:
        await connection.execute("SET ROLE plangate_owner")
        await connection.execute("SELECT create_operator_key($1, $2, $3)", new_id("key_"), hash, "tests")
    yield site, text
    await cluster.drop(site)


def with_key(running: World, key: str) -> Caller:
    return Caller(running.http, key)


@pytest.fixture
async def quick(cluster: Cluster, site: Deployment) -> AsyncIterator[World]:
    """A process that sends a heartbeat every 0.3 s."""
    async with world(site, cluster.operator_key, limits=QUICK, lease_s=1.0) as running:
        yield running


async def test_a_tenant_is_parked_redirected_and_comes_back(
    quick: World, site: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "MAX_TRANSACTION_S", -1.0)
    key, file = await quick.key("admin"), tmp_path / "acme.tenant"
    await key.register(specs.mock())
    query = (await key.run())["id"]
    cursor = (await key.read(f"/queries/{query}/events"))["nextCursor"]
    tenant_cursor = (await key.read("/events"))["nextCursor"]
    with pytest.raises(Conflict, match="is active"):
        await moving.redirect("acme", "eu2", dsn=site.dsn)
    with pytest.raises(NotFound):
        await moving.park("nobody", dsn=site.dsn)

    await moving.park("acme", dsn=site.dsn)
    with pytest.raises(TenantNotReady):
        async with quick.services.db.transaction("acme"):
            pass
    await eventually(lambda: answers(key, 503), "a parked tenant is not served")
    assert refused(await key.get("/queries"), 503, "tenant_not_ready")
    good(await quick.other.get("/queries"))

    await moving.resume("acme", dsn=site.dsn)
    await eventually(lambda: answers(key, 200), "a resumed tenant is served")
    await key.run()
    good(await key.get("/events", after=tenant_cursor))

    ticket = (await key.do("/session/tickets"))["ticket"]
    streams = [asyncio.create_task(caller.get("/events/stream")) for caller in (key, quick.api)]
    await moving.park("acme", dsn=site.dsn)
    await save(site, file)
    assert not any(stream.done() for stream in streams)
    with pytest.raises(TransferError, match="was not moved"):
        await moving.remove("acme", dsn=site.dsn, blobs=open_blobs(site.blobs))
    await moving.redirect("acme", "eu2", dsn=site.dsn)
    await eventually(lambda: answers(key, 421), "a moved tenant is redirected")
    assert refused(await key.get("/queries"), 421, "wrong_cell")["cell"] == "eu2"
    refused(await quick.http.post("/session", json={"ticket": ticket}), 421, "wrong_cell")
    async with asyncio.timeout(15):
        assert [(await stream).status_code for stream in streams] == [200, 200]
    with pytest.raises(TransferError, match="was moved"):
        await save(site, tmp_path / "again.tenant")
    with pytest.raises(TransferError, match="exists here already"):
        await load(site, file)

    await moving.remove("acme", dsn=site.dsn, blobs=open_blobs(site.blobs))
    assert sum((await count_rows(site)).values()) == 0
    await load(site, file)
    await eventually(lambda: answers(key, 200), "an imported tenant is served")
    good(await key.get(f"/queries/{query}/events", after=cursor))
    refused(await key.get("/events", after=tenant_cursor), 409, "history_rewound")
    await key.run()


async def answers(caller: Caller, status: int) -> bool:
    return (await caller.get("/queries")).status_code == status


async def test_the_holder_of_a_released_lease_writes_nothing_once_the_tenant_is_parked(
    idle: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "MAX_TRANSACTION_S", -1.0)
    await idle.api.register(specs.mock())
    query = (await idle.api.submit())["id"]
    (claim,) = await lease_store.claim(idle.services.db, owner="me", limit=1, lease_s=10.0)
    await lease_store.release(idle.services.db, owner="me", leases=[("acme", query, claim.epoch)])
    await moving.park("acme", dsn=idle.site.dsn)
    entry = Entry([event(Scope(query, "thr", "wrk", None, "solo"), CustomEvent, event_type="x", data={})])
    with pytest.raises(LeaseLost):
        await idle.services.journal.commit(Lease("acme", query, claim.epoch, 1e12), entry)


@pytest.mark.parametrize("is_shared", [True, False])
async def test_bodies_that_another_cell_uses_are_not_deleted(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    for variable in [name for name in os.environ if name.startswith("PLANGATE_")]:
        monkeypatch.delenv(variable)
    sites = [await cluster.empty() for _ in range(2)]
    folders = [tmp_path / "eu1", tmp_path / ("eu1" if is_shared else "eu2")]
    file = tmp_path / "acme.tenant"
    prepare_blobs(str(folders[0]))
    here, there = (
        Settings(database_url=site.dsn, secret_key=f"{n}" * 32, blobs=str(folder), cell=f"eu{n}")
        for n, (site, folder) in enumerate(zip(sites, folders, strict=True), 1)
    )
    served = [
        replace(site, master=derive_key(str(n).encode() * 32, "master"), blobs=str(folder))
        for n, (site, folder) in enumerate(zip(sites, folders, strict=True), 1)
    ]
    await admin.create_tenant(here, "acme", None, None)
    key = await admin.create_key(here, "acme", "ann", ["admin"], None)
    async with world(served[0], key, with_worker=False) as running:
        thread = (await running.operator().do("/threads", {}))["id"]
        path = f"/threads/{thread}/files/a.md"
        good(await running.operator().request("PUT", path, content=b"one"))

    async def remove(*options: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, cli, ["tenants", "remove", "acme", *options])

    await transfers.export(here, "acme", file, PASSPHRASE, with_secrets=True, park=True)
    await transfers.import_file(there, file, PASSPHRASE, with_secrets=True)
    await transfers.redirect(here, "acme", "eu2")
    monkeypatch.setenv("DATABASE_URL", sites[0].dsn)
    monkeypatch.setenv("PLANGATE_SECRET_KEY", "1" * 32)
    monkeypatch.setenv("PLANGATE_BLOBS", str(folders[0]))
    before = {name: count for name, count in (await count_rows(sites[0])).items() if count}
    asked = await remove()
    assert f"the bodies of its files in {folders[0]}." in asked.output
    assert "pass --yes" in str(asked.exception)
    assert {name: count for name, count in (await count_rows(sites[0])).items() if count} == before
    if is_shared:
        refusal = await remove("--yes")
        assert "The cell 'eu2' keeps the bodies" in str(refusal.exception)
        assert {name: count for name, count in (await count_rows(sites[0])).items() if count} == before
        assert (await remove("--yes", "--keep-bodies")).exit_code == 0
    else:
        assert (await remove("--yes")).exit_code == 0
        assert not [path for path in folders[0].rglob("*") if path.is_file()]
    assert sum((await count_rows(sites[0])).values()) == 0
    async with world(served[1], key, with_worker=False) as running:
        assert (await running.operator().get(path)).content == b"one"
    for site in sites:
        await cluster.drop(site)


@dataclass
class SlowQueries:
    """Stands for runs that end when `over` is set, those of acme also when it is set after they were canceled."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    canceled: asyncio.Event = field(default_factory=asyncio.Event)

    async def advance(self, running: ActiveQuery) -> None:
        try:
            await self.over.wait()
        except asyncio.CancelledError:
            if running.lease.tenant == "acme":
                self.canceled.set()
                await self.over.wait()
            raise


async def run_slow_queries(running: World, monkeypatch: pytest.MonkeyPatch) -> SlowQueries:
    """Let a query of each of two tenants run."""
    slow = SlowQueries()
    monkeypatch.setattr(running.services.worker, "_advance", slow.advance)
    for tenant, caller in (("acme", running.api), ("other", running.other)):
        await caller.register(specs.mock(tenant=tenant))
        await caller.submit()
    await eventually(lambda: runs_two(running), "both queries run")
    return slow


async def runs_two(running: World) -> bool:
    return running.services.worker.busy == 2


LEASES = """
SELECT tenant_id, lease_epoch, lease_owner IS NOT NULL AND lease_expires_at > clock_timestamp() AS is_held
  FROM queries WHERE status = 'running' ORDER BY tenant_id
"""


async def read_leases(site: Deployment) -> dict[str, tuple[int, bool]]:
    """Return the epoch of each tenant's query, and whether a process holds it."""
    async with as_superuser(site) as connection:
        return {r["tenant_id"]: (r["lease_epoch"], r["is_held"]) for r in await connection.fetch(LEASES)}


async def test_a_query_that_is_slow_to_stop_costs_no_tenant_its_leases(
    quick: World, site: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "MAX_TRANSACTION_S", -1.0)
    monkeypatch.setattr(worker, "PARK_GRACE_S", 0.1)
    slow = await run_slow_queries(quick, monkeypatch)
    async with world(site, quick.operator_key, limits=QUICK, lease_s=1.0):  # takes over what expires
        parked = asyncio.create_task(moving.park("acme", dsn=site.dsn))
        await slow.canceled.wait()
        for _ in range(15):
            await asyncio.sleep(0.2)
            assert await read_leases(site) == {"acme": (1, True), "other": (1, True)}
        assert not parked.done()
        async with quick.services.db.transaction("acme"):
            pass
        slow.over.set()
        async with asyncio.timeout(10):
            await parked
    with pytest.raises(TenantNotReady):
        async with quick.services.db.transaction("acme"):
            pass
    assert (await read_leases(site))["acme"] == (2, False)


async def test_a_tenant_is_parked_although_its_leases_cannot_be_given_back(
    quick: World, site: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("for the test")

    monkeypatch.setattr(parking, "MAX_TRANSACTION_S", -1.0)
    monkeypatch.setattr(worker, "PARK_GRACE_S", 0.1)
    slow = await run_slow_queries(quick, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(lease_store, "release", fail)
        parked = asyncio.create_task(moving.park("acme", dsn=site.dsn))
        await slow.canceled.wait()
        slow.over.set()
        async with asyncio.timeout(10):
            await parked
    assert (await read_leases(site))["acme"] == (2, False)


async def test_a_process_can_stop_while_a_tenant_is_parked(
    site: Deployment, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "MAX_TRANSACTION_S", -1.0)
    monkeypatch.setattr(worker, "PARK_GRACE_S", 60.0)
    async with world(site, cluster.operator_key, limits=QUICK, lease_s=1.0) as running:
        slow = await run_slow_queries(running, monkeypatch)
        parked = asyncio.create_task(moving.park("acme", dsn=site.dsn))
        await eventually(lambda: is_closing(site), "the process stops the tenant's queries")
        slow.canceled.clear()
        stopped = asyncio.create_task(running.services.worker.drain(grace_s=0))
        await slow.canceled.wait()
        slow.over.set()
        async with asyncio.timeout(5):
            await stopped
            await parked
    assert await read_leases(site) == {"acme": (2, False), "other": (1, False)}


async def is_closing(site: Deployment) -> bool:
    async with as_superuser(site) as connection:
        return bool(await connection.fetchval("SELECT bool_or(closing = '{acme}') FROM processes"))


@dataclass
class Load:
    """Clients that submit queries without a pause, and follow a tenant to another cell."""

    cells: dict[str, Caller]
    accepted: dict[str, str] = field(default_factory=dict)
    """The ids of queries, by idempotency key."""
    moved: int = 0
    refused: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, client: int) -> None:
        cell = "eu1"
        for n in itertools.count():
            if self.stopping.is_set():
                return
            key = f"{client}-{n}"
            while True:
                body = {"prompt": specs.script(("note", {"n": n})), "agent": "noter", "runtime": "load"}
                response = await self.cells[cell].post("/queries", body, headers={"idempotency-key": key})
                if response.status_code == 421:
                    cell, self.moved = response.json()["cell"], self.moved + 1
                elif response.status_code == 503:
                    self.refused += 1
                    await asyncio.sleep(0.2)
                else:
                    self.accepted[key] = good(response)["id"]
                    break
            await asyncio.sleep(0.3)


async def serve_notes(cells: dict[str, Caller], stopping: asyncio.Event) -> None:
    """Answer the calls of the load, and follow the tenant to another cell."""
    cell = "eu1"
    while not stopping.is_set():
        claim = await cells[cell].post("/tool-calls/claim", {"tools": [{"name": "note"}], "max": 10})
        for call in claim.json()["calls"] if claim.is_success else ():
            await cells[cell].result(call, {"done": True})
        if claim.status_code == 421:
            cell = claim.json()["cell"]
        await asyncio.sleep(0.02)


@pytest.mark.long
async def test_a_tenant_moves_under_load(
    cluster: Cluster,
    site: Deployment,
    owner: asyncpg.Connection,
    target: tuple[Deployment, str],
    tmp_path: Path,
) -> None:
    file = tmp_path / "acme.tenant"
    there, operator_key = target
    async with (
        world(site, cluster.operator_key, limits=QUICK, cell="eu1") as here,
        world(there, operator_key, limits=QUICK, cell="eu2") as elsewhere,
    ):
        made = await fill(here)
        note = specs.tool("note", replay="safe")
        noting = specs.scripted(note, agents=[specs.agent("noter", tools=["note"])], name="load")
        await here.api.register(noting)
        key = str((await here.key("admin")).key)
        assert cell_of_key(key) is None or cell_of_key(key) == "eu1"
        load_of = Load({"eu1": with_key(here, key), "eu2": with_key(elsewhere, key)})
        stop_serving = asyncio.Event()
        clients = [asyncio.create_task(load_of.run(n)) for n in range(3)]
        server = asyncio.create_task(serve_notes(load_of.cells, stop_serving))
        await eventually(lambda: enough(load_of, 9), "queries are accepted")
        tenant_cursor = (await load_of.cells["eu1"].read("/events"))["nextCursor"]

        tenant = await here.services.tenancy.get_tenant("acme")
        await moving.park("acme", dsn=site.dsn)
        accepted_before = dict(load_of.accepted)
        await save(site, file)
        parked = await read_rows(site)
        async with world(site, cluster.operator_key, with_worker=False, started=False) as watching:
            # This process shows what the users saw last, as if the tenant was not parked.
            watching.services.tenancy._tenants["acme"] = (math.inf, tenant)
            before = await everything(watching.api)
        assert await read_rows(site) == parked

        new_keys = (await load(there, file, cell="eu2")).new_keys
        await moving.redirect("acme", "eu2", dsn=site.dsn)
        await eventually(
            lambda: enough(load_of, len(accepted_before) + 9), "queries are accepted in the other cell"
        )
        load_of.stopping.set()
        await asyncio.gather(*clients)

        api = load_of.cells["eu2"]
        for id in load_of.accepted.values():
            assert (await api.ended(id))["status"] == "succeeded", id
        stop_serving.set()
        await server
        assert load_of.moved == 3
        assert load_of.refused
        assert len(set(load_of.accepted.values())) == len(load_of.accepted)
        listed = [query["id"] async for query in pages(api, "/queries")]
        assert set(listed) >= set(load_of.accepted.values())
        assert len(listed) == len(load_of.accepted) + len(made_queries(made))

        good(await api.decide(made["approval"], digest=made["digest"]))
        await api.serve("find", {"found": 4})
        await api.serve("pay", {"paid": 2})
        after = await everything(elsewhere.operator("acme"))
        for name in ("open", "waiting"):  # the claim may have lapsed meanwhile
            assert (await api.ended(made[name]))["status"] == "succeeded"
        settled = [q["id"] for q in before["/queries"] if q["endedAt"]]
        assert len(settled) > 5
        for query in settled:
            for path in (f"/queries/{query}", f"/queries/{query}/work", f"events of {query}"):
                assert after[path] == before[path]
        for path in before:
            if path.startswith(("/artifacts/", "/references/", "/runtimes/", "/memory/")):
                assert after[path] == before[path], path
        for query in before["/queries"]:
            old = before[f"events of {query['id']}"]
            assert after[f"events of {query['id']}"][: len(old)] == old

        refused(await load_of.cells["eu1"].get("/queries"), 421, "wrong_cell")
        refused(
            await api.get(f"/queries/{made['ended']}/events", after=made["cursor"]), 409, "history_rewound"
        )
        refused(await api.get("/events", after=tenant_cursor), 409, "history_rewound")
        assert [cell_of_key(new.text) for new in new_keys] == ["eu2"] * len(new_keys)
        assert (await with_key(elsewhere, new_keys[-1].text).read("/whoami"))["principal"] == "ann"
        assert await sent_by(site) == []


def made_queries(made: dict[str, str]) -> list[str]:
    return [made[name] for name in ("ended", "planned", "waiting", "claimed", "open")]


async def enough(load_of: Load, count: int) -> bool:
    return len(load_of.accepted) >= count


async def sent_by(site: Deployment) -> list[Any]:
    """Return the queries of the tenant that a process of this deployment holds."""
    async with as_superuser(site) as connection:
        return list(
            await connection.fetch(
                "SELECT id FROM queries WHERE tenant_id = 'acme' AND lease_owner IS NOT NULL"
            )
        )
