"""Values of which some are still to come, against a schema: what stands in their place is not checked, all else is."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.base.schema.bounds import SchemaRefused
from app.base.schema.checker import SchemaChecker

CHECKER = SchemaChecker()
HOLE = "\0†input.x"
ROW = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "string", "maxLength": 3}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


def flaws(schema: Any, value: Any) -> list[tuple[str, str]]:
    return [(f.pointer, f.message) for f in CHECKER.compile(schema, holes=True).errors(value)]


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
        (ROW, {"x": HOLE, "y": HOLE}, []),
        (ROW, {"x": HOLE}, [("", 'the property "y" is missing')]),
        (ROW, {"x": HOLE, "y": 5}, [("/y", "must be string, not 5")]),
        (ROW, {"x": HOLE, "y": "long"}, [("/y", '"long" is longer than 3 characters')]),
        (ROW, {"x": HOLE, "y": "", "z": HOLE}, [("", 'these properties are not allowed: "z"')]),
        ({"items": ROW}, [HOLE, {"x": 1, "y": HOLE}, {"x": HOLE}], [("/2", 'the property "y" is missing')]),
        ({"minItems": 2}, ["††"], [("", '["††"] has less than 2 items')]),
        ({"items": {"enum": ["p", "q"]}}, [HOLE, "r"], [("/1", 'must be "p" or "q", not "r"')]),
        (DEEP, {"to": {"n": HOLE, "to": {"n": "5"}}, "n": 1}, [("/to/to/n", 'must be integer, not "5"')]),
        (DEEP, {"to": {"n": HOLE, "to": {"to": HOLE}}, "n": 1}, [("/to/to", 'the property "n" is missing')]),
        (UNION, {"kind": "a", "n": HOLE}, []),
        (UNION, {"kind": "a", "m": HOLE}, [("", 'the property "n" is missing')]),
        (UNION, {"kind": "c", "m": HOLE}, [("/kind", '"c" is not one of "a", "b"')]),
        (UNION, {"kind": "b", "row": {"x": HOLE}, "inner": []}, [("/row", 'the property "y" is missing')]),
        (
            UNION,
            {"kind": "b", "row": HOLE, "inner": [HOLE, {"kind": "a", "n": "5"}]},
            [("/inner/1/n", 'must be integer, not "5"')],
        ),
        (UNION, {"kind": HOLE, "n": 5}, []),
        (
            UNION,
            {"kind": HOLE, "n": "5"},
            [
                (
                    "",
                    'matches none of 2 alternatives: (1) /n: must be integer, not "5"; (2) the property "row" is missing',
                )
            ],
        ),
        (
            {"anyOf": [{"items": {"type": "integer"}, "type": "array"}, ROW]},
            {"x": HOLE, "y": 5},
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
            {"y": HOLE},
            [("", 'the property "x" is missing')],
        ),
        ({"enum": [{"a": 1}, "b"]}, {"a": HOLE}, []),
        ({"not": {"required": ["a"]}}, {"b": HOLE}, []),
        ({"not": {"required": ["a"]}}, {"a": HOLE}, []),  # left out until the values have come
        (
            {"oneOf": [{"type": "string"}], "properties": {"a": {"$ref": "#/oneOf/0"}}},
            {"a": 5, "b": HOLE},
            [],
        ),
        ({"not": {"properties": {"a": {"type": "string"}}}}, {"a": HOLE}, []),
        ({"contains": {"type": "integer"}, "maxContains": 1}, [HOLE, HOLE, 1], []),
        ({"propertyNames": {"maxLength": 1}, "maxProperties": 1}, {"a": HOLE}, []),
        ({"uniqueItems": True}, [HOLE, "†input.x"], []),
        (
            {"properties": {"a": False}},
            {"a": HOLE},
            [("/a", 'nothing is allowed here, but there is "\\u0000†input.x"')],
        ),
        (True, HOLE, []),
    ],
)
def test_what_is_around_a_hole_is_checked(schema: Any, value: Any, expected: list[tuple[str, str]]) -> None:
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
        (COURIER, {"mode": HOLE, "courier": "x"}, True),
        ({"if": {"properties": {"a": {}}}, "unevaluatedProperties": False}, {"a": HOLE}, True),
        ({"if": {"prefixItems": [{}]}, "unevaluatedItems": False}, [HOLE], True),
        (ONE, {"a": HOLE}, True),
        (ONE, {"a": HOLE, "b": 1}, True),  # left out until the values have come
        (ONE, {"c": HOLE}, False),
        ({"oneOf": [{"properties": {"a": {"type": t}}} for t in ("string", "integer")]}, {"a": HOLE}, True),
        (WHERE, {"mode": HOLE, "n": 1}, True),
        (WHERE, {"mode": "x", "m": HOLE}, True),  # left out until the values have come
        ({"$schema": "http://json-schema.org/draft-07/schema#", **ONE}, {"c": HOLE}, False),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "definitions": {"n": {"minimum": 1, "exclusiveMinimum": True}},
                "properties": {"n": {"$ref": "#/definitions/n"}},
            },
            {"n": 1, "m": HOLE},
            False,
        ),
        (
            {"$defs": {"t": {"$dynamicAnchor": "t", "properties": {"n": {"type": "integer"}, "to": {"$dynamicRef": "#t"}}}},
             "$ref": "#/$defs/t"},
            {"to": {"n": "5", "to": HOLE}},
            False,
        ),
        (
            {"$defs": {"t": {"$anchor": "t", "type": "integer"}}, "items": {"$ref": "#t"}},
            [HOLE, "5"],
            False,
        ),
    ],
)  # fmt: skip
def test_whether_any_filling_can_match(schema: Any, value: Any, fits: bool) -> None:
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


def with_hole(value: Any, at: int) -> tuple[Any, int]:
    """The value with the place of this number, counted as they are walked, as a hole; and how many places it has."""
    count = -1

    def walked(held: Any) -> Any:
        nonlocal count
        count += 1
        if count == at:
            return HOLE
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
def test_what_matches_still_matches_with_any_of_its_values_to_come(
    schema: Any, one: Any, value: Any, at: int, dialect: str
) -> None:
    schema = {"$schema": dialect, "allOf": [schema], "$defs": {"one": one}}
    try:
        plain = CHECKER.compile(schema)
    except SchemaRefused:
        return
    if plain.is_valid(value):
        assert CHECKER.compile(schema, holes=True).is_valid(with_hole(value, at)[0])


@given(RULES, VALUES)
def test_what_does_not_match_and_is_whole_does_not_match_either(rules: Any, value: Any) -> None:
    schema = {"properties": {"a": {"items": rules}}, "items": {"anyOf": [rules]}}
    scalars = all(not isinstance(option, dict | list) for option in rules.get("enum", []))
    for whole in ({"a": [value]}, [value]):
        matches = CHECKER.compile(schema).is_valid(whole)
        if matches or scalars:
            assert CHECKER.compile(schema, holes=True).is_valid(whole) is matches


@pytest.mark.parametrize("union", ["oneOf", "anyOf"])
def test_deep_values_with_holes_are_judged_at_once(union: str) -> None:
    leaf = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    schema = {union: [leaf, {"properties": {"to": {"$ref": "#"}}, "required": ["to"]}], "maxProperties": 1}
    value: Any = {"n": HOLE}
    for _ in range(60):
        value = {"to": value}
    started = time.perf_counter()
    assert flaws(schema, value) == []
    assert flaws(schema, {"to": {"to": value, "x": HOLE}}) != []
    assert time.perf_counter() - started < 5
