"""A schema for values of which some are still to come: each place of it also takes a placeholder.

Rules that may hold or fail depending on what comes are left out: `not`, `if`, `maxContains` and `unevaluated...`, and
`oneOf` counts as `anyOf`. They are checked once the values have come, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from plangate.spec.schema_walk import DATA_KEYWORDS

from app.base.schema.parts import PLACEHOLDER_MARK, PLACEHOLDER_NAME, PLACEHOLDER_SCHEMA

_PLACES: Final = frozenset(
    {
        "properties",
        "patternProperties",
        "additionalProperties",
        "items",
        "prefixItems",
        "additionalItems",
        "contains",
    }
)
"""Keywords whose schemas are for places of their own in a value."""

_LEFT_OUT: Final = frozenset(
    {"not", "if", "then", "else", "maxContains", "unevaluatedProperties", "unevaluatedItems", "oneOf"}
)
_MAPS: Final = frozenset({"properties", "patternProperties"})


def with_placeholders(root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema, which was accepted before, for values with placeholders: what can match `root` matches."""
    widened = _widen(root)
    placeholder = {"type": "string", "pattern": f"^{PLACEHOLDER_MARK}"}
    return {**widened, "$defs": {**widened.get("$defs", {}), PLACEHOLDER_NAME: placeholder}}


def _widen(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_widen(value) for value in schema]
    if not isinstance(schema, Mapping):
        return schema
    widened: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _LEFT_OUT:
            continue
        if keyword in _MAPS and isinstance(value, Mapping):
            widened[keyword] = {name: _or_placeholder(place) for name, place in value.items()}
        elif keyword in _PLACES:
            widened[keyword] = (
                [*map(_or_placeholder, value)] if isinstance(value, list) else _or_placeholder(value)
            )
        elif keyword not in DATA_KEYWORDS:
            widened[keyword] = _widen(value)
        elif not _has_container(keyword, value):
            widened[keyword] = value
    if "oneOf" in schema:
        some = {"anyOf": _widen(schema["oneOf"])}
        widened |= some if "anyOf" not in widened else {"allOf": [*widened.get("allOf", []), some]}
    return widened


def _or_placeholder(schema: Any) -> Any:
    return {"anyOf": [_widen(schema), PLACEHOLDER_SCHEMA]} if isinstance(schema, Mapping) else schema


def _has_container(keyword: str, value: Any) -> bool:
    """Return whether an `enum` or a `const` has an object or an array: there may be placeholders in its like."""
    options = value if keyword == "enum" else [value] if keyword == "const" else []
    return any(isinstance(option, Mapping | list) for option in options)
