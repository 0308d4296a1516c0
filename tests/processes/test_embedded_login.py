"""Who may log in to the embedded Postgres: no superuser, nobody without a proof, also on data of an earlier version."""

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
from app.base.postgres.migrate import migrate
from tests.processes.test_cli import client
from tests.support import specs
from tests.support.service import serving

pytestmark = pytest.mark.root(required=False)

EARLIER = f"""
ALTER DATABASE plangate OWNER TO {SUPERUSER};
DROP ROLE {OWNER};
DROP ROLE plangate_backup;
"""
OWNED_BY_SUPERUSER = f"""
SELECT count(*) FROM (
    SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relowner = '{SUPERUSER}'::regrole
    UNION ALL
    SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner = '{SUPERUSER}'::regrole
    UNION ALL
    SELECT oid FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typowner = '{SUPERUSER}'::regrole) owned
"""


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


async def make_earlier(postgres: EmbeddedPostgres) -> None:
    """Turn a new cluster into one of the version whose service logged in as the superuser and was trusted."""
    superuser = postgres.dsn(user=SUPERUSER)
    await run(superuser, EARLIER)
    await migrate(superuser)
    (postgres.home / "cluster" / "pg_hba.conf").write_text("local all all trust\n")
    await run(superuser, "SELECT pg_reload_conf()")
    assert await value(superuser, OWNED_BY_SUPERUSER) > 50


def test_the_login_is_no_superuser_and_owns_the_database(at: Path) -> None:
    postgres = use(at)
    try:
        look = (
            "SELECT (rolsuper, rolbypassrls, rolcreaterole, rolreplication)::text || pg_get_userbyid(datdba)"
            " FROM pg_roles, pg_database WHERE rolname = current_user AND datname = current_database()"
        )
        assert asyncio.run(value(postgres.dsn(), look)) == f"(f,f,t,f){OWNER}"
    finally:
        postgres.release()


def test_no_role_is_let_in_without_a_password_or_its_account(at: Path) -> None:
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


def test_data_of_an_earlier_version_is_upgraded_under_its_processes(at: Path) -> None:
    earlier = use(at)
    try:
        asyncio.run(make_earlier(earlier))
        postgres = use(at)
        try:
            assert asyncio.run(value(postgres.dsn(), OWNED_BY_SUPERUSER)) == 0
            hba = "SELECT count(*) FROM pg_hba_file_rules WHERE auth_method = 'trust'"
            assert asyncio.run(value(postgres.dsn(user=SUPERUSER), hba)) == 0
            assert asyncio.run(value(earlier.dsn(user=SUPERUSER), "SELECT key_exists()")) is False
            asyncio.run(migrate(postgres.dsn()))
        finally:
            postgres.release()
    finally:
        earlier.release()


def test_a_service_goes_on_with_the_data_of_an_earlier_version(at: Path) -> None:
    earlier = use(at)
    asyncio.run(make_earlier(earlier))
    earlier.release()
    with serving(at) as service, client(service) as http:
        http.post("/runtimes", json=specs.mock(tenant="local")).raise_for_status()
        query = http.post("/queries", json={"prompt": "hi"}).raise_for_status().json()
        ended = http.get(f"/queries/{query['id']}?waitMs=10000").json()
        assert ended["status"] == "succeeded"
