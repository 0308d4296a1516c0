"""Glimpses of values in documents: short whatever the size of the value, which is not read completely. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

CHARS: Final = 80  # of a string
KEY_CHARS: Final = 60
ITEMS: Final = 3  # of an array
KEYS: Final = 6  # of an object
MORE: Final = "…"


def glimpse_value(value: Any, *, depth: int = 2) -> Any:
    """Return a JSON value of a few hundred bytes: short values unchanged, strings truncated, arrays as
    their length and a sample, objects as their first keys, and containers below `depth` as their sizes."""
    if isinstance(value, str):
        return truncate_text(value, CHARS)
    if isinstance(value, list):
        if depth == 0:
            return {"count": len(value)}
        sample = [glimpse_value(item, depth=depth - 1) for item in value[:ITEMS]]
        return sample if len(value) <= ITEMS else {"count": len(value), "sample": sample}
    if isinstance(value, Mapping):
        if depth == 0:
            return {"keys": len(value)}
        preview = {
            truncate_text(key, KEY_CHARS): glimpse_value(item, depth=depth - 1)
            for key, item in islice(value.items(), KEYS)
        }
        return preview if len(value) <= KEYS else {**preview, MORE: f"{len(value) - KEYS} more"}
    return value


def truncate_text(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 1] + MORE
