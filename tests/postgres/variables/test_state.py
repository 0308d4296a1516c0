"""Documents in the database: the log, the order of writers, and earlier versions."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from plangate.spec.variables import Expression, VariablePath, parse

from app.base.json import strict_json
from app.documents.models import Author, DocumentId, DocumentLimits, WriteRequest
from app.documents.writing import WriteRejected
from tests.support import specs
from tests.support.client import Caller, refused
from tests.support.world import World


def ref(text: str) -> VariablePath:
    parsed = parse(text)
    assert isinstance(parsed, Expression)
    return next(parsed.paths())


async def thread(api: Caller, key: str = "t") -> str:
    return str((await api.do("/threads", {"threadKey": key}))["id"])


class Pen:
    """Writes to the state of a thread, as calls of tools would."""

    def __init__(self, plangate: World, thread_id: str) -> None:
        self._db = plangate.services.db
        self._documents = plangate.services.documents
        self.document = DocumentId.state(thread_id)
        self._works = 0

    async def write(self, path: str, value: Any, method: Any = "set", **parts: Any) -> int:
        self._works += 1
        author = Author(parts.pop("work_id", f"wrk_{self.document.owner_id}_{self._works}"), "qry_1", "solo")
        request = WriteRequest(self.document, ref(path), method, value, **parts)
        async with self._db.transaction("acme") as tx:
            row = await self._documents.write(tx, request, author)
        return row.n


async def test_the_state_of_a_thread_and_its_log(plangate: World, api: Caller) -> None:
    at = f"/threads/{await thread(api)}/state"
    assert await api.read(at) == {"threadId": at.split("/")[2], "write": 0, "document": {}}
    pen = Pen(plangate, at.split("/")[2])
    assert [
        await pen.write("†state.n", 1),
        await pen.write("†state.rows", {"a": "†state.n"}, "push"),
        await pen.write("†state.rows", "x" * 5000, "push"),
    ] == [1, 2, 3]
    assert await api.read(at) == {
        "threadId": pen.document.owner_id,
        "write": 3,
        "document": {"n": 1, "rows": [{"a": "†state.n"}, "x" * 5000]},
    }
    assert (await api.read(at, at=1))["document"] == {"n": 1}
    assert (await api.read(at, at=0))["document"] == {}
    first = await api.read(f"{at}/log", limit=2)
    rest = await api.read(f"{at}/log", limit=2, cursor=first["nextCursor"])
    writes = [*first["items"], *rest["items"]]
    assert rest["nextCursor"] is None
    assert [(w["write"], w["path"], w["method"], w.get("value")) for w in writes] == [
        (3, "†state.rows", "push", None),
        (2, "†state.rows", "push", {"a": "†state.n"}),
        (1, "†state.n", "set", 1),
    ]
    assert (writes[0]["sizeBytes"], writes[0]["glimpse"], writes[0]["agent"]) == (
        5002,
        "x" * 79 + "…",
        "solo",
    )
    assert "†" in writes[1]["path"] and writes[1]["at"].endswith("Z") and not writes[1]["failed"]
    body = refused(await api.get(at, at=4), 404, "not_found")
    assert body["detail"] == "There is no write 4: the last one is 3."


async def test_threads_and_tenants_are_apart(plangate: World, api: Caller) -> None:
    one, two = await thread(api, "one"), await thread(api, "two")
    await Pen(plangate, one).write("†state.a", 1)
    assert (await api.read(f"/threads/{two}/state"))["document"] == {}
    for path in (f"/threads/{one}/state", f"/threads/{one}/state/log"):
        theirs = refused(await plangate.other.get(path), 404, "not_found")
        none = refused(await plangate.other.get(path.replace(one, "thr_" + "0" * 26)), 404, "not_found")
        assert theirs["detail"].replace(one, "") == none["detail"].replace("thr_" + "0" * 26, "")
    assert await plangate.sql("SELECT 1 FROM documents", tenant="other") == []
    assert await plangate.sql("SELECT 1 FROM document_writes", tenant="other") == []
    for statement in (
        "UPDATE document_writes SET value = '1'",
        "DELETE FROM document_writes",
        "UPDATE documents SET base = '1'",
        "DELETE FROM documents",
        "UPDATE call_variables SET args = '{}'",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await plangate.sql(statement)


async def test_concurrent_writes_to_a_path_are_ordered_and_kept(plangate: World, api: Caller) -> None:
    """A new document and a present one: each write is in the log once, and the document is the log's fold."""
    thread_id = await thread(api)
    pens = [Pen(plangate, thread_id) for _ in range(5)]

    async def work(n: int, pen: Pen) -> list[int]:
        return [await pen.write("†state.list", [n, k], "push", work_id=f"wrk_{n}_{k}") for k in range(6)]

    numbers = await asyncio.gather(*(work(n, pen) for n, pen in enumerate(pens)))
    assert sorted(n for mine in numbers for n in mine) == list(range(1, 31))
    assert all(mine == sorted(mine) for mine in numbers)
    held = (await api.read(f"/threads/{thread_id}/state"))["document"]["list"]
    assert [held[n - 1] for n in numbers[2]] == [[2, k] for k in range(6)]
    log = (await api.read(f"/threads/{thread_id}/state/log", limit=100))["items"]
    assert [w["value"] for w in reversed(log)] == held


