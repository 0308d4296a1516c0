"""State that a handler writes during its call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.base.json.limits import JsonLimits
from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.json_processes import note_functions
from tests.support.world import World

VARIABLES = [specs.agent(tools=["add"], toolkits=[{"id": "variables"}])]


class Called:
    """A call of the tool `add` that somebody has claimed."""

    def __init__(self, api: Caller, query: dict[str, Any], call: dict[str, Any]) -> None:
        self._api = api
        self.query_id, self.thread_id = query["id"], query["threadId"]
        self.call, self.work_id = call, call["workId"]

    @classmethod
    async def made(cls, api: Caller, args: dict[str, Any] | None = None, **spec: Any) -> Called:
        await api.register(specs.scripted(specs.tool("add"), agents=VARIABLES, **spec))
        query = await api.submit(specs.script(("add", {"n": 1, **(args or {})})))
        (call,) = await api.claim("add")
        return cls(api, query, call)

    async def post(self, path: str, value: Any, method: str = "set", **parts: Any) -> Any:
        body = {"workId": self.work_id, "path": path, "method": method, "value": value, **parts}
        return await self._api.post(f"/threads/{self.thread_id}/state/log", body)

    async def write(self, path: str, value: Any, method: str = "set", key: str | None = None) -> Any:
        headers = {} if key is None else {"Idempotency-Key": key}
        body = {"workId": self.work_id, "path": path, "method": method, "value": value}
        return good(await self._api.post(f"/threads/{self.thread_id}/state/log", body, headers=headers))

    async def document(self) -> Any:
        return (await self._api.read(f"/threads/{self.thread_id}/state"))["document"]

    async def end(self, output: Any = None) -> dict[str, Any]:
        await self._api.result(self.call, output)
        return await self._api.ended(self.query_id)


async def test_a_handler_writes_state_during_its_call(api: Caller) -> None:
    called = await Called.made(api)
    first = await called.post("†state.rows", {"n": 1}, "push")
    assert first.status_code == 201
    as_it_was = (await api.get(first.headers["location"])).json()
    assert (as_it_was["write"], as_it_was["document"]) == (1, {"rows": [{"n": 1}]})
    assert first.json() == {
        "write": 1,
        "path": "†state.rows",
        "method": "push",
        "value": {"n": 1},
        "sizeBytes": 7,
        "glimpse": {"n": 1},
        "failed": False,
        "workId": called.work_id,
        "queryId": called.query_id,
        "agent": "solo",
        "forkedFrom": None,
        "principal": None,
        "at": first.json()["at"],
    }
    await called.write('†state."a.b"', "x" * 5000)
    assert await called.document() == {"rows": [{"n": 1}], "a.b": "x" * 5000}
    await called.end(7)
    log = (await api.read(f"/threads/{called.thread_id}/state/log"))["items"]
    assert [(w["write"], w["workId"]) for w in log] == [(2, called.work_id), (1, called.work_id)]
    told = await api.events(called.query_id, "state-write")
    assert [(e["workId"], e["data"]) for e in told] == [
        (called.work_id, {"path": "†state.rows", "method": "push", "write": 1}),
        (called.work_id, {"path": '†state."a.b"', "method": "set", "write": 2}),
    ]


async def test_the_result_is_still_written_to_its_path(api: Caller) -> None:
    """What the handler wrote is not taken for it."""
    called = await Called.made(api, {"_outputPath": "†state.sum"})
    await called.write("†state.note", "on the way")
    (entry,) = output_of(await called.end(7))
    assert entry["result"]["written"] == [{"path": "†state.sum", "method": "set", "write": 2}]
    assert await called.document() == {"note": "on the way", "sum": 7}


async def test_a_repeated_write_is_applied_once(api: Caller) -> None:
    called = await Called.made(api)
    first = await called.write("†state.n", 1, "push", key="one")
    assert await called.write("†state.n", 1, "push", key="one") == first
    assert (await called.write("†state.n", 1, "push", key="two"))["write"] == 2
    assert await called.document() == {"n": [1, 1]}


async def test_writers_at_once_are_ordered(api: Caller) -> None:
    called = await Called.made(api)
    writes = await asyncio.gather(*(called.write("†state.n", n, "push") for n in range(8)))
    assert sorted(w["write"] for w in writes) == list(range(1, 9))
    assert sorted((await called.document())["n"]) == list(range(8))


async def test_an_ended_call_cannot_write(api: Caller) -> None:
    called = await Called.made(api)
    await called.end(7)
    body = refused(await called.post("†state.n", 1), 409, "conflict")
    assert body["detail"] == (
        f"Nothing was written: nobody holds the call {called.work_id}. It is over, has not been claimed, or its claim has lapsed."
    )
    assert await called.document() == {}


async def test_only_a_call_writes(plangate: World, api: Caller) -> None:
    called = await Called.made(api)
    root = "wrk_" + called.query_id.removeprefix("qry_")
    body = refused(await called.post("†state.n", 1, workId=root), 403, "forbidden")
    assert body["detail"] == f"Nothing was written: {root} is not a call of yours."
    nobody = "wrk_" + "0" * 26
    body = refused(await called.post("†state.n", 1, workId=nobody), 404, "not_found")
    assert body["detail"] == f"There is no work record '{nobody}' of a query."
    other = (await api.do("/threads", {"threadKey": "another"}))["id"]
    asked = {"workId": called.work_id, "path": "†state.n", "value": 1}
    body = refused(await api.post(f"/threads/{other}/state/log", asked), 422)
    assert body["errors"] == [{"pointer": "/workId", "message": "workId is work of another thread"}]
    refused(await plangate.other.post(f"/threads/{called.thread_id}/state/log", asked), 404, "not_found")


async def test_only_the_claimant_of_a_call_can_write(plangate: World, api: Caller) -> None:
    called = await Called.made(api)
    asked = {"workId": called.work_id, "path": "†state.n", "value": 1}
    eve = await plangate.key("data:write", principal="eve")
    refused(await eve.post(f"/threads/{called.thread_id}/state/log", asked), 403, "forbidden")
    assert await called.document() == {}
    await called.write("†state.n", 1)
    assert await called.document() == {"n": 1}


@pytest.mark.parametrize(
    "path", ["†state", "†results.n", "†input.n", "†state.a || †state.b", "plain", "††state.n"]
)
async def test_only_a_place_in_the_state_is_written(api: Caller, path: str) -> None:
    called = await Called.made(api)
    body = refused(await called.post(path, 1), 422)
    why = "the path must name one place in the state, such as †state.total"
    assert body["detail"] == f"Nothing was written: {why}."
    assert body["errors"] == [{"pointer": "/path", "message": why}]


@pytest.mark.parametrize("large", [False, True])
async def test_a_write_that_does_not_fit_is_not_applied(
    api: Caller, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        for module in ("app.documents.service", "app.base.json.offload"):
            monkeypatch.setattr(f"{module}.LIMITS", JsonLimits(inline_bytes=0, process_bytes=0))
    ran = note_functions(monkeypatch)
    called = await Called.made(api, stateSchema={"properties": {"n": {"type": "integer"}}})
    body = refused(await called.post("†state.n", "one"), 422)
    assert body["detail"].startswith(
        "Nothing was written: the state would not match the runtime's stateSchema: /n: "
    )
    refused(await called.post("†state", 1), 422)
    await called.write("†state.n", 1)
    body = refused(await called.post("†state.n", 2, "push"), 422)
    assert body["errors"] == [
        {"pointer": "/value", "message": "push needs an array to append to, and there is an integer"}
    ]
    assert await called.document() == {"n": 1}
    assert [e["data"]["write"] for e in await api.events(called.query_id, "state-write")] == [1]
    assert ("apply_change" in ran) == large
