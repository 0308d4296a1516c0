"""The primary of Postgres is lost under load, and its standby is promoted."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import httpx
import pytest

from app.assembly import assemble
from app.base.postgres.migrate import migrate
from app.deployment import find_deployment
from app.settings import Settings
from app.tenancy.installation import check_master_key
from app.tenancy.models import Caller
from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, eventually
from tests.processes.acceptance.stubborn import check, insist, plan_and_approve, settle
from tests.processes.acceptance.verdict import arrivals, judge
from tests.support.forked import run
from tests.support.replication import ReplicatedCluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

TENANT = specs.TENANT["resourceId"]
MOVES_AGAIN_S = 15.0
SECRET = "a secret key of forty characters, no less"


class ReplicatedHouse(House):
    """A service with a primary and a standby."""

    def __init__(self, **env: object) -> None:
        self.cluster = ReplicatedCluster()
        super().__init__(lease_s=4, DATABASE_URL=self.cluster.url, secret_key=SECRET, **env)
        self.env["PLANGATE_BLOBS"] = str(self.folder / "blobs")
        self.data_dir.mkdir()
        (self.data_dir / "local-key").write_text(asyncio.run(self._prepare()))

    async def _prepare(self) -> str:
        """Make the tenant and its key, as the operator commands do."""
        values = {"DATABASE_URL": self.cluster.url, "secret_key": SECRET, "data_dir": self.data_dir}
        settings = Settings.model_validate(values)
        site = find_deployment(settings)
        await migrate(site.migrate_dsn)
        await check_master_key(site.migrate_dsn, site.master)
        services = assemble(settings, site, with_worker=False)
        operator = Caller(TENANT, "operator", frozenset({"admin"}), "cli")
        async with services.db.transaction(TENANT) as tx:
            await services.tenancy.create_tenant(tx, TENANT, {})
            key, _ = await services.tenancy.create_key(tx, operator, "tests", ["admin"], None, None)
        await services.db.aclose()
        return key

    async def connect(self) -> asyncpg.Connection:
        server = self.cluster.primary if self.cluster.primary.process else self.cluster.standby
        return await asyncpg.connect(server.dsn)

    def close(self) -> None:
        super().close()
        self.cluster.close()


@pytest.fixture
def house(request: pytest.FixtureRequest) -> Iterator[ReplicatedHouse]:
    """`indirect` parameters say what the operator declares of the standby."""
    made = ReplicatedHouse(synchronous_standby=getattr(request, "param", True))
    try:
        yield made
    finally:
        made.close()


def test_nothing_is_lost_with_a_synchronous_standby(house: ReplicatedHouse) -> None:
    cluster = house.cluster
    cluster.set_synchronous()
    house.serve()
    ledger = house.ledger()
    house.user(ledger, "actions", "actions.notify", "actions.call", "lookup", lease_ms=60_000)
    runtimes = [house.register(specs.notices(graph=graph)) for graph in (False, True)]
    with ThreadPoolExecutor(12) as clients:
        accepted = [clients.submit(plan_and_approve, house, runtimes[n % 2]) for n in range(12)]
        eventually(lambda: ledger.lines("arrivals"), "the actions arrive")
        cursor = house.get("/events")["nextCursor"]
        cluster.primary.kill()
        time.sleep(1)
        promoted = cluster.promote()
        readers = [one.result() for one in accepted]
    for reader in readers:
        check(house, reader, ledger)
    moved = [next((f.at for f in r.frames if f.at > promoted), None) for r in readers]
    assert max(at for at in moved if at is not None) - promoted < MOVES_AGAIN_S
    assert any("clean" in r.ends or "cut" in r.ends for r in readers), "the streams resumed"
    assert house.get(f"/events?after={cursor}&types=finish")["events"], "a cursor from before is still valid"


@pytest.mark.parametrize("house", [False], indirect=True)
def test_work_stops_after_a_promotion_that_may_have_lost_commits(house: ReplicatedHouse) -> None:
    cluster, ledger = house.cluster, house.ledger()
    service = house.serve()
    ledger.hold()
    house.user(ledger, "actions.notify", lease_ms=60_000)
    runtime = house.register(specs.notices(graph=True))
    reader = house.start(runtime, specs.plan_and_execute(2))
    house.approve(reader)
    eventually(lambda: len(ledger.lines("arrivals")) == 1, "the first action arrives")
    calls = "SELECT c.status FROM outgoing_calls c JOIN queries q ON q.id = c.query_id WHERE q.status = 'waiting' ORDER BY 1"
    eventually(
        lambda: [row["status"] for row in cluster.standby.sql(calls)] == ["claimed", "open"],
        "the standby has the calls",
    )
    cluster.standby.kill()
    house.user(ledger, "actions.call", lease_ms=60_000)
    eventually(lambda: len(ledger.lines("arrivals")) == 2, "the second action arrives")
    lost = house.submit(runtime, specs.plan_and_execute(2))
    eventually(lambda: house.get(f"/queries/{lost}")["status"] == "waiting", "a query that will be lost")
    cursor = house.get("/events")["nextCursor"]
    cluster.primary.kill()
    cluster.standby.start()
    cluster.promote()

    eventually(
        lambda: "database.recovery_needed" in service.log.read_text("utf-8"), "the log says what to do"
    )
    eventually(lambda: house.http.get(f"/queries/{lost}").status_code == 404, "the newest commits are lost")
    rewound = house.http.get("/events", params={"after": cursor})
    assert (rewound.status_code, rewound.json()["type"].rpartition("/")[2]) == (409, "history_rewound")
    waiting = insist(house, "/queries", {"runtimeId": runtime, "prompt": json.dumps({"script": []})}, "k")[
        "id"
    ]
    ledger.let_go()
    time.sleep(3)
    assert house.get(f"/queries/{waiting}")["status"] == "queued"
    assert set(arrivals(ledger, reader.query_id).values()) == {1}, "no action is dispatched again"
    assert house.http.get("/readyz").json()["recoveryNeeded"] is True

    recovered = run("app", "recover", "--data-dir", str(house.data_dir), env={**os.environ, **house.env})
    assert recovered.returncode == 0, recovered.stderr
    assert "Unknown outcomes: 1 actions and 0 tool calls in 1 queries." in recovered.stdout
    assert settle(house, reader) == 1, "the result of the other one has arrived"
    judge(house, reader, ledger)
    assert set(arrivals(ledger, reader.query_id).values()) == {1}
    eventually(lambda: house.get(f"/queries/{waiting}")["endedAt"], "new queries run again")
    again = run("app", "recover", "--data-dir", str(house.data_dir), env={**os.environ, **house.env})
    assert "No promotion has stopped the work" in again.stdout
    eventually(lambda: house.http.get("/readyz").json()["recoveryNeeded"] is False, "all is well")


def test_a_write_is_acknowledged_only_once_the_standby_has_it(house: ReplicatedHouse) -> None:
    cluster = house.cluster
    cluster.set_synchronous()
    house.serve("--no-worker")
    key = {"Idempotency-Key": "one"}
    before = house.http.post("/threads", json={"threadKey": "before"}, headers={"Idempotency-Key": "before"})
    cluster.standby.kill()

    def post() -> httpx.Response:
        return house.http.post("/threads", json={"threadKey": "one"}, headers=key)

    with ThreadPoolExecutor(1) as clients:
        first = clients.submit(post)
        waiting = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        stored: list[Any] = []
        while not stored:
            cluster.primary.sql(waiting)
            stored = cluster.primary.sql("SELECT id FROM threads WHERE key = 'one'")
            assert not first.done()
        assert first.result().status_code == 503, "the row is there, and the standby does not have it"
    assert post().status_code == 503, "a retry is not acknowledged either"
    repeated = house.http.post(
        "/threads", json={"threadKey": "before"}, headers={"Idempotency-Key": "before"}
    )
    assert repeated.status_code == 503, "nothing tells this one from the other"
    cluster.standby.start()
    eventually(lambda: post().status_code == 201, "it is acknowledged")
    assert post().json()["id"] == stored[0]["id"]
    assert [row["id"] for row in cluster.standby.sql("SELECT id FROM threads WHERE key = 'one'")] == [
        stored[0]["id"]
    ]
    assert before.json()["id"] in [row["id"] for row in cluster.standby.sql("SELECT id FROM threads")]
