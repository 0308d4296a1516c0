"""Files of threads: rows over immutable bodies, over HTTP and in the database."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from app.api.http import create_app
from app.base.blobs.local import LocalBlobs
from app.base.blobs.store import StoreUnavailable
from app.workspace.models import FileAuthor, WorkspaceLimits
from app.workspace.service import Workspaces
from tests.support.client import Caller, eventually, good, refused
from tests.support.world import World

NO_THREAD = "thr_" + "0" * 26


async def thread(api: Caller, key: str = "t") -> str:
    return str((await api.do("/threads", {"threadKey": key}))["id"])


@pytest.fixture
async def at(api: Caller) -> str:
    return f"/threads/{await thread(api)}/files"


async def put(api: Caller, path: str, data: bytes, **parts: Any) -> Any:
    return await api.request("PUT", path, content=data, **parts)


def digest(data: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}


def bodies(world: World) -> list[Path]:
    root = Path(world.site.blobs)
    return [p for p in root.rglob("*") if p.is_file()]


async def test_a_file_is_written_read_and_deleted(api: Caller, at: str) -> None:
    first = await put(api, f"{at}/notes/today.md", b"# one\n")
    assert (first.status_code, first.headers["location"]) == (201, f"{at}/notes/today.md")
    row = first.json()
    assert row == {
        "threadId": at.split("/")[2],
        "path": "notes/today.md",
        "version": 1,
        "sizeBytes": 6,
        "digest": digest(b"# one\n"),
        "mediaType": "text/markdown",
        "workId": None,
        "queryId": None,
        "writtenBy": "operator",
        "forkedFrom": None,
        "at": row["at"],
    }
    again = await put(api, f"{at}/notes//./today.md", b"# one\n")
    assert (again.status_code, again.json()) == (200, row)  # what was there: no new version
    second = await put(
        api, f"{at}/notes/today.md", b"# two\n", headers={"content-type": "text/plain; charset=x"}
    )
    assert (second.status_code, second.json()["version"], second.json()["mediaType"]) == (
        200,
        2,
        "text/plain",
    )
    for params, body, version in (({}, b"# two\n", "2"), ({"version": 1}, b"# one\n", "1")):
        found = await api.get(f"{at}/notes/today.md", **params)
        assert (found.status_code, found.content) == (200, body)
        assert found.headers["plangate-file-version"] == version
        assert found.headers["etag"] == f'"{hashlib.sha256(body).hexdigest()}"'
        assert found.headers["content-type"] == "application/octet-stream"
        assert found.headers["content-disposition"] == "attachment"
        assert found.headers["x-content-type-options"] == "nosniff"
    gone = good(await api.delete(f"{at}/notes/today.md"))
    assert (gone["version"], gone["digest"], gone["sizeBytes"]) == (3, None, 0)
    body = refused(await api.get(f"{at}/notes/today.md"), 404, "not_found")
    assert body["detail"] == "There is no file 'notes/today.md' in the workspace."
    refused(await api.delete(f"{at}/notes/today.md"), 404)
    refused(await api.get(f"{at}/notes/today.md", version=3), 404)
    assert (await api.get(f"{at}/notes/today.md", version=2)).content == b"# two\n"
    back = await put(api, f"{at}/notes/today.md", b"# two\n")
    assert (back.status_code, back.json()["version"]) == (201, 4)


async def test_files_are_listed_by_path_in_pages(api: Caller, at: str) -> None:
    named = ["a.txt", "tasks/1/x", "tasks/1/y", "tasks/10", "tasks/2/x", "tasks-old", "é.txt"]
    for path in reversed(named):
        good(await put(api, f"{at}/{path}", path.encode()))
    good(await api.delete(f"{at}/tasks/1/y"))
    named.remove("tasks/1/y")

    async def listed(**params: Any) -> list[str]:
        found, cursor = [], {}
        while True:
            page = await api.read(at, limit=2, **params, **cursor)
            found += [row["path"] for row in page["items"]]
            if page["nextCursor"] is None:
                return found
            cursor = {"cursor": page["nextCursor"]}

    assert await listed() == sorted(named)
    assert await listed(prefix="tasks/") == ["tasks/1/x", "tasks/10", "tasks/2/x"]
    assert await listed(prefix="tasks/1") == ["tasks/1/x", "tasks/10"]
    assert await listed(prefix="tasks/1/") == ["tasks/1/x"]
    assert await listed(prefix="nothing") == []
    refused(await api.get(at, prefix="../"), 422, "path_not_allowed")
    refused(await api.get(f"/threads/{NO_THREAD}/files"), 404)
    body = refused(await api.get(f"{at}/tasks/1"), 404)
    assert body["detail"] == "'tasks/1' is a directory: list it with the prefix 'tasks/1/'."


@pytest.mark.parametrize(
    "path",
    ["..%2f..%2fetc%2fpasswd", "a/%2e%2e/%2e%2e/b", "/etc/passwd", "%2Fetc", "a%5Cb", "a%00b", "%EF%BC%8E.",
     "a%FFb", "", "x" * 300, "a%E2%80%AEb"],
)  # fmt: skip
async def test_paths_cannot_leave_the_workspace(plangate: World, api: Caller, at: str, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = await api.request(method, f"{at}/{path}", content=b"x" if method == "PUT" else None)
        body = refused(answer, 422, "path_not_allowed")
        assert " is not allowed: " in body["detail"]
    assert await plangate.sql("SELECT 1 FROM workspace_versions") == []
    assert bodies(plangate) == []


async def test_taken_and_look_alike_names_are_rejected(api: Caller, at: str) -> None:
    good(await put(api, f"{at}/report/copy", b"x"))
    for path, why in (
        ("report", "it is a directory, with 'report/copy' in it"),
        ("report/copy/x", "'report/copy' is a file, and nothing can be below it"),
        ("report/сору", "it looks like 'report/copy', which is there already"),
    ):
        body = refused(await put(api, f"{at}/{path}", b"y"), 422, "path_not_allowed")
        assert body["detail"].endswith(f" is not allowed: {why}.")
    good(await api.delete(f"{at}/report/copy"))
    good(await put(api, f"{at}/report", b"y"))
    assert [row["path"] for row in (await api.read(at))["items"]] == ["report"]


async def test_a_look_alike_directory_is_rejected(api: Caller, at: str) -> None:
    """Whoever lists, globs or publishes one of them would take it for the other."""
    for path in ("report/copy/x", "plan/a.md", "сор", "ok/о/1"):
        good(await put(api, f"{at}/{path}", b"x"))
    for path, why in (
        ("report/сору/y", r"its directory 'report/\u0441\u043e\u0440\u0443' looks like 'report/copy'"),
        ("report/сору", "it looks like 'report/copy'"),
        ("рlan/b.md", None),  # a word of two scripts
        ("cop/y", r"its directory 'cop' looks like '\u0441\u043e\u0440'"),
        ("ok/o/1/2", r"its directory 'ok/o' looks like 'ok/\u043e'"),
    ):
        body = refused(await put(api, f"{at}/{path}", b"y"), 422, "path_not_allowed")
        if why is not None:
            assert body["detail"].endswith(f" is not allowed: {why}, which is there already."), body
    for path in ("report/copy/y", "report/copy/сору", "ok/о/2", "other/сору/y"):
        good(await put(api, f"{at}/{path}", b"y"))
    good(await api.delete(f"{at}/report/copy/x"))
    refused(await put(api, f"{at}/report/сору/y", b"y"), 422, "path_not_allowed")
    for path in ("report/copy/y", "report/copy/сору"):
        good(await api.delete(f"{at}/{path}"))
    good(await put(api, f"{at}/report/сору/y", b"y"))


async def test_tenants_and_threads_are_apart(plangate: World, api: Caller, at: str) -> None:
    good(await put(api, f"{at}/a", b"same"))
    other_thread = f"/threads/{await thread(api, 'two')}/files"
    assert (await api.read(other_thread))["items"] == []
    refused(await api.get(f"{other_thread}/a"), 404)
    for method, path in (("GET", f"{at}/a"), ("GET", at), ("PUT", f"{at}/a"), ("DELETE", f"{at}/a")):
        content = b"same" if method == "PUT" else None
        theirs = refused(await plangate.other.request(method, path, content=content), 404)
        none = refused(
            await plangate.other.request(method, path.replace(at.split("/")[2], NO_THREAD), content=content),
            404,
        )
        assert theirs["detail"].replace(at.split("/")[2], NO_THREAD) == none["detail"]
    assert len(bodies(plangate)) == 1
    for table in ("blobs", "workspaces", "workspace_files", "workspace_versions"):
        assert await plangate.sql(f"SELECT 1 FROM {table}", tenant="other") == []
    for statement in (
        "UPDATE workspace_versions SET size_bytes = 0",
        "DELETE FROM workspace_versions",
        "DELETE FROM workspace_files",
        "UPDATE blobs SET size_bytes = 0",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await plangate.sql(statement)
    reader = await plangate.key("read")
    assert (await reader.get(f"{at}/a")).content == b"same"
    refused(await put(reader, f"{at}/b", b"x"), 403)
    refused(await reader.delete(f"{at}/a"), 403)
    writer = await plangate.key("data:write", principal="cat")
    assert good(await put(writer, f"{at}/b", b"x"))["writtenBy"] == "cat"
    refused(await writer.get(f"{at}/b"), 403)
    refused(await put(Caller(plangate.http, None), f"{at}/b", b"x"), 401)


async def test_each_tenant_has_its_own_copy_of_a_body(plangate: World, api: Caller, at: str) -> None:
    """Who can see that a body is there already would learn what others have."""
    good(await put(api, f"{at}/a", b"same"))
    good(await put(api, f"{at}/b", b"same"))
    theirs = f"/threads/{await thread(plangate.other)}/files/a"
    good(await put(plangate.other, theirs, b"same"))
    first, second = bodies(plangate)
    assert (first.name, first.read_bytes()) == (second.name, second.read_bytes())
    await plangate.services.workspaces.blobs.delete("acme", hashlib.sha256(b"same").digest())
    refused(await api.get(f"{at}/a"), 503, "blob_lost")
    assert (await plangate.other.get(theirs)).content == b"same"


async def test_writers_of_one_file_are_ordered_and_readers_see_whole_versions(api: Caller, at: str) -> None:
    texts = [bytes([65 + n]) * 200_000 for n in range(8)]
    rows = await asyncio.gather(*(put(api, f"{at}/f", text) for text in texts))
    assert sorted(row.json()["version"] for row in rows) == list(range(1, 9))
    assert [row.status_code for row in rows].count(201) == 1
    by_version = {row.json()["version"]: text for row, text in zip(rows, texts, strict=True)}
    for version, text in by_version.items():
        assert (await api.get(f"{at}/f", version=version)).content == text
    assert (await api.get(f"{at}/f")).content == by_version[8]


async def test_a_body_that_is_cut_off_writes_nothing(plangate: World, api: Caller, at: str) -> None:
    good(await put(api, f"{at}/f", b"old"))

    async def cut() -> AsyncIterator[bytes]:
        yield b"new" * 100_000
        raise ConnectionError("the client left")

    with pytest.raises(ConnectionError):
        await api.request("PUT", f"{at}/f", content=cut())
    assert (await api.get(f"{at}/f")).content == b"old"
    assert len(bodies(plangate)) == 1


@pytest.mark.limits(workspaces=WorkspaceLimits(file_bytes=100, files=2, bytes=150))
async def test_exceeding_a_limit_is_a_clear_error_without_effect(
    plangate: World, api: Caller, at: str
) -> None:
    good(await put(api, f"{at}/a", b"x" * 100))
    body = refused(await put(api, f"{at}/b", b"x" * 101), 413, "file_too_large")
    assert body["detail"] == "A file may have at most 100 bytes; nothing was written."

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 60

    refused(await api.request("PUT", f"{at}/b", content=endless()), 413, "file_too_large")
    body = refused(await put(api, f"{at}/b", b"x" * 51), 409, "workspace_full")
    assert body["detail"].startswith(
        "With 'b' the workspace would have 151 bytes, more than 150; it was not written."
    )
    good(await put(api, f"{at}/b", b"x" * 50))
    body = refused(await put(api, f"{at}/c", b""), 409, "workspace_full")
    assert body["detail"].startswith("The workspace has the maximum of 2 files; 'c' was not written.")
    good(await put(api, f"{at}/a", b"y" * 100))  # in the place of what it had
    good(await api.delete(f"{at}/a"))
    good(await put(api, f"{at}/c", b"z" * 100))
    assert await plangate.value("SELECT (files, bytes)::text FROM workspaces") == "(2,150)"


async def test_a_broken_upload_leaves_nothing(plangate: World, api: Caller, at: str) -> None:
    app = create_app(plangate.services)

    async def cut_off(scope: Any, receive: Any, send: Any) -> None:
        messages = iter([{"type": "http.request", "body": b"x" * 100, "more_body": True}])

        async def receive_part() -> Any:
            return next(messages, {"type": "http.disconnect"})

        await app(scope, receive_part, send)

    http = httpx.AsyncClient(transport=httpx.ASGITransport(cut_off), base_url="http://plangate")
    for path, params in ((f"{at}/f", {}), ("/artifacts/design/f", {"threadId": at.split("/")[2]})):
        answer = await http.request("PUT", path, params=params, headers=api.headers)
        body = refused(answer, 400, "malformed")
        assert body["detail"] == "The body was not sent to its end; nothing was written."
    assert (await api.read(at))["items"] == []
    assert bodies(plangate) == []
    assert not plangate.services.workspaces._upload_bytes


@pytest.mark.limits(workspaces=WorkspaceLimits(file_bytes=100, files=9, bytes=150))
async def test_uploads_in_progress_have_their_own_limit(plangate: World, api: Caller, at: str) -> None:
    """It is on the disk before it is counted as stored."""
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"x" * 99
        began.set()
        await go_on.wait()
        yield b"y"

    uploading = asyncio.create_task(api.request("PUT", f"{at}/slow", content=slowly()))
    await began.wait()
    good(await put(api, f"{at}/a", b"z" * 50))
    answer = await put(api, f"{at}/b", b"z" * 60)
    body = refused(answer, 429, "too_many_requests")
    assert body["detail"] == (
        "The tenant's uploads in progress have reached the maximum of 150 bytes; nothing was written. Retry when "
        "others have finished."
    )
    assert answer.headers["retry-after"] == "1"
    theirs = f"/threads/{await thread(plangate.other)}/files"
    good(await put(plangate.other, f"{theirs}/b", b"z" * 60))
    go_on.set()
    good(await uploading)
    good(await put(api, f"{at}/a", b"z" * 49))
    good(await api.delete(f"{at}/slow"))
    good(await put(api, f"{at}/b", b"z" * 60))
    assert not plangate.services.workspaces._upload_bytes


async def test_the_byte_limit_covers_all_versions(plangate: World, owner: asyncpg.Connection) -> None:
    await plangate.tenant("small", bytes=250)
    api = plangate.operator("small")
    at, used = (
        f"/threads/{await thread(api)}/files",
        "SELECT blob_bytes FROM tenants WHERE tenant_id = 'small'",
    )
    good(await put(api, f"{at}/a", b"x" * 100))
    good(await put(api, f"{at}/b", b"x" * 100))  # the same body: it is there once
    good(await put(api, f"{at}/a", b"y" * 150))
    assert await owner.fetchval(used) == 250
    body = refused(await put(api, f"{at}/a", b"z"), 409, "storage_full")
    assert body["detail"] == (
        "With this file, all versions of the tenant's files would have 251 bytes, more than 250; nothing was "
        "written. Delete threads, or ask the operator to raise the limit."
    )
    upload = await api.request("PUT", "/artifacts/x/a", params={"threadId": at.split("/")[2]}, content=b"z")
    refused(upload, 409, "storage_full")
    assert (await api.get(f"{at}/a")).content == b"y" * 150
    assert (await owner.fetchval(used), len(bodies(plangate))) == (250, 2)
    good(await put(api, f"{at}/c", b"x" * 100))
    good(
        await put(plangate.api, f"/threads/{await thread(plangate.api)}/files/a", b"z")
    )  # others have their own room
    await owner.execute("DELETE FROM workspace_files WHERE path = 'a'")
    await owner.execute("DELETE FROM workspace_versions WHERE path = 'a'")
    await owner.execute("UPDATE blobs SET named = false")
    await age(owner, 25)
    await plangate.services.workspaces.collect()
    assert await owner.fetchval(used) == 100  # what is collected makes room
    good(await put(api, f"{at}/a", b"z" * 150))


async def test_concurrent_writers_are_counted_once_each(plangate: World, owner: asyncpg.Connection) -> None:
    await plangate.tenant("small", bytes=1000)
    api = plangate.operator("small")
    at = f"/threads/{await thread(api)}/files"
    texts = [bytes([65 + n % 15]) * 100 for n in range(30)]  # each of fifteen bodies twice
    answers = await asyncio.gather(*(put(api, f"{at}/{n}", text) for n, text in enumerate(texts)))
    stored = {text for answer, text in zip(answers, texts, strict=True) if answer.status_code == 201}
    assert {a.status_code for a in answers} == {201, 409}
    assert len(stored) == 10
    assert await owner.fetchval("SELECT blob_bytes FROM tenants WHERE tenant_id = 'small'") == 1000


async def test_a_fork_copies_current_or_earlier_rows(plangate: World, api: Caller, at: str) -> None:
    origin = at.split("/")[2]
    good(await put(api, f"{at}/a", b"one"))
    good(await put(api, f"{at}/gone", b"gone"))
    services = plangate.services
    before = (await api.do(f"/threads/{origin}/fork", {}))["id"]
    good(await put(api, f"{at}/a", b"two"))
    good(await api.delete(f"{at}/gone"))
    now = (await api.do(f"/threads/{origin}/fork", {}))["id"]
    nothing = (await api.do(f"/threads/{origin}/fork", {"at": 0}))["id"]
    assert (await api.read(f"/threads/{nothing}/files"))["items"] == []
    held = (await api.read(f"/threads/{now}/files"))["items"]
    assert [(r["path"], r["version"], r["forkedFrom"]) for r in held] == [("a", 2, origin)]
    assert (await api.get(f"/threads/{before}/files/a")).content == b"one"
    assert (await api.get(f"/threads/{before}/files/gone")).content == b"gone"
    good(await put(api, f"/threads/{now}/files/a", b"three"))
    assert (await api.get(f"{at}/a")).content == b"two"
    assert (await api.get(f"/threads/{now}/files/a")).headers["plangate-file-version"] == "3"
    assert len(bodies(plangate)) == 4  # bodies are not copied
    assert await services.workspaces.collect() == 0


async def test_a_fork_copies_the_skeletons_of_paths(
    plangate: World, api: Caller, at: str, owner: asyncpg.Connection
) -> None:
    """Computing those of ten thousand long paths blocked the event loop for seconds."""
    for path in ("report/copy", "gone", "marked"):
        good(await put(api, f"{at}/{path}", b"xyz"))
    good(await api.delete(f"{at}/gone"))
    await owner.execute("UPDATE workspace_files SET skeleton = 'mark' WHERE path = 'marked'")
    fork = (await api.do(f"{at.removesuffix('/files')}/fork", {}))["id"]
    skeleton = "SELECT skeleton FROM workspace_files WHERE thread_id = $1 AND path = 'marked'"
    assert await plangate.value(skeleton, fork) == "mark"
    good(await api.delete(f"/threads/{fork}/files/marked"))
    body = refused(await put(api, f"/threads/{fork}/files/report/сору", b"y"), 422, "path_not_allowed")
    assert body["detail"].endswith("it looks like 'report/copy', which is there already.")
    counted = "SELECT (files, bytes)::text FROM workspaces WHERE thread_id = $1"
    assert await plangate.value(counted, fork) == "(1,3)"
    empty = await thread(api, "empty")
    fork = (await api.do(f"/threads/{empty}/fork", {}))["id"]
    assert await plangate.value(counted, fork) == "(0,0)"


async def test_a_fork_at_a_write_of_the_state_has_the_files_of_that_moment(
    plangate: World, api: Caller, at: str, owner: asyncpg.Connection
) -> None:
    origin = at.split("/")[2]
    good(await put(api, f"{at}/a", b"before"))
    await owner.execute("UPDATE workspace_versions SET at = now() - interval '2 hours'")
    await owner.execute(
        "INSERT INTO documents (tenant_id, owner_id, kind, thread_id, base, body, head) "
        "VALUES ('acme', $1, 'state', $1, '{}', '{\"n\":1}', 1)",
        origin,
    )
    await owner.execute(
        "INSERT INTO document_writes (tenant_id, owner_id, kind, n, path, method, value, size_bytes, glimpse, work_id, at) "
        "VALUES ('acme', $1, 'state', 1, '†state.n', 'set', '1', 1, '1', 'wrk_1', now() - interval '1 hour')",
        origin,
    )
    good(await put(api, f"{at}/a", b"after"))
    made = (await api.do(f"/threads/{origin}/fork", {"at": 1}))["id"]
    assert (await api.get(f"/threads/{made}/files/a")).content == b"before"


# -- bodies


async def age(owner: asyncpg.Connection, hours: int) -> None:
    await owner.execute("UPDATE blobs SET used_at = now() - make_interval(hours => $1)", hours)


async def test_unreferenced_bodies_are_collected_after_a_day(
    plangate: World, api: Caller, at: str, owner: asyncpg.Connection
) -> None:
    workspaces = plangate.services.workspaces
    good(await put(api, f"{at}/a", b"one"))
    good(await put(api, f"{at}/a", b"two"))
    await workspaces.keep("acme", b"never named")
    await age(owner, 23)
    assert (await workspaces.collect(), len(bodies(plangate))) == (0, 3)
    await age(owner, 25)
    two = "SELECT count(*) = 2 FROM blobs"  # the row goes after the body
    await eventually(lambda: plangate.value(two), "the worker collects it")
    assert len(bodies(plangate)) == 2
    assert (await api.get(f"{at}/a", version=1)).content == b"one"  # a version is a name
    await owner.execute("UPDATE blobs SET named = false")  # as if the mark had been lost
    await workspaces.collect()
    assert await plangate.value("SELECT count(*) FROM blobs WHERE named") == 2
    assert len(bodies(plangate)) == 2


class SlowBlobs(LocalBlobs):
    """Waits before it deletes."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.deleting, self.go_on = asyncio.Event(), asyncio.Event()

    async def delete(self, tenant: str, digest: bytes) -> None:
        self.deleting.set()
        await self.go_on.wait()
        await super().delete(tenant, digest)


