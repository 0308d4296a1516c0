"""JSON Schemas of tenants: rejected schemas, error messages, and bounded work."""

from __future__ import annotations

import socket
import time
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.errors import MAX_COLLECTED_ERRORS
from app.base.schema.bounds import InvalidSchema
from app.base.schema.checker import SchemaChecker

checker = SchemaChecker()


def flaws(schema: Any, value: Any) -> list[tuple[str, str]]:
    return [(flaw.pointer, flaw.message) for flaw in checker.compile(schema).errors(value)]


def refused(schema: Any) -> tuple[str, str]:
    with pytest.raises(InvalidSchema) as caught:
        checker.compile(schema)
    assert len(caught.value.message) <= 300
    return caught.value.pointer, caught.value.message


def nested(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"a": leaf}
    return leaf


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer"}, 1.5, [("", "must be integer, not 1.5")]),
        ({"type": ["integer", "null"]}, "x", [("", 'must be integer or null, not "x"')]),
        ({"type": "string"}, {"a": 1}, [("", "must be string, not an object of 1 properties")]),
        ({"required": ["a", "b"]}, {"b": 1}, [("", 'the property "a" is missing')]),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            {"b": 1, "a": 2},
            [("", 'these properties are not allowed: "b"')],
        ),
        ({"additionalProperties": False}, {"b": 1}, [("", "no properties are allowed here")]),
        ({"properties": {"x": False}}, {"x": 1}, [("/x", "nothing is allowed here, but there is 1")]),
        ({"properties": {"a/b~c": {"type": "null"}}}, {"a/b~c": 1}, [("/a~1b~0c", "must be null, not 1")]),
        ({"items": {"minimum": 3}}, [4, 2], [("/1", "2 is less than the minimum of 3")]),
        ({"enum": ["a", "b", 3]}, "c", [("", 'must be one of "a", "b", 3, not "c"')]),
        ({"const": {"k": 1}}, 2, [("", 'must be {"k":1}, not 2')]),
        (
            {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            1,
            [("", "matches more than one of the alternatives, where exactly one is wanted")],
        ),
        (
            {"anyOf": [{"type": "string"}, {"properties": {"z": {"type": "string"}}}]},
            {"z": 1},
            [
                (
                    "",
                    "matches none of 2 alternatives: (1) must be string, not an object of 1 properties; "
                    "(2) /z: must be string, not 1",
                )
            ],
        ),
        (True, 1, []),
        (False, 1, [("", "nothing is allowed here, but there is 1")]),
    ],
)
def test_a_schema_error_says_what_to_change(schema: Any, value: Any, expected: list[tuple[str, str]]) -> None:
    found = flaws(schema, value)
    assert [
        (pointer, message.replace("null or integer", "integer or null")) for pointer, message in found
    ] == expected


def variant(kind: Any, **fields: Any) -> dict[str, Any]:
    properties = {"kind": kind if isinstance(kind, dict) else {"const": kind}, **fields}
    return {"type": "object", "properties": properties, "required": [*properties]}


ACTIONS = {
    "items": {
        "oneOf": [{"$ref": "#/$defs/Refund"}, {"$ref": "#/$defs/Group"}, variant({"$ref": "#/$defs/Words"})],
        "discriminator": {"propertyName": "kind"},
    },
    "$defs": {
        "Refund": variant("refund", order={"type": "string"}, amount={"type": "integer"}),
        "Group": {"$ref": "#/$defs/Groups"},
        "Groups": variant("group", inner={"$ref": "#"}),
        "Words": {"enum": ["note", "letter"]},
    },
}
KINDS = 'one of "refund", "group", "note", "letter"'


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ({"kind": "refund", "order": "o", "amount": "9"}, [("/0/amount", 'must be integer, not "9"')]),
        (
            {"kind": "refund"},
            [("/0", 'the property "order" is missing'), ("/0", 'the property "amount" is missing')],
        ),
        (
            {"kind": "group", "inner": [{"kind": "note"}, {"kind": "group", "inner": [{"kind": "x"}]}]},
            [("/0/inner/1/inner/0/kind", f'"x" is not {KINDS}')],
        ),
        ({"kind": "refnd", "order": "o"}, [("/0/kind", f'"refnd" is not {KINDS}')]),
        ({"kind": ["note"]}, [("/0/kind", f"an array of 1 items is not {KINDS}")]),
        ({"order": "o"}, [("/0", f'the property "kind" is missing: {KINDS}')]),
        (3, [("/0", f'3 is not an object with "kind" {KINDS}')]),
    ],
)
@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
def test_a_discriminator_limits_errors_to_its_variant(
    keyword: str, action: Any, expected: list[tuple[str, str]]
) -> None:
    items = {keyword if k == "oneOf" else k: held for k, held in ACTIONS["items"].items()}
    assert flaws({**ACTIONS, "items": items}, [action]) == expected


