"""JSON pointers (RFC 6901)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def escape_step(step: str | int) -> str:
    """Return a key or index as a reference token."""
    return str(step).replace("~", "~0").replace("/", "~1")


def json_pointer(path: Iterable[str | int]) -> str:
    """Return the pointer for a path of keys and indexes."""
    return "".join(f"/{escape_step(step)}" for step in path)


def parse_pointer(pointer: str) -> list[str]:
    """Return the keys and indexes of a pointer, as text."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def look_up(document: Any, path: Iterable[str | int]) -> Any:
    """Return what is at a path in a document, or None."""
    target = document
    for step in map(str, path):
        if isinstance(target, Mapping):
            target = target.get(step)
        elif isinstance(target, list) and step.isdecimal() and len(step) < 8 and int(step) < len(target):
            target = target[int(step)]
        else:
            return None
    return target
