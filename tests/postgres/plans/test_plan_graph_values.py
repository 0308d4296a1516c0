"""Values with which actions are sent, and actions that cannot be sent."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.postgres.variables.test_state import Pen, thread
from tests.support import specs
from tests.support.client import Caller, good, inner, output_of
from tests.support.graphs import (
    FLOW,
    SEATS,
    add,
    answering,
    begun,
    came_to_nothing,
    count,
    did,
    executed,
    flowing,
    hands,
    make,
    note,
    seats,
    state,
    statuses,
    stored,
    told,
)
from tests.support.world import World


async def test_an_action_with_a_value_of_the_wrong_type_is_not_sent(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(
        api,
        make({"deep": "five"}, "†state.a"),
        count("†state.a.deep", "†state.b"),
        add(1, "†state.a.deep", "†state.a"),
        note("†state.a.deep"),
        count("†state.b"),
    )
    async with hands(api) as mine:
        over = await executed(api, plan)
    assert over["status"] == "failed"
    assert mine.order == [0, 3]
    assert await statuses(api, plan) == ["succeeded", "failed", "failed", "succeeded", "skipped"]
    sent = "Nothing was sent: the action does not match its schema: "
    assert await told(api, plan) == {
        1: ("variable_error", f'{sent}/n: "†state.a.deep" is a string, and this must be integer'),
        2: (
            "variable_error",
            f'{sent}/numbers/1: "†state.a.deep" is a string, and this must be integer; /numbers/2: "†state.a" is an '
            "object, and this must be integer",
        ),
        4: ("skipped", '"†state.b" has no value: action 1 is failed.'),
    }
    rows = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    assert [row["attempts"] for row in rows] == [1, 0, 0, 1, 0]
    assert await plangate.value("SELECT count(*) FROM outgoing_calls") == 2
    work = {x["id"]: x for x in (await api.read(f"/queries/{over['queryId']}/work"))["items"]}
    assert [work[r["workId"]]["status"] if r["workId"] else None for r in rows] == [
        "succeeded",
        "failed",
        "failed",
        "succeeded",
        None,
    ]


async def test_values_are_checked_by_action_schema_and_by_plan_schema(api: Caller) -> None:
    """No discriminator is named, and the schema says how many actions a plan of each mode has."""
    kinds = {
        "items": {"anyOf": [specs.variant("make", value={}), specs.variant("count", n={"type": "integer"})]}
    }
    one = {"properties": {"mode": {"const": "one"}, "actions": {"maxItems": 1}}}
    many = {"properties": {"mode": {"const": "many"}, "actions": {"minItems": 2}}}
    schema = {"properties": {"mode": {}, "actions": {"type": "array", **kinds}}, "oneOf": [one, many]}
    await api.register({**flowing(), "plans": [{"name": "Flow", "schema": schema, "variables": True}]})
    actions = [make("five", "†state.a"), count("†state.a"), make("†state.a")]
    plan = await stored(api, body={"mode": "many", "actions": actions})
    async with hands(api):
        await executed(api, plan)
    assert await statuses(api, plan) == ["succeeded", "failed", "succeeded"]
    assert (await told(api, plan))[1] == (
        "variable_error",
        'Nothing was sent: the action does not match its schema: /n: "†state.a" is a string, and this must be integer',
    )


async def test_a_value_out_of_bounds_names_the_variable_and_not_the_value(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(api, make(0, "†state.a"), count("†state.a"))
    async with hands(api):
        await executed(api, plan)
    assert (await told(api, plan))[1] == (
        "variable_error",
        'Nothing was sent: the action does not match its schema: /n: "†state.a" is an integer that does not match',
    )


async def test_a_path_into_a_result_that_does_not_have_it_is_an_error(api: Caller) -> None:
    """And with alternatives it is no value, so that nothing is to be done."""
    await api.register(flowing())
    plan = await stored(
        api,
        make({"total": [1]}, "†state.sum"),
        make("†state.sum.totl"),
        make("†state.sum.total.1"),
        make("†state.sum.totl || †state.sum.total.1"),
        make("†state.sum.totl || †state.sum.total.0"),
    )
    async with hands(api) as mine:
        over = await executed(api, plan)
    assert over["status"] == "failed"
    assert await statuses(api, plan) == ["succeeded", "failed", "failed", "skipped", "succeeded"]
    assert mine.payload(4) == {"value": 1}
    assert await told(api, plan) == {
        1: (
            "variable_error",
            'Nothing was sent. /value is "†state.sum.totl", which has no value: "†state.sum" has no "totl"; did you mean '
            "'total'?",
        ),
        2: (
            "variable_error",
            'Nothing was sent. /value is "†state.sum.total.1", which has no value: "†state.sum.total" is an array of 1.',
        ),
        3: (
            "skipped",
            '"†state.sum.totl || †state.sum.total.1" has no value, and those that could write one are over.',
        ),
    }


async def test_an_error_before_sending_goes_to_the_second_path(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(
        api, make("x", "†state.a"), count("†state.a", "†state.ok || †state.bad"), note("†state.bad.code")
    )
    async with hands(api) as mine:
        over = await executed(api, plan)
    assert over["status"] == "executed", over["result"]
    assert (mine.order, mine.payload(2)) == ([0, 2], {"text": "variable_error"})


async def test_skips_cascade_except_where_an_alternative_exists(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(
        api,
        make(1, "†state.a"),
        make("†state.a", "†state.b"),
        make("†state.b.x", "†state.c"),
        make("†state.c || †state.a", "†state.d"),
        make("†state.d"),
        make("†state.b || †input.n", "†state.e"),
        make("†state.a || †state.e", "†state.f"),
        make(["†state.e", "†state.c"]),
        make("†state.e && †state.c || †state.e && †state.f"),
    )
    async with hands(api, answering(_0=ValueError("no luck"))) as mine:
        over = await executed(api, plan, inputs={"n": 7})
    assert over["status"] == "failed"
    assert await statuses(api, plan) == [
        "failed",
        "skipped",
        "skipped",
        "skipped",
        "skipped",
        "succeeded",
        "succeeded",
        "skipped",
        "succeeded",
    ]
    assert [mine.payload(n)["value"] for n in (5, 6, 8)] == [7, 7, 7]
    assert (await told(api, plan))[3] == (
        "skipped",
        '"†state.c || †state.a" has no value: action 2 is skipped, action 0 is failed.',
    )
    assert over["result"]["summary"] == "3 of 9 actions took effect."


async def test_a_list_with_a_failed_part_is_not_read(plangate: World, api: Caller) -> None:
    """And neither is what was there before the plan, where nobody wrote to it."""
    await api.register(flowing())
    await Pen(plangate, await thread(api, "t")).write("†state.list", [0])
    plan = await stored(
        api,
        *(make(n, "†state.list", "push") for n in range(3)),
        make("†state.list"),
        threadKey="t",
    )
    async with hands(api, answering(_1=ValueError("no luck"))):
        await executed(api, plan)
    assert await statuses(api, plan) == ["succeeded", "failed", "succeeded", "skipped"]
    assert sorted((await state(api, plan))["list"]) == [0, 0, 2]
    assert (await told(api, plan))[3][1] == ('"†state.list" has no value: action 1 is failed.')


# -- names and values that nobody would choose


async def test_hostile_names_and_values_pass_unchanged(api: Caller) -> None:
    await api.register(flowing())
    segments = [
        '"a.b"',
        '"\\"quoted\\""',
        '"\\u0001\\n"',
        '""',
        '"__proto__"',
        "constructor",
        '"|| †x"',
        "ключ",
        '"0"',
    ]
    path = "†state." + ".".join(segments)
    plan = await stored(
        api, make("†input.it", path), make(path, "†state.copy"), make("†state.copy", "†__proto__.toString")
    )
    value = {
        "__proto__": 1,
        "hasOwnProperty": "†state",
        "x" * 1000: "'; DROP TABLE plans; --",
        "\u202e": "\U0001f600",
    }
    async with hands(api) as mine:
        over = await executed(api, plan, inputs={"it": value})
    assert over["status"] == "executed", over["result"]
    assert [mine.payload(n) for n in range(3)] == [{"value": value}] * 3
    held = await state(api, plan)
    for key in ("a.b", '"quoted"', "\u0001\n", "", "__proto__", "constructor", "|| †x", "ключ", "0"):
        held = held[key]
    assert held == value


async def test_a_variable_of_ten_thousand_characters_is_read(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    await Pen(plangate, await thread(api, "t")).write(f"†state.{'k' * 10_000}", 1)
    plan = await stored(api, count(f"†state.{'k' * 10_000}"), make(["†input.n"] * 1000), threadKey="t")
    async with hands(api) as mine:
        over = await executed(api, plan, inputs={"n": 1})
    assert over["status"] == "executed", over["result"]
    assert (mine.payload(0), mine.payload(1)) == ({"n": 1}, {"value": [1] * 1000})


async def test_values_nested_too_deep_are_not_sent(api: Caller) -> None:
    await api.register(flowing())
    deep = deep_in("†input.it")
    value: Any = 1
    for _ in range(40):
        value = [value]
    plan = await stored(api, make(deep), make("†input.it"))
    assert await came_to_nothing(api, plan, inputs={"it": value}) == (
        "The plan is invalid once its variables are resolved. /body/actions/0: With their values the "
        "arguments are nested deeper than 64."
    )
    plan = await stored(api, make(value, "†state.it"), make(deep_in("†state.it")), make("†state.it"))
    async with hands(api) as mine:
        await executed(api, plan)
    assert mine.order == [0, 2]
    assert (await told(api, plan))[1] == (
        "variable_error",
        "Nothing was sent. With their values the arguments are nested deeper than 64.",
    )


def deep_in(value: Any) -> Any:
    for _ in range(30):
        value = [value]
    return value


# -- what does not fit and is known before


WRONG = "The plan is invalid once its variables are resolved. "


async def test_no_gate_opens_for_an_action_whose_values_do_not_match(plangate: World, api: Caller) -> None:
    await api.register(flowing(references=[SEATS]))
    await Pen(plangate, await thread(api, "t")).write("†state.name", "five")
    _, seat = await seats(api, {"rows": [1, "A"]})
    wrong = [
        (count("†input.n"), 'n: "†input.n" is an integer that does not match'),
        (count("†state.name"), 'n: "†state.name" is a string, and this must be integer'),
        (
            count("†state.gone || †state.name"),
            'n: "†state.gone || †state.name" is a string, and this must be integer',
        ),
        (add(1, f"{seat}.rows.1"), f'numbers/1: "{seat}.rows.1" is a string, and this must be integer'),
        (add(seat), f'numbers/0: "{seat}" is an object, and this must be integer'),
    ]
    for action, why in wrong:
        actions = [make("†input.n", "†state.made"), action, note("†state.made")]
        plan = await stored(api, *actions, threadKey="t")
        assert await came_to_nothing(api, plan, inputs={"n": 0}) == (
            f"{WRONG}/body/actions/1: the action does not match its schema: /{why}."
        )
    assert await plangate.value("SELECT count(*) FROM outgoing_calls") == 0
    assert await plangate.value("SELECT count(*) FROM plan_snapshots") == 0
    plan = await stored(api, *(count("†input.n") for _ in range(30)), threadKey="t")
    message = await came_to_nothing(api, plan, inputs={"n": "x" * 1000})
    assert message.count("the action does not match its schema") == 20
    assert "xx" not in message


async def test_no_gate_opens_for_actions_that_break_a_common_rule(api: Caller) -> None:
    """Each alone does, whatever the others are."""
    flow = copy.deepcopy(FLOW)
    large = {"properties": {"kind": {"const": "count"}, "n": {"minimum": 1000}}, "required": ["n"]}
    flow["schema"]["properties"]["actions"] |= {"contains": large, "minContains": 0, "maxContains": 1}
    await api.register({**flowing(), "plans": [flow]})
    plan = await stored(api, count("†input.a"), count("†input.b"), make("†input.a"))
    message = await came_to_nothing(api, plan, inputs={"a": 5000, "b": 7000})
    assert message.startswith(f"{WRONG}/body/actions: ")
    assert "\0" not in message
    plan = await stored(api, count("†input.a"), count("†input.b"))
    async with hands(api) as mine:
        await executed(api, plan, inputs={"a": 5000, "b": 7})
    assert sorted(mine.order) == [0, 1]


async def test_a_planner_reads_the_errors_and_stores_the_next_revision(api: Caller) -> None:
    await api.register(flowing())
    stores = [
        ("storePlan", {"specName": "Flow", "planId": "p", "body": {"actions": [count("†input.n")]}}),
        ("executePlan", {"planId": "p", "inputs": {"n": "one"}}),
        ("storePlan", {"specName": "Flow", "planId": "p", "body": {"actions": [note("†input.n")]}}),
        ("executePlan", {"planId": "p", "inputs": {"n": "one"}}),
    ]
    query = (await api.submit(specs.delegated(*stores)))["id"]
    async with hands(api):
        await api.approve(query)
        entries = output_of(await api.ended(query))
    told_of = 'n: "†input.n" is a string, and this must be integer.'
    assert inner(entries[1]) == f"{WRONG}/body/actions/0: the action does not match its schema: /{told_of}"
    assert inner(entries[2])["revision"] == 2
    assert inner(entries[3])["status"] == "executed"


async def test_a_gate_opens_although_some_values_are_unknown(plangate: World, api: Caller) -> None:
    """What an action will read of another, and a text with two daggers, is no reason not to ask."""
    await api.register(flowing(references=[SEATS]))
    await Pen(plangate, await thread(api, "t")).write("†state.n", "five")
    _, seat = await seats(api, [1, 2])
    plan = await stored(
        api,
        make(5, "†state.n"),
        count("†state.n"),
        add(f"{seat}.0", "†input.n", "†state.n"),
        note("††state.n"),
        count("†input.n"),
        threadKey="t",
    )
    async with hands(api) as mine:
        over = await executed(api, plan, inputs={"n": 7})
    assert over["status"] == "executed", over["result"]
    assert [mine.payload(n) for n in range(1, 5)] == [
        {"n": 5},
        {"numbers": [1, 7, 5]},
        {"text": "†state.n"},
        {"n": 7},
    ]


async def test_values_too_large_for_the_gate_are_checked_when_sent(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.plans.prechecks.KNOWN_BYTES", 10)
    await api.register(flowing())
    plan = await stored(api, note("†input.text"), count("†input.text"))
    async with hands(api) as mine:
        over = await executed(api, plan, inputs={"text": "much too long"})
    assert (over["status"], mine.order) == ("failed", [0])
    assert (await told(api, plan))[1][0] == "variable_error"


# -- other boundaries


async def test_the_result_of_a_tool_is_the_result_of_its_action(api: Caller) -> None:
    tool = specs.tool("act", inputSchema={"type": "object"})
    await api.register(flowing(actionDispatcher={"kind": "tool", "tool": "act"}, tools=[tool]))
    plan = await stored(api, make("†input.n", "†state.rows"), make("†state.rows"))
    query = await begun(api, plan, inputs={"n": 1})
    await api.approve(query["id"])
    call = await api.serve("act", [{"any": "value"}])
    assert call["args"] == {"value": 1}
    (second,) = await api.claim("act")
    assert second["args"] == {"value": [{"any": "value"}]}
    good(await api.result(second, None))
    await api.ended(query["id"])
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "executed"
    assert await state(api, plan) == {"rows": [{"any": "value"}]}


async def test_each_kind_uses_its_own_dispatcher(api: Caller) -> None:
    kinds = ["make", "add", "note", "count"]
    await api.register(flowing(actionDispatcher=None, actionDispatchers=dict.fromkeys(kinds, "client")))
    plan = await stored(api, make(2, "†state.a"), count("†state.a", "†state.b"), add("†state.a", "†state.b"))
    query = await begun(api, plan)
    await api.approve(query["id"])
    await api.serve("actions.make", did(2))
    await api.serve("actions.count", did(3))
    call = await api.serve("actions.add", did(5))
    assert call["actions"][0]["payload"] == {"numbers": [2, 3]}
    await api.ended(query["id"])
    assert await state(api, plan) == {"a": 2, "b": 3}
