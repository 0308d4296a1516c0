"""Strict JSON: accepted values round-trip, and rejections are consistent and helpful."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.base.errors import Malformed
from app.base.json.strict_json import NotJson, canonical, dumps, parse

# Text that may be stored: no NUL, no surrogates; quotes and backslashes often, as the gate cuts strings by
# them.
texts = st.text(
    st.one_of(
        st.sampled_from(list('\\"/:{}[],\n\t' + "ué\U0001f600")),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    max_size=12,
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=25,
)


def same(left: Any, right: Any) -> bool:
    """Equal in value and type, so that 1, 1.0 and True, 0.0 and -0.0 differ."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return repr(left) == repr(right)


def refusal(body: bytes) -> str:
    with pytest.raises(Malformed) as caught:
        parse(body)
    return caught.value.detail


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_output_of_json_dumps_round_trips(value: Any, ascii_only: bool, indent: int | None) -> None:
    assert same(parse(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()), value)


@given(values)
def test_our_output_round_trips(value: Any) -> None:
    assert same(parse(dumps(value)), value)


def with_member_twice(value: Any, path: list[int], escape: bool) -> str:
    """JSON text of `value` in which one object, found by following `path`, has one of its keys twice."""
    if isinstance(value, dict) and value and (not path or not any(value.values())):
        key, member = next(iter(value.items()))
        spelled = json.dumps(key)
        other = (
            '"' + "".join(f"\\u{ord(char):04x}" for char in key) + '"'
            if escape and key.isascii()
            else spelled
        )
        pairs = [f"{json.dumps(name)}:{json.dumps(inner)}" for name, inner in value.items()]
        return "{" + ",".join([*pairs, f"{other}: {json.dumps(member)}"]) + "}"
    if isinstance(value, dict | list) and value:
        at = path[0] % len(value)
        if isinstance(value, list):
            parts = [
                with_member_twice(v, path[1:], escape) if i == at else json.dumps(v)
                for i, v in enumerate(value)
            ]
            return "[" + ",".join(parts) + "]"
        parts = [
            f"{json.dumps(k)}:{with_member_twice(v, path[1:], escape) if i == at else json.dumps(v)}"
            for i, (k, v) in enumerate(value.items())
        ]
        return "{" + ",".join(parts) + "}"
    return '{"k":1,"k":' + json.dumps(value) + "}"


@given(values, st.lists(st.integers(0, 4), min_size=8, max_size=8), st.booleans())
def test_duplicate_keys_are_rejected_at_any_depth(value: Any, path: list[int], escape: bool) -> None:
    body = with_member_twice(value, path, escape).encode()
    assert "twice" in refusal(body)


@given(st.binary(max_size=60))
@example(b"\x00")
@example(b"\xef\xbb\xbf{}")
@example(b"[" * 5000)
@example(b'{"a":' * 5000)
@example(b"-")
def test_random_bytes_raise_only_the_documented_error(body: bytes) -> None:
    try:
        parse(body)
    except Malformed as error:
        assert error.detail.endswith(".")


@given(st.text(st.sampled_from(list('{}[]:,"\\u0d8e19-+. \nab\x00')), max_size=30))
@settings(max_examples=500)
def test_json_like_bytes_agree_with_the_standard_parser(text: str) -> None:
    try:
        value = parse(text.encode())
    except Malformed:
        return
    assert same(value, json.loads(text))


@given(st.integers())
@example(2**63 - 1)
@example(2**63)
@example(-(2**63))
@example(-(2**63) - 1)
@example(10**4400)
def test_only_64_bit_integers_are_accepted(number: int) -> None:
    body = f'{{"n": [{number:d}]}}'.encode() if abs(number) < 10**4000 else b'{"n":[1' + b"0" * 4400 + b"]}"
    if -(2**63) <= number < 2**63:
        assert parse(body) == {"n": [number]}
    else:
        assert "64 bits" in refusal(body)


