"""Errors of statements and sources, as the process that runs statements reports them. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

MAX_NAMES: Final = 8


class StatementProblem(Exception):
    """A statement or a source that cannot be used. `code` is the code of the tool's error. `quotes_values`: the message
    may quote values of the rows that the statement read."""

    def __init__(self, code: str, message: str, *, quotes_values: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.quotes_values = quotes_values


def nearest_names(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the known names that are closest to `name`."""
    names = {other.casefold(): other for other in known}
    if not names:
        return " There are none."
    close = difflib.get_close_matches(name.casefold(), names, n=3, cutoff=0.6)
    listed = [names[other] for other in close] or sorted(names.values())[:MAX_NAMES]
    lead = "Nearest" if close else "Known"
    return f" {lead}: {', '.join(listed)}."
