"""Variables of one call: parse them, replace them by their values, and describe what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
from plangate.json_pointer import json_pointer
from plangate.printable import to_printable, to_printable_json
from plangate.spec.base import did_you_mean
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
MAX_PARTS: Final = 50_000  # of all paths of one call or one plan, which are parsed on the event loop
MAX_REFERENCES: Final = 100  # stored references and artifacts behind them: each is read by itself
MAX_PATH_CHARS: Final = 2000
LARGE_BYTES: Final = 1024  # an approver sees a glimpse of a larger value
ARTIFACT: Final = "artifact"
CONTENT: Final = "content"  # the field of an artifact that is the text of its file
_NAMES_SHOWN: Final = 100
_NAME_CHARS: Final = 60
_MAX_REASONS: Final = 5
_RULES_ALONE: Final = ("must ", "the property ", "these properties are not allowed", "no properties are ")

Values = Mapping[VariablePath, Any]
"""The documents that variables lead into by their roots (`†state`, `†ref.<Kind>.<id>`), or MISSING."""


class VariableError(ValueError):
    """The variables of a call cannot be replaced. Nothing was dispatched."""


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
            **({} if self.reads_reference() else {"glimpse": self.glimpse}),
        }

    def reads_reference(self) -> bool:
        """Return whether the value may be one behind a reference, which no event shows."""
        parsed = parse(self.variable)
        return isinstance(parsed, Expression) and any(path.kind == "ref" for path in parsed.paths())


@dataclass(frozen=True, slots=True)
class OutputPath:
    """The output path of a call: alternatives, each a list of paths that get the same value."""

    alternatives: tuple[tuple[VariablePath, ...], ...]
    method: Method
    picks: bool = True
    """Whether the tool may choose which alternative gets its result."""

    def alternative(self, path: Any) -> tuple[VariablePath, ...] | None:
        """Return the alternative that a tool chose, however it is spelled: the tool's own schema may have
        quotes that are not needed. None if there is no such alternative."""
        try:
            picked = parse(path) if isinstance(path, str) and len(path) <= MAX_PATH_CHARS else None
        except InvalidVariable:
            return None
        text = str(picked) if isinstance(picked, Expression) else None
        return next((a for a in self.alternatives if " && ".join(map(str, a)) == text), None)


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """The arguments of a call as its model wrote them, its variables and its output path."""

    args: dict[str, Any]
    literals: dict[str, Any]  # parameters in which nothing is replaced
    uses: tuple[VariableUse, ...]
    output: OutputPath | None

    def roots(self) -> set[VariablePath]:
        """Return the documents that the variables lead into. Raise VariableError for a variable that leads
        into none."""
        roots = {document_root(path) for use in self.uses for path in use.expression.paths()}
        if sum(root.kind in ("ref", ARTIFACT) for root in roots) > MAX_REFERENCES:
            raise VariableError(
                f"One call may name {MAX_REFERENCES} stored references and artifacts: make several calls."
            )
        return roots


@dataclass(frozen=True, slots=True)
class FilledCall:
    """A call whose variables were replaced by their values."""

    args: dict[str, Any]
    sources: tuple[VariableSource, ...] = ()
    output: OutputPath | None = None
    text: bytes | None = field(default=None, compare=False)
    """The recorded arguments as JSON, if they are large."""

    def with_text(self, text: bytes) -> FilledCall:
        """Return the same call, with its arguments as JSON if they are large."""
        return replace(self, text=text) if len(text) > LIMITS.inline_bytes else self

    def dump(self) -> tuple[bytes, bytes]:
        sources = [[list(s.place), s.variable, s.type, s.size_bytes, s.glimpse] for s in self.sources]
        return orjson.dumps(self.args), orjson.dumps(sources)  # the strict parser accepted all values

    @classmethod
    def load(cls, args: bytes, filled: bytes, output: OutputPath | None) -> FilledCall:
        """Parse what `dump` returned. Call it through `offload`."""
        sources = (VariableSource(tuple(place), *rest) for place, *rest in orjson.loads(filled))
        return cls(loads(args), tuple(sources), output).with_text(args)


# -- parsing


def parse_call(args: Mapping[str, Any], literal: Iterable[str], prescribed: str | None) -> ParsedCall:
    """Return the arguments, their variables and the path of the result. `prescribed` is the path that the
    tool itself declares. Raise VariableError."""
    plain = {key: value for key, value in args.items() if key not in (OUTPUT_PATH, OUTPUT_METHOD)}
    literals = {key: plain.pop(key) for key in literal if key in plain}
    path, method = args.get(OUTPUT_PATH, prescribed), args.get(OUTPUT_METHOD, MISSING)
    if prescribed is not None and path != prescribed:
        raise VariableError(f"{OUTPUT_PATH}: the results of this tool go to {prescribed}; leave it out.")
    if count_path_parts(plain) > MAX_PARTS:
        raise VariableError(
            f"The variables of one call have more than {MAX_PARTS} parts in total: make several calls."
        )
    uses, problems = find_variables(plain)
    if sum(len(alternative) for one in uses for alternative in one.expression.alternatives) > MAX_VARIABLES:
        raise VariableError(f"One call may have {MAX_VARIABLES} variables: make several calls.")
    if problems:
        listed = "; ".join(f"{p.pointer} is {preview(p.text)}: {p.message}" for p in problems[:5])
        raise VariableError(
            f"{listed}. A text that starts with {DAGGER} but is not a variable is written with two of them."
        )
    return ParsedCall(plain, literals, tuple(uses), _parse_output(path, method))


def count_path_parts(value: Any) -> int:
    """Return about how many parts the paths of all variables in a value have, without parsing them."""
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
    for target in parsed.paths():
        if target.kind in READ_ONLY:
            raise VariableError(
                f"{OUTPUT_PATH}: {preview(str(target))} cannot be written, {DAGGER}{target.kind} is read-only. Write "
                f"to {DAGGER}state, to {DAGGER}memory or to a data object of the query, such as {DAGGER}results."
            )
    return OutputPath(parsed.alternatives, "set" if method is MISSING else method)


def document_root(path: VariablePath) -> VariablePath:
    """Return the document that a path leads into. Raise VariableError."""
    if path.kind == ARTIFACT:
        if not path.path:
            raise VariableError(
                f"{preview(str(path))}: an artifact is {DAGGER}artifact.<id>, its text {DAGGER}artifact.<id>.content."
            )
        wants_text = len(path.path) > 1 and path.path[1].key == CONTENT
        return VariablePath(ARTIFACT, path.path[: 2 if wants_text else 1])
    if path.kind != "ref":
        return VariablePath(path.kind)
    if len(path.path) < 2:
        raise VariableError(
            f"{preview(str(path))}: a stored reference is {DAGGER}ref.<Kind>.<id>, as its handle says."
        )
    return VariablePath("ref", path.path[:2])


def is_text(root: VariablePath) -> bool:
    """Return whether a document is the text of an artifact rather than its record."""
    return root.kind == ARTIFACT and len(root.path) > 1


# -- filling


def lookup_in(values: Values) -> Lookup:
    """Return the function from a path to its value in these documents."""

    def lookup(path: VariablePath) -> Any:
        root = document_root(path)
        return resolve_path(values.get(root, MISSING), path.path[len(root.path) :])

    return lookup


def fill_call(
    call: ParsedCall,
    values: Values,
    kinds: Iterable[str],
    why: Mapping[VariablePath, str],
    usable: Callable[[VariablePath], bool] = lambda _: True,
) -> FilledCall:
    """Return the call with its values. `kinds` are the kinds that exist, `why` the reasons for missing documents. A path
    that is not `usable` has no value, whatever the documents contain. Raise VariableError."""
    values_by_path = _read_paths(call, values)

    def lookup(path: VariablePath) -> Any:
        return values_by_path[path] if usable(path) else MISSING

    resolved: dict[str, tuple[Any, int]] = {}
    size, sources = 0, []
    for use in call.uses:
        if use.text not in resolved:
            value = evaluate(use.expression, lookup)
            if value is MISSING:
                reasons = _missing_reasons(use.expression, values, lookup, kinds, why)
                raise VariableError(f"{use.pointer} is {preview(use.text)}, which has no value: {reasons}")
            resolved[use.text] = value, len(orjson.dumps(value))  # the strict parser accepted it
        value, size_bytes = resolved[use.text]
        size += size_bytes
        if size > MAX_REPLACED_BYTES:
            raise VariableError(
                f"With {preview(use.text)} at {use.pointer} the values of this call's variables have more than "
                f"{MAX_REPLACED_BYTES} bytes of JSON: pass references by their handles."
            )
        sources.append(
            VariableSource(use.place, use.text, json_type(value), size_bytes, glimpse_value(value))
        )

    def value_of(text: str) -> Any:
        return resolved[text][0] if text in resolved else parse(text)  # the latter: a text with two daggers

    args = {**replace_variables(call.args, value_of), **call.literals}
    if sources and nesting_depth(args) > MAX_DEPTH:
        raise VariableError(f"With their values the arguments are nested deeper than {MAX_DEPTH}.")
    return FilledCall(args, tuple(sources), call.output)


class DocumentCache(Mapping[VariablePath, Any]):
    """Documents by their roots. Only the last one that was read stays parsed."""

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


def _read_paths(call: ParsedCall, values: Values) -> dict[VariablePath, Any]:
    """Return the value behind each path of the call, one document after the other, so that no two must be
    in memory at once."""
    paths_by_root: dict[VariablePath, dict[VariablePath, None]] = {}
    for use in call.uses:
        for path in use.expression.paths():
            paths_by_root.setdefault(document_root(path), {})[path] = None
    values_by_path: dict[VariablePath, Any] = {}
    for root, paths in paths_by_root.items():
        document = values.get(root, MISSING)
        for path in paths:
            values_by_path[path] = resolve_path(document, path.path[len(root.path) :])
    return values_by_path


def _missing_reasons(
    expression: Expression,
    values: Values,
    lookup: Lookup,
    kinds: Iterable[str],
    why: Mapping[VariablePath, str],
) -> str:
    """Return why the first few alternatives have no value, as a sentence."""
    reasons = missing_reasons(expression, values, lookup, sorted(kinds), why)
    return reasons if reasons.endswith(("?", ".")) else f"{reasons}."


def missing_reasons(
    expression: Expression,
    values: Values,
    lookup: Lookup,
    kinds: Sequence[str],
    why: Mapping[VariablePath, str],
) -> str:
    """Return why the first few alternatives have no value, without a full stop."""
    alternatives = expression.alternatives[:_MAX_REASONS]
    missing = (next(path for path in alternative if lookup(path) is MISSING) for alternative in alternatives)
    reasons = [missing_reason(path, values, kinds, why).rstrip(".") for path in missing]
    left = len(expression.alternatives) - len(reasons)
    return "; ".join([*reasons, *([f"and {left} more alternatives"] if left else [])])


def missing_reason(
    path: VariablePath, values: Values, kinds: Sequence[str], why: Mapping[VariablePath, str]
) -> str:
    """Return why a path leads to no value."""
    root = document_root(path)
    if root in why:
        return why[root]
    value = values.get(root, MISSING)
    if value is MISSING:
        kind = truncate_text(path.kind, _NAME_CHARS)
        known = [truncate_text(name, _NAME_CHARS) for name in kinds]
        return f"there is no {DAGGER}{kind}{did_you_mean(kind, known)}"
    at = len(root.path)
    for segment in path.path[at:]:
        if (inner := resolve_path(value, (segment,))) is MISSING:
            break
        value, at = inner, at + 1
    parent = preview(str(replace(path, path=path.path[:at])))
    if at == len(path.path):
        return f"the action that writes {parent} did not"
    segment = path.path[at]
    if not isinstance(value, Mapping):
        return f"{parent} is {json_type(value)}"
    names = [
        to_printable(truncate_text(key, _NAME_CHARS))
        for key, _ in zip(value, range(_NAMES_SHOWN), strict=False)
    ]
    hint = (
        did_you_mean(to_printable(truncate_text(segment.key, _NAME_CHARS)), names)
        or f"; it has {', '.join(map(preview, names[:8]))} and more"
    )
    return f"{parent} has no {preview(segment.key)}{hint if names else ', it is empty'}"


def preview(text: str) -> str:
    """Return a text from a model or a document for use in a message: on one line, and truncated."""
    return to_printable_json(orjson.dumps(truncate_text(text, 200)).decode())


# -- describing


def describe_errors(errors: Iterable[FieldError], sources: Sequence[VariableSource]) -> tuple[str, bool]:
    """Return what is wrong with arguments, and whether the value of a variable is wrong. The message names the
    variable and both types, and repeats nothing of the value."""
    by_variable, listed = False, []
    for error in errors:
        source = next((s for s in sources if _points_into(s, error.pointer)), None)
        requirement = error.message.partition(", not ")[0]
        if source is None:
            hides = any(_is_below(s, error.pointer) for s in sources)
            listed.append(f"{error.pointer or '/'}: {_rule_error(requirement) if hides else error.message}")
            continue
        by_variable = True
        listed.append(f"{error.pointer}: {_variable_error(error.pointer, source, requirement)}")
    return "; ".join(listed), by_variable


def _variable_error(pointer: str, source: VariableSource, requirement: str) -> str:
    """Return what is wrong with the value of a variable, or with a part of it: what the schema requires,
    and nothing of the value."""
    variable = preview(source.variable)
    if requirement.startswith("these properties are not allowed"):
        requirement = "it has properties that are not allowed"
    elif requirement.startswith("must "):
        requirement = f"this {requirement}"
    elif not requirement.startswith(_RULES_ALONE):
        requirement = ""
    if pointer == json_pointer(source.place):
        subject = f"{variable} is {source.type}"
        return f"{subject}, and {requirement}" if requirement else f"{subject} that does not match"
    return f"in {variable}, {requirement}" if requirement else f"in {variable}, this does not match"


def _points_into(source: VariableSource, pointer: str) -> bool:
    own = json_pointer(source.place)
    return pointer == own or pointer.startswith(f"{own}/")


def _rule_error(requirement: str) -> str:
    """Return what a schema requires, for rules whose message repeats no value."""
    return requirement if requirement.startswith(_RULES_ALONE) else "it does not match the schema"


def _is_below(source: VariableSource, pointer: str) -> bool:
    return json_pointer(source.place).startswith(f"{pointer}/")


def approval_glimpses(call: FilledCall) -> dict[str, Any]:
    """Return what events and lists show of the subject: the arguments, with large values of variables as a
    glimpse and size, and which value came from which variable. A value behind a reference is only in the subject; its
    variable stands for it here."""
    if not call.sources:
        return {"args": call.args}
    glimpses: dict[tuple[str | int, ...], Any] = {}
    for source in call.sources:
        if source.reads_reference():
            glimpses[source.place] = source.variable
        elif source.size_bytes > LARGE_BYTES:
            glimpses[source.place] = {"glimpse": source.glimpse, "sizeBytes": source.size_bytes}
    return {"args": _replace_at(call.args, glimpses), "variables": [s.wire() for s in call.sources]}


def _replace_at(args: Any, values: Mapping[tuple[str | int, ...], Any]) -> Any:
    """Return the arguments with other values at some places. Containers on the way to them are copied once."""
    out: Any = dict(args)
    copied: dict[tuple[str | int, ...], Any] = {(): out}
    for place, value in values.items():
        container = out
        for n in range(1, len(place)):
            if place[:n] not in copied:
                inner = container[place[n - 1]]
                copied[place[:n]] = container[place[n - 1]] = inner.copy()
            container = copied[place[:n]]
        container[place[-1]] = value
    return out