@pytest.mark.parametrize(
    "text",
    [
        "1e5",
        "1E+5",
        "-0.0",
        "1.0",
        "0e-999",
        "0.0e-500",
        "5e-324",
        "1.7976931348623157e308",
        "-2.5e-300",
        "1e19",
    ],
)
def test_numbers_within_double_range_are_kept(text: str) -> None:
    assert same(parse(text.encode()), float(text))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b" \r\n\t", "empty"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"a":1}'.encode("utf-16"), "UTF-16"),
        ('{"a":1}'.encode("utf-16-le"), "UTF-16"),
        ('{"a":1}'.encode("utf-16-be"), "UTF-16"),
        ('{"a":1}'.encode("utf-32-be"), "UTF-32"),
        (b'{"a":"\xff"}', "not UTF-8: invalid start byte at byte 6"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'"\xc0\x80"', "not UTF-8"),
        (b"NaN", "NaN and infinities"),
        (b"[1,\n Infinity]", "line 2, column 2"),
        (b"[-Infinity]", "NaN and infinities"),
        (b"[1e999]", "beyond the range of a double"),
        (b"-1e999", "beyond the range of a double"),
        (b'{"a":{"b":[0,1e-400]}}', "too close to zero for a double; send it as a string. It is at byte 13"),
        (b"0." + b"0" * 400 + b"1", "too close to zero"),
        (b'{"a":[18446744073709551615]}', 'JSON pointer "/a/0"'),
        (b"1" * 400, "64 bits"),
        (
            b'{"a/b":["x\\u0000"]}',
            "NUL (\\u0000), which cannot be stored. It is at byte 8 (line 1, byte 9 of it)",
        ),
        (b'{"a\\u0000":1}', "NUL"),
        (b'"\\\\\\u0000"', "NUL"),
        (b'"\0"', "NUL byte at line 1, column 2"),
        (b"\0", "NUL byte"),
        (b"[]\0", "NUL byte"),
        (b'"\\ud800"', "lone surrogate"),
        (b'["\\udc00x"]', "lone surrogate"),
        (b'"\\ud800\\u0041"', "lone surrogate"),
        (b'{"a":1} {}', "unexpected content after document at line 1, column 9"),
        (b'{"a":1,}', "trailing comma"),
        (b"{'a':1}", "expected a string key"),
        (b'{"a":1', "unexpected end"),
        (b'{"o":{"k":1,\n "\\u006b":2}}', 'the key "k" twice'),
        (b'{"o":{"k":1,\n "\\u006b":2}}', '(line 2, byte 2 of it), JSON pointer "/o/k"'),
        (b'[{"a/b~":{"k":1}, "a/b~":0}]', 'JSON pointer "/0/a~1b~0"'),
    ],
)
def test_a_rejection_says_what_and_where(body: bytes, words: str) -> None:
    assert words in refusal(body)


def test_an_escaped_backslash_before_u0000_is_not_nul() -> None:
    assert parse(b'"\\\\u0000"') == "\\u0000"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    inside = b"1" if opening == b"[" else b"{}"
    at_limit = 64 if opening == b"[" else 63
    parse(opening * at_limit + inside + closing * at_limit)
    assert "deeper than 64" in refusal(opening * (at_limit + 1) + inside + closing * (at_limit + 1))
    assert "deeper than 64" in refusal(opening * 100_000)
    assert "deeper than 64" in refusal(opening * 1000 + inside + closing * 1000)


def test_siblings_and_brackets_in_strings_are_not_depth() -> None:
    parse(b"[" + b"[[]]," * 1000 + b'"' + b"[{" * 1000 + b'"]')


def test_depth_is_a_parameter() -> None:
    assert parse(b"[[1]]", max_depth=2) == [[1]]
    with pytest.raises(Malformed, match="deeper than 1"):
        parse(b"[[1]]", max_depth=1)


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (b'{"k":1,"q":{"k":1,"k":2}}', 'the key "k" twice'),
        (b'"\\u0000"', "NUL"),
        (b"1e-999", "zero"),
        (b"9" * 30, "64"),
    ],
)
def test_a_large_body_is_rejected_without_a_search(tail: bytes, words: str) -> None:
    detail = refusal(b'["' + b"x" * 300_000 + b'",' + tail + b"]")
    assert words in detail
    assert "pointer" not in detail


def test_a_refusal_does_not_echo_a_long_key() -> None:
    key = b'"' + b"k" * 5000 + b'"'
    assert len(refusal(b"{" + key + b":1," + key + b":2}")) < 400


@given(values)
def test_canonical_sorts_keys_and_is_stable(value: Any) -> None:
    text = canonical(value)
    again = parse(text)
    assert canonical(again) == text
    assert again == value


def test_canonical_bytes() -> None:
    value = {"b": [1, 1.0, -0.0], "a": {"é": None, "z": "\n"}, "": True}
    assert canonical(value) == '{"":true,"a":{"z":"\\n","é":null},"b":[1,1.0,-0.0]}'.encode()
    assert dumps({"b": 1, "a": (2,)}) == b'{"b":1,"a":[2]}'


@pytest.mark.parametrize("write", [dumps, canonical])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 2**64, "\ud800", b"x", {1: 2}, object()])
def test_values_that_are_not_json_are_not_written(write: Any, wrong: Any) -> None:
    with pytest.raises(NotJson):
        write({"a": [None, (wrong,)]})


def test_nan_is_named_by_its_pointer() -> None:
    with pytest.raises(NotJson, match="/a~1b/1 is nan"):
        dumps({"a/b": [None, math.nan]})


def test_orjson_still_accepts_what_the_gate_must_reject() -> None:
    """Were one of these refused by orjson, the pass for it could go."""
    assert orjson.loads(b'{"a":1,"a":2}') == {"a": 2}
    assert orjson.loads(b"18446744073709551616") == 2.0**64
    assert orjson.loads(b"1e-400") == 0.0
    assert orjson.loads(b'"\\u0000"') == "\0"
    assert orjson.dumps(math.nan) == b"null"
