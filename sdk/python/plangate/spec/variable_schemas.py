"""The schemas of tools for an agent with the toolkit `variables`: what it is told, and what a call is checked against
once its variables are values. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from plangate.spec.models import AgentSpec
from plangate.spec.variables import DAGGER, PATTERN

TOOLKIT: Final = "variables"
OUTPUT_PATH: Final = "_outputPath"
OUTPUT_METHOD: Final = "_outputMethod"
OUTPUT_METHODS: Final = ("set", "merge", "assign", "push", "concat")
KEPT_AS_WRITTEN: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({"storePlan": ("body",)})
"""Tool -> the parameters in which nothing is replaced: what is in a plan is not the call's."""

_META: Final = (OUTPUT_PATH, OUTPUT_METHOD)
_VARIABLE: Final = {"type": "string", "pattern": PATTERN}
_ABOUT: Final = ("title", "description", "default", "examples", "deprecated")
_PATH_SCHEMA: Final = {
    **_VARIABLE,
    "description": f"Where the result goes instead of into this conversation: {DAGGER}state.<path>, or "
    f"{DAGGER}<name>.<path> of a data object. You get a receipt.",
}
_METHOD_SCHEMA: Final = {
    "type": "string",
    "enum": list(OUTPUT_METHODS),
    "description": "How it is written: set (default), merge (deep), assign (shallow), push (append to an array), "
    "concat (join arrays or strings).",
}


_RESERVED: Final = frozenset({"input", "state", "ref", "artifact"})
_DATA_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def data_name_problem(name: str) -> str | None:
    """Why a data object cannot have this name, if so."""
    if name in _RESERVED:
        return f"data object {name!r} has a reserved name: rename it"
    if not _DATA_NAME.fullmatch(name):
        return f"data object {name!r} cannot be named by a variable: use ASCII letters, digits, '_' and '-'"
    return None


def has_variables(agent: AgentSpec) -> bool:
    """Whether strings that start with a dagger are variables in the calls of this agent."""
    return any(toolkit.id == TOOLKIT for toolkit in agent.toolkits)


def told_schema(tool: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as an agent with variables is told of it: each parameter may be a variable too, and the call may say
    where its result goes. Parameters stay as they are where references in the schema lead through them."""
    properties = schema.get("properties")
    told = dict(properties) if isinstance(properties, Mapping) else {}
    if '"#/properties/' not in json.dumps(schema, default=dict):
        kept = (*KEPT_AS_WRITTEN.get(tool, ()), *_META)
        told = {name: held if name in kept else _or_variable(held) for name, held in told.items()}
    return {**schema, "properties": {OUTPUT_PATH: _PATH_SCHEMA, OUTPUT_METHOD: _METHOD_SCHEMA, **told}}


def _or_variable(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    about = {key: held for key, held in schema.items() if key in _ABOUT}
    rule = {key: held for key, held in schema.items() if key not in _ABOUT}
    if not rule or rule == {"type": "string"}:  # takes any string as it is
        return dict(schema)
    return {**about, "anyOf": [rule, dict(_VARIABLE)]}


def own_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The tool's schema without the meta-parameters, which are taken out before a call is checked."""
    own = dict(schema)
    properties, required = own.get("properties"), own.get("required")
    if isinstance(properties, Mapping) and any(name in properties for name in _META):
        own["properties"] = {name: held for name, held in properties.items() if name not in _META}
    if isinstance(required, list) and any(name in required for name in _META):
        own["required"] = [name for name in required if name not in _META]
    return own


def prescribed_path(schema: Mapping[str, Any]) -> str | None:
    """Where the tool itself says that its results go: the `const` of its `_outputPath`."""
    properties = schema.get("properties")
    held = properties.get(OUTPUT_PATH) if isinstance(properties, Mapping) else None
    path = held.get("const") if isinstance(held, Mapping) else None
    return path if isinstance(path, str) else None
