"""Writes to documents: methods, errors, and properties of every log."""

from __future__ import annotations

import copy
import json
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.spec.variables import MISSING, Expression, Segment, parse, resolve_path

from app.documents.glimpses import glimpse_value
from app.documents.writing import (
    METHODS,
    DocumentWrite,
    WriteRejected,
    apply_write,
    nesting_depth,
)


def path(text: str) -> tuple[Segment, ...]:
    parsed = parse(f"†state.{text}" if text else "†state")
    assert isinstance(parsed, Expression)
    return next(parsed.paths()).path


@pytest.mark.parametrize(
    ("before", "at", "method", "value", "after"),
    [
        ({}, "a.b", "set", 1, {"a": {"b": 1}}),
        ({"a": 1}, "", "set", [2], [2]),
        ({"a": [1, 2]}, "a.0", "set", 9, {"a": [9, 2]}),
        ({"a": [1, 2]}, "a.2", "set", 9, {"a": [1, 2, 9]}),
        ({"a": [{"b": 1}]}, "a.0.c", "set", 2, {"a": [{"b": 1, "c": 2}]}),
        ({}, "0.1", "set", 1, {"0": {"1": 1}}),
        (
            {"a": {"x": {"y": 1}, "z": 0}},
            "a",
            "merge",
            {"x": {"w": 2}},
            {"a": {"x": {"y": 1, "w": 2}, "z": 0}},
        ),
        ({"a": {"x": {"y": 1}, "z": 0}}, "a", "assign", {"x": {"w": 2}}, {"a": {"x": {"w": 2}, "z": 0}}),
        ({"a": {"x": 1}}, "a", "merge", {"x": {"y": 1}}, {"a": {"x": {"y": 1}}}),
        ({}, "a", "merge", {"x": 1}, {"a": {"x": 1}}),
        ({}, "a", "push", 1, {"a": [1]}),
        ({"a": [[1]]}, "a", "push", [2], {"a": [[1], [2]]}),
        ({"a": [1]}, "a", "concat", [2, 3], {"a": [1, 2, 3]}),
        ({"a": "x"}, "a", "concat", "y", {"a": "xy"}),
        ({}, "a", "concat", "y", {"a": "y"}),
        ({"a": None}, "a", "set", None, {"a": None}),
    ],
)
def test_methods(before: Any, at: str, method: Any, value: Any, after: Any) -> None:
    kept = copy.deepcopy(before)
    assert apply_write(before, DocumentWrite(path(at), method, value)) == after
    assert before == kept


@pytest.mark.parametrize(
    ("before", "at", "method", "value", "message"),
    [
        ({"a": "x"}, "a", "push", 1, "push needs an array to append to, and there is a string"),
        ({"a": None}, "a", "push", 1, "push needs an array to append to, and there is null"),
        ({"a": 1}, "a.b", "set", 1, "a is an integer, which has nothing below it"),
        ({"a": [1]}, "a.b", "set", 1, "a is an array of 1: an index from 0 to 1 can be written, not b"),
        ({"a": [1]}, "a.3", "set", 1, "a is an array of 1: an index from 0 to 1 can be written, not 3"),
        ({"a": [1]}, 'a."0"', "set", 1, 'a is an array of 1: an index from 0 to 1 can be written, not "0"'),
        ([1], "x", "set", 1, "the document is an array of 1: an index from 0 to 1 can be written, not x"),
        ({"a": [1]}, "a", "merge", {}, "merge needs an object to write to, and there is an array of 1"),
        ({"a": {}}, "a", "merge", [1], "merge takes an object, not an array of 1"),
        ({"a": 1.5}, "a", "assign", {}, "assign needs an object to write to, and there is a number"),
        ({"a": {}}, "a", "assign", True, "assign takes an object, not a boolean"),
        ({"a": "x"}, "a", "concat", [1], "concat cannot join an array of 1 to a string"),
        ({"a": "x"}, "a", "concat", 1, "concat takes an array or a string, not an integer"),
        ({}, "a", "concat", {}, "concat takes an array or a string, not an object"),
    ],
)
def test_a_mismatch_is_rejected(before: Any, at: str, method: Any, value: Any, message: str) -> None:
    with pytest.raises(WriteRejected) as refused:
        apply_write(before, DocumentWrite(path(at), method, value))
    assert str(refused.value) == message


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_bounded() -> None:
    assert [nesting_depth(v) for v in (0, [], {"a": [1, {}]}, nested(70))] == [0, 1, 3, 70]
    assert nesting_depth(apply_write({}, DocumentWrite(path("a.b"), "set", nested(62)))) == 64
    with pytest.raises(WriteRejected, match="nested deeper than 64"):
        apply_write({}, DocumentWrite(path("a.b"), "set", nested(63)))
    with pytest.raises(WriteRejected, match="nested deeper than 64"):
        apply_write({"a": []}, DocumentWrite(path("a"), "push", nested(63)))


keys = st.text('ab01. "|&†\n', max_size=3)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("a†", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
segments = keys.map(Segment) | st.integers(0, 3).map(lambda n: Segment(str(n), n))
writes = st.builds(DocumentWrite, st.lists(segments, max_size=3).map(tuple), st.sampled_from(METHODS), values)


def exact(value: Any) -> str:
    return json.dumps(value)


@given(st.dictionaries(keys, values, max_size=3), st.lists(writes, max_size=12), st.integers(0, 12))
def test_a_log_folds_the_same_from_any_point(base: Any, wanted: list[DocumentWrite], cut: int) -> None:
    """What is refused is not in the log; the fold from a document in the middle is the fold from the beginning; and
    nothing that came in is changed."""
    before, log, steps = exact(base), [], [base]
    for write in wanted:
        try:
            steps.append(apply_write(steps[-1], write))
        except WriteRejected:
            continue
        log.append(write)
    at = min(cut, len(log))
    told = [exact(step) for step in steps]
    assert exact(reduce(apply_write, log, base)) == told[-1]
    assert exact(reduce(apply_write, log[at:], steps[at])) == told[-1]
    assert exact(base) == before and [exact(step) for step in steps] == told


@given(st.dictionaries(keys, values, max_size=3), writes)
def test_a_set_value_is_read_back(base: Any, write: DocumentWrite) -> None:
    try:
        after = apply_write(base, DocumentWrite(write.path, "set", write.value))
    except WriteRejected:
        return
    assert exact(resolve_path(after, write.path)) == exact(write.value)
    assert resolve_path(after, (*write.path, Segment("no such key"))) is MISSING


@given(values)
def test_a_glimpse_is_short_json(value: Any) -> None:
    assert len(json.dumps(glimpse_value(value))) < 4000


def test_glimpses() -> None:
    assert glimpse_value("x" * 100) == "x" * 79 + "…"
    assert glimpse_value([1, 2, 3]) == [1, 2, 3]
    assert glimpse_value(list(range(500))) == {"count": 500, "sample": [0, 1, 2]}
    assert glimpse_value({"a": {"b": {"c": 1}, "d": [1]}}) == {"a": {"b": {"keys": 1}, "d": {"count": 1}}}
    assert glimpse_value({str(n): n for n in range(9)}) == {**{str(n): n for n in range(6)}, "…": "3 more"}
