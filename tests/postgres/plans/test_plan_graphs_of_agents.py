"""Graphs that agents store and execute."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.client import Caller
from tests.support.graphs import add, count, flowing, hands, make, state
from tests.support.specs import Spec, agent


def asking(name: str, tool: str, **args: Any) -> Spec:
    return {"tool": "call_agent", "args": {"agent": name, "prompt": {"tool": tool, "args": args}}}


async def asked(api: Caller, *actions: Spec) -> Spec:
    """The query whose planner stores these actions and whose executor has them executed."""
    script = [
        asking("planner", "storePlan", specName="Flow", planId="p", body={"actions": list(actions)}),
        asking("doer", "executePlan", planId="p", inputs={"b": 40}),
    ]
    query: Spec = await api.do("/queries", {"runtime": "default", "prompt": json.dumps({"script": script})})
    return query


def heard(over: Spec) -> list[Any]:
    """What the planner's and the executor's calls came to."""
    return [one["result"]["results"][0] for one in json.loads(over["output"])["results"]]


@pytest.mark.parametrize("by", ["plan", "toolkit"])
async def test_a_planner_stores_paths_and_an_executor_has_values_moved(api: Caller, by: str) -> None:
    spec = flowing()
    if by == "toolkit":
        spec["plans"] = [{k: v for k, v in spec["plans"][0].items() if k != "variables"}]
        spec["agents"][1] = agent("planner", "planner", plan="Flow", toolkits=["variables"])
    await api.register(spec)
    query = await asked(
        api, make(2, "†state.a"), add("†state.a", "†input.b", path="†state.sum"), count("†state.sum")
    )
    async with hands(api) as mine:
        await api.approve(query["id"])
        over = await api.ended(query["id"])
    stored, executed = heard(over)
    assert (stored["result"]["status"], executed["result"]["status"]) == ("draft", "executed"), over
    assert [mine.payload(n) for n in range(3)] == [{"value": 2}, {"numbers": [2, 40]}, {"n": 42}]
    assert await state(api, over) == {"a": 2, "sum": 42}


async def test_a_planner_gets_the_errors_of_its_graph(api: Caller) -> None:
    await api.register(flowing())
    query = await asked(api, count("†state.a"), make(1, "state.b"))
    stored, executed = heard(await api.ended(query["id"]))
    assert "/actions/1: _outputPath" in stored["error"], stored
    assert "There is no plan" in executed["error"]
