"""A database of the version before: what is in it goes on, and so do that version's processes while they are replaced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from app.assembly import Site
from app.base.postgres.database import Database
from app.base.postgres.migrate import SchemaIsNewer, migrate, schema_is_current
from app.journal import store as journal_store
from app.journal.models import Entry, Lease, Scope, Work, event
from tests.support import specs
from tests.support.client import eventually
from tests.support.cluster import Cluster, superuser_dsn
from tests.support.world import world

PROVIDER = 15 + journal_store.WORK_COLUMNS.index("provider")  # its place among the arguments of a commit


class Before:
    """Commits batches as the version before the providers of model calls does."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def call(self, sql: str, *args: Any) -> list[Any]:
        assert sql == journal_store.COMMIT
        kept = [*args[:PROVIDER], *args[PROVIDER + 1 :]]
        numbers = ", ".join(f"${n}" for n in range(1, len(kept) + 1))
        return await self._db.call(f"SELECT * FROM journal_commit({numbers})", *kept)


@pytest_asyncio.fixture
async def before(cluster: Cluster) -> AsyncIterator[Site]:
    """A database with the schema of the version before, the tenants and the operator's key."""
    site = await cluster.empty()
    await migrate(site.migrate_dsn, "0001")
    await cluster.populate(site)
    yield site
    await cluster.drop(site)


async def test_a_query_of_the_version_before_goes_on_in_this_one(cluster: Cluster, before: Site) -> None:
    async with world(before, cluster.operator_key, with_worker=False, started=False) as idle:
        idle.services.journal.start()
        await idle.api.register(specs.mock())
        query_id = (await idle.api.submit())["id"]
        (claim,) = await idle.services.db.call("SELECT * FROM claim_queries('me', 10, 100.0)")
        lease = Lease(claim["tenant_id"], query_id, claim["epoch"], 1e12)
        journal = idle.services.journal
        scope = Scope(query_id, "thr", "wrk_a", None, "solo")
        old, new = Before(idle.services.db), idle.services.db

        def step(n: int) -> Entry:
            work = Work("wrk_a", None, "model_call", "mock", "solo", "running", provider="mock", model="m")
            return Entry([event(scope, "custom", eventType="n", data={"n": n})], work=[work])

        journal._db = old  # type: ignore[assignment]
        await journal.commit(lease, step(0))
        await migrate(before.migrate_dsn)
        await journal.commit(lease, step(1))
        journal._db = new
        await journal.commit(lease, step(2))
        found = await idle.api.events(query_id, "custom")
        assert [e["data"]["n"] for e in found] == [0, 1, 2]
        assert await idle.value("SELECT provider FROM work_records WHERE id = 'wrk_a'") == "mock"


@pytest.mark.parametrize("first", ["threads", "queries"])
async def test_who_is_at_work_is_waited_for_and_waits_for_nobody(before: Site, first: str) -> None:
    """Transactions take a thread before its queries, and records of work last."""
    at_work, watcher = (
        await asyncpg.connect(superuser_dsn(before)),
        await asyncpg.connect(superuser_dsn(before)),
    )
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    try:
        async with at_work.transaction():
            await at_work.execute(f"SELECT FROM {first} FOR NO KEY UPDATE")
            migrating = asyncio.create_task(migrate(before.migrate_dsn))
            await eventually(lambda: watcher.fetchval(waits), "it waits")
            for then in ("queries", "approvals", "documents", "work_records", "reference_uses", "tenants"):
                await at_work.execute(f"SELECT FROM {then} FOR NO KEY UPDATE")
        await migrating
        assert await schema_is_current(watcher)
    finally:
        await at_work.close()
        await watcher.close()


async def test_the_newest_schema_is_known_for_what_it_is(before: Site) -> None:
    raw = await asyncpg.connect(before.dsn)
    try:
        assert not await schema_is_current(raw)
        await migrate(before.migrate_dsn)
        assert await schema_is_current(raw)
        await migrate(before.migrate_dsn)
        assert await schema_is_current(raw)
    finally:
        await raw.close()


async def test_a_process_older_than_the_schema_says_so_in_a_line(before: Site) -> None:
    await migrate(before.migrate_dsn)
    connection = await asyncpg.connect(before.migrate_dsn)
    try:
        await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    finally:
        await connection.close()
    with pytest.raises(SchemaIsNewer, match=r"newer version of Plangate; start that version"):
        await migrate(before.migrate_dsn)


async def test_tenants_with_limits_get_the_limits_of_streams(cluster: Cluster) -> None:
    site = await cluster.empty()
    await migrate(site.migrate_dsn, "0006")
    watcher = await asyncpg.connect(superuser_dsn(site))
    try:
        for tenant, limits in (("default", '{"bytes": 5}'), ("own", '{"openStreams": 7}'), ("none", "{}")):
            await watcher.execute("SELECT create_tenant($1, '', $2, '{}')", tenant, limits)
        await migrate(site.migrate_dsn)
        found = await watcher.fetch("SELECT tenant_id, limits::text FROM tenants")
        assert {tenant: json.loads(limits) for tenant, limits in found} == {
            "default": {"bytes": 5, "openStreams": 200, "openStreamsPerKey": 200},
            "own": {"openStreams": 7, "openStreamsPerKey": 200},
            "none": {},
        }
        forced = "SELECT relforcerowsecurity FROM pg_class WHERE relname = 'tenants'"
        assert await watcher.fetchval(forced)
    finally:
        await watcher.close()
        await cluster.drop(site)
