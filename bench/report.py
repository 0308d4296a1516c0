"""Build a Markdown table from the numbers of all rounds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

BEGIN, END = "<!-- bench{}: begin -->", "<!-- bench{}: end -->"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: one value per round for each program; pairs of one round give the ratio."""

    name: str
    unit: str
    service: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values: Sequence[float]) -> str:
    """Return `median (min-max)`."""
    if not values:
        return ""
    middle = _number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({_number(min(values))}–{_number(max(values))})"


def table(rows: Sequence[Row], about: str) -> str:
    """Return the table with a caption above it."""
    lines = [about, "", "| | service | floor | service / floor |", "| --- | ---: | ---: | ---: |"]
    for row in rows:
        ratios = [s / f for s, f in zip(row.service, row.floor, strict=False) if f]
        lines.append(
            f"| {row.name}, {row.unit} | {spread(row.service)} | {spread(row.floor)} | {spread(ratios)} |"
        )
    return "\n".join(lines)


def write(page: Path, text: str, suite: str = "") -> None:
    """Write the table between the suite's markers on the page; keep the text around it."""
    first, last = (marker.format(suite and f" {suite}") for marker in (BEGIN, END))
    before, begin, rest = page.read_text("utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise SystemExit(f"{page} has no markers {first} and {last}")
    page.write_text(f"{before}{first}\n{text}\n{last}{after}", "utf-8")
