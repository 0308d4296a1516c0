"""Variables of one call: which values they need, what the arguments are with these in their place, where its result
goes, and what is said when that cannot be. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
from plangate.printable import to_printable, to_printable_json
from plangate.spec.base import did_you_mean
from plangate.spec.problems import json_pointer
from plangate.spec.variable_schemas import OUTPUT_METHOD, OUTPUT_METHODS, OUTPUT_PATH, READ_ONLY
from plangate.spec.variables import (
    DAGGER,
    MISSING,
    Expression,
    InvalidVariable,
    Lookup,
    VariablePath,
    VariableUse,
    evaluate,
    find_variables,
    parse,
    replace_variables,
    resolve_path,
)

from app.base.errors import FieldError
from app.base.json.limits import LIMITS
from app.base.json.offload import loads
from app.documents.bodies import load_value
from app.documents.glimpses import glimpse_value, truncate_text
from app.documents.writing import MAX_DEPTH, Method, json_type, nesting_depth

MAX_REPLACED_BYTES: Final = 16 * 1024 * 1024  # of the arguments of one call, as JSON
MAX_VARIABLES: Final = 1_000  # in the arguments of one call, every alternative of an expression counted
MAX_PARTS: Final = (
    50_000  # of all paths of one call or one plan: nobody else may wait for long while they are read
)
MAX_REFERENCES: Final = 100  # stored references behind them: each is read by itself
MAX_PATH_CHARS: Final = 2000
LARGE_BYTES: Final = 1024  # from here on an approver is shown a glimpse of a value
ARTIFACT: Final = "artifact"
CONTENT: Final = "content"  # of an artifact: the text of its file
_NAMES_SHOWN: Final = 100
_NAME_CHARS: Final = 60
_REASONS_TOLD: Final = 5
_RULES_ALONE: Final = ("must ", "the property ", "these properties are not allowed", "no properties are ")

Values = Mapping[VariablePath, Any]
"""By their roots (`†state`, `†ref.<Kind>.<id>`): the documents that variables lead into; MISSING where there is none."""


class VariableError(ValueError):
    """A call cannot be made with its variables: nothing was dispatched."""


@dataclass(frozen=True, slots=True)
class VariableSource:
    """A value in the arguments that came from a variable. `place` leads to it."""

    place: tuple[str | int, ...]
    variable: str
    type: str
    size_bytes: int
    glimpse: Any

    def wire(self) -> dict[str, Any]:
        return {
            "pointer": json_pointer(self.place),
            "variable": self.variable,
            "type": self.type,
            "sizeBytes": self.size_bytes,
            "glimpse": self.glimpse,
        }


@dataclass(frozen=True, slots=True)
class OutputPath:
    """Where a result goes: alternatives, each a list of paths that get the same value."""

    alternatives: tuple[tuple[VariablePath, ...], ...]
    method: Method
    picks: bool = True
    """The tool may say which alternative gets its result."""

    def named(self, path: Any) -> tuple[VariablePath, ...] | None:
        """Return the alternative that a tool picked, however it is spelled: the tool's own schema may have
        quotes that are not needed."""
        try:
            picked = parse(path) if isinstance(path, str) and len(path) <= MAX_PATH_CHARS else None
        except InvalidVariable:
            return None
        said = str(picked) if isinstance(picked, Expression) else None
        return next((a for a in self.alternatives if " && ".join(map(str, a)) == said), None)


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call as its model wrote it, taken apart."""

    args: dict[str, Any]
    kept: dict[str, Any]  # parameters in which nothing is replaced
    found: tuple[VariableUse, ...]
    output: OutputPath | None

    def roots(self) -> set[VariablePath]:
        """Return the documents that the variables lead into. Raise VariableError for a variable that leads
        into none."""
        roots = {document_root(ref) for one in self.found for ref in one.expression.paths()}
        if sum(root.kind in ("ref", ARTIFACT) for root in roots) > MAX_REFERENCES:
            raise VariableError(
                f"One call may name {MAX_REFERENCES} stored references and artifacts: make several calls."
            )
        return roots


@dataclass(frozen=True, slots=True)
class FilledCall:
    """A call with values in the place of its variables."""

    args: dict[str, Any]
    sources: tuple[VariableSource, ...] = ()
    output: OutputPath | None = None
    text: bytes | None = field(default=None, compare=False)
    """The arguments as they are on record, where they are large."""

    def with_text(self, text: bytes) -> FilledCall:
        """Return the same call, with its arguments as JSON if they are large."""
        return replace(self, text=text) if len(text) > LIMITS.inline_bytes else self

    def dump(self) -> tuple[bytes, bytes]:
        sources = [[list(s.place), s.variable, s.type, s.size_bytes, s.glimpse] for s in self.sources]
        return orjson.dumps(self.args), orjson.dumps(sources)  # what is in them came through the gate

    @classmethod
    def load(cls, args: bytes, filled: bytes, output: OutputPath | None) -> FilledCall:
        """Parse what `dump` returned; the path of the result is in the call itself. Call it in a thread for
        large calls."""
        sources = (VariableSource(tuple(place), *rest) for place, *rest in orjson.loads(filled))
        return cls(loads(args), tuple(sources), output).with_text(args)


