"""A write to a document, and the document as a fold over its writes. Pure: values in, values out, nothing shared is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from plangate.spec.variables import MISSING, Segment

Method = Literal["set", "merge", "assign", "push", "concat"]
Path = tuple[Segment, ...]

MAX_DEPTH: Final = 64  # containers inside one another, as the JSON gate counts them


class WriteRejected(ValueError):
    """A write that does not fit its document: nothing was written."""


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """What is done to the value at a path."""

    path: Path
    method: Method
    value: Any


def apply_write(document: Any, write: DocumentWrite) -> Any:
    """Return the document after a write. Containers on the way to the path are copied, the rest is shared;
    the input document is not changed. Missing objects on the way are created. Raise WriteRejected."""
    if nesting_depth(write.value) + len(write.path) + (write.method == "push") > MAX_DEPTH:
        raise WriteRejected(f"objects and arrays would be nested deeper than {MAX_DEPTH}")
    return _at(document, write.path, 0, write)


def fold_writes(base: Any, writes: Iterable[DocumentWrite]) -> Any:
    """Return the document that a log of writes yields."""
    for write in writes:
        base = apply_write(base, write)
    return base


def _at(held: Any, path: Path, n: int, write: DocumentWrite) -> Any:
    if n == len(path):
        return _METHODS[write.method](held, write.value)
    segment = path[n]
    if held is MISSING:
        return {segment.key: _at(MISSING, path, n + 1, write)}
    if isinstance(held, Mapping):
        return {**held, segment.key: _at(held.get(segment.key, MISSING), path, n + 1, write)}
    if not isinstance(held, list):
        raise WriteRejected(f"{_place(path, n)} is {json_type(held)}, which has nothing below it")
    index = segment.index
    if index is None or index > len(held):
        raise WriteRejected(
            f"{_place(path, n)} is {json_type(held)}: an index from 0 to {len(held)} can be written, not {segment}"
        )
    inner = _at(held[index] if index < len(held) else MISSING, path, n + 1, write)
    return [*held[:index], inner, *held[index + 1 :]]


def _place(path: Path, n: int) -> str:
    return ".".join(map(str, path[:n])) if n else "the document"


def json_type(value: Any) -> str:
    """Return the JSON type of a value, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return f"an array of {len(value)}" if isinstance(value, list) else "an object"


def nesting_depth(value: Any) -> int:
    """How deep containers stand inside one another: 0 for a scalar, 1 for []."""
    depth, level = 0, [value] if isinstance(value, dict | list) else []
    while level:
        depth += 1
        level = [
            inner
            for held in level
            for inner in (held.values() if isinstance(held, dict) else held)
            if isinstance(inner, (dict, list))
        ]
    return depth


# -- the methods: what is there (or MISSING) and what is written


def _set(_held: Any, value: Any) -> Any:
    return value


def _objects(method: str, held: Any, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise WriteRejected(f"{method} takes an object, not {json_type(value)}")
    if held is not MISSING and not isinstance(held, Mapping):
        raise WriteRejected(f"{method} needs an object to write to, and there is {json_type(held)}")


def _merge(held: Any, value: Any) -> Any:
    _objects("merge", held, value)
    return value if held is MISSING else _merge_objects(held, value)


def _merge_objects(held: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(held)
    for key, inner in value.items():
        there = out.get(key)
        if isinstance(there, Mapping) and isinstance(inner, Mapping):
            out[key] = _merge_objects(there, inner)
        else:
            out[key] = inner
    return out


def _assign(held: Any, value: Any) -> Any:
    _objects("assign", held, value)
    return value if held is MISSING else {**held, **value}


def _push(held: Any, value: Any) -> Any:
    if held is MISSING:
        return [value]
    if not isinstance(held, list):
        raise WriteRejected(f"push needs an array to append to, and there is {json_type(held)}")
    return [*held, value]


def _concat(held: Any, value: Any) -> Any:
    if not isinstance(value, list | str):
        raise WriteRejected(f"concat takes an array or a string, not {json_type(value)}")
    if held is MISSING:
        return value
    if isinstance(held, list) and isinstance(value, list):
        return [*held, *value]
    if isinstance(held, str) and isinstance(value, str):
        return held + value
    raise WriteRejected(f"concat cannot join {json_type(value)} to {json_type(held)}")


_METHODS: Final[Mapping[Method, Callable[[Any, Any], Any]]] = {
    "set": _set,
    "merge": _merge,
    "assign": _assign,
    "push": _push,
    "concat": _concat,
}
METHODS: Final = tuple(_METHODS)
