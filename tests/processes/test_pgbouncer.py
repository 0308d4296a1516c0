"""A service behind PgBouncer: unsuitable configurations are named at startup, suitable ones work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.api.database_startup import IGNORED_BY_POOLER
from app.base import embedded_postgres
from app.base.embedded_postgres import EmbeddedPostgres
from tests.support import pgbouncer, specs
from tests.support.cluster import FAST
from tests.support.service import ROOT, folder, plain_environment

VERSION = pgbouncer.version()
KEEPS_STATEMENTS = VERSION is not None and VERSION >= (1, 21)
IGNORED = {"ignore_startup_parameters": IGNORED_BY_POOLER}
NO_STATEMENTS = {"max_prepared_statements": 0} if KEEPS_STATEMENTS else {}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(VERSION is None, reason="needs pgbouncer on PATH (apt-get install pgbouncer)"),
]


@pytest.fixture(scope="module")
def at() -> Iterator[Path]:
    with folder() as made:
        yield made


@pytest.fixture(scope="module")
def postgres(at: Path) -> Iterator[EmbeddedPostgres]:
    started = embedded_postgres.start(at / "data", settings=FAST, state_dir=at / "state")
    yield started
    started.release()


def environment(at: Path, **settings: str) -> dict[str, str]:
    more = {"PLANGATE_SECRET_KEY": "s" * 40, "PLANGATE_BLOBS": str(at / "blobs")}
    return {**plain_environment(), **more, **settings}


def run(at: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        cwd=ROOT,
        env=environment(at, **settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def key(at: Path, postgres: EmbeddedPostgres) -> str:
    """A key of a tenant, made without a pooler."""
    create = ("keys", "create", "acme", "--principal", "ann", "--scope", "admin")
    assert run(at, "tenants", "create", "acme", DATABASE_URL=postgres.dsn()).returncode == 0
    created = run(at, *create, DATABASE_URL=postgres.dsn())
    assert created.returncode == 0, created.stderr
    return created.stdout.strip().splitlines()[-1]


def direct(postgres: EmbeddedPostgres) -> dict[str, str]:
    """The addresses that must not lead through a pooler."""
    return {"PLANGATE_MIGRATE_URL": postgres.dsn(), "PLANGATE_LISTEN_URL": postgres.dsn()}


def test_missing_startup_parameters_are_named(at: Path, postgres: EmbeddedPostgres) -> None:
    with pgbouncer.pgbouncer(at, postgres, pool_mode="transaction") as url:
        ended = run(at, "serve", "--port", "0", DATABASE_URL=url, **direct(postgres))
    assert ended.returncode == 1
    assert ended.stderr == (
        "plangate: the PgBouncer of DATABASE_URL rejects the startup parameter: idle_in_transaction_session_timeout. "
        "Add to its configuration: ignore_startup_parameters = idle_in_transaction_session_timeout, lock_timeout, "
        "tcp_keepalives_idle, jit, random_page_cost\n"
    )


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("tenants", "create", "acme")])
def test_lost_prepared_statements_are_named(
    at: Path, postgres: EmbeddedPostgres, command: tuple[str, ...]
) -> None:
    settings = {"pool_mode": "transaction", **IGNORED, **NO_STATEMENTS}
    with pgbouncer.pgbouncer(at, postgres, **settings) as url:
        ended = run(at, *command, DATABASE_URL=url, **direct(postgres))
    assert ended.returncode == 1
    assert ended.stderr == (
        "plangate: DATABASE_URL goes through a pooler in transaction mode that loses prepared statements. PgBouncer "
        "must be 1.21 or newer with max_prepared_statements above 0, or use pool_mode = session.\n"
    )


@pytest.mark.skipif(not KEEPS_STATEMENTS, reason="needs PgBouncer 1.21 or newer on PATH")
def test_settings_that_need_a_direct_connection_are_named(at: Path, postgres: EmbeddedPostgres) -> None:
    settings = {"pool_mode": "transaction", "max_prepared_statements": 200, **IGNORED}
    with pgbouncer.pgbouncer(at, postgres, **settings) as url:
        ended = run(at, "serve", "--port", "0", DATABASE_URL=url)
        assert ended.returncode == 1
        assert ended.stderr.endswith(
            "Set PLANGATE_MIGRATE_URL and PLANGATE_LISTEN_URL to an address of Postgres itself.\n"
        )
        ended = run(at, "serve", "--port", "0", DATABASE_URL=url, PLANGATE_MIGRATE_URL=postgres.dsn())
        assert ended.stderr.endswith("Set PLANGATE_LISTEN_URL to an address of Postgres itself.\n")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"pool_mode": "session"}, id="session"),
        pytest.param(
            {"pool_mode": "transaction", "max_prepared_statements": 200},
            id="transaction",
            marks=pytest.mark.skipif(not KEEPS_STATEMENTS, reason="needs PgBouncer 1.21 or newer on PATH"),
        ),
    ],
)
def test_a_query_runs_behind_a_suitable_pooler(
    at: Path, postgres: EmbeddedPostgres, key: str, settings: dict[str, object]
) -> None:
    with pgbouncer.pgbouncer(at, postgres, **settings, **IGNORED) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "serve", "--port", "0"],
            cwd=ROOT,
            env=environment(at, DATABASE_URL=url, **direct(postgres)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        listens = process.stdout.readline().strip()
        try:
            assert listens, process.communicate(timeout=30)[1]
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=listens.rsplit(" ", 1)[1], headers=headers, timeout=30) as client:
                runtime = client.post("/runtimes", json=specs.mock("Hello."))
                assert runtime.status_code in (200, 201), runtime.text
                asked = {"runtimeId": runtime.json()["id"], "prompt": "hi"}
                for _ in range(5):
                    query = client.post("/queries", json=asked).json()["id"]
                    found = client.get(f"/queries/{query}?waitMs=20000").json()
                    assert found["status"] == "succeeded", found
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=30)
    assert "prepared" not in errors
    assert "Traceback" not in errors
