"""`plangate verify` reports records that were changed in the database."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.artifacts.chain import Chainer, ChainHead
from app.artifacts.verify import ROWS_PER_PAGE, export_heads, heads, problems, read_exported_heads
from app.base.errors import Invalid
from app.base.postgres.database import Database, Tx
from app.base.sealing import derive_key
from app.commands.admin import write_atomically
from app.deployment import Deployment
from tests.support.client import Caller, good
from tests.support.cluster import Cluster
from tests.support.forked import run
from tests.support.service import plain_environment
from tests.support.world import World, world

RECORDS = 5


@pytest.fixture
async def thread(api: Caller) -> str:
    """A thread with five records."""
    made = str((await api.do("/threads", {"threadKey": "t"}))["id"])
    await publish(api, made, RECORDS)
    return made


async def publish(api: Caller, thread: str, times: int) -> None:
    good(await api.request("PUT", f"/threads/{thread}/files/a", content=b"x"))
    for n in range(times):
        asked = {"threadId": thread, "channel": "design", "path": "a", "title": f"Nr. {n}", "tags": ["x"]}
        await api.do("/artifacts", asked)


async def found(plangate: World, against: Any = None, rows_per_page: int = ROWS_PER_PAGE) -> list[str]:
    services = plangate.services
    reported = problems(services.db, services.chainer, against or {}, rows_per_page)
    return [text async for _, text in reported]


async def id_of(owner: asyncpg.Connection, n: int) -> str:
    return str(await owner.fetchval("SELECT id FROM artifacts WHERE n = $1", n))


async def tamper(owner: asyncpg.Connection, *statements: str) -> None:
    """As somebody with all rights in the database would."""
    await owner.execute("SET session_replication_role = replica")  # no foreign key stands in the way
    for statement in statements:
        await owner.execute(statement)


async def test_untouched_records_verify(plangate: World, api: Caller, thread: str) -> None:
    other = str((await plangate.other.do("/threads", {}))["id"])
    await publish(plangate.other, other, 2)
    assert await found(plangate) == []
    ends = await heads(plangate.services.db)
    assert {t: {i: h.n for i, h in chains.items()} for t, chains in ends.items()} == {
        "acme": {thread: 5},
        "other": {other: 2},
    }
    assert read_exported_heads(export_heads(ends)) == ends
    await publish(api, thread, 1)
    assert await found(plangate, ends) == []


@pytest.mark.parametrize(
    ("statement", "column"),
    [
        (
            "UPDATE artifacts SET record = replace(convert_from(record, 'UTF8'), 'Nr. 2', 'Nr. 9')::bytea WHERE n = 3",
            None,
        ),
        ("UPDATE artifacts SET record = '{}' WHERE n = 3", "record"),
        ("UPDATE artifacts SET record = '\\xff' WHERE n = 3", "record"),
        ("UPDATE artifacts SET mac = sha256('x') WHERE n = 3", "mac"),
        ("UPDATE artifacts SET previous = sha256('x') WHERE n = 3", None),
        ("UPDATE artifacts SET channel = 'patch' WHERE n = 3", "channel"),
        ("UPDATE artifacts SET path = 'b' WHERE n = 3", "path"),
        ("UPDATE artifacts SET digest = sha256('y') WHERE n = 3", "digest"),
        ("UPDATE artifacts SET work_id = 'wrk_1' WHERE n = 3", "work_id"),
        ("UPDATE artifacts SET replaces = 'art_1' WHERE n = 3", "replaces"),
        ("UPDATE artifacts SET agent = 'solo' WHERE n = 3", "agent"),
        ("UPDATE artifacts SET body_bytes = 2 WHERE n = 3", "body_bytes"),
        ("UPDATE artifacts SET is_directory = true WHERE n = 3", "is_directory"),
        ("UPDATE artifacts SET parent_work_id = 'wrk_1' WHERE n = 3", "parent_work_id"),
        ("UPDATE artifacts SET query_id = 'qry_1' WHERE n = 3", "query_id"),
        ("UPDATE artifacts SET call_id = 'wrk_1' WHERE n = 3", "call_id"),
        ("UPDATE artifacts SET first_id = 'art_1' WHERE n = 3", "first_id"),
        ("UPDATE artifacts SET revision = 2 WHERE n = 3", "revision"),
        ("UPDATE artifacts SET plan_id = 'pln_1' WHERE n = 3", "plan_id"),
        ("UPDATE artifacts SET action_index = 0 WHERE n = 3", "action_index"),
        ("UPDATE artifacts SET created_at = now() + interval '1 day' WHERE n = 3", "created_at"),
        (
            "UPDATE artifact_tags SET tag = 'y' WHERE artifact_id = (SELECT id FROM artifacts WHERE n = 3)",
            "tags",
        ),
        ("INSERT INTO artifact_parents SELECT tenant_id, id, 'art_1' FROM artifacts WHERE n = 3", "parents"),
    ],
)
async def test_a_changed_record_is_reported(
    plangate: World, thread: str, owner: asyncpg.Connection, statement: str, column: str | None
) -> None:
    await tamper(owner, statement)
    id = await id_of(owner, 3)
    told = await found(plangate)
    if column == "mac":
        assert told == [
            f"{id} (record 3 of thread {thread}) was inserted",
            f"what stood before record 4 of thread {thread} was replaced",
        ] or told == [f"{id} (record 3 of thread {thread}) was inserted"]
        return
    changed = f"{id} (record 3 of thread {thread}) was changed"
    if column is None:
        assert told == [changed]
    elif column == "record":
        assert told == [f"{changed}: record", changed]
    else:
        assert told == [f"{changed}: {column}"]


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("n = 3", "record 3 was removed from thread {thread}"),
        ("n = 1", "record 1 was removed from thread {thread}"),
        ("n IN (2, 3, 4)", "records 2 to 4 were removed from thread {thread}"),
        ("n >= 4", "records 4 to 5 were removed from the end of thread {thread}"),
        ("true", "records 1 to 5 were removed from the end of thread {thread}"),
    ],
)
async def test_a_removed_record_is_reported(
    plangate: World, thread: str, owner: asyncpg.Connection, gone: str, said: str
) -> None:
    await tamper(owner, f"DELETE FROM artifacts WHERE {gone}")
    assert await found(plangate) == [said.format(thread=thread)]


async def test_a_removed_record_is_reported_after_renumbering(
    plangate: World, thread: str, owner: asyncpg.Connection
) -> None:
    await tamper(
        owner,
        "DELETE FROM artifacts WHERE n = 2",
        "UPDATE artifacts SET n = n - 1 WHERE n = 3",
        "UPDATE artifacts SET n = n - 1 WHERE n = 4",
        "UPDATE artifacts SET n = n - 1 WHERE n = 5",
    )
    told = await found(plangate)
    assert f"{await id_of(owner, 2)} (record 2 of thread {thread}) was changed" in told
    assert f"record 5 was removed from the end of thread {thread}" in told


COPY = """
INSERT INTO artifacts SELECT tenant_id, 'art_inserted', thread_id, {n}, record, {previous}, {mac}, channel, path, is_directory,
  digest, body_bytes, work_id, parent_work_id, query_id, agent, replaces, first_id, revision, call_id, plan_id,
  action_index, created_at FROM artifacts WHERE n = 5
