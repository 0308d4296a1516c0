"""A write to a document, and the document as a fold over its writes. Pure: no input is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """An operation on the value at a path."""

    path: Path
    method: Method
    value: Any


def apply_write(document: Any, write: DocumentWrite) -> Any:
    """Return the document after a write. Containers on the way to the path are copied, the rest is shared;
    the input document is not changed. Missing objects on the way are created. Raise WriteRejected."""
    if nesting_depth(write.value) + len(write.path) + (write.method == "push") > MAX_DEPTH:
        raise WriteRejected(f"objects and arrays would be nested deeper than {MAX_DEPTH}")
    return _at(document, write.path, 0, write)


def _at(current: Any, path: Path, n: int, write: DocumentWrite) -> Any:
    if n == len(path):
        return _METHODS[write.method](current, write.value)
    segment = path[n]
    if current is MISSING:
        return {segment.key: _at(MISSING, path, n + 1, write)}
    if isinstance(current, Mapping):
        return {**current, segment.key: _at(current.get(segment.key, MISSING), path, n + 1, write)}
    if not isinstance(current, list):
        raise WriteRejected(f"{_place(path, n)} is {json_type(current)}, which has nothing below it")
    index = segment.index
    if index is None or index > len(current):
        raise WriteRejected(
            f"{_place(path, n)} is {json_type(current)}: an index from 0 to {len(current)} can be written, not {segment}"
        )
    inner = _at(current[index] if index < len(current) else MISSING, path, n + 1, write)
    return [*current[:index], inner, *current[index + 1 :]]


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
    """Return how deeply containers are nested: 0 for a scalar, 1 for []."""
    depth, level = 0, [value] if isinstance(value, dict | list) else []
    while level:
        depth += 1
        level = [
            inner
            for current in level
            for inner in (current.values() if isinstance(current, dict) else current)
            if isinstance(inner, (dict, list))
        ]
    return depth


# -- the methods: functions of the current value (or MISSING) and the value to write


def _set(_current: Any, value: Any) -> Any:
    return value


def _objects(method: str, current: Any, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise WriteRejected(f"{method} takes an object, not {json_type(value)}")
    if current is not MISSING and not isinstance(current, Mapping):
        raise WriteRejected(f"{method} needs an object to write to, and there is {json_type(current)}")


def _merge(current: Any, value: Any) -> Any:
    _objects("merge", current, value)
    return value if current is MISSING else _merge_objects(current, value)


def _merge_objects(current: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(current)
    for key, inner in value.items():
        there = out.get(key)
        if isinstance(there, Mapping) and isinstance(inner, Mapping):
            out[key] = _merge_objects(there, inner)
        else:
            out[key] = inner
    return out


def _assign(current: Any, value: Any) -> Any:
    _objects("assign", current, value)
    return value if current is MISSING else {**current, **value}


def _push(current: Any, value: Any) -> Any:
    if current is MISSING:
        return [value]
    if not isinstance(current, list):
        raise WriteRejected(f"push needs an array to append to, and there is {json_type(current)}")
    return [*current, value]


def _concat(current: Any, value: Any) -> Any:
    if not isinstance(value, list | str):
        raise WriteRejected(f"concat takes an array or a string, not {json_type(value)}")
    if current is MISSING:
        return value
    if isinstance(current, list) and isinstance(value, list):
        return [*current, *value]
    if isinstance(current, str) and isinstance(value, str):
        return current + value
    raise WriteRejected(f"concat cannot join {json_type(value)} to {json_type(current)}")


_METHODS: Final[Mapping[Method, Callable[[Any, Any], Any]]] = {
    "set": _set,
    "merge": _merge,
    "assign": _assign,
    "push": _push,
    "concat": _concat,
}
METHODS: Final = tuple(_METHODS)
