"""An action with values in the place of its variables, against the schema of its plan."""

from __future__ import annotations

from typing import Any

import pytest
from plangate.spec.models import PlanSpec

from app.base.schemacheck import SchemaChecker
from app.plans import body as bodies
from app.plans.body import Action
from tests.support import specs

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
                        "oneOf": [
                            specs.variant("count", n={"type": "integer"}),
                            specs.variant(
                                "sum", of={"type": "object", "additionalProperties": {"type": "integer"}}
                            ),
                        ],
                        "discriminator": {"propertyName": "kind"},
                    },
                },
            },
            "required": ["actions", "reason"],
        },
    }
)
SCHEMAS = SchemaChecker()
BODY: dict[str, Any] = {"reason": "r", "actions": [{}, {}]}


def flaws(kind: str, **payload: Any) -> list[tuple[str, str]]:
    action = Action(kind, dict.fromkeys(payload, "†state.x"), ())
    return [(f.pointer, f.message) for f in bodies.action_flaws(SPEC, BODY, action, payload, SCHEMAS)]


@pytest.mark.parametrize("members", [1, 1_000, 100_000])
def test_what_matches_has_no_flaws_however_large(members: int) -> None:
    assert flaws("count", n=5) == []
    assert flaws("sum", of={f"k{n}": n for n in range(members)}) == []


def test_what_does_not_match_is_told_with_its_place_in_the_action() -> None:
    assert flaws("count", n="5") == [("/n", 'must be integer, not "5"')]
    assert flaws("sum", of={"a": 1, "b": "x"}) == [("/of/b", 'must be integer, not "x"')]
    assert flaws("count") == [("", 'the property "n" is missing')]


def test_what_is_too_large_to_say_where_it_does_not_match_is_not_let_through() -> None:
    value: dict[str, Any] = {f"k{n}": n for n in range(100_000)}
    assert flaws("sum", of={**value, "last": "x"}) == [
        ("", "the value does not match the schema, and is too large or too deep to say where")
    ]
