"""The graph of a plan in words, from the bytes that are approved: which action waits for which, what a variable is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from plangate.printable import to_printable_json
from plangate.spec.variables import DAGGER, find_variables

__all__ = ["DAGGER", "Edges", "meaning"]


class Edges:
    """The dependencies and output paths of a plan. A plan without variables has no edges."""

    def __init__(self, subject: Mapping[str, Any]) -> None:
        self._actions = subject["body"]["actions"]
        self._results = {v["variable"]: v.get("resultOf", ()) for v in subject.get("variables", ())}

    def needs(self, n: int) -> list[int]:
        """Return the actions that action `n` waits for."""
        found, _ = find_variables(self._actions[n]["payload"])
        named = (str(path) for variable in found for path in variable.expression.paths())
        return sorted({action for path in named for action in self._results.get(path, ())})

    def text(self, n: int) -> str:
        """Return a line such as `after 1 → †state.totals, merge`, or nothing."""
        action, needs = self._actions[n], self.needs(n)
        path, method = action.get("_outputPath"), action.get("_outputMethod")
        parts = [f"after {_numbers(needs)} "] if needs else []
        if path:
            parts.append(f"→ {path}" + (f", {method}" if method else ""))
        return "".join(parts)


def meaning(variable: Mapping[str, Any]) -> str:
    """Return the meaning of a variable in an approval."""
    now = (
        to_printable_json(json.dumps(variable["glimpse"], ensure_ascii=False))
        if "glimpse" in variable
        else None
    )
    if "resultOf" in variable:
        return f"the result of {_numbers(variable['resultOf'])}" + (f"; it was {now}" if now else "")
    return now or "no value"


def _numbers(actions: Iterable[int]) -> str:
    return ", ".join(map(str, actions))
