"""Upgrades of the schema, and databases that a process rejects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from app.base.postgres import migrate as migrations
from app.base.postgres.migrate import SchemaIsNewer, SchemaIsUnreleased, migrate, schema_is_current
from app.deployment import Deployment
from tests.support import specs
from tests.support.cluster import Cluster, superuser_dsn
from tests.support.next_version import install_next_version
from tests.support.schema import schema_of
from tests.support.world import World


@pytest_asyncio.fixture
async def superuser(site: Deployment) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(superuser_dsn(site))
    yield connection
    await connection.close()


async def test_a_used_database_is_upgraded_while_a_process_of_the_old_version_runs(
    plangate: World, superuser: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_next_version(monkeypatch, tmp_path)
    assert not await schema_is_current(superuser)
    await migrate(plangate.site.migrate_dsn)
    assert await schema_is_current(superuser)
    assert await superuser.fetchval("SELECT count(title) FROM threads") == 0
    assert {r[0] for r in await superuser.fetch("SELECT tenant_ids()")} == {"ACME", "OTHER"}
    owner = "SELECT proowner::regrole::text FROM pg_proc WHERE proname = 'tenant_ids'"
    assert await superuser.fetchval(owner) == "plangate_scan"
    await plangate.api.register(specs.mock())
    query = await plangate.api.run()
    assert query["status"] == "succeeded"
    await migrate(plangate.site.migrate_dsn)
    assert await schema_is_current(superuser)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", SchemaIsNewer),
        ("UPDATE alembic_version SET version_num = '0007'", SchemaIsUnreleased),
        ("UPDATE schema_code SET digest = 'x'", SchemaIsUnreleased),
    ],
)
async def test_a_database_of_another_version_is_rejected(
    site: Deployment, superuser: asyncpg.Connection, change: str, error: type[Exception]
) -> None:
    await superuser.execute(change)
    what_to_do = r"; start that version\." if error is SchemaIsNewer else r"\. Start with a new database: "
    with pytest.raises(error, match=what_to_do):
        await migrate(site.migrate_dsn)


async def test_an_empty_database_gets_the_same_schema_without_alembic(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_dsn: str) -> None:
        raise AssertionError("Alembic is loaded")

    async def never(_connection: object) -> bool:
        return False

    created, migrated = await cluster.empty(), await cluster.empty()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "_load", fail)
            await asyncio.gather(*(migrate(created.migrate_dsn) for _ in range(3)))
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "_is_empty", never)
            await migrate(migrated.migrate_dsn)
        schemas = [await asyncio.to_thread(schema_of, superuser_dsn(s)) for s in (created, migrated)]
        assert schemas[0] == schemas[1]
        assert "CREATE TABLE public.queries" in schemas[0]
        versions = [await version_of(s) for s in (created, migrated)]
        assert versions[0] == versions[1] == (migrations.schema_revisions()[-1], migrations._code_digest())
    finally:
        await cluster.drop(created)
        await cluster.drop(migrated)


async def version_of(site: Deployment) -> tuple[str, bytes]:
    """Return the revision of a database and the digest of its code."""
    connection = await asyncpg.connect(superuser_dsn(site))
    try:
        [row] = await connection.fetch("SELECT version_num, digest FROM alembic_version, schema_code")
        return tuple(row)
    finally:
        await connection.close()


async def test_an_empty_database_gets_all_revisions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_next_version(monkeypatch, tmp_path)
    site = await cluster.empty()
    try:
        await migrate(site.migrate_dsn)
        assert (await version_of(site))[0] == "1002"
    finally:
        await cluster.drop(site)