async def test_a_body_written_during_collection_survives(idle: World, owner: asyncpg.Connection) -> None:
    api, blobs = idle.api, SlowBlobs(Path(idle.site.blobs))
    thread_id = await thread(api)
    collector = Workspaces(idle.services.db, blobs)
    await collector.keep("acme", b"wanted again")
    await age(owner, 25)
    collecting = asyncio.create_task(collector.collect())
    await blobs.deleting.wait()
    writing = asyncio.create_task(put(api, f"/threads/{thread_id}/files/a", b"wanted again"))
    locked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    await eventually(lambda: owner.fetchval(locked), "the writer waits for the collector")
    blobs.go_on.set()
    assert await collecting == 1
    good(await writing)
    assert (await api.get(f"/threads/{thread_id}/files/a")).content == b"wanted again"


class NoAnswer(LocalBlobs):
    """Deletes, but for one body, which it deletes when it likes and says nothing of."""

    def __init__(self, root: Path, late: bytes) -> None:
        super().__init__(root)
        self.late = late

    async def delete(self, tenant: str, digest: bytes) -> None:
        if digest == self.late:
            raise StoreUnavailable("The blob store is unavailable: it does not answer.")
        await super().delete(tenant, digest)


async def test_a_body_that_cannot_be_deleted_is_retried_last(idle: World, owner: asyncpg.Connection) -> None:
    workspaces = Workspaces(idle.services.db, NoAnswer(Path(idle.site.blobs), hashlib.sha256(b"0").digest()))
    for n in range(3):
        await workspaces.keep("acme", str(n).encode())
        await owner.execute("UPDATE blobs SET used_at = used_at - interval '25 hours'")
    order = "UPDATE blobs SET used_at = used_at - interval '1 hour' WHERE digest = $1"
    await owner.execute(order, hashlib.sha256(b"0").digest())
    with pytest.raises(StoreUnavailable):
        await workspaces.collect()
    assert await workspaces.collect() == 2
    assert await owner.fetchval("SELECT count(*) FROM blobs") == 1
    await age(owner, 25)
    with pytest.raises(StoreUnavailable):
        await workspaces.collect()


