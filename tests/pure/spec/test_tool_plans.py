"""The schema of a plan that is made of tool calls."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from plangate import define_executor, define_plan, define_planner, define_runtime, define_tool
from plangate.spec.assembly import SpecInvalid, assemble
from plangate.spec.models import PlanSpec, ToolSpec
from plangate.spec.schemas import check_schema
from plangate.spec.tool_plans import tool_plan_schema
from pydantic import BaseModel


class Node(BaseModel):
    value: int
    children: list[Node] = []


def tool(name: str = "t", **schema: Any) -> ToolSpec:
    return ToolSpec(name=name, input_schema={"type": "object", **schema})


def valid(schema: dict[str, Any], *actions: dict[str, Any]) -> bool:
    assert check_schema(schema) == []
    return bool(jsonschema_rs.validator_for(schema).is_valid({"actions": list(actions)}))


def test_an_action_has_the_arguments_of_its_tool() -> None:
    book, look = define_tool("book", {"room": int}, "Books."), define_tool("look", {"day": str})
    schema = define_plan("trip", tools=[book, look]).schema_
    assert valid(schema, {"tool": "book", "room": 1}, {"tool": "look", "day": "Monday"})
    assert not valid(schema, {"tool": "book", "day": "Monday"})
    assert not valid(schema, {"tool": "other", "room": 1})
    assert schema["properties"]["actions"]["items"]["oneOf"][0]["description"] == "Books."


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (Node.model_json_schema(), {"value": 1, "children": [{"value": 2}]}, {"value": 1, "children": [{}]}),
        (
            {
                "$ref": "#/$defs/N",
                "$defs": {
                    "N": {"type": "object", "properties": {"n": {"$ref": "#/$defs/I"}}},
                    "I": {"type": "integer"},
                },
            },
            {"n": 1},
            {"n": "1"},
        ),
        (
            {"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}},
            {"b": 1},
            {"b": "1"},
        ),
        ({"properties": {"again": {"$ref": "#"}}, "required": []}, {"again": {"again": {}}}, {"again": 5}),
        ({"properties": {"$ref": {"const": "#"}}}, {"$ref": "#"}, {"$ref": "x"}),
        ({"maxProperties": 1, "propertyNames": {"pattern": "^a"}}, {"ab": 1}, {"b": 1}),
        ({"maxProperties": 1}, {"a": 1}, {"a": 1, "b": 2}),
        ({"properties": {}, "additionalProperties": False}, {}, {"a": 1}),
        (
            {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
            {"b": 1},
            {},
        ),
    ],
)
def test_schemas_of_tools_mean_the_same_in_a_plan(
    schema: dict[str, Any], right: dict[str, Any], wrong: dict[str, Any]
) -> None:
    made = tool_plan_schema({}, [tool("t", **schema), tool("u")])
    assert valid(made, {"tool": "t", **right})
    assert not valid(made, {"tool": "t", **wrong})


def test_the_schema_is_derived_once() -> None:
    tools = [ToolSpec(name="tree", input_schema=Node), tool("u")]
    context = {
        "properties": {"why": {"$ref": "#/$defs/W"}},
        "required": ["why"],
        "$defs": {"W": {"type": "string"}},
    }
    made = tool_plan_schema(context, tools)
    assert tool_plan_schema(made, tools) == made
    assert jsonschema_rs.validator_for(made).is_valid({"why": "x", "actions": []})
    assert not jsonschema_rs.validator_for(made).is_valid({"why": 1, "actions": []})


def test_a_runtime_collects_the_tools_of_its_plans() -> None:
    book = define_tool("book", {"room": int}, handler=lambda args, ctx: args["room"])
    plan = define_plan("trip", tools=[book])
    agents = [define_planner("p", "m-1", "", plan), define_executor("e", "m-1", "", plan)]
    runtime = define_runtime("acme", agents)
    assert [named["name"] for named in runtime.wire["tools"]] == ["book"]
    assert runtime.local_tools["book"].handler is not None
    assert runtime.wire["plans"][0]["tools"] == ["book"]
    assert assemble(runtime.wire).wire == runtime.wire
    assert "actionDispatcher" not in runtime.wire


def test_a_changed_tool_does_not_leave_a_stale_schema() -> None:
    book = define_tool("book", {"room": int})
    agents = [define_planner("p", "m-1", "", define_plan("trip", tools=[book]))]
    wire = define_runtime("acme", agents).wire
    changed = {**wire["tools"][0], "inputSchema": {"properties": {"suite": {"type": "string"}}}}
    with pytest.raises(SpecInvalid, match="a schema with other 'actions'"):
        assemble({**wire, "tools": [changed]})
    fresh = {**wire, "tools": [changed], "plans": [{"name": "trip", "tools": ["book"]}]}
    (plan,) = assemble(fresh).spec.plans
    assert valid(plan.schema_, {"tool": "book", "suite": "x"})
    assert not valid(plan.schema_, {"tool": "book", "suite": 5})


def test_tools_can_be_named() -> None:
    plan = define_plan("trip", {"why": str}, tools=["book"])
    assert plan.to_wire() == {
        "name": "trip",
        "schema": {"type": "object", "properties": {"why": {"type": "string"}}, "required": ["why"]},
        "tools": ["book"],
    }
    assert PlanSpec(name="trip", tools=(tool("book"),)).tools == ("book",)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "plan 'trip' has neither a schema nor tools"),
        ({"schema": {"actions": list[dict]}, "tools": ["book"]}, "remove 'actions' from its schema"),  # type: ignore[type-arg]
        ({"tools": [tool("t", properties={"tool": {}})]}, "it has an argument 'tool'"),
    ],
)
def test_invalid_plans_of_tools_are_rejected(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        define_plan("trip", **given)


def test_tools_of_one_plan_use_one_dialect() -> None:
    spec = {
        "tenant": {"resourceId": "acme"},
        "agents": [{"name": "p", "role": "planner", "model": "m", "systemPrompt": "", "plan": "trip"}],
        "plans": [{"name": "trip", "tools": ["t", "u"]}],
        "tools": [
            tool("t", **{"$schema": "http://json-schema.org/draft-07/schema#"}).to_wire(),
            tool("u").to_wire(),
        ],
    }
    with pytest.raises(SpecInvalid, match=r"name different '\$schema'"):
        assemble(spec)
