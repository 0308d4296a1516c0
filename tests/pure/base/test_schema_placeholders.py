"""Values with placeholders against a schema: placeholders are accepted, everything else is checked."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.base.schema.bounds import InvalidSchema
from app.base.schema.checker import SchemaChecker

CHECKER = SchemaChecker()
PLACEHOLDER = "\0†input.x"
ROW = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "string", "maxLength": 3}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


def flaws(schema: Any, value: Any) -> list[tuple[str, str]]:
    return [(f.pointer, f.message) for f in CHECKER.compile(schema, placeholders=True).errors(value)]


def kind(name: str, **fields: Any) -> dict[str, Any]:
    properties = {"kind": {"const": name}, **fields}
    return {"type": "object", "properties": properties, "required": [*properties]}


UNION = {
    "oneOf": [kind("a", n={"type": "integer"}), {"$ref": "#/$defs/b"}],
    "discriminator": {"propertyName": "kind"},
    "$defs": {"b": kind("b", row=ROW, inner={"items": {"$ref": "#"}})},
}
DEEP = {"properties": {"to": {"$ref": "#"}, "n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (ROW, {"x": PLACEHOLDER, "y": PLACEHOLDER}, []),
        (ROW, {"x": PLACEHOLDER}, [("", 'the property "y" is missing')]),
        (ROW, {"x": PLACEHOLDER, "y": 5}, [("/y", "must be string, not 5")]),
        (ROW, {"x": PLACEHOLDER, "y": "long"}, [("/y", '"long" is longer than 3 characters')]),
        (ROW, {"x": PLACEHOLDER, "y": "", "z": PLACEHOLDER}, [("", 'these properties are not allowed: "z"')]),
        (
            {"items": ROW},
            [PLACEHOLDER, {"x": 1, "y": PLACEHOLDER}, {"x": PLACEHOLDER}],
            [("/2", 'the property "y" is missing')],
        ),
        ({"minItems": 2}, ["††"], [("", '["††"] has less than 2 items')]),
        ({"items": {"enum": ["p", "q"]}}, [PLACEHOLDER, "r"], [("/1", 'must be "p" or "q", not "r"')]),
        (
            DEEP,
            {"to": {"n": PLACEHOLDER, "to": {"n": "5"}}, "n": 1},
            [("/to/to/n", 'must be integer, not "5"')],
        ),
        (
            DEEP,
            {"to": {"n": PLACEHOLDER, "to": {"to": PLACEHOLDER}}, "n": 1},
            [("/to/to", 'the property "n" is missing')],
        ),
        (UNION, {"kind": "a", "n": PLACEHOLDER}, []),
        (UNION, {"kind": "a", "m": PLACEHOLDER}, [("", 'the property "n" is missing')]),
        (UNION, {"kind": "c", "m": PLACEHOLDER}, [("/kind", '"c" is not one of "a", "b"')]),
        (
            UNION,
            {"kind": "b", "row": {"x": PLACEHOLDER}, "inner": []},
            [("/row", 'the property "y" is missing')],
        ),
        (
            UNION,
            {"kind": "b", "row": PLACEHOLDER, "inner": [PLACEHOLDER, {"kind": "a", "n": "5"}]},
            [("/inner/1/n", 'must be integer, not "5"')],
        ),
        (UNION, {"kind": PLACEHOLDER, "n": 5}, []),
        (
            UNION,
            {"kind": PLACEHOLDER, "n": "5"},
            [
                (
                    "",
                    'matches none of 2 alternatives: (1) /n: must be integer, not "5"; (2) the property "row" is missing',
                )
            ],
        ),
        (
            {"anyOf": [{"items": {"type": "integer"}, "type": "array"}, ROW]},
            {"x": PLACEHOLDER, "y": 5},
            [
                (
                    "",
                    "matches none of 2 alternatives: (1) must be array, not an object of 2 properties; "
                    "(2) /y: must be string, not 5",
                )
            ],
        ),
        (
            {"allOf": [{"$ref": "#/$defs/r"}], "$defs": {"r": ROW}},
            {"y": PLACEHOLDER},
            [("", 'the property "x" is missing')],
        ),
        ({"enum": [{"a": 1}, "b"]}, {"a": PLACEHOLDER}, []),
        ({"not": {"required": ["a"]}}, {"b": PLACEHOLDER}, []),
        ({"not": {"required": ["a"]}}, {"a": PLACEHOLDER}, []),  # left out until the values have come
        (
            {"oneOf": [{"type": "string"}], "properties": {"a": {"$ref": "#/oneOf/0"}}},
            {"a": 5, "b": PLACEHOLDER},
            [],
        ),
        ({"not": {"properties": {"a": {"type": "string"}}}}, {"a": PLACEHOLDER}, []),
        ({"contains": {"type": "integer"}, "maxContains": 1}, [PLACEHOLDER, PLACEHOLDER, 1], []),
        ({"propertyNames": {"maxLength": 1}, "maxProperties": 1}, {"a": PLACEHOLDER}, []),
        ({"uniqueItems": True}, [PLACEHOLDER, "†input.x"], []),
        (
            {"properties": {"a": False}},
            {"a": PLACEHOLDER},
            [("/a", 'nothing is allowed here, but there is "\\u0000†input.x"')],
        ),
        (True, PLACEHOLDER, []),
    ],
)
def test_values_around_a_placeholder_are_checked(
    schema: Any, value: Any, expected: list[tuple[str, str]]
) -> None:
    assert flaws(schema, value) == expected


ONE = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
WHERE = {
    "if": {"properties": {"mode": {"const": "x"}}},
    "then": {"required": ["n"]},
    "else": {"required": ["m"]},
}
COURIER = {
    "properties": {"kind": {}, "mode": {}},
    "if": {"properties": {"mode": {"const": "express"}}},
    "then": {"properties": {"courier": {"type": "string"}}, "required": ["courier"]},
    "unevaluatedProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        (COURIER, {"mode": PLACEHOLDER, "courier": "x"}, True),
        ({"if": {"properties": {"a": {}}}, "unevaluatedProperties": False}, {"a": PLACEHOLDER}, True),
        ({"if": {"prefixItems": [{}]}, "unevaluatedItems": False}, [PLACEHOLDER], True),
        (ONE, {"a": PLACEHOLDER}, True),
        (ONE, {"a": PLACEHOLDER, "b": 1}, True),  # left out until the values have come
        (ONE, {"c": PLACEHOLDER}, False),
        ({"oneOf": [{"properties": {"a": {"type": t}}} for t in ("string", "integer")]}, {"a": PLACEHOLDER}, True),
        (WHERE, {"mode": PLACEHOLDER, "n": 1}, True),
        (WHERE, {"mode": "x", "m": PLACEHOLDER}, True),  # left out until the values have come
        ({"$schema": "http://json-schema.org/draft-07/schema#", **ONE}, {"c": PLACEHOLDER}, False),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "definitions": {"n": {"minimum": 1, "exclusiveMinimum": True}},
                "properties": {"n": {"$ref": "#/definitions/n"}},
            },
            {"n": 1, "m": PLACEHOLDER},
            False,
        ),
        (
            {"$defs": {"t": {"$dynamicAnchor": "t", "properties": {"n": {"type": "integer"}, "to": {"$dynamicRef": "#t"}}}},
             "$ref": "#/$defs/t"},
            {"to": {"n": "5", "to": PLACEHOLDER}},
            False,
        ),
        (
            {"$defs": {"t": {"$anchor": "t", "type": "integer"}}, "items": {"$ref": "#t"}},
            [PLACEHOLDER, "5"],
            False,
        ),
    ],
)  # fmt: skip
def test_a_placeholder_matches_if_some_value_can(schema: Any, value: Any, fits: bool) -> None:
    assert (flaws(schema, value) == []) is fits


SCALARS = st.sampled_from([None, True, 0, 1, "", "ab", "abcd"])
VALUES = st.recursive(
    SCALARS,
    lambda held: st.lists(held, max_size=3) | st.dictionaries(st.sampled_from("abk"), held, max_size=3),
    max_leaves=6,
)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "object", "array", ["null", "boolean"]]),
        "enum": st.lists(VALUES, min_size=1, max_size=2),
        "const": SCALARS,
        "minLength": st.integers(0, 3),
        "minItems": st.integers(0, 2),
        "uniqueItems": st.booleans(),
        "required": st.lists(st.sampled_from("abk"), unique=True, max_size=2),
    },
)


def grown(held: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(held, min_size=1, max_size=2)
    parts = st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("abk"), held, max_size=2),
            "additionalProperties": held,
            "items": held,
            "contains": held,
            "maxContains": st.integers(1, 2),
            "anyOf": some,
            "allOf": some,
            "oneOf": some,
            "not": held,
            "if": held,
            "then": held,
            "else": held,
            "$ref": st.just("#/$defs/one"),
        },
    )
    return st.builds(lambda rules, more: {**rules, **more}, RULES, parts)


SCHEMAS = st.recursive(st.booleans() | RULES, grown, max_leaves=5)


def with_placeholder(value: Any, at: int) -> tuple[Any, int]:
    """The value with the place of this number, counted as they are walked, as a placeholder; and how many places it has."""
    count = -1

    def walked(held: Any) -> Any:
        nonlocal count
        count += 1
        if count == at:
            return PLACEHOLDER
        if isinstance(held, dict):
            return {key: walked(inner) for key, inner in held.items()}
        return [walked(inner) for inner in held] if isinstance(held, list) else held

    made = walked(copy.deepcopy(value))
    return made, count


DIALECTS = [
    *(f"http://json-schema.org/draft-0{n}/schema#" for n in (4, 6, 7)),
    *(f"https://json-schema.org/draft/{year}/schema" for year in ("2019-09", "2020-12")),
]


@given(SCHEMAS, SCHEMAS, VALUES, st.integers(1, 8), st.sampled_from(DIALECTS))
@example({"$ref": "#/$defs/one", "type": "string"}, True, None, 1, DIALECTS[1])
def test_a_match_survives_replacing_values_by_placeholders(
    schema: Any, one: Any, value: Any, at: int, dialect: str
) -> None:
    schema = {"$schema": dialect, "allOf": [schema], "$defs": {"one": one}}
    try:
        plain = CHECKER.compile(schema)
    except InvalidSchema:
        return
    if plain.is_valid(value):
        assert CHECKER.compile(schema, placeholders=True).is_valid(with_placeholder(value, at)[0])


@given(RULES, VALUES)
def test_a_complete_mismatch_stays_a_mismatch(rules: Any, value: Any) -> None:
    schema = {"properties": {"a": {"items": rules}}, "items": {"anyOf": [rules]}}
    scalars = all(not isinstance(option, dict | list) for option in rules.get("enum", []))
    for whole in ({"a": [value]}, [value]):
        matches = CHECKER.compile(schema).is_valid(whole)
        if matches or scalars:
            assert CHECKER.compile(schema, placeholders=True).is_valid(whole) is matches


@pytest.mark.parametrize("union", ["oneOf", "anyOf"])
def test_deep_values_with_holes_are_judged_at_once(union: str) -> None:
    leaf = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    schema = {union: [leaf, {"properties": {"to": {"$ref": "#"}}, "required": ["to"]}], "maxProperties": 1}
    value: Any = {"n": PLACEHOLDER}
    for _ in range(60):
        value = {"to": value}
    started = time.perf_counter()
    assert flaws(schema, value) == []
    assert flaws(schema, {"to": {"to": value, "x": PLACEHOLDER}}) != []
    assert time.perf_counter() - started < 5
