"""The hierarchy of approval rules, as pure functions: the rule in force and its origin.

A rule stands, from the strongest to the weakest, in `approvalOverrides.tools[agent][tool]`, in the tool's
`approval`, in `approvalOverrides.agents[agent]`, in `approvalPolicies`; without any, plans are always
approved by a person and tools never are. The operator's floor for a tenant is applied after all of these and
can only tighten what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from plangate.spec.models import (
    ApprovalPolicies,
    ApprovalRule,
    FreeArguments,
    Quorum,
    Rule,
    RuntimeSpec,
    ToolSpec,
)
from plangate.spec.toolkits import GATED_BUILTIN_TOOLS, UNGATED_BUILTIN_TOOLS

Origin = Literal[
    "approvalOverrides.tools", "tool", "approvalOverrides.agents", "approvalPolicies", "default", "floor"
]

ALWAYS: Final = ApprovalRule(kind="always")
DEFAULT_PLAN_RULE: Final = ALWAYS
DEFAULT_TOOL_RULE: Final = ApprovalRule(kind="never")
DEFAULT_POLICIES: Final = ApprovalPolicies(plans=DEFAULT_PLAN_RULE, tools=DEFAULT_TOOL_RULE)
DEFAULT_EXPIRES_MS: Final = 7 * 24 * 3600 * 1000
NO_FLOOR: Final = ApprovalPolicies()

_STRENGTH: Final = {"never": 0, "dynamic": 1, "always": 2}

_RULE: Final[TypeAdapter[ApprovalRule | None]] = TypeAdapter(Rule)


@dataclass(frozen=True, slots=True)
class ResolvedRule:
    """The rule in force and where it comes from. `max_expires_ms` is the longest that an approval may stay open,
    whatever a query asks for."""

    rule: ApprovalRule
    origin: Origin
    max_expires_ms: int | None = None

    def expires_in_ms(self, requested_ms: int | None) -> int:
        """Return how long an approval stays open: the query's value, else the rule's, within the floor."""
        lifetime_ms = requested_ms or self.rule.approval_expires_in_ms or DEFAULT_EXPIRES_MS
        return lifetime_ms if self.max_expires_ms is None else min(lifetime_ms, self.max_expires_ms)


def normalize_rule(value: str | Mapping[str, Any] | ApprovalRule | None) -> ApprovalRule | None:
    """Return a rule from any form that authors write; None and "default" are no rule.

    Raises pydantic.ValidationError (a ValueError) for anything that is not a rule.
    """
    return _RULE.validate_python(value)


def tool_rule(
    spec: RuntimeSpec, agent_name: str, tool_name: str, floor: ApprovalPolicies = NO_FLOOR
) -> ResolvedRule:
    """Return the rule for a tool that an agent calls, with the operator's floor applied.

    The wide rules (an agent's, the runtime's, the floor) are about declared tools. A built-in tool is gated only where
    `approvalOverrides.tools` names it: reading is harmless, an agent that is called has gates of its own,
    and executing a plan opens the plan's gate. The exceptions are `artifact_withdraw` and `artifact_choose`, which follow
    the rules of a declared tool with `approval: "always"`, and a statement on a data source, which follows the policies.
    """
    if tool_name in UNGATED_BUILTIN_TOOLS:
        return _rule_by_name(spec, agent_name, tool_name) or ResolvedRule(DEFAULT_TOOL_RULE, "default")
    declared = next((tool.approval for tool in spec.tools if tool.name == tool_name), None)
    own = ALWAYS if tool_name in GATED_BUILTIN_TOOLS else declared
    return apply_floor(_spec_rule(spec, agent_name, tool_name, own), floor.tools)


def declared_tool_rule(spec: RuntimeSpec, agent_name: str, tool: ToolSpec) -> ResolvedRule:
    """Return the rule of the spec for a declared tool."""
    return _spec_rule(spec, agent_name, tool.name, tool.approval)


def plan_rule(spec: RuntimeSpec, agent_name: str | None, floor: ApprovalPolicies = NO_FLOOR) -> ResolvedRule:
    """Return the rule at the gate of a plan that `agent_name` executes; None means that a host executes it."""
    return apply_floor(_wide_rule(spec, agent_name, "plans", DEFAULT_PLAN_RULE), floor.plans)


def tool_plan_rule(
    spec: RuntimeSpec, agent_name: str | None, tools: Iterable[str], floor: ApprovalPolicies = NO_FLOOR
) -> ResolvedRule:
    """Return the rule at the gate of a plan whose actions are calls of these tools: no weaker than the rule of any.

    A dynamic rule counts as `always`: arguments may be results of other actions, which nobody knows at the gate.
    """
    resolved = plan_rule(spec, agent_name, floor)
    for name in tools:
        of_tool = tool_rule(spec, agent_name or "", name, floor)
        if of_tool.rule.kind == "never":
            continue
        always = of_tool.rule.model_copy(update={"kind": "always", "value": None, "rememberable": False})
        expiries = [ms for ms in (resolved.max_expires_ms, of_tool.max_expires_ms) if ms is not None]
        rule = tighten_rule(resolved.rule, always)
        origin = resolved.origin if rule == resolved.rule else of_tool.origin
        resolved = ResolvedRule(rule, origin, min(expiries, default=None))
    return resolved


def apply_floor(resolved: ResolvedRule, floor: ApprovalRule | None) -> ResolvedRule:
    """Return the rule with the operator's floor applied. Its origin is the floor if the floor changed it."""
    if floor is None:
        return resolved
    rule = tighten_rule(resolved.rule, floor)
    origin: Origin = resolved.origin if rule == resolved.rule else "floor"
    return ResolvedRule(rule, origin, floor.approval_expires_in_ms)