# -- taking a call apart


def parse_call(args: Mapping[str, Any], kept: Iterable[str], prescribed: str | None) -> ParsedCall:
    """Return the arguments, their variables and the path of the result. `prescribed` is the path that the
    tool itself declares. Raise VariableError."""
    plain = {key: held for key, held in args.items() if key not in (OUTPUT_PATH, OUTPUT_METHOD)}
    left = {key: plain.pop(key) for key in kept if key in plain}
    path, method = args.get(OUTPUT_PATH, prescribed), args.get(OUTPUT_METHOD, MISSING)
    if prescribed is not None and path != prescribed:
        raise VariableError(f"{OUTPUT_PATH}: the results of this tool go to {prescribed}; leave it out.")
    if count_path_parts(plain) > MAX_PARTS:
        raise VariableError(
            f"The variables of one call may have {MAX_PARTS} parts together: make several calls."
        )
    found, problems = find_variables(plain)
    if sum(len(alternative) for one in found for alternative in one.expression.alternatives) > MAX_VARIABLES:
        raise VariableError(f"One call may have {MAX_VARIABLES} variables: make several calls.")
    if problems:
        listed = "; ".join(f"{p.pointer} is {preview(p.text)}: {p.message}" for p in problems[:5])
        raise VariableError(
            f"{listed}. A text that starts with {DAGGER} but is not a variable is written with two of them."
        )
    return ParsedCall(plain, left, tuple(found), _parse_output(path, method))


def count_path_parts(value: Any) -> int:
    """About how many parts the paths of all variables in a value have: known before any of them is read."""
    texts: list[str] = []
    replace_variables(value, texts.append)
    return sum(text.count(".") + text.count(DAGGER) for text in texts if not text.startswith(DAGGER, 1))


def _parse_output(path: Any, method: Any) -> OutputPath | None:
    if method is not MISSING and method not in OUTPUT_METHODS:
        raise VariableError(f"{OUTPUT_METHOD} is one of {', '.join(OUTPUT_METHODS)}.")
    if path is None:
        if method is not MISSING:
            raise VariableError(
                f"{OUTPUT_METHOD} says how a result is written, and {OUTPUT_PATH} is missing."
            )
        return None
    if not isinstance(path, str) or len(path) > MAX_PATH_CHARS:
        raise VariableError(f"{OUTPUT_PATH} is a variable of at most {MAX_PATH_CHARS} characters.")
    try:
        parsed = parse(path)
    except InvalidVariable as error:
        raise VariableError(f"{OUTPUT_PATH} is {preview(path)}: {error}.") from error
    if not isinstance(parsed, Expression):
        raise VariableError(f"{OUTPUT_PATH} is {preview(path)}: a variable begins with {DAGGER}.")
    for reference in parsed.paths():
        if reference.kind in READ_ONLY:
            raise VariableError(
                f"{OUTPUT_PATH}: {preview(str(reference))} cannot be written, {DAGGER}{reference.kind} is read-only. Write "
                f"to {DAGGER}state, to {DAGGER}memory or to a data object of the query, such as {DAGGER}results."
            )
    return OutputPath(parsed.alternatives, "set" if method is MISSING else method)


def document_root(reference: VariablePath) -> VariablePath:
    """Return the document that a path leads into. Raise VariableError."""
    if reference.kind == ARTIFACT:
        if not reference.path:
            raise VariableError(
                f"{preview(str(reference))}: an artifact is {DAGGER}artifact.<id>, its text {DAGGER}artifact.<id>.content."
            )
        wants_text = len(reference.path) > 1 and reference.path[1].key == CONTENT
        return VariablePath(ARTIFACT, reference.path[: 2 if wants_text else 1])
    if reference.kind != "ref":
        return VariablePath(reference.kind)
    if len(reference.path) < 2:
        raise VariableError(
            f"{preview(str(reference))}: a stored reference is {DAGGER}ref.<Kind>.<id>, as its handle says."
        )
    return VariablePath("ref", reference.path[:2])


def is_text(root: VariablePath) -> bool:
    """Return whether a document is the text of an artifact rather than its record."""
    return root.kind == ARTIFACT and len(root.path) > 1


# -- putting the values in


