"""The process that takes one large document apart, and ends.

Parsed JSON takes many times the memory of its text, and what reads it holds the interpreter, so that nothing else of a
process goes on meanwhile. So a large document has a process of its own: large.py starts it, asks it, and ends it when it
takes too much memory. (A limit of the system's on its memory would not do: where an allocation fails the parsers crash,
or hang.)

A message is the length of its head in four bytes, the head as JSON, and as many bytes after it as the head says in
`size`.
"""

from __future__ import annotations

import gc
import json
import resource
import signal
import sys
from collections.abc import Mapping
from functools import lru_cache
from io import BufferedIOBase
from typing import Any, Final, cast

import orjson
import pydantic_core

from app.base import jsongate
from app.base.errors import Invalid, Malformed, TooLarge
from app.base.schemacheck import SchemaChecker
from app.references import values

MAX_FIELDS_BYTES: Final = 64 * 1024
"""Of everything in a document beside its value."""

CHARS_AN_OBJECT: Final = 64
CHARS_A_NUMBER: Final = 8
"""With fewer characters of text to each, a document is dense."""

SHARED_KEYS, SHAPES, CACHED_NUMBERS = 16, 256, 16_384
CPU_S: Final = 20
READ_BYTES: Final = 256 * 1024


Answer = tuple[dict[str, Any], bytes]
"""The head of a message, and what goes with it."""


def main() -> None:
    """Answers what is asked until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service ends this process itself
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    gc.disable()  # parsed JSON has no cycles, and looking for them takes longer than parsing it
    incoming, outgoing = (cast(BufferedIOBase, stream.buffer) for stream in (sys.stdin, sys.stdout))
    worker = Worker()
    while (message := receive(incoming)) is not None:
        head, data = message
        del message
        answer, payload = worker.answer(head, data)
        del data
        send(outgoing, answer, payload)


class Worker:
    """Keeps the value of a document between two questions."""

    def __init__(self) -> None:
        self._value: Any = None
        self._schemas = SchemaChecker(capacity=1)
        self._verbs = {"fields": self._fields, "pack": self._pack, "part": self._part}

    def answer(self, head: Mapping[str, Any], data: bytearray) -> Answer:
        """What one question is answered with."""
        try:
            return self._verbs[head["ask"]](head, data)
        except Invalid as error:
            flaws = [[flaw.pointer, flaw.message] for flaw in error.flaws]
            return {"error": "invalid", "detail": error.detail, "flaws": flaws}, b""
        except Malformed as error:
            return {"error": "malformed", "detail": error.detail}, b""
        except TooLarge as error:
            return {"error": "too_large", "detail": error.detail}, b""
        except MemoryError:
            return {"error": "no_memory"}, b""

    def _fields(self, head: Mapping[str, Any], data: bytearray) -> Answer:
        """Parses a document; the answer has everything in it but its value, which stays here."""
        document = parsed(data, head["mostContainers"])
        if not isinstance(document, dict):
            return {"fields": None, "hasValue": False}, b""
        has_value = "value" in document
        self._value = document.pop("value", None)
        fields = orjson.dumps(document)
        if len(fields) > MAX_FIELDS_BYTES:
            raise TooLarge(f"Beside its value the body may have {MAX_FIELDS_BYTES} bytes.")
        return {"fields": document, "hasValue": has_value}, b""

    def _pack(self, head: Mapping[str, Any], _data: bytearray) -> Answer:
        """The canonical form of the value and its glimpse, if it is as its kind asks."""
        asked = values.Asked(head["kind"], head["schema"], head["fields"], head["maxBytes"])
        data, glimpse = values.packed(self._schemas, asked, self._value, head["glimpse"])
        self._value = None
        return {"glimpse": orjson.loads(glimpse)}, data

    def _part(self, head: Mapping[str, Any], data: bytearray) -> Answer:
        """A part of a stored value."""
        part = values.part_of(built(data, dense=False), head["path"], head["limit"])
        return {"content": part.content, "shownBytes": part.shown_bytes}, b""


def parsed(data: bytearray, most_containers: int) -> Any:
    """What `jsongate.parse` gives, in as little memory as there is a way to: the text goes before its value is
    complete, and what is not plainly right the gate itself judges. Empties `data`. Raises Malformed, TooLarge."""
    body = bytes(data)
    data.clear()
    seen = jsongate.survey(body)
    if seen.containers > most_containers:
        raise TooLarge(f"The body may have {most_containers} objects and arrays.")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return jsongate.parse(body)
    del body
    try:
        value = built(text, dense=_dense(seen, len(text)))
        if seen.complaint is None and seen.is_all_of(value):
            return value
    except (ValueError, TypeError, RecursionError):  # TypeError: of a lone surrogate, as it is written
        pass
    return jsongate.parse(text.encode())


def _dense(seen: jsongate.Survey, chars: int) -> bool:
    """Whether most of the memory will be that of dicts, or of numbers."""
    numbers = seen.commas - seen.string_tokens // 2
    return seen.objects * CHARS_AN_OBJECT > chars or numbers * CHARS_A_NUMBER > chars


def built(text: str | bytes | bytearray, *, dense: bool) -> Any:
    """The value of a JSON text, without a tree of the parser's own beside it. Equal short texts are one. Where the text
    is dense, equal numbers are one, and objects of the same keys share them: 16 MiB of `{"id": 1000000}` take 10 times
    the text so, and 15 times as plain dicts. Raises ValueError, RecursionError."""
    if not dense:
        return pydantic_core.from_json(text, allow_inf_nan=False, cache_strings="all")
    return json.loads(
        text,
        object_hook=SharedKeys().sharing,
        parse_int=lru_cache(CACHED_NUMBERS)(int),
        parse_float=lru_cache(CACHED_NUMBERS)(float),
        parse_constant=_no_constant,
    )


class SharedKeys:
    """Dicts as objects keep their attributes in, which have their keys in common."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], type] = {}

    def sharing(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The same dict, with keys that it shares."""
        keys = tuple(plain)
        shape = self._shapes.get(keys)
        if shape is None:
            if len(keys) > SHARED_KEYS or len(self._shapes) == SHAPES:
                return plain
            shape = self._shapes[keys] = type("Shape", (), {})
        held: dict[str, Any] = shape().__dict__
        for key, value in plain.items():
            held[key] = value
        return held


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def send(to: BufferedIOBase, head: Mapping[str, Any], data: bytes | bytearray = b"") -> None:
    """One message."""
    written = orjson.dumps({**head, "size": len(data)})
    to.write(len(written).to_bytes(4, "big") + written)
    view = memoryview(data)
    for at in range(0, len(data), READ_BYTES):
        to.write(view[at : at + READ_BYTES])
    to.flush()


def receive(source: BufferedIOBase) -> tuple[dict[str, Any], bytearray] | None:
    """One message; None where the other side has gone, be it in the middle of one."""
    length = _exactly(source, 4)
    written = None if length is None else _exactly(source, int.from_bytes(length, "big"))
    if written is None:
        return None
    head: dict[str, Any] = orjson.loads(written)
    data = _exactly(source, head["size"])
    return None if data is None else (head, data)


def _exactly(source: BufferedIOBase, size: int) -> bytearray | None:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        read = source.readinto(view[at : at + READ_BYTES])
        if not read:
            return None
        at += read
    return data


if __name__ == "__main__":
    main()
