"""Events about work match its records."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from app.base.ids import min_id
from app.engine.work_data import work_data
from app.journal.models import Work
from app.llm.messages import ModelRequest, TurnDone, Usage
from app.llm.provider import RequestRejected
from tests.postgres.usage.test_work_records import PRICED, delegates_twice, root_of, team, usage
from tests.support import specs
from tests.support.client import Caller, output_of
from tests.support.models import calls, thinks, turn_of
from tests.support.world import World

EVERY = {
    "id",
    "parentId",
    "kind",
    "name",
    "agent",
    "queryId",
    "threadId",
    "status",
    "startedAt",
    "endedAt",
    "durationMs",
    "attempts",
}
"""What every record has."""

OF_MODEL_CALLS = {"model", "promptCacheKey", "usage", "costUsd", "priceDate", "priceTable"}


async def works_of(api: Caller, query: str) -> dict[str, Any]:
    return {w["id"]: w for w in (await api.read(f"/queries/{query}/work"))["items"]}


async def test_runs_and_model_calls_emit_start_and_end(plangate: World, api: Caller) -> None:
    await api.register(team())
    thinks(plangate, delegates_twice, kind="openai")
    query = (await api.run())["id"]
    works = await works_of(api, query)
    begun, ended = [
        {e["data"]["id"]: e for e in await api.events(query, type_)} for type_ in ("work-start", "work-end")
    ]
    runs = {id for id, w in works.items() if w["kind"] == "agent"}
    called = {id for id, w in works.items() if w["kind"] == "model_call"}
    assert (len(runs), len(called)) == (3, 4)
    assert begun.keys() == runs
    assert ended.keys() == runs | called
    for id, event in [*begun.items(), *ended.items()]:
        work, data = works[id], event["data"]
        assert (event["workId"], event["parentWorkId"]) == (id, work["parentId"])
        for name in ("id", "parentId", "kind", "name"):
            assert data[name] == work[name]
    assert {(e["data"]["status"], e["data"].get("durationMs")) for e in begun.values()} == {("running", None)}
    for id, event in ended.items():
        work, data = works[id], event["data"]
        assert data["status"] == work["status"] == "succeeded"
        assert data["durationMs"] >= 0
        if id in called:
            told = {name: data.get(name) for name in ("model", "usage", "costUsd", "attempts")}
            assert told == {name: work[name] for name in told}


def test_duration_counts_from_the_beginning() -> None:
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    before = now_ms()
    work = Work(min_id("wrk_", before - 5000), "wrk_0", "agent", "solo", "solo", "running")
    assert "durationMs" not in work_data(work)
    took = work_data(replace(work, status="failed"))["durationMs"]
    assert isinstance(took, int)
    assert 5000 <= took <= 5000 + now_ms() - before
    assert work_data(replace(work, id=min_id("wrk_", before + 60_000), status="failed"))["durationMs"] == 0


async def test_usage_of_runs_and_query_is_emitted(plangate: World, api: Caller) -> None:
    await api.register(team())
    thinks(plangate, delegates_twice, kind="openai")
    query = await api.run()
    works = await works_of(api, query["id"])
    told = await api.events(query["id"], "data-tool-agent", "tool-agent")
    calls = [w["id"] for w in works.values() if w["kind"] == "tool_call"]
    assert len(calls) == 2
    for call in calls:
        began, used, ended = (e for e in told if e["workId"] == call)
        assert (began["type"], began["agentName"], began["state"]) == ("tool-agent", "helper", "call")
        data = {
            "agentName": "helper",
            "model": "m",
            "usage": usage(1000, 10),
        }  # no price is known, so no cost
        assert (used["type"], used["data"]) == ("data-tool-agent", data)
        assert (ended["type"], ended["agentName"], ended["state"], ended["artifacts"]) == (
            *("tool-agent", "helper", "result"),
            [],
        )
    *_, cost, latency, status, finish = await api.events(query["id"])
    assert [e["type"] for e in (cost, latency, status, finish)] == [
        "data-cost-summary",
        "data-latency-summary",
        "query-status",
        "finish",
    ]
    assert cost["data"] == {"usage": query["usage"], "costUsd": query["costUsd"], "modelCalls": 4}
    assert round(query["costUsd"], 6) == 0.9
    assert finish["usage"] == query["usage"] == usage(2_002_000, 1_000_020)
    took = moment(query["endedAt"]) - moment(query["createdAt"])
    assert 0 <= latency["data"]["elapsedMs"] <= took.total_seconds() * 1000 + 1000


@pytest.mark.parametrize("model", [PRICED, {"id": "m", "provider": "openai"}])
@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_usage_is_emitted_before_an_early_end(
    plangate: World, api: Caller, how: str, model: dict[str, str]
) -> None:
    """Of a model that nobody knows there is no cost, never zero."""
    await api.register(specs.spec(specs.agent(model=model, tools=["find"]), tools=[specs.tool("find")]))

    def answer(request: ModelRequest) -> TurnDone:
        if turn_of(request) == 1:
            return calls(("find", {"n": 1}), usage=Usage(1_000_000))
        raise RequestRejected("no", usage=Usage(1_000_000))

    thinks(plangate, answer, kind="openai")
    query = (await api.submit())["id"]
    if how == "failed":
        await api.serve("find", 1)
    else:
        await api.claim("find")
        await api.do(f"/queries/{query}/cancel")
    ended = await api.ended(query)
    count = 2 if how == "failed" else 1
    cost = 0.15 * count if model is PRICED else None
    assert (ended["status"], ended["usage"], ended["costUsd"]) == (how, usage(count * 1_000_000, 0), cost)
    told, latency, status, error = (await api.events(query))[-4:]
    assert told["data"] == {"usage": ended["usage"], "costUsd": cost, "modelCalls": count}
    assert (latency["type"], status["to"], error["type"]) == ("data-latency-summary", how, "error")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_a_priced_run_emits_its_cost(plangate: World, api: Caller) -> None:
    spec = team()
    spec["agents"][1]["model"] = PRICED
    await api.register(spec)
    thinks(plangate, delegates_twice, kind="openai")
    query = (await api.run())["id"]
    for event in await api.events(query, "data-tool-agent"):
        assert round(event["data"].pop("costUsd"), 8) == 0.000156  # 1,000 tokens in, 10 out
        assert event["data"] == {"agentName": "helper", "model": PRICED["id"], "usage": usage(1000, 10)}


async def test_every_kind_of_record_matches_its_documentation(plangate: World, api: Caller) -> None:
    await api.register(specs.planning())
    query = await api.submit(specs.store_and_execute(), threadKey="t")
    await api.approve(query["id"])
    await api.serve("actions", {"entitiesAffected": 2})
    ended = await api.ended(query["id"])
    thread = ended["threadId"]
    await api.request("PUT", f"/threads/{thread}/files/a", content=b"x")
    published = await api.do("/artifacts", {"threadId": thread, "channel": "design", "path": "a"})
    works = await works_of(api, query["id"])
    host = await api.read(f"/work-records/{published['producer']['workId']}")
    del host["rollup"]
    kinds = {w["kind"] for w in works.values()}
    assert kinds == {"query", "agent", "model_call", "tool_call", "plan_execution", "action"}
    for work in [*works.values(), host]:
        more = {
            "model_call": OF_MODEL_CALLS,
            "tool_call": {"toolInvocationId"},
        }.get(work["kind"], set())
        assert EVERY | more <= work.keys() <= EVERY | more | {"input", "output", "references"}, work["kind"]
        assert work["status"] == "succeeded"
        assert (work["threadId"], work["attempts"] >= 1) == (thread, True)
        took = moment(work["endedAt"]) - moment(work["startedAt"])
        assert abs(work["durationMs"] - took.total_seconds() * 1000) <= 1  # of times in milliseconds
        parent = work["parentId"]
        assert (parent is None) == (work["kind"] in ("query", "host"))
        assert parent is None or works[parent]["queryId"] == work["queryId"] == query["id"]
    assert (host["kind"], host["queryId"]) == ("host", None)
    assert works[root_of(query["id"])]["kind"] == "query"
    above = {w["kind"]: works[w["parentId"]]["kind"] for w in works.values() if w["parentId"]}
    assert above | {"agent": "tool_call"} == {
        "agent": "tool_call",
        "model_call": "agent",
        "tool_call": "agent",
        "plan_execution": "tool_call",
        "action": "plan_execution",
    }


async def test_the_models_call_id_is_only_an_attribute(plangate: World, api: Caller) -> None:
    """Two runs of one agent make calls under the same ids of the model."""
    agents = [
        specs.agent("chief", "coordinator", stateful=False, routes=["helper"]),
        specs.agent("helper", tools=["add"], stateful=False),
    ]
    await api.register(specs.scripted(specs.tool("add"), agents=agents))
    ask = ("call_agent", {"agent": "helper", "prompt": {"tool": "add", "args": {"n": 1}}})
    query = (await api.submit(specs.script(ask, ask)))["id"]
    served = [await api.serve("add", n) for n in range(2)]
    assert [r["result"]["results"][0]["result"] for r in output_of(await api.ended(query))] == [0, 1]
    works = await works_of(api, query)
    added = [w for w in works.values() if w["name"] == "add"]
    assert [w["id"] for w in added] == [call["workId"] for call in served]
    assert {w["toolInvocationId"] for w in added} == {"scripted-tool-1"}
    assert len({w["id"] for w in added}) == 2
    events = await api.events(query, "tool-invocation")
    told = [(e["workId"], e["toolInvocationId"]) for e in events if e["toolName"] == "add"]
    assert told == [(w["id"], "scripted-tool-1") for w in added for _ in ("call", "result")]