def lookup_in(values: Values) -> Lookup:
    """From a reference to its value in these documents."""

    def lookup(reference: VariablePath) -> Any:
        root = document_root(reference)
        return resolve_path(values.get(root, MISSING), reference.path[len(root.path) :])

    return lookup


def fill_call(
    call: ParsedCall,
    values: Values,
    kinds: Iterable[str],
    why: Mapping[VariablePath, str],
    usable: Callable[[VariablePath], bool] = lambda _: True,
) -> FilledCall:
    """Return the call with its values. `kinds` are the kinds that exist, `why` the reasons for missing
    references; what is not `usable` has no value, whatever the documents hold. Raise VariableError."""
    held = _read_references(call, values)

    def lookup(reference: VariablePath) -> Any:
        return held[reference] if usable(reference) else MISSING

    resolved: dict[str, tuple[Any, int]] = {}
    size, sources = 0, []
    for one in call.found:
        if one.text not in resolved:
            value = evaluate(one.expression, lookup)
            if value is MISSING:
                reasons = _missing_reasons(one.expression, values, lookup, kinds, why)
                raise VariableError(f"{one.pointer} is {preview(one.text)}, which has no value: {reasons}")
            resolved[one.text] = value, len(orjson.dumps(value))  # it came through the gate
        value, bytes_ = resolved[one.text]
        size += bytes_
        if size > MAX_REPLACED_BYTES:
            raise VariableError(
                f"With {preview(one.text)} at {one.pointer} the values of this call's variables have more than "
                f"{MAX_REPLACED_BYTES} bytes of JSON: pass references by their handles."
            )
        sources.append(VariableSource(one.place, one.text, json_type(value), bytes_, glimpse_value(value)))

    def value_of(text: str) -> Any:
        return resolved[text][0] if text in resolved else parse(text)  # the latter: a text with two daggers

    args = {**replace_variables(call.args, value_of), **call.kept}
    if sources and nesting_depth(args) > MAX_DEPTH:
        raise VariableError(f"With their values the arguments are nested deeper than {MAX_DEPTH}.")
    return FilledCall(args, tuple(sources), call.output)


class DocumentCache(Mapping[VariablePath, Any]):
    """Documents by their roots, one of them parsed at a time."""

    def __init__(self, bodies: Mapping[VariablePath, bytes]) -> None:
        self._bodies = bodies
        self._last: tuple[VariablePath, Any] | None = None

    def __getitem__(self, root: VariablePath) -> Any:
        body = self._bodies[root]
        if self._last is None or self._last[0] != root:
            self._last = None
            self._last = root, load_value(body)
        return self._last[1]

    def __iter__(self) -> Iterator[VariablePath]:
        return iter(self._bodies)

    def __len__(self) -> int:
        return len(self._bodies)


def fill_record(
    call: ParsedCall,
    bodies: Mapping[VariablePath, bytes],
    kinds: Iterable[str],
    why: Mapping[VariablePath, str],
) -> tuple[bytes, bytes]:
    """Return the record of a call (`FilledCall.dump`) with the values of these documents. Raise VariableError."""
    return fill_call(call, DocumentCache(bodies), kinds, why).dump()


def _read_references(call: ParsedCall, values: Values) -> dict[VariablePath, Any]:
    """Return the value behind each path of the call, one document after the other, so that no two must be
    in memory at once."""
    wanted: dict[VariablePath, dict[VariablePath, None]] = {}
    for one in call.found:
        for reference in one.expression.paths():
            wanted.setdefault(document_root(reference), {})[reference] = None
    picked: dict[VariablePath, Any] = {}
    for root, references in wanted.items():
        document = values.get(root, MISSING)
        for reference in references:
            picked[reference] = resolve_path(document, reference.path[len(root.path) :])
    return picked


def _missing_reasons(
    expression: Expression,
    values: Values,
    lookup: Lookup,
    kinds: Iterable[str],
    why: Mapping[VariablePath, str],
) -> str:
    """Why the alternatives have no value, of the first of them."""
    told = missing_reasons(expression, values, lookup, sorted(kinds), why)
    return told if told.endswith(("?", ".")) else f"{told}."


def missing_reasons(
    expression: Expression,
    values: Values,
    lookup: Lookup,
    kinds: Sequence[str],
    why: Mapping[VariablePath, str],
) -> str:
    """Why none of the alternatives has a value, of the first few; without a full stop."""
    shown_of = expression.alternatives[:_REASONS_TOLD]
    missing = (next(ref for ref in alternative if lookup(ref) is MISSING) for alternative in shown_of)
    told = [missing_reason(ref, values, kinds, why).rstrip(".") for ref in missing]
    left = len(expression.alternatives) - len(told)
    return "; ".join([*told, *([f"and {left} more alternatives"] if left else [])])


