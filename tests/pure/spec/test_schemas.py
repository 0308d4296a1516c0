"""Normalizing schemas of tools, plans and references, and rejected schemas."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.spec.schemas import check_schema, normalize_schema
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType, TypedDict


class Address(BaseModel):
    city: str
    zip_code: str = Field(alias="zipCode")


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Colour(Enum):
    RED = "red"


class Point(TypedDict):
    x: int
    y: NotRequired[int]


Pair = TypeAliasType("Pair", tuple[int, int])


def test_a_json_schema_is_copied() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ("x", "y")}}, "description": "d"}
    plain = normalize_schema(schema)
    assert plain == {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "description": "d"}
    plain["properties"]["a"]["enum"].append("z")
    assert schema["properties"]["a"]["enum"] == ("x", "y")  # type: ignore[index]
    assert normalize_schema({}) == {}


def test_a_model_class() -> None:
    schema = normalize_schema(Address)
    assert schema["required"] == ["city", "zipCode"]
    assert schema["properties"]["zipCode"]["type"] == "string"


def test_a_recursive_model_has_definitions_and_a_readable_root() -> None:
    schema = normalize_schema(Node)
    assert schema["type"] == "object"
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["required"] == ["name"]
    assert check_schema(schema) == []


def test_a_mapping_of_fields() -> None:
    schema = normalize_schema(
        {
            "description": "Where to.",
            "to": Address,
            "tree": Node,
            "tags": list[str],
            "note": str | None,
            "days": NotRequired[int],
            "kind": Annotated[str, Field(default="fast", description="How.")],
            "window": {"from": date, "extra": {"type": "string", "maxLength": 3}},
        }
    )
    assert schema["description"] == "Where to."
    assert schema["required"] == ["to", "tree", "tags", "note", "window"]
    assert schema["properties"]["to"] == {"$ref": "#/$defs/Address"}
    assert schema["properties"]["kind"] == {"default": "fast", "description": "How.", "type": "string"}
    assert schema["properties"]["window"] == {
        "type": "object",
        "properties": {
            "from": {"type": "string", "format": "date"},
            "extra": {"type": "string", "maxLength": 3},
        },
        "required": ["from", "extra"],
    }
    assert set(schema["$defs"]) == {"Address", "Node"}
    assert check_schema(schema) == []


def test_description_is_a_field_when_its_value_is_a_type() -> None:
    schema = normalize_schema({"description": str})
    assert schema == {
        "type": "object",
        "properties": {"description": {"type": "string"}},
        "required": ["description"],
    }


def test_two_models_with_one_name_are_separate() -> None:
    def other() -> type[BaseModel]:
        class Address(BaseModel):
            street: str

        return Address

    schema = normalize_schema({"a": Address, "b": other()})
    assert len(schema["$defs"]) == 2
    assert schema["properties"]["a"] != schema["properties"]["b"]
    assert check_schema(schema) == []


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (int, {"type": "integer"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
        (Any, {}),
        (Annotated[int, Field(ge=1)], {"minimum": 1, "type": "integer"}),
        (Decimal, {"anyOf": [{"type": "number"}, {"type": "string"}]}),
    ],
)
def test_type_hints(hint: Any, expected: dict[str, Any]) -> None:
    assert normalize_schema(hint) == expected


def test_classes_that_pydantic_exports_are_accepted() -> None:
    assert normalize_schema(Colour) == {"enum": ["red"], "title": "Colour", "type": "string"}
    assert normalize_schema(Point)["required"] == ["x"]
    assert normalize_schema(Pair)["maxItems"] == 2


KNOT: dict[str, Any] = {}
KNOT["properties"] = KNOT


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "or a type hint, not None"),
        ("str", "or a type hint, not 'str'"),
        (3, "not 3"),
        ([str], "not "),
        (True, "not True"),
        (BaseModel, "not BaseModel"),
        (Node(name="x"), "not Node"),
        (Callable[[int], int], "has no JSON Schema"),
        ({1: str}, "field names are strings, not 1"),
        ({1: "a"}, "keys of a JSON Schema are strings, not 1"),
        ({"a": {2: str}}, r"field names are strings, not 2 \(in 'a'\)"),
        ({"a": [str]}, r"str is not JSON \(in 'a.0'\)"),
        ({"a": float("inf")}, r"inf is not JSON \(in 'a'\)"),
        ({"a": 5}, "no keyword of JSON Schema, and /a is 5, not a type"),
        ({"a/b": {"type": "string"}}, "and /a~1b is {'type': 'string'}, not a type"),
        ({"a": "b", "c": str}, "field 'a' is 'b', not a type"),
        ({"a": {"b": 3, "c": str}}, "field 'a.b' is 3, not a type"),
        ({"a": {"b": Callable[[int], int]}}, "field 'a.b' has no JSON Schema"),
        ({"a": {"$ref": "#/$defs/x"}, "b": str}, "field 'a' is a JSON Schema with references"),
        (KNOT, "contains itself or is nested too deeply"),
    ],
)
def test_invalid_schemas_are_rejected(value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        normalize_schema(value)


def test_a_model_with_a_name_that_does_not_exist() -> None:
    class Lost(BaseModel):
        where: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="Lost has no JSON Schema"):
        normalize_schema(Lost)


# What is wrong with a JSON Schema.


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/a%20b~1c", "$defs": {"a b/c": {"type": "integer"}}},
        {"$ref": "#/$defs/yes", "$defs": {"yes": True}},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}},
        {"$dynamicRef": "#here", "$defs": {"a": {"$dynamicAnchor": "here"}}},
        {"$ref": "#/x-own/0", "x-own": [{"type": "string"}]},
        {"properties": {"$ref": {"type": "string"}}},
        {"const": {"$ref": "https://example.com/a"}},
        {"enum": [{"$ref": "https://example.com/a"}], "default": {"$schema": "x"}},
        {"$id": "https://example.com/own", "$ref": "#/$defs/a", "$defs": {"a": {}}},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#a",
            "definitions": {"a": {"$id": "#a"}},
        },
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#"},
        {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
        {"pattern": "^†", "format": "whatever"},
    ],
)
def test_valid_schemas_are_accepted(schema: Any) -> None:
    assert check_schema(schema) == []


LEAVES = "leaves the document and nothing is fetched: put that schema into \\$defs"


@pytest.mark.parametrize(
    ("schema", "pointer", "message"),
    [
        ({"$ref": "https://example.com/a"}, "/$ref", LEAVES),
        ({"$ref": "other.json#/a"}, "/$ref", LEAVES),
        ({"$ref": "file:///etc/passwd"}, "/$ref", LEAVES),
        ({"$ref": ""}, "/$ref", LEAVES),
        ({"items": {"$dynamicRef": "https://example.com/a"}}, "/items/$dynamicRef", LEAVES),
        ({"not": {"$recursiveRef": "https://example.com/a"}}, "/not/$recursiveRef", LEAVES),
        ({"properties": {"a/b": {"$ref": "x"}}}, "/properties/a~1b/$ref", LEAVES),
        ({"definitions": {"unused": {"$ref": "x"}}}, "/definitions/unused/$ref", LEAVES),
        ({"dependencies": {"a": {"$ref": "x"}}}, "/dependencies/a/$ref", LEAVES),
        ({"x-own": [{"y": {"$ref": "x"}}]}, "/x-own/0/y/$ref", LEAVES),
        ({"allOf": [{}, {"$ref": "#/$defs/no"}]}, "/allOf/1/$ref", "leads to no schema in this document"),
        ({"$ref": "#no"}, "/$ref", "leads to no schema"),
        ({"$ref": "#/const", "const": {"$ref": "https://example.com/a"}}, "/$ref", "leads to no schema"),
        (
            {"$schema": "https://example.com/meta"},
            "/$schema",
            "the dialect .* is not known: use draft 2020-12",
        ),
        ({"not": {"$schema": "https://example.com/meta"}}, "/not/$schema", "the dialect .* is not known"),
        ({"$schema": 3}, "/$schema", 'not of type "string"'),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$id": "b"}}}, "/$defs/a/$id", "no \\$id below its root"),
        ({"type": "strin"}, "/type", "not valid"),
        ({"properties": {"a": {"minimum": "x"}}}, "/properties/a/minimum", 'not of type "number"'),
        ({"pattern": "("}, "/pattern", "matched in linear time"),
        ({"items": {"pattern": "(?=a)"}}, "/items/pattern", "lookaround and back-references"),
        ({"properties": {"a": {1, 2}}}, "", "is not JSON"),
        ([], "", "a JSON Schema is an object or a boolean, not \\[\\]"),
        (KNOT, "", "nested too deeply"),
    ],
)
def test_unsupported_schemas_are_rejected(schema: Any, pointer: str, message: str) -> None:
    problems = check_schema(schema)
    assert problems
    assert problems[0][0] == pointer
    assert re.search(message, problems[0][1])


def test_every_problem_is_reported() -> None:
    schema = {"properties": {"a": {"$ref": "x"}, "b": {"items": {"$ref": "#/no"}}}}
    assert [pointer for pointer, _ in check_schema(schema)] == [
        "/properties/a/$ref",
        "/properties/b/items/$ref",
    ]
    invalid = {"properties": {"a": {"type": "no"}, "b": {"minLength": -1}}}
    assert {pointer for pointer, _ in check_schema(invalid)} == {
        "/properties/a/type",
        "/properties/b/minLength",
    }


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["$ref", "$id", "$anchor", "$defs", "properties", "items", "const", "type", "x"]),
            inner | st.sampled_from(["#", "#/$defs/x", "#x", "https://example.invalid/", "string"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_checking_never_fetches(schema: Any) -> None:
    for pointer, message in check_schema(schema):
        assert pointer == "" or pointer.startswith("/")
        assert message


def test_a_mistake_far_into_a_long_list_is_reported() -> None:
    schema = {
        "properties": {"a": {"required": [*(f"x{n}" for n in range(500)), 7]}, "b": {"type": "nothing"}}
    }
    found = check_schema(schema)
    assert found[0] == ("/properties/a", "it is not a valid JSON Schema")
    assert found[1][0] == "/properties/b/type"


def test_a_mistake_among_many_properties_is_reported() -> None:
    schema = {"properties": {**{f"p{n}": {} for n in range(500)}, "q": 7}}
    assert [pointer for pointer, _ in check_schema(schema)] == ["/properties/q"]


def test_errors_do_not_copy_their_surroundings() -> None:
    """The validator took 19 s for 1 MiB of this, with the interpreter held."""
    nested: list[Any] = []
    for _ in range(40):
        nested = [nested]
    schema = {"allOf": [copy.deepcopy(nested) for _ in range(2_000)]}
    began = time.thread_time()
    copy.deepcopy(schema)
    copied = time.thread_time()
    assert check_schema(schema)
    assert time.thread_time() - copied < 40 * (copied - began)  # 170 times where each error copied it
