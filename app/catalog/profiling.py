"""Statistics and quality findings of a table, from a sample of its rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from app.catalog.results import to_json
from app.catalog.sensitive import look_personal

SAMPLE_ROWS: Final = 10_000
MAX_VALUES: Final = 20
"""A column with more distinct values has no list of them."""

MAX_VALUE_CHARS: Final = 100


@dataclass(slots=True)
class ColumnProfile:
    """The statistics of a column in a sample, without any values of a sensitive column."""

    name: str
    sensitive: bool
    null_share: float
    distinct: int | None = None
    min: Any = None
    max: Any = None
    values: list[tuple[Any, float]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def profile_column(
    name: str, cells: Sequence[Any], *, sensitive: bool, is_key: bool, is_whole_key: bool
) -> ColumnProfile:
    """Return the profile of a column from its values in a sample. `is_key`: it belongs to the primary key."""
    present = [value for value in cells if value is not None]
    null_share = round(1 - len(present) / len(cells), 4) if cells else 0.0
    sensitive = sensitive or look_personal(present[:200])
    profile = ColumnProfile(name, sensitive, null_share)
    if cells and not present:
        profile.findings.append("empty_column")
    if not cells:
        return profile
    try:
        counts: Counter[Any] | None = Counter(v if isinstance(v, Hashable) else repr(v) for v in present)
    except TypeError:  # a value that holds something that cannot be hashed
        counts = None
    if counts is not None:
        profile.distinct = len(counts)
        if len(counts) == 1 and len(present) == len(cells) > 1:
            profile.findings.append("constant_column")
        if is_whole_key and len(counts) < len(present):
            profile.findings.append("repeated_key_part")
    if is_key and len(present) < len(cells):
        profile.findings.append("null_in_key")
    if sensitive:
        return profile
    profile.min, profile.max = _range(present)
    if counts is not None and 1 <= len(counts) <= MAX_VALUES and len(cells) > len(counts):
        listed = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
        values = [(to_json(value), round(count / len(cells), 4)) for value, count in listed]
        if all(isinstance(v, str | int | bool) and len(str(v)) <= MAX_VALUE_CHARS for v, _ in values):
            profile.values = values
    return profile


def _range(present: Sequence[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest of numbers or times. Texts have no range: it would show two of them."""
    ranged = [
        value
        for value in present
        if isinstance(value, int | float | Decimal | date | datetime | time) and not isinstance(value, bool)
    ]
    if not ranged or len(ranged) < len(present):
        return None, None
    try:
        return to_json(min(ranged)), to_json(max(ranged))
    except TypeError:  # values of several types
        return None, None
