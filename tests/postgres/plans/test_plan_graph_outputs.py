"""Output paths of plan actions: where results are written, and errors of results that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from app.base.json.limits import LIMITS
from app.documents.bodies import Change
from app.documents.models import WriteRequest
from app.documents.service import DocumentService
from tests.postgres.variables.test_state import Pen, thread
from tests.support.client import Caller
from tests.support.graphs import (
    answering,
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
    told,
)
from tests.support.world import World

# -- the methods


@pytest.mark.parametrize(
    ("before", "method", "value", "after"),
    [
        ({"a": 1}, None, [2], [2]),
        ({"a": 1}, "set", {"b": 2}, {"b": 2}),
        ({"a": {"x": 1, "y": [1]}, "c": 1}, "merge", {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}, "c": 1}),
        ({"a": {"x": 1}, "c": 1}, "assign", {"a": {"y": 2}}, {"a": {"y": 2}, "c": 1}),
        ([1], "push", [2], [1, [2]]),
        ([1], "concat", [2, 3], [1, 2, 3]),
        ("one ", "concat", "two", "one two"),
        (None, "set", None, None),
    ],
)
async def test_each_output_method_writes_as_documented(
    plangate: World, api: Caller, before: Any, method: str | None, value: Any, after: Any
) -> None:
    await api.register(flowing())
    await Pen(plangate, await thread(api, "t")).write("†state.it", before)
    plan = await stored(api, make("†input.it", "†state.it", method), make("†state.it"), threadKey="t")
    async with hands(api) as mine:
        over = await executed(api, plan, inputs={"it": value})
    assert over["status"] == "executed", over["result"]
    assert mine.payload(1) == {"value": after}
    assert await state(api, plan) == {"it": after}


@pytest.mark.parametrize(
    ("before", "method", "value", "why"),
    [
        ("text", "push", 1, "push needs an array to append to, and there is a string"),
        ([1], "merge", {"a": 1}, "merge needs an object to write to, and there is an array of 1"),
        ({}, "merge", 5, "merge takes an object, not an integer"),
        (1.5, "assign", {"a": 1}, "assign needs an object to write to, and there is a number"),
        ({}, "assign", [], "assign takes an object, not an array of 0"),
        ([1], "concat", "text", "concat cannot join a string to an array of 1"),
        ("text", "concat", True, "concat takes an array or a string, not a boolean"),
    ],
)
async def test_a_result_that_does_not_fit_is_not_written_and_fails_the_plan(
    plangate: World, api: Caller, before: Any, method: str, value: Any, why: str
) -> None:
    await api.register(flowing())
    await Pen(plangate, await thread(api, "t")).write("†state.it", before)
    plan = await stored(
        api,
        make("†input.it", "†state.it", method),
        make("†state.it"),
        make(1, "†state.other"),
        threadKey="t",
    )
    async with hands(api) as mine:
        over = await executed(api, plan, inputs={"it": value})
    assert over["status"] == "failed"
    assert sorted(mine.order) == [0, 2]
    assert await statuses(api, plan) == ["failed", "skipped", "succeeded"]
    assert await told(api, plan) == {
        0: ("not_written", f"The action ran, but its result was not written: {why}."),
        1: ("skipped", '"†state.it" has no value: action 0 is failed.'),
    }
    assert await state(api, plan) == {"it": before, "other": 1}
    assert over["result"]["actions"][0]["error"]["code"] == "not_written"


async def test_setting_an_impossible_path_is_rejected(plangate: World, api: Caller) -> None:
    """Below a value that is no container, deeper than anything nests, and not as the schema of the state says."""
    schema = {"properties": {"n": {"type": "integer"}}}
    await api.register(flowing(stateSchema=schema))
    pen = Pen(plangate, await thread(api, "t"))
    await pen.write("†state.list", [1])
    await pen.write("†state.text", "x")
    deep = "†state" + ".a" * 70
    plan = await stored(
        api,
        make(1, "†state.text.a"),
        make(1, "†state.list.a"),
        make(1, "†state.list.5"),
        make("1", "†state.n"),
        make(1, deep),
        make(1, "†shop", "set"),
        threadKey="t",
    )
    async with hands(api):
        await executed(api, plan)
    ran = "The action ran, but its result was not written: "
    assert await told(api, plan) == {
        0: ("not_written", f"{ran}text is a string, which has nothing below it."),
        1: (
            "not_written",
            f"{ran}list is an array of 1: an index from 0 to 1 can be written, not a.",
        ),
        2: (
            "not_written",
            f"{ran}list is an array of 1: an index from 0 to 1 can be written, not 5.",
        ),
        3: (
            "not_written",
            f'{ran}the state would not match the runtime\'s stateSchema: /n: must be integer, not "1".',
        ),
        4: ("not_written", f"{ran}objects and arrays would be nested deeper than 64."),
    }
    assert await state(api, plan) == {"list": [1], "text": "x"}


# -- where to


async def test_one_result_goes_to_several_paths(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(
        api,
        make([1], "†state.a && †state.b.c && †results.d"),
        make(["†state.a", "†state.b", "†results"]),
        make("†state.b.c && †results.d", "†state.end"),
    )
    async with hands(api) as mine:
        over = await executed(api, plan)
    assert over["status"] == "executed", over["result"]
    assert mine.payload(1) == {"value": [[1], {"c": [1]}, {"d": [1]}]}
    assert await state(api, plan) == {"a": [1], "b": {"c": [1]}, "end": [1]}
    written = await api.events(over["queryId"], "state-write")
    assert [e["data"]["path"] for e in written][:3] == ["†state.a", "†state.b.c", "†results.d"]
    (work,) = {e["workId"] for e in written[:3]}
    rows = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    assert rows[0]["workId"] == work


async def test_writing_to_several_paths_is_all_or_nothing(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    await Pen(plangate, await thread(api, "t")).write("†state.text", "x")
    plan = await stored(
        api,
        make(1, "†state.a && †results.b && †state.text", "push"),
        make("†results"),
        count("†state.a"),
        threadKey="t",
    )
    async with hands(api):
        over = await executed(api, plan)
    assert await statuses(api, plan) == ["failed", "skipped", "skipped"]
    assert await state(api, plan) == {"text": "x"}
    assert await api.events(over["queryId"], "state-write") == []


async def test_a_data_object_lives_as_long_as_the_query(api: Caller) -> None:
    await api.register(flowing(data={"shop": {"name": "Ann's", "sizes": [1]}}))
    actions = [
        make("L", "†shop.sizes", "push"),
        make("†shop", "†results"),
        make("†results.sizes.1 && †shop.name", "†state.end"),
    ]
    plan = await stored(api, *actions, threadKey="t")
    async with hands(api) as mine:
        for _ in range(2):
            over = await executed(api, plan)
            assert over["status"] == "executed", over["result"]
    shop = {"name": "Ann's", "sizes": [1, "L"]}
    assert [a["payload"] for a in mine.seen if a["index"] == 1] == [{"value": shop}] * 2
    assert await state(api, plan) == {"end": "Ann's"}
    problem = await api.post(
        "/plans",
        {"specName": "Flow", "runtime": "default", "body": {"actions": [make("†results")]}, "threadKey": "t"},
    )
    assert "there is no †results" in problem.text


async def test_an_empty_result_writes_null(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(api, make(1, "†state.a"), make(1, "†state.b"), make(["†state.a", "†state.b"]))
    async with hands(api, answering(_0=None, _1={"entitiesAffected": 3, "summary": "Three."})) as mine:
        over = await executed(api, plan)
    assert mine.payload(2) == {"value": [None, None]}
    assert over["result"]["entitiesAffected"] == 4


# -- alternatives


@pytest.mark.parametrize(
    ("picked", "given", "ran"),
    [
        ({"_output": "†state.a", "value": 1}, {"a": 1}, ["succeeded", "skipped"]),
        ({"_output": "†state.b && †state.c", "value": 2}, {"b": 2, "c": 2}, ["skipped", "succeeded"]),
        ({"plain": 3}, {"a": {"plain": 3}}, ["succeeded", "skipped"]),
        ("text", {"a": "text"}, ["succeeded", "skipped"]),
    ],
)
async def test_an_action_chooses_its_output_path(
    api: Caller, picked: Any, given: Any, ran: list[str]
) -> None:
    await api.register(flowing())
    plan = await stored(
        api,
        make(1, "†state.a || †state.b && †state.c"),
        make("†state.a"),
        make("†state.b && †state.c"),
        make("†state.c || †state.a"),
    )
    async with hands(api, answering(_0=did(picked))) as mine:
        over = await executed(api, plan)
    assert over["status"] == "executed", over["result"]
    assert await statuses(api, plan) == ["succeeded", *ran, "succeeded"]
    (skipped,) = (await told(api, plan)).values()
    assert skipped[1].endswith(" has no value: action 0 wrote to another path.")
    assert await state(api, plan) == given
    assert mine.payload(3) == {"value": next(iter(given.values()))}


@pytest.mark.parametrize(
    "picked",
    [
        {"_output": "†state.c", "value": 1},
        {"_output": "†state.a"},
        {"_output": "state.a", "value": 1},
        {"_output": None, "value": 1},
        {"_output": ["†state.a"], "value": 1},
    ],
)
async def test_an_invalid_choice_of_output_path_is_rejected(api: Caller, picked: Any) -> None:
    await api.register(flowing())
    plan = await stored(api, make(1, "†state.a || †state.b"), make("†state.a"))
    async with hands(api, answering(_0=did(picked))):
        over = await executed(api, plan)
    assert (over["status"], await statuses(api, plan)) == ("failed", ["failed", "skipped"])
    assert (await told(api, plan))[0] == (
        "not_written",
        "The action ran, but its result was not written: the tool's `_output` must name one of: "
        "†state.a, †state.b.",
    )


async def test_only_alternatives_are_picked_from(api: Caller) -> None:
    """To a single path everything is a value."""
    await api.register(flowing())
    plan = await stored(api, make(1, "†state.a"))
    value = {"_output": "†state.b", "value": 1}
    async with hands(api, answering(_0=did(value))):
        await executed(api, plan)
    assert await state(api, plan) == {"a": value}


async def test_an_error_goes_to_every_path_of_the_second_alternative(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(
        api,
        make(1, "†state.ok || †state.bad && †errors || †state.third", "push"),
        make("†state.bad.0.code"),
        make("†errors.0.message"),
        make("†state.third"),
    )
    async with hands(api, answering(_0=ValueError("no luck"))) as mine:
        over = await executed(api, plan)
    assert over["status"] == "executed", over["result"]
    assert await statuses(api, plan) == ["failed", "succeeded", "succeeded", "skipped"]
    assert [mine.payload(n)["value"] for n in (1, 2)] == ["dispatch_failed", "no luck"]
    error = over["result"]["actions"][0]["error"]
    assert error == {
        "code": "dispatch_failed",
        "message": "no luck",
        "writtenTo": ["†state.bad", "†errors"],
    }


async def test_a_bad_dispatch_result_is_an_error_that_names_its_field(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(api, make(1, "†state.ok || †state.bad"), note("†state.bad.message"))
    async with hands(api, answering(_0={"entitiesAffected": -1})) as mine:
        over = await executed(api, plan)
    message = (
        "entitiesAffected must be an integer of at least 0; the dispatcher must return None or an object "
        "{entitiesAffected, summary?, details?}"
    )
    assert mine.payload(1) == {"text": message}
    assert over["result"]["actions"][0]["error"]["code"] == "bad_dispatch_result"


async def test_an_error_that_cannot_be_written_is_reported_with_the_reason(
    plangate: World, api: Caller
) -> None:
    await api.register(flowing())
    await Pen(plangate, await thread(api, "t")).write("†state.bad", "text")
    plan = await stored(
        api, make(1, "†state.ok || †state.bad", "push"), make("†state.ok || †state.bad"), threadKey="t"
    )
    async with hands(api, answering(_0=ValueError("no luck"))):
        over = await executed(api, plan)
    assert (over["status"], await statuses(api, plan)) == ("failed", ["failed", "skipped"])
    assert (await told(api, plan))[0] == (
        "not_written",
        "no luck. This error was not written: push needs an array to append to, and there is a string.",
    )


async def test_a_large_result_is_written_without_an_open_transaction(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds the query waits for no other process, also where several actions end at the same time."""
    await api.register(flowing())
    plan = await stored(
        api, *(make(n, f"†state.n{n}") for n in range(3)), make(["†state.n0.0", "†state.n2.0"])
    )
    open_, writes = [], 0
    write, after = DocumentService.write, DocumentService._changed

    async def writing(*args: Any, **named: Any) -> Any:
        nonlocal writes
        writes += 1
        try:
            return await write(*args, **named)
        finally:
            writes -= 1

    async def making(service: DocumentService, body: bytes, request: WriteRequest, change: Change) -> bytes:
        if len(body) + len(change.value) > LIMITS.process_bytes:
            open_.append(writes)
        return await after(service, body, request, change)

    monkeypatch.setattr(DocumentService, "write", writing)
    monkeypatch.setattr(DocumentService, "_changed", making)
    value = [7, "x" * 1_200_000]
    async with hands(api, answering(_0=did(value), _1=did(value), _2=did(value))) as mine:
        assert (await executed(api, plan))["status"] == "executed"
    assert mine.payload(3) == {"value": [7, 7]}
    assert await state(api, plan) == {f"n{n}": value for n in range(3)}
    assert open_ == [0, 0, 0]
