"""Parses all JSON from outside: what it accepts can be stored, hashed and read back without a change.

Stock parsers accept NaN, 1e999, duplicate keys and lone surrogates, and Postgres cannot hold NUL; all of it
is rejected here, once, so that no other code has to handle it (promises P32 and P33).

How, and why so: orjson parses (strict grammar, UTF-8, surrogates, control characters, infinities), and what
it lets through is found on the bytes by a handful of C-speed passes: strings are cut out, and the rest, the
skeleton, shows brackets and numbers; a lost duplicate key shows as a missing string token when the parsed
value is written again. Only a refused body is tokenized in Python, to say where. Measured on one core, µs:

    body                         orjson alone   this gate   orjson + Python walk   json + hooks
    a query, 317 bytes                    0.7         4.9                    5.5            3.8
    rows, 1.1 MB                        5,100      19,000                 25,000         20,000
    rows, 11.5 MB                     190,000     390,000                430,000        350,000
    one string, 3 MB                      800       2,700                  1,800          1,800
    exponents, 0.8 MB                   4,600       7,400                 10,800         38,000
    brackets, 1 MB                     98,000     124,000                266,000        140,000

The hooks of the standard library (for pairs, integers, floats and constants) are as fast on plain rows, but
they lack depth, NUL and surrogates, each a further pass, and call Python for every number, which is what a
hostile body is made of. The walk checks depth and duplicates only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, TypeAlias

import orjson
import pydantic_core
from plangate.json_pointer import escape_step, json_pointer

from app.base.errors import Malformed, truncate

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"

MAX_DEPTH: Final = 64  # containers inside one another; a scalar has depth 0, [] has depth 1
_EXPLAIN_MAX_BYTES: Final = 256 * 1024  # beyond it a refusal says what and not where: 1 µs a token
_QUOTED_CHARS: Final = 80  # of a key or number of the caller's that a message repeats

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1

_BRACKETS_AS_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # +1 and -1 as signed bytes
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
# Only a number with 19 digits in a row, as 2**63 has, or three in its exponent can leave the range. orjson refuses
# infinities itself.
_DIGITS_AS_ZEROS: Final = bytes.maketrans(b"123456789E", b"000000000e")
_NINETEEN_DIGITS: Final = b"0" * 19
_TINY: Final = (b"e-000",)
_TINY_OR_HUGE: Final = (b"e-000", b"e000", b"e+000")
_WINDOW_BYTES: Final = (
    256 * 1024
)  # of a body that is cut at its quotes at once: the pieces take ten times as much
_PIECE_ITEMS: Final = 4096  # of a list that is written again
_NUMBER: Final = re.compile(rb"-?[0-9]++(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},:]|[^\s"\[\]{},:]++', re.DOTALL)
_NUL_ESCAPE: Final = re.compile(rb"(?<!\\)(?:\\\\)*+\\u0000")
_WIDE: Final = re.compile(rb"(?:\0[^\0])+|(?:[^\0]\0)+|\0\0\0[^\0]|[^\0]\0\0\0")  # UTF-16 and 32 begin so
_JSON_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


class NotJson(ValueError):
    """A value of our own has no JSON: NaN, an integer beyond 64 bits, a lone surrogate, another type."""


def parse(body: bytes, *, max_depth: int = MAX_DEPTH) -> JsonValue:
    """Return the JSON value of a request body.

    `max_depth` counts nested containers; it is at most 250, because orjson writes no deeper. -0.0, 1.0 and
    1 stay distinct. Numbers are IEEE doubles, so digits beyond their precision are rounded, but no number
    becomes infinite, and none becomes zero that was not. The time is linear in the size of the body.

    Raise Malformed, and nothing else, with a detail that says what is wrong and where.
    """
    try:
        value: JsonValue = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Malformed(_syntax_detail(body, max_depth, error)) from None
    scan = survey(body, max_depth=max_depth, infinities=False)
    if scan.complaint is not None:
        raise Malformed(_detail(body, max_depth, scan.complaint))
    if not scan.is_all_of(value):
        raise Malformed(_detail(body, max_depth, _big_duplicate(body)))
    return value


@dataclass(frozen=True, slots=True)
class Survey:
    """Counts over the bytes of a body, if it is JSON. `containers` are objects and arrays, `commas` those between
    items, `string_tokens` the quotes that delimit keys and strings."""

    complaint: str | None
    objects: int
    containers: int
    commas: int
    string_tokens: int

    def is_all_of(self, value: JsonValue, *, halves: bool = False) -> bool:
        """Return whether the parsed value has every key of the body: with a duplicate key it has one string
        less. With `halves`, its parser accepts lone surrogates. Raise TypeError if there is one."""
        if not self.objects and not halves:
            return True
        pieces = [value] if self.string_tokens <= _PIECE_ITEMS else _pieces(value)
        return sum(_string_tokens(orjson.dumps(piece)) for piece in pieces) == self.string_tokens


def survey(body: bytes, *, max_depth: int = MAX_DEPTH, infinities: bool = True) -> Survey:
    """Look for what parsers accept and this module does not, except duplicate keys. With `infinities`, also
    for numbers beyond the range of a double, which orjson rejects itself. The body may turn out not to
    be JSON."""
    plain = _without_escaped_quotes(body)
    skeleton = _skeleton(plain)
    complaint: str | None = None
    if b"\\u0000" in plain:
        complaint = "A string contains NUL (\\u0000), which cannot be stored."
    numbers = skeleton.translate(_DIGITS_AS_ZEROS)
    exponents = _TINY_OR_HUGE if infinities else _TINY
    if _NINETEEN_DIGITS in numbers or any(exponent in numbers for exponent in exponents):
        complaints = (_number_complaint(number.group()) for number in _NUMBER.finditer(skeleton))
        complaint = complaint or next(filter(None, complaints), None)
    objects = skeleton.count(b"{")
    containers = objects + skeleton.count(b"[")
    if containers > max_depth and _deeper_than(max_depth, skeleton):
        complaint = complaint or _too_deep(max_depth)
    return Survey(complaint, objects, containers, skeleton.count(b","), plain.count(b'"'))


def containers(body: bytes) -> int:
    """Return the number of objects and arrays in a body, if it is JSON, which determines the cost of its parsed
    value."""
    skeleton = _skeleton(_without_escaped_quotes(body))
    return skeleton.count(b"[") + skeleton.count(b"{")


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON, keys in their order. Raises NotJson, also for NaN and infinities (orjson: null)."""
    return _dump(value, _JSON_OPTIONS)


