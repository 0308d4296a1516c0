"""Checks when a plan with variables is stored: each error names action, variable and reason."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.postgres.variables.test_state import Pen, thread
from tests.support import specs
from tests.support.client import Caller, good, inner, output_of, refused
from tests.support.graphs import FLOW, add, count, flaws, flowing, make, note, stored, to
from tests.support.world import World

INPUTS: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "additionalProperties": False,
}
UNWRITTEN = "and no action writes it"


@pytest.mark.parametrize(
    ("actions", "told"),
    [
        (
            [count("†state.a.x", "†state.b"), count("†state.b.y", "†state.c"), count("†state.c", "†state.a")],
            (
                "/0",
                'the plan has a cycle: action 0 reads "†state.a.x", which action 2 writes; action 2 reads "†state.c", '
                'which action 1 writes; action 1 reads "†state.b.y", which action 0 writes',
            ),
        ),
        (
            [count("†state.n", "†state.n", "push")],
            ("/0", 'the plan has a cycle: action 0 reads "†state.n", which it writes itself'),
        ),
        (
            [make(1), count("†state.n")],
            ("/1/n", f'nothing provides "†state.n", {UNWRITTEN}: "†state" has no "n", it is empty'),
        ),
        (
            [count("†input.m")],
            ("/0/n", f'nothing provides "†input.m", {UNWRITTEN}: the runtime\'s inputSchema has no "m"'),
        ),
        (
            [count("†inptu.n")],
            (
                "/0/n",
                f"nothing provides \"†inptu.n\", {UNWRITTEN}: there is no †inptu; did you mean 'input'?",
            ),
        ),
        (
            [make({"deep": ["†shop.nmae"]})],
            (
                "/0/value/deep/0",
                f'nothing provides "†shop.nmae", {UNWRITTEN}: "†shop" has no "nmae"; did you mean \'name\'?',
            ),
        ),
        (
            [make("†shop.name.first")],
            ("/0/value", f'nothing provides "†shop.name.first", {UNWRITTEN}: "†shop.name" is a string'),
        ),
        (
            [make("†state.a || †input.m || †rates")],
            (
                "/0/value",
                f'nothing provides "†state.a || †input.m || †rates", {UNWRITTEN}: "†state" has no "a", it is empty; the '
                "runtime's inputSchema has no \"m\"; there is no †rates; did you mean 'state'?",
            ),
        ),
        (
            [make(1, "†state.a"), make("†state.a && †state.b")],
            (
                "/1/value",
                f'nothing provides "†state.a && †state.b", {UNWRITTEN}: "†state" has no "b", it is empty',
            ),
        ),
        *(
            (
                [make(1, first), make(2, second, method)],
                (
                    "/1/_outputPath",
                    f'actions 0 and 1 both write "{second}", in no order, and `set` keeps only one of them: write to '
                    "different paths, or give both the _outputMethod push or merge",
                ),
            )
            for first, second, method in [
                ("†state.a", "†state.a", None),
                ("†state.a", "†state.a", "push"),
                ("†state.a", "†state.a.b", "set"),
                ("†list.0.b", "†list.0", None),
            ]
        ),
        (
            [make(1), note("†state.a |  †b")],
            (
                "/1",
                "/text is \"†state.a |  †b\": at character 8: after a reference there is the end, ' || ' or ' && ', "
                "with one space on each side. A text that starts with † but is not a variable is written with two of them.",
            ),
        ),
        (
            [make(1, "†input.n")],
            (
                "/0",
                '_outputPath: "†input.n" cannot be written, †input is read-only. Write to †state, to †memory or to a '
                "data object of the query, such as †results.",
            ),
        ),
        (
            [make(1, "†ref.Seats.x")],
            (
                "/0",
                '_outputPath: "†ref.Seats.x" cannot be written, †ref is read-only. Write to †state, to †memory or to a '
                "data object of the query, such as †results.",
            ),
        ),
        ([make(1, "state.a")], ("/0", '_outputPath is "state.a": a variable begins with †.')),
        (
            [to({"kind": "make", "value": 1, "_outputPath": 5}, None, None)],
            ("/0", "_outputPath is a variable of at most 2000 characters."),
        ),
        (
            [make(1, "†state.a", "append")],
            ("/0", "_outputMethod is one of set, merge, assign, push, concat."),
        ),
        (
            [make(1, None, "push")],
            ("/0", "_outputMethod says how a result is written, and _outputPath is missing."),
        ),
        (
            [{"kind": "†state.kind", "value": 1}],
            ("/0/kind", "selects the kind of the action and cannot be a variable"),
        ),
        (
            [make("†ref.Seats")],
            ("/0", '"†ref.Seats": a stored reference is †ref.<Kind>.<id>, as its handle says.'),
        ),
        (
            [make("†artifact")],
            ("/0", '"†artifact": an artifact is †artifact.<id>, its text †artifact.<id>.content.'),
        ),
        (
            [make([f"†state.n{n}" for n in range(1_001)])],
            ("/0", "One call may have 1000 variables: make several calls."),
        ),
        (
            [make([f"†ref.Seats.{n}" for n in range(101)])],
            ("/0", "One call may name 100 stored references and artifacts: make several calls."),
        ),
    ],
)
async def test_inconsistent_variables_are_rejected(
    api: Caller, actions: list[Any], told: tuple[str, str]
) -> None:
    await api.register(flowing(inputSchema=INPUTS, data={"shop": {"name": "Ann's"}}))
    assert await flaws(api, *actions) == [told]


async def test_existing_state_provides_a_path(plangate: World, api: Caller) -> None:
    await api.register(flowing(data={"shop": {"sizes": [1, 2]}}))
    pen = Pen(plangate, await thread(api, "t"))
    await pen.write("†state.rows", [{"a b": 1}])
    await stored(api, count('†state.rows.0."a b"'), count("†shop.sizes.1"), make("†shop"), threadKey="t")
    await stored(api, count("†state.rows.0.x || †state.later"), make(1, "†state.later"), threadKey="t")
    problem = refused(
        await api.post(
            "/plans",
            {
                "specName": "Flow",
                "runtime": "default",
                "body": {"actions": [count("†state.rows.1"), count("†shop.sizes.2"), count("†state.row")]},
                "threadKey": "t",
            },
        ),
        422,
    )
    assert problem["detail"] == "The variables of the plan Flow do not fit together."
    assert [flaw["message"] for flaw in problem["errors"]] == [
        f'nothing provides "†state.rows.1", {UNWRITTEN}: "†state.rows" is an array of 1',
        f'nothing provides "†shop.sizes.2", {UNWRITTEN}: "†shop.sizes" is an array of 2',
        f'nothing provides "†state.row", {UNWRITTEN}: "†state" has no "row"; did you mean \'rows\'?',
    ]


async def test_optional_inputs_may_be_provided_at_execution(api: Caller) -> None:
    await api.register(flowing(inputSchema={"properties": {"n": {"type": "integer"}}}))
    await stored(api, make("†input.anything.at.all"), make("†input"))


async def test_only_the_first_errors_are_reported(api: Caller) -> None:
    await api.register(flowing())
    assert len(await flaws(api, *(count(f"†state.n{n}") for n in range(50)))) == 20
    assert len(await flaws(api, *(note("†") for _ in range(50)))) == 20


# -- the schema, with a variable wherever a value may stand


async def test_each_field_takes_a_variable_at_any_depth(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(
        api,
        count("†input.n"),
        add(1, "†input.n", "†input.m"),
        add() | {"numbers": "†input.all"},
        note("†input.text"),
        make({"a": ["†input.n", {"b": "†input.n"}]}),
    )
    assert [action["payload"] for action in plan["body"]["actions"]] == [
        {"n": "†input.n"},
        {"numbers": [1, "†input.n", "†input.m"]},
        {"numbers": "†input.all"},
        {"text": "†input.text"},
        {"value": {"a": ["†input.n", {"b": "†input.n"}]}},
    ]


async def test_values_without_variables_are_checked_as_usual(api: Caller) -> None:
    """Also beside variables, and in the same array."""
    await api.register(flowing())
    assert await flaws(
        api,
        count("five"),
        add("†input.n", "x", 2.5),
        count("†input.n") | {"more": 1},
        {"kind": "count"},
        count("††input.n"),
        count(0),
        {"kind": "fly", "n": "†input.n"},
        note(["†input.n"]),
    ) == [
        ("/0/n", 'must be integer, not "five"'),
        ("/1/numbers/1", 'must be integer, not "x"'),
        ("/1/numbers/2", "must be integer, not 2.5"),
        ("/2", 'these properties are not allowed: "more"'),
        ("/3", 'the property "n" is missing'),
        ("/4/n", 'must be integer, not "††input.n"'),
        ("/5/n", "0 is less than the minimum of 1"),
        ("/6/kind", '"fly" is not one of "make", "add", "note", "count"'),
        ("/7/text", "must be string, not an array of 1 items"),
    ]


ORDER: specs.Spec = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "cents": {"type": "integer"}, "unit": {"enum": ["EUR", "USD"]}},
    "required": ["id", "cents"],
    "additionalProperties": False,
}


async def test_values_around_a_variable_are_checked_as_usual(api: Caller) -> None:
    """In the same object, in objects of the same array, in definitions and unions, to any depth."""
    pay = specs.variant("pay", orders={"items": {"$ref": "#/$defs/order"}}, how={"$ref": "#/$defs/how"})
    card = {"properties": {"by": {"const": "card"}, "card": {"type": "integer"}}, "required": ["by", "card"]}
    both = {"properties": {"by": {"const": "both"}, "ways": {"items": {"$ref": "#/$defs/how"}}}}
    how = {"oneOf": [card, both], "discriminator": {"propertyName": "by"}}
    schema = {
        "properties": {"n": {"type": "integer"}, "actions": {"type": "array", "items": pay}},
        "$defs": {"order": ORDER, "how": how},
    }
    await api.register({**flowing(), "plans": [{"name": "Flow", "schema": schema, "variables": True}]})
    good_one = {"id": "†input.id", "cents": 1, "unit": "†input.unit"}
    orders = [
        good_one,
        "†input.order",
        {**good_one, "unit": "GBP"},
        {"id": "†input.id"},
        {**good_one, "x": 1},
    ]
    card_of = {"by": "card", "card": "†input.card"}
    actions = [
        {
            "kind": "pay",
            "orders": [good_one, "†input.o"],
            "how": {"by": "both", "ways": [card_of, "†input.way"]},
        },
        {"kind": "pay", "orders": orders, "how": card_of},
        {
            "kind": "pay",
            "orders": [],
            "how": {"by": "both", "ways": [card_of, {"by": "card", "car": "†input.a"}]},
        },
        {"kind": "pay", "orders": [], "how": {"by": "cash", "card": "†input.card"}},
        "†input.action",
    ]
    assert await flaws(api, *actions) == [
        ("/1/orders/2/unit", 'must be "EUR" or "USD", not "GBP"'),
        ("/1/orders/3", 'the property "cents" is missing'),
        ("/1/orders/4", 'these properties are not allowed: "x"'),
        ("/2/how/ways/1", 'the property "card" is missing'),
        ("/3/how/by", '"cash" is not one of "card", "both"'),
        ("/4", 'must be object, not "†input.action"'),
    ]
    body = {"actions": actions[:1], "n": "†input.n"}
    problem = refused(
        await api.post("/plans", {"specName": "Flow", "runtime": "default", "body": body}), 422, "invalid"
    )
    assert problem["errors"] == [{"pointer": "/body/n", "message": 'must be integer, not "†input.n"'}]


async def test_errors_in_the_last_of_many_actions_are_found(api: Caller) -> None:
    await api.register(flowing())
    many = [add("†input.n", *range(100)) for _ in range(999)]
    assert await flaws(api, *many, add("†input.n", "x")) == [("/999/numbers/1", 'must be integer, not "x"')]


# -- plans without variables


def planners(*, of_spec: bool, of_planner: bool) -> specs.Spec:
    spec = flowing()
    if not of_spec:
        spec["plans"] = [{key: held for key, held in FLOW.items() if key != "variables"}]
    if of_planner:
        spec["agents"][1]["toolkits"] = ["variables"]
    return spec


DAGGERS = {"reason": "†state.why", "actions": [make("†state.a"), note("††")]}


@pytest.mark.parametrize(
    ("of_spec", "of_planner"), [(True, False), (False, True), (True, True), (False, False)]
)
async def test_a_planner_may_use_variables_by_plan_or_toolkit(
    api: Caller, of_spec: bool, of_planner: bool
) -> None:
    """What stands outside of the actions is the plan's context, which is text."""
    await api.register(planners(of_spec=of_spec, of_planner=of_planner))
    query = await api.run(
        specs.delegated(("storePlan", {"specName": "Flow", "planId": "p", "body": DAGGERS}))
    )
    answer = inner(output_of(query)[0])
    if of_spec or of_planner:
        assert answer == (
            "The variables of the plan Flow do not fit together. /body/actions/0/value: nothing provides "
            f'"†state.a", {UNWRITTEN}: "†state" has no "a", it is empty.'
        )
        assert (await api.read("/plans"))["items"] == []
        return
    plan = await api.read(f"/plans/{answer['planId']}")
    assert plan["variables"] is False
    assert plan["body"]["reason"] == "†state.why"
    started = await api.do(f"/plans/{plan['id']}/execute", {})
    approval = await api.approve(started["id"])
    assert "variables" not in (await api.read(f"/approvals/{approval['id']}/subject"))
    call = await api.serve("actions", {"entitiesAffected": 0})
    assert [a["payload"] for a in call["actions"]] == [{"value": "†state.a"}, {"text": "††"}]
    await api.ended(started["id"])


