"""Parsing large documents in a process: the same result as in the service, with less memory."""

from __future__ import annotations

import io
import json
import pickle
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.errors import Malformed
from app.base.json import low_memory, strict_json, worker

ODD = [
    "1e999",
    "-1e999",
    "1" * 400,
    "1" * 400 + ".5",
    "1e400",
    "[1E+400]",
    "1e-400",
    "NaN",
    "[Infinity]",
    "9223372036854775808",
    "-9223372036854775809",
    '"\\ud800"',
    '[1,1,1,1,1,1,1,1,1,1,1,1,1,1,"\\udfff"]',
    '{"\\udc00": 1}',
    '"\\u0000"',
    '{"a": 1, "a": 2}',
    '{"a": {"b": 1, "b": 1}}',
    "[" * 65 + "]" * 65,
    "[" * 5000 + "]" * 5000,
    '{"a":' * 65 + "1" + "}" * 65,
    "01",
    "1.",
    ".5",
    "+1",
    "[1,]",
    '{"a":1,}',
    "{1: 2}",
    "[1 2]",
    "",
    " ",
    "tru",
    '"\t"',
    '"\\x"',
    "[1]x",
    "\ufeff1",
    "// no\n1",
]
FINE = [
    "1e100",
    "1e0001",
    "-0",
    "-0.0",
    "0.1e1",
    "9223372036854775807",
    "123456789012345678901234567890.5",
    "5e-324",
    '"\\ud83d\\ude00 \U0001f600"',
    '"\\\\u0000"',
    ' \t\r\n{"a" : [ 1 , {"b": "\\"c"} ] } ',
    "[" * 64 + "]" * 64,
    '[{"id":1},{"id":2,"__class__":3,"__dict__":4},{}]',
]


def outcome(parse: Any, body: bytes) -> tuple[str, str]:
    try:
        value = parse(body)
    except Malformed as error:
        return "refused", error.detail
    return "taken", repr(value)


def in_child(body: bytes) -> Any:
    return low_memory.parse_low_memory(bytearray(body))


@pytest.mark.parametrize("text", [*ODD, *FINE])
def test_the_child_judges_as_the_gate_does(text: str) -> None:
    body = text.encode()
    kind, _ = expected = outcome(strict_json.parse, body)
    assert kind == ("refused" if text in ODD else "taken")
    assert outcome(in_child, body) == expected
    assert outcome(low_memory.parse_cooperative, body) == expected


@pytest.mark.parametrize("body", [b'"\xff"', b'"\xed\xa0\x80"', b"\xfe\xff\x001", b'{"a": "\xc3"}'])
def test_the_process_accepts_only_utf8(body: bytes) -> None:
    expected = outcome(strict_json.parse, body)
    assert expected[0] == "refused"
    assert outcome(in_child, body) == expected


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=40,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_values_are_unchanged(value: Any, ascii: bool, indent: int | None) -> None:
    body = json.dumps(value, ensure_ascii=ascii, indent=indent).encode()
    expected = orjson.loads(body)
    assert repr(in_child(body)) == repr(low_memory.parse_cooperative(body)) == repr(expected)


@given(st.binary(max_size=30) | st.text(alphabet='[]{},:"\\1e-.0 ', max_size=30).map(str.encode))
def test_any_bytes_are_handled(body: bytes) -> None:
    assert (
        outcome(in_child, body)
        == outcome(low_memory.parse_cooperative, body)
        == outcome(strict_json.parse, body)
    )


def test_both_builders_build_the_same() -> None:
    rows = [{"id": n, "name": f"item {n}", "tags": ["a", "b"], "deep": {"x": None}} for n in range(2000)]
    text = json.dumps([*rows, *({f"field {n}": n} for n in range(2000)), {str(n): n for n in range(100)}])
    dense, sparse = (low_memory.loads_low_memory(text, dense=dense) for dense in (True, False))
    assert orjson.dumps(dense) == orjson.dumps(sparse) == orjson.dumps(json.loads(text))


def test_dense_objects_share_their_keys() -> None:
    rows = [{"id": n} for n in range(100)]
    dense, plain = (low_memory.loads_low_memory(json.dumps(rows), dense=dense) for dense in (True, False))
    assert dense == plain == rows
    assert sys.getsizeof(dense[-1]) * 2 < sys.getsizeof(plain[-1])


@pytest.mark.long
def test_a_long_document_is_read_in_windows() -> None:
    """Strings, quotes and escapes lie across the borders of what is looked at at once."""
    for shift in range(8):
        rows = ["x" * shift, *({"k": 'a"b\\', "n": n} for n in range(40_000))]
        body = orjson.dumps(rows)
        assert len(body) > 3 * strict_json._WINDOW_BYTES
        assert in_child(body) == rows
        twice = body.replace(b'"n":39999', b'"k":39999')
        with pytest.raises(Malformed, match='has the key "k" twice'):
            in_child(twice)


def test_functions_run_in_order_and_return_errors() -> None:
    asked = [
        (bytes.upper, (b"x" * 600_000,), False),
        (divmod, (7, 2), True),
        (pow, (2,), False),
        (len, (), False),
    ]
    source, answers = io.BytesIO(b"".join(map(pickle.dumps, asked))), io.BytesIO()
    worker.run_all(source, answers)
    answers.seek(0)
    assert pickle.load(answers) == (b"X" * 600_000, None)
    assert pickle.load(answers) == (1, None), "the 3 is kept"
    assert pickle.load(answers) == (9, None)
    nothing, error = pickle.load(answers)
    assert (nothing, type(error)) == (None, TypeError)
    assert answers.read() == b""