@pytest.mark.limits(documents=DocumentLimits(checkpoint_writes=4))
async def test_an_earlier_version_is_rebuilt_from_the_nearest_checkpoint(
    plangate: World, api: Caller
) -> None:
    thread_id = await thread(api)
    pen = Pen(plangate, thread_id)
    for n in range(1, 11):
        await pen.write("†state.n", n, "push")
    kept = await plangate.sql("SELECT n FROM document_writes WHERE checkpoint IS NOT NULL ORDER BY n")
    assert [r["n"] for r in kept] == [4, 8]
    for n in range(1, 11):
        found = await api.read(f"/threads/{thread_id}/state", at=n)
        assert (found["write"], found["document"]) == (n, {"n": list(range(1, n + 1))})


@pytest.mark.limits(documents=DocumentLimits(checkpoint_bytes=50))
async def test_values_as_large_as_their_document_make_a_checkpoint(plangate: World, api: Caller) -> None:
    pen = Pen(plangate, await thread(api))
    await pen.write("†state.n", 1)
    for _ in range(2):
        await pen.write("†state.big", "x" * 200)
    checkpoints = await plangate.sql("SELECT n FROM document_writes WHERE checkpoint IS NOT NULL ORDER BY n")
    assert [row["n"] for row in checkpoints] == [3]


async def test_stored_values_round_trip(plangate: World, api: Caller) -> None:
    thread_id = await thread(api)
    values: Any = [
        2**63 - 1,
        -0.0,
        1.0,
        1,
        1e300,
        "†state",
        "††",
        "\u2028é😀",
        "",
        None,
        False,
        {"": 0, "b": 1, "a": 2},
    ]
    await Pen(plangate, thread_id).write('†state."a.b"', values)
    answer = await api.get(f"/threads/{thread_id}/state")
    assert strict_json.dumps({"a.b": values}) in answer.content


