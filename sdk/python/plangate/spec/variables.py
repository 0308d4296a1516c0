"""Variables: strings that stand for a value, so that a model moves it without copying it. Pure.

A string that starts with a dagger is a reference (`†input.userName`), an expression of references, or, with two
daggers, a literal that starts with one. Any other string is plain text: nothing is interpolated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from plangate.json_pointer import json_pointer

DAGGER: Final = "\u2020"
PATTERN: Final = f"^{DAGGER}"
"""Of strings that are variables, for JSON Schemas."""

_KIND: Final = re.compile(r"[A-Za-z0-9_-]+")
_BARE: Final = re.compile(r'[^."|& ]+')
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_QUOTED: Final = json.JSONDecoder()
_UNHELD: Final = re.compile("[\0\ud800-\udfff]")
_MAX_INDEX_DIGITS: Final = 9


class InvalidVariable(ValueError):
    """A string that starts with a dagger and is no reference; `position` counts characters from 0."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(f"at character {position}: {message}")
        self.position = position
        self.message = message


@dataclass(frozen=True, slots=True)
class Segment:
    """One step of a path: a key of an object, and an index of an array where it is a decimal number."""

    key: str
    index: int | None = None

    def __str__(self) -> str:
        quoted = self.index is None and (not _BARE.fullmatch(self.key) or _DECIMAL.fullmatch(self.key))
        return json.dumps(self.key, ensure_ascii=False) if quoted else self.key


@dataclass(frozen=True, slots=True)
class VariablePath:
    """`†kind.segment.segment`."""

    kind: str
    path: tuple[Segment, ...] = ()

    def __str__(self) -> str:
        return DAGGER + ".".join((self.kind, *map(str, self.path)))


@dataclass(frozen=True, slots=True)
class Expression:
    """Alternatives, of which the first that exists counts; each is a conjunction, which has the value of its last
    reference and exists if all of them do."""

    alternatives: tuple[tuple[VariablePath, ...], ...]

    def paths(self) -> Iterator[VariablePath]:
        """Yield every path, in order."""
        for conjunction in self.alternatives:
            yield from conjunction

    def __str__(self) -> str:
        return " || ".join(" && ".join(map(str, refs)) for refs in self.alternatives)


def parse(text: str) -> Expression | str:
    """Parse a string: return an expression, or the literal text with an escaped dagger unescaped.

    Raises InvalidVariable for a string that starts with one dagger and is neither.

    Example:
        >>> str(parse('\u2020state.totals."net.eur" || \u2020input.total'))
        '\u2020state.totals."net.eur" || \u2020input.total'
        >>> parse("plain"), parse("\u2020\u2020 a note")
        ('plain', '\u2020 a note')
    """
    if not text.startswith(DAGGER):
        return text
    if text.startswith(DAGGER, 1):
        return text[1:]
    alternatives: list[tuple[VariablePath, ...]] = []
    conjunction: list[VariablePath] = []
    at = 0
    while True:
        reference, at = _parse_path(text, at)
        conjunction.append(reference)
        operator = text[at : at + 4]
        if operator == " && ":
            at += 4
            continue
        alternatives.append(tuple(conjunction))
        conjunction = []
        if at == len(text):
            return Expression(tuple(alternatives))
        if operator != " || ":
            raise InvalidVariable(at, _unexpected(text, at))
        at += 4


def parse_place(kind: str, place: str) -> VariablePath:
    """Return the path of a place in the document of a kind: `totals.net` is what follows `†state.`.

    Raises InvalidVariable for anything else.

    Example:
        >>> str(parse_place("memory", 'totals."net.eur"'))
        '†memory.totals."net.eur"'
    """
    prefix = f"{DAGGER}{kind}."
    if place.startswith(DAGGER):
        raise InvalidVariable(0, f"leave out {prefix} in front")
    try:
        parsed = parse(prefix + place)
    except InvalidVariable as error:
        raise InvalidVariable(error.position - len(prefix), error.message) from None
    paths = list(parsed.paths()) if isinstance(parsed, Expression) else []
    if len(paths) != 1:
        raise InvalidVariable(0, "this is more than one path")
    return paths[0]


def _parse_path(text: str, at: int) -> tuple[VariablePath, int]:
    if not text.startswith(DAGGER, at):
        raise InvalidVariable(
            at, f"a reference begins with {DAGGER}; there are no literals and no parentheses"
        )
    kind = _KIND.match(text, at + 1)
    if kind is None:
        raise InvalidVariable(at + 1, "the kind of a reference has letters, digits, _ and -, at least one")
    at, path = kind.end(), []
    while text.startswith(".", at):
        segment, at = _parse_segment(text, at + 1)
        path.append(segment)
    return VariablePath(kind.group(), tuple(path)), at


