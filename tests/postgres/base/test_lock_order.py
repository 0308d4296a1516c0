"""Writes to a thread and its deletion do not deadlock."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support import specs
from tests.support.client import Caller, eventually, good, inner, output_of, refused


@asynccontextmanager
async def held(owner: asyncpg.Connection, sql: str, *args: Any) -> AsyncIterator[None]:
    """Somebody has these rows until the end of the block."""
    async with owner.transaction():
        await owner.execute(sql, *args)
        yield


async def waiting(
    owner: asyncpg.Connection, asked: Coroutine[Any, Any, httpx.Response], n: int
) -> asyncio.Task[Any]:
    """The request, once it is the n-th that waits for a lock."""
    made = asyncio.create_task(asked)
    sql = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"

    async def there() -> bool:
        assert not made.done()
        return bool(await owner.fetchval(sql) == n)

    await eventually(there, f"{n} wait for a lock")
    return made


async def test_a_claim_of_a_call_that_fails_does_not_deadlock_with_the_end_of_its_query(
    api: Caller, owner: asyncpg.Connection
) -> None:
    """The other transaction locks the query and then its calls, as a cancellation does. The call fails in the next
    claim."""
    seats = {"name": "Seats", "schema": {}}
    await api.register(specs.planning(references=[seats]))
    seat = await api.do("/references", {"kind": "Seats", "value": "1A"})
    named = {**specs.BOOK, "references": [{"kind": "Seats", "id": seat["id"]}]}
    query = (await api.submit(specs.store_and_execute({"actions": [named]})))["id"]
    await api.approve(query)
    await api.until(query, "waiting", "client_call")
    good(await api.delete(f"/references/Seats/{seat['id']}"))
    claim = {"tools": [{"name": "actions"}]}
    async with held(owner, "SELECT FROM queries WHERE id = $1 FOR NO KEY UPDATE", query):
        async with asyncio.timeout(3):
            assert await api.do("/tool-calls/claim", claim) == {"calls": []}
        await owner.execute("UPDATE outgoing_calls SET result = result WHERE query_id = $1", query)
    assert await api.do("/tool-calls/claim", claim) == {"calls": []}
    summary = inner(output_of(await api.ended(query))[1])
    assert summary["actions"][0]["error"]["message"].startswith(
        "Nothing was sent: There is no reference Seats/"
    )


@pytest.mark.parametrize("way", ["POST", "PUT"])
async def test_publishing_for_ended_work_during_deletion_does_not_deadlock(
    api: Caller, owner: asyncpg.Connection, way: str
) -> None:
    await api.register(specs.mock())
    query = await api.run()
    thread, work = query["threadId"], query["id"].replace("qry_", "wrk_")
    good(await api.request("PUT", f"/threads/{thread}/files/a", content=b"a"))
    publishing = (
        api.post("/artifacts", {"threadId": thread, "channel": "design", "path": "a", "workId": work})
        if way == "POST"
        else api.request("PUT", f"/artifacts/design/a?threadId={thread}&workId={work}", content=b"a")
    )
    async with held(owner, "SELECT FROM queries WHERE id = $1 FOR UPDATE", query["id"]):
        published = await waiting(owner, publishing, 1)
        deleted = await waiting(owner, api.delete(f"/threads/{thread}"), 2)
    refused(await published, 409, "work_over")
    good(await deleted)
    refused(await api.get(f"/threads/{thread}"), 404)


async def test_uploading_the_list_of_a_directory_does_not_deadlock(
    api: Caller, owner: asyncpg.Connection
) -> None:
    """Both name one body that is new, and both add to one chain."""
    thread = (await api.do("/threads", {}))["id"]
    good(await api.request("PUT", f"/threads/{thread}/files/d/a", content=b"a"))
    publish = {"threadId": thread, "channel": "design", "path": "d"}
    await api.do("/artifacts", {**publish, "path": "d/a"})
    listed = f"{hashlib.sha256(b'a').hexdigest()}  a\n".encode()
    taken = owner.transaction()
    await taken.start()
    columns = (
        "record, previous, mac, channel, path, is_directory, digest, body_bytes, work_id, created_at, "
        "tenant_id, thread_id"
    )
    await owner.execute(f"INSERT INTO artifacts (id, n, {columns}) SELECT 'x', 2, {columns} FROM artifacts")
    published = await waiting(owner, api.post("/artifacts", publish), 1)  # for the next number of the chain
    uploading = api.request("PUT", f"/artifacts/design/l?threadId={thread}", content=listed)
    uploaded = await waiting(owner, uploading, 2)
    await taken.rollback()
    good(await published)
    good(await uploaded)


async def test_threads_that_share_bodies_crosswise_are_deleted(
    api: Caller, owner: asyncpg.Connection
) -> None:
    """Each holds a body that the other wants too: one is told nothing of it, and goes again."""
    threads = []
    for name, other in ("ab", "ba"):
        thread = (await api.do("/threads", {}))["id"]
        listed = f"{hashlib.sha256(b'x').hexdigest()}  {other}\n".encode()
        for path, body in ((f"d/{name}", b"x"), ("l", listed)):
            good(await api.request("PUT", f"/threads/{thread}/files/{path}", content=body))
        await api.do("/artifacts", {"threadId": thread, "channel": "design", "path": "d"})
        threads.append(thread)
    async with held(owner, "SELECT FROM workspace_files FOR UPDATE"):
        deleted = [await waiting(owner, api.delete(f"/threads/{t}"), n) for n, t in enumerate(threads, 1)]
    for one in deleted:
        good(await one)
    assert (await api.read("/threads"))["items"] == []
