"""A tenant is exported into an encrypted file, and imported completely into another deployment or not at all."""

from __future__ import annotations

import os
import stat
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from app.artifacts.chain import Chainer
from app.artifacts.verify import heads, problems
from app.base.ids import new_id
from app.base.keys import new_key
from app.base.postgres.migrate import migrate
from app.base.sealing import Sealer, derive_key
from app.commands import admin, transfers
from app.deployment import Deployment, open_blobs
from app.settings import Settings
from app.transfer import encryption, exporting, frames, importing, store
from app.transfer.encryption import CHUNK_BYTES
from app.transfer.errors import TransferError
from app.transfer.exporting import export_tenant
from app.transfer.frames import Kind, TenantManifest
from app.transfer.importing import ImportedTenant, import_tenant
from app.transfer.tables import LEFT_OUT, SEALED, TABLES
from tests.support import specs
from tests.support.client import good, refused
from tests.support.cluster import Cluster, superuser_dsn
from tests.support.whole_tenant import RARE_ROWS, everything, fill
from tests.support.world import World, world

pytestmark = pytest.mark.long

PASSPHRASE = "correct horse battery staple"
OTHER_MASTER = b"the master key of another cell.."


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """One guess of a passphrase costs 0.4 s, on purpose."""
    monkeypatch.setattr(encryption, "_SCRYPT_N", 2**10)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "acme.tenant"


@pytest.fixture
async def target(cluster: Cluster) -> AsyncIterator[tuple[Deployment, str]]:
    """Another deployment, with another master key, without tenants, and the text of its operator's key."""
    site = replace(await cluster.empty(), master=OTHER_MASTER)
    await migrate(site.migrate_dsn)
    text, hash = new_key()
    connection = await asyncpg.connect(site.dsn)
    await connection.execute("SELECT create_operator_key($1, $2, $3)", new_id("key_"), hash, "tests")
    await connection.close()
    yield site, text
    await cluster.drop(site)


def contents(file: Path) -> bytes:
    return file.read_bytes()


def replace_contents(file: Path, data: bytes) -> None:
    file.write_bytes(data)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


async def save(site: Deployment, file: Path, **options: Any) -> TenantManifest:
    return await export_tenant(
        "acme",
        file,
        PASSPHRASE,
        dsn=site.migrate_dsn,
        sealer=Sealer(derive_key(site.master, "secrets")),
        blobs=open_blobs(site.blobs),
        version="0.1.0",
        **options,
    )


async def load(site: Deployment, file: Path, passphrase: str = PASSPHRASE, **options: Any) -> ImportedTenant:
    return await import_tenant(
        file,
        passphrase,
        dsn=site.migrate_dsn,
        sealer=Sealer(derive_key(site.master, "secrets")),
        chainer=Chainer(derive_key(site.master, "artifacts")),
        blobs=open_blobs(site.blobs),
        **options,
    )


async def read_rows(site: Deployment) -> dict[str, tuple[int, str]]:
    """Return the number of the tenant's rows, by table, and a hash of their contents.

    Without what a move changes: sealed values, MACs, leases and transaction ids.
    """
    connection = await asyncpg.connect(superuser_dsn(site), server_settings={"timezone": "UTC"})
    try:
        return {
            table: tuple(await connection.fetchrow(ROWS.format(table=table), CHANGED.get(table, [])))
            for table in (*SEALED, *TABLES)
        }
    finally:
        await connection.close()


ROWS = """
SELECT count(*), coalesce(md5(string_agg((to_jsonb(t) - $1::text[])::text, ',' ORDER BY (to_jsonb(t) - $1::text[])::text)), '')
  FROM {table} t WHERE tenant_id = 'acme'
"""
CHANGED = {
    "tenants": ["reference_secret", "history", "state"],
    "secrets": ["sealed"],
    "signing_secrets": ["sealed", "previous"],
    "events": ["xid"],
    "queries": ["lease_owner", "lease_expires_at", "crashes"],
    "artifact_chains": ["mac"],
    "artifacts": ["mac", "previous"],
    "artifact_decisions": ["mac", "previous"],
    "artifact_tombstones": ["seal"],
}


async def count_rows(site: Deployment) -> dict[str, int]:
    return {table: count for table, (count, _) in (await read_rows(site)).items()}


async def test_every_table_of_tenants_is_exported_or_left_out_on_purpose(owner: asyncpg.Connection) -> None:
    names = [*SEALED, *TABLES, *LEFT_OUT]
    assert len(names) == len(set(names))
    assert set(await store.columns_of_tables(owner)) == set(names)


