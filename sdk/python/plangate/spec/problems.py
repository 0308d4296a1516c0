"""Problems of a spec, each with its JSON pointer into the document as its author wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic.alias_generators import to_camel, to_snake

from plangate.json_pointer import json_pointer
from plangate.spec.transports import TAG_PREFIX

Step = str | int

_NOWHERE: Final = object()
_NOT_IN_DOCUMENTS: Final = (TAG_PREFIX, "function-wrap[")
"""How Pydantic begins steps of a location that stand for a member of a union, or for a validator in it."""
_SUBJECT: Final = re.compile(r"^(Input|String|Tuple|List|Dictionary) ")  # of Pydantic's messages


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a spec.

    Args:
        pointer: Where, as an RFC 6901 JSON pointer; "" is the whole document.
        message: What, and what to do about it.

    Example:
        >>> Problem("/agents/0/name", "'no name' is not a name").pointer
        '/agents/0/name'
    """

    pointer: str
    message: str


class SpecInvalid(ValueError):
    """A spec that cannot be registered, with everything that is wrong with it at once.

    Args:
        problems: What is wrong, each with its place.

    Example:
        >>> try:
        ...     define_runtime("acme", [define_specialist("helper", "m-1", "You help.", tools=["look"])])
        ... except SpecInvalid as error:
        ...     print(error.problems[0].message)
        agent 'helper' names the tool 'look', which is not in 'tools'
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = (f"  {problem.pointer or '(spec)'}: {problem.message}" for problem in self.problems)
        super().__init__("\n".join(("The spec is not valid:", *lines)))


def document_path(raw: Any, location: Iterable[Step]) -> tuple[Step, ...]:
    """Return `location` in the spelling of `raw`, without the parts that are not in the document.

    It ends early where `raw` has a short form, such as a bare string in place of an object.
    """
    path: list[Step] = []
    current = raw
    for step in location:
        if isinstance(current, Mapping) and isinstance(step, str):
            if step not in current and (step.startswith(_NOT_IN_DOCUMENTS) or step == "[key]"):
                continue
            if step not in current:
                spellings = (to_camel(step), to_snake(step), f"{step}_")
                step = next((spelling for spelling in spellings if spelling in current), step)
            current = current.get(step, _NOWHERE)
        elif isinstance(current, Sequence) and not isinstance(current, str) and isinstance(step, int):
            current = current[step] if step < len(current) else _NOWHERE
        elif isinstance(step, str) and step.startswith(_NOT_IN_DOCUMENTS):
            continue
        elif current is not _NOWHERE:
            break
        path.append(step)
    return tuple(path)


def shape_problems(error: ValidationError, raw: Any) -> list[tuple[tuple[Step, ...], Problem]]:
    """Return the problems that Pydantic found, each with its path in `raw`."""
    problems = []
    for detail in error.errors(include_url=False, include_input=False):
        path = document_path(raw, detail["loc"])
        problems.append((path, Problem(json_pointer(path), _message(detail, path))))
    return problems


def _message(detail: Any, path: Sequence[Step]) -> str:
    field = next((step for step in reversed(path) if isinstance(step, str)), "spec")
    message: str = detail["msg"]
    if detail["type"] == "missing":
        return f"field {field!r} is required"
    subject = (
        f"{field!r} "  # names come from the author, so they are no template: "\\1" in one is two characters
    )
    return _SUBJECT.sub(lambda _: subject, message, count=1)


def ancestors(pointer: str) -> Iterator[str]:
    """Return the pointer itself and every pointer that contains it."""
    while pointer:
        yield pointer
        pointer = pointer.rpartition("/")[0]
    yield ""