@pytest.mark.limits(documents=DocumentLimits(document_bytes=2000))
async def test_a_write_that_does_not_fit_its_document_is_rejected(plangate: World, api: Caller) -> None:
    schema = {"properties": {"n": {"type": "integer"}}}
    thread_id = await thread(api)
    pen = Pen(plangate, thread_id)
    await pen.write("†state.n", 1)
    for path, value, method, why in (
        ("†state.big", "x" * 2000, "set", "would have 2016 bytes of JSON, more than 2000"),
        ("†state.n", "x", "push", "push needs an array to append to, and there is an integer"),
        ("†state.n", "x", "set", 'stateSchema: /n: must be integer, not "x"'),
        ("†state", [], "set", "the state of a thread is an object, and would be an array of 0"),
    ):
        with pytest.raises(WriteRejected) as error:
            await pen.write(path, value, method, schema=schema)
        assert why in str(error.value)
    assert await api.read(f"/threads/{thread_id}/state") == {
        "threadId": thread_id,
        "write": 1,
        "document": {"n": 1},
    }
    assert await plangate.value("SELECT count(*) FROM document_writes") == 1


async def test_one_call_writes_once(plangate: World, api: Caller) -> None:
    """Whatever the code above thinks: the database holds one write of each part of a call."""
    pen = Pen(plangate, await thread(api))
    await pen.write("†state.n", 1, work_id="wrk_same")
    with pytest.raises(asyncpg.UniqueViolationError):
        await pen.write("†state.n", 2, work_id="wrk_same")
    assert (await api.read(f"/threads/{pen.document.owner_id}/state"))["write"] == 1


async def test_a_fork_begins_as_the_state_was(plangate: World, api: Caller) -> None:
    """At any write; from then on the two go their own ways; and a retried request makes one thread."""
    origin = await thread(api)
    pen = Pen(plangate, origin)
    for n in range(1, 4):
        await pen.write("†state.n", n, "push")
    path, once = f"/threads/{origin}/fork", {"headers": {"idempotency-key": "k"}}
    at_two = (await api.do(path, {"at": 2}, **once))["id"]
    assert (await api.do(path, {"at": 2}, **once))["id"] == at_two
    now = (await api.do(path, {}))["id"]
    empty = (await api.do(path, {"at": 0}))["id"]
    assert (await api.read(f"/threads/{empty}/state"))["document"] == {}
    assert (await api.read(f"/threads/{at_two}/state"))["document"] == {"n": [1, 2]}
    assert (await api.read(f"/threads/{now}/state"))["document"] == {"n": [1, 2, 3]}
    (first,) = (await api.read(f"/threads/{at_two}/state/log"))["items"]
    assert (first["write"], first["path"], first["forkedFrom"]) == (1, "†state", f"{origin}@2")
    assert first["workId"] is None
    await Pen(plangate, at_two).write("†state.n", 9, "push")
    await pen.write("†state.n", 4, "push")
    assert (await api.read(f"/threads/{at_two}/state"))["document"] == {"n": [1, 2, 9]}
    assert (await api.read(f"/threads/{at_two}/state", at=1))["document"] == {"n": [1, 2]}
    assert (await api.read(f"/threads/{origin}/state"))["document"] == {"n": [1, 2, 3, 4]}
    refused(await api.post(f"/threads/{origin}/fork", {"at": 5}), 404, "not_found")
    theirs = refused(await plangate.other.post(f"/threads/{origin}/fork", {}), 404, "not_found")
    assert theirs["detail"] == f"There is no thread {origin!r}."
    reader = await plangate.key("read")
    refused(await reader.post(f"/threads/{origin}/fork", {}), 403)


async def test_a_fork_keeps_the_version_but_not_the_conversation(plangate: World, api: Caller) -> None:
    agent = specs.agent(stateful=True)
    runtime = await api.register(specs.mock() | {"agents": [agent]})
    query = await api.run(threadKey="t")
    await api.register(specs.mock("Another version.") | {"agents": [agent]})
    made = await api.do(f"/threads/{query['threadId']}/fork", {})
    assert (made["key"], made["runtimeId"], made["activeQueries"]) == (None, runtime["id"], [])
    assert (await api.read(f"/threads/{made['id']}/messages"))["items"] == []
    assert (await api.read(f"/threads/{made['id']}/state"))["document"] == {}
    assert (await api.run(threadId=made["id"]))["output"] == "Hello there."
