"""The cost of compiling a regular expression in a JSON Schema.

The engine is linear in the text that it searches, but it unfolds counted repetitions when it compiles, and holds the
interpreter meanwhile: the eight characters of `\\pL{200}` take 50 ms. The cost is estimated from the pattern: a unit is a
state of the compiled form, and takes about half a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

MAX_PATTERN_COST: Final = 200_000
"""Of all the patterns of a schema together: 0.1 s."""

MAX_SPEC_PATTERN_COST: Final = 5 * MAX_PATTERN_COST
"""Of all the schemas of a spec together."""

COSTLY_PATTERNS: Final = (
    f"its patterns have more than {MAX_PATTERN_COST} states once repetitions are unfolded: use smaller counts"
)

_UNICODE_CLASS: Final = 600  # \p{L}: its ranges as sequences of bytes
_WIDE: Final = 12  # any character, or any but some
_CAP: Final = 10**12
_TOKEN: Final = re.compile(
    r"""
    \\[pP](?:\{[^}]*\}|.)?   | # a class of Unicode
    \\.                      | # an escape
    \[\^?\]?(?:\\.|[^\]\\])*+\]? | # a class of characters
    \((?:\?[^:)(]*:?)?       | # a group
    \{\d+(?:,\d*)?\}         | # a counted repetition
    .
    """,
    re.VERBOSE | re.DOTALL,
)
_UNICODE_IN_CLASS: Final = re.compile(r"\\[pP]")


def pattern_cost(pattern: str) -> int:
    """Estimate how many states the compiled form of a regular expression has."""
    total, last = 0, 0
    outer: list[int] = []
    for match in _TOKEN.finditer(pattern):
        part = match.group()
        if part[0] == "(":
            outer.append(total + last)
            total, last = 0, 0
        elif part == ")" and outer:
            total, last = outer.pop(), total + last
        elif part[0] == "{" and len(part) > 2:
            counts = [int(number) for number in re.findall(r"\d+", part[:40])]
            last = min(last * max(1, *counts), _CAP)
        elif part not in ("*", "+", "?"):
            total, last = min(total + last, _CAP), _single_cost(part)
    cost = total + last + sum(outer)
    return min(4 * cost if "(?i" in pattern else cost, _CAP)


def patterns_cost(schemas: Iterable[tuple[str, Any]]) -> int:
    """Return the total cost of the patterns of some schemas."""
    return sum(pattern_cost(pattern) for _, schema in schemas for _, pattern in _patterns_of(schema))


def costly_pattern(schemas: Iterable[tuple[str, Any]]) -> str | None:
    """Return the pointer to the pattern at which the patterns of the schemas cost too much together, or None."""
    total = 0
    for pointer, schema in schemas:
        for keyword, pattern in _patterns_of(schema):
            total += pattern_cost(pattern)
            if total > MAX_PATTERN_COST:
                return f"{pointer}/{keyword}"
    return None


def _single_cost(part: str) -> int:
    if part[:2] in ("\\p", "\\P"):
        return _UNICODE_CLASS
    if part in (".", "\\W", "\\D", "\\S"):
        return _WIDE
    if part[0] == "[":
        unicode_classes = len(_UNICODE_IN_CLASS.findall(part))
        return len(part) // 4 + 1 + _UNICODE_CLASS * unicode_classes + _WIDE * part.startswith("[^")
    return 1


def _patterns_of(schema: Any) -> Iterator[tuple[str, str]]:
    """Return the patterns in one schema with their keywords, except those in its subschemas."""
    if not isinstance(schema, Mapping):
        return
    if isinstance(pattern := schema.get("pattern"), str):
        yield "pattern", pattern
    if isinstance(patterns := schema.get("patternProperties"), Mapping):
        yield from (("patternProperties", pattern) for pattern in patterns)
