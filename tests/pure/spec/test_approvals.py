"""The hierarchy of approval rules."""

from typing import Any

import pytest
from plangate.spec.approvals import ResolvedRule, normalize_rule, plan_rule, tool_rule
from plangate.spec.models import ApprovalRule, RuntimeSpec
from pydantic import ValidationError

ALWAYS, NEVER = ApprovalRule(kind="always"), ApprovalRule(kind="never")


def spec(**fields: Any) -> RuntimeSpec:
    tool = {"name": "pay", "inputSchema": {"type": "object"}, "approval": fields.pop("tool", None)}
    agent = {"name": "a", "role": "specialist", "model": "m", "tools": ["pay"]}
    return RuntimeSpec.model_validate(
        {"tenant": {"resourceId": "acme"}, "agents": [agent], "tools": [tool], **fields}
    )


BY_TOOL = {"approvalOverrides": {"tools": {"a": {"pay": "always"}}}}
BY_AGENT = {"approvalOverrides": {"agents": {"a": {"tools": "always", "plans": "never"}}}}
BOTH = {"approvalOverrides": {**BY_TOOL["approvalOverrides"], "agents": {"a": {"tools": "never"}}}}


@pytest.mark.parametrize(
    ("fields", "kind", "origin"),
    [
        ({}, "never", "default"),
        ({"approvalPolicies": {"tools": "always"}}, "always", "approvalPolicies"),
        ({"approvalPolicies": {"plans": "never"}}, "never", "default"),
        ({**BY_AGENT, "approvalPolicies": {"tools": "never"}}, "always", "approvalOverrides.agents"),
        ({**BY_AGENT, "tool": "never"}, "never", "tool"),
        ({"tool": "default", "approvalPolicies": {"tools": "always"}}, "always", "approvalPolicies"),
        ({**BY_TOOL, "tool": "never"}, "always", "approvalOverrides.tools"),
        (BOTH, "always", "approvalOverrides.tools"),
    ],
)
def test_the_strongest_rule_for_a_tool_wins(fields: Any, kind: str, origin: str) -> None:
    found = tool_rule(spec(**fields), "a", "pay")

    assert (found.rule.kind, found.origin) == (kind, origin)


@pytest.mark.parametrize(
    ("fields", "agent", "kind", "origin"),
    [
        ({}, "a", "always", "default"),
        ({"approvalPolicies": {"plans": "never"}}, "a", "never", "approvalPolicies"),
        ({**BY_AGENT, "approvalPolicies": {"plans": "always"}}, "a", "never", "approvalOverrides.agents"),
        ({**BY_AGENT, "approvalPolicies": {"plans": "always"}}, None, "always", "approvalPolicies"),
        (BY_AGENT, "other", "always", "default"),
    ],
)
def test_the_strongest_rule_for_a_plan_wins(fields: Any, agent: str | None, kind: str, origin: str) -> None:
    found = plan_rule(spec(**fields), agent)

    assert (found.rule.kind, found.origin) == (kind, origin)


def test_wide_rules_do_not_gate_builtin_tools() -> None:
    wide = spec(approvalPolicies={"tools": "always"})
    named = spec(approvalOverrides={"tools": {"a": {"call_agent": "always"}}})

    assert tool_rule(wide, "a", "call_agent") == ResolvedRule(NEVER, "default")
    assert tool_rule(named, "a", "call_agent") == ResolvedRule(ALWAYS, "approvalOverrides.tools")


def test_an_undeclared_tool_uses_the_general_rules() -> None:
    assert tool_rule(spec(approvalPolicies={"tools": "always"}), "a", "gone").rule == ALWAYS


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (None, None),
        ("default", None),
        ("never", NEVER),
        (ALWAYS, ALWAYS),
        ({"kind": "dynamic", "value": "big"}, ApprovalRule(kind="dynamic", value="big")),
        ({"kind": "always", "on_expiry": "fail"}, ApprovalRule(kind="always", on_expiry="fail")),
    ],
)
def test_rules_are_normalised(value: Any, rule: ApprovalRule | None) -> None:
    assert normalize_rule(value) == rule


@pytest.mark.parametrize("value", ["sometimes", 3, {}, {"kind": "always", "after": 1}])
def test_an_invalid_rule_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValidationError):
        normalize_rule(value)
