"""A database that answers the functions of the schema with rows that a test writes down."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.base.metrics import Metrics

FUNCTION = re.compile(r"\b(?:FROM|SELECT) (\w+)\(")


class ScriptedDatabase:
    """Answers each call of a function with its rows; with none if the test gives none. `calls` has what was called."""

    def __init__(self, rows: Mapping[str, Sequence[Mapping[str, Any]]] | None = None) -> None:
        self.metrics = Metrics()
        self.closed_tenants: frozenset[str] = frozenset()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._rows = rows or {}

    async def call(self, statement: str, *args: Any) -> list[Any]:
        match = FUNCTION.search(statement)
        assert match is not None, statement
        self.calls.append((match[1], args))
        return list(self._rows.get(match[1], ()))
