"""`/readyz` reports whether the database takes reads and writes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import asyncpg

from app.deployment import Deployment
from tests.postgres.telemetry.test_metrics import of, read
from tests.support import specs
from tests.support.client import good, refused
from tests.support.cluster import Cluster
from tests.support.world import World, world

ALTER_DATABASE = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {}', current_database()); END $$"
NEW_CONNECTIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


async def alter(owner: asyncpg.Connection, what: str) -> None:
    """Change a parameter of the database, for every connection but the owner's."""
    await owner.execute(ALTER_DATABASE.format(what))
    await owner.execute(NEW_CONNECTIONS)


async def until(running: World, *, writes: bool) -> None:
    async with asyncio.timeout(20):
        while True:
            response = await running.http.get("/readyz")
            if response.status_code == 200 and response.json()["writes"] is writes:
                return
            await asyncio.sleep(0.1)


async def test_reads_and_writes_are_in_the_answer(plangate: World) -> None:
    found = good(await plangate.http.get("/readyz"))
    assert found == {"status": "ready", "running": 0, "reads": True, "writes": True, "recoveryNeeded": False}
    assert good(await plangate.http.get("/readyz?need=writes")) == found
    assert of(await read(plangate), "database_writable") == 1
    refused(await plangate.http.get("/readyz?need=more"), 422, "invalid")


async def test_a_read_only_database_is_ready_for_reads(plangate: World, owner: asyncpg.Connection) -> None:
    await until(plangate, writes=True)
    await alter(owner, "SET default_transaction_read_only = on")
    try:
        await until(plangate, writes=False)
        refused(await plangate.api.post("/runtimes", specs.mock()), 503, "unavailable")
        good(await plangate.api.get("/runtimes"))
        assert good(await plangate.http.get("/readyz"))["reads"] is True
        problem = refused(await plangate.http.get("/readyz?need=writes"), 503, "unavailable")
        assert (problem["reads"], problem["writes"]) == (True, False)
        assert of(await read(plangate), "database_writable") == 0
    finally:
        await alter(owner, "RESET default_transaction_read_only")
    await until(plangate, writes=True)
    good(await plangate.http.get("/readyz?need=writes"))


async def test_writes_are_checked_at_most_once_a_second(
    cluster: Cluster, site: Deployment, owner: asyncpg.Connection
) -> None:
    async with world(site, cluster.operator_key, started=False) as running:
        count = "SELECT pg_current_xact_id()::text::bigint"
        before, began = await owner.fetchval(count), time.monotonic()
        for _ in range(10):
            await asyncio.gather(*(running.http.get("/readyz?need=writes") for _ in range(10)))
        used = await owner.fetchval(count) - before - 1
        assert 1 <= used <= 2 + time.monotonic() - began, "a transaction that writes has a number"


async def test_readiness_fails_without_a_database(cluster: Cluster, site: Deployment) -> None:
    nowhere = replace(site, dsn="postgresql://plangate@127.0.0.1:1/nowhere")
    async with world(nowhere, cluster.operator_key, started=False) as running:
        problem = refused(await running.http.get("/readyz"), 503, "unavailable")
        assert (problem["reads"], problem["writes"]) == (False, False)
