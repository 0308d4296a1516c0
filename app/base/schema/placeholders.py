"""A schema for values of which some are still to come: each place of it also takes a placeholder.

Rules that may hold or fail depending on what comes are left out: `not`, `if`, `maxContains` and `unevaluated...`, and
`oneOf` counts as `anyOf`. They are checked once the values have come, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.base.schema.parts import AT_A_HOLE, DATA_KEYWORDS, HOLE, HOLE_NAME

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
    made = _widen(root)
    hole = {"type": "string", "pattern": f"^{HOLE}"}
    return {**made, "$defs": {**made.get("$defs", {}), HOLE_NAME: hole}}


def _widen(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_widen(held) for held in schema]
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for keyword, held in schema.items():
        if keyword in _LEFT_OUT:
            continue
        if keyword in _MAPS and isinstance(held, Mapping):
            made[keyword] = {name: _or_placeholder(place) for name, place in held.items()}
        elif keyword in _PLACES:
            made[keyword] = [*map(_or_placeholder, held)] if isinstance(held, list) else _or_placeholder(held)
        elif keyword not in DATA_KEYWORDS:
            made[keyword] = _widen(held)
        elif not _has_container(keyword, held):
            made[keyword] = held
    if "oneOf" in schema:
        some = {"anyOf": _widen(schema["oneOf"])}
        made |= some if "anyOf" not in made else {"allOf": [*made.get("allOf", []), some]}
    return made


def _or_placeholder(schema: Any) -> Any:
    return {"anyOf": [_widen(schema), AT_A_HOLE]} if isinstance(schema, Mapping) else schema


def _has_container(keyword: str, held: Any) -> bool:
    """Return whether an `enum` or a `const` has an object or an array: there may be placeholders in its like."""
    options = held if keyword == "enum" else [held] if keyword == "const" else []
    return any(isinstance(option, Mapping | list) for option in options)
