"""What a helper process does with the documents that variables lead into, where they are large: the arguments of a call
with the values in the place of its variables, and what an agent is told of the documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from plangate.spec.variables import MISSING, Expression, VariablePath, parse

from app.base.json import low_memory
from app.base.json.worker import Answer, Verb, pieces
from app.variables.prompt import memory_section, prompt_section
from app.variables.values import VariableError, fill_call, parse_call

Key = TypeVar("Key")


def verbs() -> Mapping[str, Verb]:
    """Return the requests that this worker answers."""
    return {"fill": _fill, "section": _section, "memory_section": _memory_section}


class DocumentCache(Mapping[Key, Any]):
    """Documents by their keys, one of them parsed at a time."""

    def __init__(self, keys: Sequence[Key], bodies: Sequence[bytes]) -> None:
        self._bodies = dict(zip(keys, bodies, strict=True))
        self._last: tuple[Key, Any] | None = None

    def __getitem__(self, key: Key) -> Any:
        body = self._bodies[key]
        if self._last is None or self._last[0] != key:
            self._last = None
            self._last = key, low_memory.loads_trusted(body) if body else MISSING
        return self._last[1]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._bodies)

    def __len__(self) -> int:
        return len(self._bodies)


def _fill(head: Mapping[str, Any], data: bytearray) -> Answer:
    """Return the two parts of the record of a call, or the reason why it cannot be made."""
    values = DocumentCache([_root(text) for text in head["roots"]], pieces(data, head["sizes"]))
    why = {_root(text): told for text, told in head["why"].items()}
    try:
        call = parse_call(head["args"], head["kept"], head["prescribed"])
        args, sources = fill_call(call, values, head["kinds"], why).dump()
    except VariableError as error:
        return {"refused": str(error)}, b""
    return {"sizes": [len(args), len(sources)]}, args + sources


def _section(head: Mapping[str, Any], data: bytearray) -> Answer:
    """Return the section of a prompt."""
    documents = DocumentCache(head["kinds"], pieces(data, head["sizes"]))
    return {"text": prompt_section(documents, head["references"])}, b""


def _memory_section(head: Mapping[str, Any], data: bytearray) -> Answer:
    """Return the section of a prompt about the memory."""
    (body,) = pieces(data, head["sizes"])
    return {"text": memory_section(low_memory.loads_trusted(body))}, b""


def _root(text: str) -> VariablePath:
    parsed = parse(text)
    assert isinstance(parsed, Expression)  # a reference wrote it
    return next(parsed.paths())
