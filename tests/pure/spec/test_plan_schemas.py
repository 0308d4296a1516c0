"""Reading a plan's schema."""

from typing import Any

import pytest
from plangate.spec.plan_schemas import action_kinds, actions_schema, discriminator, variants


def plan(items: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"actions": {"type": "array", "items": items}}, **fields}


def action(kind: Any, field: str = "kind") -> dict[str, Any]:
    return {"type": "object", "properties": {field: kind}}


def test_kinds_of_a_single_action() -> None:
    assert action_kinds(plan(action({"const": "a"}))) == {"a"}
    assert action_kinds(plan(action({"enum": ["a", "b"]}))) == {"a", "b"}


def test_kinds_use_a_custom_discriminator() -> None:
    schema = plan(
        {"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "discriminator": {"propertyName": "type"}},
        **{"$defs": {"A": action({"const": "a"}, "type"), "B": action({"$ref": "#/$defs/K"}, "type")}},
    )
    schema["$defs"]["K"] = {"const": "b"}

    assert discriminator(schema) == "type"
    assert action_kinds(schema) == {"a", "b"}
    assert len(list(variants(schema))) == 2


@pytest.mark.parametrize(
    "items", [None, True, {}, action({"type": "string"}), {"anyOf": [action({"const": "a"}), {}, action({})]}]
)
def test_open_kinds_are_accepted(items: Any) -> None:
    assert action_kinds(plan(items)) is None


def test_references_lead_to_the_actions() -> None:
    inner = plan(action({"const": "a"}))
    schema = {"$ref": "#/$defs/P~1lan", "$defs": {"P/lan": inner}}

    assert actions_schema(schema) == inner["properties"]["actions"]
    assert action_kinds(schema) == {"a"}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {"actions": {"type": "object"}}},
        {"properties": {"actions": True}},
        {"properties": []},
        {"$ref": "#/$defs/gone"},
        {"$ref": "#"},
        {"$ref": "#anchor"},
        {"$ref": "https://x.test/plan"},
    ],
)
def test_a_schema_without_actions_has_no_kinds(schema: Any) -> None:
    assert actions_schema(schema) is None
    assert action_kinds(schema) is None
    assert list(variants(schema)) == []


def test_unions_of_unions_are_walked_once() -> None:
    levels = {f"L{n}": {"oneOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 2} for n in range(200)}
    levels["L200"] = {"oneOf": [action({"const": "a"}), {"$ref": "#/$defs/L0"}]}

    assert action_kinds(plan({"$ref": "#/$defs/L0"}, **{"$defs": levels})) == {"a"}
