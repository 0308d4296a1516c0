"""Docstrings of the library, parsed: summary, and the sections Args, Attributes, Raises and Example."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

ENTRIES: Final = ("Args", "Attributes", "Raises")
_SECTION: Final = re.compile(r"^(Args|Attributes|Raises|Example):$", re.MULTILINE)
_ENTRY: Final = re.compile(r"^([\w.*]+(?:, [\w.*]+)*): ", re.MULTILINE)


@dataclass(frozen=True)
class Docs:
    """`entries` has, for each section but the example, (names, text) in order."""

    meaning: str
    entries: Mapping[str, list[tuple[tuple[str, ...], str]]]
    example: str

    def names(self, section: str) -> list[str]:
        return [name for names, _ in self.entries.get(section, []) for name in names]


def docs_of(value: Any) -> Docs:
    """Raises ValueError for a section that cannot be read."""
    meaning, *rest = _SECTION.split(inspect.cleandoc(value.__doc__ or ""))
    sections = {name: inspect.cleandoc("\n" + body) for name, body in zip(rest[::2], rest[1::2], strict=True)}
    entries = {name: _entries(sections[name]) for name in ENTRIES if name in sections}
    return Docs(meaning.strip(), entries, sections.get("Example", ""))


def _entries(body: str) -> list[tuple[tuple[str, ...], str]]:
    before, *rest = _ENTRY.split(body)
    if before.strip() or not rest:
        raise ValueError(f"an entry begins with a name and a colon: {body!r}")
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return [(tuple(names.split(", ")), " ".join(text.split())) for names, text in pairs]
