"""Agents of the four roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from plangate.authoring.arguments import (
    Policies,
    Rule,
    describe_type,
    drop_unset,
    parse_list,
    parse_name,
    parse_policies,
    parse_schema,
)
from plangate.spec.models import AgentSpec, ModelSpec, PlanSpec, ReferenceSpec, Role, ToolkitSpec, ToolSpec
from plangate.spec.prompts import LayeredPrompt, render_layers


class DefinedAgent(AgentSpec):
    """The result of `define_*`: an agent with its rendered prompt.

    Args:
        fields: Those of AgentSpec.

    Example:
        >>> look = define_tool("look", {"id": str})
        >>> helper = define_specialist("helper", "m-1", "You help.", tools=[look, "other"])
        >>> helper.tools, helper.bound_tools == (look,)
        (('look', 'other'), True)
        >>> helper.system_prompt, helper.prompt_cache_key[:8], helper.stateful
        ('You help.', '2d304e4f', False)
    """


class AgentOptions(TypedDict, total=False):
    """The keyword arguments of `define_*` that every role accepts.

    Args:
        tools: Made with `define_tool`, or names of tools that the runtime declares.
        toolkits: Ids, or `{"id", "config": {"tools": [...]}}`.
        routes: The agents it may call: names, or agents.
        references: Kinds of reference that it works with.
        stateful: Whether it remembers a thread; unset, as its role does: coordinators and planners.
        max_turns: How many model turns a run may take, at least 1.
        approval: `{"plans": rule, "tools": rule}`, where a rule is `"always"`, `"never"`, for tools also
            `{"kind": "dynamic", "value": <predicate id>}`; `"default"` is not set.
        tool_approvals: Rules for single tools, by name; they win over everything else.
        output_schema: What its final answer must match.
        tools_table: Whether its prompt gets a table of the tools that it can call; unset, it does.

    Example:
        >>> options = AgentOptions(max_turns=5, approval={"tools": "always"})
        >>> define_specialist("helper", "m-1", "You help.", **options).max_turns
        5
    """

    tools: Sequence[str | ToolSpec]
    toolkits: Sequence[str | Mapping[str, Any] | ToolkitSpec]
    routes: Sequence[str | AgentSpec]
    references: Sequence[ReferenceSpec]
    stateful: bool | None
    max_turns: int | None
    approval: Policies
    tool_approvals: Mapping[str, Rule] | None
    output_schema: Any
    tools_table: bool | None


Model = str | Mapping[str, Any] | ModelSpec
Prompt = str | LayeredPrompt | Mapping[str, Any]


def define_coordinator(
    name: str, model: Model, prompt: Prompt, **options: Unpack[AgentOptions]
) -> DefinedAgent:
    """Declare a coordinator: an agent that receives queries and calls others.

    Args:
        name: Its name, unique in the runtime.
        model: The id of a model, or `{"id", "provider", ...}`.
        prompt: A string, a `layered_prompt`, or a mapping of layers.
        options: Those of `AgentOptions`; `routes` names at least one agent.

    Raises:
        TypeError: for an unknown option, or an option of the wrong kind.
        ValueError: for a malformed field. That routes lead somewhere is checked by `define_runtime`.

    Example:
        >>> helper = define_specialist("helper", "m-1", "You help.")
        >>> define_coordinator("front", "m-1", "You route.", routes=[helper]).routes
        ('helper',)
    """
    return _define("coordinator", name, model, prompt, None, **options)


def define_planner(
    name: str,
    model: Model,
    prompt: Prompt,
    plan: str | PlanSpec | None = None,
    **options: Unpack[AgentOptions],
) -> DefinedAgent:
    """Declare a planner: it stores plans and carries nothing out.

    Args:
        name, model, prompt, options: As for `define_coordinator`.
        plan: The kind of plan it makes: from `define_plan`, or the name of one that the runtime declares. None is
            the only plan of the runtime.

    Raises:
        TypeError, ValueError: as `define_coordinator`.

    Example:
        >>> define_planner("planner", "m-1", "You plan.", plan="Refunds").role
        'planner'
    """
    return _define("planner", name, model, prompt, plan, **options)


def define_executor(
    name: str,
    model: Model,
    prompt: Prompt,
    plan: str | PlanSpec | None = None,
    **options: Unpack[AgentOptions],
) -> DefinedAgent:
    """Declare an executor: it has stored plans executed once they are approved.

    Args:
        name, model, prompt, options: As for `define_coordinator`.
        plan: The kind of plan it executes: from `define_plan`, or the name of one that the runtime declares. None
            is the only plan of the runtime.

    Raises:
        TypeError, ValueError: as `define_coordinator`.

    Example:
        >>> define_executor("executor", "m-1", "You execute.", plan="Refunds").role
        'executor'
    """
    return _define("executor", name, model, prompt, plan, **options)


def define_specialist(
    name: str, model: Model, prompt: Prompt, **options: Unpack[AgentOptions]
) -> DefinedAgent:
    """Declare a specialist: an agent with one task, called by a coordinator or directly.

    Args:
        name, model, prompt, options: As for `define_coordinator`.

    Raises:
        TypeError, ValueError: as `define_coordinator`.

    Example:
        >>> define_specialist("helper", {"id": "m-1", "provider": "openai"}, "You help.").model.provider
        'openai'
    """
    return _define("specialist", name, model, prompt, None, **options)


def _define(
    role: Role,
    name: str,
    model: Model,
    prompt: Prompt,
    plan: str | PlanSpec | None,
    *,
    tools: Sequence[str | ToolSpec] = (),
    toolkits: Sequence[str | Mapping[str, Any] | ToolkitSpec] = (),
    routes: Sequence[str | AgentSpec] = (),
    references: Sequence[ReferenceSpec] = (),
    stateful: bool | None = None,
    max_turns: int | None = None,
    approval: Policies = "default",
    tool_approvals: Mapping[str, Rule] | None = None,
    output_schema: Any = None,
    tools_table: bool | None = None,
) -> DefinedAgent:
    owner = f"agent {name!r}"
    entries = parse_list(owner, "tools", tools)
    for tool in entries:
        parse_name(owner, "tools", tool, ToolSpec)
    fields = {
        "name": name,
        "role": role,
        "model": model,
        "system_prompt": _prompt(owner, prompt),
        "plan": plan,
        "tools": entries,
        "toolkits": parse_list(owner, "toolkits", toolkits),
        "routes": tuple(
            parse_name(owner, "routes", route, AgentSpec) for route in parse_list(owner, "routes", routes)
        ),
        "references": parse_list(owner, "references", references, ReferenceSpec),
        "stateful": stateful,
        "max_turns": max_turns,
        "tools_table": tools_table,
        "approval_policies": parse_policies(owner, approval),
        "tool_approval_policies": tool_approvals,
    }
    if output_schema is not None:
        fields["output_schema"] = parse_schema(output_schema, f"the output schema of {owner}")
    return DefinedAgent.model_validate(
        {key: value for key, value in drop_unset(fields).items() if value != ()}
    )


def _prompt(owner: str, prompt: Prompt) -> str:
    if isinstance(prompt, Mapping):
        try:
            return render_layers(prompt).text
        except (TypeError, ValueError) as error:
            raise type(error)(f"the prompt of {owner}: {error}") from error
    if not isinstance(prompt, str | LayeredPrompt):
        raise TypeError(
            f"the prompt of {owner} is a string, a layered prompt or layers, not {describe_type(prompt)}"
        )
    return str(prompt)
