"""The limits of a query, summed over its agents. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plangate.spec.models import LimitsSpec

DEFAULT_TURNS = 100


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What a query may use: model turns, tokens in and out, US dollars, milliseconds of work (waiting is free)."""

    turns: int = DEFAULT_TURNS
    tokens: int | None = None
    cost_usd: float | None = None
    duration_ms: int | None = None

    @classmethod
    def of(cls, spec: LimitsSpec | None, requested: Mapping[str, Any] | None) -> QueryLimits:
        """Return the limits of the query's request, else those of the runtime, else the defaults."""
        values = {} if spec is None else spec.to_wire()
        values = {**values, **(requested or {})}
        return cls(
            values.get("maxTurns") or DEFAULT_TURNS,
            values.get("maxTokens"),
            values.get("maxCostUsd"),
            values.get("maxDurationMs"),
        )

    def out_of_turns(self, turns: int) -> str | None:
        """Return the name of the limit that forbids another model call, or None."""
        return "maxTurns" if turns >= self.turns else None

    def spent_up(self, tokens: int, cost_usd: float) -> str | None:
        """Return the name of the first limit that leaves nothing to spend on a model call or its
        repetition, or None."""
        if self.tokens is not None and tokens >= self.tokens:
            return "maxTokens"
        if self.cost_usd is not None and cost_usd >= self.cost_usd:
            return "maxCostUsd"
        return None

    def out_of_time(self, worked_ms: float) -> str | None:
        """Return the name of the limit that leaves no time for any other call, or None."""
        return "maxDurationMs" if self.duration_ms is not None and worked_ms >= self.duration_ms else None
