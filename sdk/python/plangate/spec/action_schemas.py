"""The references and the output path that the schema of an action declares. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from plangate.spec.plan_schemas import discriminator, resolve, variants
from plangate.spec.variable_schemas import META_PARAMETERS, OUTPUT_PATH

REFERENCES: Final = "references"
META_FIELDS: Final = (REFERENCES, *META_PARAMETERS)
"""Fields of an action that are kept beside its payload."""


@dataclass(frozen=True, slots=True)
class ActionMeta:
    """The meta fields that a kind of action declares and requires. `output_path` is the path that it prescribes."""

    declared: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    output_path: str | None = None


NO_META: Final = ActionMeta()


class ActionMetas(dict[str | None, ActionMeta]):
    """The declarations of each kind of action; None stands for open kinds."""

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any]) -> ActionMetas:
        """Read the schema of a plan."""
        field = discriminator(schema)
        schemas = cls()
        for variant in variants(schema):
            properties, required = variant.get("properties"), variant.get("required")
            members = properties if isinstance(properties, Mapping) else {}
            needed = frozenset(required if isinstance(required, list) else ()) & set(META_FIELDS)
            path = resolve(schema, members.get(OUTPUT_PATH)).get("const")
            meta = ActionMeta(
                frozenset(name for name in META_FIELDS if name in members) | needed,
                needed,
                path if isinstance(path, str) else None,
            )
            for kind in _kinds(resolve(schema, members.get(field))):
                schemas.setdefault(kind, meta)
        return schemas

    def of(self, kind: Any) -> ActionMeta:
        """Return what this kind of action declares."""
        own = self.get(kind) if isinstance(kind, str) else None
        return own or self.get(None) or NO_META


def _kinds(schema: Mapping[str, Any]) -> list[str | None]:
    if isinstance(schema.get("const"), str):
        return [schema["const"]]
    if isinstance(schema.get("enum"), list):
        return [kind for kind in schema["enum"] if isinstance(kind, str)]
    return [None]
