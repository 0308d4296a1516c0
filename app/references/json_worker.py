"""The process that takes one large document of references apart (app/base/json/worker.py), and ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from app.base.errors import TooLarge
from app.base.json import low_memory
from app.base.json.worker import Answer, Verb
from app.base.schema.checker import SchemaChecker
from app.references import values

MAX_FIELDS_BYTES: Final = 64 * 1024
"""Of everything in a document beside its value."""


class Worker:
    """Keeps the value of a document between two questions."""

    def __init__(self) -> None:
        self._value: Any = None
        self._schemas = SchemaChecker(capacity=1)
        self.verbs = {"fields": self._fields, "pack": self._pack, "part": self._part}

    def _fields(self, head: Mapping[str, Any], data: bytearray) -> Answer:
        """Parse a document and return everything in it but its value, which stays in this process."""
        document = low_memory.parse_low_memory(data, head["mostContainers"])
        if not isinstance(document, dict):
            return {"fields": None, "hasValue": False}, b""
        has_value = "value" in document
        self._value = document.pop("value", None)
        fields = orjson.dumps(document)
        if len(fields) > MAX_FIELDS_BYTES:
            raise TooLarge(f"Beside its value the body may have {MAX_FIELDS_BYTES} bytes.")
        return {"fields": document, "hasValue": has_value}, b""

    def _pack(self, head: Mapping[str, Any], _data: bytearray) -> Answer:
        """Return the canonical form of the value and its glimpse, if it fits its kind."""
        asked = values.ValueRequest(head["kind"], head["schema"], head["fields"], head["maxBytes"])
        data, glimpse = values.pack_value(self._schemas, asked, self._value, head["glimpse"])
        self._value = None
        return {"glimpse": orjson.loads(glimpse)}, data

    def _part(self, head: Mapping[str, Any], data: bytearray) -> Answer:
        """Return a part of a stored value."""
        part = values.value_part(low_memory.loads_low_memory(data, dense=False), head["path"], head["limit"])
        return {"content": part.content, "shownBytes": part.shown_bytes}, b""


def verbs() -> Mapping[str, Verb]:
    """Return the requests that this worker answers."""
    return Worker().verbs
