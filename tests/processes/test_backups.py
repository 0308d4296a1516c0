"""`plangate backup` of a running service, and `plangate restore` into a new data directory."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.base import embedded_postgres
from app.base.postgres.migrate import migrate
from tests.processes.test_cli import client
from tests.support import specs
from tests.support.client import eventually
from tests.support.service import ROOT, Service, folder, plain_environment, serving

PATIENCE_S = 60.0
# The limit holds for pg_dump, too, which inherits it.
LIMITED = """
import resource, runpy, sys
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
runpy.run_module("app", run_name="__main__")
"""


def command(*words: object, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-m", "app"] if limit is None else ["-c", LIMITED, str(limit)]
    return subprocess.run(
        [sys.executable, *start, *map(str, words)],
        cwd=ROOT,
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@dataclass
class Running:
    """A service with a query, a file of a megabyte and an artifact."""

    at: Path
    service: Service
    query: str
    cursor: str
    tenant_cursor: str
    artifact: str
    body: bytes


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    body = os.urandom(1_000_000)
    with folder() as at, serving(at) as service, client(service) as http:
        http.headers["plangate-tenant"] = "local"

        def do(method: str, path: str, **parts: Any) -> Any:
            return http.request(method, path, **parts).raise_for_status().json()

        do("POST", "/runtimes", json=specs.mock(tenant="local"))
        query = do("POST", "/queries", json={"prompt": "hi"})["id"]
        assert do("GET", f"/queries/{query}?waitMs=20000")["status"] == "succeeded"
        cursor = do("GET", f"/queries/{query}/events")["nextCursor"]
        home = do("POST", "/threads", json={"threadKey": "t"})["id"]
        do("PUT", f"/threads/{home}/files/a.bin", content=body)
        named = {"threadId": home, "channel": "design", "path": "a.bin"}
        artifact = do("POST", "/artifacts", json=named)["id"]
        yield Running(at, service, query, cursor, do("GET", "/events")["nextCursor"], artifact, body)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_running_service_is_backed_up_and_restored_elsewhere(running: Running) -> None:
    at, data, new = running.at, running.at / "data", running.at / "new"
    saved = command("backup", at / "monday", "--data-dir", data)
    assert (saved.returncode, saved.stderr) == (0, "")
    first, second = saved.stdout.splitlines()
    assert first.startswith("Saved the database (") and " and 1 bodies of files (1.0 MB) to " in first
    assert f"Not in the backup: the secret key ({data / 'secret-key'})" in second
    assert not (at / "monday" / "secret-key").exists()
    assert (data / "secret-key").read_bytes() not in (at / "monday" / "manifest.json").read_bytes()

    refused = command("restore", at / "monday", "--data-dir", new)
    assert refused.returncode == 1
    assert refused.stderr.startswith("plangate: The secret key of the backup is needed: put its file into ")
    assert not new.exists(), "nothing is created before everything is there"
    new.mkdir(mode=0o711)
    (new / "secret-key").write_text("another secret key of enough characters\n")
    assert (
        "is not the one that this backup was sealed with"
        in command("restore", at / "monday", "--data-dir", new).stderr
    )
    assert os.listdir(new) == ["secret-key"]

    shutil.copy(data / "secret-key", new / "secret-key")
    restored = command("restore", at / "monday", "--data-dir", new)
    assert (restored.returncode, restored.stderr) == (0, ""), restored.stderr
    assert "1 bodies of files. Start the service." in restored.stdout
    again = command("restore", at / "monday", "--data-dir", new)
    assert "is not empty" in again.stderr
    assert command("verify", "--data-dir", new).stdout.startswith("Verified 1 chain: every record")

    (at / "2").mkdir(mode=0o711)
    new.rename(at / "2" / "data")
    with serving(at / "2") as service, client(service) as http:
        http.headers["plangate-tenant"] = "local"
        assert http.get(f"/artifacts/{running.artifact}/content").content == running.body
        assert http.get(f"/queries/{running.query}/events?after={running.cursor}").json()["events"] == []
        stale = http.get(f"/events?after={running.tenant_cursor}")
        assert (stale.status_code, stale.json()["type"].rpartition("/")[2]) == (409, "history_rewound")
        started = http.post("/queries", json={"prompt": "hi"}).raise_for_status().json()
        assert http.get(f"/queries/{started['id']}?waitMs=20000").json()["status"] == "succeeded"


@pytest.mark.long
@pytest.mark.parametrize("limit", [50_000, 500_000], ids=["the dump", "a body"])
def test_a_backup_that_does_not_fit_leaves_nothing(running: Running, limit: int) -> None:
    places = running.at / f"small-{limit}"
    places.mkdir()
    failed = command("backup", places / "monday", "--data-dir", running.at / "data", limit=limit)
    assert failed.returncode == 1
    assert failed.stderr.startswith("plangate: ") and "Traceback" not in failed.stderr
    assert os.listdir(places) == []


@pytest.mark.root
@pytest.mark.parametrize("size", ["64k", "900k"], ids=["the dump", "a body"])
def test_a_full_disk_is_named_and_nothing_is_left(running: Running, size: str) -> None:
    small = running.at / f"disk-{size}"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", small], check=False)
    if mounted.returncode != 0:
        pytest.skip("this system lets nobody mount a file system")
    try:
        failed = command("backup", small / "monday", "--data-dir", running.at / "data")
        assert failed.returncode == 1
        assert (
            "No space left on device" in failed.stderr
            or f"the disk of {small}/monday is full" in failed.stderr
        )
        assert os.listdir(small) == []
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.long
def test_a_killed_backup_leaves_nothing_under_its_name() -> None:
    with folder() as at:
        postgres = embedded_postgres.start(at / "data")
        try:
            asyncio.run(migrate(postgres.dsn()))
            (at / "data" / "blobs").mkdir()
            asyncio.run(kill_a_backup(at, postgres.dsn(user=embedded_postgres.SUPERUSER)))
            assert not (at / "monday").exists()
            assert command("backup", at / "monday", "--data-dir", at / "data").returncode == 0
            assert (at / "monday" / "manifest.json").exists()
            assert not (at / "monday.partial").exists()
        finally:
            postgres.release()


async def kill_a_backup(at: Path, dsn: str) -> None:
    """Kill a backup while its pg_dump waits for a table; give the table back when another backup was refused."""
    words = ("backup", str(at / "monday"), "--data-dir", str(at / "data"))
    dumps = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_dump'"
    holder = await asyncpg.connect(dsn)
    looker = await asyncpg.connect(dsn)
    try:
        async with holder.transaction():
            await holder.execute("LOCK TABLE tenants IN ACCESS EXCLUSIVE MODE")
            backup = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "app", *words, cwd=ROOT, env=plain_environment()
            )
            waits = f"SELECT ({dumps} AND wait_event_type = 'Lock') > 0"
            await eventually(lambda: looker.fetchval(waits), "pg_dump waits", PATIENCE_S)
            backup.kill()
            await backup.wait()
            assert not (at / "monday").exists()
            refused = await asyncio.to_thread(command, *words)
            assert "Another backup is being written to" in refused.stderr
        await eventually(lambda: looker.fetchval(f"SELECT ({dumps}) = 0"), "pg_dump ends", PATIENCE_S)
    finally:
        await holder.close()
        await looker.close()
