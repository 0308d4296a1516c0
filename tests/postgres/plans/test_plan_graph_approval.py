"""What is approved of a plan with variables is exactly what is sent."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from app.base.json.strict_json import canonical
from tests.postgres.variables.test_state import Pen, thread
from tests.support import specs
from tests.support.client import Caller, good, inner, output_of
from tests.support.graphs import (
    SEATS,
    begun,
    came_to_nothing,
    count,
    executed,
    flowing,
    hands,
    make,
    note,
    seats,
    state,
    statuses,
    stored,
    subject,
)
from tests.support.world import World


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


# -- the subject


async def test_the_subject_has_the_value_or_source_of_every_variable(plangate: World, api: Caller) -> None:
    await api.register(flowing(references=[SEATS], data={"shop": {"name": "Ann's"}}))
    rows = [{"n": n, "text": "x" * 40} for n in range(40)]
    await Pen(plangate, await thread(api, "t")).write("†state.rows", rows)
    id, ref = await seats(api, {"free": ["1A", "1B"]})
    plan = await stored(
        api,
        make(["†state.rows", "†input.n", "†state.rows"], "†state.sum"),
        make(["†shop.name", f"{ref}.free.1", "†input.no || †state.sum.0"], "†state.end", "push"),
        make(["a † b", "††plain"], "†state.end", "push"),
        make("†state.end || †input.n"),
        threadKey="t",
    )
    query = await begun(api, plan, inputs={"n": 5})
    approval = await api.gate(query["id"])
    shown = await subject(api, approval)
    sample = rows[:3]
    assert shown["variables"] == [
        {
            "variable": "†state.rows",
            "digest": digest(rows),
            "type": "an array of 40",
            "sizeBytes": len(canonical(rows)),
            "glimpse": {"count": 40, "sample": sample},
        },
        {"variable": "†input.n", "digest": digest(5), "type": "an integer", "sizeBytes": 1, "glimpse": 5},
        {
            "variable": "†shop.name",
            "digest": digest("Ann's"),
            "type": "a string",
            "sizeBytes": 7,
            "glimpse": "Ann's",
        },
        {"variable": "†input.no"},
        {"variable": "†state.sum.0", "resultOf": [0]},
        {"variable": "†state.end", "resultOf": [1, 2]},
    ]
    assert shown["references"] == [
        {
            "kind": "Seats",
            "id": id,
            "glimpse": {"free": ["1A", "1B"]},
            "sizeBytes": 20,
            "digest": digest({"free": ["1A", "1B"]}),
        }
    ]
    assert shown["inputs"] == {"n": 5}
    assert shown["body"] == plan["body"]
    assert shown["dispatchers"].keys() == {"make"}
    assert "x" * 40 not in json.dumps(shown["body"])
    (told,) = await api.events(query["id"], "approval-required")
    assert told["data"]["glimpses"]["variables"] == approval["glimpses"]["variables"] == shown["variables"]


async def test_an_earlier_value_that_the_plan_writes_is_shown_with_its_source(
    plangate: World, api: Caller
) -> None:
    await api.register(flowing())
    await Pen(plangate, await thread(api, "t")).write("†state.n", {"old": 1})
    plan = await stored(api, make(2, "†state.n.new"), make("†state.n"), threadKey="t")
    query = await begun(api, plan)
    approval = await api.gate(query["id"])
    assert (await subject(api, approval))["variables"] == [
        {
            "variable": "†state.n",
            "digest": digest({"old": 1}),
            "type": "an object",
            "sizeBytes": 9,
            "glimpse": {"old": 1},
            "resultOf": [0],
        }
    ]
    async with hands(api) as mine:
        good(await api.decide(approval["id"]))
        await api.ended(query["id"])
    assert mine.payload(1) == {"value": {"old": 1, "new": 2}}


async def test_an_earlier_value_that_the_plan_overwrites_is_not_shown(plangate: World, api: Caller) -> None:
    """Nobody will read it: not even where the plan is executed again, and finds what it wrote the first time."""
    await api.register(flowing())
    await Pen(plangate, await thread(api, "t")).write("†state.rows", [1])
    plan = await stored(
        api,
        make(2, "†state.n"),
        make({"x": 3}, "†state.m || †state.k"),
        make(4, "†state.rows", "push"),
        make(["†state.n", "†state.m.x", "†state.k || †state.m", "†state.rows"]),
        threadKey="t",
    )
    seen = []
    for _ in range(2):
        query = await begun(api, plan)
        approval = await api.gate(query["id"])
        told = (await subject(api, approval))["variables"]
        seen.append({one["variable"]: (one.get("glimpse"), one["resultOf"]) for one in told})
        async with hands(api):
            good(await api.decide(approval["id"]))
            await api.ended(query["id"])
    fresh = {
        "†state.n": (None, [0]),
        "†state.m.x": (None, [1]),
        "†state.k": (None, [1]),
        "†state.m": (None, [1]),
    }
    assert seen == [{**fresh, "†state.rows": ([1], [2])}, {**fresh, "†state.rows": ([1, 4], [2])}]


async def test_the_event_of_a_gate_shows_fifty_variables_and_the_subject_all(api: Caller) -> None:
    await api.register(flowing())
    inputs = {f"n{n}": n for n in range(60)}
    plan = await stored(api, make([f"†input.{name}" for name in inputs]))
    query = await begun(api, plan, inputs=inputs)
    approval = await api.gate(query["id"])
    assert len(approval["glimpses"]["variables"]) == 50
    assert approval["glimpses"]["variablesLeftOut"] == 10
    assert [v["glimpse"] for v in (await subject(api, approval))["variables"]] == list(range(60))


async def test_different_inputs_or_state_change_the_digest(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    pen = Pen(plangate, await thread(api, "t"))
    await pen.write("†state.n", 1)
    plan = await stored(api, make(["†state.n", "†input.n"]), threadKey="t")
    digests = []
    for wrote, inputs in [(1, {"n": 1}), (2, {"n": 1}), (2, {"n": 2}), (2, {"n": 2})]:
        await pen.write("†state.n", wrote)
        query = await begun(api, plan, inputs=inputs)
        digests.append((await api.gate(query["id"]))["digest"])
        await api.do(f"/queries/{query['id']}/cancel")
    assert len(set(digests)) == 3
    assert digests[2] == digests[3]


# -- what moves


@pytest.mark.parametrize("when", ["before the click", "after it"])
async def test_state_written_after_the_gate_does_not_affect_the_plan(
    plangate: World, api: Caller, when: str
) -> None:
    await api.register(flowing(limits={"maxParallelActions": 1}))
    pen = Pen(plangate, await thread(api, "t"))
    await pen.write("†state.n", 1)
    await pen.write("†state.list", ["old"])
    plan = await stored(
        api,
        make("†state.n", "†state.list", "push"),
        make("†state.list", "†state.all"),
        make("†state.n"),
        threadKey="t",
    )
    query = await begun(api, plan)
    approval = await api.gate(query["id"])

    async def move() -> None:
        await pen.write("†state.n", 99)
        await pen.write("†state.list", "new", "push")

    if when == "before the click":
        await move()
    good(await api.decide(approval["id"]))
    (first,) = await api.claim("actions")
    if when == "after it":
        await move()
    good(await api.result(first, {"entitiesAffected": 1, "details": first["actions"][0]["payload"]["value"]}))
    async with hands(api) as mine:
        await api.ended(query["id"])
    assert first["actions"][0]["payload"] == {"value": 1}
    assert [mine.payload(n) for n in (1, 2)] == [{"value": ["old", 1]}, {"value": 1}]
    assert await state(api, plan) == {"n": 99, "list": ["old", "new", 1], "all": ["old", 1]}


async def test_a_write_that_does_not_fit_the_current_state_fails_its_action(
    plangate: World, api: Caller
) -> None:
    await api.register(flowing())
    pen = Pen(plangate, await thread(api, "t"))
    await pen.write("†state.list", ["old"])
    plan = await stored(
        api, make(1, "†state.list", "push"), make("†state.list"), make("†input.n"), threadKey="t"
    )
    query = await begun(api, plan, inputs={"n": 1})
    await api.gate(query["id"])
    await pen.write("†state.list", "a text now")
    async with hands(api):
        await api.approve(query["id"])
        await api.ended(query["id"])
    over = await api.read(f"/plans/{plan['id']}")
    assert over["status"] == "failed"
    assert await statuses(api, plan) == ["failed", "skipped", "succeeded"]
    assert over["result"]["actions"][0]["error"] == {
        "code": "not_written",
        "message": "The action ran, but its result was not written: push needs an array to append to, and there is a "
        "string.",
    }
    assert await state(api, plan) == {"list": "a text now"}


async def test_a_write_that_does_not_fit_the_snapshot_is_reported(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    pen = Pen(plangate, await thread(api, "t"))
    await pen.write("†state.list", "a text")
    plan = await stored(api, make(1, "†state.list", "push"), make("†state.list"), threadKey="t")
    query = await begun(api, plan)
    await api.gate(query["id"])
    await pen.write("†state.list", [])
    async with hands(api) as mine:
        await api.approve(query["id"])
        await api.ended(query["id"])
    assert mine.order == [0]
    result = (await api.read(f"/plans/{plan['id']}"))["result"]
    assert result["actions"][1]["error"] == {
        "code": "variable_error",
        "message": 'Nothing was sent. "†state" was written to since the plan was approved, and what this plan wrote does '
        "not fit what was approved: push needs an array to append to, and there is a string.",
    }


async def test_a_tampered_snapshot_is_rejected(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(flowing())
    await Pen(plangate, await thread(api, "t")).write("†state.n", 1)
    plan = await stored(api, make("†state.n"), threadKey="t")
    query = await begun(api, plan)
    await api.gate(query["id"])
    assert await owner.execute("UPDATE plan_snapshots SET body = '{\"n\":2}'") == "UPDATE 1"
    approval = await api.approve(query["id"])
    error = (await api.ended(query["id"]))["error"]["message"]
    assert error == (
        f"What would run is not what was approved ({approval['id']}): the plan, a reference, the runtime or a dispatcher "
        "changed. Nothing was sent. Execute the plan again to ask for a new approval."
    )
    assert await plangate.value("SELECT count(*) FROM outgoing_calls") == 0


async def test_values_keep_their_bytes_and_key_order(plangate: World, api: Caller) -> None:
    """A value that looks like a variable, or like a literal that is written as one, is data."""
    await api.register(flowing(data={"shop": {"a": -0.0, "z": 1.0}}))
    hostile = {
        "__proto__": {"polluted": True},
        "constructor": "†state.secret",
        "†state": ["††", "†", "†input.x || †y", "\u0001\u2028'\"\\"],
        "b": [1.0, 1, -0.0, 1e300, 2**63 - 1, None, False, ""],
        "a": {"": {"toString": "†ref.Seats.x"}},
    }
    await Pen(plangate, await thread(api, "t")).write("†state.it", hostile)
    plan = await stored(
        api,
        make(["†state.it", "†input.it", "†shop"], "†state.copy"),
        make(["†state.copy", "††state.it"]),
        threadKey="t",
    )
    async with hands(api) as mine:
        over = await executed(api, plan, inputs={"it": hostile})
    assert over["status"] == "executed", over["result"]
    values = [hostile, hostile, {"a": -0.0, "z": 1.0}]
    assert json.dumps(mine.payload(0)) == json.dumps({"value": values})
    assert json.dumps(mine.payload(1)) == json.dumps({"value": [values, "†state.it"]})
    assert json.dumps((await state(api, plan))["copy"]) == json.dumps(values)


async def test_a_literal_dagger_is_unescaped_without_variables(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(api, note("††state is where things are"), note("plain"))
    async with hands(api) as mine:
        over = await executed(api, plan)
    assert over["status"] == "executed", over["result"]
    assert [mine.payload(n) for n in (0, 1)] == [{"text": "†state is where things are"}, {"text": "plain"}]


# -- inputs, when the plan reaches its gate


@pytest.mark.parametrize(
    ("actions", "inputs", "told"),
    [
        (
            [count("†input.n")],
            {},
            'A variable of the plan has no value. /body/actions/0/n: "†input.n" has no value: "†input" has no "n", it is '
            "empty.",
        ),
        (
            [make(1), make(["†input.nn.a"])],
            {"n": 1, "nn": 2},
            'A variable of the plan has no value. /body/actions/1/value/0: "†input.nn.a" has no value: "†input.nn" is an '
            "integer.",
        ),
        (
            [make("†input.a || †input.n.b && †input.c")],
            {"n": 1},
            'A variable of the plan has no value. /body/actions/0/value: "†input.a || †input.n.b && †input.c" has no '
            'value: "†input" has no "a"; known are n; "†input.n" is an integer.',
        ),
        (
            [make(1, "†state.a"), make("†state.a && †input.a"), make("†state.a || †input.a")],
            {"n": 1},
            'A variable of the plan has no value. /body/actions/1/value: "†state.a && †input.a" has no value: "†input" '
            'has no "a"; known are n.',
        ),
        (
            [count("†input.n")],
            {"n": "five"},
            'The inputs do not match the runtime\'s inputSchema. /inputs/n: must be integer, not "five".',
        ),
    ],
)
async def test_wrong_inputs_fail_before_the_gate_opens(
    api: Caller, actions: list[Any], inputs: Any, told: str
) -> None:
    await api.register(flowing(inputSchema={"properties": {"n": {"type": "integer"}}}))
    plan = await stored(api, *actions)
    assert await came_to_nothing(api, plan, inputs=inputs) == told


async def test_missing_state_fails_before_the_gate(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    pen = Pen(plangate, await thread(api, "t"))
    await pen.write("†state.n", {"a": 1})
    plan = await stored(api, make("†state.n.a"), make(1, "†state.m"), threadKey="t")
    await pen.write("†state.n", {})
    assert await came_to_nothing(api, plan) == (
        'A variable of the plan has no value. /body/actions/0/value: "†state.n.a" has no value: "†state.n" has no "a", it '
        "is empty."
    )
    await pen.write("†state.n.a", 7)
    async with hands(api) as mine:
        over = await executed(api, plan)
    assert (over["status"], over["copiedFrom"], mine.payload(0)) == ("executed", None, {"value": 7})


async def test_inputs_of_an_execution_override_those_of_the_query(api: Caller) -> None:
    await api.register(flowing())
    body = {"actions": [make(["†input.a", "†input.b"]), make("†input")]}
    query = await api.submit(
        specs.delegated(
            ("storePlan", {"specName": "Flow", "planId": "p", "body": body}),
            ("executePlan", {"planId": "p", "inputs": {"b": 2, "c": "†input.a"}}),
        ),
        inputs={"a": 1, "b": {"deep": 1}},
    )
    approval = await api.gate(query["id"])
    assert (await subject(api, approval))["inputs"] == {"a": 1, "b": 2, "c": "†input.a"}
    async with hands(api) as mine:
        good(await api.decide(approval["id"]))
        ended = await api.ended(query["id"])
    assert inner(output_of(ended)[1])["status"] == "executed"
    assert [mine.payload(n) for n in (0, 1)] == [
        {"value": [1, 2]},
        {"value": {"a": 1, "b": 2, "c": "†input.a"}},
    ]
