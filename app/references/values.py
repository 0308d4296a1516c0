"""What becomes of a value on its way into a reference, and of a part of it on its way out. Pure.

The values come through the JSON gate, so nothing in them is other than JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from jmespath.exceptions import JMESPathError

from app.base import jmespath
from app.base.errors import FieldError, Invalid, TooLarge
from app.base.json.low_memory import loads_trusted, parse_low_memory
from app.base.schema.checker import SchemaChecker
from app.references import glimpses

MAX_REFERENCE_BYTES: Final = 16 * 1024 * 1024
MAX_FIELDS_BYTES: Final = 64 * 1024
"""Of everything in a large document beside its value."""


@dataclass(frozen=True, slots=True)
class ValueRequest:
    """What is asked of a value: the schema of its kind, and how many bytes its canonical JSON may have. `fields` is
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


def pack_value(value: Any, schemas: SchemaChecker, asked: ValueRequest, glimpse: Any) -> tuple[bytes, bytes]:
    """Return a value and its glimpse as they are stored: canonical JSON, and a glimpse of at most 4 KiB.
    `glimpse` is the caller's, or None. Raise Invalid or TooLarge."""
    flaws = schemas.compile(asked.schema).errors(value)
    if flaws:
        raise Invalid(
            f"The value does not match the schema of {asked.kind}.",
            [FieldError("/value" + f.pointer, f.message) for f in flaws],
        )
    data = canonical_json(value, asked.max_bytes)
    if glimpse is not None:
        return data, glimpses.check_glimpse(glimpse)
    made = (
        glimpses.neutral_glimpse(value)
        if asked.fields is None
        else glimpses.declared_glimpse(asked.fields, value)
    )
    return data, glimpses.fit_glimpse(made)


def canonical_json(value: Any, max_bytes: int) -> bytes:
    """Return the bytes that are stored and that name the value: compact JSON with sorted keys. Raise
    TooLarge."""
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    if len(data) > max_bytes:
        raise TooLarge(f"A reference holds at most {max_bytes} bytes of JSON; this value has {len(data)}.")
    return data


@dataclass(frozen=True, slots=True)
class ValuePart:
    """What a model is shown of a value; `shown_bytes` are of the value itself."""

    content: Any
    shown_bytes: int


def value_part(data: bytes, path: str, limit: int) -> ValuePart:
    """Return the part of a stored value that a JMESPath expression selects, or its glimpse if it exceeds the
    limit. Raise Invalid."""
    try:
        part = jmespath.search(path, loads_trusted(data))
    except JMESPathError as error:
        raise Invalid(f"The path is not a JMESPath expression that works here: {error}") from error
    size = len(orjson.dumps(part))
    if size <= limit:
        return ValuePart(part, size)
    note = f"That part has {size} bytes, more than {limit}: ask for less."
    return ValuePart(
        {"note": note, "glimpse": orjson.loads(glimpses.fit_glimpse(glimpses.neutral_glimpse(part)))}, 0
    )
