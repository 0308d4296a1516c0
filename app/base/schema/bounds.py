"""Bounds on schemas: those with external references and those that would stall a validator are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from plangate.spec.patterns import COSTLY_PATTERNS, costly_pattern
from plangate.spec.schema_walk import REFERENCE_KEYWORDS

from app.base.schema.messages import quote
from app.base.schema.parts import SHELVES, UNEVALUATED, References, Schema, subschemas, walk_objects

_MAX_UNFOLDED: Final = 50_000  # subschemas, when every reference is followed
_MAX_LEVELS: Final = 200  # of subschemas inside one another, references followed; the validator recurses
_DIALECTS: Final = frozenset(
    f"{scheme}://json-schema.org/{name}/schema"
    for scheme in ("http", "https")
    for name in ("draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12")
)


class InvalidSchema(ValueError):
    """A schema that this service does not take; `pointer` (RFC 6901) says where in it, `message` why."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(f"{message} (at {pointer or 'the root of the schema'})")
        self.pointer = pointer
        self.message = message


def validate_references(root: Schema) -> None:
    """Raise InvalidSchema for external references and unknown dialects.

    Data is not searched: {"const": {"$ref": ...}} refers to nothing. A reference that leads into such data is
    refused by `validate_size`.
    """
    nested_id, reference = None, None
    dialects = [schema.get("$schema") for _, schema in walk_objects(root)]
    id_keywords = ("$id", "id") if any(isinstance(d, str) and "draft-04" in d for d in dialects) else ("$id",)
    for pointer, schema in walk_objects(root):
        for keyword in REFERENCE_KEYWORDS:
            if not isinstance(target := schema.get(keyword), str):
                continue
            reference = f"{pointer}/{keyword}"
            if not target.startswith("#"):
                raise InvalidSchema(
                    reference,
                    f"{keyword} {quote(target)} leaves the document; put the schema into $defs and refer to "
                    f"#/$defs/...: nothing is fetched",
                )
        dialect = schema.get("$schema")
        if isinstance(dialect, str) and dialect.rstrip("#") not in _DIALECTS:
            raise InvalidSchema(f"{pointer}/$schema", f"the dialect {quote(dialect)} is not known")
        if pointer and any(isinstance(schema.get(keyword), str) for keyword in id_keywords):
            nested_id = pointer
    if nested_id is not None and reference is not None:
        # Inside of an $id, # means that part and not the document; too few need both to do it right.
        raise InvalidSchema(nested_id, "a schema with references cannot hold another $id below its root")


def validate_size(references: References, root: Schema) -> None:
    """Raise InvalidSchema when following every reference makes the schema too large, or too deep for a stack.

    A reference back to a schema that is being followed counts once: the validator remembers those.
    """
    known: dict[int, tuple[int, int]] = {}
    followed: set[int] = set()

    def unfolded(schema: Any, depth: int) -> tuple[int, int]:
        """Return the numbers of subschemas and of levels."""
        if not isinstance(schema, Mapping):
            return 1, 1
        if depth > _MAX_LEVELS:
            raise InvalidSchema("", f"the schema and its references nest deeper than {_MAX_LEVELS} levels")
        if references.is_data(schema):
            raise InvalidSchema("", "a reference leads into data (const, enum, default or examples)")
        if id(schema) in followed and references.unevaluated is not None:
            raise InvalidSchema(references.unevaluated, "unevaluated... cannot stand in a recursive schema")
        if id(schema) not in known:
            known[id(schema)] = 1, 1
            followed.add(id(schema))
            inner = [
                inner_schema
                for keyword in schema
                if keyword not in SHELVES
                for inner_schema in subschemas(schema, keyword)
            ]
            parts = [unfolded(part, depth + 1) for part in [*inner, *references.of(schema)]]
            again = 3 ** sum(keyword in schema for keyword in UNEVALUATED)
            total = again * (1 + sum(count for count, _ in parts))
            known[id(schema)] = total, 1 + max((levels for _, levels in parts), default=0)
            followed.remove(id(schema))
        return known[id(schema)]

    count, levels = unfolded(root, 0)
    if count > _MAX_UNFOLDED:
        raise InvalidSchema("", f"with its references followed the schema has over {_MAX_UNFOLDED:,} parts")
    if levels > _MAX_LEVELS:
        raise InvalidSchema("", f"the schema and its references nest deeper than {_MAX_LEVELS} levels")


def size_error(root: Schema) -> InvalidSchema | None:
    """Return why the expansion of a schema's references is too large, or None. A schema with external references is
    not examined."""
    try:
        validate_references(root)
    except InvalidSchema:
        return None
    try:
        validate_size(References(root), root)
    except InvalidSchema as error:
        return error
    return None


def validate_patterns(root: Schema) -> None:
    """Raise InvalidSchema if the patterns take too long to compile, because that holds the GIL."""
    pointer = costly_pattern(walk_objects(root))
    if pointer is not None:
        raise InvalidSchema(pointer, COSTLY_PATTERNS)
