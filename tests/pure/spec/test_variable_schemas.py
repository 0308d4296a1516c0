"""Tool schemas of an agent with variables, and validation of its calls."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from plangate.spec.toolkits import TOOLKITS
from plangate.spec.variable_schemas import (
    agent_schema,
    data_name_problem,
    fixed_output_path,
    schema_without_meta,
)

VARIABLE = {"type": "string", "pattern": "^†"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "description": "How many.", "minimum": 1},
        "text": {"type": "string", "description": "Any."},
        "mail": {"type": "string", "format": "email"},
        "item": {"$ref": "#/$defs/Item"},
        "any": {},
        "yes": True,
    },
    "required": ["n"],
    "additionalProperties": False,
    "$defs": {"Item": {"type": "object", "required": ["id"]}},
}


def test_every_parameter_also_accepts_a_variable() -> None:
    told = agent_schema("pay", SCHEMA)
    assert told["properties"]["n"] == {
        "description": "How many.",
        "anyOf": [{"type": "integer", "minimum": 1}, VARIABLE],
    }
    assert told["properties"]["text"] == SCHEMA["properties"]["text"]
    assert told["properties"]["mail"]["anyOf"][1] == VARIABLE
    assert (told["properties"]["any"], told["properties"]["yes"]) == ({}, True)
    check = jsonschema_rs.validator_for(told)
    for args in (
        {"n": "†state.n", "item": "†state.item", "_outputPath": "†state.x", "_outputMethod": "push"},
        {"n": 1, "item": {"id": 1}},
    ):
        assert check.is_valid(args)
    for args in ({"n": "state.n"}, {"n": 1, "item": {}}, {"n": 1, "_outputMethod": "add"}, {"item": "†a"}):
        assert not check.is_valid(args)
    assert SCHEMA["properties"]["n"]["type"] == "integer"


def test_plan_bodies_and_referenced_schemas_are_not_widened() -> None:
    (store, *_) = TOOLKITS["plans"]
    told = agent_schema("storePlan", store.input_schema)
    assert told["properties"]["body"] == store.input_schema["properties"]["body"]
    assert told["properties"]["planId"]["anyOf"][1] == VARIABLE
    through = {"properties": {"a": {"type": "array"}, "b": {"$ref": "#/properties/a"}}}
    assert agent_schema("t", through)["properties"]["a"] == {"type": "array"}
    assert "_outputPath" in agent_schema("t", through)["properties"]


def test_meta_parameters_are_removed_before_validation() -> None:
    written = {
        "properties": {"n": {}, "_outputPath": {"const": "†state.x"}},
        "required": ["n", "_outputPath"],
    }
    assert schema_without_meta(written) == {"properties": {"n": {}}, "required": ["n"]}
    assert schema_without_meta(SCHEMA) == SCHEMA
    assert fixed_output_path(written) == "†state.x"
    assert fixed_output_path({"properties": {"_outputPath": VARIABLE}}) is None
    shared = {
        "properties": {"_outputPath": {"$ref": "#/$defs/kept"}},
        "$defs": {"kept": {"const": "†state.x"}},
    }
    assert fixed_output_path(shared) == "†state.x"
    assert agent_schema("t", written)["properties"]["_outputPath"] == {"const": "†state.x"}


@pytest.mark.parametrize(
    ("name", "problem"),
    [("rates_2", None), ("state", "reserved name"), ("a b", "cannot be named"), ("", "cannot be named")],
)
def test_names_of_data_objects(name: str, problem: str | None) -> None:
    found = data_name_problem(name)
    assert found is None if problem is None else problem in (found or "")
