"""A query whose time is used up makes no further call and names the limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.llm.messages import ModelRequest, TurnDone, Usage
from app.llm.provider import Overloaded
from tests.support import specs
from tests.support.client import Caller, eventually, good, output_of
from tests.support.models import calls, results, says, thinks, turn_of
from tests.support.world import World

MINUTE = {"maxDurationMs": 60_000}


async def minute_over(owner: Any) -> None:
    await owner.execute("UPDATE queries SET worked_ms = worked_ms + 60000")


async def stands_at(api: Caller, query: str) -> str:
    """The limit at which the query waits, as its journal says."""
    await api.until(query, "waiting", "limit_reached")
    told = (await api.events(query, "query-status"))[-1]
    assert (told["to"], told["reason"]) == ("waiting", "limit_reached")
    return str(told["limit"])


async def offered(api: Caller, query: str) -> list[tuple[str, str]]:
    rows = (await api.read("/tool-calls", queryId=query))["items"]
    return sorted((r["name"], r["status"]) for r in rows)


async def resumed(api: Caller, query: str, **limits: Any) -> None:
    await api.do(f"/queries/{query}/resume", {"limits": limits})


async def test_a_tool_call_is_not_made_when_the_time_is_used_up(
    plangate: World, api: Caller, owner: Any
) -> None:
    """What is outside already is brought to its end."""
    tools = [specs.tool("add"), specs.tool("sub")]
    await api.register(specs.scripted(*tools, limits={**MINUTE, "maxParallelTools": 1}))
    made = calls(("add", {"n": 1}), ("sub", {"n": 2}))
    thinks(plangate, lambda r: made if turn_of(r) == 1 else says(json.dumps(results(r))))
    query = (await api.submit())["id"]
    (call,) = await api.claim("add", "sub")
    first = call["name"]  # either may be
    (second,) = {"add", "sub"} - {first}
    await api.until(query, "waiting", "client_call")
    await minute_over(owner)
    good(await api.result(call, f"{first} done"))
    assert await stands_at(api, query) == "maxDurationMs"
    assert await offered(api, query) == [(first, "done")]
    work = {w["name"]: w["status"] for w in (await api.read("/work-records", queryId=query))["items"]}
    assert (work[first], work[second]) == ("succeeded", "waiting")
    await resumed(api, query, maxDurationMs=3_600_000)
    await api.serve(second, f"{second} done")
    assert json.loads((await api.ended(query))["output"]) == ["add done", "sub done"]


async def test_an_approved_call_is_not_made_when_the_time_is_used_up(api: Caller, owner: Any) -> None:
    await api.register(specs.scripted(specs.tool("pay", approval="always"), limits=MINUTE))
    query = (await api.submit(specs.script(("pay", {"n": 1}))))["id"]
    await api.until(query, "waiting", "approval")
    await minute_over(owner)
    await api.approve(query)
    assert await stands_at(api, query) == "maxDurationMs"
    assert await offered(api, query) == []
    await resumed(api, query, maxDurationMs=3_600_000)
    await api.serve("pay", "paid")
    assert [r["result"] for r in output_of(await api.ended(query))] == ["paid"]


async def test_a_builtin_tool_is_not_called_when_the_time_is_used_up(api: Caller, owner: Any) -> None:
    agent = specs.agent(toolkits=["references"])
    kinds = [{"name": "Seats", "schema": {"type": "array"}}]
    asked = {"tools": {"solo": {"resolveRef": "always"}}}
    await api.register(
        specs.scripted(agents=[agent], references=kinds, approvalOverrides=asked, limits=MINUTE)
    )
    made = await api.do("/references", {"kind": "Seats", "value": ["1A"]})
    query = (await api.submit(specs.script(("resolveRef", {"kind": "Seats", "id": made["id"]}))))["id"]
    await api.until(query, "waiting", "approval")
    await minute_over(owner)
    await api.approve(query)
    assert await stands_at(api, query) == "maxDurationMs"
    (call,) = (await api.read("/work-records", queryId=query, kind="tool_call"))["items"]
    assert call["status"] == "waiting"
    await resumed(api, query, maxDurationMs=3_600_000)
    assert [r["result"]["shownBytes"] for r in output_of(await api.ended(query))] == [6]


async def test_a_retry_after_beyond_the_remaining_time_reaches_the_limit(
    plangate: World, api: Caller
) -> None:
    """It would wait with its slot until its time is over, and only then stop at the limit."""
    await api.register(specs.mock(limits=MINUTE))

    def overloaded(_: ModelRequest) -> TurnDone:
        raise Overloaded("busy", retry_after_s=120)

    model = thinks(plangate, overloaded)
    query = (await api.submit())["id"]
    assert await stands_at(api, query) == "maxDurationMs"
    assert len(model.heard) == 1
    (retry,) = await api.events(query, "step-retry")
    assert retry["reason"] == "provider_overloaded: busy"
    model.answer = lambda _: says("done")
    await resumed(api, query, maxDurationMs=3_600_000)
    assert (await api.ended(query))["output"] == "done"


async def test_a_retry_after_within_the_remaining_time_is_honored(plangate: World, api: Caller) -> None:
    await api.register(specs.mock(limits=MINUTE))

    def overloaded(_: ModelRequest) -> TurnDone:
        if len(model.heard) == 1:
            raise Overloaded("busy", retry_after_s=0.1)
        return says("done")

    model = thinks(plangate, overloaded)
    assert (await api.run())["output"] == "done"


@pytest.mark.parametrize(
    ("runtime_limits", "name", "higher"),
    [
        ({"maxTurns": 2}, "maxTurns", {"maxTurns": 3}),
        ({"maxTokens": 20}, "maxTokens", {"maxTokens": 30}),
        ({"maxTurns": 2, "maxTokens": 20}, "maxTurns", {"maxTurns": 3, "maxTokens": 30}),
    ],
)
async def test_the_journal_names_the_limit(
    plangate: World, api: Caller, runtime_limits: dict[str, int], name: str, higher: dict[str, int]
) -> None:
    await api.register(specs.mock(limits=runtime_limits))
    used = Usage(10)
    thinks(plangate, lambda r: calls(("nothing", {}), usage=used) if turn_of(r) < 3 else says("done", used))
    query = (await api.submit())["id"]
    assert await stands_at(api, query) == name
    await resumed(api, query, **higher)
    assert (await api.ended(query))["output"] == "done"
    assert not any("limit" in e for e in (await api.events(query, "query-status"))[-1:])


async def test_a_limit_raised_too_little_is_reached_again(plangate: World, api: Caller) -> None:
    await api.register(specs.mock(limits={"maxTokens": 20, "maxTurns": 2}))
    thinks(plangate, lambda r: calls(("nothing", {}), usage=Usage(10)) if turn_of(r) < 3 else says("done"))
    query = (await api.submit())["id"]
    assert await stands_at(api, query) == "maxTurns"
    await resumed(api, query, maxTurns=3)

    async def said_again() -> bool:
        told = await api.events(query, "query-status")
        return [e["limit"] for e in told if e["to"] == "waiting"] == ["maxTurns", "maxTokens"]

    await eventually(said_again, "it stops at the other limit")


async def test_raising_one_limit_keeps_the_others(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    thinks(plangate, lambda r: calls(("nothing", {}), usage=Usage(10)) if turn_of(r) < 3 else says("done"))
    query = (await api.submit(limits={"maxTokens": 20, "maxTurns": 1}))["id"]
    assert await stands_at(api, query) == "maxTurns"
    await resumed(api, query, maxTurns=9)

    async def said_again() -> bool:
        told = await api.events(query, "query-status")
        return [e["limit"] for e in told if e["to"] == "waiting"] == ["maxTurns", "maxTokens"]

    await eventually(said_again, "it stops at the limit that nobody raised")
