"""From what an author wrote to the spec that is registered: every part checked, collected and filled in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from plangate.spec import checks, gate_checks
from plangate.spec.approvals import DEFAULT_POLICIES, declared_tool_rule, tool_plan_rule, tool_rule
from plangate.spec.drafts import Draft, DraftPart, read_draft
from plangate.spec.models import (
    PLAN_ROLES,
    AgentSpec,
    ApprovalOverrides,
    ApprovalPolicies,
    ApprovalRule,
    ModelSpec,
    PlanSpec,
    ReferenceSpec,
    RuntimeSpec,
    ToolSpec,
    to_wire,
)
from plangate.spec.problems import Problem, SpecInvalid, ancestors
from plangate.spec.prompts import augment_prompt_tools, first_sentence, render_layers
from plangate.spec.tool_plans import tool_plan
from plangate.spec.toolkits import granted_builtins

__all__ = ["AssembledRuntime", "Problem", "SpecInvalid", "assemble"]

MAX_PROBLEMS: Final = 1_000
_OPENAI_MODEL: Final = re.compile(r"(chat)?gpt-|o\d")

_CHECKS: Final = (
    checks.check_agents,
    checks.check_tool_tables,
    checks.check_toolkits,
    checks.check_providers,
    gate_checks.check_declarations,
    gate_checks.check_schemas,
    gate_checks.check_approvals,
    gate_checks.check_dispatchers,
    gate_checks.check_tool_plans,
    gate_checks.check_output_paths,
    gate_checks.check_values,
)

DeclaredT = TypeVar("DeclaredT", PlanSpec, ReferenceSpec)


@dataclass(frozen=True, slots=True)
class AssembledRuntime:
    """A spec that can be registered: its final form, and the JSON object that crosses the wire.

    Assembling the wire form again gives the same wire form.
    """

    spec: RuntimeSpec
    wire: dict[str, Any]


Check = Callable[[Draft], Iterator[Problem]]
"""Finds what is wrong with what could be read of a spec."""


def assemble(
    raw: Mapping[str, Any] | RuntimeSpec,
    *,
    check_predicates: bool = True,
    extra_checks: Sequence[Check] = (),
    max_problems: int = MAX_PROBLEMS,
) -> AssembledRuntime:
    """Check a spec and bring it into its final form.

    Plans and references declared on agents are collected, layered prompts are rendered and get the table of
    the tools that the agent can call, approval rules written on agents and on bound tools move into
    `approvalOverrides`, and defaults that depend on other parts are filled in.

    `check_predicates=False` leaves out that dynamic rules name a registered predicate: for authors whose
    predicates are registered later, when the runtime is created. `also` are further checks, of the caller's
    surroundings: what they find is reported with everything else.

    Raises SpecInvalid with the problems, each with its JSON pointer into `raw`: at most `max_problems`, and of one list
    or mapping the malformed entries up to the first 21 errors.
    """
    draft = read_draft(raw)
    problems = tuple(islice(_drop_duplicates(_problems(draft, check_predicates, extra_checks)), max_problems))
    if problems:
        raise SpecInvalid(problems)
    spec = _final_spec(draft)
    return AssembledRuntime(spec, to_wire(spec))


def _drop_duplicates(problems: Iterator[Problem]) -> Iterator[Problem]:
    reported: set[Problem] = set()
    for problem in problems:
        if problem not in reported:
            reported.add(problem)
            yield problem


def _problems(draft: Draft, check_predicates: bool, also: Sequence[Check]) -> Iterator[Problem]:
    """Return all problems, except those that only follow from an unreadable part."""
    yield from draft.problems
    yield from checks.check_tools(draft)
    unreadable = {problem.pointer for problem in draft.problems}
    around = {pointer for place in unreadable for pointer in ancestors(place)}
    last = (_check_ungated_tools, *((gate_checks.check_predicates,) if check_predicates else ()))
    for check in (*_CHECKS, *last, *also):
        for problem in check(draft):
            if problem.pointer not in around and unreadable.isdisjoint(ancestors(problem.pointer)):
                yield problem


def _check_ungated_tools(draft: Draft) -> Iterator[Problem]:
    """Check that no agent can call a tool without approval that a plan puts under approval."""
    overrides = {"approval_overrides": _overrides(draft.spec), "approval_policies": _policies(draft.spec)}
    spec = draft.spec.model_copy(update=overrides)
    declared = {tool.value.name: tool.value for tool in draft.tools}
    plans = {name: plan.value.name for plan in draft.plans for name in plan.value.tools}
    for agent in draft.agents:
        for index, name in enumerate(agent.value.tools):
            tool = declared.get(name)
            if tool is None or name not in plans or (tool.annotations and tool.annotations.read_only):
                continue
            if declared_tool_rule(spec, agent.value.name, tool).rule.kind == "never":
                yield Problem(
                    agent.at("tools", index),
                    f"agent {agent.value.name!r} can call the tool {name!r} without approval, which plan {plans[name]!r} "
                    "puts under approval: remove it from the agent's tools, give it an approval rule, or annotate it as "
                    "readOnly if it changes nothing",
                )


def _final_spec(draft: Draft) -> RuntimeSpec:
    spec = draft.spec
    tools = {tool.name: tool for tool in spec.tools}
    plans = tuple(tool_plan(plan, tools) for plan in _unique_by_name(draft.plans))
    collected = spec.model_copy(
        update={
            "agents": tuple(_complete_agent(agent, spec, plans) for agent in spec.agents),
            "plans": plans,
            "references": _unique_by_name(draft.references),
            "tools": tuple(tool.model_copy(update={"replay": tool.replay_rule()}) for tool in spec.tools),
            "approval_policies": _policies(spec),
            "approval_overrides": _overrides(spec),
        }
    )
    declared = {tool.name: tool for tool in collected.tools}
    prompted = tuple(_with_tool_table(collected, agent, declared) for agent in collected.agents)
    return collected.model_copy(update={"agents": prompted})


def _unique_by_name(declared: tuple[DraftPart[DeclaredT], ...]) -> tuple[DeclaredT, ...]:
    first: dict[str, DeclaredT] = {}
    for item in declared:
        first.setdefault(item.value.name, item.value)
    return tuple(first.values())


def _complete_agent(agent: AgentSpec, spec: RuntimeSpec, plans: Sequence[PlanSpec]) -> AgentSpec:
    """Return the agent with its defaults, without the fields that are only for authoring."""
    plan = agent.plan_name
    if plan is None and agent.role in PLAN_ROLES:
        plan = plans[0].name  # the only one: the checks have seen to it
    return agent.model_copy(
        update={
            "model": with_provider(agent.model, spec),
            "plan": plan,
            "system_prompt": _prompt(agent),
            "prompt": None,
            "references": (),
            "approval_policies": None,
            "tool_approval_policies": {},
        }
    )


def with_provider(model: ModelSpec, spec: RuntimeSpec) -> ModelSpec:
    """Return the model with its provider: the only declared one, else the vendor that its id names."""
    if "provider" in model.model_fields_set:
        return model
    if len(spec.providers) == 1:
        provider = next(iter(spec.providers))
    else:
        provider = "openai" if _OPENAI_MODEL.match(model.id) else model.provider
    return model.model_copy(update={"provider": provider})


def _prompt(agent: AgentSpec) -> str:
    if agent.prompt is None:
        return agent.system_prompt
    return agent.prompt if isinstance(agent.prompt, str) else render_layers(agent.prompt).text


def _policies(spec: RuntimeSpec) -> ApprovalPolicies:
    """Return the runtime's policies, else the coordinator's, with both channels set."""
    spec_policies = spec.approval_policies
    if spec_policies is None:
        theirs = (agent.approval_policies for agent in spec.agents if agent.role == "coordinator")
        spec_policies = next((policies for policies in theirs if policies is not None), DEFAULT_POLICIES)
    return ApprovalPolicies(
        plans=spec_policies.plans or DEFAULT_POLICIES.plans,
        tools=spec_policies.tools or DEFAULT_POLICIES.tools,
    )


def _overrides(spec: RuntimeSpec) -> ApprovalOverrides | None:
    """Return the overrides with the rules of agents and of bound tools moved in; existing entries win."""
    overrides = spec.approval_overrides or ApprovalOverrides()
    approvals = {tool.name: tool.approval for tool in spec.tools}
    tools: dict[str, dict[str, ApprovalRule | None]] = {}
    agents: dict[str, ApprovalPolicies] = {}
    for agent in spec.agents:
        bound = {name: approvals.get(name) for name in agent.tools}
        layers = (bound, agent.tool_approval_policies, overrides.tools.get(agent.name, {}))
        rules = {name: rule for layer in layers for name, rule in layer.items() if rule is not None}
        if rules:
            tools[agent.name] = dict(rules)
        own = agent.approval_policies or ApprovalPolicies()
        explicit = overrides.agents.get(agent.name, ApprovalPolicies())
        laid = ApprovalPolicies(plans=explicit.plans or own.plans, tools=explicit.tools or own.tools)
        if laid.plans is not None or laid.tools is not None:
            agents[agent.name] = laid
    return ApprovalOverrides(tools=tools, agents=agents) if tools or agents else None


def _with_tool_table(spec: RuntimeSpec, agent: AgentSpec, declared: Mapping[str, ToolSpec]) -> AgentSpec:
    """Return the agent with a prompt that lists the tools that it can call, each with the rule in force. The definitions
    of the tools carry the rest of their descriptions."""
    if not agent.tools_table:
        return agent
    rows = [
        {
            "name": name,
            "description": first_sentence(declared[name].description),
            "approval": declared_tool_rule(spec, agent.name, declared[name]).rule.kind,
        }
        for name in agent.tools
    ]
    for tool in granted_builtins(spec, agent):
        row = {"name": tool.name, "description": first_sentence(tool.description)}
        rule = tool_rule(spec, agent.name, tool.name)
        if rule.origin != "default":
            row["approval"] = rule.rule.kind
        elif tool.name == "executePlan":
            plan = next((plan for plan in spec.plans if plan.name == agent.plan_name), None)
            row["approval"] = tool_plan_rule(spec, agent.name, plan.tools if plan else ()).rule.kind
        rows.append(row)
    text = augment_prompt_tools(agent.system_prompt, rows).text
    return agent.model_copy(update={"system_prompt": text})
