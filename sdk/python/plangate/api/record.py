"""JSON objects of the service with typed attributes."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

Converter = Callable[[Any], Any]


class Record(dict[str, Any]):
    """A JSON object of the service: the dict as it came, with its fields as attributes in snake_case.

    `event.query_id` is `event["queryId"]`. An optional field that is left out is None as an attribute. A field
    that would hide a method of `dict`, or is a keyword, has an underscore at its end: `page.items_`,
    `change.from_`. A field that this version does not know is there as well.

    Example:
        >>> record = Record({"queryId": "qry_1", "from": None})
        >>> record.query_id, record["queryId"], record.from_
        ('qry_1', 'qry_1', None)
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker knows the declared attributes, and reports every other

        def __getattr__(self, name):
            try:
                return self[wire_name(name)]
            except KeyError:
                kind = _field_types(type(self)).get(name)
                if kind is Any or type(None) in get_args(kind):
                    return None
                fields = ", ".join(self)
                raise AttributeError(f"{type(self).__name__} has no {name!r}; its fields: {fields}") from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_field_types(type(self))})


@cache
def wire_name(name: str) -> str:
    """Return the field of an attribute, in camelCase.

    Example:
        >>> wire_name("cost_usd"), wire_name("from_")
        ('costUsd', 'from')
    """
    first, *rest = name.removesuffix("_").split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def convert(kind: Any, value: Any) -> Any:
    """Return a JSON value with records in the places where the type `kind` has them. Nothing is validated.

    Args:
        kind: A subclass of Record, or a type made of them: a union, a list, a dict.
        value: The value. An object of a union is discriminated by the field whose type is `Literal` in all its members;
            one of an unknown kind becomes a plain `Record`.
    """
    converter = _converter(kind)
    return value if converter is None else converter(value)


@cache
def _converter(kind: Any) -> Converter | None:
    """Return what converts values of a type, or None if they hold no record."""
    if isinstance(kind, type) and issubclass(kind, Record):
        return partial(_record, kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (list, dict) and (inner := _converter(arguments[-1])):
        return partial(_convert_list if origin is list else _convert_dict, inner)
    if origin in (Union, types.UnionType):
        return _union_converter(arguments)
    return None


def _convert_list(inner: Converter, value: Any) -> Any:
    return [inner(item) for item in value] if isinstance(value, list) else value


def _convert_dict(inner: Converter, value: Any) -> Any:
    return {key: inner(item) for key, item in value.items()} if isinstance(value, dict) else value


def _union_converter(members: tuple[Any, ...]) -> Converter | None:
    records = [member for member in members if isinstance(member, type) and issubclass(member, Record)]
    if len(records) > 1:
        field, by_value = _discriminator(records)
        return lambda value: (
            _record(by_value.get(value.get(field), Record), value) if isinstance(value, dict) else value
        )
    converters = [converter for member in members if (converter := _converter(member))]
    return converters[0] if converters else None


def _discriminator(records: list[type[Record]]) -> tuple[str, Mapping[Any, type[Record]]]:
    """Return the field that tells the members of a union apart, and the member of each of its values."""
    for name in _field_types(records[0]):
        values = {
            value: record
            for record in records
            if get_origin(kind := _field_types(record).get(name)) is Literal
            for value in get_args(kind)
        }
        if set(values.values()) == set(records):
            return wire_name(name), values
    raise TypeError(f"no field tells {', '.join(record.__name__ for record in records)} apart")


def _record(kind: type[Record], value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    record = kind(value)
    for field, converter in _nested_fields(kind):
        if field in record:
            record[field] = converter(record[field])
    return record


@cache
def _nested_fields(kind: type[Record]) -> tuple[tuple[str, Converter], ...]:
    """Return the fields that hold records, with what converts them."""
    types_ = _field_types(kind).items()
    return tuple((wire_name(name), converter) for name, type_ in types_ if (converter := _converter(type_)))


@cache
def _field_types(kind: type[Record]) -> Mapping[str, Any]:
    return get_type_hints(kind)
