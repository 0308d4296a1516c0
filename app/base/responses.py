"""Responses: the model that the API document shows also gives the bytes."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

import orjson
from plangate.field_docs import describe_fields
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.base.clock import rfc3339

_MISSING: Final = object()


class View(BaseModel):
    """The shape of a response: in the API document, and for `to_wire`."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,
        validate_by_name=True,
        validate_by_alias=True,
        json_schema_extra=describe_fields,
    )


class CursorPage(View):
    """A page of a list, newest first."""

    next_cursor: Annotated[str | None, Field(description="Send it as `cursor`; null on the last page.")]


class WholeList(View):
    """A list that is short enough to come at once, oldest first."""


class _Field(NamedTuple):
    """A field of a model: its column or attribute, its name on the wire, and the model of what it holds."""

    name: str
    alias: str
    model: type[BaseModel] | None
    is_list: bool
    is_text: bool
    is_required: bool


def to_wire(model: type[BaseModel], source: Any, **derived: Any) -> dict[str, Any]:
    """Return the response that `model` describes.

    Each field comes from `derived`, else from the column of its name if `source` is a row, or from the attribute
    if it is a record. A field that none of them has is left out if it has a default. A model within the model
    comes from the value of its field, or, if there is no such column, from the columns of the same row.
    A datetime becomes RFC 3339, bytes become hex in a field of text, and are stored JSON elsewhere, which is
    not parsed.

    Raise LookupError if a required field has no value.
    """
    read = source.get if hasattr(source, "keys") else partial(getattr, source)
    out: dict[str, Any] = {}
    for field in _fields(model):
        value = derived[field.name] if field.name in derived else read(field.name, _MISSING)
        if field.model is not None and value is _MISSING and field.is_required:
            value = to_wire(field.model, source)
        elif field.model is not None:
            value = _nested(field.model, value, field.is_list)
        if value is not _MISSING:
            out[field.alias] = _plain(value, field.is_text)
        elif field.is_required:
            raise LookupError(f"{model.__name__}.{field.name} has no value")
    return out


@cache
def _fields(model: type[BaseModel]) -> list[_Field]:
    fields = []
    for name, info in model.model_fields.items():
        kinds = [info.annotation, *get_args(info.annotation)]
        nested = next(
            (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None
        )
        is_list = get_origin(info.annotation) in (list, tuple)
        is_text = info.annotation is str or {str, NoneType}.issuperset(kinds[1:] or kinds)
        fields.append(_Field(name, info.alias or name, nested, is_list, is_text, info.is_required()))
    return fields


def _nested(model: type[BaseModel], value: Any, is_list: bool) -> Any:
    if value is _MISSING or value is None or isinstance(value, dict | bytes):
        return value
    return [_nested(model, item, False) for item in value] if is_list else to_wire(model, value)


def _plain(value: Any, is_text: bool) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex() if is_text else orjson.Fragment(value)
    return value