@pytest.mark.parametrize(
    "union",
    [
        {"oneOf": [variant("a"), variant("b")]},
        {"oneOf": [variant("a"), variant("b")], "discriminator": {"propertyName": 5}},
        {"oneOf": [variant("a"), variant("a")], "discriminator": {"propertyName": "kind"}},
        {"oneOf": [variant("a"), variant({"type": "string"})], "discriminator": {"propertyName": "kind"}},
        {"oneOf": [variant(5), False], "discriminator": {"propertyName": "kind"}},
        {"oneOf": [{"not": {}}, {"$ref": "#/$defs/a"}], "discriminator": {"propertyName": "kind"}},
    ],
)
def test_without_a_discriminator_every_variant_is_reported(union: dict[str, Any]) -> None:
    schema = {**union, "$defs": {"a": {"anyOf": [variant("c")]}}}
    ((pointer, message),) = flaws(schema, 3)
    assert (pointer, message.startswith("matches none of 2 alternatives: (1) ")) == ("", True)


def test_matching_several_variants_is_reported() -> None:
    schema = {"oneOf": [variant("a"), True], "discriminator": {"propertyName": "kind"}}
    message = "matches more than one of the alternatives, where exactly one is wanted"
    assert flaws(schema, {"kind": "a"}) == [("", message)]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (
            {
                "oneOf": [variant("y" * 1000), variant({"enum": [f"{n}" * 9 for n in range(99)]})],
                "discriminator": {"propertyName": "kind"},
            },
            {"kind": "x" * 1000},
        ),
        ({"type": "integer"}, "x" * 100_000),
        ({"maxLength": 3}, "x" * 100_000),
        ({"pattern": "^y" + "a" * 1000}, "x" * 100_000),
        ({"enum": ["y" * 1000] * 1 + ["z" * 1000]}, "x" * 1000),
        ({"uniqueItems": True}, [1] * 10_000),
        ({"additionalProperties": {"type": "null"}, "propertyNames": {"maxLength": 2}}, {"k" * 1000: 1}),
        ({"properties": {}, "additionalProperties": False}, {f"{i}" * 50: 1 for i in range(100)}),
        ({"anyOf": [{"const": "y" * 1000}] * 30}, "x" * 1000),
        ({"not": {"enum": ["x" * 1000]}}, "x" * 1000),
    ],
)
def test_messages_are_short(schema: Any, value: Any) -> None:
    found = flaws(schema, value)
    assert found
    assert all(0 < len(message) <= 200 for _, message in found)