async def test_an_imported_tenant_is_the_same_for_its_users(
    cluster: Cluster,
    site: Deployment,
    owner: asyncpg.Connection,
    target: tuple[Deployment, str],
    file: Path,
) -> None:
    async with world(site, cluster.operator_key) as running:
        made = await fill(running)
        key = await running.key("admin")
        await owner.execute(RARE_ROWS)
        before = await everything(running.api)
        ends = await heads(running.services.db)
    rows = await count_rows(site)
    hashes = await read_rows(site)
    assert {table for table, count in rows.items() if not count} == {"artifact_chain_links"}
    assert [path for path in before if "/files/" in path]

    manifest = await save(site, file)
    assert mode(file) == 0o600
    assert b"a secret value" not in contents(file)
    assert manifest.tables["events"].rows == rows["events"]

    elsewhere, operator_key = target
    await load(elsewhere, file)
    assert {t for t, found in (await read_rows(elsewhere)).items() if found != hashes[t]} == {
        "sessions",
        "artifact_chain_links",
    }
    async with world(elsewhere, operator_key, with_worker=False) as moved:
        assert await everything(moved.api) == before
        assert await moved.services.secrets.read("acme", "vault") == "a secret value"
        assert [p async for p in problems(moved.services.db, moved.services.chainer, {})] == []
        assert [p async for p in problems(moved.services.db, moved.services.chainer, ends)] == []
        new = moved.operator("acme")
        new.headers["authorization"] = key.headers["authorization"]
        del new.headers["plangate-tenant"]
        assert (await new.read("/whoami"))["tenant"] == "acme"
        refused(
            await new.get(f"/queries/{made['ended']}/events", after=made["cursor"]), 409, "history_rewound"
        )
    async with world(elsewhere, operator_key) as moved:
        good(await moved.api.decide(made["approval"], digest=made["digest"]))
        call = {"workId": made["work"], "claimToken": made["token"]}
        assert good(await moved.api.result(call, {"late": 1}))["adopted"]
        await moved.api.serve("find", {"found": 4})
        await moved.api.serve("pay", {"paid": 2})
        for name in ("claimed", "open", "waiting"):
            assert (await moved.api.ended(made[name]))["status"] == "succeeded"


async def test_a_file_without_secrets_has_no_keys(
    cluster: Cluster, site: Deployment, target: tuple[Deployment, str], file: Path
) -> None:
    async with world(site, cluster.operator_key, with_worker=False) as running:
        key = await running.key("read")
        good(await running.api.put("/secrets/vault", {"value": "a secret value"}))
    await save(site, file, with_secrets=False)
    elsewhere, operator_key = target
    await load(elsewhere, file)
    async with world(elsewhere, operator_key, with_worker=False) as moved:
        assert (await moved.api.read("/secrets"))["items"] == (await moved.api.read("/keys"))["items"] == []
        headers = {"authorization": key.headers["authorization"]}
        refused(await moved.http.get("/whoami", headers=headers), 401)


