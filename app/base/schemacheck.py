"""JSON Schema for what tenants write: tool arguments and results, inputs, state, final answers.

A tenant's schema is hostile until shown otherwise. So nothing is ever fetched: a reference that leaves the
document is refused, and the validator is offline as well. Patterns run on the engine that is linear in the
text; it knows no lookaround and no back-references, and a schema that needs them is refused. Three more ways
to stall a validator were measured with jsonschema_rs 0.60:

- 26 definitions that each refer to the next one twice cost 2**26 steps (0.8 s; recursion proper is memoised,
  so cycles cost nothing). Hence a schema may not unfold to more than 50,000 subschemas.
- `unevaluatedProperties` evaluates its neighbours again and remembers nothing: nested 20 deep over {"a": 1}
  it took 9 s, in a recursive schema over a deep value it never ended. Hence it counts threefold among the
  subschemas, and a recursive schema cannot have it.
- `iter_errors` and `validate` build every error with a copy of the value before the first one is seen: 1,000
  failing branches over a list of 100,000 numbers took 17 s and 6 GB, and a recursive union 60 levels deep
  never ends, where `is_valid` takes 0.1 ms. Hence validity is asked first, and errors are only built when a
  walk with a budget says that they are cheap (about 0.2 s at worst); else one flaw says that the value does
  not match.

The dialect is the schema's `$schema`, 2020-12 without one. 1.0 is an integer, as the standard says. `format`
is an annotation, as 2020-12 says, in every dialect; unknown formats and keywords are ignored.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import jsonschema_rs
import orjson

from app.base.errors import Flaw
from app.base.jsongate import NotJson, canonical

Schema: TypeAlias = Mapping[str, Any] | bool

_MESSAGE_CHARS: Final = 200
_VALUE_CHARS: Final = 60  # of an offending value that a message repeats
_BRANCHES_SHOWN: Final = 4
_MAX_UNFOLDED: Final = 50_000  # subschemas, when every reference is followed
_MAX_LEVELS: Final = 200  # of subschemas inside one another, references followed; the validator recurses
_ERROR_BUDGET: Final = 4_000_000  # bytes of errors we are ready to have built; 30 ns each when all are
_ERROR_BYTES: Final = 600  # what an error costs beside the copies in it: 16 µs
_VISIT_BYTES: Final = 20  # what this walk itself costs where no error is possible

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")  # each evaluates what is beside it again
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
# Keywords by what they hold. What is in no list is taken for a schema that others may refer to.
_SHELVES: Final = ("$defs", "definitions")  # apply to nothing until something refers to them
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
_MAPS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
# Keywords by which value their schemas meet.
_SAME: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_ELEMENTS: Final = ("items", "prefixItems", "contains", "additionalItems", "unevaluatedItems")
_MEMBERS: Final = ("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames")
_DIALECTS: Final = frozenset(
    f"{scheme}://json-schema.org/{name}/schema"
    for scheme in ("http", "https")
    for name in ("draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12")
)


class SchemaRefused(ValueError):
    """A schema that this service does not take; `pointer` (RFC 6901) says where in it, `message` why."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(f"{message} (at {pointer or 'the root of the schema'})")
        self.pointer = pointer
        self.message = message


class CompiledSchema:
    """A schema that was accepted, ready to check values; made by `SchemaChecker.compile`, safe to share."""

    def __init__(self, references: _References, validator: jsonschema_rs.Validator, digest: bytes) -> None:
        self.digest = digest  # SHA-256 of the canonical schema
        self._references = references
        self._validator = validator

    def is_valid(self, value: Any) -> bool:
        """Whether `value`, JSON as `jsongate.parse` makes it, matches; False where it is seen to be none."""
        try:
            return self._validator.is_valid(value)
        except ValueError:
            return False

    def errors(self, value: Any, limit: int = 20) -> list[Flaw]:
        """What is wrong with `value`, at most `limit` flaws; none when it matches.

        Pointers lead into the value. Messages are at most 200 characters and repeat values only in part. For
        a value that is too large for its schema to be explained there is one flaw, at the root.
        """
        try:
            if self._validator.is_valid(value):
                return []
            if _affordable(self._references, value):
                found = islice(self._validator.iter_errors(value), limit)
                if flaws := [Flaw(_pointer(error.instance_path), _message(error)) for error in found]:
                    return flaws
        except ValueError as error:
            return [Flaw("", _cut(f"the value is not JSON: {error}", _MESSAGE_CHARS))]
        return [Flaw("", "the value does not match the schema, and is too large or too deep to say where")]