async def test_a_body_with_a_pending_deletion_is_not_reused(idle: World, owner: asyncpg.Connection) -> None:
    """Who deletes has had no answer: the store may do it when the same body has been kept again."""
    api, late = idle.api, hashlib.sha256(b"late").digest()
    workspaces = Workspaces(idle.services.db, NoAnswer(Path(idle.site.blobs), late))
    thread_id = await thread(api)
    await workspaces.keep("acme", b"late")
    await age(owner, 25)
    with pytest.raises(StoreUnavailable):
        await workspaces.collect()
    for _ in range(2):
        asked = await put(api, f"/threads/{thread_id}/files/a", b"late")
        refused(asked, 503, "store_unavailable")
        assert asked.headers["retry-after"] == "60"
    await LocalBlobs(Path(idle.site.blobs)).delete("acme", late)
    await age(owner, 0)  # a minute later
    good(await put(api, f"/threads/{thread_id}/files/a", b"late"))
    assert (await api.get(f"/threads/{thread_id}/files/a")).content == b"late"


async def test_a_lost_body_is_reported(plangate: World, api: Caller, at: str) -> None:
    good(await put(api, f"{at}/a", b"body"))
    (path,) = bodies(plangate)
    outside = path.parent.parent.parent.parent / "outside"
    outside.write_bytes(b"body")
    path.unlink()
    os.symlink(outside, path)
    body = refused(await api.get(f"{at}/a"), 503, "blob_lost")
    name = hashlib.sha256(b"body").hexdigest()
    assert body["detail"].startswith(f"The stored body {name} is missing. The operator must restore it")
    good(await put(api, f"{at}/b", b"body"))  # written again it is there again, and the link is gone
    assert (await api.get(f"{at}/a")).content == b"body"
    assert not path.is_symlink()
    assert outside.read_bytes() == b"body"


