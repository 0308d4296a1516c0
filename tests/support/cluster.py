"""One Postgres per session, a migrated template in it, and a copy for each test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from app.assembly import assemble
from app.base import embedded_postgres
from app.base.ids import new_id
from app.base.keys import new_key
from app.base.postgres.migrate import migrate
from app.deployment import Deployment, prepare_blobs
from app.settings import Settings

MASTER = b"a master key of thirty-two bytes"
TENANTS = ("acme", "other")
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "max_connections": "200",
}


def roomy_memory() -> str | None:
    """Where files live in memory, if there is such a place with room: copies of the template then cost little,
    whatever else the disk is busy with."""
    shared = Path("/dev/shm")
    free = shutil.disk_usage(shared).free if os.access(shared, os.W_OK) else 0
    return str(shared) if free > 2 * 1024**3 else None


def superuser_dsn(site: Deployment) -> str:
    """Return a login for the database that sees and changes everything; the service's own is no superuser."""
    return site.dsn.replace(f"://{embedded_postgres.OWNER}@", f"://{embedded_postgres.SUPERUSER}@")


def _database(site: Deployment) -> str:
    return site.dsn.split("@/")[1].split("?")[0]


@asynccontextmanager
async def as_superuser(site: Deployment) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection to the database of a site that sees and changes everything."""
    connection = await asyncpg.connect(superuser_dsn(site))
    try:
        yield connection
    finally:
        await connection.close()


class Cluster:
    """The server of a test session. `operator_key` works in every database that is made from the template."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="plangate-test-", dir=roomy_memory() or "/tmp")).resolve()
        self.folder.chmod(0o711)
        self.postgres = embedded_postgres.start(
            self.folder / "data", settings=FAST, state_dir=self.folder / "state"
        )
        self.operator_key, self._operator_hash = new_key()
        self._numbers = itertools.count(1)
        self._admin: asyncpg.Connection | None = None

    def site(self, database: str) -> Deployment:
        dsn, blobs = self.postgres.dsn(database), str(self.folder / "blobs" / database)
        prepare_blobs(blobs)
        return Deployment(dsn, dsn, dsn, MASTER, blobs)

    async def prepare(self) -> None:
        """Makes the template: the schema, the operator's key, two tenants without limits."""
        self._admin = await asyncpg.connect(self.postgres.dsn(user=embedded_postgres.SUPERUSER))
        await self._admin.execute(f"CREATE DATABASE template_plangate OWNER {embedded_postgres.OWNER}")
        site = self.site("template_plangate")
        await migrate(site.migrate_dsn)
        await self._populate(site)

    async def _populate(self, site: Deployment) -> None:
        """The operator's key and the tenants of the tests."""
        owner = await asyncpg.connect(site.dsn)
        await owner.execute(
            "SELECT create_operator_key($1, $2, $3)", new_id("key_"), self._operator_hash, "tests"
        )
        await owner.close()
        services = assemble(Settings(), site)
        for tenant in TENANTS:
            async with services.db.transaction(tenant) as tx:
                await services.tenancy.create_tenant(tx, tenant, {})
        await services.db.aclose()

    async def create(self, original: Deployment | None = None) -> Deployment:
        """A new database from the template, or a copy of another site that no process uses."""
        assert self._admin is not None
        name, template = self._name(), _database(original) if original else "template_plangate"
        await self._admin.execute(
            f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy OWNER {embedded_postgres.OWNER}"
        )
        made = self.site(name)
        if original:
            shutil.copytree(original.blobs, made.blobs, dirs_exist_ok=True)
        return made

    async def empty(self) -> Deployment:
        """A new database with nothing in it."""
        assert self._admin is not None
        name = self._name()
        await self._admin.execute(
            f"CREATE DATABASE {name} STRATEGY file_copy OWNER {embedded_postgres.OWNER}"
        )
        return self.site(name)

    def _name(self) -> str:
        return f"test_{next(self._numbers)}"

    async def drop(self, site: Deployment) -> None:
        assert self._admin is not None
        await self._admin.execute(f"DROP DATABASE {_database(site)} WITH (FORCE)")

    async def aclose(self) -> None:
        if self._admin is not None:
            await self._admin.close()

    def remove(self) -> None:
        self.postgres.release()
        shutil.rmtree(self.folder, ignore_errors=True)