"""


async def test_an_inserted_record_is_reported(
    plangate: World, thread: str, owner: asyncpg.Connection
) -> None:
    await tamper(owner, COPY.format(n=6, previous="mac", mac="sha256('x')"))
    told = await found(plangate)
    assert f"art_inserted (record 6 of thread {thread}) was inserted" in told
    await tamper(owner, "UPDATE artifact_chains SET n = 6, mac = sha256('x')")
    assert f"art_inserted (record 6 of thread {thread}) was changed" in await found(plangate)


async def test_a_record_moved_from_another_thread_is_reported(
    plangate: World, api: Caller, thread: str, owner: asyncpg.Connection
) -> None:
    other = str((await api.do("/threads", {"threadKey": "u"}))["id"])
    await publish(api, other, 1)
    await tamper(
        owner,
        f"UPDATE artifacts SET thread_id = '{thread}', n = 6 WHERE thread_id = '{other}'",
        f"UPDATE artifact_chains SET n = 6 WHERE thread_id = '{thread}'",
    )
    told = await found(plangate)
    assert any(f"(record 6 of thread {thread}) was " in text for text in told)
    assert f"record 1 was removed from the end of thread {other}" in told


async def test_a_chain_moved_from_another_tenant_is_reported(
    plangate: World, thread: str, owner: asyncpg.Connection
) -> None:
    await tamper(
        owner,
        "UPDATE artifacts SET tenant_id = 'other'",
        "UPDATE artifact_tags SET tenant_id = 'other'",
        "UPDATE artifact_chains SET tenant_id = 'other'",
        "UPDATE blobs SET tenant_id = 'other'",
    )
    told = await found(plangate)
    assert len(told) == RECORDS
    for n in range(1, RECORDS + 1):
        assert f"{await id_of(owner, n)} (record {n} of thread {thread}) was changed" in told


def test_a_mac_covers_its_purpose() -> None:
    """No two things that the service signs are signed alike."""
    one = Chainer(b"k" * 32)
    macs = {
        one.mac("acme", "thr_1", 1, b"before", b"record"),
        one.mac("acm", "ethr_1", 1, b"before", b"record"),
        one.mac("acme", "thr_2", 1, b"before", b"record"),
        one.mac("acme", "thr_1", 2, b"before", b"record"),
        one.mac("acme", "thr_1", 1, b"befor", b"erecord"),
        one.mac("acme", "thr_1", 1, b"before", b""),
        one.seal("acme", "thr_1", ChainHead(1, b"before")),
        one.seal("acme", "thr_1", ChainHead(2, b"before")),
        one.seal("acme", "thr_1", ChainHead(1, b"other")),
        Chainer(b"l" * 32).seal("acme", "thr_1", ChainHead(1, b"before")),
    }
    assert len(macs) == 10


async def test_a_cut_tail_is_reported_against_an_exported_head(
    plangate: World, api: Caller, thread: str, owner: asyncpg.Connection
) -> None:
    ends = await heads(plangate.services.db)
    await tamper(
        owner,
        "DELETE FROM artifacts WHERE n > 3",
        "UPDATE artifact_chains SET n = 3, mac = (SELECT mac FROM artifacts WHERE n = 3)",
    )
    assert await found(plangate) == []  # nothing in the database tells
    said = f"records 4 to 5 were removed from the end of thread {thread}: the exported head has 5"
    assert await found(plangate, ends) == [said]
    await publish(api, thread, 3)  # and the chain goes on as if nothing had been
    assert await found(plangate) == []
    assert await found(plangate, ends) == [f"record 5 of thread {thread} is not that of the exported head"]


async def test_a_removed_chain_is_reported_against_an_exported_head(
    plangate: World, thread: str, owner: asyncpg.Connection
) -> None:
    ends = await heads(plangate.services.db)
    await tamper(owner, "DELETE FROM artifacts", "DELETE FROM artifact_chains")
    assert await found(plangate) == []
    assert await found(plangate, ends) == [
        f"all 5 records of thread {thread} were removed: the exported head has them"
    ]
    assert await found(plangate, {"gone": {"thr_1": ChainHead(1, b"x")}}) == [
        "the tenant is gone: exported heads have records of it"
    ]


async def test_a_deleted_thread_leaves_a_valid_tombstone(
    plangate: World, api: Caller, thread: str, owner: asyncpg.Connection
) -> None:
    ends = await heads(plangate.services.db)
    async with plangate.services.db.transaction("other") as tx:
        await plangate.services.artifacts.forget(tx, thread)
    assert await owner.fetchval("SELECT count(*) FROM artifacts") == RECORDS
    good(await api.delete(f"/threads/{thread}"))
    for table in ("artifacts", "artifact_tags", "artifact_chains"):
        assert await owner.fetchval(f"SELECT count(*) FROM {table}") == 0
    assert await found(plangate, ends) == []
    await tamper(owner, "UPDATE artifact_tombstones SET n = 4")
    assert await found(plangate, ends) == [
        f"the tombstone of thread {thread} was not made by the service",
    ]


async def test_a_tail_cut_before_deletion_is_reported(
    plangate: World, api: Caller, thread: str, owner: asyncpg.Connection
) -> None:
    ends = await heads(plangate.services.db)
    await tamper(
        owner,
        "DELETE FROM artifacts WHERE n > 4",
        "UPDATE artifact_chains SET n = 4, mac = (SELECT mac FROM artifacts WHERE n = 4)",
    )
    good(await api.delete(f"/threads/{thread}"))
    assert await found(plangate) == []
    assert await found(plangate, ends) == [
        f"record 5 was removed from the end of thread {thread} before it was deleted: the exported head has 5"
    ]


async def test_restored_records_of_a_deleted_thread_are_reported(
    plangate: World, api: Caller, thread: str, owner: asyncpg.Connection
) -> None:
    """Old rows are as the service wrote them: it is their being there that is wrong."""
    await tamper(
        owner,
        "CREATE TABLE kept AS SELECT * FROM artifacts",
        "CREATE TABLE kept_tags AS SELECT * FROM artifact_tags",
        "CREATE TABLE kept_chains AS SELECT * FROM artifact_chains",
    )
    good(await api.delete(f"/threads/{thread}"))
    await tamper(
        owner,
        "INSERT INTO artifact_chains SELECT * FROM kept_chains",
        "INSERT INTO artifacts SELECT * FROM kept",
        "INSERT INTO artifact_tags SELECT * FROM kept_tags",
    )
    assert await found(plangate) == [f"thread {thread} was deleted, and records of it are there again"]


async def test_records_without_a_chain_are_reported(
    plangate: World, api: Caller, thread: str, owner: asyncpg.Connection
) -> None:
    other = str((await api.do("/threads", {}))["id"])
    await publish(api, other, 1)
    columns = "record, previous, mac, channel, path, is_directory, digest, body_bytes, work_id, created_at, tenant_id"
    await tamper(
        owner,
        f"INSERT INTO artifacts (id, n, thread_id, {columns}) SELECT 'art_x', 1, 'thr_0', {columns} FROM artifacts LIMIT 1",
        f"DELETE FROM artifact_chains WHERE thread_id = '{other}'",
    )
    told = "records of thread {} are in no chain: they were inserted, or it was removed"
    assert await found(plangate, rows_per_page=1) == [told.format(id) for id in ("thr_0", other)]


async def test_a_thread_flagged_as_deleted_is_verified(idle: World, owner: asyncpg.Connection) -> None:
    """Without a tombstone it was not the service that deleted it."""
    made = str((await idle.api.do("/threads", {}))["id"])
    await publish(idle.api, made, 1)
    await tamper(owner, "UPDATE threads SET deleted = true", "UPDATE artifacts SET channel = 'x'")
    assert await found(idle) == [f"{await id_of(owner, 1)} (record 1 of thread {made}) was changed: channel"]


async def test_the_length_of_a_directorys_list_is_checked(
    plangate: World, api: Caller, owner: asyncpg.Connection
) -> None:
    made = str((await api.do("/threads", {}))["id"])
    good(await api.request("PUT", f"/threads/{made}/files/out/a", content=b"x"))
    record = await api.do("/artifacts", {"threadId": made, "channel": "design", "path": "out"})
    assert await found(plangate) == []
    await tamper(owner, "UPDATE artifacts SET body_bytes = 7")
    assert await found(plangate) == [f"{record['id']} (record 1 of thread {made}) was changed: body_bytes"]


async def test_long_chains_are_read_in_pages(plangate: World, thread: str, owner: asyncpg.Connection) -> None:
    assert await found(plangate, rows_per_page=2) == []
    await tamper(owner, "DELETE FROM artifacts WHERE n = 3")
    assert await found(plangate, rows_per_page=2) == [f"record 3 was removed from thread {thread}"]


class Meanwhile:
    """A database in which something happens before its nth transaction."""

    def __init__(self, db: Database, n: int, happens: Callable[[], Awaitable[object]]) -> None:
        self._db, self._left, self._happens = db, n, happens

    async def call(self, statement: str, *args: Any) -> list[Any]:
        return await self._db.call(statement, *args)

    @contextlib.asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[Tx]:
        self._left -= 1
        if self._left == 0:
            await self._happens()
        async with self._db.transaction(tenant) as tx:
            yield tx


@pytest.mark.parametrize("n", [2, 3, 4])
async def test_concurrent_publications_and_deletions_are_no_problem(
    plangate: World, api: Caller, thread: str, n: int
) -> None:
    services = plangate.services
    for happens in (lambda: publish(api, thread, 2), lambda: api.delete(f"/threads/{thread}")):
        told: Any = Meanwhile(services.db, n, happens)
        assert [p async for p in problems(told, services.chainer, {}, rows_per_page=2)] == []


async def test_many_chains_and_tombstones_are_read_in_pages(
    plangate: World, api: Caller, owner: asyncpg.Connection
) -> None:
    threads = sorted([str((await api.do("/threads", {}))["id"]) for _ in range(5)])
    for thread in threads:
        await publish(api, thread, 1)
    services = plangate.services
    assert list((await heads(services.db, 2))["acme"]) == threads
    changed = "UPDATE artifacts SET channel = 'patch' WHERE thread_id = '{}'"
    await tamper(owner, *(changed.format(thread) for thread in threads[2:]))
    told = await found(plangate, rows_per_page=2)
    assert [text.split()[5] for text in told] == [f"{thread})" for thread in threads[2:]]
    for thread in threads:
        good(await api.delete(f"/threads/{thread}"))
    assert await found(plangate, rows_per_page=2) == []
    await tamper(owner, "UPDATE artifact_tombstones SET n = 7")
    assert await found(plangate, rows_per_page=2) == [
        f"the tombstone of thread {thread} was not made by the service" for thread in threads
    ]


KEY = "s" * 40


async def command(site: Deployment, *arguments: str) -> tuple[int, str]:
    env = {**plain_environment(), "DATABASE_URL": site.dsn, "PLANGATE_SECRET_KEY": KEY}
    done = await asyncio.to_thread(partial(run, "app", "verify", *arguments, env=env))
    return done.returncode, done.stdout + done.stderr


async def test_the_operator_verifies_exports_and_compares(
    cluster: Cluster, site: Deployment, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    with_key = replace(site, master=derive_key(KEY.encode(), "master"))
    async with world(with_key, cluster.operator_key) as running:
        await running.tenant("fresh")  # those of the template are sealed under another key
        api = running.operator("fresh")
        thread = str((await api.do("/threads", {}))["id"])
        await publish(api, thread, 3)
    file = str(tmp_path / "heads.json")
    assert await command(site, "--export", file) == (
        0,
        "Verified 1 chain: every record is as the service wrote it.\n"
        f"Where they end is in {file}. Keep it where those who can write to the database cannot.\n",
    )
    await tamper(
        owner,
        "DELETE FROM artifacts WHERE n > 1",
        "UPDATE artifact_chains SET n = 1, mac = (SELECT mac FROM artifacts WHERE n = 1)",
    )
    assert await command(site) == (0, "Verified 1 chain: every record is as the service wrote it.\n")
    cut = f"fresh: records 2 to 3 were removed from the end of thread {thread}: the exported head has 3\n"
    assert await command(site, "--against", file) == (1, f"{cut}Problems: 1, in 1 chain.\n")
    other = str(tmp_path / "other.json")
    said = await command(site, "--against", file, "--export", other)
    assert said == (1, f"{cut}Problems: 1, in 1 chain. Nothing was exported.\n")
    assert os.listdir(tmp_path) == ["heads.json"]
    refused = await command(site, "--against", __file__)
    assert refused == (
        1,
        "plangate: The file is damaged or was not written by `plangate verify --export`: use an intact export.\n",
    )
    nowhere = str(tmp_path / "none" / "heads.json")
    for option in ("--against", "--export"):
        assert await command(site, option, nowhere) == (
            1,
            f"plangate: {nowhere} cannot be used: No such file or directory.\n",
        )
    await tamper(
        owner, "UPDATE artifacts SET id = 'art_' || chr(27) || '[2J' || chr(10) || 'Verified 1 chain'"
    )
    status, said = await command(site)
    assert status == 1
    assert said.startswith(r"fresh: art_\x1b[2J Verified 1 chain (record 1 of thread ")
    assert said.count("\n") == 2


def test_a_file_that_is_not_an_export_is_rejected() -> None:
    for file in (b"", b"[]", b'{"heads": {}}', b'{"version": 1, "heads": []}'):
        with pytest.raises(Invalid, match=r"^The file is damaged or was not written by "):
            read_exported_heads(file)
    with pytest.raises(Invalid, match=r"^The file is damaged or was not written by"):
        read_exported_heads(b'{"version": 1, "heads": {"a": {"t": {"n": "x"}}}}')
    with pytest.raises(Invalid, match=r"^These heads were exported by another version of Plangate"):
        read_exported_heads(b'{"version": 99, "heads": {}}')


def test_a_failed_export_keeps_the_previous_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "heads.json"
    write_atomically(file, b"first")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left") as caught:
        patched.setattr(os, "fsync", full)
        write_atomically(file, b"second")
    assert caught.value.filename == str(file)
    assert (file.read_bytes(), os.listdir(tmp_path)) == (b"first", ["heads.json"])
    write_atomically(file, b"third")
    assert (file.read_bytes(), os.listdir(tmp_path)) == (b"third", ["heads.json"])
    write_atomically(Path(os.devnull), b"nothing to be replaced")
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("/{name}?", "/nowhere?", 'database "nowhere" does not exist'),
        ("//{user}@", "//nobody:secret@", 'password authentication failed for user "nobody"'),
    ],
    ids=["database", "role"],
)
async def test_a_rejected_login_is_reported_in_one_line(
    site: Deployment, right: str, wrong: str, told: str
) -> None:
    """Every command of the service says it so, and no password."""
    at = urlsplit(site.dsn)
    right = right.format(name=at.path[1:], user=at.username)
    assert right in site.dsn
    other = replace(site, dsn=site.dsn.replace(right, wrong))
    assert await command(other) == (
        1,
        f"plangate: the database of DATABASE_URL rejected this process: {told}.\n",
    )
