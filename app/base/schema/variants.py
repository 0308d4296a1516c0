"""Errors of a value that may be one of several variants: if a discriminator selects one, only its errors, at their
places; otherwise the errors of each variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import jsonschema_rs
from plangate.json_pointer import json_pointer

from app.base.errors import FieldError, truncate
from app.base.schema.messages import MESSAGE_CHARS, described, message_of, of_rule, quote
from app.base.schema.parts import PLACEHOLDER_MARK, References, rule_of

_UNIONS: Final = ("oneOf", "anyOf")
_MAX_HOPS: Final = 32  # references that lead to a variant


def errors_of(references: References, error: jsonschema_rs.ValidationError) -> Iterator[FieldError]:
    """Return the individual errors behind an error of the validator."""
    if rule := of_rule(error):
        for failure in rule:
            yield from errors_of(references, failure)
        return
    union = _union(references, error)
    if union is None:
        yield FieldError(json_pointer(error.instance_path), message_of(error))
        return
    field, kinds = union
    value: Any = error.instance
    if not isinstance(value, Mapping):
        yield _field_error(
            error, (), f"{described(value)} is not an object with {quote(field)} {_listed(kinds)}"
        )
    elif field not in value:
        yield _field_error(error, (), f"the property {quote(field)} is missing: {_listed(kinds)}")
    elif isinstance(value[field], str) and value[field] in kinds:
        failures: Sequence[Any] = error.kind.context[kinds[value[field]]]  # type: ignore[attr-defined]
        for failure in failures:
            yield from errors_of(references, failure)
    elif isinstance(value[field], str) and value[field].startswith(PLACEHOLDER_MARK):
        yield _field_error(error, (), message_of(error))
    else:
        yield _field_error(error, (field,), f"{described(value[field])} is not {_listed(kinds)}")


def _union(references: References, error: jsonschema_rs.ValidationError) -> tuple[str, dict[str, int]] | None:
    """Return the field that tells the variants apart, and the variant for each of its values; None if the
    schema names none, or the value matches more than one."""
    keyword = error.schema_path[-1] if error.schema_path else None
    if keyword not in _UNIONS:
        return None
    variants: Sequence[Any] = getattr(error.kind, "context", None) or ()
    schema = references.at(error.schema_path[:-1])
    kinds = kinds_apart(references, schema, keyword) if isinstance(schema, Mapping) else None
    return kinds if kinds is not None and len(schema[keyword]) == len(variants) else None


def kinds_apart(
    references: References, schema: Mapping[str, Any], keyword: str
) -> tuple[str, dict[str, int]] | None:
    """Return the field that tells the variants of a union apart, and the variants for each of its values;
    None if the schema names none."""
    declared, branches = schema.get("discriminator"), schema.get(keyword)
    field = declared.get("propertyName") if isinstance(declared, Mapping) else None
    if not isinstance(field, str) or not isinstance(branches, list):
        return None
    kinds: dict[str, int] = {}
    for number, variant in enumerate(branches):
        own = _kinds(references, variant, field)
        if not own or not kinds.keys().isdisjoint(own):
            return None
        kinds.update(dict.fromkeys(own, number))
    return field, kinds


def _kinds(references: References, variant: Any, field: str) -> list[str]:
    """Return the values of the field that mean this variant; none if the variant names none."""
    for _ in range(_MAX_HOPS):
        if not isinstance(variant, Mapping):
            return []
        properties = variant.get("properties")
        inner = properties.get(field) if isinstance(properties, Mapping) else None
        if isinstance(inner, Mapping):
            return _constants(references, inner)
        variant = next(iter(references.of(variant)), None)
    return []


def _constants(references: References, schema: Mapping[str, Any]) -> list[str]:
    schema = rule_of(schema)
    for inner in (schema, *references.of(schema)):
        if isinstance(inner, Mapping):
            values = [inner["const"]] if "const" in inner else inner.get("enum")
            if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
                return list(dict.fromkeys(values))
    return []


def _field_error(error: jsonschema_rs.ValidationError, below: Sequence[str], message: str) -> FieldError:
    return FieldError(json_pointer([*error.instance_path, *below]), truncate(message, MESSAGE_CHARS))


def _listed(kinds: Mapping[str, int]) -> str:
    return f"one of {', '.join(map(quote, kinds))}"
