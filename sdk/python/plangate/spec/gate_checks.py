"""Checks of the write boundary in a spec: plans, approval rules, dispatchers, schemas and data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from plangate.spec.action_schemas import ActionMetas
from plangate.spec.base import SpecModel, did_you_mean
from plangate.spec.drafts import Draft, DraftPart
from plangate.spec.models import ApprovalRule, PlanSpec, ReferenceSpec, ToolSpec
from plangate.spec.patterns import MAX_SPEC_PATTERN_COST
from plangate.spec.plan_schemas import action_kinds, actions_schema
from plangate.spec.problems import Problem, Step
from plangate.spec.schemas import check_schema, schema_pattern_cost
from plangate.spec.tool_plans import dialect, tool_plan_schema, tool_problem
from plangate.spec.toolkits import BUILTIN_TOOL_TOOLKITS
from plangate.spec.transport_checks import transport_problems
from plangate.spec.transports import ToolDispatcher
from plangate.spec.variable_schemas import (
    data_name_problem,
    fixed_output_path,
    fixed_output_path_problem,
    has_variables,
    output_path_problem,
)

TOOL_RESULT: Final = "ToolResult"
"""The kind of reference that a result becomes which is too large for a prompt."""

QUERY_RESULT: Final = "QueryResult"
"""The kind of reference that the result of a statement on a data source becomes."""

_OWN_KINDS: Final = {
    TOOL_RESULT: "of results that are too large for a prompt",
    QUERY_RESULT: "of results of statements on data sources",
}

DeclaredT = TypeVar("DeclaredT", PlanSpec, ReferenceSpec)


def check_declarations(draft: Draft) -> Iterator[Problem]:
    """Check that a name of a plan or reference has one meaning and is not reserved."""
    yield from _conflicts(draft.plans, "plan", len(draft.spec.plans))
    yield from _conflicts(draft.references, "reference", len(draft.spec.references))
    for reference in draft.references:
        name = reference.value.name
        if name in _OWN_KINDS:
            yield Problem(
                reference.at("name"),
                f"reference {name!r} is the service's own, {_OWN_KINDS[name]}: choose another name",
            )


def _conflicts(declared: tuple[DraftPart[DeclaredT], ...], what: str, own: int) -> Iterator[Problem]:
    """Check the names of a list. The first `own` are the runtime's and must be unique; agents may repeat them."""
    first: dict[str, DraftPart[DeclaredT]] = {}
    for index, item in enumerate(declared):
        name = item.value.name
        earlier = first.setdefault(name, item)
        if earlier is item:
            continue
        if index < own:
            yield Problem(
                item.at("name"), f"{what} {name!r} is declared twice, first at {earlier.pointer}: rename one"
            )
        elif item.value != earlier.value:
            yield Problem(
                item.at("name"),
                f"{what} {name!r} is declared differently at {earlier.pointer}: keep one, or rename it",
            )


def check_schemas(draft: Draft) -> Iterator[Problem]:
    """Check that every JSON Schema is valid and has no external references.

    The total cost of compiling their patterns is bounded.
    """
    cost = 0
    for pointer, schema, owner in spec_schemas(draft):
        cost += schema_pattern_cost(schema)
        if cost > MAX_SPEC_PATTERN_COST:
            yield Problem(
                pointer,
                f"with the schema of {owner} the patterns of the spec have more than {MAX_SPEC_PATTERN_COST} states once "
                "repetitions are unfolded: use smaller counts",
            )
            return
        for below, message in check_schema(schema):
            yield Problem(pointer + below, f"the schema of {owner} is not usable: {message}")


