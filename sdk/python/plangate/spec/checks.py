"""Checks between the parts of a spec: agents, their tools and toolkits, models and prompts.

Each check yields every problem it finds. Those of plans, approvals and dispatch are in gate_checks.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from plangate.spec.base import did_you_mean
from plangate.spec.drafts import Draft, DraftPart
from plangate.spec.file_toolkits import WORKSPACE_CALL
from plangate.spec.lookalikes import skeletons
from plangate.spec.models import PLAN_ROLES, AgentSpec, ProviderSpec, ToolkitSpec, ToolSpec
from plangate.spec.problems import Problem
from plangate.spec.prompts import first_sentence, render_layers
from plangate.spec.toolkits import BUILTIN_TOOL_TOOLKITS, TOOLKITS
from plangate.spec.transport_checks import transport_problems
from plangate.spec.variable_schemas import OUTPUT_PATH, fixed_output_path_problem, has_variables
from plangate.spec.vendors import PROVIDER_FIELDS, UNDECLARED_PROVIDERS, VENDORS

MAX_TABLES_CHARS: Final = (
    8_000_000  # names and first sentences of tools in the prompts of all agents together
)


def check_agents(draft: Draft) -> Iterator[Problem]:
    """Check names, roles and routes."""
    yield from _repeated(draft.names["agents"], "agent")
    for agent in draft.agents:
        yield from _check_routes(draft, agent)
        yield from _check_plan(draft, agent)
        yield from _check_tools_of(draft, agent)
        yield from _check_toolkits(agent.value.toolkits, agent)
        yield from _check_model(draft, agent)
        yield from _check_prompt(agent)


def check_tool_tables(draft: Draft) -> Iterator[Problem]:
    """Bound the tool tables: each prompt repeats a sentence of each tool, so a small spec could make large prompts."""
    rows = {
        tool.value.name: len(tool.value.name) + len(first_sentence(tool.value.description))
        for tool in draft.tools
    }
    size = sum(
        rows.get(name, 0) for agent in draft.agents if agent.value.tools_table for name in agent.value.tools
    )
    if size > MAX_TABLES_CHARS:
        yield Problem(
            draft.at("agents"),
            f"the first sentences of the descriptions of tools in the prompts of all agents come to {size} characters, more than "
            f"{MAX_TABLES_CHARS}: shorten them, or name fewer tools",
        )


def _repeated(names: Mapping[str, tuple[str, ...]], what: str) -> Iterator[Problem]:
    for name, (first, *others) in names.items():
        for pointer in others:
            yield Problem(pointer, f"{what} {name!r} is declared twice, first at {first}: rename one")


def _check_routes(draft: Draft, agent: DraftPart[AgentSpec]) -> Iterator[Problem]:
    name, routes = agent.value.name, agent.value.routes
    if agent.value.role == "coordinator" and not routes:
        yield Problem(
            agent.at("routes"),
            f"coordinator {name!r} has no routes: name at least one agent that it may call",
        )
    names: set[str] = set()
    for index, route in enumerate(routes):
        if route == name:
            yield Problem(agent.at("routes", index), f"agent {name!r} has a route to itself: remove it")
        elif not draft.is_declared("agents", route):
            hint = did_you_mean(route, set(draft.known("agents")) - {name})
            yield Problem(
                agent.at("routes", index),
                f"agent {name!r} has a route to {route!r}, which is not an agent{hint}",
            )
        if route in names:
            yield Problem(agent.at("routes", index), f"agent {name!r} has two routes to {route!r}: keep one")
        names.add(route)


def _check_plan(draft: Draft, agent: DraftPart[AgentSpec]) -> Iterator[Problem]:
    name, plan = agent.value.name, agent.value.plan_name
    if plan is None and agent.value.role in PLAN_ROLES:
        yield from _check_only_plan(draft, agent)
    elif plan is not None and not draft.is_declared("plans", plan):
        hint = did_you_mean(plan, draft.known("plans"))
        yield Problem(
            agent.at("plan"), f"agent {name!r} names the plan {plan!r}, which is not declared{hint}"
        )


def _check_only_plan(draft: Draft, agent: DraftPart[AgentSpec]) -> Iterator[Problem]:
    """Check that the runtime has exactly one plan, which is the default of an agent without one."""
    known = draft.known("plans")
    if len(known) == 1 or "plans" in draft.unread:
        return
    which = f"name one of {', '.join(map(repr, known))}" if known else "name or declare one"
    yield Problem(agent.at("plan"), f"{agent.value.role} {agent.value.name!r} has no plan: {which} in 'plan'")


def _check_tools_of(draft: Draft, agent: DraftPart[AgentSpec]) -> Iterator[Problem]:
    name = agent.value.name
    names: set[str] = set()
    paths = {one.value.name: one for one in draft.tools} if has_variables(agent.value) else {}
    for index, tool in enumerate(agent.value.tools):
        if tool in names:
            yield Problem(agent.at("tools", index), f"agent {name!r} names the tool {tool!r} twice: keep one")
        names.add(tool)
        if tool in BUILTIN_TOOL_TOOLKITS:
            toolkit = BUILTIN_TOOL_TOOLKITS[tool]
            yield Problem(
                agent.at("tools", index),
                f"agent {name!r} names the builtin tool {tool!r}: remove it from 'tools'; builtin tools come "
                f"with the role, or with {toolkit!r} in 'toolkits'",
            )
        elif not draft.is_declared("tools", tool):
            hint = did_you_mean(tool, draft.known("tools"))
            yield Problem(
                agent.at("tools", index),
                f"agent {name!r} names the tool {tool!r}, which is not in 'tools'{hint}",
            )
        elif tool in paths and (why := fixed_output_path_problem(paths[tool].value.input_schema)) is not None:
            yield Problem(
                paths[tool].at("inputSchema", "properties", OUTPUT_PATH),
                f"agent {name!r} has variables, and the results of its tool {tool!r} have nowhere to go: {why}",
            )


def check_toolkits(draft: Draft) -> Iterator[Problem]:
    """Check the toolkits of the runtime itself."""
    names: set[str] = set()
    for entry in draft.toolkits:
        yield from _check_toolkit(entry.value, entry.at("id"), entry.at("config", "tools"))
        if entry.value.id in names:
            yield Problem(entry.at("id"), f"toolkit {entry.value.id!r} is named twice: keep one")
        names.add(entry.value.id)


def _check_toolkits(toolkits: tuple[ToolkitSpec, ...], agent: DraftPart[AgentSpec]) -> Iterator[Problem]:
    name = agent.value.name
    names: set[str] = set()
    for index, toolkit in enumerate(toolkits):
        pointer = agent.at("toolkits", index, "id")
        yield from _check_toolkit(toolkit, pointer, agent.at("toolkits", index, "config", "tools"))
        if toolkit.id in names:
            yield Problem(pointer, f"agent {name!r} names the toolkit {toolkit.id!r} twice: keep one")
        names.add(toolkit.id)
        if toolkit.id == "agents" and not agent.value.routes and agent.value.role != "coordinator":
            yield Problem(
                pointer,
                f"agent {name!r} names the toolkit 'agents' but has no routes: name the agents that it may call",
            )


def _check_toolkit(toolkit: ToolkitSpec, pointer: str, config_pointer: str) -> Iterator[Problem]:
    if toolkit.id not in TOOLKITS:
        yield Problem(pointer, f"toolkit {toolkit.id!r} is unknown{did_you_mean(toolkit.id, TOOLKITS)}")
        return
    names = [tool.name for tool in TOOLKITS[toolkit.id]]
    for index, name in enumerate((toolkit.config.tools if toolkit.config else None) or ()):
        if name not in names:
            yield Problem(
                f"{config_pointer}/{index}",
                f"toolkit {toolkit.id!r} has no tool {name!r}{did_you_mean(name, names)}",
            )
    if toolkit.id != "catalog" and toolkit.config is not None and toolkit.config.sources is not None:
        yield Problem(
            config_pointer.removesuffix("tools") + "sources",
            f"toolkit {toolkit.id!r} reads no data sources: leave 'sources' out",
        )


ACTIONS: Final = "actions"
"""Processes claim the actions of plans as `actions` and `actions.<kind>`."""


def check_tools(draft: Draft) -> Iterator[Problem]:
    """Check the names of declared tools, and whether anything can run them."""
    yield from _repeated(draft.names["tools"], "tool")
    if draft.spec.workspace is not None and WORKSPACE_CALL in draft.names["tools"]:
        yield Problem(
            draft.names["tools"][WORKSPACE_CALL][0],
            f"the calls of the workspace have the name {WORKSPACE_CALL!r}: choose another name for the tool",
        )
    reserved = {skeleton: name for name in BUILTIN_TOOL_TOOLKITS for skeleton in skeletons(name)}
    for name, pointers in draft.names["tools"].items():
        if name in BUILTIN_TOOL_TOOLKITS:
            toolkit = BUILTIN_TOOL_TOOLKITS[name]
            yield Problem(
                pointers[0], f"tool {name!r} is built in (toolkit {toolkit!r}): choose another name"
            )
            continue
        if name == ACTIONS or name.startswith(f"{ACTIONS}."):
            yield Problem(
                pointers[0],
                f"tool {name!r} has a name under which processes claim the actions of plans: choose another name",
            )
            continue
        other = next((reserved[skeleton] for skeleton in skeletons(name) if skeleton in reserved), None)
        if other is not None:
            kind = "the builtin tool" if other in BUILTIN_TOOL_TOOLKITS else "the tool"
            yield Problem(
                pointers[0],
                f"the name of tool {name!r} differs from {kind} {other!r} only by case or look-alike "
                "characters: choose another name",
            )
        for skeleton in skeletons(name):
            reserved.setdefault(skeleton, name)
    for tool in draft.tools:
        yield from _check_transport(tool)


def _check_transport(tool: DraftPart[ToolSpec]) -> Iterator[Problem]:
    for place, why in transport_problems(tool.value.transport):
        yield Problem(tool.at("transport", *place), f"tool {tool.value.name!r}: {why}")


def check_providers(draft: Draft) -> Iterator[Problem]:
    """Check the providers that the spec declares."""
    for name, provider in draft.spec.providers.items():
        kind = provider.kind or name
        if kind not in PROVIDER_FIELDS:
            known = ", ".join(sorted(PROVIDER_FIELDS))
            yield Problem(
                draft.at("providers", name, "kind"),
                f"provider {name!r} needs a 'kind', because its name is not a kind: one of {known}",
            )
            continue
        yield from _foreign_fields(draft, name, kind, provider)
        yield from _missing_fields(draft, name, kind, provider)
        yield from _keyless_address(draft, name, kind, provider)
        if provider.api_key is not None and provider.api_key_env is not None:
            yield Problem(
                draft.at("providers", name, "apiKeyEnv"),
                f"provider {name!r} has an 'apiKey' and an 'apiKeyEnv': keep one",
            )


def _foreign_fields(draft: Draft, name: str, kind: str, provider: ProviderSpec) -> Iterator[Problem]:
    for field in provider.to_wire():
        if field == "kind" or field in PROVIDER_FIELDS[kind]:
            continue
        takers = ", ".join(sorted(other for other, fields in PROVIDER_FIELDS.items() if field in fields))
        yield Problem(
            draft.at("providers", name, field),
            f"provider {name!r} of kind {kind!r} takes no {field!r}, which is for {takers}: remove it",
        )


def _missing_fields(draft: Draft, name: str, kind: str, provider: ProviderSpec) -> Iterator[Problem]:
    """Check the required fields of the clouds: nothing has a default there, least of all the account that pays."""
    vendor = VENDORS.get(kind)
    if vendor is None or kind in UNDECLARED_PROVIDERS:
        return
    wire = provider.to_wire()
    for field, reason in vendor.required.items():
        if field not in wire and not (provider.base_url and field in vendor.host_fields):
            yield Problem(
                draft.at("providers", name, field),
                f"provider {name!r} of kind {kind!r} has no {field!r}: {reason}",
            )
    if "credentials" in wire and "credentials" in vendor.options:
        for field in sorted({"apiKey", "apiKeyEnv", "baseUrl"} & wire.keys()):
            yield Problem(
                draft.at("providers", name, "credentials"),
                f"provider {name!r} uses the operator's credentials, which allow no {field!r}: remove one of them",
            )
        return
    without_key = provider.api_key is None and provider.api_key_env is None
    if without_key and not provider.base_url and draft.spec.interpreter is None:
        yield Problem(
            draft.at("providers", name, "apiKey"),
            f"provider {name!r} of kind {kind!r} has no key: set 'apiKey' to {{\"secret\": ...}}, or 'apiKeyEnv'",
        )


def _keyless_address(draft: Draft, name: str, kind: str, provider: ProviderSpec) -> Iterator[Problem]:
    """Check that a provider with an address of its own brings a key of its own: no other key is sent there."""
    needs_key = provider.base_url and provider.credentials is None and draft.spec.interpreter is None
    if kind in VENDORS and needs_key and provider.api_key is None:
        yield Problem(
            draft.at("providers", name, "apiKey"),
            f"provider {name!r} has a 'baseUrl', and the operator's keys are not sent to an address that a spec chose: "
            "set 'apiKey' to {\"secret\": ...}",
        )


def _check_model(draft: Draft, agent: DraftPart[AgentSpec]) -> Iterator[Problem]:
    model = agent.value.model
    name = model.provider
    if "provider" not in model.model_fields_set or name in UNDECLARED_PROVIDERS:
        return
    if not draft.is_declared("providers", name):
        hint = did_you_mean(name, {*draft.known("providers"), *UNDECLARED_PROVIDERS})
        if name in VENDORS:
            hint = ": declare it there, with its region and key"
        yield Problem(
            agent.at("model", "provider"),
            f"agent {agent.value.name!r} names the provider {name!r}, which is not in 'providers'{hint}",
        )


def _check_prompt(agent: DraftPart[AgentSpec]) -> Iterator[Problem]:
    name, prompt = agent.value.name, agent.value.prompt
    if prompt is not None and agent.value.system_prompt:
        yield Problem(
            agent.at("prompt"), f"agent {name!r} has a 'prompt' and a 'systemPrompt': keep one of them"
        )
    if isinstance(prompt, dict):
        try:
            render_layers(prompt)
        except (TypeError, ValueError) as error:
            yield Problem(agent.at("prompt"), f"the prompt of agent {name!r} cannot be rendered: {error}")
