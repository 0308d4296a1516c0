"""Pack a value into a reference, and select a part of it for a model. Pure.

The values were parsed by the strict JSON parser when the service received them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from jmespath.exceptions import JMESPathError

from app.base import jmespath
from app.base.errors import FieldError, Invalid, TooLarge
from app.base.json.low_memory import loads_trusted, parse_low_memory
from app.base.json.offload import loads
from app.base.schema.checker import SchemaChecker
from app.references import glimpses

MAX_REFERENCE_BYTES: Final = 16 * 1024 * 1024
MAX_FIELDS_BYTES: Final = 64 * 1024
"""The size of all fields of a large body except its value."""


@dataclass(frozen=True, slots=True)
class ValueRequest:
    """The requirements of a value: the schema of its kind, and the maximum size of its canonical JSON. `fields` is
    the declared glimpse of the kind."""

    kind: str
    schema: Mapping[str, Any] | bool
    fields: Mapping[str, str] | None
    max_bytes: int


def parse_document(body: bytearray) -> tuple[Any, tuple[dict[str, Any] | None, bool]]:
    """Return the value in a large request body, and what is known of the body beside it: its other fields (None if it is
    no object), and whether it has a value. Empty `body`. Raise Malformed or TooLarge."""
    document = parse_low_memory(body)
    if not isinstance(document, dict):
        return None, (None, False)
    has_value = "value" in document
    value = document.pop("value", None)
    if len(orjson.dumps(document)) > MAX_FIELDS_BYTES:
        raise TooLarge(f"Beside its value the body may have {MAX_FIELDS_BYTES} bytes.")
    return value, (document, has_value)


def pack_value(
    value: Any, schemas: SchemaChecker, request: ValueRequest, glimpse: Any
) -> tuple[bytes, bytes]:
    """Return a value and its glimpse as they are stored: canonical JSON, and a glimpse of at most 4 KiB.
    `glimpse` is the caller's, or None. Raise Invalid or TooLarge."""
    errors = schemas.errors(request.schema, value)
    if errors:
        raise Invalid(
            f"The value does not match the schema of {request.kind}.",
            [FieldError("/value" + error.pointer, error.message) for error in errors],
        )
    data = canonical_json(value, request.max_bytes)
    if glimpse is not None:
        return data, glimpses.check_glimpse(glimpse)
    if request.fields is None:
        return data, glimpses.fit_glimpse(glimpses.neutral_glimpse(value))
    return data, glimpses.fit_glimpse(glimpses.declared_glimpse(request.fields, value))


def canonical_json(value: Any, max_bytes: int) -> bytes:
    """Return the bytes that are stored and that name the value: compact JSON with sorted keys. Raise
    TooLarge."""
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    if len(data) > max_bytes:
        raise TooLarge(f"A reference holds at most {max_bytes} bytes of JSON; this value has {len(data)}.")
    return data


@dataclass(frozen=True, slots=True)
class ValuePart:
    """The part of a value that a model gets, or a `note` on how to ask for less. `shown_bytes` counts the bytes of
    the value itself."""

    content: Any = None
    shown_bytes: int = 0
    note: str | None = None


Prune = Callable[[Any], Any]
"""Returns a value without what a model must not see of it. A function of a module, so that it can be sent to a process."""


def select_part(data: bytes, path: str, prune: Prune | None = None) -> tuple[Any, bytes]:
    """Return the part of a stored value that a JMESPath expression selects, and its JSON. Raise Invalid."""
    value = loads_trusted(data)
    try:
        part = jmespath.search(path, value if prune is None else prune(value))
    except JMESPathError as error:
        raise Invalid(
            f"The path is not a JMESPath expression that works here: {error}",
            [FieldError("query:path", "cannot be evaluated over this value")],
        ) from error
    return part, orjson.dumps(part)


def part_json(data: bytes, path: str, limit: int) -> bytes:
    """Return the JSON of a part of a stored value. Raise Invalid, or TooLarge above `limit` bytes."""
    _, json = select_part(data, path)
    if len(json) > limit:
        raise TooLarge(
            f"That part has {len(json)} bytes, more than {limit}. Ask for less, for example with [0:10] at its end."
        )
    return json


def whole_value(data: bytes, prune: Prune | None = None) -> ValuePart:
    """Return a stored value, without what `prune` leaves out."""
    if prune is None:
        return ValuePart(loads(data), len(data))
    content = prune(loads(data))
    return ValuePart(content, len(orjson.dumps(content)))


def value_part(data: bytes, path: str, limit: int, prune: Prune | None = None) -> ValuePart:
    """Return the part of a stored value that a JMESPath expression selects, or a note with its type and size if it
    exceeds the limit. The note contains nothing of the value. The expression sees nothing that `prune` leaves out. Raise
    Invalid."""
    part, json = select_part(data, path, prune)
    size = len(json)
    if size <= limit:
        return ValuePart(part, size)
    note = f"That part is {_describe_shape(part)} and has {size} bytes, more than {limit}: ask for less."
    return ValuePart(note=note)


def _describe_shape(value: Any) -> str:
    """Return the type of a large value and how long it is."""
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    return f"an array of {len(value)} items" if isinstance(value, list) else f"an object of {len(value)} keys"
