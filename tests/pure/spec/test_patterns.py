"""The cost of patterns is bounded before they are compiled, because compilation holds the GIL."""

from __future__ import annotations

from typing import Any

import pytest
from plangate.spec.assembly import SpecInvalid, assemble
from plangate.spec.patterns import MAX_PATTERN_COST, MAX_SPEC_PATTERN_COST, pattern_cost
from plangate.spec.schemas import check_schema

from app.base.schema.bounds import InvalidSchema
from app.base.schema.checker import SchemaChecker


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("", 0, 0),
        ("^[a-z]+$", 1, 10),
        (r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z$", 10, 60),
        ("^[A-Z]{2}-[0-9]{4}$", 5, 30),
        ("a{1,900}", 900, 1_000),
        ("(a{1,900}){1,9}", 8_000, 9_000),
        ("((ab){10}){10}c", 200, 250),
        (r"\pL{200}", 100_000, 150_000),
        (r"\p{Greek}{3}", 1_000, 3_000),
        (r"[\p{L}\d]{10}", 6_000, 8_000),
        ("[^a]{100}", 1_000, 2_000),
        (r"\{{5}", 5, 5),
        ("a{", 2, 2),
        (")((", 1, 1),
        ("x{99999999999999999999}{999999999999999999}", 10**12, 10**12),
    ],
)
def test_the_cost_of_a_pattern_counts_unfolded_repetitions(pattern: str, least: int, most: int) -> None:
    assert least <= pattern_cost(pattern) <= most


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"anyOf": [{"pattern": rf"\pL{{200}}{n}"} for n in range(100)]}, "/anyOf/1/pattern"),
        (
            {"properties": {"a": {"patternProperties": {rf"^\pL{{150}}{n}": {} for n in range(3)}}}},
            "/properties/a/patternProperties",
        ),
        ({"pattern": r"(\pL{100}){100}"}, "/pattern"),
    ],
)
def test_costly_patterns_are_rejected_before_compilation(schema: Any, pointer: str) -> None:
    ((found, message),) = check_schema(schema)
    assert found == pointer
    assert message == (
        f"its patterns have more than {MAX_PATTERN_COST} states once repetitions are unfolded: use smaller counts"
    )
    with pytest.raises(InvalidSchema, match="its patterns have more than"):
        SchemaChecker().compile(schema)


def test_many_plain_patterns_are_accepted() -> None:
    schema = {"properties": {f"p{n}": {"pattern": "^[a-z0-9-]{1,63}$"} for n in range(100)}}
    assert check_schema(schema) == []
    assert SchemaChecker().compile(schema).is_valid({"p1": "a"})


def test_the_patterns_of_a_spec_are_bounded_together() -> None:
    costly = {"type": "object", "properties": {"a": {"pattern": r"\pL{300}"}}}
    tools = [{"name": f"t{n}", "inputSchema": costly} for n in range(100)]
    agent = {"name": "a", "role": "specialist", "model": "m"}
    with pytest.raises(SpecInvalid) as caught:
        assemble({"tenant": {"resourceId": "acme"}, "agents": [agent], "tools": tools})
    (problem,) = [found for found in caught.value.problems if "states" in found.message]
    assert problem.pointer == "/tools/5/inputSchema"
    assert f"more than {MAX_SPEC_PATTERN_COST} states" in problem.message