def test_at_most_limit_flaws() -> None:
    compiled = checker.compile({"items": {"type": "string"}})
    assert len(compiled.errors(list(range(100)))) == MAX_COLLECTED_ERRORS
    assert len(compiled.errors(list(range(100)), limit=3)) == 3


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$recursiveRef"])
@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:1/x",
        "https://json-schema.org/draft/2020-12/schema",
        "file:///etc/passwd",
        "a.json",
        "",
    ],
)
def test_external_references_are_rejected(keyword: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    pointer, message = refused({"properties": {"a/b": {"anyOf": [True, {keyword: target}]}}})
    assert pointer == f"/properties/a~1b/anyOf/1/{keyword}"
    assert "nothing is fetched" in message


@pytest.mark.parametrize(
    "schema",
    [
        {"x-own": {"deep": [{"$ref": "http://a"}]}},
        {"properties": {"const": {"$ref": "http://a"}}},
        {"$defs": {"enum": {"$ref": "http://a"}}},
        {"items": [{"$ref": "http://a"}]},
        {"dependentSchemas": {"a": {"$ref": "http://a"}}},
        {"const": {"$ref": "http://a"}, "$ref": "#/const"},
        {
            "properties": {"a": {"default": [{"$ref": "http://a"}]}},
            "items": {"$ref": "#/properties/a/default/0"},
        },
    ],
)
def test_external_references_are_found_anywhere(schema: Any) -> None:
    refused(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"$ref": {"type": "string"}}}, {"$ref": "http://a"}),
        ({"const": {"$ref": "http://a"}}, {"$ref": "http://a"}),
        ({"$defs": {"t": {"type": "integer"}}, "$ref": "#/$defs/t"}, 1),
        ({"$defs": {"t": {"$anchor": "here", "type": "integer"}}, "$ref": "#here"}, 1),
        ({"$defs": {"a/b %": {"type": "integer"}}, "$ref": "#/$defs/a~1b%20%25"}, 1),
        ({"type": ["object", "integer"], "additionalProperties": {"$ref": "#"}}, {"a": {"b": 1}}),
        ({"$id": "https://example.com/tool", "$defs": {"t": {}}, "$ref": "#/$defs/t"}, 1),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"t": {}},
                "$ref": "#/definitions/t",
            },
            1,
        ),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}, 2),
        ({"type": "integer"}, 1.0),
        ({"format": "email"}, "no address"),
        ({"format": "uint32"}, -1),
        ({"pattern": r"^\d+$"}, "12"),
        ({"x-unknown": 5, "nullable": True}, 1),
        ({"x-meta": {"id": "a"}, "default": {"$id": "b"}, "$defs": {"t": {}}, "$ref": "#/$defs/t"}, 1),
        ({"components": {"schemas": {"t": {"type": "integer"}}}, "$ref": "#/components/schemas/t"}, 1),
    ],
)
def test_accepted(schema: Any, value: Any) -> None:
    assert flaws(schema, value) == []
    assert checker.compile(schema).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "pointer", "words"),
    [
        ({"type": "strin"}, "/type", "matches none of 2 alternatives"),
        ({"properties": {"a": {"minLength": -1}}}, "/properties/a/minLength", "minimum of 0"),
        (
            {"items": {"pattern": "(?=a)"}},
            "/items/pattern",
            "lookaround and back-references are not supported",
        ),
        ({"pattern": r"(a)\1"}, "/pattern", "linear time"),
        ({"pattern": "(a{1000}){1000}"}, "/pattern", "use smaller counts"),
        ({"patternProperties": {"(": {}}}, "/patternProperties/(", "linear time"),
        ({"properties": {"a": {"$ref": "#/$defs/no"}}}, "/properties/a/$ref", "does not exist"),
        ({"$ref": "#nowhere"}, "/$ref", "does not exist"),
        ({"$schema": "http://example.com/mine"}, "/$schema", "not known"),
        ({"$defs": {"a": {"$id": "http://a/b", "$ref": "#"}}}, "/$defs/a", "another $id"),
        ({"const": {"$id": "http://a", "$ref": "#/x", "x": {}}, "$ref": "#/const"}, "", "leads into data"),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "not": {"id": "a", "$ref": "#"}},
            "/not",
            "another $id",
        ),
        ({"maximum": float("nan")}, "", "nan"),
        ({"maximum": {1: 2}}, "", "JSON"),
        (nested(300, True), "", "JSON"),
    ],
)
def test_a_rejected_schema_names_the_place(schema: Any, pointer: str, words: str) -> None:
    at, message = refused(schema)
    assert at == pointer
    assert words in message


def test_a_pattern_cannot_stall() -> None:
    compiled = checker.compile({"pattern": "^(a+)+$"})
    began = time.perf_counter()
    assert compiled.errors("a" * 50_000 + "b")
    assert time.perf_counter() - began < 1


