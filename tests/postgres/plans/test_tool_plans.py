"""Plans made of tool calls, and declared tools that carry out actions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import specs
from tests.support.client import Caller, inner, output_of, refused

SEARCH = specs.tool(
    "search_flights",
    description="Finds flights. The cheapest come first.",
    inputSchema={
        "type": "object",
        "properties": {"to": {"type": "string"}, "_outputPath": {"const": "†state.flights"}},
        "required": ["to"],
        "additionalProperties": False,
    },
    annotations={"readOnly": True},
)
BOOK = specs.tool(
    "book_hotel",
    inputSchema={
        "type": "object",
        "properties": {"city": {"type": "string"}, "flight": {}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
TRIP: specs.Spec = {"name": "Routing", "tools": ["search_flights", "book_hotel"]}
TO_ROME = {"tool": "search_flights", "to": "Rome"}
HOTEL = {"tool": "book_hotel", "city": "Rome"}


def traveling(*tools: specs.Spec, plan: specs.Spec = TRIP, rule: Any = "always", **parts: Any) -> specs.Spec:
    """A coordinator, a planner and an executor of a plan made of tool calls; nothing else is declared."""
    written = specs.planning(tools=list(tools) or [SEARCH, BOOK], **parts)
    return {**written, "plans": [plan], "actionDispatcher": None, "approvalPolicies": {"plans": rule}}


async def store(api: Caller, *actions: specs.Spec, **parts: Any) -> dict[str, Any]:
    asked = {"specName": "Routing", "runtime": "default", "body": {"actions": list(actions)}, **parts}
    plan: dict[str, Any] = await api.do("/plans", asked)
    return plan


async def execute(api: Caller, plan: dict[str, Any]) -> str:
    query: str = (await api.do(f"/plans/{plan['id']}/execute", {}))["id"]
    return query


async def rows(api: Caller, plan_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.read(f"/plans/{plan_id}/actions"))["items"]
    return found


async def test_a_plan_of_tool_calls_needs_only_its_tools(api: Caller) -> None:
    await api.register(traveling())
    stored = (await api.read("/runtimes"))["items"][0]
    body = {"actions": [{**HOTEL, "flight": "†state.flights.0"}, TO_ROME]}
    query = (await api.submit(specs.store_and_execute(body)))["id"]
    approval = await api.gate(query)
    subject = (await api.get(f"/approvals/{approval['id']}/subject")).json()
    assert [(a["kind"], a["payload"], a.get("_outputPath")) for a in subject["body"]["actions"]] == [
        ("book_hotel", {"city": "Rome", "flight": "†state.flights.0"}, None),
        ("search_flights", {"to": "Rome"}, "†state.flights"),
    ]
    assert subject["dispatchers"].keys() == {"search_flights", "book_hotel"}
    await api.approve(query)
    search = await api.serve("search_flights", ["AZ 611"])
    assert (search["purpose"], search["args"]) == ("action", {"to": "Rome"})
    hotel = await api.serve("book_hotel", "hi")
    assert hotel["args"] == {"city": "Rome", "flight": "AZ 611"}
    done = inner(output_of(await api.ended(query))[1])
    assert (done["status"], done["summary"]) == ("executed", "2 of 2 actions took effect.")
    results = [(r["kind"], r["status"], r["result"]) for r in await rows(api, approval["target"])]
    assert results == [
        ("book_hotel", "succeeded", {"details": "hi"}),
        ("search_flights", "succeeded", {"details": ["AZ 611"]}),
    ]
    assert stored["name"] == "default"


@pytest.mark.parametrize(
    ("output", "result"),
    [
        ("hi", {"details": "hi"}),
        ({"name": "x"}, {"details": {"name": "x"}}),
        ([1, None], {"details": [1, None]}),
        (None, {}),
        ({"entitiesAffected": "many"}, {"details": {"entitiesAffected": "many"}}),
        (
            {"entitiesAffected": 3, "summary": "Three rooms."},
            {"entitiesAffected": 3, "summary": "Three rooms."},
        ),
    ],
)
@pytest.mark.parametrize("form", ["tools", "actionDispatcher", "actionDispatchers"])
async def test_the_return_value_of_a_tool_is_the_result_of_its_action(
    api: Caller, form: str, output: Any, result: Any
) -> None:
    """In every form in which a declared tool carries an action out."""
    to_tool = {"kind": "tool", "tool": "book_hotel"}
    if form == "tools":
        await api.register(traveling())
        plan = await store(api, HOTEL)
    else:
        declared = to_tool if form == "actionDispatcher" else {"book": to_tool, "refund": "client"}
        await api.register({**specs.planning(tools=[BOOK]), "actionDispatcher": None, form: declared})
        plan = await store(api, specs.BOOK)
    query = await execute(api, plan)
    await api.approve(query)
    await api.serve("book_hotel", output)
    assert (await api.ended(query))["status"] == "succeeded"
    assert [(r["status"], r["result"]) for r in await rows(api, plan["id"])] == [("succeeded", result)]


async def test_a_tool_error_fails_only_its_action(api: Caller) -> None:
    await api.register(traveling())
    plan = await store(api, HOTEL, TO_ROME)
    query = await execute(api, plan)
    await api.approve(query)
    await api.serve("book_hotel", error="Full.")
    await api.serve("search_flights", [])
    await api.ended(query)
    found = await rows(api, plan["id"])
    assert [(r["status"], (r["error"] or {}).get("message")) for r in found] == [
        ("failed", "Full."),
        ("succeeded", None),
    ]


# -- the schema


@pytest.mark.parametrize(
    ("action", "pointer"),
    [
        ({"tool": "book_hotel"}, "/body/actions/0"),
        ({"tool": "book_hotel", "city": "Rome", "stars": 5}, "/body/actions/0"),
        ({"tool": "fly"}, "/body/actions/0/tool"),
        ({"city": "Rome"}, "/body/actions/0"),
        ({**TO_ROME, "_outputPath": "†state.other"}, "/body/actions/0/_outputPath"),
    ],
)
async def test_arguments_are_checked_as_the_plan_is_stored(
    api: Caller, action: specs.Spec, pointer: str
) -> None:
    await api.register(traveling())
    asked = {"specName": "Routing", "runtime": "default", "body": {"actions": [action]}}
    problem = refused(await api.post("/plans", asked), 422, "invalid")
    assert pointer in [error["pointer"] for error in problem["errors"]]


async def test_a_tool_may_be_named_as_in_a_scripted_call(api: Caller) -> None:
    await api.register(traveling())
    body = {"actions": [{"_tool": "book_hotel", "city": "Rome"}]}
    query = (await api.submit(specs.store_and_execute(body)))["id"]
    await api.approve(query)
    assert (await api.serve("book_hotel", None))["args"] == {"city": "Rome"}


async def test_the_registered_form_has_the_schema_of_the_actions(api: Caller) -> None:
    context = {"properties": {"reason": {"type": "string"}}, "required": ["reason"]}
    runtime = await api.register(traveling(plan={**TRIP, "schema": context}))
    (plan,) = (await api.read(f"/runtimes/{runtime['id']}"))["spec"]["plans"]
    assert (plan["tools"], plan["variables"]) == (["search_flights", "book_hotel"], True)
    assert plan["schema"]["required"] == ["actions", "reason"]
    shown = plan["schema"]["properties"]["actions"]["items"]["oneOf"]
    assert [(v["properties"]["tool"], v.get("description")) for v in shown] == [
        ({"const": "search_flights"}, "Finds flights. The cheapest come first."),
        ({"const": "book_hotel"}, None),
    ]


async def test_references_of_an_action_reach_its_tool(api: Caller) -> None:
    """As the values of a dispatch, and as an argument where the tool has one of that name."""
    seats: specs.Spec = {"name": "Seats", "schema": {"type": "array"}}
    handles = {"type": "array", "items": {"type": "object"}, "minItems": 1}
    fields = {"city": {"type": "string"}, "references": handles}
    seat = specs.tool(
        "seat", inputSchema={"type": "object", "properties": fields, "required": ["references"]}
    )
    await api.register(
        traveling(BOOK, seat, plan={**TRIP, "tools": ["book_hotel", "seat"]}, references=[seats])
    )
    made = await api.do("/references", {"kind": "Seats", "value": ["12A"]})
    handle = {"kind": "Seats", "id": made["id"]}
    plan = await store(api, {"tool": "seat", "references": [handle]}, {**HOTEL, "references": [handle]})
    query = await execute(api, plan)
    await api.approve(query)
    for name, args in (("seat", {"references": [handle]}), ("book_hotel", {"city": "Rome"})):
        call = await api.serve(name)
        assert (call["args"], call["resolvedRefs"]) == (args, {"Seats": {made["id"]: ["12A"]}})
    assert (await api.ended(query))["status"] == "succeeded"


# -- approval


@pytest.mark.parametrize(
    ("of_tool", "actions", "asked"),
    [
        (None, [HOTEL], False),
        ("always", [HOTEL], True),
        ("always", [TO_ROME], False),  # the rule is that of the tools that the plan calls
        ({"kind": "dynamic", "value": "abroad"}, [HOTEL], True),
    ],
)
async def test_the_rule_of_a_tool_applies_to_plans_that_call_it(
    api: Caller, of_tool: Any, actions: list[specs.Spec], asked: bool
) -> None:
    book = BOOK if of_tool is None else {**BOOK, "approval": of_tool}
    predicates = {"abroad": "args.city != 'Oslo'"}
    await api.register(traveling(SEARCH, book, rule="never", approvalPredicates=predicates))
    query = await execute(api, await store(api, *actions))
    if asked:
        assert (await api.gate(query))["status"] == "pending"
        return
    await api.claim(actions[0]["tool"])
    (row,) = (await api.read("/approvals", queryId=query))["items"]
    assert (row["status"], row["decidedBy"]) == ("approved", "policy")


@pytest.mark.parametrize(
    ("parts", "pointer", "why"),
    [
        (
            {"plan": {"name": "Routing", "tools": ["book_hotell"]}},
            "/plans/0/tools/0",
            "did you mean 'book_hotel'?",
        ),
        (
            {"plan": {"name": "Routing", "tools": ["getPlan"]}},
            "/plans/0/tools/0",
            "a plan is made of declared tools",
        ),
        ({"plan": {"name": "Routing"}}, "/plans/0/schema", "field 'schema' is required"),
        (
            {"plan": {**specs.ROUTING, "tools": ["book_hotel"]}},
            "/plans/0/schema",
            "remove 'actions' from the schema, or 'tools'",
        ),
        (
            {"tools": [specs.tool("t", inputSchema={"properties": {"tool": {}}})], "named": ["t"]},
            "/plans/0/tools/0",
            "it has an argument 'tool'",
        ),
        (
            {
                "tools": [specs.tool("t", inputSchema={"properties": {"_outputPath": {"const": "x"}}})],
                "named": ["t"],
            },
            "/plans/0/tools/0",
            "have nowhere to go",
        ),
    ],
)
async def test_an_invalid_plan_of_tools_is_rejected(
    api: Caller, parts: dict[str, Any], pointer: str, why: str
) -> None:
    plan = parts.get("plan") or {"name": "Routing", "tools": parts["named"]}
    problem = refused(await api.post("/runtimes", traveling(*parts.get("tools", ()), plan=plan)), 422)
    told = {error["pointer"]: error["message"] for error in problem["errors"]}
    assert why in told[pointer], told


@pytest.mark.parametrize(("gated", "refused_"), [(None, True), ("always", False)])
async def test_an_agent_cannot_bypass_the_approval_of_a_plan(
    api: Caller, gated: str | None, refused_: bool
) -> None:
    tool = BOOK if gated is None else {**BOOK, "approval": gated}
    spec = traveling(SEARCH, tool)
    spec["agents"][1]["tools"] = ["search_flights", "book_hotel"]  # searching changes nothing
    answer = await api.post("/runtimes", spec)
    if not refused_:
        assert answer.status_code == 201, answer.text
        return
    (error,) = refused(answer, 422)["errors"]
    assert error["pointer"] == "/agents/1/tools/1"
    assert "can call the tool 'book_hotel' without approval" in error["message"]
