"""How many rows lists of files read from the database."""

from __future__ import annotations

import hashlib

import asyncpg

from app.artifacts import store as artifacts
from app.workspace import store
from tests.postgres.artifacts.test_artifact_lists import rows_read
from tests.support.client import Caller, good
from tests.support.world import World

GONE = 20_000
OTHERS = 40_000
COUNT = 2_000
VERSIONS = """
INSERT INTO workspace_versions (tenant_id, thread_id, path, version, digest, size_bytes, media_type, written_by)
SELECT 'acme', $1, 'inbox/' || lpad(n::text, 9, '0'), 2, $3, 0, 'text/plain', 'host' FROM generate_series(1, $2::int) n
"""
FILES = """
INSERT INTO workspace_files (tenant_id, thread_id, path, version, skeleton, deleted)
SELECT tenant_id, thread_id, path, version, path, digest IS NULL FROM workspace_versions WHERE version = 2
"""


async def test_deleted_files_do_not_slow_lists(
    plangate: World, api: Caller, owner: asyncpg.Connection
) -> None:
    thread, other = [str((await api.do("/threads", {}))["id"]) for _ in range(2)]
    for path in ("inbox/0", "inbox/1", "inbox/z", "z"):
        good(await api.request("PUT", f"/threads/{thread}/files/{path}", content=b"x"))
    good(await api.request("PUT", f"/threads/{other}/files/x", content=b"x"))
    await owner.execute(VERSIONS, thread, GONE, None)
    await owner.execute(VERSIONS, other, OTHERS, hashlib.sha256(b"x").digest())
    await owner.execute(FILES)
    await owner.execute("ANALYZE workspace_files, workspace_versions")
    for sql, args in (
        (store.LIST, ("", None, "", 51)),
        (store.LIST, ("inbox/", store.prefix_end("inbox/"), "inbox/0", 51)),
        (store.BELOW, ("inbox/00", "inbox/01")),
        (store.ALIKE, (["inbox", "inbox/new"], ["inbox", "inbox/new"])),
        (store.ALIKE, (["іnbox", "іnbox/new"], ["inbox", "inbox/new"])),
    ):
        assert await rows_read(plangate, sql, "acme", thread, *args) <= 10, (sql, args)
    for read_directories in (False, True):
        at = ([thread], ["inbox"], [True], read_directories)
        assert await rows_read(plangate, artifacts.PRESENT, "acme", *at) <= 10


async def test_a_new_workspace_is_listed_once(
    plangate: World, api: Caller, owner: asyncpg.Connection
) -> None:
    """Before the database counted it, too: five thousand files took four seconds, as long as a transaction has."""
    thread, fork = [str((await api.do("/threads", {}))["id"]) for _ in range(2)]
    for at in (thread, fork):
        good(await api.request("PUT", f"/threads/{at}/files/x", content=b"x"))
    await owner.execute(VERSIONS, thread, COUNT, hashlib.sha256(b"x").digest())
    await owner.execute(FILES)
    for sql, args in (
        (artifacts.PRESENT, ([thread], ["inbox"], [True], True)),
        (artifacts.PRESENT, ([thread] * 500, ["x"] * 500, [False] * 500, False)),
        (store.LIST, (thread, "", None, "", COUNT)),
        (
            store.FORK.replace("ORDER BY path, version DESC", "AND path <> 'x' ORDER BY path, version DESC"),
            (thread, fork, None, False),
        ),
    ):
        assert await rows_read(plangate, sql, "acme", *args) <= 4 * COUNT, sql
