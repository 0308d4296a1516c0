"""The result of a statement as JSON: complete if it is small, else a value for a reference and its glimpse. Pure.

Rows are added in batches and become bytes at once, so that a result needs little more memory than its JSON.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import orjson

MAX_INLINE_ROWS: Final = 50
MAX_INLINE_BYTES: Final = 8 * 1024
SAMPLE_ROWS: Final = 3
MAX_GLIMPSE_BYTES: Final = 4 * 1024
MAX_CELL_CHARS: Final = 120  # of a text in a glimpse
MAX_LISTED_COLUMNS: Final = 40
OMITTED: Final = "[omitted]"
MAX_INT: Final = 2**63 - 1
"""Larger integers become text: JSON of the service has 64 bits."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result. The values of a sensitive one are left out of what a model is shown."""

    name: str
    type: str
    sensitive: bool = False

    def wire(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"name": self.name, "type": self.type}
        return {**fields, "sensitive": True} if self.sensitive else fields


@dataclass(slots=True)
class ResultRows:
    """Collects the rows of a result within limits. `max_bytes` bounds the JSON of the whole value."""

    columns: Sequence[Column]
    max_rows: int
    max_bytes: int
    rows: list[bytes] = field(default_factory=list)
    sample: list[list[Any]] = field(default_factory=list)
    ranges: list[list[Any] | None] = field(default_factory=list)
    truncated: bool = False
    total: int | None = None
    _left: int = 0

    def __post_init__(self) -> None:
        self.ranges = [None] * len(self.columns)
        self._left = self.max_bytes - len(orjson.dumps([c.wire() for c in self.columns])) - 200

    def add(self, rows: Iterable[Sequence[Any]]) -> bool:
        """Add rows; return whether there is room for more."""
        for row in rows:
            cells = [to_json(value) for value in row]
            data = orjson.dumps(cells, option=orjson.OPT_SORT_KEYS)
            if len(self.rows) == self.max_rows or len(data) + 1 > self._left:
                self.truncated = True
                return False
            self._left -= len(data) + 1
            self.rows.append(data)
            if len(self.sample) < SAMPLE_ROWS:
                self.sample.append(cells)
            self._extend_ranges(row, cells)
        return True

    def _extend_ranges(self, row: Sequence[Any], cells: Sequence[Any]) -> None:
        for index, (value, cell) in enumerate(zip(row, cells, strict=True)):
            if isinstance(value, bool) or not isinstance(value, int | float | Decimal | date | time):
                continue
            if isinstance(value, float | Decimal) and not math.isfinite(value):
                continue
            known = self.ranges[index]
            if known is None:
                self.ranges[index] = [value, value, cell, cell]
                continue
            try:
                if value < known[0]:
                    known[0], known[2] = value, cell
                if value > known[1]:
                    known[1], known[3] = value, cell
            except TypeError:  # a column of SQLite may hold any types
                self.ranges[index] = None

    @property
    def is_small(self) -> bool:
        """Return whether a model may be given the complete result."""
        return (
            not self.truncated
            and len(self.rows) <= MAX_INLINE_ROWS
            and sum(map(len, self.rows)) <= MAX_INLINE_BYTES
            and not any(column.sensitive for column in self.columns)
        )

    def value(self) -> bytes:
        """Return the value of the result: JSON with sorted keys, as references store it."""
        columns = orjson.dumps([c.wire() for c in self.columns], option=orjson.OPT_SORT_KEYS)
        total = b"" if self.total is None else b',"totalRows":%d' % self.total
        truncated = b"true" if self.truncated else b"false"
        return b'{"columns":%s,"rowCount":%d,"rows":[%s]%s,"truncated":%s}' % (
            columns,
            len(self.rows),
            b",".join(self.rows),
            total,
            truncated,
        )

    def glimpse(self) -> dict[str, Any]:
        """Return columns and types, the count, the first rows, and the ranges of numbers and times, in at
        most 4 KiB. Values of sensitive columns are omitted."""
        for chars, listed, sample in (
            (MAX_CELL_CHARS, MAX_LISTED_COLUMNS, SAMPLE_ROWS),
            (40, 20, 2),
            (20, 8, 1),
        ):
            glimpse = self._glimpse(chars, listed, sample)
            if len(orjson.dumps(glimpse)) <= MAX_GLIMPSE_BYTES:
                return glimpse
        return {"rowCount": len(self.rows), "truncated": self.truncated, "columnCount": len(self.columns)}

    def _glimpse(self, chars: int, listed: int, sample: int) -> dict[str, Any]:
        columns = self.columns[:listed]
        glimpse: dict[str, Any] = {
            "columns": [{**c.wire(), "name": shorten(c.name, chars)} for c in columns],
            "rowCount": len(self.rows),
            "truncated": self.truncated,
            "sample": [
                [
                    OMITTED if c.sensitive else shorten(cell, chars)
                    for c, cell in zip(columns, row, strict=False)
                ]
                for row in self.sample[:sample]
            ],
            "ranges": {
                shorten(column.name, chars): {"min": known[2], "max": known[3]}
                for column, known in zip(columns, self.ranges, strict=False)
                if known is not None and not column.sensitive
            },
        }
        if self.total is not None:
            glimpse["totalRows"] = self.total
        if len(self.columns) > listed:
            glimpse["columnCount"] = len(self.columns)
        return glimpse


def omit_sensitive_columns(value: Any) -> Any:
    """Return a stored result as a model may read it: without the values of its sensitive columns."""
    columns = value["columns"]
    hidden = {index for index, column in enumerate(columns) if column.get("sensitive")}
    if not hidden:
        return value
    rows = [[OMITTED if index in hidden else cell for index, cell in enumerate(row)] for row in value["rows"]]
    return {**value, "rows": rows}


def shorten(cell: Any, chars: int) -> Any:
    """Return a short form of a JSON value: texts are cut, and so are arrays and objects, as text."""
    if isinstance(cell, list | dict):
        cell = orjson.dumps(cell).decode()
    if isinstance(cell, str) and len(cell) > chars:
        return f"{cell[: chars - 1]}…"
    return cell


def to_json(value: Any) -> Any:
    """Return the JSON form of a value of any database.

    Decimals are numbers where a double holds their digits, else text; so are integers of more than 64 bits,
    and infinite numbers. Times are RFC 3339 without a zone unless they have one. Bytes are base64.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return value if -MAX_INT - 1 <= value <= MAX_INT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {_text(str(key)): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    return _text(str(value))


def _text(value: str) -> str:
    """Postgres and JSON readers have no NUL and no lone surrogates."""
    if "\0" in value:
        value = value.replace("\0", "�")
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _decimal(value: Decimal) -> Any:
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value() and abs(value) <= MAX_INT and value.as_tuple().exponent == 0:
        return int(value)
    number = float(value)
    return number if math.isfinite(number) and Decimal(repr(number)) == value else format(value, "f")
