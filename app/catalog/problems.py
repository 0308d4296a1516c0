"""What is wrong with a statement or a source, as a process that runs statements reports it. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

MAX_NAMES: Final = 8


class StatementProblem(Exception):
    """A statement or a source that cannot be used. `code` is the code of the tool's error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def nearest_names(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the known names that are closest to `name`."""
    names = {other.casefold(): other for other in known}
    if not names:
        return " There are none."
    close = difflib.get_close_matches(name.casefold(), names, n=3, cutoff=0.6)
    shown = [names[other] for other in close] or sorted(names.values())[:MAX_NAMES]
    lead = "Nearest" if close else "Known"
    return f" {lead}: {', '.join(shown)}."
