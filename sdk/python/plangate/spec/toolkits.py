"""The built-in toolkits as data: the tools, who has them, and what their schemas ask of one agent."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from plangate.spec.action_schemas import META_FIELDS
from plangate.spec.artifact_toolkit import ARTIFACTS, SHARED_ARTIFACT_TOOLS
from plangate.spec.builtin import BuiltinTool, text, tool_input
from plangate.spec.catalog_toolkit import CATALOG
from plangate.spec.file_toolkits import EDIT, READ, WORKSPACE, WRITE
from plangate.spec.memory_toolkit import MEMORY
from plangate.spec.models import PLAN_ROLES, AgentSpec, PlanSpec, RuntimeSpec, ToolkitSpec
from plangate.spec.plan_schemas import discriminator, move_references, variants
from plangate.spec.variable_schemas import has_variables, planner_parameters

_PLAN_ID: Final = text("The id that storePlan returned, or the planId that was given to it.")

_CALL_AGENT: Final = BuiltinTool(
    "call_agent",
    "Hands a task to another agent and returns its answer. The agent sees only the prompt, not this "
    "conversation: put everything it needs there, and pass references by their handles. Calls that do not "
    "depend on each other can be made at the same time.",
    tool_input(
        ("agent", "prompt"),
        agent=text("The agent to call."),
        prompt={
            "description": "The task: text, or an object, which the agent receives as JSON.",
            "anyOf": [{"type": "string"}, {"type": "object"}],
        },
    ),
    "agents",
)

_STORE_PLAN: Final = BuiltinTool(
    "storePlan",
    "Stores a draft plan. The plan is checked, and nothing is carried out. Storing a draft under its planId again "
    "makes its next revision; a plan that was approved cannot be stored over. Returns the plan's id.",
    tool_input(
        ("specName", "body"),
        specName=text("The kind of plan."),
        planId={
            **text("A name of your choice for the plan, unique in this thread; leave it out for a new id."),
            "maxLength": 200,
        },
        body={
            "type": "object",
            "description": "The plan: its actions, and the fields that give them context.",
        },
    ),
    "plans",
)

_GET_PLAN: Final = BuiltinTool(
    "getPlan",
    "Reads a plan. Returns its body, revision and status, and the feedback if it was rejected.",
    tool_input(("planId",), planId=_PLAN_ID),
    "plans",
)

_EXECUTE_PLAN: Final = BuiltinTool(
    "executePlan",
    "Presents a stored draft for approval and, once it is approved, carries out exactly what was approved. "
    "Returns the outcome of every action, or the feedback of the person who rejected it or asked for a "
    "revision: then the plan has to be stored again before it can be executed. A plan runs once.",
    tool_input(
        ("planId",),
        planId=_PLAN_ID,
        inputs={
            "type": "object",
            "description": "Inputs of this execution; they override those of the query.",
        },
    ),
    "plans",
)

_KIND: Final = text("The kind of the reference, as its handle says.")
_ID: Final = text("The id of the reference, as its handle says.")

RESOLVE: Final = "resolveRef"
_RESOLVE_REF: Final = BuiltinTool(
    RESOLVE,
    "Fetches the full value behind a reference {kind, id}: returns {value, glimpse}. Use it only when the full value is needed: a "
    "glimpse that you already have is often enough, and references that a plan's actions name are hydrated "
    "when the plan is dispatched, so never resolve those. For a value that is too large you get its glimpse "
    "and size: read a part of it with path.",
    tool_input(
        ("kind", "id"),
        kind=_KIND,
        id=_ID,
        path=text("A JMESPath expression that picks a part of the value, such as items[:10].name"),
    ),
    "references",
)

_GLIMPSE_REF: Final = BuiltinTool(
    "glimpseRef",
    "Returns the glimpse of a reference {kind, id}: a small summary of its value. Use it when you have only "
    "the handle. With a glimpse in hand do not ask for it again; call resolveRef when the full value is "
    "needed, and neither for references that a plan's dispatch hydrates.",
    tool_input(("kind", "id"), kind=_KIND, id=_ID),
    "references",
)

_REFERENCE_TOOLS: Final = frozenset({_RESOLVE_REF.name, _GLIMPSE_REF.name})

TOOLKITS: Final[Mapping[str, tuple[BuiltinTool, ...]]] = MappingProxyType(
    {
        "agents": (_CALL_AGENT,),
        "plans": (_STORE_PLAN, _GET_PLAN, _EXECUTE_PLAN),
        "references": (_RESOLVE_REF, _GLIMPSE_REF),
        "variables": (),
        "memory": MEMORY,
        "artifacts": ARTIFACTS,
        "workspace": WORKSPACE,
        "catalog": CATALOG,
    }
)
"""Toolkit id -> its tools, in the order in which agents get them."""

BUILTIN_TOOL_TOOLKITS: Final[Mapping[str, str]] = MappingProxyType(
    {tool.name: toolkit for toolkit, tools in TOOLKITS.items() for tool in tools}
)
"""Tool name -> toolkit id, of everything built in: nobody can define tools by these names."""

GATED_BUILTIN_TOOLS: Final = frozenset(
    tool.name for tools in TOOLKITS.values() for tool in tools if tool.approval == "always"
)
"""The built-in tools that need approval unless a rule for the tool says otherwise."""

UNGATED_BUILTIN_TOOLS: Final = frozenset(
    tool.name for tools in TOOLKITS.values() for tool in tools if tool.approval == "named"
)
"""The built-in tools that no policy is about: only a rule for the tool itself makes them need approval."""

ROLE_TOOLS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "coordinator": ("call_agent",),
        "planner": ("storePlan", "getPlan"),
        "executor": ("getPlan", "executePlan", RESOLVE, "glimpseRef"),
        "specialist": (),
    }
)
"""Role -> the built-in tools that it has without naming a toolkit. Those of references come only with `has_references`."""


_READS_A_SOURCE: Final = frozenset({"sample_table_data", "execute_query"})
_WRITES_A_FILE: Final = frozenset({WRITE.name, EDIT.name})

TEAM_TOOLS: Final = tuple(tool.name for tool in (*SHARED_ARTIFACT_TOOLS, READ, WRITE, EDIT))
"""What every agent of a team has without asking: agents hand over to each other by artifacts."""


def builtin_tools(spec: RuntimeSpec, agent: AgentSpec) -> tuple[BuiltinTool, ...]:
    """Return the built-in tools that `agent` can call, with schemas narrowed to what it may pass.

    It has those of its role, those of a team if it works in one, and those of the toolkits it names,
    narrowed by `config.tools` of the agent's entry and of the runtime's entry for the toolkit. `call_agent` needs
    routes; the storing and executing of plans belong to planners and executors alone. The tools of references come
    with a role only if the runtime can have references.
    """
    return tuple(_specialize(tool, spec, agent) for tool in granted_builtins(spec, agent))


def granted_builtins(spec: RuntimeSpec, agent: AgentSpec) -> tuple[BuiltinTool, ...]:
    """Return the same tools with the schemas that all agents share."""
    granted = set(ROLE_TOOLS[agent.role])
    if not has_references(spec):
        granted.difference_update(_REFERENCE_TOOLS)
    granted.update(name for toolkit in agent.toolkits for name in _grants(toolkit.id, agent))
    if has_team(spec):
        granted.update(TEAM_TOOLS)
    if spec.workspace is not None and spec.workspace.read_only:
        granted.difference_update(_WRITES_A_FILE)
    return tuple(
        tool
        for toolkit, tools in TOOLKITS.items()
        for tool in tools
        if tool.name in granted
        and (tool.name != _CALL_AGENT.name or agent.routes)
        and (tool.name not in _READS_A_SOURCE or allowed_sources(spec, agent) != ())
        and not _is_excluded(tool.name, toolkit, (*spec.toolkits, *agent.toolkits))
    )


def has_team(spec: RuntimeSpec) -> bool:
    """Return whether agents of the runtime can hand over files: it has a coordinator and more agents than a single
    planner or executor, which hands over only its plan."""
    roles = [agent.role for agent in spec.agents]
    has_plan_only = len(roles) == 2 and any(role in PLAN_ROLES for role in roles)
    return "coordinator" in roles and not has_plan_only


def has_references(spec: RuntimeSpec) -> bool:
    """Return whether agents of the runtime can meet references: it declares a kind of them, or an agent has tools or
    a toolkit `catalog`, whose large results become references of the built-in kinds."""
    return bool(spec.references) or any(
        agent.tools or any(toolkit.id == "catalog" for toolkit in agent.toolkits) for agent in spec.agents
    )


def _grants(toolkit: str, agent: AgentSpec) -> tuple[str, ...]:
    """Return the tools that naming a toolkit gives to this agent."""
    if toolkit == "plans":
        return (_GET_PLAN.name,)
    return tuple(tool.name for tool in TOOLKITS.get(toolkit, ()))


def _is_excluded(tool: str, toolkit: str, entries: tuple[ToolkitSpec, ...]) -> bool:
    return any(
        tool not in entry.config.tools
        for entry in entries
        if entry.id == toolkit and entry.config is not None and entry.config.tools is not None
    )


def allowed_sources(spec: RuntimeSpec, agent: AgentSpec) -> tuple[str, ...] | None:
    """Return the data sources that the toolkit `catalog` of this agent may read; None allows all of the tenant."""
    allowed: tuple[str, ...] | None = None
    for entry in (*spec.toolkits, *agent.toolkits):
        if entry.id == "catalog" and entry.config is not None and entry.config.sources is not None:
            names = entry.config.sources
            allowed = names if allowed is None else tuple(name for name in allowed if name in names)
    return allowed


def _specialize(tool: BuiltinTool, spec: RuntimeSpec, agent: AgentSpec) -> BuiltinTool:
    if tool.toolkit == "catalog" and "source" in tool.input_schema["properties"]:
        allowed = allowed_sources(spec, agent)
        if allowed is None:
            return tool
        if not allowed:  # vendors reject an enumeration without values
            properties = {
                name: schema for name, schema in tool.input_schema["properties"].items() if name != "source"
            }
            return replace(tool, input_schema={**tool.input_schema, "properties": properties})
        return replace(tool, input_schema=_with_enum(tool.input_schema, "source", allowed))
    if tool.name == _CALL_AGENT.name:
        return replace(tool, input_schema=_with_enum(tool.input_schema, "agent", agent.routes))
    if tool.name == _STORE_PLAN.name and agent.plan is not None:
        plan = agent.plan if isinstance(agent.plan, PlanSpec) else _plan(spec, agent.plan)
        if plan is not None:
            variables = plan.variables or has_variables(agent)
            described = _store_plan_schema(tool, spec, plan, variables=variables)
            own = variables or bool(
                plan.tools
            )  # then storePlan says more of what is wrong than its schema does
            unchecked = _with_enum(tool.input_schema, "specName", (plan.name,)) if own else None
            return replace(tool, input_schema=described, unchecked_parameters=unchecked)
    return tool


def _plan(spec: RuntimeSpec, name: str) -> PlanSpec | None:
    return next((plan for plan in spec.plans if plan.name == name), None)


def _with_enum(schema: Mapping[str, Any], field: str, values: tuple[str, ...]) -> dict[str, Any]:
    properties = schema["properties"]
    narrowed = {"type": "string", "enum": list(values), "description": properties[field]["description"]}
    return {**schema, "properties": {**properties, field: narrowed}}


def _store_plan_schema(
    tool: BuiltinTool, spec: RuntimeSpec, plan: PlanSpec, *, variables: bool
) -> dict[str, Any]:
    """Return the tool's schema with the plan's schema as `body` and its definitions at the root."""
    schema = _with_enum(tool.input_schema, "specName", (plan.name,))
    plan_schema = copy.deepcopy(plan.schema_)
    if variables:
        _allow_variables(plan_schema)
    if spec.references:
        _allow_references(plan_schema)
    root: dict[str, Any] = {key: plan_schema.pop(key) for key in ("$schema", "$defs") if key in plan_schema}
    plan_schema.pop("$id", None)
    body = {
        "description": schema["properties"]["body"]["description"],
        **move_references(plan_schema, _relocate_reference),
    }
    if "$defs" in root:
        root["$defs"] = {
            name: move_references(inner, _relocate_reference) for name, inner in root["$defs"].items()
        }
    return {**schema, "properties": {**schema["properties"], "body": body}, **root}


_REFERENCES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "type": "array",
        "description": "Handles of the references that this action needs; dispatch hydrates them.",
        "items": {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "id": {"type": "string"}},
            "required": ["kind", "id"],
        },
    }
)


def _allow_references(schema: dict[str, Any]) -> None:
    """Allow references in every action; they are removed before the action is validated."""
    for variant in variants(schema):
        properties = variant.get("properties")
        if isinstance(properties, dict):
            properties.setdefault("references", copy.deepcopy(dict(_REFERENCES)))


def _allow_variables(schema: dict[str, Any]) -> None:
    """Allow a variable in every field of an action, except its kind and fields that the schema refers through."""
    text = json.dumps(schema, default=dict)
    field = discriminator(schema)
    for variant in variants(schema):
        properties = variant.get("properties")
        if isinstance(properties, dict):
            remaining = {n for n in properties if n in (field, *META_FIELDS) or f"/properties/{n}/" in text}
            properties.update(planner_parameters(properties, remaining))


def _relocate_reference(target: str) -> str:
    """Return the target of a `$ref` of a plan's schema once the schema is at /properties/body."""
    inside = target == "#" or (target.startswith("#/") and not target.startswith("#/$defs/"))
    return f"#/properties/body{target[1:]}" if inside else target
