"""The figures of the scenarios, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value. `holds` is None where nothing is required of it."""

    scenario: str
    name: str
    required: str
    measured: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        return {True: "pass", False: "FAIL", None: "published"}[self.holds]


@dataclass
class Figures:
    """Collects the figures of one scenario. None as a value fails: nothing was measured."""

    scenario: str
    rows: list[Figure] = field(default_factory=list)

    def at_most(self, name: str, value: float | None, most: float, unit: str) -> None:
        holds = value is not None and value <= most
        self._add(name, f"at most {_number(most)} {unit}", _measured(value, unit), holds)

    def at_least(self, name: str, value: float | None, least: float, unit: str) -> None:
        holds = value is not None and value >= least
        self._add(name, f"at least {_number(least)} {unit}", _measured(value, unit), holds)

    def exactly(self, name: str, value: object, expected: object) -> None:
        self._add(name, str(expected), str(value), value == expected)

    def publish(self, name: str, value: float | None, unit: str) -> None:
        self._add(name, "", _measured(value, unit), None)

    def fail(self, name: str, why: str) -> None:
        self._add(name, "", why, False)

    def _add(self, name: str, required: str, measured: str, holds: bool | None) -> None:
        self.rows.append(Figure(self.scenario, name, required, measured, holds))


def table(rows: Sequence[Figure]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| scenario | figure | required | measured | |", "| --- | --- | ---: | ---: | --- |"]
    for row in rows:
        cells = (row.scenario, row.name, row.required, row.measured, row.verdict)
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines)


def failures(rows: Sequence[Figure]) -> list[Figure]:
    return [row for row in rows if row.holds is False]


def _measured(value: float | None, unit: str) -> str:
    return "not measured" if value is None else f"{_number(value)} {unit}"


def _number(value: float) -> str:
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
