"""Find the first error of a value that is too large for all of its errors to be built: by halves of its longest array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from plangate.json_pointer import json_pointer

from app.base.errors import FieldError

_FEW: Final = 64
"""Elements that are explained together: the array may have a smallest length."""

_MAX_VISITED: Final = 1_000  # objects and arrays, in the search for the longest


def first_error(
    is_valid: Callable[[Any], bool], explain: Callable[[Any], list[FieldError] | None], value: Any
) -> FieldError | None:
    """Return the first error of an invalid value, or None if it cannot be explained. `explain` returns the errors of a
    value, or None for one that is too large.

    An error about the array itself is not returned, because it may be about a part of it. An error about the rest of
    the value is: it is the same for every part.
    """
    path, elements = _longest_array(value)
    start, end = 0, len(elements)
    while True:
        errors = explain(_replaced(value, path, elements[start:end])) if end - start <= _FEW else None
        if errors is not None or end - start <= 1:
            break
        middle = (start + end) // 2
        if is_valid(_replaced(value, path, elements[start:middle])):
            start = middle
        else:
            end = middle
    pointer = json_pointer(path)
    for error in errors or ():
        if not error.pointer.startswith(f"{pointer}/"):
            if error.pointer != pointer:
                return error
            continue
        index, slash, below = error.pointer[len(pointer) + 1 :].partition("/")
        return FieldError(f"{pointer}/{int(index) + start}{slash}{below}", error.message)
    return None


def _longest_array(value: Any) -> tuple[Sequence[str], list[Any]]:
    """Return the longest array in a value and its nested objects, with its path; an empty array if there is none."""
    path: Sequence[str] = ()
    longest: list[Any] = []
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    for _ in range(_MAX_VISITED):
        if not waiting:
            break
        here, container = waiting.pop()
        if isinstance(container, list) and len(container) > len(longest):
            path, longest = here, container
        elif isinstance(container, Mapping) and len(container) <= _MAX_VISITED:
            waiting += [
                ((*here, name), inner)
                for name, inner in container.items()
                if isinstance(inner, Mapping | list)
            ]
    return path, longest


def _replaced(value: Any, path: Sequence[str], elements: list[Any]) -> Any:
    if not path:
        return elements
    return {**value, path[0]: _replaced(value[path[0]], path[1:], elements)}
