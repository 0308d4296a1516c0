"""Concurrent readers and writers of files see whole versions."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from app.artifacts.models import Publication
from app.artifacts.service import TargetMoved
from app.base.blobs.local import SPOOL_FOLDER, LocalBlobs
from app.base.blobs.store import PIECE_BYTES
from app.workspace import paths
from app.workspace.models import WorkspaceLimits
from app.workspace.service import Workspaces
from tests.postgres.workspace.test_workspaces import put, thread
from tests.support.client import Caller, eventually, good, refused
from tests.support.world import World

NONE_OPEN = """
SELECT NOT EXISTS (SELECT FROM pg_stat_activity
                    WHERE datname = current_database() AND state LIKE 'idle in transaction%')
"""


@pytest.fixture
async def at(api: Caller) -> str:
    return f"/threads/{await thread(api)}/files"


async def test_during_an_upload_readers_see_the_old_version(idle: World, owner: asyncpg.Connection) -> None:
    api = idle.api
    at = f"/threads/{await thread(api)}/files"
    good(await put(api, f"{at}/f", b"old"))
    seen: list[bytes] = []

    async def look() -> None:
        seen.append((await api.get(f"{at}/f")).content)
        await eventually(lambda: owner.fetchval(NONE_OPEN), "no transaction is open")

    async def slow() -> AsyncIterator[bytes]:
        yield b"new"
        await look()
        yield b" and whole"
        await look()

    whole = b"new and whole"
    for path, before in ((f"{at}/f", b"old"), (f"/artifacts/design/f?threadId={at.split('/')[2]}", whole)):
        seen.clear()
        good(await api.request("PUT", path, content=slow()))
        assert seen == [before] * 2
    for path in ("f", "artifacts/design/f"):
        assert (await api.get(f"{at}/{path}")).content == whole


async def test_a_started_read_completes_its_version(plangate: World, api: Caller, at: str) -> None:
    old, new = b"o" * (PIECE_BYTES + 1), b"n" * (PIECE_BYTES + 1)
    good(await put(api, f"{at}/f", old))
    workspaces = plangate.services.workspaces
    async with plangate.services.db.transaction("acme") as tx:
        row = await workspaces.get_file(tx, at.split("/")[2], paths.normalize("f"))
    pieces = workspaces.stream_body("acme", row.body)
    read = [await anext(pieces)]
    good(await put(api, f"{at}/f", new))
    good(await api.delete(f"{at}/f"))
    read += [piece async for piece in pieces]
    assert b"".join(read) == old


async def test_concurrent_readers_see_whole_versions_in_order(api: Caller, at: str) -> None:
    texts = {n: b"%d" % n * 300_000 for n in range(1, 10)}
    good(await put(api, f"{at}/f", texts[1]))
    done = asyncio.Event()

    async def write() -> None:
        for n in range(2, 10):
            good(await put(api, f"{at}/f", texts[n]))
        done.set()

    async def read() -> list[int]:
        versions = []
        while not done.is_set():
            found = await api.get(f"{at}/f")
            versions.append(int(found.headers["plangate-file-version"]))
            assert found.content == texts[versions[-1]]
        return versions

    *seen, _ = await asyncio.gather(read(), read(), write())
    for versions in seen:
        assert versions and versions == sorted(versions)


async def test_a_directory_is_not_a_file(api: Caller, at: str) -> None:
    """Whatever is asked of it."""
    good(await put(api, f"{at}/out/a", b"x"))
    told = "'out' is a directory: list it with the prefix 'out/'."
    for method in ("GET", "DELETE"):
        assert refused(await api.request(method, f"{at}/out"), 404, "not_found")["detail"] == told
        assert refused(await api.request(method, f"{at}/out/"), 404, "not_found")["detail"] == told
    body = refused(await put(api, f"{at}/out", b"y"), 422, "path_not_allowed")
    assert body["detail"].endswith("it is a directory, with 'out/a' in it.")
    assert (await api.get(f"{at}/out/a")).content == b"x"


async def test_a_directory_that_became_a_file_is_not_published(plangate: World, api: Caller, at: str) -> None:
    thread_id, artifacts = at.split("/")[2], plangate.services.artifacts
    good(await put(api, f"{at}/out/a", b"x"))
    target = await artifacts.prepare("acme", thread_id, "out")
    good(await api.delete(f"{at}/out/a"))
    good(await put(api, f"{at}/out", b"now a file"))
    with pytest.raises(TargetMoved):
        async with plangate.services.db.transaction("acme") as tx:
            producer = await artifacts.host(tx, thread_id)
            await artifacts.publish(tx, Publication("design", "out"), target, producer)
    assert (await api.read("/artifacts"))["items"] == []


async def test_changed_content_is_a_new_version(api: Caller, at: str) -> None:
    """Its bytes are the same: what they are said to be is a part of the version."""
    types = ("text/plain", "text/plain", "text/markdown")
    rows = [good(await put(api, f"{at}/f", b"x", headers={"content-type": kind})) for kind in types]
    assert [(row["version"], row["mediaType"]) for row in rows] == [
        (1, "text/plain"),
        (1, "text/plain"),
        (2, "text/markdown"),
    ]


@pytest.mark.limits(workspaces=WorkspaceLimits(files=2, bytes=100))
async def test_files_of_a_fork_are_counted_and_collected(plangate: World, api: Caller, at: str) -> None:
    good(await put(api, f"{at}/сору", b"x" * 60))
    fork = (await api.do(f"{at.removesuffix('/files')}/fork", {}))["id"]
    there = f"/threads/{fork}/files"
    body = refused(await put(api, f"{there}/b", b"x" * 41), 409, "workspace_full")
    assert body["detail"].startswith("With 'b' the workspace would have 101 bytes, more than 100")
    body = refused(await put(api, f"{there}/copy", b"x"), 422, "path_not_allowed")
    assert body["detail"].endswith(f"it looks like {'сору'!a}, which is there already.")
    good(await put(api, f"{there}/b", b"x" * 40))
    refused(await put(api, f"{there}/c", b""), 409, "workspace_full")
    good(await put(api, f"{at}/c", b""))  # the other one has room


@pytest.mark.parametrize(
    ("path", "name", "known"),
    [
        ("/threads/{thread}/files", "prefx", "cursor, limit, prefix"),
        ("/threads/{thread}/files/f", "verson", "version"),
        ("/artifacts/{artifact}/content", "pth", "path"),
    ],
)
async def test_a_misspelled_parameter_is_rejected(
    api: Caller, at: str, path: str, name: str, known: str
) -> None:
    """Else it would list too much, or give another version than the one that is meant."""
    good(await put(api, f"{at}/f", b"x"))
    thread_id = at.split("/")[2]
    made = await api.do("/artifacts", {"threadId": thread_id, "channel": "design", "path": "f"})
    asked = path.format(thread=thread_id, artifact=made["id"])
    assert (await api.get(asked)).status_code == 200
    body = refused(await api.get(asked, **{name: "1"}), 422, "invalid")
    assert body["errors"] == [
        {"pointer": f"query:{name}", "message": f"unknown parameter; expected one of: {known}"}
    ]


async def test_leftovers_of_broken_uploads_are_collected(
    idle: World,
) -> None:
    incoming = Path(idle.site.blobs) / SPOOL_FOLDER
    for name, hours in (("old", 25), ("new", 23)):
        (incoming / name).write_bytes(b"x")
        at = time.time() - hours * 3600
        os.utime(incoming / name, (at, at))
    await Workspaces(idle.services.db, LocalBlobs(Path(idle.site.blobs))).collect()
    assert [path.name for path in incoming.iterdir()] == ["new"]
