"""The neutral glimpse: a small JSON summary of a value whose author did not write one."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence, Set
from datetime import date, time
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any

from pydantic import BaseModel


def glimpse(value: Any, *, max_items: int = 3) -> dict[str, Any]:
    """Summarize a value as a JSON object.

    A mapping (or a Pydantic model or dataclass, which are read as one) comes back normalised; a sequence or
    set as `{"count", "sample"}` with its first items; anything else as `{"value"}`. Normalised means:
    Decimals as strings in fixed notation, dates and times in ISO 8601, models by alias, sets in a stable
    order, keys as strings, what JSON does not know as its `str()`.

    Args:
        value: What is summarised.
        max_items: How many items of a sequence the sample shows, at least 0.

    Raises:
        ValueError: if `max_items` is negative, or if the value contains itself.

    Example:
        >>> from decimal import Decimal
        >>> glimpse([Decimal("1E+2"), 2, 3], max_items=2)
        {'count': 3, 'sample': ['100', 2]}
    """
    if max_items < 0:
        raise ValueError(f"max_items is {max_items}; a sample cannot have fewer than 0 items")
    try:
        value = _to_mapping(value)
        if isinstance(value, Mapping):
            return {_key(key): _normalize(item) for key, item in value.items()}
        if isinstance(value, Set):
            value = _sort_items(value)
        if _is_sequence(value):
            return {"count": len(value), "sample": [_normalize(item) for item in islice(value, max_items)]}
        return {"value": _normalize(value)}
    except RecursionError:
        raise ValueError("the value contains itself or is nested too deeply for a glimpse") from None


def _to_mapping(value: Any) -> Any:
    """Return a model or dataclass as a mapping of its fields, or the value of a root model."""
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def _normalize(value: Any) -> Any:
    value = _to_mapping(value)
    if isinstance(value, Enum):
        return _normalize(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {_key(key): _normalize(item) for key, item in value.items()}
    if isinstance(value, Set):
        value = _sort_items(value)
    if _is_sequence(value):
        return [_normalize(item) for item in value]
    return str(value)


def _key(key: Any) -> str:
    plain = _normalize(key)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def _sort_items(values: Set[Any]) -> list[Any]:
    return sorted((_normalize(item) for item in values), key=json.dumps)
