"""A backup is restored completely into an empty database, or not at all."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.artifacts.verify import problems
from app.backup.archive import Manifest
from app.backup.errors import BackupError
from app.backup.restore import check_backup, check_key, restore
from app.backup.save import save
from app.base import embedded_postgres
from app.base.postgres.migrate import migrate, schema_is_current
from app.commands import backups
from app.deployment import Deployment, open_blobs
from app.engine import lease_store as queue_store
from app.settings import Settings
from app.tenancy.installation import check_master_key
from tests.postgres.artifacts.test_artifacts import publish, put, thread
from tests.support import specs
from tests.support.client import good, refused
from tests.support.cluster import Cluster, as_superuser, superuser_dsn
from tests.support.next_version import install_next_version
from tests.support.schema import schema_of
from tests.support.world import World, world


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "backup"


@pytest.fixture
async def blank(cluster: Cluster) -> AsyncIterator[Deployment]:
    """An empty database, with a place for bodies of its own."""
    made = await cluster.empty()
    yield made
    await cluster.drop(made)


def backup_dsn(site: Deployment) -> str:
    return site.dsn.replace(f"//{embedded_postgres.OWNER}@", f"//{embedded_postgres.BACKUP}@")


async def save_site(site: Deployment, to: Path) -> Manifest:
    return await save(backup_dsn(site), site.blobs, to, "0.1.0")


async def restore_site(folder: Path, site: Deployment) -> int:
    return await restore(folder, check_backup(folder), site.migrate_dsn, open_blobs(site.blobs))


async def fill(running: World, body: bytes = b"the body") -> dict[str, str]:
    """A query with events, a file and an artifact. Returns ids, and a cursor."""
    api = running.api
    await api.register(specs.mock())
    query = await api.run()
    events = await api.read(f"/queries/{query['id']}/events")
    home = await thread(api)
    await put(api, home, "a.md", body)
    artifact = (await publish(api, home, "a.md"))["id"]
    return {"query": query["id"], "cursor": events["nextCursor"], "thread": home, "artifact": artifact}


def bodies_in(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*/*/*") if path.is_file()]


async def rows(site: Deployment) -> dict[str, int]:
    async with as_superuser(site) as connection:
        tables = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        return {
            t["relname"]: await connection.fetchval(f'SELECT count(*) FROM "{t["relname"]}"') for t in tables
        }


# --- what comes back


async def test_a_restore_into_the_same_database_rejects_old_cursors(
    cluster: Cluster, site: Deployment, to: Path
) -> None:
    async with world(site, cluster.operator_key) as running:
        made = await fill(running)
        before = await running.api.read(f"/queries/{made['query']}/events")
        await running.api.register(specs.scripted(specs.tool("add"), name="adds"))
        script = specs.script(("add", {"n": 1}))
        waits = (await running.api.submit(script, runtime="adds"))["id"]
        await running.api.until(waits, "waiting")
        path, tenant = f"/queries/{waits}/events", (await running.api.read("/events"))["nextCursor"]
        kept = (await running.api.read(path))["nextCursor"]
    await save_site(site, to)
    lost: list[str] = []
    for _ in range(3):  # the same backup again is another history, too
        async with as_superuser(site) as connection:
            await connection.execute(
                f"DROP SCHEMA public CASCADE; CREATE SCHEMA public AUTHORIZATION {embedded_postgres.OWNER}"
            )
        await restore_site(to, site)
        async with world(site, cluster.operator_key) as running:
            for cursor in lost:  # the events that they name are missing
                refused(await running.api.get(path, after=cursor), 409, "history_rewound")
            refused(await running.api.get("/events", after=tenant), 409, "history_rewound")
            assert await running.api.read(f"/queries/{made['query']}/events") == before
            assert (await running.api.read(path, after=kept))["events"] == []
            await running.api.serve("add", 1)
            assert (await running.api.ended(waits))["status"] == "succeeded", "it still works"
            for cursor in lost:  # other events have their numbers
                refused(await running.api.get(path, after=cursor), 409, "history_rewound")
            lost.append((await running.api.read(path))["nextCursor"])
            tenant = (await running.api.read("/events"))["nextCursor"]


async def test_a_restored_database_is_the_saved_one(
    cluster: Cluster, site: Deployment, blank: Deployment, to: Path
) -> None:
    async with world(site, cluster.operator_key) as running:
        made = await fill(running)
        await running.api.do("/session", {"key": running.operator_key, "tenant": "acme"})
        await running.api.do("/session/tickets")
        manifest = await save_site(site, to)  # the service runs meanwhile
    assert manifest.bodies.count == 1
    assert (await rows(site))["sessions"] == 2
    assert await restore_site(to, blank) == 1
    saved, restored = [await asyncio.to_thread(schema_of, superuser_dsn(s)) for s in (site, blank)]
    assert restored == saved
    assert await rows(blank) == {
        **await rows(site),
        "generation": 1,
        "replication": 0,
        "sessions": 0,
    }  # everybody signs in again
    async with world(blank, cluster.operator_key) as running:
        assert good_text(await running.api.get(f"/artifacts/{made['artifact']}/content")) == "the body"
        services = running.services
        assert [p async for p in problems(services.db, services.chainer, {})] == []
        good(await running.api.get(f"/queries/{made['query']}/events", after=made["cursor"]))


def good_text(response: Any) -> str:
    assert response.is_success, response.text
    return str(response.text)


async def test_every_body_is_there_though_files_are_written_meanwhile(
    cluster: Cluster, site: Deployment, blank: Deployment, to: Path
) -> None:
    async with world(site, cluster.operator_key) as running:
        made = await fill(running)
        over = asyncio.Event()

        async def write(n: int) -> None:
            number = 0
            while not over.is_set():
                number += 1
                await put(running.api, made["thread"], f"{n}/{number}.md", f"{n} {number}".encode())

        writers = [asyncio.create_task(write(n)) for n in range(3)]
        await save_site(site, to)
        over.set()
        await asyncio.gather(*writers)
    await restore_site(to, blank)
    async with world(blank, cluster.operator_key) as running, as_superuser(blank) as connection:
        named = await connection.fetch("SELECT digest, size_bytes FROM blobs WHERE named")
        assert named
        for row in named:
            pieces = [p async for p in running.services.workspaces.blobs.read("acme", *row)]
            assert len(b"".join(pieces)) == row["size_bytes"]


@pytest.mark.long
async def test_a_backup_of_an_earlier_schema_is_restored_and_upgraded(
    site: Deployment, blank: Deployment, to: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await save_site(site, to)
    install_next_version(monkeypatch, tmp_path)
    await restore_site(to, blank)
    await migrate(blank.migrate_dsn)
    async with as_superuser(blank) as connection:
        assert await schema_is_current(connection)
        assert await connection.fetchval("SELECT count(title) FROM threads") == 0


async def test_a_query_that_was_running_during_the_backup_runs_again(
    cluster: Cluster, site: Deployment, blank: Deployment, to: Path
) -> None:
    async with world(site, cluster.operator_key, with_worker=False) as idle:
        await idle.api.register(specs.mock())
        query = (await idle.api.submit())["id"]
        (claim,) = await queue_store.claim(idle.services.db, owner="prc_saved", limit=10, lease_s=3600)
        assert claim.query_id == query
        async with as_superuser(site) as connection:
            await connection.execute("SELECT register_process('prc_saved', NULL, 'host', 1, true)")
        await save_site(site, to)
    await restore_site(to, blank)
    async with world(blank, cluster.operator_key) as running, as_superuser(blank) as connection:
        assert (await running.api.ended(query))["status"] == "succeeded"
        ended = "SELECT end_reason FROM processes WHERE id = 'prc_saved'"
        assert await connection.fetchval(ended) == "stopped"
        assert await connection.fetchval("SELECT count(*) FROM lost_leases") == 0


# --- what is refused


async def test_the_schema_owner_cannot_back_up_and_leaves_nothing(site: Deployment, to: Path) -> None:
    with pytest.raises(BackupError, match=r"'plangate_owner' does not see all rows(.|\n)*BYPASSRLS"):
        await save(site.dsn, site.blobs, to, "0.1.0")
    assert os.listdir(to.parent) == []


async def test_only_an_empty_database_is_restored_into(site: Deployment, to: Path) -> None:
    await save_site(site, to)
    before = await rows(site)
    with pytest.raises(BackupError, match="is not empty: it has public"):
        await restore_site(to, site)
    assert await rows(site) == before


async def test_a_database_in_use_is_not_restored_into(
    cluster: Cluster, site: Deployment, blank: Deployment, to: Path
) -> None:
    await save_site(site, to)
    service = await asyncpg.connect(blank.dsn, server_settings={"application_name": "plangate"})
    try:
        with pytest.raises(BackupError, match="Stop them, then restore"):
            await restore_site(to, blank)
    finally:
        await service.close()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("database.dump", "database.dump is damaged: its SHA-256 is"),
        ("blobs.jsonl", "blobs.jsonl is damaged"),
        ("manifest.json", "has the backup format 7"),
        ("body", "1 bodies are missing or not what was saved"),
    ],
)
async def test_a_damaged_backup_leaves_the_database_empty(
    cluster: Cluster, site: Deployment, blank: Deployment, to: Path, damage: str, said: str
) -> None:
    async with world(site, cluster.operator_key) as running:
        await fill(running)
    await save_site(site, to)
    if damage == "manifest.json":
        fields = json.loads((to / damage).read_text())
        (to / damage).write_text(json.dumps({**fields, "format": 7}))
    else:
        (body,) = bodies_in(to / "blobs")
        path = body if damage == "body" else to / damage
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    with pytest.raises(BackupError, match=said):
        await restore_site(to, blank)
    assert await rows(blank) == {}


async def test_a_dump_that_fails_in_the_middle_changes_nothing(
    site: Deployment, blank: Deployment, to: Path
) -> None:
    await save_site(site, to)
    manifest = check_backup(to)
    broken = manifest.model_copy(update={"scan_functions": [*manifest.scan_functions, "public.no_such()"]})
    with pytest.raises(BackupError, match=r"psql failed(.|\n)*no_such"):
        await restore(to, broken, blank.migrate_dsn, open_blobs(blank.blobs))
    assert await rows(blank) == {}
    (to / "database.dump").write_bytes((to / "database.dump").read_bytes()[:-20_000])
    with pytest.raises(BackupError, match="pg_restore failed"):
        await restore(to, manifest, blank.migrate_dsn, open_blobs(blank.blobs))
    assert await rows(blank) == {}


async def test_a_different_secret_key_is_rejected(cluster: Cluster, site: Deployment, to: Path) -> None:
    await check_master_key(site.migrate_dsn, site.master)
    await save_site(site, to)
    manifest = check_backup(to)
    check_key(manifest, site.master)
    with pytest.raises(BackupError, match="not the one that this backup was sealed with"):
        check_key(manifest, b"another key of thirty-two bytes!")


async def test_a_lost_body_is_named_and_the_rest_is_backed_up(
    cluster: Cluster, site: Deployment, blank: Deployment, to: Path
) -> None:
    async with world(site, cluster.operator_key) as running:
        made = await fill(running)
        await put(running.api, made["thread"], "b.md", b"another body")
    lost = max(bodies_in(Path(site.blobs)), key=str)
    lost.unlink()
    manifest = await save_site(site, to)
    assert (manifest.bodies.lost, manifest.bodies.count) == ([lost.name], 1)
    assert await restore_site(to, blank) == 1


async def test_backup_and_restore_work_on_an_external_database(
    cluster: Cluster, site: Deployment, blank: Deployment, to: Path
) -> None:
    key = "s" * 40
    settings = Settings.model_construct(
        database_url=site.dsn, backup_url=backup_dsn(site), blobs=site.blobs, secret_key=key
    )
    with pytest.raises(BackupError, match="PLANGATE_BLOBS is needed"):
        await backups.save(settings.model_copy(update={"blobs": None}), to)
    lines = (await backups.save(settings, to)).lines
    assert lines[1].startswith("Not in the backup: the secret key (PLANGATE_SECRET_KEY)")
    bucket = (await backups.save(settings.model_copy(update={"blobs": "s3://b/p"}), to.with_name("2"))).lines
    assert "the bodies of files in s3://b/p. Save the bucket" in bucket[1]
    empty = settings.model_copy(update={"database_url": blank.dsn, "blobs": blank.blobs})
    lines = await backups.restore(empty, to)
    assert lines[0].endswith("0 bodies of files. Start the service.")
    assert (await rows(blank))["tenants"] == 2