def definitions(count: int, keyword: str) -> dict[str, Any]:
    """Each refers to the next one twice."""
    chain: dict[str, Any] = {
        f"a{i}": {keyword: [{"$ref": f"#/$defs/a{i + 1}"}, {"$ref": f"#/$defs/a{i + 1}"}]}
        for i in range(count)
    }
    return {"$defs": {**chain, f"a{count}": {"type": "string"}}, "$ref": "#/$defs/a0"}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_doubling_references_are_rejected(keyword: str) -> None:
    assert "50,000" in refused(definitions(26, keyword))[1]
    assert "50,000" in refused(definitions(60, keyword))[1]
    assert flaws(definitions(8, keyword), 1)


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_unevaluated_keywords_are_bounded(keyword: str) -> None:
    schema: dict[str, Any] = {}
    for _ in range(8):
        schema = {"allOf": [schema], keyword: {}}
    assert flaws(schema, {"a": 1}) == []
    for _ in range(8):
        schema = {"allOf": [schema], keyword: {}}
    assert "50,000" in refused(schema)[1]
    recursive = {"allOf": [{"additionalProperties": {"$ref": "#"}}], "items": {keyword: {}}}
    assert refused(recursive) == (f"/items/{keyword}", "unevaluated... cannot stand in a recursive schema")


def test_long_chains_of_references_do_not_overflow_the_stack() -> None:
    chain = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(20_000)}
    for order in (chain, dict(reversed(chain.items()))):
        schema = {"properties": order, "$defs": {**order, "a20000": {}}}
        assert "200 levels" in refused(schema)[1]


RECURSIVE: list[dict[str, Any]] = [
    {"type": ["object", "integer"], "additionalProperties": {kind: [{"$ref": "#"}, {"$ref": "#"}]}}
    for kind in ("anyOf", "oneOf", "allOf")
]


@pytest.mark.parametrize("schema", RECURSIVE)
def test_recursive_schemas_over_deep_values_answer_at_once(schema: Any) -> None:
    began = time.perf_counter()
    found = flaws(schema, nested(60, "x"))
    assert time.perf_counter() - began < 2
    assert found == [("", "the value does not match the schema, and is too large or too deep to say where")]
    assert flaws(schema, nested(3, "x"))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"type": "string"}, "prefixItems": [True]}, list(range(300_000))),
        ({"allOf": [{"type": "integer"}] * 1000}, list(range(100_000))),
        ({"required": [f"p{i}" for i in range(20_000)]}, {}),
        ({"allOf": [{"enum": list(range(5_000))}] * 100}, "x"),
        ({"type": "integer"}, "x" * 10_000_000),
        ({"allOf": [*[{"items": True}] * 1000, {"type": "null"}]}, [0] * 500_000),
    ],
)
def test_expensive_error_messages_are_not_built(schema: Any, value: Any) -> None:
    compiled = checker.compile(schema)
    began = time.perf_counter()
    assert [flaw.pointer for flaw in compiled.errors(value)] == [""]
    assert time.perf_counter() - began < 2


