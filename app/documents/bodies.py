"""Documents in their stored form: bytes in, bytes out. Pure.

All values were parsed by the strict JSON parser when the service received them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from plangate.spec.variables import MISSING, Expression, parse

from app.base.json.low_memory import loads_trusted
from app.base.schema.checker import SchemaChecker
from app.documents.glimpses import glimpse_value
from app.documents.models import NOTHING, SHARED, STATE
from app.documents.writing import DocumentWrite, Method, Path, WriteRejected, apply_write, json_type


@dataclass(frozen=True, slots=True)
class Change:
    """A write in its stored form."""

    path: str
    method: Method
    value: bytes

    def write(self) -> DocumentWrite:
        return DocumentWrite(_path(self.path), self.method, loads_trusted(self.value))


def apply_change(
    body: bytes,
    kind: str,
    change: Change,
    schema: Mapping[str, Any] | None,
    schemas: SchemaChecker,
    max_bytes: int,
) -> bytes:
    """Return the document after a write, at most `max_bytes` of JSON. Raise WriteRejected."""
    document = apply_write(load_value(body), change.write())
    if kind in SHARED and not isinstance(document, dict):
        name = "the state of a thread" if kind == STATE else "the memory of a runtime"
        raise WriteRejected(f"{name} is an object, and would be {json_type(document)}")
    changed = orjson.dumps(document)
    if len(changed) > max_bytes:
        raise WriteRejected(
            f"the document would have {len(changed)} bytes of JSON, more than {max_bytes}: write less, or keep a "
            "large value as a reference and write its handle"
        )
    errors = schemas.errors(schema, document) if schema is not None else []
    if errors:
        listed = "; ".join(f"{error.pointer or '/'}: {error.message}" for error in errors)
        raise WriteRejected(f"the state would not match the runtime's stateSchema: {listed}")
    return changed


def apply_changes(body: bytes, changes: Iterable[Change]) -> bytes:
    """Return the document after the writes of a log."""
    document = load_value(body)
    for change in changes:
        document = apply_write(document, change.write())
    return NOTHING if document is MISSING else orjson.dumps(document)


def load_value(body: bytes) -> Any:
    """Return the value of a document, or MISSING."""
    return loads_trusted(body) if body else MISSING


def glimpse_body(body: bytes) -> Any:
    """Return the glimpse of a document."""
    return glimpse_value(loads_trusted(body))


def _path(text: str) -> Path:
    parsed = parse(text)
    assert isinstance(parsed, Expression)  # only the text of a path is stored
    return next(parsed.paths()).path
