"""Tool schemas for an agent with the toolkit `variables`: the widened one for the model, and the one that filled
calls must match. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final

from plangate.spec.models import AgentSpec
from plangate.spec.plan_schemas import resolve
from plangate.spec.variables import DAGGER, PATTERN, Expression, InvalidVariable, parse

TOOLKIT: Final = "variables"
OUTPUT_PATH: Final = "_outputPath"
OUTPUT_METHOD: Final = "_outputMethod"
READ_ONLY: Final = ("input", "ref", "artifact")
"""Kinds that no result goes to."""

OUTPUT_METHODS: Final = ("set", "merge", "assign", "push", "concat")
LITERAL_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({"storePlan": ("body",)})
"""Tool -> the parameters in which nothing is replaced: what is in a plan is not the call's."""

META_PARAMETERS: Final = (OUTPUT_PATH, OUTPUT_METHOD)
_VARIABLE: Final = {"type": "string", "pattern": PATTERN}
_PARAMETERS: Final = ("properties/", "additionalProperties")
_ABOUT: Final = ("title", "description", "default", "examples", "deprecated")
_OUTPUT: Final = f"{DAGGER}state.<path>, {DAGGER}memory.<path>, or {DAGGER}<name>.<path> of a data object."
_PATH_SCHEMA: Final = {
    **_VARIABLE,
    "description": f"Where the result goes instead of into this conversation: {_OUTPUT} You get a receipt.",
}
_ACTION_PATH_SCHEMA: Final = {
    **_VARIABLE,
    "description": f"Where the result of this action goes: {_OUTPUT} Actions that read it run after this one.",
}
_METHOD_SCHEMA: Final = {
    "type": "string",
    "enum": list(OUTPUT_METHODS),
    "description": "How it is written: set (default), merge (deep), assign (shallow), push (append to an array), "
    "concat (join arrays or strings).",
}


_RESERVED: Final = frozenset({"state", "memory", *READ_ONLY})
_DATA_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def data_name_problem(name: str) -> str | None:
    """Return why a data object cannot have this name, or None if it can."""
    if name in _RESERVED:
        return f"data object {name!r} has a reserved name: rename it"
    if not _DATA_NAME.fullmatch(name):
        return f"data object {name!r} cannot be named by a variable: use ASCII letters, digits, '_' and '-'"
    return None


def has_variables(agent: AgentSpec) -> bool:
    """Return whether strings that start with a dagger are variables in the calls of this agent."""
    return any(toolkit.id == TOOLKIT for toolkit in agent.toolkits)


def agent_schema(tool: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema that an agent with variables sees.

    Each parameter may also be a variable, and the call may name an output path. Parameters stay unchanged if
    references in the schema lead through them.
    """
    properties = schema.get("properties")
    widened = dict(properties) if isinstance(properties, Mapping) else {}
    wider: dict[str, Any] = {}
    text = json.dumps(schema, default=dict)
    if not any(f'"#/{key}' in text for key in _PARAMETERS):
        literal = (*LITERAL_PARAMETERS.get(tool, ()), *META_PARAMETERS)
        widened = {name: inner if name in literal else _or_variable(inner) for name, inner in widened.items()}
        wider = {key: _or_variable(schema[key]) for key in ("additionalProperties",) if key in schema}
    widened = {OUTPUT_PATH: _PATH_SCHEMA, OUTPUT_METHOD: _METHOD_SCHEMA, **widened}
    return {**schema, **wider, "properties": widened}


def planner_parameters(parameters: Mapping[str, Any], literal: Collection[str]) -> dict[str, Any]:
    """Return the fields of an action that a planner sees if the plan has variables.

    Each field outside `kept` may also be a variable, and the action may name an output path where the schema has no
    rule of its own for it.
    """
    widened = {name: inner if name in literal else _or_variable(inner) for name, inner in parameters.items()}
    return {OUTPUT_PATH: _ACTION_PATH_SCHEMA, OUTPUT_METHOD: _METHOD_SCHEMA, **widened}


def _or_variable(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    about = {key: inner for key, inner in schema.items() if key in _ABOUT}
    rule = {key: inner for key, inner in schema.items() if key not in _ABOUT}
    if not rule or rule == {"type": "string"}:  # takes any string as it is
        return dict(schema)
    return {**about, "anyOf": [rule, dict(_VARIABLE)]}


def schema_without_meta(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool's schema without the meta-parameters, which are removed before a call is validated."""
    own = dict(schema)
    properties, required = own.get("properties"), own.get("required")
    if isinstance(properties, Mapping) and any(name in properties for name in META_PARAMETERS):
        own["properties"] = {name: inner for name, inner in properties.items() if name not in META_PARAMETERS}
    if isinstance(required, list) and any(name in required for name in META_PARAMETERS):
        own["required"] = [name for name in required if name not in META_PARAMETERS]
    return own


def meta_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the tool itself requires of meta-parameters, or None if it requires nothing."""
    properties, required = schema.get("properties"), schema.get("required")
    needed = [name for name in META_PARAMETERS if isinstance(required, list) and name in required]
    if not needed and not (
        isinstance(properties, Mapping) and any(name in properties for name in META_PARAMETERS)
    ):
        return None
    outline = {key: schema[key] for key in ("$schema", "$defs", "definitions", "properties") if key in schema}
    return {**outline, "required": needed}


def fixed_output_path(schema: Mapping[str, Any]) -> str | None:
    """Return the output path that the tool itself fixes: the `const` of its `_outputPath`."""
    properties = schema.get("properties")
    path = resolve(schema, properties.get(OUTPUT_PATH) if isinstance(properties, Mapping) else None).get(
        "const"
    )
    return path if isinstance(path, str) else None


def fixed_output_path_problem(schema: Mapping[str, Any]) -> str | None:
    """Return why the output path that the tool fixes cannot be written, or None if it can."""
    path = fixed_output_path(schema)
    return None if path is None else output_path_problem(path)


def output_path_problem(path: str) -> str | None:
    """Return why a result cannot be written to `path`, or None if it can."""
    try:
        parsed = parse(path)
    except InvalidVariable as error:
        return f"{path!r} is not a path: {error}"
    if not isinstance(parsed, Expression):
        return f"{path!r} is not a path: it begins with one {DAGGER}"
    fixed = next((one for one in parsed.paths() if one.kind in READ_ONLY), None)
    return None if fixed is None else f"{str(fixed)!r} cannot be written: {DAGGER}{fixed.kind} is read-only"
