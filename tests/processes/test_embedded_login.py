"""Logins of the embedded Postgres: no superuser, and none without authentication."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.base.embedded_postgres import OWNER, SUPERUSER, EmbeddedPostgres, start

pytestmark = pytest.mark.root(required=False)


@pytest.fixture
def at() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="plangate-test-", dir="/tmp")).resolve()
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def use(at: Path) -> EmbeddedPostgres:
    return start(at / "data", settings={"fsync": "off"}, state_dir=at / "state")


async def value(dsn: str, statement: str) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def run(dsn: str, statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()


def test_the_login_owns_the_database_but_is_not_a_superuser(at: Path) -> None:
    postgres = use(at)
    try:
        look = (
            "SELECT (rolsuper, rolbypassrls, rolcreaterole, rolreplication)::text || pg_get_userbyid(datdba)"
            " FROM pg_roles, pg_database WHERE rolname = current_user AND datname = current_database()"
        )
        assert asyncio.run(value(postgres.dsn(), look)) == f"(f,f,t,f){OWNER}"
    finally:
        postgres.release()


def test_every_role_needs_a_password_or_its_account(at: Path) -> None:
    postgres = use(at)
    superuser = postgres.dsn(user=SUPERUSER)
    try:
        asyncio.run(run(superuser, "CREATE ROLE limited LOGIN PASSWORD 'of its own'"))
        with pytest.raises(asyncpg.InvalidPasswordError):
            asyncio.run(value(postgres.dsn(user="limited") + "&password=another", "SELECT 1"))
        assert asyncio.run(value(postgres.dsn(user="limited") + "&password=of%20its%20own", "SELECT 1")) == 1
        methods = "SELECT string_agg(DISTINCT auth_method, ' ' ORDER BY auth_method) FROM pg_hba_file_rules"
        assert asyncio.run(value(superuser, methods)) == "peer scram-sha-256"
        # The map lets in the account that runs Postgres and root; this process is one of them.
        (postgres.home / "cluster" / "pg_ident.conf").write_text("plangate nobody_here plangate_owner\n")
        asyncio.run(run(superuser, "SELECT pg_reload_conf()"))
        with pytest.raises(
            asyncpg.InvalidAuthorizationSpecificationError, match="Peer authentication failed"
        ):
            for _ in range(500):  # the postmaster reloads when it comes to it
                asyncio.run(value(postgres.dsn(), "SELECT 1"))
    finally:
        postgres.release()
