"""Variables against hostile calls and documents: bounded work, bounded messages, no values in messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.spec.variables import VariablePath

from app.base.schema.checker import SchemaChecker
from app.variables.prompt import prompt_section
from app.variables.values import (
    DocumentCache,
    FilledCall,
    VariableError,
    approval_glimpses,
    describe_errors,
    fill_call,
    fill_record,
    parse_call,
)

STATE, DATA = VariablePath("state"), VariablePath("data")


def fill(args: Any, **documents: Any) -> FilledCall:
    values = {VariablePath(kind): held for kind, held in documents.items()}
    return fill_call(parse_call(args, (), None), values, documents, {})


def refusal(args: Any, **documents: Any) -> str:
    with pytest.raises(VariableError) as error:
        fill(args, **documents)
    return str(error.value)


def steps(work: Callable[[], Any]) -> int:
    """Calls of functions, Python's and C's, that a piece of work takes: the same on every machine."""
    count = 0

    def note(_frame: Any, event: str, _what: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


# -- what it costs


@pytest.mark.parametrize(
    "made",
    [
        lambda n: {"a": ["†state.x", "††y", "plain", {"k": "†state.rows.1"}] * n},
        lambda n: {"a": "†state" + ".x" * n + " || †state.x"},
        lambda n: {"a": " || ".join(f"†state.no{k}" for k in range(n)) + " || †state.x"},
        lambda n: {"a": " && ".join(["†state.x"] * n)},
        lambda n: {"a": {str(k): [[["plain"]]] for k in range(n)}},
        lambda n: {"a": '†state."' + "\\n" * n + '" || †state.x'},
    ],
)
def test_the_cost_is_linear(made: Callable[[int], Any]) -> None:
    state = {"x": 1, "rows": [1, 2]}
    small, large = (steps(lambda n=n: fill(made(n), state=state)) for n in (50, 400))  # type: ignore[misc]
    assert large <= 8 * small + 200


class Counted(list[Any]):
    """A list that knows how often it was copied."""

    copies = 0

    def copy(self) -> list[Any]:
        Counted.copies += 1
        return list(self)


def test_the_approvers_view_is_assembled_once() -> None:
    """However many large values stand in one list, it is copied once, and what is sent stays as it is."""
    state = {"big": "x" * 2000, "small": 1}
    made = fill({"a": [0, *["†state.big"] * 300, "†state.small"], "b": {"c": "†state.big"}}, state=state)
    args = {**made.args, "a": Counted(made.args["a"])}
    Counted.copies = 0
    shown = approval_glimpses(FilledCall(args, made.sources))
    assert Counted.copies == 1
    large = {"glimpse": "x" * 79 + "…", "sizeBytes": 2002}
    assert shown["args"] == {"a": [0, *[large] * 300, 1], "b": {"c": large}}
    assert args["a"][1] == args["b"]["c"] == "x" * 2000


def test_alternatives_count_as_variables() -> None:
    """One string may name as many references as a call may have variables."""
    assert fill({"a": " || ".join(["†state.no"] * 999) + " || †state.x"}, state={"x": 1}).args == {"a": 1}
    with pytest.raises(VariableError, match="One call may have 1000 variables"):
        fill({"a": " || ".join(["†state.no"] * 1000) + " || †state.x"}, state={"x": 1})
    with pytest.raises(VariableError, match="One call may have 1000 variables"):
        fill({"a": [" && ".join(["†state.x"] * 10)] * 101}, state={"x": 1})


def test_a_message_names_the_first_alternatives() -> None:
    told = refusal({"a": " || ".join(f"†state.no{n}" for n in range(900))}, state={"x": 1})
    assert told.count("has no ") == 5 + 1
    assert told.endswith("; and 895 more alternatives.")
    assert len(told) < 1500
    keys = {"k" * 5000 + str(n): n for n in range(200)}
    assert len(refusal({"a": f"†state.{'k' * 100_000}"}, state=keys)) < 2000
    assert len(refusal({"a": f"†{'k' * 100_000}.a"}, state=keys)) < 2000
    problems = refusal({str(n): "†" + "x y" * 50_000 for n in range(50)})
    assert len(problems) < 3000


def test_the_section_examines_only_what_it_lists() -> None:
    few, many = ({f"k{n}": [n] for n in range(count)} for count in (100, 2000))
    assert (
        steps(lambda: prompt_section({"state": orjson.dumps(many)}, []))
        <= steps(lambda: prompt_section({"state": orjson.dumps(few)}, [])) + 2000 * 10
    )
    assert prompt_section({"state": orjson.dumps(many)}, []).endswith("- and 1940 more\n")


# -- what is told of a wrong value


@pytest.mark.parametrize(
    ("schema", "args", "told"),
    [
        (
            {"rows": {"type": "array", "uniqueItems": True}},
            {"rows": ["†state.secret", "†state.secret"]},
            "/rows: it does not match the schema",
        ),
        (
            {"rows": {"type": "array", "contains": {"type": "integer"}}},
            {"rows": ["†state.secret"]},
            "/rows: it does not match the schema",
        ),
        (
            {"who": {"anyOf": [{"properties": {"n": {"type": "integer"}}}, {"type": "integer"}]}},
            {"who": {"n": "†state.secret"}},
            "/who: it does not match the schema",
        ),
        (
            {"who": {"properties": {"n": {}}, "additionalProperties": False}},
            {"who": {"n": "†state.secret", "m": 1}},
            '/who: these properties are not allowed: "m"',
        ),
        (
            {"who": {"properties": {"n": {}}, "required": ["m"]}},
            {"who": {"n": "†state.secret"}},
            '/who: the property "m" is missing',
        ),
        (
            {"who": {"const": {"n": "other"}}},
            {"who": {"n": "†state.secret"}},
            '/who: must be {"n":"other"}',
        ),
        (
            {"who": {"maxLength": 3}},
            {"who": "†state.secret"},
            '/who: "†state.secret" is a string that does not match',
        ),
        (
            {"who": {"enum": ["a", "b"]}},
            {"who": "†state.secret"},
            '/who: "†state.secret" is a string, and this must be "a" or "b"',
        ),
        (
            {"who": {"properties": {"a": {"items": {"type": "integer"}}}}},
            {"who": "†state.deep"},
            '/who/a/0: in "†state.deep", this must be integer',
        ),
        (
            {"who": {"required": ["name", "a"]}},
            {"who": "†state.deep"},
            '/who: "†state.deep" is an object, and the property "name" is missing',
        ),
        (
            {"who": {"properties": {"b": {}}, "additionalProperties": False}},
            {"who": "†state.deep"},
            '/who: "†state.deep" is an object, and it has properties that are not allowed',
        ),
        (
            {"who": {"items": {"required": ["name"]}}},
            {"who": "†state.rows"},
            '/who/0: in "†state.rows", the property "name" is missing',
        ),
        (
            {"who": {"items": {"maxProperties": 0}}},
            {"who": "†state.rows"},
            '/who/0: in "†state.rows", this does not match',
        ),
    ],
)
def test_messages_do_not_quote_values(schema: Any, args: Any, told: str) -> None:
    state = {"secret": "hush hush", "deep": {"a": ["hush hush"]}, "rows": [{"hush": "hush hush"}]}
    made = fill(args, state=state)
    flaws = SchemaChecker().compile({"properties": schema}).errors(made.args)
    said, _ = describe_errors(flaws, made.sources)
    assert said == told
    assert "hush" not in said


# -- values, whatever they are

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5).map(
        lambda text: "†" + text
    )
)
keys = st.text('†." |&ab0\u2028é', max_size=4)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=10,
)
texts = st.sampled_from(
    ["†state.v", "†data.w || †state.v", "†data.no || †state.v", "†state && †data.w", "††x"]
)


def exact(value: Any) -> str:
    return orjson.dumps(value).decode()


@given(json_values, json_values, st.lists(texts, max_size=5))
def test_a_helper_fills_as_the_service_does(v: Any, w: Any, used: list[str]) -> None:
    """Byte for byte, also through the record; and nothing that came in is looked at again."""
    documents = {STATE: {"v": v}, DATA: {"w": w}}
    wanted = {
        "†state.v": v,
        "†data.w || †state.v": w,
        "†data.no || †state.v": v,
        "†state && †data.w": w,
        "††x": "†x",
    }
    args = {"a": used, "k†": {"†state.v": "plain"}}
    here = fill_call(parse_call(args, (), None), documents, ("state", "data"), {})
    assert exact(here.args) == exact({"a": [wanted[text] for text in used], "k†": {"†state.v": "plain"}})
    bodies = {root: orjson.dumps(held) for root, held in documents.items()}
    record = fill_record(parse_call(args, (), None), bodies, ("state", "data"), {})
    there = FilledCall.load(*record, None)
    assert exact(there.args) == exact(here.args)
    assert there.sources == here.sources


def test_large_arguments_load_like_small_ones() -> None:
    value = [{"n": n, "f": -0.0, "big": 2**63 - 1, "t": "†é\u2028", "x": None, "y": []} for n in range(6000)]
    record = orjson.dumps({"a": value}), b"[]"
    made = FilledCall.load(*record, None)
    assert made.text == record[0]
    assert exact(made.args) == record[0].decode()
    assert FilledCall.load(orjson.dumps({"a": value[:10]}), b"[]", None).text is None


def test_one_document_is_open_at_a_time() -> None:
    opened = DocumentCache({"a": b'{"x": 1}', "b": b"[2]", "none": b""})  # type: ignore[dict-item]
    first = opened["a"]
    assert (first, opened["a"] is first) == ({"x": 1}, True)
    assert opened["b"] == [2]
    assert opened["a"] is not first
    assert opened.get("c", 3) == 3
    assert [json.dumps(held) for key, held in opened.items() if key != "none"] == ['{"x": 1}', "[2]"]
