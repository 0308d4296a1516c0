"""The grammar of variables, and their replacement."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.spec.variables import (
    DAGGER,
    MISSING,
    Expression,
    InvalidVariable,
    Segment,
    VariablePath,
    evaluate,
    find_variables,
    parse,
    replace_variables,
    resolve_path,
)

D = DAGGER
NAMES = st.text(st.sampled_from("abcXYZ019_-"), min_size=1, max_size=6)
KEYS = st.one_of(
    NAMES,
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
    st.integers(0, 10**12).map(str),
    st.sampled_from(["", " ", "a.b", '"', "|", "&", "01"]),
)


def segment(key: str, quoted: bool) -> Segment:
    """As the grammar reads it."""
    number = key.isascii() and key.isdecimal() and str(int(key)) == key and len(key) < 10
    return Segment(key, int(key) if number and not quoted else None)


SEGMENTS = st.builds(segment, KEYS, st.booleans())
REFERENCES = st.builds(VariablePath, NAMES, st.lists(SEGMENTS, max_size=4).map(tuple))
EXPRESSIONS = st.builds(
    Expression,
    st.lists(st.lists(REFERENCES, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.text().map(lambda t: D + t),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(EXPRESSIONS)
def test_paths_round_trip(expression: Expression) -> None:
    assert parse(str(expression)) == expression


@given(st.one_of(st.text(), st.text().map(lambda t: D + t), st.text(f'{D}ab.0"|& ').map(lambda t: D + t)))
def test_every_string_is_something(text: str) -> None:
    try:
        found = parse(text)
    except InvalidVariable as error:
        assert text.startswith(D)
        assert not text.startswith(D + D)
        assert 0 <= error.position <= len(text)
        return
    if isinstance(found, Expression):
        assert parse(str(found)) == found
    else:
        assert found == (text[1:] if text.startswith(D + D) else text)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (f"{D}state", VariablePath("state")),
        (f"{D}input.userName", VariablePath("input", (Segment("userName"),))),
        (f'{D}state.totals."net.eur"', VariablePath("state", (Segment("totals"), Segment("net.eur")))),
        (f"{D}state.rows.0.id", VariablePath("state", (Segment("rows"), Segment("0", 0), Segment("id")))),
        (f'{D}state."0"', VariablePath("state", (Segment("0"),))),
        (f"{D}state.007", VariablePath("state", (Segment("007"),))),
        (f"{D}a-b_1.größe", VariablePath("a-b_1", (Segment("größe"),))),
        (f'{D}state.""', VariablePath("state", (Segment(""),))),
        (f'{D}state."\\u0041\\""', VariablePath("state", (Segment('A"'),))),
    ],
)
def test_references(text: str, read: VariablePath) -> None:
    assert parse(text) == Expression(((read,),))


def test_and_binds_tighter_than_or() -> None:
    a, b, c = VariablePath("a"), VariablePath("b"), VariablePath("c")
    assert parse(f"{D}a || {D}b && {D}c") == Expression(((a,), (b, c)))
    assert parse(f"{D}a && {D}b || {D}c") == Expression(((a, b), (c,)))


@pytest.mark.parametrize("text", ["plain", "", f"a {D}b", f" {D}input", "†".encode().decode("latin-1")])
def test_other_text_is_literal(text: str) -> None:
    assert parse(text) == text


def test_two_daggers_are_a_literal_dagger() -> None:
    assert parse(f"{D}{D}") == D
    assert parse(f"{D}{D}{D}x y") == f"{D}{D}x y"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (D, "at character 1: the kind of a reference has letters, digits, _ and -, at least one"),
        (f"{D} note", "at character 1: the kind of a reference has letters"),
        (f"{D}a.", "at character 3: a segment is missing here; quote one that is empty"),
        (f"{D}a..b", "at character 3: a segment is missing here"),
        (f'{D}a."b', "at character 3: a quoted segment is a JSON string: "),
        (f'{D}a."b"c', "at character 6: 'c' cannot stand here; quote a segment that has it"),
        (f'{D}a.b"c', "at character 4: '\"' cannot stand here"),
        (f"{D}a b", "at character 2: after a reference there is the end, ' || ' or ' && '"),
        (f"{D}a ||{D}b", "at character 2: after a reference there is the end"),
        (f"{D}a  || {D}b", "at character 2: after a reference there is the end"),
        (f"{D}a || b", f"at character 6: a reference begins with {D}; there are no literals"),
        (f"{D}a || ({D}b)", f"at character 6: a reference begins with {D}"),
        (f"{D}a || ", f"at character 6: a reference begins with {D}"),
        (f"{D}a|{D}b", "at character 2: '|' cannot stand here"),
    ],
)
def test_a_malformed_path_names_the_position(text: str, message: str) -> None:
    with pytest.raises(InvalidVariable) as caught:
        parse(text)
    assert str(caught.value).startswith(message)


@given(JSON, st.lists(KEYS, max_size=3))
def test_a_path_is_followed_as_keys_and_indexes(document: Any, keys: list[str]) -> None:
    wrapped = document
    for key in reversed(keys):
        wrapped = {key: wrapped}
    path = tuple(Segment(key) for key in keys)
    assert resolve_path(wrapped, path) is document
    assert resolve_path({"rows": [1, wrapped]}, (Segment("rows"), Segment("1", 1), *path)) is document


def test_paths_into_missing_structure_lead_nowhere() -> None:
    document = {"rows": [{"id": None}], "0": "key", "text": "abc"}
    for path in ("rows.1", "rows.id", 'rows."0"', "text.0", "gone", "rows.0.gone", "rows.0.id.deeper"):
        (reference,) = parse(f"{D}x.{path}").paths()  # type: ignore[union-attr]
        assert resolve_path(document, reference.path) is MISSING, path
    for path, value in (("rows.0.id", None), ("0", "key")):
        (reference,) = parse(f"{D}x.{path}").paths()  # type: ignore[union-attr]
        assert resolve_path(document, reference.path) == value


@given(EXPRESSIONS, st.dictionaries(NAMES, st.sampled_from([False, 0, "", None, [], 7]), max_size=4))
def test_existence_decides_not_truth(expression: Expression, known: dict[str, Any]) -> None:
    def exists(reference: VariablePath) -> bool:
        return reference.kind in known

    value = evaluate(expression, lambda r: known[r.kind] if exists(r) else MISSING)
    first = next((refs for refs in expression.alternatives if all(map(exists, refs))), None)
    assert value is (MISSING if first is None else known[first[-1].kind])


@given(JSON)
def test_values_are_not_resolved_twice(data: Any) -> None:
    """Whatever is put in stays as it is, also where it looks like a variable."""
    written = {"a": [f"{D}data", 1], "b": {"c": f"{D}data"}, "d": "plain", "e": f"{D}{D}x"}

    def value(text: str) -> Any:
        parsed = parse(text)
        return parsed if isinstance(parsed, str) else data

    result = replace_variables(written, value)
    assert result == {"a": [data, 1], "b": {"c": data}, "d": "plain", "e": f"{D}x"}
    assert result["a"][0] is data
    assert written["a"][0] == f"{D}data"


@given(JSON)
def test_variables_in_a_value_are_found_with_their_place(value: Any) -> None:
    found, problems = find_variables(value)
    for one in (*found, *problems):
        held = value
        for step in one.place:
            held = held[step]
        assert held == one.text
        assert held.startswith(D)
    escaped = json.dumps(value, ensure_ascii=False)
    if D not in escaped:
        assert (found, problems) == ([], [])


def test_variables_are_found_in_order() -> None:
    value = {"x": f"{D}a", "list": [f"{D}b || {D}c", {"y/z": f"{D}d"}], "bad": f"{D} ", "text": f"{D}{D}"}
    found, problems = find_variables(value)
    assert [(f.pointer, str(f.expression)) for f in found] == [
        ("/x", f"{D}a"),
        ("/list/0", f"{D}b || {D}c"),
        ("/list/1/y~1z", f"{D}d"),
    ]
    assert [(p.pointer, p.text) for p in problems] == [("/bad", f"{D} ")]
