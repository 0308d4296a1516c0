"""What is wrong with a value that is too large to be explained whole: its longest array is cut into ever smaller slices,
until one that does not match can be explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from app.base.errors import FieldError
from app.base.schema.messages import pointer_of

# A slice that is too large to be explained costs up to 0.2 s, one that matches next to nothing: few levels, many ways.
_WAYS: Final = 32
_MAX_SLICES: Final = 4 * _WAYS
_MAX_VISITED: Final = 1_000  # objects and arrays, in the search for the longest

Explain = Callable[[Any], list[FieldError] | None]


def first_flaws(explain: Explain, value: Any) -> list[FieldError] | None:
    """Return the errors of the first elements that have any, or None if no slice could be explained.
    `explain` returns the errors of a value, none for a value that matches, and None for one that is too
    large.

    Errors about the array itself are left out, because they may be about the slice. Errors about the rest
    of the value are kept: they are the same in every slice.
    """
    path, elements = _longest_array(value)
    pointer = pointer_of(path)
    waiting = _cut(0, len(elements))
    for _ in range(_MAX_SLICES):
        if not waiting:
            break
        start, end = waiting.pop()
        flaws = explain(_replaced(value, path, elements[start:end]))
        if flaws is None and end - start > 1:
            waiting += _cut(start, end)
        elif flaws is None or flaws:
            return [found for flaw in flaws or () for found in _moved(flaw, pointer, start)] or None
    return None


def _cut(start: int, end: int) -> list[tuple[int, int]]:
    """Slices of a slice, the first one last."""
    step = max(1, -(-(end - start) // _WAYS))
    return [(at, min(at + step, end)) for at in range(start, end, step)][::-1]


def _longest_array(value: Any) -> tuple[Sequence[str], list[Any]]:
    """Of the arrays in a value and in the objects in it, with its path; an empty one where there is none."""
    path: Sequence[str] = ()
    longest: list[Any] = []
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    for _ in range(_MAX_VISITED):
        if not waiting:
            break
        here, held = waiting.pop()
        if isinstance(held, list) and len(held) > len(longest):
            path, longest = here, held
        elif isinstance(held, Mapping) and len(held) <= _MAX_VISITED:
            waiting += [
                ((*here, name), inner) for name, inner in held.items() if isinstance(inner, Mapping | list)
            ]
    return path, longest


def _replaced(value: Any, path: Sequence[str], elements: list[Any]) -> Any:
    if not path:
        return elements
    return {**value, path[0]: _replaced(value[path[0]], path[1:], elements)}


def _moved(flaw: FieldError, pointer: str, start: int) -> Iterator[FieldError]:
    """Return the error of a slice as an error of the whole value."""
    if flaw.pointer == pointer:
        return
    if not flaw.pointer.startswith(f"{pointer}/"):
        yield flaw
        return
    index, slash, below = flaw.pointer[len(pointer) + 1 :].partition("/")
    yield FieldError(f"{pointer}/{int(index) + start}{slash}{below}", flaw.message)