async def test_a_host_may_use_variables_by_plan(api: Caller) -> None:
    """The toolkit of a planner is the planner's."""
    await api.register(planners(of_spec=False, of_planner=True))
    plan = await stored(api, make("†state.a"))
    assert plan["variables"] is False
    await api.register(planners(of_spec=True, of_planner=False))
    assert (await stored(api, make(1)))["variables"] is True


async def test_without_variables_an_output_path_is_rejected(api: Caller) -> None:
    await api.register(planners(of_spec=False, of_planner=False))
    assert await flaws(api, make(1), make(1, "†state.a", "push")) == [
        ("/1/_outputPath", "_outputPath requires a plan with variables: true"),
        ("/1/_outputMethod", "_outputMethod requires a plan with variables: true"),
    ]


# -- other tenants


async def test_a_plan_cannot_name_objects_of_another_tenant(plangate: World, api: Caller) -> None:
    kind = {"name": "Seats", "schema": {"type": "array"}}
    theirs = plangate.other
    await api.register(flowing(references=[kind]))
    await theirs.register(flowing(references=[kind]) | {"tenant": {"resourceId": "other", "version": "1"}})
    handle = await theirs.do("/references", {"runtime": "default", "kind": "Seats", "value": [1]})
    their_thread = await thread(theirs, "t")
    body = {"specName": "Flow", "runtime": "default"}
    naming = {**body, "body": {"actions": [make(f"†ref.Seats.{handle['id']}")]}}
    problem = refused(await api.post("/plans", naming), 404, "reference_not_found")
    assert problem["detail"] == f"There is no reference Seats/{handle['id']}."
    missing = f"There is no reference Seats/{handle['id']}"
    assert problem["errors"] == [{"pointer": "/body/actions/0/value", "message": missing}]
    good(await theirs.post("/plans", naming))
    plain = {**body, "body": {"actions": [make(1)]}}
    problem = refused(await api.post("/plans", {**plain, "threadId": their_thread}), 404, "not_found")
    assert problem["detail"] == f"There is no thread '{their_thread}'."
    plan = await stored(api, make(1))
    refused(await theirs.get(f"/plans/{plan['id']}"), 404, "not_found")
    refused(await theirs.post(f"/plans/{plan['id']}/execute", {}), 404, "not_found")
    at = f"/plans/{plan['id']}/execute"
    refused(await api.post(at, {"threadId": their_thread}), 404, "not_found")


