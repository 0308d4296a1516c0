"""Action schemas with their own references and output paths."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import specs
from tests.support.client import Caller, inner, output_of, refused
from tests.support.graphs import executed, flaws, flowing, hands, make, state, stored

SEATS: specs.Spec = {"name": "Seats", "schema": {"type": "array"}}
HANDLES: specs.Spec = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {"kind": {"const": "Seats"}, "id": {"type": "string"}},
        "required": ["kind", "id"],
        "additionalProperties": False,
    },
}


def plan_of(*variants: specs.Spec, name: str = "Flow", **parts: Any) -> specs.Spec:
    actions = {"type": "array", "items": {"oneOf": list(variants)}}
    schema = {"type": "object", "properties": {"actions": actions}, "required": ["actions"]}
    return {"name": name, "schema": schema, **parts}


@pytest.mark.parametrize("variables", [False, True])
async def test_a_plan_whose_actions_require_references_runs(api: Caller, variables: bool) -> None:
    plan = plan_of(
        specs.variant("seat", name={"type": "string"}, references=HANDLES),
        name="Routing",
        variables=variables,
    )
    await api.register({**specs.planning(references=[SEATS]), "plans": [plan]})
    made = await api.do("/references", {"kind": "Seats", "value": ["12A"]})
    handle = {"kind": "Seats", "id": made["id"]}
    name = "†input.name" if variables else "Ada"
    body = {"actions": [{"kind": "seat", "name": name, "references": [{**handle}]}]}
    query = (await api.submit(specs.store_and_execute(body), inputs={"name": "Ada"}))["id"]
    await api.approve(query)
    call = await api.serve("actions", None)
    assert call["actions"][0] | {"index": 0, "idempotencyKey": ""} == {
        "kind": "seat",
        "payload": {"name": "Ada"},
        "references": [handle],
        "index": 0,
        "idempotencyKey": "",
    }
    assert call["resolvedRefs"] == {"Seats": {made["id"]: ["12A"]}}
    assert inner(output_of(await api.ended(query))[1])["status"] == "executed"


async def test_an_action_that_lacks_required_references_is_not_stored(api: Caller) -> None:
    plan = plan_of(specs.variant("make", value={}, references=HANDLES), variables=True)
    await api.register({**flowing(references=[SEATS]), "plans": [plan]})
    assert [pointer for pointer, _ in await flaws(api, {"kind": "make", "value": "†input.a"})] == ["/0"]
    none = await flaws(api, {"kind": "make", "value": 1, "references": []})
    assert [pointer for pointer, _ in none] == ["/0/references"]


PRESCRIBED = {
    "type": "object",
    "properties": {"kind": {"const": "make"}, "value": {}, "_outputPath": {"const": "†state.made"}},
    "required": ["kind", "value", "_outputPath"],
}


async def test_a_plan_is_stored_with_the_path_that_its_action_prescribes(api: Caller) -> None:
    plan = plan_of(PRESCRIBED, specs.variant("note", text={}), variables=True)
    await api.register({**flowing(), "plans": [plan]})
    told = "the results of this action go to †state.made: write that path, or leave it out"
    assert ("/0/_outputPath", told) in await flaws(api, make(1, "†state.other"))
    for action in (make(7), make(7, "†state.made")):
        body = await stored(api, action, {"kind": "note", "text": "†state.made"})
        assert [a.get("_outputPath") for a in body["body"]["actions"]] == ["†state.made", None]


async def test_a_result_goes_to_the_path_that_the_action_prescribes(api: Caller) -> None:
    plan = plan_of(PRESCRIBED, specs.variant("note", text={"type": "integer"}), variables=True)
    await api.register({**flowing(), "plans": [plan]})
    body = await stored(api, {"kind": "note", "text": "†state.made"}, make(7))
    async with hands(api) as mine:
        over = await executed(api, body)
    assert over["status"] == "executed", over["result"]
    assert mine.order == [1, 0]  # the note reads what the other action makes
    assert mine.payload(0) == {"text": 7}
    assert await state(api, body) == {"made": 7}


async def test_a_result_goes_to_the_path_that_the_tool_prescribes(api: Caller) -> None:
    """The planner's model leaves it out, as it may in a call of its own."""
    schema = {"properties": {"value": {}, "_outputPath": {"const": "†state.made"}}}
    tools = [specs.tool("maker", inputSchema=schema)]
    await api.register(flowing(tools=tools, actionDispatcher={"kind": "tool", "tool": "maker"}))
    body = await stored(api, make(7))
    assert body["body"]["actions"][0]["_outputPath"] == "†state.made"
    started = await api.do(f"/plans/{body['id']}/execute", {})
    await api.approve(started["id"])
    call = await api.serve("maker", {"any": "thing"})
    assert call["args"] == {"value": 7}
    await api.ended(started["id"])
    assert await state(api, body) == {"made": {"any": "thing"}}


@pytest.mark.parametrize(
    ("path", "of_tool", "why"),
    [
        ("†input.made", None, "'†input.made' cannot be written"),
        ("made", None, "'made' is not a path"),
        ("†state.made", "†state.other", "make both the same, or leave one out"),
    ],
)
async def test_an_impossible_prescribed_path_is_rejected(
    api: Caller, path: str, of_tool: str | None, why: str
) -> None:
    fields = {"kind": {"const": "make"}, "value": {}, "_outputPath": {"const": path}}
    plan = plan_of({"type": "object", "properties": fields}, variables=True)
    held = {"_outputPath": {"const": of_tool}} if of_tool else {}
    tools = [specs.tool("maker", inputSchema={"properties": {"value": {}, **held}})]
    spec = {**flowing(tools=tools, actionDispatcher={"kind": "tool", "tool": "maker"}), "plans": [plan]}
    problem = refused(await api.post("/runtimes", spec), 422)
    assert [error["pointer"] for error in problem["errors"]] == ["/plans/0/schema"]
    assert why in problem["errors"][0]["message"]