def canonical(value: Any) -> bytes:
    """Return the bytes that are hashed: compact UTF-8 JSON, with the keys of every object sorted by code
    point.

    1 and 1.0, 0.0 and -0.0 stay distinct. Equal bytes mean equal values. This is not RFC 8785, which sorts
    by UTF-16 units and writes 1.0 as 1. Raise NotJson.
    """
    return _dump(value, _JSON_OPTIONS | orjson.OPT_SORT_KEYS)


def _dump(value: Any, options: int) -> bytes:
    try:
        out = orjson.dumps(value, option=options)
    except orjson.JSONEncodeError as error:
        raise NotJson(f"The value cannot be written as JSON: {error}") from error
    if b"null" in out and _may_hold_non_finite(value):
        _refuse_non_finite(value)
    return out


def _may_hold_non_finite(value: Any) -> bool:
    """Return whether the value may hold NaN or an infinity, by writing it with an encoder that names them. That takes three
    times as long as orjson. The standard encoder takes ten times as long, and the walk below takes a second for 10 MB and
    blocks the event loop."""
    try:
        out = pydantic_core.to_json(value, inf_nan_mode="constants")
    except (ValueError, TypeError):  # of what orjson writes and this writer does not
        return True
    return b"NaN" in out or b"Infinity" in out