class SchemaChecker:
    """Compiles schemas and keeps the most recently used ones, by digest. Safe to share between threads."""

    def __init__(self, capacity: int = 512) -> None:
        """`capacity` is the number of compiled schemas that are kept."""
        self._capacity = capacity
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, CompiledSchema] = OrderedDict()

    def compile(self, schema: Schema) -> CompiledSchema:
        """The compiled schema. Raises SchemaRefused with the place and the reason."""
        try:
            text = canonical(schema if isinstance(schema, bool) else dict(schema))
        except NotJson as error:
            raise SchemaRefused("", _cut(str(error), _MESSAGE_CHARS)) from error
        digest = hashlib.sha256(text).digest()
        with self._lock:
            if (kept := self._kept.get(digest)) is not None:
                self._kept.move_to_end(digest)
                return kept
        compiled = _compiled(orjson.loads(text), digest)
        with self._lock:
            self._kept[digest] = compiled
            while len(self._kept) > self._capacity:
                self._kept.popitem(last=False)
        return compiled


def _compiled(schema: Schema, digest: bytes) -> CompiledSchema:
    """`schema` is our own copy, so nobody changes it behind the cache."""
    _refuse_foreign(schema)
    references = _References(schema)
    _refuse_bombs(references, schema)
    plain: Any = schema
    try:
        validator = jsonschema_rs.validator_cls_for(plain)(
            plain, validate_formats=False, pattern_options=jsonschema_rs.RegexOptions(), offline=True
        )
    except jsonschema_rs.ValidationError as error:
        pointer = _pointer(error.instance_path) or references.first_dangling()
        raise SchemaRefused(pointer, _schema_message(error)) from error
    except ValueError as error:
        raise SchemaRefused("", _cut(f"the schema cannot be compiled: {error}", _MESSAGE_CHARS)) from error
    return CompiledSchema(references, validator, digest)


# Reading schemas.


def _held(schema: Mapping[str, Any], keyword: str) -> Sequence[Any]:
    """The schemas that a keyword holds: one, a list of them, or a map of them by name."""
    held = schema.get(keyword)
    if keyword in _DATA or held is None:
        return ()
    if isinstance(held, list):
        return held
    return tuple(held.values()) if isinstance(held, Mapping) and keyword in _MAPS else (held,)


def _everywhere(root: Schema) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(pointer, schema) of every object of the document that is a schema, or may be one."""
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        pointer, schema = stack.pop()
        if not isinstance(schema, Mapping):
            continue
        yield pointer, schema
        for keyword, held in schema.items():
            steps: Iterable[Any] = ()
            if isinstance(held, Mapping) and keyword in _MAPS:
                steps = held
            elif isinstance(held, list):
                steps = range(len(held))
            here = f"{pointer}/{_escaped(keyword)}"
            below = (
                [here]
                if not steps and isinstance(held, Mapping)
                else [f"{here}/{_escaped(str(step))}" for step in steps]
            )
            stack += zip(below, _held(schema, keyword), strict=False)


def _refuse_foreign(root: Schema) -> None:
    """Raise SchemaRefused for references that leave the document, and dialects that nobody here knows.

    Data is not searched: {"const": {"$ref": ...}} refers to nothing. A reference that leads into such data is
    refused by `_refuse_bombs`.
    """
    nested_id, reference = None, None
    dialects = [schema.get("$schema") for _, schema in _everywhere(root)]
    id_keywords = ("$id", "id") if any(isinstance(d, str) and "draft-04" in d for d in dialects) else ("$id",)
    for pointer, schema in _everywhere(root):
        for keyword in _REFERENCES:
            if not isinstance(target := schema.get(keyword), str):
                continue
            reference = f"{pointer}/{keyword}"
            if not target.startswith("#"):
                raise SchemaRefused(
                    reference,
                    f"{keyword} {_shown(target)} leaves the document; put the schema into $defs and refer to "
                    f"#/$defs/...: nothing is fetched",
                )
        dialect = schema.get("$schema")
        if isinstance(dialect, str) and dialect.rstrip("#") not in _DIALECTS:
            raise SchemaRefused(f"{pointer}/$schema", f"the dialect {_shown(dialect)} is not known")
        if pointer and any(isinstance(schema.get(keyword), str) for keyword in id_keywords):
            nested_id = pointer
    if nested_id is not None and reference is not None:
        # Inside of an $id, # means that part and not the document; too few need both to do it right.
        raise SchemaRefused(nested_id, "a schema with references cannot hold another $id below its root")


class _References:
    """What the references of a document mean. All begin with #, see `_refuse_foreign`."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self._anchors: dict[str, Any] = {}
        self._schemas: set[int] = set()
        self.unevaluated: str | None = None  # the pointer to one of these keywords, if there is any
        for pointer, schema in _everywhere(root):
            self._schemas.add(id(schema))
            for keyword in _UNEVALUATED:
                if keyword in schema:
                    self.unevaluated = f"{pointer}/{keyword}"
            for keyword in _ANCHORS:
                if isinstance(name := schema.get(keyword), str):
                    self._anchors.setdefault(name, schema)

    def of(self, schema: Mapping[str, Any]) -> list[Any]:
        """The schemas that `schema` itself refers to; None where there is none."""
        targets = [schema[keyword] for keyword in _REFERENCES if keyword in schema]
        return [self._resolved(target) for target in targets if isinstance(target, str)]

    def is_data(self, target: Any) -> bool:
        """Whether the target of a reference is an object inside of data, such as a default, and no schema."""
        return isinstance(target, Mapping) and id(target) not in self._schemas

    def first_dangling(self) -> str:
        """The pointer to a reference that leads nowhere, or ''."""
        for pointer, schema in _everywhere(self.root):
            for keyword in _REFERENCES:
                if isinstance(target := schema.get(keyword), str) and self._resolved(target) is None:
                    return f"{pointer}/{keyword}"
        return ""

    def _resolved(self, target: str) -> Any:
        name = unquote(target[1:])
        if name and not name.startswith("/"):
            return self._anchors.get(name)
        found: Any = self.root
        for step in name.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping):
                found = found.get(step)
            elif isinstance(found, list) and step.isdecimal() and len(step) < 8 and int(step) < len(found):
                found = found[int(step)]
            else:
                return None
        return found


