"""The parts of a schema: subschemas in its keywords, and targets of its references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from plangate.json_pointer import look_up, parse_pointer
from plangate.spec.schema_walk import DATA_KEYWORDS, MAP_KEYWORDS, REFERENCE_KEYWORDS, walk_schemas

from app.base.schema.messages import LENIENT

Schema: TypeAlias = Mapping[str, Any] | bool

UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")  # each evaluates what is beside it again
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
# Keywords by what they hold. What is in no list is taken for a schema that others may refer to.
SHELVES: Final = ("$defs", "definitions")  # apply to nothing until something refers to them

PLACEHOLDER_MARK: Final = "\0"
"""A string that begins so stands for a value that is still to come (placeholders.py): no JSON that comes in has this
character."""

PLACEHOLDER_NAME: Final = f"{LENIENT}placeholder"
PLACEHOLDER_SCHEMA: Final = {"$ref": f"#/$defs/{PLACEHOLDER_NAME}"}


def rule_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rule of a schema for a place where a placeholder is allowed too."""
    parts = schema.get("anyOf")
    if isinstance(parts, list) and parts[1:] == [PLACEHOLDER_SCHEMA] and isinstance(parts[0], Mapping):
        return parts[0]
    return schema


def subschemas(schema: Mapping[str, Any], keyword: str) -> Sequence[Any]:
    """Return the schemas that a keyword holds: one, a list of them, or a map of them by name."""
    value = schema.get(keyword)
    if keyword in DATA_KEYWORDS or value is None:
        return ()
    if isinstance(value, list):
        return value
    return tuple(value.values()) if isinstance(value, Mapping) and keyword in MAP_KEYWORDS else (value,)


def walk_objects(root: Schema) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the pointer and the schema of every object of the document that is a schema, or may be one."""
    for pointer, schema in walk_schemas(root):
        if isinstance(schema, Mapping):
            yield pointer, schema


class References:
    """The targets of a document's references. All begin with #, see `validate_references`."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self._anchors: dict[str, Any] = {}
        self._schemas: set[int] = set()
        self.unevaluated: str | None = None  # the pointer to one of these keywords, if there is any
        self.positional = False  # whether what an element must be may depend on its place
        for pointer, schema in walk_objects(root):
            self._schemas.add(id(schema))
            self.positional |= "prefixItems" in schema or isinstance(schema.get("items"), list)
            for keyword in UNEVALUATED:
                if keyword in schema:
                    self.unevaluated = f"{pointer}/{keyword}"
            for keyword in _ANCHORS:
                if isinstance(name := schema.get(keyword), str):
                    self._anchors.setdefault(name, schema)

    def of(self, schema: Mapping[str, Any]) -> list[Any]:
        """Return the schemas that `schema` itself refers to, or None for a reference that leads nowhere."""
        targets = [schema[keyword] for keyword in REFERENCE_KEYWORDS if keyword in schema]
        return [self._resolved(target) for target in targets if isinstance(target, str)]

    def is_data(self, target: Any) -> bool:
        """Return whether a reference leads into data, such as a default, rather than to a schema."""
        return isinstance(target, Mapping) and id(target) not in self._schemas

    def first_dangling(self) -> str:
        """Return the pointer to a reference that leads nowhere, or ''."""
        for pointer, schema in walk_objects(self.root):
            for keyword in REFERENCE_KEYWORDS:
                if isinstance(target := schema.get(keyword), str) and self._resolved(target) is None:
                    return f"{pointer}/{keyword}"
        return ""

    def at(self, path: Iterable[str | int]) -> Any:
        """Return what is at a path in the document, or None."""
        return look_up(self.root, path)

    def _resolved(self, target: str) -> Any:
        name = unquote(target[1:])
        if name and not name.startswith("/"):
            return self._anchors.get(name)
        return self.at(parse_pointer(name))