async def test_an_unavailable_store_is_a_503(plangate: World, api: Caller, at: str) -> None:
    good(await put(api, f"{at}/a", b"body"))
    _in_the_way(Path(plangate.site.blobs))
    body = refused(await put(api, f"{at}/b", b"x"), 503, "store_unavailable")
    assert body["detail"].startswith("The blob store is unavailable: ")
    refused(await api.get(f"{at}/a"), 503, "store_unavailable")
    refused(await api.get(f"{at}/b"), 404)


def _in_the_way(root: Path) -> None:
    """A file in the place of the directory."""
    shutil.rmtree(root)
    root.write_bytes(b"")


async def test_one_call_writes_one_version(plangate: World, api: Caller, at: str) -> None:
    workspaces, db, thread_id = plangate.services.workspaces, plangate.services.db, at.split("/")[2]
    one, two = [await workspaces.keep("acme", data) for data in (b"one", b"two")]
    author = FileAuthor("solo", "wrk_1", "qry_1")
    async with db.transaction("acme") as tx:
        first, new = await workspaces.write(tx, thread_id, "a", one, author)
    async with db.transaction("acme") as tx:  # after a crash
        again, still_new = await workspaces.write(tx, thread_id, "a", two, author)
    assert (first, new) == (again, still_new)
    assert (await api.get(f"{at}/a")).content == b"one"