def _refuse_bombs(references: _References, root: Schema) -> None:
    """Raise SchemaRefused when following every reference makes the schema too large, or too deep for a stack.

    A reference back to a schema that is being followed counts once: the validator remembers those.
    """
    known: dict[int, tuple[int, int]] = {}
    followed: set[int] = set()

    def unfolded(schema: Any, depth: int) -> tuple[int, int]:
        """(subschemas, levels)"""
        if not isinstance(schema, Mapping):
            return 1, 1
        if depth > _MAX_LEVELS:
            raise SchemaRefused("", f"the schema and its references nest deeper than {_MAX_LEVELS} levels")
        if references.is_data(schema):
            raise SchemaRefused("", "a reference leads into data (const, enum, default or examples)")
        if id(schema) in followed and references.unevaluated is not None:
            raise SchemaRefused(references.unevaluated, "unevaluated... cannot stand in a recursive schema")
        if id(schema) not in known:
            known[id(schema)] = 1, 1
            followed.add(id(schema))
            inner = [held for keyword in schema if keyword not in _SHELVES for held in _held(schema, keyword)]
            parts = [unfolded(part, depth + 1) for part in [*inner, *references.of(schema)]]
            again = 3 ** sum(keyword in schema for keyword in _UNEVALUATED)
            total = again * (1 + sum(count for count, _ in parts))
            known[id(schema)] = total, 1 + max((levels for _, levels in parts), default=0)
            followed.remove(id(schema))
        return known[id(schema)]

    count, levels = unfolded(root, 0)
    if count > _MAX_UNFOLDED:
        raise SchemaRefused("", f"with its references followed the schema has over {_MAX_UNFOLDED:,} parts")
    if levels > _MAX_LEVELS:
        raise SchemaRefused("", f"the schema and its references nest deeper than {_MAX_LEVELS} levels")


# Whether errors can be afforded.


class _Spent(Exception):
    """The budget is used up."""


def _affordable(references: _References, value: Any) -> bool:
    """Whether building every error that `value` can have stays within the budget."""
    try:
        _Estimate(references).visit(references.root, value)
    except (_Spent, RecursionError):
        return False
    return True