async def small_file(cluster: Cluster, site: Deployment, file: Path) -> None:
    """Export a tenant with a body of a file that fills several chunks."""
    async with world(site, cluster.operator_key, with_worker=False) as running:
        thread = (await running.api.do("/threads", {}))["id"]
        body = bytes(range(256)) * (3 * CHUNK_BYTES // 256)
        good(await running.api.request("PUT", f"/threads/{thread}/files/a.bin", content=body))
    await save(site, file)


async def test_a_damaged_file_is_not_imported(
    cluster: Cluster, site: Deployment, target: tuple[Deployment, str], file: Path
) -> None:
    await small_file(cluster, site, file)
    elsewhere, operator_key = target
    whole = contents(file)
    with pytest.raises(TransferError, match="passphrase is wrong"):
        await load(elsewhere, file, "another passphrase")
    end = len(whole)
    damaged = {
        "a changed byte at the start": whole[:60] + bytes([whole[60] ^ 1]) + whole[61:],
        "a changed byte": whole[: end // 2] + bytes([whole[end // 2] ^ 1]) + whole[end // 2 + 1 :],
        "a truncated file": whole[:-1],
        "a file that ends with a whole chunk": whole[: 41 + CHUNK_BYTES + 16],
        "a file with more bytes": whole + b"x",
        "a file with a chunk twice": whole[: 41 + CHUNK_BYTES + 16] + whole[41:],
        "an empty file": b"",
        "another file": b"PK\x03\x04" * 20,
        "a file of a later format": b"plangate tenant 2\n" + whole[18:],
    }
    for what, data in damaged.items():
        replace_contents(file, data)
        with pytest.raises(TransferError):
            await load(elsewhere, file)
        async with world(elsewhere, operator_key, with_worker=False) as there:
            assert "acme" not in str(await there.operator().read("/tenants")), what
    replace_contents(file, whole)
    await load(elsewhere, file)
    assert await count_rows(elsewhere) == await count_rows(site)


@pytest.mark.parametrize(("revision", "says"), [("0999", "an older version"), ("9999", "a newer version")])
async def test_a_file_of_another_schema_is_rejected(
    site: Deployment,
    target: tuple[Deployment, str],
    file: Path,
    owner: asyncpg.Connection,
    revision: str,
    says: str,
) -> None:
    await owner.execute("UPDATE alembic_version SET version_num = $1", revision)
    await save(site, file)
    with pytest.raises(TransferError, match=says):
        await load(target[0], file)
    assert sum((await count_rows(target[0])).values()) == 0


async def test_a_file_with_another_column_is_rejected(
    site: Deployment, target: tuple[Deployment, str], file: Path, owner: asyncpg.Connection
) -> None:
    await owner.execute("ALTER TABLE plans ADD COLUMN color text")
    await save(site, file)
    with pytest.raises(TransferError, match="tables differ: plans"):
        await load(target[0], file)


@pytest.mark.parametrize("kind", [Kind.ROWS, Kind.SEALED])
async def test_rows_of_another_tenant_are_rejected(
    cluster: Cluster,
    site: Deployment,
    target: tuple[Deployment, str],
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
) -> None:
    async with world(site, cluster.operator_key, with_worker=False) as running:
        await running.api.do("/threads", {})

    def write_frame(writer: frames.Writer, written: Kind, data: bytes = b"") -> None:
        frames.write_frame(writer, written, data.replace(b"acme", b"evil") if written is kind else data)

    def write_json(writer: frames.Writer, written: Kind, value: Any) -> None:
        write_frame(writer, written, orjson.dumps(value))

    monkeypatch.setattr(exporting, "write_frame", write_frame)
    monkeypatch.setattr(exporting, "write_json", write_json)
    await save(site, file)
    with pytest.raises(TransferError, match="of another tenant than 'acme'"):
        await load(target[0], file)
    async with world(target[0], target[1], with_worker=False) as there:
        assert (await there.operator().read("/tenants"))["items"] == []


async def test_a_file_that_names_the_operator_is_rejected(
    site: Deployment, target: tuple[Deployment, str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys would be those of an operator."""

    def write_frame(writer: frames.Writer, written: Kind, data: bytes = b"") -> None:
        is_header = written is Kind.HEADER
        frames.write_frame(writer, written, data.replace(b'"acme"', b'"*"') if is_header else data)

    monkeypatch.setattr(exporting, "write_frame", write_frame)
    await save(site, file)
    with pytest.raises(TransferError, match="cannot be the id of a tenant"):
        await load(target[0], file)


async def test_a_file_without_its_tenant_is_rejected(
    site: Deployment, target: tuple[Deployment, str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would be those of a tenant that is created later."""

    def write_json(writer: frames.Writer, written: Kind, value: Any) -> None:
        if value.get("table") != "tenants":
            frames.write_json(writer, written, value)

    monkeypatch.setattr(exporting, "write_json", write_json)
    await save(site, file)
    with pytest.raises(TransferError, match="does not begin with its tenant"):
        await load(target[0], file)
    assert not any((await count_rows(target[0])).values())


async def test_rows_that_no_export_writes_are_rejected(
    cluster: Cluster,
    site: Deployment,
    target: tuple[Deployment, str],
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(site, cluster.operator_key, with_worker=False) as running:
        await running.api.do("/threads", {})
    await save(site, file)
    monkeypatch.setattr(store, "CONDITIONS", {"threads": "id = 'thr_1'"})
    with pytest.raises(TransferError, match="or that no export writes"):
        await load(target[0], file)


async def test_an_existing_tenant_is_not_replaced(
    cluster: Cluster, site: Deployment, file: Path, plangate: World
) -> None:
    await save(site, file)
    before = await count_rows(site)
    with pytest.raises(TransferError, match="exists here already"):
        await load(site, file)
    assert await count_rows(site) == before
    with pytest.raises(TransferError, match="exists already"):
        await save(site, file)


async def test_an_import_that_dies_leaves_nothing_visible_and_can_be_repeated(
    cluster: Cluster,
    site: Deployment,
    target: tuple[Deployment, str],
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(site, cluster.operator_key) as running:
        await fill(running)
        key = await running.key("read")
    await save(site, file)
    elsewhere, operator_key = target

    async def fail(*_: Any) -> None:
        raise ConnectionResetError

    with monkeypatch.context() as patch:
        patch.setattr(importing, "finish_import", fail)
        with pytest.raises(ConnectionResetError):
            await load(elsewhere, file)
    written = await count_rows(elsewhere)
    assert written["events"] > 50
    async with world(elsewhere, operator_key) as there:
        headers = {"authorization": key.headers["authorization"]}
        refused(await there.http.get("/whoami", headers=headers), 503, "tenant_not_ready")
        refused(await there.api.get("/queries"), 503, "tenant_not_ready")
        assert (await there.operator().read("/tenants"))["items"] == []
    await load(elsewhere, file)
    assert await count_rows(elsewhere) == written
    async with world(elsewhere, operator_key, with_worker=False) as there:
        assert (await there.http.get("/whoami", headers=headers)).is_success


@pytest.mark.long
async def test_a_large_tenant_does_not_fill_the_memory(
    cluster: Cluster, site: Deployment, owner: asyncpg.Connection, target: tuple[Deployment, str], file: Path
) -> None:
    async with world(site, cluster.operator_key) as running:
        await running.api.register(specs.mock())
        query = (await running.api.run())["id"]
        thread = (await running.api.do("/threads", {}))["id"]
        body = os.urandom(20_000_000)
        good(await running.api.request("PUT", f"/threads/{thread}/files/a.bin", content=body))
    await owner.execute(
        "INSERT INTO events (tenant_id, query_id, seq, type, body) SELECT 'acme', $1, n, 'text', "
        "convert_to(repeat(md5(n::text), 64), 'UTF8') FROM generate_series(1000, 20999) n",
        query,
    )
    tracemalloc.start()
    try:
        await save(site, file)
        await load(target[0], file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(contents(file)) > 100_000_000
    assert peak < 16_000_000
    assert await read_rows(target[0]) == {**await read_rows(site)}


async def test_a_damaged_secret_stops_the_export(
    cluster: Cluster, site: Deployment, file: Path, plangate: World
) -> None:
    good(await plangate.api.put("/secrets/vault", {"value": "a secret value"}))
    with pytest.raises(TransferError, match="cannot be opened"):
        await save(replace(site, master=OTHER_MASTER), file)
    assert list(file.parent.iterdir()) == []


async def test_the_commands_move_a_tenant_between_master_keys(
    cluster: Cluster, file: Path, tmp_path: Path
) -> None:
    sites = [await cluster.empty() for _ in range(2)]
    here, there = (
        Settings(database_url=site.dsn, secret_key=f"{n}" * 32, blobs=str(tmp_path / str(n)))
        for n, site in enumerate(sites)
    )
    await admin.create_tenant(here, "acme", {"runningQueries": 7}, None)
    key = await admin.create_key(here, "acme", "ann", ["admin"], None)
    with pytest.raises(TransferError, match="at least 12 characters"):
        await transfers.export(here, "acme", file, "short", with_secrets=True)
    with pytest.raises(TransferError, match="no tenant 'nobody'"):
        await transfers.export(here, "nobody", file, PASSPHRASE, with_secrets=True)
    report = await transfers.export(here, "acme", file, PASSPHRASE, with_secrets=True)
    assert report.lines == [f"Exported the tenant acme to {file}: 1 row and 0 bodies of files."]
    lines = await transfers.import_file(there, file, PASSPHRASE, with_secrets=True)
    assert "Cursors of /events from before get a 409 history_rewound." in lines
    async with world(
        replace(sites[1], master=derive_key(b"1" * 32, "master")), key, with_worker=False
    ) as moved:
        assert (await moved.operator().read("/tenant"))["limits"]["runningQueries"] == 7
    for site in sites:
        await cluster.drop(site)


async def test_changed_records_are_not_exported(cluster: Cluster, file: Path, tmp_path: Path) -> None:
    site = await cluster.empty()
    settings = Settings(database_url=site.dsn, secret_key="k" * 32, blobs=site.blobs)
    await admin.create_tenant(settings, "acme", None, None)
    key = await admin.create_key(settings, "acme", "ann", ["admin"], None)
    own = replace(site, master=derive_key(b"k" * 32, "master"))
    async with world(own, key, with_worker=False) as running:
        api = running.operator()
        thread = (await api.do("/threads", {}))["id"]
        good(await api.request("PUT", f"/threads/{thread}/files/a.md", content=b"one"))
        await api.do("/artifacts", {"threadId": thread, "channel": "design", "path": "a.md", "title": "A"})
    connection = await asyncpg.connect(superuser_dsn(site))
    await connection.execute("UPDATE artifacts SET channel = 'other'")
    await connection.close()
    with pytest.raises(TransferError, match="was changed: channel"):
        await transfers.export(settings, "acme", file, PASSPHRASE, with_secrets=True)
    await cluster.drop(site)
