"""Reading a plan's JSON Schema: its array of actions, their discriminator and their kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from plangate.json_pointer import look_up, parse_pointer
from plangate.spec.schema_walk import DATA_KEYWORDS, MAP_KEYWORDS

DEFAULT_DISCRIMINATOR: Final = "kind"
_MAX_HOPS: Final = 32


def resolve(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """Return `schema` with its own local `$ref` followed, or an empty mapping if it leads nowhere."""
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, Mapping):
            return {}
        target = schema.get("$ref")
        if not isinstance(target, str):
            return schema
        schema = look_up(root, parse_pointer(target[1:])) if target[:2] in ("#", "#/") else None
    return {}


def actions_schema(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema of the top-level array `actions`, or None if there is none."""
    properties = resolve(schema, schema).get("properties")
    actions = resolve(schema, properties.get("actions")) if isinstance(properties, Mapping) else {}
    return actions if actions.get("type") == "array" else None


def variants(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the object schemas that an action of the plan may have, references followed."""
    actions, field = actions_schema(schema), discriminator(schema)
    items = resolve(schema, actions.get("items")) if actions is not None else {}
    visited: set[int] = set()  # each schema once, however many references lead to it
    waiting = [items]
    while waiting:
        current = waiting.pop(0)
        if id(current) in visited:
            continue
        visited.add(id(current))
        choices = current.get("oneOf") or current.get("anyOf")
        if isinstance(choices, list) and not _has_kind(schema, current, field):
            waiting += [resolve(schema, choice) for choice in choices]
        elif current:
            yield current


def _has_kind(root: Mapping[str, Any], schema: Mapping[str, Any], field: str) -> bool:
    """Return whether the schema itself names the kind: its alternatives are then about other fields."""
    properties = schema.get("properties")
    member = resolve(root, properties.get(field)) if isinstance(properties, Mapping) else {}
    return isinstance(member.get("const"), str)


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
        member = resolve(schema, properties.get(field)) if isinstance(properties, Mapping) else {}
        if isinstance(member.get("const"), str):
            kinds.add(member["const"])
        elif isinstance(member.get("enum"), list):
            kinds.update(value for value in member["enum"] if isinstance(value, str))
        else:
            return None
    return frozenset(kinds) or None


def move_references(schema: Any, move: Callable[[str], str]) -> Any:
    """Return a copy of the schema in which `move` was applied to the target of each `$ref`."""
    if isinstance(schema, list):
        return [move_references(member, move) for member in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved: dict[str, Any] = {}
    for key, member in schema.items():
        if key in DATA_KEYWORDS:
            moved[key] = member
        elif key == "$ref" and isinstance(member, str):
            moved[key] = move(member)
        elif key in MAP_KEYWORDS and isinstance(member, Mapping):
            moved[key] = {name: move_references(inner, move) for name, inner in member.items()}
        else:
            moved[key] = move_references(member, move)
    return moved
