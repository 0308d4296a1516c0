"""Graphs that a host stores and executes: values pass from action to action without a model."""

from __future__ import annotations

from typing import Any

from tests.support.client import Caller
from tests.support.graphs import (
    add,
    carry_out,
    count,
    did,
    executed,
    flowing,
    hands,
    make,
    note,
    state,
    statuses,
    stored,
)


async def test_values_pass_from_action_to_action(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(
        api,
        add("†state.a", "†state.b", path="†state.sum"),
        make(2, "†state.a"),
        make("†input.b", "†state.b"),
        count("†state.sum"),
    )
    async with hands(api) as mine:
        over = await executed(api, plan, inputs={"b": 40})
    assert over["status"] == "executed", over["result"]
    assert sorted(mine.order[:2]) == [1, 2]
    assert mine.order[2:] == [0, 3]
    assert [mine.payload(n) for n in range(4)] == [
        {"numbers": [2, 40]},
        {"value": 2},
        {"value": 40},
        {"n": 42},
    ]
    assert await state(api, over) == {"a": 2, "b": 40, "sum": 42}
    assert await statuses(api, over) == ["succeeded"] * 4
    assert over["result"]["entitiesAffected"] == 4


async def test_a_failure_stops_only_its_dependents(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(
        api,
        make(1, "†state.a"),
        make(2, "†state.b"),
        count("†state.a", "†state.c"),
        count("†state.b"),
        count("†state.c"),
    )

    def do(action: dict[str, Any]) -> Any:
        return ValueError("no luck") if action["index"] == 0 else carry_out(action)

    async with hands(api, do):
        over = await executed(api, plan)
    assert over["status"] == "failed"
    assert await statuses(api, over) == ["failed", "succeeded", "skipped", "succeeded", "skipped"]
    told = {a["index"]: a["error"]["message"] for a in over["result"]["actions"] if "error" in a}
    assert told == {
        0: "no luck",
        2: '"†state.a" has no value: action 0 is failed.',
        4: '"†state.c" has no value: action 2 is skipped.',
    }


async def test_an_error_written_to_the_second_path_is_handled(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(
        api,
        make(1, "†state.ok || †state.bad"),
        count("†state.ok"),
        note("†state.bad.message", "†state.told"),
        make("†state.ok || †state.told", "†state.end"),
    )

    def do(action: dict[str, Any]) -> Any:
        return ValueError("no luck") if action["index"] == 0 else carry_out(action)

    async with hands(api, do) as mine:
        over = await executed(api, plan)
    assert over["status"] == "executed", over["result"]
    assert await statuses(api, over) == ["failed", "skipped", "succeeded", "succeeded"]
    assert mine.payload(2) == {"text": "no luck"}
    assert await state(api, over) == {
        "bad": {"code": "dispatch_failed", "message": "no luck"},
        "told": "no luck",
        "end": "no luck",
    }


async def test_a_dispatcher_picks_a_path(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(
        api, make(1, "†state.left || †state.right"), count("†state.left"), count("†state.right")
    )

    def do(action: dict[str, Any]) -> Any:
        if action["index"] == 0:
            return did({"_output": "†state.right", "value": 7})
        return carry_out(action)

    async with hands(api, do) as mine:
        over = await executed(api, plan)
    assert over["status"] == "executed", over["result"]
    assert await statuses(api, over) == ["succeeded", "skipped", "succeeded"]
    assert (mine.order, mine.payload(2)) == ([0, 2], {"n": 7})
    assert await state(api, over) == {"right": 7}


async def test_the_journal_has_every_change_of_every_action(api: Caller) -> None:
    await api.register(flowing(limits={"maxParallelActions": 1}))
    plan = await stored(api, make("x", "†state.a"), count("†state.a", "†state.b"), count("†state.b"))
    async with hands(api):
        over = await executed(api, plan)
    told = await api.events(over["queryId"], "action-status-change", "state-write")
    assert [
        (e["data"]["index"], e["data"]["from"], e["data"]["to"])
        if e["type"] == "action-status-change"
        else e["data"]["path"]
        for e in told
    ] == [
        (0, "pending", "dispatched"),
        "†state.a",
        (0, "dispatched", "succeeded"),
        (1, "pending", "failed"),
        (2, "pending", "skipped"),
    ]
    rows = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    assert [e["workId"] for e in told[:4]] == [rows[0]["workId"]] * 3 + [rows[1]["workId"]]
    work = {x["id"]: x for x in (await api.read(f"/queries/{over['queryId']}/work"))["items"]}
    parents = {work[row["workId"]]["parentId"] for row in rows[:2]}
    assert [work[parent]["kind"] for parent in parents] == ["plan_execution"]


async def test_a_plan_without_approval_runs_on_its_snapshot(api: Caller) -> None:
    await api.register(flowing(approvalPolicies={"plans": "never"}))
    plan = await stored(api, make("†input.n", "†state.a"), make("†state.a"))
    async with hands(api) as mine:
        started = await api.do(f"/plans/{plan['id']}/execute", {"inputs": {"n": 1}})
        await api.ended(started["id"])
    assert mine.payload(1) == {"value": 1}
    assert mine.seen[0]["index"] == 0
    (row,) = (await api.read("/approvals", queryId=started["id"]))["items"]
    assert (row["status"], row["decidedBy"]) == ("approved", "policy")


async def test_a_plan_that_only_reads_is_sent_one_action_at_a_time(api: Caller) -> None:
    """And one without anything to replace as a batch, with the inputs of its execution."""
    await api.register(flowing())
    for actions, sent in [([make("†input.n"), make(2)], 1), ([make(1), make(2)], 2)]:
        plan = await stored(api, *actions)
        query = (await api.do(f"/plans/{plan['id']}/execute", {"inputs": {"n": 1}}))["id"]
        await api.approve(query)
        for _ in range(2 // sent):
            call = await api.serve("actions", None)
            assert len(call["actions"]) == sent
            assert call["inputs"] == {"n": 1}
            assert {a["payload"]["value"] for a in call["actions"]} <= {1, 2}
        await api.ended(query)
