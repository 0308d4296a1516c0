"""Plans that are made of tool calls: the schema of their actions, from the schemas of the tools. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from plangate.spec.models import PlanSpec, ToolSpec
from plangate.spec.plan_schemas import move_references, resolve
from plangate.spec.variable_schemas import META_PARAMETERS

TOOL_FIELD: Final = "tool"
"""The field of an action that names its tool."""

TOOL_ALIAS: Final = "_tool"
"""Another way to write it, as in a scripted call."""

_ROOT_ONLY: Final = ("$schema", "$id", "$defs", "definitions")


def tool_plan_schema(schema: Mapping[str, Any], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Return the schema of a plan whose actions are calls of these tools: `{"tool": name, ...arguments}`.

    `schema` declares the other fields of the plan. If it is a result of this function already, with the same tools, the
    result is equal to it.
    """
    shared = {f"{TOOL_FIELD}.{tool.name}": defs for tool in tools if (defs := _definitions(tool))}
    properties = {name: inner for name, inner in schema.get("properties", {}).items() if name != "actions"}
    required = [name for name in schema.get("required", ()) if name != "actions"]
    union = {"oneOf": [_variant(tool) for tool in tools], "discriminator": {"propertyName": TOOL_FIELD}}
    dialect_uri = next((tool.input_schema["$schema"] for tool in tools if dialect(tool)), None)
    schema_parts = {
        **({"$schema": dialect_uri} if dialect_uri is not None else {}),
        **schema,
        "type": "object",
        "properties": {**properties, "actions": {"type": "array", "items": union}},
        "required": ["actions", *required],
    }
    return {**schema_parts, "$defs": {**schema.get("$defs", {}), **shared}} if shared else schema_parts


def tool_plan(plan: PlanSpec, tools: Mapping[str, ToolSpec]) -> PlanSpec:
    """Return a plan with the actions of its tools; any other plan unchanged. Results may have paths if a tool says so."""
    if not plan.tools:
        return plan
    own = [tools[name] for name in plan.tools]
    variables = plan.variables or any(map(has_output_path, own))
    schema = tool_plan_schema(plan.schema_, own)
    return plan.model_copy(update={"schema_": schema, "variables": variables})


def has_output_path(tool: ToolSpec) -> bool:
    """Return whether the tool's own schema says that its result goes to a path."""
    properties = tool.input_schema.get("properties")
    return isinstance(properties, Mapping) and any(name in properties for name in META_PARAMETERS)


def tool_problem(tool: ToolSpec) -> str | None:
    """Return why calls of this tool cannot be actions of a plan, or None if they can."""
    schema = tool.input_schema
    properties = resolve(schema, schema).get("properties", {})
    for name in (TOOL_FIELD, TOOL_ALIAS):
        if isinstance(properties, Mapping) and name in properties:
            return (
                f"it has an argument {name!r}, which names the tool in an action: rename the argument, or write the "
                "schema and a dispatcher of the plan yourself"
            )
    return None


def dialect(tool: ToolSpec) -> str | None:
    """Return the JSON Schema dialect that the tool's schema names."""
    dialect_uri = tool.input_schema.get("$schema")
    return dialect_uri.rstrip("#") if isinstance(dialect_uri, str) else None


def _variant(tool: ToolSpec) -> dict[str, Any]:
    root = tool.input_schema
    own = dict(root)
    if isinstance(root.get("$ref"), str):
        own = {**resolve(root, root), **{key: inner for key, inner in root.items() if key != "$ref"}}
    own = {key: inner for key, inner in own.items() if key not in _ROOT_ONLY}
    for count in ("minProperties", "maxProperties"):
        if isinstance(own.get(count), int):
            own[count] += 1
    if "propertyNames" in own:
        own["propertyNames"] = {"anyOf": [{"const": TOOL_FIELD}, own["propertyNames"]]}
    moved = move_references(own, lambda target: _moved(tool, target))
    about = {"description": tool.description} if tool.description else {}
    return {
        **moved,
        **about,
        "type": "object",
        "properties": {TOOL_FIELD: {"const": tool.name}, **moved.get("properties", {})},
        "required": [TOOL_FIELD, *moved.get("required", ())],
    }


def _definitions(tool: ToolSpec) -> dict[str, Any] | None:
    """Return what references inside the tool's schema lead to, or None if it has none."""
    root = tool.input_schema
    text = json.dumps(root, default=dict)
    if '"$ref"' not in text:
        return None
    rest = text.replace('"$ref": "#/$defs/', "")
    keywords = {"$defs": root.get("$defs", {})} if '"$ref"' not in rest else root
    parts = {key: keywords[key] for key in keywords if key not in ("$schema", "$id")}
    moved: dict[str, Any] = move_references(parts, lambda target: _moved(tool, target))
    return moved


def _moved(tool: ToolSpec, target: str) -> str:
    """Return where a `$ref` of the tool's schema leads inside the schema of the plan."""
    inside = target == "#" or target.startswith("#/")
    return f"#/$defs/{TOOL_FIELD}.{tool.name}{target[1:]}" if inside else target