def missing_reason(
    reference: VariablePath, values: Values, kinds: Sequence[str], why: Mapping[VariablePath, str]
) -> str:
    """Why a reference leads to no value."""
    root = document_root(reference)
    if root in why:
        return why[root]
    held = values.get(root, MISSING)
    if held is MISSING:
        kind = truncate_text(reference.kind, _NAME_CHARS)
        known = [truncate_text(name, _NAME_CHARS) for name in kinds]
        return f"there is no {DAGGER}{kind}{did_you_mean(kind, known)}"
    at = len(root.path)
    for segment in reference.path[at:]:
        if (inner := resolve_path(held, (segment,))) is MISSING:
            break
        held, at = inner, at + 1
    parent = preview(str(replace(reference, path=reference.path[:at])))
    if at == len(reference.path):
        return f"what was to write {parent} did not"
    segment = reference.path[at]
    if not isinstance(held, Mapping):
        return f"{parent} is {json_type(held)}"
    names = [
        to_printable(truncate_text(key, _NAME_CHARS))
        for key, _ in zip(held, range(_NAMES_SHOWN), strict=False)
    ]
    hint = (
        did_you_mean(to_printable(truncate_text(segment.key, _NAME_CHARS)), names)
        or f"; it has {', '.join(map(preview, names[:8]))} and more"
    )
    return f"{parent} has no {preview(segment.key)}{hint if names else ', it is empty'}"


def preview(text: str) -> str:
    """Return a text from a model or a document for use in a message: on one line, and truncated."""
    return to_printable_json(orjson.dumps(truncate_text(text, 200)).decode())


# -- what is said of the result


def describe_errors(flaws: Iterable[FieldError], sources: Sequence[VariableSource]) -> tuple[str, bool]:
    """Return what is wrong with arguments, and whether the value of a variable is: then the message names
    the variable and both types, and repeats nothing of the value."""
    by_variable, listed = False, []
    for flaw in flaws:
        source = next((s for s in sources if _points_into(s, flaw.pointer)), None)
        wanted = flaw.message.partition(", not ")[0]
        if source is None:
            hides = any(_is_below(s, flaw.pointer) for s in sources)
            listed.append(f"{flaw.pointer or '/'}: {_rule_error(wanted) if hides else flaw.message}")
            continue
        by_variable = True
        listed.append(f"{flaw.pointer}: {_variable_error(flaw.pointer, source, wanted)}")
    return "; ".join(listed), by_variable


def _variable_error(pointer: str, source: VariableSource, wanted: str) -> str:
    """Return what is wrong with the value of a variable, or with a part of it: what the schema requires,
    and nothing of the value."""
    variable = preview(source.variable)
    if wanted.startswith("these properties are not allowed"):
        wanted = "it has properties that are not allowed"
    elif wanted.startswith("must "):
        wanted = f"this {wanted}"
    elif not wanted.startswith(_RULES_ALONE):
        wanted = ""
    if pointer == json_pointer(source.place):
        named = f"{variable} is {source.type}"
        return f"{named}, and {wanted}" if wanted else f"{named} that does not match"
    return f"in {variable}, {wanted}" if wanted else f"in {variable}, this does not match"


def _points_into(source: VariableSource, pointer: str) -> bool:
    own = json_pointer(source.place)
    return pointer == own or pointer.startswith(f"{own}/")


def _rule_error(wanted: str) -> str:
    """Return what a schema requires, for rules whose message repeats no value."""
    return wanted if wanted.startswith(_RULES_ALONE) else "it does not match the schema"


def _is_below(source: VariableSource, pointer: str) -> bool:
    return json_pointer(source.place).startswith(f"{pointer}/")


def approval_glimpses(call: FilledCall) -> dict[str, Any]:
    """Return what an approver sees beside the subject: the arguments, with large values of variables as a
    glimpse and size, and which value came from which variable."""
    if not call.sources:
        return {"args": call.args}
    glimpses = {
        source.place: {"glimpse": source.glimpse, "sizeBytes": source.size_bytes}
        for source in call.sources
        if source.size_bytes > LARGE_BYTES
    }
    return {"args": _replace_at(call.args, glimpses), "variables": [s.wire() for s in call.sources]}


def _replace_at(args: Any, values: Mapping[tuple[str | int, ...], Any]) -> Any:
    """Return the arguments with other values at some places. Containers on the way to them are copied once."""
    out: Any = dict(args)
    copied: dict[tuple[str | int, ...], Any] = {(): out}
    for place, value in values.items():
        held = out
        for n in range(1, len(place)):
            if place[:n] not in copied:
                inner = held[place[n - 1]]
                copied[place[:n]] = held[place[n - 1]] = inner.copy()
            held = copied[place[:n]]
        held[place[-1]] = value
    return out
