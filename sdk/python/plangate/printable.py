"""Untrusted strings, printed for a reviewer: every character is visible and unambiguous.

What cannot be seen is written out as JSON writes it (`\\u3164`), so that a string between quotes means the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

BLANK_LETTERS: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and signs, by what Unicode says, of which nothing can be seen."""

_MARKS: Final = frozenset(
    map(
        chr, (0x34F, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
    )
)
"""Marks that choose how the letter before them looks, which mostly cannot be seen."""

_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_HIDDEN_BLANKS: Final = re.compile("^ +| +$| {9,}")
"""At an end nobody sees them, and so many push out of sight what follows."""


MAX_MARKS: Final = 4
"""Combining marks on one letter. The scripts of the world need no more, and more of them are drawn over other lines."""


def escape_invisible(text: str, is_visible: Callable[[str], bool], escape: Callable[[str], str]) -> str:
    """Return the text with invisible characters escaped, and also combining marks that have no letter before them or are
    too many."""
    if text.isascii() and text.isprintable():
        return text
    parts: list[str] = []
    marks = MAX_MARKS  # at the beginning there is no letter to combine with
    for char in text:
        is_mark = unicodedata.category(char).startswith("M")
        if is_visible(char) and not (is_mark and marks >= MAX_MARKS):
            parts.append(char)
            marks = marks + 1 if is_mark else 0
        else:
            parts.append(escape(char))
            marks = MAX_MARKS
    return "".join(parts)


def to_printable(text: str) -> str:
    """Return a line that shows all of a text: different texts never look the same. Backslashes are doubled."""
    return _escape_line(text.replace("\\", "\\\\"))


def to_printable_json(text: str) -> str:
    """Return a JSON text with the invisible characters of its strings escaped. Its meaning stays the same."""
    return _STRING.sub(lambda string: f'"{_escape_line(string[0][1:-1])}"', text)


def _escape_line(text: str) -> str:
    visible = escape_invisible(text, _is_visible, lambda c: _SHORT.get(c) or _unicode_escape(c))
    return _HIDDEN_BLANKS.sub(lambda blanks: "\\u0020" * len(blanks[0]), visible)


def _is_visible(char: str) -> bool:
    return char.isprintable() and char not in BLANK_LETTERS and char not in _MARKS


def _unicode_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4))