async def test_kinds_are_distinguished_without_a_named_discriminator(api: Caller) -> None:
    """The default of the language, `kind`, does: a variable stands in a field of its own kind of action."""
    plain = copy.deepcopy(FLOW)
    del plain["schema"]["properties"]["actions"]["items"]["discriminator"]
    await api.register(flowing() | {"plans": [plain]})
    plan = await stored(api, count("†input.n"))
    assert plan["body"]["actions"] == [{"kind": "count", "payload": {"n": "†input.n"}, "references": []}]
    body = {"specName": "Flow", "runtime": "default", "body": {"actions": [{"kind": "count", "n": 0}]}}
    problem = refused(await api.post("/plans", body), 422)
    assert [flaw["pointer"] for flaw in problem["errors"]] == ["/body/actions/0/n"]


async def test_a_graph_with_many_cycles_is_rejected(api: Caller) -> None:
    await api.register(flowing())
    writers = [make(n, "†state.a", "push") for n in range(300)]
    reader = {"kind": "make", "value": [f"†state.a.{n}" for n in range(167)]}
    body = {"specName": "Flow", "runtime": "default", "body": {"actions": [*writers, reader]}}
    problem = refused(await api.post("/plans", body), 422)
    assert problem["errors"] == [
        {
            "pointer": "/body/actions",
            "message": "between the paths that are read and their writers there are 50100 links, more than 50000: "
            "read whole documents, or make several plans",
        }
    ]


@pytest.mark.parametrize("path", ["†state.a", "†state" + ".a" * 90], ids=["many", "long"])
async def test_too_many_paths_are_rejected(api: Caller, path: str) -> None:
    """Unread: of a plan of a megabyte that takes seconds, at every step of it. A literal is no path."""
    await api.register(flowing())
    fits = 50_000 // (path.count(".") + 1) // 100
    actions = [make([path] * 100, "†out.x", "push") for _ in range(fits + 1)]
    assert await flaws(api, *actions) == [
        ("", "the paths that they read and write have more than 50000 parts together: make several plans")
    ]
    plan = await stored(api, note("††" + "." * 100_000))
    assert len(plan["body"]["actions"]) == 1
