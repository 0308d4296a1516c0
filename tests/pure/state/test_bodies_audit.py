"""Documents as bytes: what a helper process makes of them is what the service makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plangate.spec.variables import Segment, VariablePath

from app.base.json import low_memory
from app.documents import bodies, json_worker
from app.documents.bodies import Change, apply_change, apply_changes
from app.documents.writing import METHODS, WriteRejected, apply_write

keys = st.text('†ab01. "|&\né', max_size=3)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("a†é\u2028", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
segments = keys.map(Segment) | st.integers(0, 3).map(lambda n: Segment(str(n), n))
paths = st.lists(segments, max_size=3).map(lambda path: VariablePath("data", tuple(path)))
changes = st.builds(
    lambda path, method, value: Change(str(path), method, orjson.dumps(value)),
    paths,
    st.sampled_from(METHODS),
    values,
)


def asked(verb: str, head: Mapping[str, Any], *data: bytes) -> tuple[dict[str, Any], bytes]:
    return json_worker.verbs()[verb](
        {**head, "sizes": [len(piece) for piece in data]}, bytearray(b"".join(data))
    )


@given(st.none() | st.dictionaries(keys, values, max_size=3), st.lists(changes, max_size=8))
@settings(max_examples=200, deadline=None)
def test_writes_and_their_fold_are_the_same_everywhere(base: Any, wanted: list[Change]) -> None:
    """Also from nothing, and what is refused is refused in the same words and leaves everything as it was."""
    first = b"" if base is None else orjson.dumps(base)
    body, log = first, []
    for change in wanted:
        head = {"kind": "data", "path": change.path, "method": change.method, "schema": None}
        said, made = asked("write", head, body, change.value)
        try:
            here = apply_change(body, "data", change, None)
        except WriteRejected as refused:
            assert (said, made) == ({"refused": str(refused)}, b"")
            continue
        assert (said, bytes(made)) == ({}, here)
        body = here
        log.append(change)
    assert apply_changes(first, log) == body
    head = {"writes": [[change.path, change.method] for change in log]}
    assert bytes(asked("fold", head, first, *(change.value for change in log))[1]) == body


def test_what_does_not_fit_is_refused_in_a_helper_too(monkeypatch: pytest.MonkeyPatch) -> None:
    head = {"kind": "state", "path": "†state", "method": "set", "schema": None}
    assert asked("write", head, b"{}", b"[1]")[0] == {
        "refused": "the state of a thread is an object, and would be an array of 1"
    }
    schema = {"properties": {"n": {"type": "integer"}}}
    said, _ = asked("write", {**head, "path": "†state.n", "schema": schema}, b"{}", b'"x"')
    told = 'the state would not match the runtime\'s stateSchema: /n: must be integer, not "x"'
    assert said == {"refused": told}
    monkeypatch.setattr(bodies, "MAX_DOCUMENT_BYTES", 20)
    said, _ = asked("write", {**head, "path": "†state.n"}, b"{}", b'"xxxxxxxxxxxxxxxxxxxx"')
    assert said["refused"].startswith("the document would have 28 bytes of JSON, more than 20: write less")


def test_the_glimpse_of_a_large_document() -> None:
    assert asked("glimpse", {}, orjson.dumps({"rows": list(range(100)), "n": 1}))[0] == {
        "glimpse": {"rows": {"count": 100, "sample": [0, 1, 2]}, "n": 1}
    }


@given(values)
@settings(max_examples=300, deadline=None)
def test_all_parsers_give_what_was_stored(value: Any) -> None:
    body = orjson.dumps(value)
    for loads in (
        low_memory.loads_trusted,
        low_memory.loads_cooperative,
        lambda b: low_memory.loads_low_memory(b, dense=True),
    ):
        assert orjson.dumps(loads(body)) == body
    assert repr(low_memory.loads_cooperative(body)) == repr(orjson.loads(body))


def test_a_write_copies_what_is_on_its_way_and_no_more() -> None:
    """So that a small write to a wide document costs its width once, and not its depth times that."""
    document = {"a": {"b": [{"c": 1}, {"d": [1, 2]}]}, "other": {"x": [1]}}
    change = Change("†state.a.b.0.c", "set", b"2")
    made = apply_write(document, change.write(orjson.loads))
    assert made["other"] is document["other"]
    assert made["a"]["b"][1] is document["a"]["b"][1]
    assert document["a"]["b"][0] == {"c": 1}