class _Estimate:
    """Walks a schema over a value as a validator without memory would, as if everything failed."""

    def __init__(self, references: _References) -> None:
        self._references = references
        self._left = _ERROR_BUDGET
        self._sizes: dict[int, int] = {}
        self._prices: dict[int, int] = {}

    def visit(self, schema: Any, value: Any) -> None:
        """Spend what the errors of `schema` at `value`, and below, cost. Raises _Spent."""
        if isinstance(schema, Mapping):
            self._left -= self._price(schema) + self._size(value)
        else:
            self._left -= _VISIT_BYTES if schema is True else _ERROR_BYTES + self._size(value)
        if self._left < 0:
            raise _Spent
        if not isinstance(schema, Mapping):
            return
        for target in self._references.of(schema):
            self.visit(target, value)
        for keyword in _SAME:
            for inner in _held(schema, keyword):
                self.visit(inner, value)
        if isinstance(value, Mapping):
            self._visit_members(schema, value)
        elif isinstance(value, list):
            for keyword in _ELEMENTS:
                for inner in _held(schema, keyword):
                    for element in value:
                        self.visit(inner, element)

    def _visit_members(self, schema: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        properties = schema.get("properties")
        for name, member in value.items():
            if isinstance(properties, Mapping) and name in properties:
                self.visit(properties[name], member)
            for keyword in _MEMBERS:
                for inner in _held(schema, keyword):
                    self.visit(inner, member)

    def _price(self, schema: Mapping[str, Any]) -> int:
        """The bytes of the errors that this schema itself can make, the value left out."""
        known = self._prices.get(id(schema))
        if known is None:
            required = schema.get("required")
            names = len(required) if isinstance(required, list) else 0
            copied = [schema[keyword] for keyword in ("enum", "const", "not", "pattern") if keyword in schema]
            known = self._prices[id(schema)] = _ERROR_BYTES * (1 + names) + sum(map(self._size, copied))
        return known

    def _size(self, value: Any) -> int:
        """About the length of the text of a value. Sizes of containers are kept, as visits come again."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, Mapping | list):
            return 8
        known = self._sizes.get(id(value))
        if known is None:
            inner = value.values() if isinstance(value, Mapping) else value
            names = sum(map(len, value)) if isinstance(value, Mapping) else 0
            known = self._sizes[id(value)] = 8 + 8 * len(value) + names + sum(map(self._size, inner))
        return known


# Saying what is wrong.


def _message(error: jsonschema_rs.ValidationError, *, nested: bool = False) -> str:
    """An error in a line, for a person or a model that has to correct the value."""
    kind: Any = error.kind
    name: str = kind.name
    if name == "type":
        text = f"must be {_listed(kind.types)}, not {_described(error.instance)}"
    elif name == "required":
        text = f"the property {_shown(kind.property)} is missing"
    elif name in ("additionalProperties", "unevaluatedProperties"):
        text = f"these properties are not allowed: {', '.join(map(_shown, kind.unexpected))}"
    elif name == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:
        text = "no properties are allowed here"
    elif name == "falseSchema":
        text = f"nothing is allowed here, but there is {_described(error.instance)}"
    elif name in ("enum", "const"):
        options = kind.options if name == "enum" else [kind.expected_value]
        text = f"must be {_listed([_text(option) for option in options])}, not {_described(error.instance)}"
    elif name in ("anyOf", "oneOf") and kind.context and not nested:
        text = _branches(error, kind)
    else:
        text = _without_middle(error.message)
    return _cut(text, _MESSAGE_CHARS)


def _branches(error: jsonschema_rs.ValidationError, kind: Any) -> str:
    """Why each alternative does not match: the first error of each."""
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.OneOfMultipleValid):
        return "matches more than one of the alternatives, where exactly one is wanted"
    depth = len(error.instance_path)
    reasons = []
    for number, failures in enumerate(kind.context[:_BRANCHES_SHOWN], 1):
        if failures:
            below = _pointer(failures[0].instance_path[depth:])
            reason = _cut(_message(failures[0], nested=True), _VALUE_CHARS)
            reasons.append(f"({number}) {f'{below}: ' if below else ''}{reason}")
    return f"matches none of {len(kind.context)} alternatives: {'; '.join(reasons)}"


def _schema_message(error: jsonschema_rs.ValidationError) -> str:
    """Why a schema is not one."""
    if error.message.endswith('is not a "regex"'):
        return (
            f"the pattern {_shown(str(error.instance))} is not one that is matched in linear time: "
            f"lookaround and back-references are not supported, nor are very large repetitions"
        )
    return _message(error)


def _described(value: Any) -> str:
    """A value in a message: whole when it is short, else its beginning or its size."""
    if isinstance(value, Mapping):
        return f"an object of {len(value)} properties"
    if isinstance(value, list):
        return f"an array of {len(value)} items"
    return _text(value)


def _text(value: Any) -> str:
    """JSON text of a value, cut; the long part of a long string is never encoded."""
    if isinstance(value, str):
        return _shown(value)
    try:
        return _cut(canonical(value).decode(), _VALUE_CHARS)
    except NotJson:
        return _cut(str(value), _VALUE_CHARS)


def _listed(options: Sequence[str]) -> str:
    return " or ".join(options) if len(options) < 3 else f"one of {', '.join(options)}"


def _shown(text: str) -> str:
    return orjson.dumps(_cut(text, _VALUE_CHARS)).decode()


def _without_middle(text: str) -> str:
    """The validator's messages begin with the value, which may be huge, and end with the rule."""
    if len(text) <= 3 * _VALUE_CHARS:
        return text
    return f"{text[:_VALUE_CHARS]} … {text[-_VALUE_CHARS:]}"


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def _pointer(path: Sequence[str | int]) -> str:
    return "".join(f"/{_escaped(str(step))}" for step in path)


def _escaped(step: str) -> str:
    """A step as a reference token of a JSON pointer (RFC 6901)."""
    return step.replace("~", "~0").replace("/", "~1")