def tighten_rule(rule: ApprovalRule, floor: ApprovalRule) -> ApprovalRule:
    """Return the stricter combination of `rule` and `floor`, never weaker than either.

    Two different predicates cannot both be asked, so they become `always`. What the floor leaves out of expiry and
    `on_expiry` is not said; what it leaves out of `rememberable` is no.
    """
    stronger = rule if _STRENGTH[rule.kind] >= _STRENGTH[floor.kind] else floor
    kind, value = stronger.kind, stronger.value
    if rule.kind == floor.kind == "dynamic" and rule.value != floor.value:
        kind, value = "always", None
    return ApprovalRule(
        kind=kind,
        value=value,
        approval_expires_in_ms=_min_expiry(rule.approval_expires_in_ms, floor.approval_expires_in_ms),
        on_expiry=rule.on_expiry or floor.on_expiry,
        approvers=_max_quorum(rule.approvers, floor.approvers),
        rememberable=_common_rememberable(rule.rememberable, floor.rememberable),
    )


def free_arguments(rememberable: bool | FreeArguments) -> tuple[str, ...] | None:
    """Return the sorted names of the arguments that a remembered approval leaves open, or None if none is remembered."""
    if isinstance(rememberable, bool):
        return () if rememberable else None
    return tuple(sorted(set(rememberable.free)))


def _min_expiry(own: int | None, floor: int | None) -> int | None:
    if floor is None or floor >= (own or DEFAULT_EXPIRES_MS):
        return own
    return floor


def _max_quorum(own: Quorum | None, floor: Quorum | None) -> Quorum | None:
    if floor is None or floor == Quorum():
        return own
    if own is None:
        return floor
    return Quorum(
        minimum=max(own.minimum, floor.minimum), not_requester=own.not_requester or floor.not_requester
    )


def _common_rememberable(own: bool | FreeArguments, floor: bool | FreeArguments) -> bool | FreeArguments:
    of_own, of_floor = free_arguments(own), free_arguments(floor)
    if of_own is None or of_floor is None:
        return False
    both = tuple(name for name in of_own if name in of_floor)
    if both == of_own:
        return own
    return FreeArguments(free=both) if both else True


def _rule_by_name(spec: RuntimeSpec, agent_name: str, tool_name: str) -> ResolvedRule | None:
    if spec.approval_overrides is None:
        return None
    rule = spec.approval_overrides.tools.get(agent_name, {}).get(tool_name)
    return None if rule is None else ResolvedRule(rule, "approvalOverrides.tools")


def _spec_rule(spec: RuntimeSpec, agent_name: str, tool_name: str, own: ApprovalRule | None) -> ResolvedRule:
    """Return the rule of the spec for a tool. `own` is the rule of the tool itself."""
    by_name = _rule_by_name(spec, agent_name, tool_name)
    if by_name is not None:
        return by_name
    if own is not None:
        return ResolvedRule(own, "tool")
    return _wide_rule(spec, agent_name, "tools", DEFAULT_TOOL_RULE)


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
