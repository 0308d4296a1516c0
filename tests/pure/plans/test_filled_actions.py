"""Actions with values in place of variables, against the schema of their plan."""

from __future__ import annotations

from typing import Any

import pytest
from plangate.spec.models import PlanSpec

from app.base.schema.checker import SchemaChecker
from app.plans import body as bodies
from app.plans.body import Action
from tests.support import specs

KINDS = [
    specs.variant("count", n={"type": "integer"}),
    specs.variant("sum", of={"type": "object", "additionalProperties": {"type": "integer"}}),
]
SPEC = PlanSpec.model_validate(
    {
        "name": "Sums",
        "variables": True,
        "schema": {
            "type": "object",
            "properties": {
                "reason": {"type": "string"},
                "actions": {
                    "type": "array",
                    "minItems": 2,
                    "items": {
                        "oneOf": KINDS,
                        "discriminator": {"propertyName": "kind"},
                    },
                },
            },
            "required": ["actions", "reason"],
        },
    }
)
SCHEMAS = SchemaChecker()


def flaws(kind: str, spec: PlanSpec = SPEC, **payload: Any) -> list[tuple[str, str]]:
    """Of the second of three actions, whose fields were variables as it was stored."""
    other = Action("count", {"n": "†state.n"}, ()).wire()
    action = Action(kind, dict.fromkeys(payload, "†state.x"), ()).wire()
    body = {"reason": "r", "actions": [other, action, other]}
    return [(f.pointer, f.message) for f in bodies.action_errors(spec, body, 1, payload, SCHEMAS)]


@pytest.mark.parametrize("members", [1, 1_000, 100_000])
def test_a_valid_value_has_no_errors_at_any_size(members: int) -> None:
    assert flaws("count", n=5) == []
    assert flaws("sum", of={f"k{n}": n for n in range(members)}) == []


def test_a_mismatch_is_reported_with_its_place_in_the_action() -> None:
    assert flaws("count", n="5") == [("/n", 'must be integer, not "5"')]
    assert flaws("sum", of={"a": 1, "b": "x"}) == [("/of/b", 'must be integer, not "x"')]
    assert flaws("count") == [("", 'the property "n" is missing')]


def test_a_large_mismatch_is_rejected_without_its_place() -> None:
    value: dict[str, Any] = {f"k{n}": n for n in range(100_000)}
    assert flaws("sum", of={**value, "last": "x"}) == [
        ("", "the value does not match the schema, and is too large or too deep to say where")
    ]


def test_kinds_are_distinguished_without_a_named_discriminator() -> None:
    schema = dict(SPEC.schema_)
    schema["properties"] = {"reason": {}, "actions": {"items": {"anyOf": KINDS}, "type": "array"}}
    assert flaws("count", SPEC.model_copy(update={"schema_": schema}), n="5") == [
        ("/n", 'must be integer, not "5"')
    ]


def test_a_rule_about_all_actions_is_not_applied_to_each_alone() -> None:
    """And holds still: where the value of one breaks it, that one is told."""
    many = {"properties": {"actions": {"minItems": 3}}, "required": ["actions"]}
    small = {"properties": {"actions": {"items": {"properties": {"n": {"maximum": 9}}}}}}
    spec = SPEC.model_copy(
        update={"schema_": {**SPEC.schema_, "oneOf": [{"required": ["no"]}, {"allOf": [many, small]}]}}
    )
    assert flaws("count", spec, n=5) == []
    ((pointer, message),) = flaws("count", spec, n=10)
    assert (pointer, "/actions/1/n: 10 is greater than" in message) == ("", True)
