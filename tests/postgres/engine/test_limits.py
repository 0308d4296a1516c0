"""Limits of a query: each parks the query, which continues when the limit is raised."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.deployment import Deployment
from app.llm.messages import ModelRequest, TurnDone, Usage
from app.tools.models import Attempt
from app.tools.results import ToolResult
from app.tools.transports.http import HttpSender
from tests.support import specs
from tests.support.client import Caller, eventually, good, output_of, refused
from tests.support.cluster import Cluster
from tests.support.endpoint import endpoint, output
from tests.support.models import Model, calls, results, says, thinks, turn_of
from tests.support.world import World, world

PRICED = "gpt-4o-mini"  # of OpenAI, in the price table


def again(_: ModelRequest) -> TurnDone:
    """Never comes to an end."""
    return calls(("nothing", {}))


async def stopped(api: Caller, query: str) -> int:
    """Once the query waits at a limit: how many model calls it made."""
    await api.until(query, "waiting", "limit_reached")
    work = (await api.read(f"/queries/{query}/work"))["items"]
    assert {w["status"] for w in work if w["kind"] == "model_call"} == {"succeeded"}
    return sum(w["kind"] == "model_call" for w in work)


async def raised(api: Caller, query: str, **limits: Any) -> None:
    await api.do(f"/queries/{query}/resume", {"limits": limits})


# -- turns


async def test_turns_are_summed_over_the_agents(plangate: World, api: Caller) -> None:
    await api.register(team(limits={"maxTurns": 3}))
    model = thinks(plangate, lambda r: delegates(r, 2))
    query = (await api.submit())["id"]
    assert await stopped(api, query) == 3
    assert [who(r) for r in model.heard] == ["chief", "helper", "chief"]
    await raised(api, query, maxTurns=5)
    assert (await api.ended(query))["output"] == "done"
    assert [who(r) for r in model.heard[3:]] == ["helper", "chief"]


async def test_turns_requested_in_parallel_count(plangate: World, api: Caller) -> None:
    await api.register(team(limits={"maxTurns": 3}))
    ask = ("call_agent", {"agent": "helper", "prompt": "go"})
    model = thinks(
        plangate, lambda r: calls(*[ask] * 4) if who(r) == "chief" and turn_of(r) == 1 else says("x")
    )
    query = (await api.submit())["id"]
    assert await stopped(api, query) == 3
    await raised(api, query, maxTurns=100)
    await api.ended(query)
    assert [who(r) for r in model.heard] == ["chief", *["helper"] * 4, "chief"]


@pytest.mark.parametrize(
    ("runtime", "asked", "most"),
    [({}, {}, 100), ({"maxTurns": 7}, {}, 7), ({"maxTurns": 7}, {"maxTurns": 9}, 9)],
)
async def test_a_query_has_a_hundred_turns_by_default(
    plangate: World, api: Caller, runtime: dict[str, int], asked: Any, most: int
) -> None:
    await api.register(specs.mock() | {"agents": [specs.agent(maxTurns=1000)], "limits": runtime})
    thinks(plangate, again)
    query = (await api.submit(limits=asked))["id"]
    assert await stopped(api, query) == most


@pytest.mark.parametrize(("parts", "most"), [({}, 50), ({"maxTurns": 2}, 2)])
async def test_the_turn_limit_of_an_agent_ends_its_run(
    plangate: World, api: Caller, parts: Any, most: int
) -> None:
    await api.register(specs.mock() | {"agents": [specs.agent(**parts)]})
    model = thinks(plangate, again)
    query = await api.run()
    message = f"The agent did not finish within its {most} turns."
    assert (query["status"], query["error"]) == ("failed", {"code": "max_turns", "message": message})
    assert len(model.heard) == most


async def test_the_turn_limit_of_a_called_agent_ends_only_its_run(plangate: World, api: Caller) -> None:
    await api.register(team(helper={"maxTurns": 2}))

    def answer(request: ModelRequest) -> TurnDone:
        if who(request) == "helper":
            return again(request)
        if turn_of(request) == 1:
            return calls(("call_agent", {"agent": "helper", "prompt": "go"}))
        return says(results(request)[0])

    thinks(plangate, answer)
    told = "helper failed (max_turns): The agent did not finish within its 2 turns."
    assert (await api.run())["output"] == told


async def test_an_invalid_answer_is_returned_until_the_turns_are_used_up(
    plangate: World, api: Caller
) -> None:
    agent = specs.agent(outputSchema={"type": "integer"}, maxTurns=3)
    await api.register(specs.mock() | {"agents": [agent]})
    model = thinks(plangate, lambda _: says('"one"'))
    query = await api.run()
    assert (query["error"]["code"], len(model.heard)) == ("max_turns", 3)
    assert [m.role for m in model.heard[2].messages] == ["user", "assistant", "user", "assistant", "user"]
    assert model.heard[2].messages[-1].blocks[0].text == (  # type: ignore[union-attr]
        'Your answer does not match the schema it must have: /: must be integer, not "one". Answer again, JSON only.'
    )


# -- tokens, cost, time


async def test_tokens_of_every_kind_count(plangate: World, api: Caller) -> None:
    await api.register(specs.mock(limits={"maxTokens": 100}))
    thinks(plangate, lambda _: calls(("nothing", {}), usage=Usage(10, 10, 10, 10)))
    query = (await api.submit())["id"]
    assert await stopped(api, query) == 3  # 40, 80, 120
    await raised(api, query, maxTokens=121)
    await eventually(lambda: asks(api, query, 4), "one more turn")
    assert await stopped(api, query) == 4


async def asks(api: Caller, query: str, count: int) -> bool:
    return len(await api.events(query, "step-start")) == count


async def test_cost_is_counted_in_dollars(plangate: World, api: Caller) -> None:
    agents = [specs.agent(model={"id": PRICED, "provider": "openai"})]
    await api.register(specs.spec(*agents, limits={"maxCostUsd": 1.0}))
    thinks(plangate, lambda _: calls(("nothing", {}), usage=Usage(0, 1_000_000)), kind="openai")
    query = (await api.submit())["id"]
    assert await stopped(api, query) == 2
    await raised(api, query, maxCostUsd=1.3)
    await eventually(lambda: asks(api, query, 3), "one more turn")
    assert await stopped(api, query) == 3
    told = [e.get("limit") for e in await api.events(query, "query-status") if e["to"] == "waiting"]
    assert told == ["maxCostUsd"] * 2
    spent = [w["costUsd"] for w in (await api.read(f"/queries/{query}/work"))["items"] if "costUsd" in w]
    assert [round(cost, 3) for cost in spent] == [0.6] * 3


NO_PRICE = "no price is known for 'm', so limits.maxCostUsd cannot be enforced: use maxTokens, or a model with a known price"


@pytest.mark.parametrize(
    ("parts", "pointers"),
    [
        ({}, ["/agents/0/model", "/agents/1/model/id"]),
        ({"interpreter": "noop"}, ["/agents/0/model", "/agents/1/model/id", "/agents/2/model/id"]),
    ],
)
async def test_a_limit_on_cost_needs_prices(api: Caller, parts: dict[str, Any], pointers: list[str]) -> None:
    spec = specs.spec(
        specs.agent("a"),
        specs.agent("b", model={"id": "m", "provider": "scripted"}),
        specs.agent("c", model={"id": PRICED, "provider": "openai"}),
        limits={"maxCostUsd": 1},
        **parts,
    )
    errors = refused(await api.post("/runtimes", spec), 422)["errors"]
    assert [e["pointer"] for e in errors] == pointers
    assert errors[0]["message"] == NO_PRICE


async def test_the_turn_limit_of_a_query_parks_it(plangate: World, api: Caller) -> None:
    await api.register(specs.mock(limits={"maxTurns": 1}))
    told = [
        {
            "pointer": "/limits/maxCostUsd",
            "message": "no price is known for 'm', the model of agent 'solo': use maxTokens",
        }
    ]
    body = {"prompt": "x", "limits": {"maxCostUsd": 1}}
    assert refused(await api.post("/queries", body), 422, "invalid")["errors"] == told
    thinks(plangate, again)
    query = (await api.submit())["id"]
    await stopped(api, query)
    again_body = {"limits": {"maxCostUsd": 1}}
    assert refused(await api.post(f"/queries/{query}/resume", again_body), 422)["errors"] == told
    await raised(api, query, maxTurns=2)


async def test_working_time_counts_and_waiting_does_not(api: Caller, owner: Any) -> None:
    await api.register(specs.scripted(specs.tool("add"), limits={"maxDurationMs": 60_000}))
    query = (await api.submit(specs.script(("add", {"n": 1}), ("add", {"n": 2}))))["id"]
    (call,) = await api.claim("add")
    await api.until(query, "waiting", "client_call")
    hour_ago = "now() - interval '1 hour'"
    await owner.execute(
        f"UPDATE queries SET created_at = {hour_ago}, started_at = {hour_ago}, parked_at = {hour_ago}"
    )
    good(await api.result(call, 1))
    (call,) = await api.claim("add")
    await api.until(query, "waiting", "client_call")
    worked = await owner.fetchval("UPDATE queries SET worked_ms = worked_ms + 60000 RETURNING worked_ms")
    assert 60_000 < worked < 90_000
    good(await api.result(call, 2))
    assert await stopped(api, query) == 2
    await raised(api, query, maxDurationMs=3_600_000)
    assert [r["result"] for r in output_of(await api.ended(query))] == [1, 2]


async def test_a_query_at_a_limit_fails_after_seven_days(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(specs.mock(limits={"maxTurns": 1}))
    thinks(plangate, again)
    query = (await api.submit())["id"]
    await stopped(api, query)
    for days, status in (("6 days 23 hours", "waiting"), ("7 days", "failed")):
        await owner.execute(f"UPDATE queries SET parked_at = now() - interval '{days}'")
        await plangate.services.queries.fail_due_limits()
        found = await api.read(f"/queries/{query}")
        assert found["status"] == status
    message = "The query stopped at a limit that nobody raised."
    assert (found["reason"], found["error"]) == (
        "limit_reached",
        {"code": "limit_reached", "message": message},
    )
    body = refused(await api.post(f"/queries/{query}/resume", {"limits": {"maxTurns": 9}}), 409)
    assert body["detail"] == "The query is failed; only one that waits at a limit can be resumed."


async def test_only_a_query_at_a_limit_can_be_resumed(api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("pay", approval="always")))
    query = (await api.submit(specs.script(("pay", {"n": 1})), limits={"maxTurns": 5}))["id"]
    await api.until(query, "waiting", "approval")
    body = refused(await api.post(f"/queries/{query}/resume", {"limits": {"maxTurns": 9}}), 409, "conflict")
    assert body["detail"] == "The query is waiting; only one that waits at a limit can be resumed."
    await api.approve(query)
    await api.serve("pay", "paid")
    assert (await api.ended(query))["status"] == "succeeded"


# -- depth


@pytest.mark.parametrize(("query_limits", "deepest"), [({}, 8), ({"maxDepth": 2}, 2)])
async def test_the_depth_of_agent_calls_is_limited(
    api: Caller, query_limits: dict[str, int], deepest: int
) -> None:
    names = ("ping", "pong")
    agents = [specs.agent(name, routes=[names[1 - n]], toolkits=["agents"]) for n, name in enumerate(names)]
    await api.register(specs.spec(*agents, interpreter="scripted", limits=query_limits))
    prompt: Any = {"script": []}
    for depth in range(deepest + 1, 0, -1):
        prompt = {"tool": "call_agent", "args": {"agent": names[depth % 2], "prompt": prompt}}
    query = await api.run(json.dumps(prompt), agent="ping")
    found = json.loads(query["output"])["results"]
    for _ in range(deepest):
        found = found[0]["result"]["results"]
    told = f"Agents may nest calls {deepest} deep; this call would be deeper."
    assert found == [{"tool": "call_agent", "error": told}]
    work = (await api.read(f"/queries/{query['id']}/work"))["items"]
    assert sum(w["kind"] == "agent" for w in work) == deepest + 1


# -- what is outside at the same time


async def outside(api: Caller, query: str) -> list[str]:
    rows = (await api.read("/tool-calls", queryId=query))["items"]
    return sorted(r["status"] for r in rows)


async def started(plangate: World, spec: dict[str, Any], count: int) -> str:
    """A query whose first turn makes so many calls of `add` together."""
    await plangate.api.register(spec)
    sums(plangate, count)
    return str((await plangate.api.submit())["id"])


def sums(plangate: World, count: int) -> Model:
    made = calls(*(("add", {"n": n}) for n in range(count)))
    return thinks(plangate, lambda r: made if turn_of(r) == 1 else says(json.dumps(results(r))))


@pytest.mark.parametrize(("query_limits", "most"), [({"maxParallelTools": 2}, 2), ({}, 8)])
async def test_offered_client_calls_are_limited(
    plangate: World, api: Caller, query_limits: dict[str, int], most: int
) -> None:
    query = await started(plangate, specs.scripted(specs.tool("add"), limits=query_limits), 2 * most + 1)
    await api.until(query, "waiting", "client_call")
    assert await outside(api, query) == ["open"] * most
    assert plangate.services.worker.busy == 0
    for done in range(2 * most + 1):
        left = min(most, 2 * most + 1 - done)
        await these_are(api, query, *["done"] * done, *["open"] * left)
        await answer(api, *await api.claim("add"))
    assert json.loads((await api.ended(query))["output"]) == [f"sum of {n}" for n in range(2 * most + 1)]


async def these_are(api: Caller, query: str, *statuses: str) -> None:
    """Waits until the calls of a query are these."""

    async def there() -> bool:
        return await outside(api, query) == [*statuses]

    await eventually(there, f"calls that are {statuses}")


async def test_offered_calls_keep_their_slots_after_a_takeover(
    plangate: World, api: Caller, site: Deployment, cluster: Cluster
) -> None:
    """And what came in meanwhile is taken in, although every place is taken."""
    spec = specs.scripted(specs.tool("add"), limits={"maxParallelTools": 2})
    query = await started(plangate, spec, 4)
    await these_are(api, query, "open", "open")
    slow, quick = await api.claim("add", max=4)
    await api.until(query, "waiting", "client_call")
    await plangate.services.worker.drain(0)
    await answer(api, quick)
    async with world(site, cluster.operator_key, started=False) as other:
        sums(other, 4)
        await other.services.start()
        await these_are(api, query, "claimed", "done", "open")
        await api.until(query, "waiting", "client_call")
        assert await outside(api, query) == ["claimed", "done", "open"]
        await answer(api, *await api.claim("add"))
        await these_are(api, query, "claimed", "done", "done", "open")
        await answer(api, slow, *await api.claim("add"))
        ended = await other.api.ended(query)
    assert json.loads(ended["output"]) == [f"sum of {n}" for n in range(4)]


async def answer(api: Caller, *taken: dict[str, Any]) -> None:
    for call in taken:
        good(await api.result(call, f"sum of {call['args']['n']}"))


async def test_gates_are_open_without_a_place(plangate: World, api: Caller) -> None:
    """A person who takes his time keeps nobody else out."""
    tools = [specs.tool("add"), specs.tool("pay", approval="always")]
    await api.register(specs.scripted(*tools, limits={"maxParallelTools": 1}))
    made = calls(("pay", {"n": 1}), ("pay", {"n": 2}), ("add", {"n": 3}))
    thinks(plangate, lambda r: made if turn_of(r) == 1 else says("done"))
    query = (await api.submit())["id"]
    await eventually(lambda: has_open_gates(api, query, 2), "two gates")
    await api.serve("add", 3)
    for _ in range(2):
        await api.approve(query)
        await api.serve("pay", "paid")
    assert (await api.ended(query))["status"] == "succeeded"


async def has_open_gates(api: Caller, query: str, count: int) -> bool:
    return len((await api.read(f"/queries/{query}"))["openApprovals"]) == count


async def test_a_called_agent_takes_no_slot_from_its_tools(plangate: World, api: Caller) -> None:
    agents = [
        specs.agent("chief", "coordinator", routes=["helper"]),
        specs.agent("helper", tools=["add"]),
    ]
    await api.register(specs.scripted(specs.tool("add"), agents=agents, limits={"maxParallelTools": 1}))
    prompt = specs.script(("add", {"n": 1}))
    ask = ("call_agent", {"agent": "helper", "prompt": prompt})

    def answer(request: ModelRequest) -> TurnDone:
        if turn_of(request) == 2:
            return says("done")
        return calls(*[ask] * 3) if who(request) == "chief" else calls(("add", {"n": 1}))

    thinks(plangate, answer)
    query = (await api.submit())["id"]
    for done in range(3):
        await these_are(api, query, *["done"] * done, "open")
        await api.serve("add", 1)
    assert (await api.ended(query))["output"] == "done"


async def test_canceling_releases_calls_that_wait_for_a_slot(plangate: World, api: Caller) -> None:
    spec = specs.scripted(specs.tool("add"), limits={"maxParallelTools": 1})
    query = await started(plangate, spec, 5)
    await these_are(api, query, "open")
    await api.do(f"/queries/{query}/cancel")
    await eventually(lambda: idle(plangate), "the worker is free")
    assert await outside(api, query) == ["withdrawn"]


async def idle(plangate: World) -> bool:
    return plangate.services.worker.busy == 0


async def test_calls_that_the_service_sends_are_limited(
    site: Deployment, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = 0
    full, go_on = asyncio.Event(), asyncio.Event()
    send = HttpSender.send

    async def held(sender: HttpSender, attempt: Attempt) -> ToolResult:
        nonlocal under_way
        under_way += 1
        if under_way == 3:
            full.set()
        await go_on.wait()
        return await send(sender, attempt)

    monkeypatch.setattr(HttpSender, "send", held)
    async with (
        endpoint(lambda received: output(received.json["args"]["n"])) as at,
        world(site, cluster.operator_key, allow_hosts=["127.0.0.1"]) as w,
    ):
        tool = specs.tool("add", transport={"kind": "http", "url": at.url})
        query = await started(w, specs.scripted(tool, limits={"maxParallelTools": 3}), 10)
        await full.wait()
        await w.api.register(specs.mock(name="other"))
        await w.api.run(runtime="other")  # a whole query of the same process later
        assert (under_way, await outside(w.api, query)) == (3, ["claimed"] * 3)
        go_on.set()
        ended = await w.api.ended(query)
    assert json.loads(ended["output"]) == [str(n) for n in range(10)]
    assert len(at.received) == 10


async def test_concurrent_model_calls_are_limited(plangate: World, api: Caller) -> None:
    await api.register(team(limits={"maxParallelTools": 2}))
    under_way, most = 0, 0
    both = asyncio.Event()

    class Slow(Model):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            if under_way == 2:
                both.set()
            if who(request) == "helper":
                await both.wait()
            await asyncio.sleep(0)
            under_way -= 1
            async for part in super().stream(request):
                yield part

    ask = ("call_agent", {"agent": "helper", "prompt": "go"})
    model = Slow(lambda r: calls(*[ask] * 6) if who(r) == "chief" and turn_of(r) == 1 else says("x"))
    plangate.services.providers.of = model.of  # type: ignore[method-assign]
    assert (await api.run())["status"] == "succeeded"
    assert (len(model.heard), most) == (8, 2)


# -- agents


def team(helper: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    return specs.spec(
        specs.agent("chief", "coordinator", stateful=False, routes=["helper"]),
        specs.agent("helper", **(helper or {})),
        interpreter="mock",
        **parts,
    )


def who(request: ModelRequest) -> str:
    return "chief" if "You are chief." in request.system else "helper"


def delegates(request: ModelRequest, times: int) -> TurnDone:
    if who(request) == "helper" or turn_of(request) > times:
        return says("done")
    return calls(("call_agent", {"agent": "helper", "prompt": "go"}))