def spec_schemas(draft: Draft) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Return every JSON Schema of a spec: its JSON pointer, the schema, and whose it is."""
    for tool in draft.tools:
        yield tool.at("inputSchema"), tool.value.input_schema, f"tool {tool.value.name!r}"
        if tool.value.output_schema is not None:
            yield tool.at("outputSchema"), tool.value.output_schema, f"tool {tool.value.name!r}"
    for plan in draft.plans:
        yield plan.at("schema"), plan.value.schema_, f"plan {plan.value.name!r}"
    for reference in draft.references:
        yield reference.at("schema"), reference.value.schema_, f"reference {reference.value.name!r}"
    for agent in draft.agents:
        if agent.value.output_schema is not None:
            yield agent.at("outputSchema"), agent.value.output_schema, f"agent {agent.value.name!r}"
    if draft.spec.input_schema is not None:
        yield draft.at("inputSchema"), draft.spec.input_schema, "the runtime's inputs"
    if draft.spec.state_schema is not None:
        yield draft.at("stateSchema"), draft.spec.state_schema, "the runtime's state"


def check_approvals(draft: Draft) -> Iterator[Problem]:
    """Check that rules name existing agents and tools, and that one coordinator at most has policies."""
    overrides = draft.spec.approval_overrides
    if overrides is not None:
        for channel, entries in (("tools", list(overrides.tools)), ("agents", list(overrides.agents))):
            for name in entries:
                if not draft.is_declared("agents", name):
                    hint = did_you_mean(name, draft.known("agents"))
                    yield Problem(
                        draft.at("approvalOverrides", channel, name),
                        f"approvalOverrides.{channel} names {name!r}, which is not an agent{hint}",
                    )
    for pointer, agent_name, tool, _ in _tool_rules(draft):
        if tool not in BUILTIN_TOOL_TOOLKITS and not draft.is_declared("tools", tool):
            hint = did_you_mean(tool, draft.known("tools"))
            yield Problem(
                pointer, f"an approval rule of agent {agent_name!r} names {tool!r}, which is not a tool{hint}"
            )
    authors = [a for a in draft.agents if a.value.role == "coordinator" and a.value.approval_policies]
    if draft.spec.approval_policies is None and len(authors) > 1:
        names = " and ".join(repr(agent.value.name) for agent in authors)
        yield Problem(
            authors[1].at("approvalPolicies"),
            f"coordinators {names} both have approval policies, so the runtime's are not clear: write "
            "'approvalPolicies' on the runtime",
        )


def check_predicates(draft: Draft) -> Iterator[Problem]:
    """Check that dynamic rules name registered predicates."""
    for pointer, owner, rule in _rules(draft):
        if (
            rule is None
            or rule.kind != "dynamic"
            or draft.is_declared("approvalPredicates", rule.value or "")
        ):
            continue
        hint = did_you_mean(rule.value or "", draft.known("approvalPredicates"))
        yield Problem(
            pointer,
            f"{owner} names the predicate {rule.value!r}, which is not registered: add it to "
            f"'approvalPredicates'{hint}",
        )


def _rules(draft: Draft) -> Iterator[tuple[str, str, ApprovalRule | None]]:
    """Yield every rule for tools, with its pointer and its owner."""
    policies, overrides = draft.spec.approval_policies, draft.spec.approval_overrides
    if policies is not None:
        yield draft.at("approvalPolicies", "tools"), "approvalPolicies.tools", policies.tools
    for name, entry in overrides.agents.items() if overrides is not None else ():
        pointer = draft.at("approvalOverrides", "agents", name, "tools")
        yield pointer, f"the override for agent {name!r}", entry.tools
    for tool in draft.tools:
        yield tool.at("approval"), f"the approval of tool {tool.value.name!r}", tool.value.approval
    for agent in draft.agents:
        if agent.value.approval_policies is not None:
            rule = agent.value.approval_policies.tools
            yield agent.at("approvalPolicies", "tools"), f"the policy of agent {agent.value.name!r}", rule
    for pointer, name, tool_name, rule in _tool_rules(draft):
        yield pointer, f"the rule of agent {name!r} for tool {tool_name!r}", rule


def _tool_rules(draft: Draft) -> Iterator[tuple[str, str, str, ApprovalRule | None]]:
    """(pointer, agent, tool, rule) of every rule for one tool of one agent."""
    overrides = draft.spec.approval_overrides
    for agent_name, rules in overrides.tools.items() if overrides is not None else ():
        for tool, rule in rules.items():
            yield draft.at("approvalOverrides", "tools", agent_name, tool), agent_name, tool, rule
    for agent in draft.agents:
        for tool, rule in agent.value.tool_approval_policies.items():
            yield agent.at("toolApprovalPolicies", tool), agent.value.name, tool, rule


def check_dispatchers(draft: Draft) -> Iterator[Problem]:
    """Check that dispatchers can run, belong to a kind of action, and use tools that no agent can call."""
    spec = draft.spec
    callers: dict[str, list[str]] = {}
    for agent in draft.agents:
        for tool in agent.value.tools:
            callers.setdefault(tool, []).append(agent.value.name)
    if spec.action_dispatcher is not None:
        yield from _check_dispatcher(draft, spec.action_dispatcher, ("actionDispatcher",), callers)
    kinds = [action_kinds(plan.value.schema_) for plan in draft.plans if not plan.value.tools]
    all_read = draft.names["plans"].keys() <= {plan.value.name for plan in draft.plans}
    open_ended = None in kinds or not all_read or "plans" in draft.unread
    known = {kind for entry in kinds for kind in entry or ()}
    for kind, dispatcher in spec.action_dispatchers.items():
        yield from _check_dispatcher(draft, dispatcher, ("actionDispatchers", kind), callers)
        if not open_ended and kind not in known:
            yield Problem(
                draft.at("actionDispatchers", kind),
                f"there is a dispatcher for actions of kind {kind!r}, which no plan has"
                f"{did_you_mean(kind, known)}",
            )


def _check_dispatcher(
    draft: Draft, dispatcher: SpecModel, place: tuple[Step, ...], callers: Mapping[str, list[str]]
) -> Iterator[Problem]:
    for inner, why in transport_problems(dispatcher):
        yield Problem(draft.at(*place, *inner), f"{'.'.join(map(str, place))}: {why}")
    if not isinstance(dispatcher, ToolDispatcher):
        return
    name, pointer = dispatcher.tool, draft.at(*place, "tool")
    if not draft.is_declared("tools", name):
        hint = did_you_mean(name, draft.known("tools"))
        yield Problem(
            pointer, f"actions are dispatched through the tool {name!r}, which is not in 'tools'{hint}"
        )
    if name in callers:
        yield Problem(
            pointer,
            f"the tool {name!r} dispatches approved actions, so no agent may call it: remove it from the "
            f"tools of {', '.join(map(repr, callers[name]))}",
        )


def check_tool_plans(draft: Draft) -> Iterator[Problem]:
    """Check that plans made of tool calls name declared tools, whose schemas fit together."""
    tools = {tool.value.name: tool.value for tool in draft.tools}
    for plan in draft.plans:
        problems = list(_tool_plan_problems(draft, plan, tools))
        yield from problems
        own = [tools[name] for name in plan.value.tools if name in tools]
        schema = plan.value.schema_
        if not own or problems or len(own) < len(plan.value.tools):
            continue
        if check_schema(schema) or any(check_schema(tool.input_schema) for tool in own):
            continue
        if actions_schema(schema) is not None and tool_plan_schema(schema, own) != schema:
            yield Problem(
                plan.at("schema"),
                f"plan {plan.value.name!r} has 'tools', from which its actions come, and a schema with other 'actions': "
                "remove 'actions' from the schema, or 'tools'",
            )


def _tool_plan_problems(
    draft: Draft, plan: DraftPart[PlanSpec], tools: Mapping[str, ToolSpec]
) -> Iterator[Problem]:
    name, reported = plan.value.name, set[str]()
    dialects: dict[str | None, str] = {}
    for index, tool in enumerate(plan.value.tools):
        pointer = plan.at("tools", index)
        if tool in reported:
            yield Problem(pointer, f"plan {name!r} names the tool {tool!r} twice: keep one")
        elif tool in BUILTIN_TOOL_TOOLKITS:
            yield Problem(
                pointer, f"plan {name!r} names the builtin tool {tool!r}: a plan is made of declared tools"
            )
        elif not draft.is_declared("tools", tool):
            hint = did_you_mean(tool, draft.known("tools"))
            yield Problem(pointer, f"plan {name!r} names the tool {tool!r}, which is not in 'tools'{hint}")
        elif tool in tools and (why := tool_problem(tools[tool])) is not None:
            yield Problem(pointer, f"the tool {tool!r} cannot be an action of plan {name!r}: {why}")
        elif tool in tools:
            dialects.setdefault(dialect(tools[tool]), tool)
        reported.add(tool)
    if len(dialects) > 1:
        listing = ", ".join(f"{tool!r}: {uri or 'none'}" for uri, tool in dialects.items())
        yield Problem(
            plan.at("tools"),
            f"the schemas of the tools of plan {name!r} name different '$schema' ({listing}): use one, or none",
        )


def check_output_paths(draft: Draft) -> Iterator[Problem]:
    """Check that the paths that actions of plans with variables prescribe for their results can be written, and that an
    action and the tool behind it prescribe the same."""
    graphs = {agent.value.plan_name for agent in draft.agents if has_variables(agent.value)}
    tools = {tool.value.name: tool.value for tool in draft.tools}
    for plan in draft.plans:
        for index, name in enumerate(plan.value.tools):
            why = fixed_output_path_problem(tools[name].input_schema) if name in tools else None
            if why is not None:
                yield Problem(
                    plan.at("tools", index),
                    f"the results of the tool {name!r} in plan {plan.value.name!r} have nowhere to go: {why}",
                )
        graph = plan.value.variables or plan.value.name in graphs
        if plan.value.tools or not graph or check_schema(plan.value.schema_):
            continue
        for kind, meta in ActionMetas.from_schema(plan.value.schema_).items():
            dispatcher = draft.spec.action_dispatchers.get(kind or "", draft.spec.action_dispatcher)
            by = tools.get(dispatcher.tool) if isinstance(dispatcher, ToolDispatcher) else None
            of_tool = fixed_output_path(by.input_schema) if by is not None else None
            path = meta.output_path or of_tool
            owner = f"actions {kind!r} of plan {plan.value.name!r}" if kind else f"plan {plan.value.name!r}"
            if path is not None and (why := output_path_problem(path)) is not None:
                yield Problem(plan.at("schema"), f"the results of {owner} have nowhere to go: {why}")
            elif by is not None and of_tool is not None and meta.output_path not in (None, of_tool):
                yield Problem(
                    plan.at("schema"),
                    f"the results of {owner} go to {meta.output_path!r}, and those of the tool {by.name!r} that carries "
                    f"them out to {of_tool!r}: make both the same, or leave one out",
                )


def check_values(draft: Draft) -> Iterator[Problem]:
    """Check that data names fit variables, opaque parts are JSON, and `mockResponse` has its interpreter."""
    for name in draft.spec.data:
        if (problem := data_name_problem(name)) is not None:
            yield Problem(draft.at("data", name), problem)
    opaque: list[tuple[str, Mapping[str, Any] | None]] = [(draft.at("data"), draft.spec.data)]
    for agent in draft.agents:
        opaque.append((agent.at("model", "extra"), agent.value.model.extra))
        opaque.append((agent.at("model", "thinking"), agent.value.model.thinking))
    for pointer, value in opaque:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            yield Problem(pointer, f"this is not JSON: {error}")
    if draft.spec.mock_response is not None and draft.spec.interpreter not in (None, "mock"):
        yield Problem(
            draft.at("mockResponse"),
            f"'mockResponse' is the text of the interpreter 'mock', not of {draft.spec.interpreter!r}",
        )
