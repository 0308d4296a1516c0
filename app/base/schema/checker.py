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
  walk with a budget says that they are cheap (about 0.2 s at worst) and the value has at most 64 KiB; else the
  first one is found by halves of its longest array, or one error says that the value does not match.

The dialect is the schema's `$schema`, 2020-12 without one. 1.0 is an integer, as the standard says. `format`
is an annotation, as 2020-12 says, in every dialect; unknown formats and keywords are ignored.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import jsonschema_rs
import orjson
from plangate.json_pointer import json_pointer

from app.base.errors import MAX_COLLECTED_ERRORS, FieldError, truncate
from app.base.json.strict_json import NotJson, canonical
from app.base.schema.bounds import InvalidSchema, validate_patterns, validate_references, validate_size
from app.base.schema.costs import affordable
from app.base.schema.messages import MESSAGE_CHARS, schema_message
from app.base.schema.parts import References, Schema
from app.base.schema.placeholders import with_placeholders
from app.base.schema.slices import first_error
from app.base.schema.variants import errors_of

MAX_EXPLAINED_BYTES: Final = 64 * 1024
"""Of a value as JSON: of a larger one only the first error is returned."""

CACHE_BYTES: Final = 4 * 1024 * 1024
"""Of JSON, whose compiled form takes about eighty times as much memory."""
PLACEHOLDERS_WEIGHT: Final = 4  # what a schema with placeholders counts in the cache


class CompiledSchema:
    """A schema that was accepted, ready to check values; made by `SchemaChecker.compile`, safe to share."""

    def __init__(self, references: References, validator: jsonschema_rs.Validator, digest: bytes) -> None:
        self.digest = digest  # SHA-256 of the canonical schema
        self._references = references
        self._validator = validator

    def is_valid(self, value: Any) -> bool:
        """Return whether `value`, as `strict_json.parse` returns it, matches the schema."""
        try:
            return self._validator.is_valid(value)
        except ValueError:
            return False

    def errors(self, value: Any, limit: int = MAX_COLLECTED_ERRORS) -> list[FieldError]:
        """Return what is wrong with `value`, at most `limit` errors; none if it matches.

        Pointers lead into the value. For a union with a `discriminator`, the errors are those of the
        value's own variant. Messages have at most 200 characters and repeat values only in part. Of a value with
        more than 64 KiB, or too large for its schema to be explained, only the first error is returned, or else one
        error at the root.
        """
        try:
            if self._validator.is_valid(value):
                return []
            small = len(orjson.dumps(value)) <= MAX_EXPLAINED_BYTES
            if small and (errors := self._explained(value, limit)) is not None:
                return errors
            if not self._references.positional:
                first = first_error(
                    self._validator.is_valid, lambda part: self._explained(part, limit), value
                )
                if first is not None:
                    return [first]
        except ValueError as error:
            return [FieldError("", truncate(f"the value is not JSON: {error}", MESSAGE_CHARS))]
        return [
            FieldError("", "the value does not match the schema, and is too large or too deep to say where")
        ]

    def _explained(self, value: Any, limit: int) -> list[FieldError] | None:
        """Return the errors, or None if there are none, or too many or too large to build."""
        if not affordable(self._references, value):
            return None
        errors = self._validator.iter_errors(value)
        return (
            list(
                islice(
                    (field for error in errors for field in errors_of(self._references, error)),
                    limit,
                )
            )
            or None
        )


class SchemaChecker:
    """Compiles schemas and keeps the most recently used ones, by digest. Safe to share between threads."""

    def __init__(self, capacity: int = 512, capacity_bytes: int = CACHE_BYTES) -> None:
        """Bound the cache of compiled schemas by number and by total bytes of JSON."""
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._cache: OrderedDict[bytes, tuple[CompiledSchema, int]] = OrderedDict()

    def __reduce__(self) -> tuple[type[SchemaChecker], tuple[int]]:
        """Pickle as an empty checker, for a process of its own."""
        return SchemaChecker, (1,)

    def errors(self, schema: Schema, value: Any, *, placeholders: bool = False) -> list[FieldError]:
        """Return what is wrong with `value`, as `CompiledSchema.errors` does. Call it through `offload`, with the schema and
        the value as bodies: compiling a large schema takes seconds. Raise InvalidSchema."""
        return self.compile(schema, placeholders=placeholders).errors(value)

    def find(self, schema: Schema) -> CompiledSchema | None:
        """Return the compiled schema if it is in the cache. Call it through `offload`, with the schema as body."""
        return self._cached(_digest(_canonical(schema), placeholders=False))

    def compile(self, schema: Schema, *, placeholders: bool = False) -> CompiledSchema:
        """Return the compiled schema; with `placeholders`, the schema for values of which some parts are still to
        come (placeholders.py). Raise InvalidSchema with the place and the reason."""
        text = _canonical(schema)
        digest = _digest(text, placeholders=placeholders)
        if (cached := self._cached(digest)) is not None:
            return cached
        compiled = _compiled(orjson.loads(text), digest, placeholders=placeholders)
        size = len(text) * (PLACEHOLDERS_WEIGHT if placeholders else 1)
        with self._lock:
            if digest not in self._cache:  # else somebody compiled it meanwhile
                self._cache[digest] = compiled, size
                self._bytes += size
            while len(self._cache) > self._capacity or (
                self._bytes > self._capacity_bytes and len(self._cache) > 1
            ):
                self._bytes -= self._cache.popitem(last=False)[1][1]
        return compiled

    def _cached(self, digest: bytes) -> CompiledSchema | None:
        with self._lock:
            cached = self._cache.get(digest)
            if cached is None:
                return None
            self._cache.move_to_end(digest)
            return cached[0]


def _canonical(schema: Schema) -> bytes:
    try:
        return canonical(schema if isinstance(schema, bool) else dict(schema))
    except NotJson as error:
        raise InvalidSchema("", truncate(str(error), MESSAGE_CHARS)) from error


def _digest(text: bytes, *, placeholders: bool) -> bytes:
    return hashlib.sha256(b"placeholders" + text if placeholders else text).digest()


def _compiled(schema: Schema, digest: bytes, *, placeholders: bool) -> CompiledSchema:
    """Compile a schema. `schema` is our own copy, so nothing changes it behind the cache."""
    validate_references(schema)
    references = References(schema)
    validate_size(references, schema)
    validate_patterns(schema)
    try:
        validator = _validator(schema)
        if placeholders and isinstance(schema, Mapping):
            references, validator = _with_placeholders(schema)
    except jsonschema_rs.ValidationError as error:
        pointer = json_pointer(error.instance_path) or references.first_dangling()
        raise InvalidSchema(pointer, schema_message(error)) from error
    except ValueError as error:
        raise InvalidSchema("", truncate(f"the schema cannot be compiled: {error}", MESSAGE_CHARS)) from error
    return CompiledSchema(references, validator, digest)


def _with_placeholders(schema: Mapping[str, Any]) -> tuple[References, jsonschema_rs.Validator]:
    widened: Schema = with_placeholders(schema)
    try:
        return References(widened), _validator(widened)
    except (jsonschema_rs.ValidationError, ValueError):
        # A reference leads into a rule that was left out. Everything is checked once the values have come.
        return References(True), _validator(True)


def _validator(schema: Any) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_cls_for(schema)(
        schema, validate_formats=False, pattern_options=jsonschema_rs.RegexOptions(), offline=True
    )
