"""The operator's floor: the result is never weaker than the rule or the floor."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.spec.approvals import (
    DEFAULT_EXPIRES_MS,
    ResolvedRule,
    apply_floor,
    free_arguments,
    plan_rule,
    tighten_rule,
    tool_rule,
)
from plangate.spec.models import ApprovalPolicies, ApprovalRule, RuntimeSpec

KINDS = ("never", "dynamic", "always")
MS = st.one_of(st.none(), st.integers(1, 3 * DEFAULT_EXPIRES_MS))


def of(kind: str, value: str, **fields: Any) -> ApprovalRule:
    return ApprovalRule(kind=kind, value=value if kind == "dynamic" else None, **fields)  # type: ignore[arg-type]


RULES = st.builds(
    of,
    kind=st.sampled_from(KINDS),
    value=st.sampled_from(("big", "odd")),
    approval_expires_in_ms=MS,
    on_expiry=st.sampled_from((None, "reject", "fail")),
    approvers=st.one_of(
        st.none(), st.fixed_dictionaries({"minimum": st.integers(1, 4), "not_requester": st.booleans()})
    ),
    rememberable=st.one_of(
        st.booleans(),
        st.fixed_dictionaries({"free": st.lists(st.sampled_from("abc"), max_size=4).map(tuple)}),
    ),
)


def minimum(rule: ApprovalRule) -> int:
    return rule.approvers.minimum if rule.approvers else 1


def bars_requester(rule: ApprovalRule) -> bool:
    return rule.approvers is not None and rule.approvers.not_requester


def is_remembered_less(one: ApprovalRule, other: ApprovalRule) -> bool:
    mine, theirs = free_arguments(one.rememberable), free_arguments(other.rememberable)
    return mine is None or (theirs is not None and set(mine) <= set(theirs))


def asks_whenever(one: ApprovalRule, other: ApprovalRule) -> bool:
    """Whether `one` asks whenever `other` does, whatever their predicates say."""
    return one.kind == "always" or other.kind == "never" or (one.kind, one.value) == (other.kind, other.value)


@given(RULES, RULES)
def test_the_result_is_never_weaker_than_either(rule: ApprovalRule, floor: ApprovalRule) -> None:
    found = tighten_rule(rule, floor)
    for side in (rule, floor):
        assert asks_whenever(found, side)
        assert minimum(found) >= minimum(side)
        assert bars_requester(found) or not bars_requester(side)
        assert is_remembered_less(found, side)
        if side.approval_expires_in_ms is not None:
            assert (found.approval_expires_in_ms or DEFAULT_EXPIRES_MS) <= side.approval_expires_in_ms
    assert (found.approval_expires_in_ms or DEFAULT_EXPIRES_MS) <= (
        rule.approval_expires_in_ms or DEFAULT_EXPIRES_MS
    )
    assert found.on_expiry == (rule.on_expiry or floor.on_expiry)


@given(RULES, RULES)
def test_a_floor_twice_is_a_floor(rule: ApprovalRule, floor: ApprovalRule) -> None:
    once = tighten_rule(rule, floor)
    assert tighten_rule(once, floor) == once
    assert tighten_rule(rule, ApprovalRule(kind="never", rememberable=rule.rememberable)) == rule


@given(RULES, RULES, st.one_of(st.none(), st.integers(1, 3 * DEFAULT_EXPIRES_MS)))
def test_a_query_cannot_extend_the_floors_expiry(
    rule: ApprovalRule, floor: ApprovalRule, asked: int | None
) -> None:
    plain = ResolvedRule(rule, "tool")
    lives = apply_floor(plain, floor).expires_in_ms(asked)
    assert lives <= plain.expires_in_ms(asked)
    if floor.approval_expires_in_ms is not None:
        assert lives <= floor.approval_expires_in_ms


@pytest.mark.parametrize(
    ("rule", "floor", "expected"),
    [
        ("never", "always", {"kind": "always"}),
        ("always", "never", {"kind": "always"}),
        ({"kind": "dynamic", "value": "big"}, "never", {"kind": "dynamic", "value": "big"}),
        ({"kind": "dynamic", "value": "big"}, "always", {"kind": "always"}),
        (
            {"kind": "dynamic", "value": "big"},
            {"kind": "dynamic", "value": "big"},
            {"kind": "dynamic", "value": "big"},
        ),
        ({"kind": "dynamic", "value": "big"}, {"kind": "dynamic", "value": "odd"}, {"kind": "always"}),
        ({"kind": "always", "rememberable": True}, "never", {"kind": "always"}),
        (
            {"kind": "always", "rememberable": {"free": ["a", "b"]}},
            {"kind": "never", "rememberable": {"free": ["b", "c"]}},
            {"kind": "always", "rememberable": {"free": ["b"]}},
        ),
        (
            {"kind": "always", "rememberable": {"free": ["a"]}},
            {"kind": "never", "rememberable": True},
            {"kind": "always", "rememberable": True},
        ),
        (
            {"kind": "always", "onExpiry": "reject", "approvalExpiresInMs": 5},
            {"kind": "always", "onExpiry": "fail", "approvalExpiresInMs": 9},
            {"kind": "always", "onExpiry": "reject", "approvalExpiresInMs": 5},
        ),
        (
            {"kind": "always", "approvers": {"minimum": 3}},
            {"kind": "always", "approvers": {"minimum": 2, "notRequester": True}},
            {"kind": "always", "approvers": {"minimum": 3, "notRequester": True}},
        ),
    ],
)
def test_a_floor_and_a_rule_combine_to_the_stricter(rule: Any, floor: Any, expected: Any) -> None:
    policies = ApprovalPolicies.model_validate({"tools": rule})
    under = ApprovalPolicies.model_validate({"tools": floor})
    assert policies.tools is not None and under.tools is not None
    assert tighten_rule(policies.tools, under.tools).to_wire() == expected


def test_a_floor_is_applied_last_and_not_to_builtin_tools() -> None:
    spec = RuntimeSpec.model_validate(
        {
            "tenant": {"resourceId": "acme"},
            "agents": [{"name": "a", "role": "specialist", "model": "m", "tools": ["pay"]}],
            "tools": [{"name": "pay", "inputSchema": {"type": "object"}, "approval": "never"}],
            "approvalOverrides": {"tools": {"a": {"pay": "never", "getPlan": "never"}}},
            "approvalPolicies": {"plans": "never"},
        }
    )
    floor = ApprovalPolicies.model_validate({"tools": "always", "plans": "always"})
    assert tool_rule(spec, "a", "pay", floor) == ResolvedRule(ApprovalRule(kind="always"), "floor")
    assert tool_rule(spec, "a", "gone", floor).origin == "floor"
    assert tool_rule(spec, "a", "getPlan", floor).origin == "approvalOverrides.tools"
    assert tool_rule(spec, "a", "call_agent", floor).origin == "default"
    assert plan_rule(spec, "a", floor) == ResolvedRule(ApprovalRule(kind="always"), "floor")
    assert plan_rule(spec, None, floor).origin == "floor"
    assert plan_rule(spec, None, ApprovalPolicies(tools="always")).origin == "approvalPolicies"  # type: ignore[arg-type]
