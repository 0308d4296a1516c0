"""JSON parsed in as little memory as there is a way to: for processes that take one large text apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import orjson
import pydantic_core

from app.base.errors import TooLarge
from app.base.json import strict_json
from app.base.json.limits import LIMITS

CHARS_AN_OBJECT: Final = 64
CHARS_A_NUMBER: Final = 8
"""With fewer characters of text to each, a document is dense."""

SHARED_KEYS, SHAPES, CACHED_NUMBERS = 16, 256, 16_384


def parse_low_memory(data: bytearray) -> Any:
    """Return what `strict_json.parse` returns, in as little memory as possible: the text is freed before
    its value is complete. Empty `data`. Raise Malformed or TooLarge."""
    body = bytes(data)
    data.clear()
    shape = strict_json.survey(body)
    if shape.containers > LIMITS.containers:
        raise TooLarge(f"The body may have {LIMITS.containers} objects and arrays.")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return strict_json.parse(body)
    del body
    return _judge(text, shape, lambda text: loads_low_memory(text, dense=_dense(shape, len(text))))


def parse_cooperative(body: bytes) -> Any:
    """Return what `strict_json.parse` returns, in a thread beside the event loop (see `loads_cooperative`). Raise
    Malformed."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return strict_json.parse(body)
    return _judge(text, strict_json.survey(body), loads_cooperative)


def _judge(text: str, shape: strict_json.Survey, loads: Callable[[str], Any]) -> Any:
    """Return the value of a body that is plainly valid; leave any other body to the strict parser."""
    try:
        value = loads(text)
        if shape.complaint is None and shape.is_all_of(value, halves="\\u" in text):
            return value
    except (ValueError, TypeError, RecursionError):  # TypeError: of half a character, as it is written
        pass
    return strict_json.parse(text.encode())


def loads_trusted(body: bytes | bytearray) -> Any:
    """Parse a JSON text that the service wrote itself, a large one in little memory."""
    if len(body) <= LIMITS.process_bytes:
        return orjson.loads(body)
    text = bytes(body)
    objects, commas, quotes = (text.count(sign) for sign in (b"{", b",", b'"'))
    dense = objects * CHARS_AN_OBJECT > len(text) or (commas - quotes // 2) * CHARS_A_NUMBER > len(text)
    return loads_low_memory(text, dense=dense)


def loads_cooperative(text: str | bytes) -> Any:
    """Parse a JSON text in a thread beside the event loop. It releases the interpreter at each object,
    while the fastest parser holds it to the end and takes two thirds of the time. Raise ValueError or
    RecursionError."""
    return json.loads(text, object_hook=_as_it_is, parse_constant=_no_constant)


def _as_it_is(value: dict[str, Any]) -> dict[str, Any]:
    return value


def _dense(shape: strict_json.Survey, chars: int) -> bool:
    """Return whether dicts or numbers will take most of the memory."""
    numbers = shape.commas - shape.string_tokens // 2
    return shape.objects * CHARS_AN_OBJECT > chars or numbers * CHARS_A_NUMBER > chars


def loads_low_memory(text: str | bytes | bytearray, *, dense: bool) -> Any:
    """Parse a JSON text without a second tree beside the value. Equal short texts are shared. In a dense
    text, equal numbers are shared too, and objects with the same keys share those: 16 MiB of `{"id":
    1000000}` then take 10 times the size of the text instead of 15. Raise ValueError or RecursionError."""
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
        """Return the same dict, with shared keys."""
        keys = tuple(plain)
        shape = self._shapes.get(keys)
        if shape is None:
            if len(keys) > SHARED_KEYS or len(self._shapes) == SHAPES:
                return plain
            shape = self._shapes[keys] = type("Shape", (), {})
        attributes: dict[str, Any] = shape().__dict__
        for key, value in plain.items():
            attributes[key] = value
        return attributes


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
