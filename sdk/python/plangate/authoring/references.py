"""Kinds of reference, and how a value of one is made ready to be stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
from pydantic import PrivateAttr, TypeAdapter

from plangate.authoring.arguments import describe_type, drop_unset, parse_schema
from plangate.spec.models import ReferenceSpec


@dataclass(frozen=True, slots=True)
class PackedReference:
    """A value as it is stored: from `DefinedReference.pack`.

    Args:
        value: The value as JSON.
        glimpse: What the author's function made of it; None without such a function.

    Example:
        >>> define_reference("Basket", {"items": list[str]}).pack({"items": ["tea"]}).value
        {'items': ['tea']}
    """

    value: Any
    glimpse: Any


class DefinedReference(ReferenceSpec):
    """A kind of reference with what stays in Python: the type of its values and the function for glimpses.

    What `define_reference` gives.

    Args:
        fields: Those of ReferenceSpec.

    Example:
        >>> Basket = define_reference("Basket", {"items": list[str]}, glimpse=lambda basket: {"n": 2})
        >>> Basket.pack({"items": ["tea", "milk"]}).glimpse
        {'n': 2}
    """

    _type: TypeAdapter[Any] | None = PrivateAttr(default=None)
    _model: Any = PrivateAttr(default=None)

    @property
    def model(self) -> Any:
        """The class or type hint that was given as schema; None for a mapping."""
        return self._model

    def pack(self, payload: Any) -> PackedReference:
        """Validate a value and prepare it for storing; `create_reference` does this for you.

        Args:
            payload: A model, a dataclass or plain data.

        Raises:
            ValueError: if the value does not match the schema, or is no JSON, such as NaN.
            TypeError: if the glimpse function returns something that is no mapping.

        Example:
            >>> define_reference("Basket", {"items": list[str]}).pack({"items": ["tea"]}).value
            {'items': ['tea']}
        """
        if self._type is not None:
            validated = self._type.validate_python(payload)
            self._reject_non_finite(self._type.dump_python(validated))
            value = self._type.dump_python(validated, mode="json", by_alias=True)
        else:
            self._reject_non_finite(TypeAdapter(Any).dump_python(payload))
            validated = value = TypeAdapter(Any).dump_python(payload, mode="json", by_alias=True)
            self._check(value)
        if not callable(self.glimpse):
            return PackedReference(value, None)
        summary_value = self.glimpse(validated)
        if not isinstance(summary_value, Mapping):
            raise TypeError(
                f"the glimpse of reference {self.name!r} must be a mapping, not {describe_type(summary_value)}"
            )
        return PackedReference(
            value, TypeAdapter(Any).dump_python(dict(summary_value), mode="json", by_alias=True)
        )

    def _reject_non_finite(self, value: Any) -> None:
        """Reject NaN and infinities, which Pydantic serializes as null in fields without a numeric type."""
        try:
            json.dumps(value, allow_nan=False, skipkeys=True, default=_unwrap)
        except ValueError as error:
            raise ValueError(
                f"the value is not a {self.name}: it cannot be written as JSON: {error}"
            ) from error

    def _check(self, value: Any) -> None:
        rules: Any = self.schema_
        validator = jsonschema_rs.validator_cls_for(rules)(rules, offline=True)
        for error in validator.iter_errors(value):
            where = "".join(f"/{step}" for step in error.instance_path)
            raise ValueError(f"the value is not a {self.name}: {error.message} (at {where or 'its root'})")


def _unwrap(value: Any) -> Any:
    """Return a set as a list, so that its numbers are checked; return None for any other value that JSON does not
    support."""
    return list(value) if isinstance(value, set | frozenset) else None


def define_reference(
    name: str,
    schema: Any,
    ttl_ms: int | None = None,
    glimpse: Mapping[str, str] | Callable[[Any], Mapping[str, Any]] | None = None,
) -> DefinedReference:
    """Declare a kind of reference.

    Args:
        name: The kind.
        schema: Anything that `normalize_schema` takes; values are validated against it.
        ttl_ms: How long a value lives, in milliseconds, at least 0; None: it never expires.
        glimpse: A mapping of field name to JMESPath expression, evaluated by the service, or a function that
            makes the glimpse from the validated value and stays in Python.

    Raises:
        TypeError: for a schema that is none, or a glimpse that is neither.
        pydantic.ValidationError: (a ValueError) for a negative `ttl_ms` or another malformed field.

    Example:
        >>> define_reference("Basket", {"items": list[str]}, glimpse={"size": "length(items)"}).name
        'Basket'
    """
    if glimpse is not None and not isinstance(glimpse, Mapping) and not callable(glimpse):
        raise TypeError(
            f"the glimpse of reference {name!r} is a mapping or a function, not {describe_type(glimpse)}"
        )
    plain = parse_schema(schema, f"the schema of reference {name!r}")
    fields = {"name": name, "schema": plain, "ttl_ms": ttl_ms, "glimpse": glimpse}
    definition = DefinedReference.model_validate(drop_unset(fields))
    if not isinstance(schema, Mapping):
        definition._type, definition._model = TypeAdapter(schema), schema
    return definition
