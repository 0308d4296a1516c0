"""Functions that run in the processes for large JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.base.json.process_pool import JsonProcess


def note_functions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of every function that a process runs from now on."""
    names: list[str] = []
    request = JsonProcess._request

    def noting(self: JsonProcess, function: Callable[..., Any], args: tuple[Any, ...], *, keep: bool) -> Any:
        names.append(function.__name__)
        return request(self, function, args, keep=keep)

    monkeypatch.setattr(JsonProcess, "_request", noting)
    return names
