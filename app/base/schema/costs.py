"""A check with a budget whether the errors of a value are affordable, before the validator builds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.base.schema.parts import References, subschemas

_ERROR_BUDGET: Final = 4_000_000  # bytes of errors we are ready to have built; 30 ns each when all are
_ERROR_BYTES: Final = 600  # what an error costs beside the copies in it: 16 µs
_VISIT_BYTES: Final = 20  # what this walk itself costs where no error is possible
# Keywords by which value their schemas meet.
_SAME: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_ELEMENTS: Final = ("items", "prefixItems", "contains", "additionalItems", "unevaluatedItems")
_MEMBERS: Final = ("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames")


class _Spent(Exception):
    """The budget is used up."""


def affordable(references: References, value: Any) -> bool:
    """Return whether building every error that `value` can have stays within the budget."""
    try:
        _Estimate(references).visit(references.root, value)
    except (_Spent, RecursionError):
        return False
    return True


class _Estimate:
    """Walks a schema over a value as a validator without memory would, as if everything failed."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._left = _ERROR_BUDGET
        self._sizes: dict[int, int] = {}
        self._prices: dict[int, int] = {}

    def visit(self, schema: Any, value: Any) -> None:
        """Spend what the errors of `schema` at `value`, and below, cost. Raises _Spent."""
        if isinstance(schema, Mapping) and len(schema) == 1 and "$ref" in schema:
            self._left -= _VISIT_BYTES
        elif isinstance(schema, Mapping):
            self._left -= self._price(schema) + self._size(value)
        else:
            self._left -= _VISIT_BYTES if schema is True else _ERROR_BYTES + self._size(value)
        if self._left < 0:
            raise _Spent
        if not isinstance(schema, Mapping):
            return
        for target in self._references.of(schema):
            self.visit(target, value)
        for keyword in _SAME:
            for inner in subschemas(schema, keyword):
                self.visit(inner, value)
        if isinstance(value, Mapping):
            self._visit_members(schema, value)
        elif isinstance(value, list):
            for keyword in _ELEMENTS:
                for inner in subschemas(schema, keyword):
                    for element in value:
                        self.visit(inner, element)

    def _visit_members(self, schema: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        properties = schema.get("properties")
        for name, member in value.items():
            if isinstance(properties, Mapping) and name in properties:
                self.visit(properties[name], member)
            for keyword in _MEMBERS:
                for inner in subschemas(schema, keyword):
                    self.visit(inner, member)

    def _price(self, schema: Mapping[str, Any]) -> int:
        """Return the bytes of the errors that this schema itself can cause, without the value."""
        known = self._prices.get(id(schema))
        if known is None:
            required = schema.get("required")
            names = len(required) if isinstance(required, list) else 0
            copied = [schema[keyword] for keyword in ("enum", "const", "not", "pattern") if keyword in schema]
            known = self._prices[id(schema)] = _ERROR_BYTES * (1 + names) + sum(map(self._size, copied))
        return known

    def _size(self, value: Any) -> int:
        """About the length of the text of a value. Sizes of containers are kept, as visits come again."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, Mapping | list):
            return 8
        known = self._sizes.get(id(value))
        if known is None:
            inner = value.values() if isinstance(value, Mapping) else value
            names = sum(map(len, value)) if isinstance(value, Mapping) else 0
            known = self._sizes[id(value)] = 8 + 8 * len(value) + names + sum(map(self._size, inner))
        return known