def _refuse_non_finite(value: Any) -> None:
    """Raise NotJson, with a pointer, when NaN or an infinity is inside: orjson writes them as null."""
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        pointer, item = stack.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                raise NotJson(f"The number at {pointer or 'the root'} is {item}, which JSON cannot hold.")
        elif isinstance(item, Mapping):
            stack += [(f"{pointer}/{escape_step(str(key))}", inner) for key, inner in item.items()]
        elif isinstance(item, list | tuple):
            stack += [(f"{pointer}/{index}", inner) for index, inner in enumerate(item)]


# The passes over the bytes. All take a body that orjson accepted, so its grammar is known to be right.


def _without_escaped_quotes(text: bytes) -> bytes:
    r"""Return the text without \\ and \", so that every remaining quote delimits a string and every \u is an
    escape."""
    if b"\\" not in text:
        return text
    return text.replace(b"\\\\", b"").replace(b'\\"', b"")


def _skeleton(plain: bytes) -> bytes:
    """Return what is outside the strings of a text without escaped quotes."""
    parts: list[bytes] = []
    inside = False
    for at in range(0, len(plain), _WINDOW_BYTES):
        pieces = plain[at : at + _WINDOW_BYTES].split(b'"')
        parts.append(b"".join(pieces[inside::2]))
        inside ^= len(pieces) % 2 == 0
    return b"".join(parts)


def _string_tokens(text: bytes) -> int:
    """Quotes that delimit strings: two for each key and string value."""
    return _without_escaped_quotes(text).count(b'"')


def _pieces(value: JsonValue, levels: int = 2) -> Iterator[JsonValue]:
    """Values that together have the string tokens of this one: a large one need not be written again at once."""
    if isinstance(value, list) and len(value) > _PIECE_ITEMS:
        for at in range(0, len(value), _PIECE_ITEMS):
            yield value[at : at + _PIECE_ITEMS]
    elif isinstance(value, dict) and levels and len(value) <= _PIECE_ITEMS:
        yield list(value)
        for item in value.values():
            yield from _pieces(item, levels - 1)
    else:
        yield value


def _deeper_than(max_depth: int, skeleton: bytes) -> bool:
    """Return whether containers nest deeper than `max_depth`, by a running sum of +1 and -1 for the
    brackets."""
    steps = memoryview(skeleton.translate(_BRACKETS_AS_STEPS, _NOT_BRACKETS)).cast("b")
    return max(accumulate(steps)) > max_depth


def _number_complaint(literal: bytes) -> str | None:
    """Return what is wrong with a number that orjson accepts, by its text: 2**64 is read as a float, 1e-400
    as 0."""
    if _is_integer(literal):
        # The length first: reading a million digits as an integer is quadratic.
        if len(literal) <= 20 and _INT_MIN <= int(literal) <= _INT_MAX:
            return None
        return f"The integer {truncate(literal.decode(), _QUOTED_CHARS)} does not fit in 64 bits; send it as a string."
    value = float(literal)
    if value == 0 and re.split(b"[eE]", literal)[0].strip(b"-0."):
        return f"The number {truncate(literal.decode(), _QUOTED_CHARS)} is too close to zero for a double; send it as a string."
    return "A number is beyond the range of a double." if math.isinf(value) else None


def _is_integer(literal: bytes) -> bool:
    return literal.isdigit() or literal[1:].isdigit()


# Saying what is wrong, once it is known that something is.


def _too_deep(max_depth: int) -> str:
    return f"Objects and arrays are nested deeper than {max_depth}."


def _duplicate(key: str) -> str:
    return f"One object has the key {key} twice; which one is meant cannot be known."


def _big_duplicate(body: bytes) -> str:
    """Return the error for a duplicate key, with the key's name, which the standard parser finds at C
    speed."""
    names: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        scan: set[str] = set()
        for key, _ in () if names else pairs:
            if key in scan:
                names.append(key)
            scan.add(key)

    json.loads(body, object_pairs_hook=note, parse_int=float)
    key = _quoted(names[0]) if names else "a key"
    return _duplicate(key)


