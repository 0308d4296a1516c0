"""Tools and notes of an agent with variables, as each vendor's API receives them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import jsonschema_rs
import orjson
import pytest
from plangate.spec.models import ToolSpec
from plangate.spec.toolkits import TOOLKITS
from plangate.spec.variable_schemas import agent_schema, meta_schema, schema_without_meta

from app.calls.toolkit import AgentTools
from app.llm import anthropic, openai
from app.llm.messages import Message, ModelRequest, Text

VARIABLE = {"type": "string", "pattern": "^†"}
ITEM: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
TOOL = ToolSpec.model_validate(
    {
        "name": "pay",
        "description": "Pays.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 1, "description": "How many.", "default": 1},
                "rows": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
                "currency": {"enum": ["EUR", "USD"], "title": "Currency"},
                "flag": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
                "text": {"type": "string"},
            },
            "required": ["rows"],
            "additionalProperties": False,
            "$defs": {"Item": ITEM},
        },
    }
)
BUILTIN = {tool.name: tool for tools in TOOLKITS.values() for tool in tools}


def request(variables: bool) -> ModelRequest:
    tools = AgentTools(BUILTIN, {"pay": TOOL}, variables).definitions()
    return ModelRequest("m", "You help.", tools, (Message("user", (Text("hi"),)),))


def schemas(vendor: str, asked: ModelRequest) -> dict[str, dict[str, Any]]:
    """The schema of each tool in the body of a request, as it is on the wire."""
    if vendor == "anthropic":
        body = orjson.loads(orjson.dumps(anthropic.request_body(asked)))
        return {tool["name"]: tool["input_schema"] for tool in body["tools"]}
    body = orjson.loads(orjson.dumps(openai.request_body(asked, "max_tokens")))
    return {tool["function"]["name"]: tool["function"]["parameters"] for tool in body["tools"]}


@pytest.mark.parametrize("vendor", ["anthropic", "openai"])
def test_every_vendor_gets_schemas_in_its_form(vendor: str) -> None:
    """An object at the top and nothing there that joins schemas, which both refuse; names as they allow them."""
    plain, told = (schemas(vendor, request(variables)) for variables in (False, True))
    assert told == schemas("anthropic", request(True))
    assert list(told) == [*BUILTIN, "pay"]
    for name, schema in told.items():
        jsonschema_rs.meta.validate(schema)
        assert jsonschema_rs.validator_for(schema)
        assert schema["type"] == "object"
        assert {"anyOf", "oneOf", "allOf", "not", "enum"} & schema.keys() == {
            key for key in ("anyOf", "oneOf", "allOf", "not", "enum") if key in plain[name]
        }
        assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", held) for held in schema["properties"])
        assert set(schema["properties"]) == {*plain[name]["properties"], "_outputPath", "_outputMethod"}
        assert schema.get("required") == plain[name].get("required")
        for held in schema["properties"].values():
            if "anyOf" in held:  # what stands beside it is about the parameter, and no rule of its own
                assert held.keys() <= {"anyOf", "title", "description", "default", "examples", "deprecated"}


def test_every_parameter_also_takes_a_variable() -> None:
    told = schemas("anthropic", request(True))["pay"]
    check, own = jsonschema_rs.validator_for(told), jsonschema_rs.validator_for(dict(TOOL.input_schema))
    for args in (
        {"rows": [{"id": 1}]},
        {"rows": [], "n": 3, "currency": "EUR", "flag": None, "text": "†"},
    ):
        assert check.is_valid(args) and own.is_valid(args)
    for name in ("n", "rows", "currency", "flag", "text"):
        assert check.is_valid({"rows": [], name: "†state.x"})
        assert check.is_valid({"rows": [], name: "state.x"}) is (name == "text")
    for args in ({"n": 1}, {"rows": [{"id": "x"}]}, {"rows": [], "n": 0}, {"rows": [], "more": "†state.x"}):
        assert not check.is_valid(args) and not own.is_valid(args)


def test_unnamed_parameters_take_variables() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "number"}}
    told = agent_schema("sum", schema)
    assert told["additionalProperties"] == {"anyOf": [{"type": "number"}, VARIABLE]}
    assert jsonschema_rs.validator_for(told).is_valid({"a": 1, "b": "†state.b", "_outputPath": "†state.s"})
    assert agent_schema("sum", {"additionalProperties": False})["additionalProperties"] is False
    through = {**schema, "properties": {"a": {"$ref": "#/additionalProperties"}}}
    assert agent_schema("sum", through)["additionalProperties"] == {"type": "number"}


def test_requirements_on_paths_are_described_and_checked() -> None:
    path = {"type": "string", "pattern": "^†state\\.reports\\."}
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "_outputPath": path},
        "required": ["n", "_outputPath"],
        "additionalProperties": False,
    }
    assert agent_schema("t", schema)["properties"]["_outputPath"] == path
    assert jsonschema_rs.validator_for(schema_without_meta(schema)).is_valid({"n": 1})
    meta = jsonschema_rs.validator_for(meta_schema(schema) or {})
    assert meta.is_valid({"_outputPath": "†state.reports.x", "_outputMethod": "push"})
    assert not meta.is_valid({"_outputPath": "†state.x"})
    assert not meta.is_valid({"_outputMethod": "push"})
    assert meta_schema({"type": "object", "properties": {"n": {}}, "required": ["n"]}) is None


def test_notes_do_not_change_the_cached_prefix() -> None:
    asked = request(True)
    noted = replace(asked, notes="# Variables\n- †input.a: a string")
    before, after = anthropic.request_body(asked), anthropic.request_body(noted)
    assert after["tools"] == before["tools"]
    assert after["system"][:-1] == before["system"]
    assert after["system"][-1] == {"type": "text", "text": noted.notes}
    told = openai.request_body(noted, "max_tokens")["messages"]
    assert [m["role"] for m in told[:3]] == ["system", "system", "user"]
    assert told[1]["content"] == noted.notes
