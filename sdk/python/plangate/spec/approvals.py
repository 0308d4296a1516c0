"""Which approval rule is in force, and where it comes from: the hierarchy of rules as pure functions.

A rule stands, from the strongest to the weakest, in `approvalOverrides.tools[agent][tool]`, in the tool's
`approval`, in `approvalOverrides.agents[agent]`, in `approvalPolicies`; without any, plans are always
approved by a person and tools never are. The operator's floor for a tenant is applied after all of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from plangate.spec.models import ApprovalPolicies, ApprovalRule, Rule, RuntimeSpec, ToolSpec
from plangate.spec.toolkits import BUILTIN_TOOL_TOOLKITS

Origin = Literal["approvalOverrides.tools", "tool", "approvalOverrides.agents", "approvalPolicies", "default"]

DEFAULT_PLAN_RULE: Final = ApprovalRule(kind="always")
DEFAULT_TOOL_RULE: Final = ApprovalRule(kind="never")
DEFAULT_POLICIES: Final = ApprovalPolicies(plans=DEFAULT_PLAN_RULE, tools=DEFAULT_TOOL_RULE)

_RULE: Final[TypeAdapter[ApprovalRule | None]] = TypeAdapter(Rule)


@dataclass(frozen=True, slots=True)
class ResolvedRule:
    """The rule in force and the place in the spec that it comes from."""

    rule: ApprovalRule
    origin: Origin


def normalize_rule(value: str | Mapping[str, Any] | ApprovalRule | None) -> ApprovalRule | None:
    """A rule in any of the forms that authors write; None and "default" are no rule.

    Raises pydantic.ValidationError (a ValueError) for anything that is not a rule.
    """
    return _RULE.validate_python(value)


def tool_rule(spec: RuntimeSpec, agent_name: str, tool_name: str) -> ResolvedRule:
    """The rule for one tool in the hands of one agent.

    The wide rules (an agent's, the runtime's) are about declared tools. A builtin tool is gated only where
    `approvalOverrides.tools` names it: reading is harmless, an agent that is called has gates of its own,
    and executing a plan opens the plan's gate.
    """
    if tool_name in BUILTIN_TOOL_TOOLKITS:
        named = _named_rule(spec, agent_name, tool_name)
        return named or ResolvedRule(DEFAULT_TOOL_RULE, "default")
    tool = next((tool for tool in spec.tools if tool.name == tool_name), None)
    if tool is not None:
        return declared_tool_rule(spec, agent_name, tool)
    named = _named_rule(spec, agent_name, tool_name)
    return named or _wide_rule(spec, agent_name, "tools", DEFAULT_TOOL_RULE)


def declared_tool_rule(spec: RuntimeSpec, agent_name: str, tool: ToolSpec) -> ResolvedRule:
    """`tool_rule` for a tool that is at hand already."""
    named = _named_rule(spec, agent_name, tool.name)
    if named is not None:
        return named
    if tool.approval is not None:
        return ResolvedRule(tool.approval, "tool")
    return _wide_rule(spec, agent_name, "tools", DEFAULT_TOOL_RULE)


def plan_rule(spec: RuntimeSpec, agent_name: str | None) -> ResolvedRule:
    """The rule at the gate of a plan that `agent_name` executes; None: a host does, outside of any agent."""
    return _wide_rule(spec, agent_name, "plans", DEFAULT_PLAN_RULE)


def _named_rule(spec: RuntimeSpec, agent_name: str, tool_name: str) -> ResolvedRule | None:
    if spec.approval_overrides is None:
        return None
    rule = spec.approval_overrides.tools.get(agent_name, {}).get(tool_name)
    return None if rule is None else ResolvedRule(rule, "approvalOverrides.tools")


def _wide_rule(
    spec: RuntimeSpec, agent_name: str | None, channel: Literal["plans", "tools"], default: ApprovalRule
) -> ResolvedRule:
    overrides = spec.approval_overrides
    if overrides is not None and agent_name is not None and agent_name in overrides.agents:
        rule: ApprovalRule | None = getattr(overrides.agents[agent_name], channel)
        if rule is not None:
            return ResolvedRule(rule, "approvalOverrides.agents")
    if spec.approval_policies is not None:
        rule = getattr(spec.approval_policies, channel)
        if rule is not None:
            return ResolvedRule(rule, "approvalPolicies")
    return ResolvedRule(default, "default")