def _detail(body: bytes, max_depth: int, complaint: str) -> str:
    """Return the error with its place, if the body is small enough to search."""
    if len(body) <= _EXPLAIN_MAX_BYTES and (located := _first_error(body, max_depth)):
        problem, pointer, offset = located
        return f"{problem} It is at {_place(body, offset)}, JSON pointer {_quoted(pointer)}."
    return complaint


def _first_error(body: bytes, max_depth: int) -> tuple[str, str, int] | None:
    """(complaint, JSON pointer, byte offset) of the first thing that is refused in a well-formed body."""
    parents: list[set[str] | None] = []  # a container: the keys seen so far, None for an array
    steps: list[str | int] = []  # where we are in each container
    key_next = False
    for match in _TOKEN.finditer(body):
        token, offset = match.group(), match.start()
        complaint: str | None = None
        first = token[:1]
        if first in b"{[":
            parents.append(set() if first == b"{" else None)
            steps.append("" if first == b"{" else 0)
            key_next = first == b"{"
            complaint = _too_deep(max_depth) if len(parents) > max_depth else None
        elif first in b"}]":
            parents.pop()
            steps.pop()
            key_next = False
        elif first == b",":
            key_next = parents[-1] is not None
            steps[-1] = steps[-1] + 1 if isinstance(steps[-1], int) else steps[-1]
        elif first == b'"':
            complaint = _nul_complaint(token)
            keys = parents[-1] if parents else None
            if key_next and keys is not None:
                key = steps[-1] = orjson.loads(token)
                if key in keys:
                    complaint = _duplicate(_quoted(key))
                keys.add(key)
                key_next = False
        elif first in b"-0123456789":
            complaint = _number_complaint(token)
        if complaint:
            return complaint, json_pointer(steps), offset
    return None


def _nul_complaint(token: bytes) -> str | None:
    if _NUL_ESCAPE.search(token):
        return "A string contains NUL (\\u0000), which cannot be stored."
    return None


def _syntax_detail(body: bytes, max_depth: int, error: orjson.JSONDecodeError) -> str:
    """Why orjson refused the body, in words that say what to do."""
    if encoding := _encoding_complaint(body):
        return encoding
    if not body.strip(b" \t\r\n"):
        return "The body is empty; send a JSON value."
    text, place = error.doc, f"line {error.lineno}, column {error.colno}"
    rest = text[error.pos : error.pos + 20].lstrip("-")
    if "infinity when parsed" in error.msg:
        literal = _NUMBER.match(body, len(text[: error.pos].encode()))
        complaint = _number_complaint(literal.group()) if literal and _is_integer(literal.group()) else None
        return f"{complaint or 'A number is beyond the range of a double.'} It is at {place}."
    if rest.lower().startswith(("nan", "inf")):
        return f"NaN and infinities are not JSON; use null or a string. It is at {place}."
    if "surrogate" in error.msg:
        return f"The string at {place} contains a lone surrogate (\\ud800 to \\udfff), which is no character."
    if "depth" in error.msg or "allocate" in error.msg:
        return f"{_too_deep(max_depth)} It is at {place}."
    if rest.startswith("\0"):
        return f"The body contains a NUL byte at {place}."
    return f"The body is not JSON: {error.msg} at {place}."


def _encoding_complaint(body: bytes) -> str | None:
    if body.startswith(b"\xef\xbb\xbf"):
        return "The body begins with a byte order mark (BOM); send UTF-8 without it."
    if body.startswith((b"\xff\xfe", b"\xfe\xff")) or (len(body) % 2 == 0 and _WIDE.fullmatch(body[:4])):
        return "The body looks like UTF-16 or UTF-32; send UTF-8."
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return f"The body is not UTF-8: {error.reason} at byte {error.start}."
    return None


def _place(body: bytes, offset: int) -> str:
    line = body.count(b"\n", 0, offset) + 1
    column = offset - body.rfind(b"\n", 0, offset)
    return f"byte {offset} (line {line}, byte {column} of it)"


def _quoted(text: str) -> str:
    """Text of the caller's, quoted and cut, safe in any log."""
    return json.dumps(truncate(text, _QUOTED_CHARS), ensure_ascii=False)
