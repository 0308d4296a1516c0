"""Reading a plan's JSON Schema: its array of actions, their discriminator and their kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

DEFAULT_DISCRIMINATOR: Final = "kind"
_MAX_HOPS: Final = 32
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


def resolve(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """Return `schema` with its own local `$ref` followed, or an empty mapping if it leads nowhere."""
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, Mapping):
            return {}
        target = schema.get("$ref")
        if not isinstance(target, str):
            return schema
        schema = _lookup(root, target)
    return {}


def _lookup(root: Mapping[str, Any], target: str) -> Any:
    if target == "#":
        return root
    if not target.startswith("#/"):
        return None
    found: Any = root
    for step in target[2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


def actions_schema(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema of the top-level array `actions`, or None if there is none."""
    properties = resolve(schema, schema).get("properties")
    actions = resolve(schema, properties.get("actions")) if isinstance(properties, Mapping) else {}
    return actions if actions.get("type") == "array" else None


def variants(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the object schemas that an action of the plan may have, references followed."""
    actions, field = actions_schema(schema), discriminator(schema)
    items = resolve(schema, actions.get("items")) if actions is not None else {}
    seen: set[int] = set()  # each schema once, however many references lead to it
    waiting = [items]
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        choices = current.get("oneOf") or current.get("anyOf")
        if isinstance(choices, list) and not _has_kind(schema, current, field):
            waiting += [resolve(schema, choice) for choice in choices]
        elif current:
            yield current


def _has_kind(root: Mapping[str, Any], schema: Mapping[str, Any], field: str) -> bool:
    """Return whether the schema itself names the kind: its alternatives are then about other fields."""
    properties = schema.get("properties")
    held = resolve(root, properties.get(field)) if isinstance(properties, Mapping) else {}
    return isinstance(held.get("const"), str)


def discriminator(schema: Mapping[str, Any]) -> str:
    """Return the name of the field that distinguishes kinds of action; "kind" if the schema does not name one."""
    actions = actions_schema(schema)
    items = resolve(schema, actions.get("items")) if actions is not None else {}
    declared = items.get("discriminator")
    name = declared.get("propertyName") if isinstance(declared, Mapping) else None
    return name if isinstance(name, str) else DEFAULT_DISCRIMINATOR


def action_kinds(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the kinds of action that the plan can hold, or None if the schema leaves them open."""
    field = discriminator(schema)
    kinds: set[str] = set()
    for variant in variants(schema):
        properties = variant.get("properties")
        held = resolve(schema, properties.get(field)) if isinstance(properties, Mapping) else {}
        if isinstance(held.get("const"), str):
            kinds.add(held["const"])
        elif isinstance(held.get("enum"), list):
            kinds.update(value for value in held["enum"] if isinstance(value, str))
        else:
            return None
    return frozenset(kinds) or None


def move_references(schema: Any, move: Callable[[str], str]) -> Any:
    """Return a copy of the schema in which `move` was applied to the target of each `$ref`."""
    if isinstance(schema, list):
        return [move_references(held, move) for held in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved: dict[str, Any] = {}
    for key, held in schema.items():
        if key in _DATA:
            moved[key] = held
        elif key == "$ref" and isinstance(held, str):
            moved[key] = move(held)
        elif key in _MAPS and isinstance(held, Mapping):
            moved[key] = {name: move_references(inner, move) for name, inner in held.items()}
        else:
            moved[key] = move_references(held, move)
    return moved
