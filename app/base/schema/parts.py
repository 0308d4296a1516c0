"""What a schema is made of: the schemas in its keywords, and what its references mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from app.base.schema.messages import LENIENT, escaped

Schema: TypeAlias = Mapping[str, Any] | bool

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")  # each evaluates what is beside it again
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
# Keywords by what they hold. What is in no list is taken for a schema that others may refer to.
SHELVES: Final = ("$defs", "definitions")  # apply to nothing until something refers to them
DATA_KEYWORDS: Final = frozenset({"const", "enum", "default", "examples"})
_MAPS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)

HOLE: Final = "\0"
"""A string that begins so stands for a value that is still to come (placeholders.py): no JSON that comes in has this
character."""

HOLE_NAME: Final = f"{LENIENT}hole"
AT_A_HOLE: Final = {"$ref": f"#/$defs/{HOLE_NAME}"}


def rule_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rule of a schema for a place where a placeholder is allowed too."""
    parts = schema.get("anyOf")
    if isinstance(parts, list) and parts[1:] == [AT_A_HOLE] and isinstance(parts[0], Mapping):
        return parts[0]
    return schema


def held_by(schema: Mapping[str, Any], keyword: str) -> Sequence[Any]:
    """Return the schemas that a keyword holds: one, a list of them, or a map of them by name."""
    held = schema.get(keyword)
    if keyword in DATA_KEYWORDS or held is None:
        return ()
    if isinstance(held, list):
        return held
    return tuple(held.values()) if isinstance(held, Mapping) and keyword in _MAPS else (held,)


def everywhere(root: Schema) -> Iterator[tuple[str, Mapping[str, Any]]]:
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
            here = f"{pointer}/{escaped(keyword)}"
            below = (
                [here]
                if not steps and isinstance(held, Mapping)
                else [f"{here}/{escaped(str(step))}" for step in steps]
            )
            stack += zip(below, held_by(schema, keyword), strict=False)


class References:
    """What the references of a document mean. All begin with #, see `refuse_foreign`."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self._anchors: dict[str, Any] = {}
        self._schemas: set[int] = set()
        self.unevaluated: str | None = None  # the pointer to one of these keywords, if there is any
        self.positional = False  # whether what an element must be may depend on its place
        for pointer, schema in everywhere(root):
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
        targets = [schema[keyword] for keyword in REFERENCES if keyword in schema]
        return [self._resolved(target) for target in targets if isinstance(target, str)]

    def is_data(self, target: Any) -> bool:
        """Return whether a reference leads into data, such as a default, rather than to a schema."""
        return isinstance(target, Mapping) and id(target) not in self._schemas

    def first_dangling(self) -> str:
        """Return the pointer to a reference that leads nowhere, or ''."""
        for pointer, schema in everywhere(self.root):
            for keyword in REFERENCES:
                if isinstance(target := schema.get(keyword), str) and self._resolved(target) is None:
                    return f"{pointer}/{keyword}"
        return ""

    def at(self, path: Iterable[str | int]) -> Any:
        """Return what is at a path in the document, or None."""
        found: Any = self.root
        for step in map(str, path):
            if isinstance(found, Mapping):
                found = found.get(step)
            elif isinstance(found, list) and step.isdecimal() and len(step) < 8 and int(step) < len(found):
                found = found[int(step)]
            else:
                return None
        return found

    def _resolved(self, target: str) -> Any:
        name = unquote(target[1:])
        if name and not name.startswith("/"):
            return self._anchors.get(name)
        return self.at(step.replace("~1", "/").replace("~0", "~") for step in name.split("/")[1:])