def _parse_segment(text: str, at: int) -> tuple[Segment, int]:
    if text.startswith('"', at):
        try:
            key, end = _QUOTED.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise InvalidVariable(at, f"a quoted segment is a JSON string: {error.msg}") from error
        if _UNHELD.search(key):
            raise InvalidVariable(at, "a quoted segment has NUL or half a character, which no key can hold")
        return Segment(key), end
    bare = _BARE.match(text, at)
    if bare is None:
        raise InvalidVariable(
            at, 'a segment is missing here; quote one that is empty or has . " | & or a space'
        )
    key = bare.group()
    number = _DECIMAL.fullmatch(key) is not None and len(key) <= _MAX_INDEX_DIGITS
    return Segment(key, int(key) if number else None), bare.end()


def _unexpected(text: str, at: int) -> str:
    if text[at] == " ":
        return "after a reference there is the end, ' || ' or ' && ', with one space on each side"
    return f"{text[at]!r} cannot stand here; quote a segment that has it"


MISSING: Final = object()
"""What a look-up gives for a path that leads nowhere; `null` exists."""

Lookup = Callable[[VariablePath], Any]
"""From a reference to its value, or MISSING."""


def resolve_path(document: Any, path: tuple[Segment, ...]) -> Any:
    """Return the value at a path inside a document, or MISSING."""
    for segment in path:
        if isinstance(document, Mapping):
            document = document.get(segment.key, MISSING)
        elif isinstance(document, list) and segment.index is not None and segment.index < len(document):
            document = document[segment.index]
        else:
            return MISSING
        if document is MISSING:
            return MISSING
    return document


def evaluate(expression: Expression, lookup: Lookup) -> Any:
    """Return the value of an expression, or MISSING."""
    for conjunction in expression.alternatives:
        value: Any = MISSING
        for reference in conjunction:
            value = lookup(reference)
            if value is MISSING:
                break
        else:
            return value
    return MISSING


@dataclass(frozen=True, slots=True)
class VariableUse:
    """A variable in a value: its place (keys and indexes), its text, and its parsed form."""

    place: tuple[str | int, ...]
    text: str
    expression: Expression

    @property
    def pointer(self) -> str:
        return json_pointer(self.place)


@dataclass(frozen=True, slots=True)
class VariableProblem:
    """A string that starts with a dagger and cannot be used."""

    place: tuple[str | int, ...]
    text: str
    message: str

    @property
    def pointer(self) -> str:
        return json_pointer(self.place)


def find_variables(value: Any) -> tuple[list[VariableUse], list[VariableProblem]]:
    """Return every variable in a JSON value, in order, and every invalid one."""
    uses: list[VariableUse] = []
    problems: list[VariableProblem] = []
    for place, text in _dagger_strings(value):
        try:
            parsed = parse(text)
        except InvalidVariable as error:
            problems.append(VariableProblem(place, text, str(error)))
        else:
            if isinstance(parsed, Expression):
                uses.append(VariableUse(place, text, parsed))
    return uses, problems


def replace_variables(value: Any, values: Callable[[str], Any]) -> Any:
    """Return the value with each string that starts with a dagger replaced by `values(string)`.

    Inserted values are not scanned again: a value that looks like a variable is data.
    """
    if isinstance(value, str):
        return values(value) if value.startswith(DAGGER) else value
    if isinstance(value, dict):
        return {key: replace_variables(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [replace_variables(item, values) for item in value]
    if _is_scalar(value) or not isinstance(value, Mapping):
        return value
    return {key: replace_variables(item, values) for key, item in value.items()}


def _is_scalar(value: Any) -> bool:
    """Return whether a value is a number, a boolean or null: asking `Mapping` costs ten times as much, and large values
    have millions of these."""
    return value is None or type(value) in (int, float, bool)


def _dagger_strings(value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while stack:
        place, item = stack.pop()
        if isinstance(item, str):
            if item.startswith(DAGGER):
                yield place, item
        elif isinstance(item, list):
            items = reversed(list(enumerate(item)))
            stack.extend(((*place, n), inner) for n, inner in items if not _is_scalar(inner))
        elif not _is_scalar(item) and isinstance(item, Mapping):
            fields = reversed(list(item.items()))
            stack.extend(((*place, key), inner) for key, inner in fields if not _is_scalar(inner))
