"""Documents as bytes: the same results in a process and in the service."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plangate.spec.variables import Segment, VariablePath

from app.base.json import low_memory
from app.base.json.limits import LIMITS
from app.base.json.offload import offload
from app.base.json.process_pool import JsonProcessPool
from app.base.schema.checker import SchemaChecker
from app.documents.bodies import Change, apply_change, apply_changes, glimpse_body
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


SCHEMAS = SchemaChecker()
MAX_BYTES = 16 * 1024 * 1024


@given(st.none() | st.dictionaries(keys, values, max_size=3), st.lists(changes, max_size=8))
def test_writes_and_their_fold_are_the_same(base: Any, wanted: list[Change]) -> None:
    """Also from nothing, and what is refused leaves everything as it was."""
    first = b"" if base is None else orjson.dumps(base)
    body, log = first, []
    for change in wanted:
        with suppress(WriteRejected):
            body = apply_change(body, "data", change, None, SCHEMAS, MAX_BYTES)
            log.append(change)
    assert apply_changes(first, log) == body


def test_a_write_that_does_not_fit_its_document_is_rejected() -> None:
    def rejection(path: str, value: bytes, schema: Any = None, max_bytes: int = MAX_BYTES) -> str:
        with pytest.raises(WriteRejected) as rejected:
            apply_change(b"{}", "state", Change(path, "set", value), schema, SCHEMAS, max_bytes)
        return str(rejected.value)

    assert rejection("†state", b"[1]") == "the state of a thread is an object, and would be an array of 1"
    told = 'the state would not match the runtime\'s stateSchema: /n: must be integer, not "x"'
    assert rejection("†state.n", b'"x"', {"properties": {"n": {"type": "integer"}}}) == told
    assert rejection("†state.n", b'"xxxxxxxxxxxxxxxxxxxx"', max_bytes=20).startswith(
        "the document would have 28 bytes of JSON, more than 20: write less"
    )


@pytest.mark.long
async def test_functions_over_large_documents_give_the_same_in_a_process() -> None:
    """Also their errors, and with the checker of schemas, of which a process has its own."""
    state = {"rows": list(range(100)), "long": "x" * LIMITS.process_bytes}
    body, change = orjson.dumps(state), Change("†state.n", "set", b"1")
    parts = (body, "state", change, {"properties": {"n": {"type": "integer"}}}, SCHEMAS, MAX_BYTES)
    pool = JsonProcessPool()
    for function, args in (
        (apply_change, parts),
        (apply_changes, (body, (change, change))),
        (glimpse_body, (body,)),
    ):
        assert await offload(function, *args, size=len(body), processes=pool) == function(*args)  # type: ignore[operator]
    wrong = Change("†state.n", "set", b'"x"')
    with pytest.raises(WriteRejected, match='/n: must be integer, not "x"'):
        await offload(apply_change, body, "state", wrong, *parts[3:], size=len(body), processes=pool)


@given(values)
@settings(max_examples=300)
def test_all_parsers_agree(value: Any) -> None:
    body = orjson.dumps(value)
    for loads in (
        low_memory.loads_trusted,
        low_memory.loads_cooperative,
        lambda b: low_memory.loads_low_memory(b, dense=True),
    ):
        assert orjson.dumps(loads(body)) == body
    assert repr(low_memory.loads_cooperative(body)) == repr(orjson.loads(body))


def test_a_write_copies_only_its_path() -> None:
    """So that a small write to a wide document costs its width once, and not its depth times that."""
    document = {"a": {"b": [{"c": 1}, {"d": [1, 2]}]}, "other": {"x": [1]}}
    change = Change("†state.a.b.0.c", "set", b"2")
    made = apply_write(document, change.write())
    assert made["other"] is document["other"]
    assert made["a"]["b"][1] is document["a"]["b"][1]
    assert document["a"]["b"][0] == {"c": 1}