TOO_LARGE = "the value does not match the schema, and is too large or too deep to say where"
MANY = [{"kind": "refund", "order": f"o-{n}", "amount": n} for n in range(20_000)]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"items": {"type": "string"}}, [*["x"] * 250_000, 7], [("/250000", "must be string, not 7")]),
        (ACTIONS, [*MANY, {"kind": "x"}], [("/20000/kind", f'"x" is not {KINDS}')]),
        (
            {"properties": {"a/b": {"properties": {"actions": ACTIONS}}}, "$defs": ACTIONS["$defs"]},
            {
                "a/b": {"actions": [*MANY[:9_000], {"kind": "note"}, {**MANY[0], "amount": "9"}, *MANY]},
                "c": [1],
            },
            [("/a~1b/actions/9001/amount", 'must be integer, not "9"')],
        ),
        (
            {
                "required": ["why"],
                "properties": {"actions": {"minItems": 2, **ACTIONS}},
                "$defs": ACTIONS["$defs"],
            },
            {"actions": MANY},
            [("", 'the property "why" is missing')],
        ),
        ({**ACTIONS, "uniqueItems": True}, [*MANY, MANY[0]], [("", TOO_LARGE)]),
        ({**ACTIONS, "maxItems": 20_000}, [*MANY, MANY[0]], [("", TOO_LARGE)]),
        ({**ACTIONS, "prefixItems": [{"type": "string"}]}, MANY, [("", TOO_LARGE)]),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "items": [{"type": "string"}, {"type": "integer"}],
            },
            [1] * 300_000,
            [("", TOO_LARGE)],
        ),
    ],
)
def test_large_values_report_their_first_wrong_elements(
    schema: Any, value: Any, expected: list[tuple[str, str]]
) -> None:
    """What is said of a slice alone is not said."""
    compiled = checker.compile(schema)
    began = time.perf_counter()
    assert [(flaw.pointer, flaw.message) for flaw in compiled.errors(value)] == expected
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("at", [0, 17, 99_999])
def test_only_the_first_error_of_a_large_value_is_returned(at: int) -> None:
    compiled = checker.compile({"items": {"type": "string"}, "minItems": 3})
    value: list[Any] = ["x"] * 100_000
    value[at] = value[-1] = 7
    began = time.perf_counter()
    assert [flaw.pointer for flaw in compiled.errors(value)] == [f"/{at}"]
    assert [flaw.pointer for flaw in compiled.errors([7, "x", 7])] == ["/0", "/2"]
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("value", [{1: 2}, {"\ud800": 1}, object(), b"x"])
def test_values_that_are_not_json_are_errors(value: Any) -> None:
    compiled = checker.compile({"type": "object", "additionalProperties": {"maxLength": 3}})
    assert not compiled.is_valid(value)
    assert "not JSON" in compiled.errors(value)[0].message


def test_compiled_schemas_are_cached_by_content() -> None:
    small = SchemaChecker(capacity=2)
    first = small.compile({"type": "string", "minLength": 1})
    assert small.compile({"minLength": 1, "type": "string"}) is first
    small.compile({"type": "integer"})
    assert small.compile({"type": "string", "minLength": 1}) is first
    small.compile({"type": "null"})
    assert small.compile({"type": "string", "minLength": 1}) is first
    assert len(small._cache) == 2


def test_the_schema_cache_is_bounded_by_size() -> None:
    def schema(n: int) -> dict[str, Any]:
        return {"title": "x" * 100, "minLength": n}

    small = SchemaChecker(capacity_bytes=600)  # four of about 130
    first = small.compile(schema(1))
    for n in (2, 3, 4):
        small.compile(schema(n))
    assert small.compile(schema(1)) is first
    small.compile(schema(5), placeholders=True)  # weighs as much as four
    assert len(small._cache) == 1
    assert small.compile(schema(1)) is not first


def test_changing_a_schema_later_has_no_effect() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    compiled = checker.compile(schema)
    schema["properties"]["a"]["type"] = "integer"
    assert compiled.errors({"a": "x"}) == []
    assert checker.compile(schema).errors({"a": "x"})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
schemas = st.recursive(
    st.booleans()
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "object", "array", "null"])}
    )
    | st.fixed_dictionaries({"enum": st.lists(json_values, min_size=1, max_size=3)})
    | st.just({"$ref": "#/$defs/t"})
    | st.fixed_dictionaries({"required": st.lists(st.sampled_from("abc"), max_size=2, unique=True)}),
    lambda inner: (
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3)})
        | st.fixed_dictionaries({"items": inner})
        | st.fixed_dictionaries({"not": inner})
        | st.fixed_dictionaries({"contains": inner})
        | st.fixed_dictionaries({"additionalProperties": inner})
        | st.fixed_dictionaries({"unevaluatedProperties": inner})
        | st.sampled_from(["allOf", "anyOf", "oneOf"]).flatmap(
            lambda key: st.fixed_dictionaries({key: st.lists(inner, min_size=1, max_size=3)})
        )
    ),
    max_leaves=6,
)


@given(schemas, json_values)
def test_validation_agrees_with_the_standard(schema: Any, value: Any) -> None:
    document = {"allOf": [schema], "$defs": {"t": {"type": ["integer", "object"]}}}
    compiled = checker.compile(document)
    found = compiled.errors(value)
    assert (
        (found == [])
        == compiled.is_valid(value)
        == jsonschema_rs.Draft202012Validator(document).is_valid(value)
    )
    assert all(flaw.message for flaw in found)
