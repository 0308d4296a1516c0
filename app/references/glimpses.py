"""Glimpses that the service computes: of any value, or as its kind declares, truncated if they are too large. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from jmespath.exceptions import JMESPathError

from app.base import jmespath
from app.base.errors import Invalid
from app.base.json import strict_json

MAX_GLIMPSE_BYTES: Final = 4 * 1024
SAMPLE_ITEMS: Final = 3
CUT: Final = "…"
"""Marks every place that was truncated, and is a field of every truncated glimpse."""


@dataclass(frozen=True, slots=True)
class _GlimpseBounds:
    """Bounds of a truncated glimpse: fields of an object, items of an array, characters of a text, levels."""

    fields: int
    items: int
    chars: int
    levels: int


_CUTS: Final = (
    _GlimpseBounds(32, 5, 300, 4),
    _GlimpseBounds(16, 3, 100, 3),
    _GlimpseBounds(8, 2, 40, 2),
    _GlimpseBounds(4, 1, 20, 1),
)


def neutral_glimpse(value: Any) -> dict[str, Any]:
    """Return the generic glimpse of a JSON value (`plangate.glimpse`)."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        return {"count": len(value), "sample": value[:SAMPLE_ITEMS]}
    return {"value": value}


def declared_glimpse(fields: Mapping[str, str], value: Any) -> dict[str, Any]:
    """Return the glimpse whose fields are JMESPath expressions over the value. Raise Invalid."""
    try:
        return jmespath.search_all(fields, value)
    except JMESPathError as error:
        raise Invalid(
            f"The declared glimpse of this kind cannot be computed from this value: {error}"
        ) from error


def check_glimpse(glimpse: Any) -> bytes:
    """Return a caller's glimpse unchanged. Raise Invalid if it is too large."""
    data = strict_json.dumps(glimpse)
    if len(data) > MAX_GLIMPSE_BYTES:
        raise Invalid(f"A glimpse has at most {MAX_GLIMPSE_BYTES} bytes of JSON; this one has {len(data)}.")
    return data


def fit_glimpse(glimpse: Mapping[str, Any]) -> bytes:
    """Return a glimpse that the service computed, truncated if it is too large, with a mark at every truncated place."""
    if _may_fit(glimpse):
        data = strict_json.dumps(glimpse)
        if len(data) <= MAX_GLIMPSE_BYTES:
            return data
    return next(data for how in _CUTS if len(data := _whole(glimpse, how)) <= MAX_GLIMPSE_BYTES)


def _whole(glimpse: Mapping[str, Any], how: _GlimpseBounds) -> bytes:
    fields, left = _fields(glimpse, how, how.levels)
    more = f", {left} more fields" if left else ""
    return strict_json.dumps({**fields, CUT: f"cut to {MAX_GLIMPSE_BYTES} bytes{more}"})


def _may_fit(value: Any) -> bool:
    """Return False if the value has more parts or characters than a glimpse has bytes, without reading all
    of it."""
    left, stack = MAX_GLIMPSE_BYTES, [value]
    while stack and left >= 0:
        item = stack.pop()
        if isinstance(item, dict):
            left -= sum(map(len, item)) if len(item) <= left else len(item)
        left -= len(item) if isinstance(item, str | list) else 1
        if left >= 0 and isinstance(item, list | dict):
            stack += item if isinstance(item, list) else item.values()
    return left >= 0


def _part(value: Any, how: _GlimpseBounds, levels: int) -> Any:
    if isinstance(value, str):
        return _text(value, how)
    if isinstance(value, list):
        if levels == 0:
            return f"{CUT} {len(value)} items"
        fields = [_part(item, how, levels - 1) for item in value[: how.items]]
        return fields if len(value) <= how.items else [*fields, f"{CUT} {len(value) - how.items} more"]
    if isinstance(value, dict):
        return f"{CUT} {len(value)} fields" if levels == 0 else _object(value, how, levels)
    return value


def _object(value: Mapping[str, Any], how: _GlimpseBounds, levels: int) -> dict[str, Any]:
    fields, left = _fields(value, how, levels)
    return {**fields, CUT: f"{left} more"} if left else fields


def _fields(value: Mapping[str, Any], how: _GlimpseBounds, levels: int) -> tuple[dict[str, Any], int]:
    """Return the fields within bounds, and how many are dropped: names with a common beginning may become
    equal when truncated."""
    pairs = zip(range(how.fields), value.items(), strict=False)
    fields = {_text(name, how): _part(item, how, levels - 1) for _, (name, item) in pairs}
    return fields, len(value) - len(fields)


def _text(text: str, how: _GlimpseBounds) -> str:
    return text if len(text) <= how.chars else f"{text[: how.chars]}{CUT} ({len(text)} characters)"
