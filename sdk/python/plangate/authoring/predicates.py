"""Predicates of dynamic approval rules: CEL expressions, which are data, and functions of the author."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from plangate.authoring.arguments import check_callable, describe_type
from plangate.spec.models import ApprovalOverrides, ApprovalPolicies, ClientPredicate, RuntimeSpec

PredicateFunction = Callable[[Any, Any], bool | Awaitable[bool]]
"""`(args, ctx) -> bool`, sync or async: whether a call with these arguments needs an approval."""


def parse_predicates(predicates: Any) -> dict[str, Any]:
    """Return the given predicates by id.

    Raises:
        TypeError: for what is no mapping of ids to CEL expressions and functions `(args, ctx)`.
    """
    if predicates is None:
        return {}
    if not isinstance(predicates, Mapping) or not all(isinstance(id_, str) for id_ in predicates):
        raise TypeError(
            "approval_predicates is a mapping of ids to CEL expressions or functions (args, ctx), "
            f"not {describe_type(predicates)}"
        )
    for id_, rule in predicates.items():
        if not isinstance(rule, str | Mapping | ClientPredicate):
            check_callable(rule, f"the approval predicate {id_!r}", "args, ctx", "a CEL expression or ")
    return dict(predicates)


def predicates_to_wire(predicates: Mapping[str, Any]) -> dict[str, Any]:
    """Return the predicates to register. A function becomes a predicate that a process of the author answers."""
    return {
        id_: ClientPredicate(kind="client") if callable(rule) else rule for id_, rule in predicates.items()
    }


def predicate_functions(predicates: Mapping[str, Any]) -> dict[str, PredicateFunction]:
    """Return the predicates that are functions."""
    return {id_: rule for id_, rule in predicates.items() if callable(rule)}


def check_functions(wire: Mapping[str, Any], functions: Mapping[str, PredicateFunction]) -> None:
    """Raise ValueError if the spec has a predicate that a function must answer and no function is given."""
    for id_, rule in wire.get("approvalPredicates", {}).items():
        if not isinstance(rule, str) and id_ not in functions:
            raise ValueError(
                f"the approval predicate {id_!r} is a function, and it was not given: pass it to "
                f"create_runtime, as approval_predicates={{{id_!r}: function}} with a function (args, ctx)"
            )


def missing_predicates(spec: RuntimeSpec) -> tuple[str, ...]:
    """Return the ids that rules of an assembled spec name and that no predicate has."""
    overrides = spec.approval_overrides or ApprovalOverrides()
    policies = (spec.approval_policies or ApprovalPolicies(), *overrides.agents.values())
    rules = [
        *(tool.approval for tool in spec.tools),
        *(policy.tools for policy in policies),
        *(rule for policy in overrides.tools.values() for rule in policy.values()),
    ]
    names = {rule.value for rule in rules if rule is not None and rule.value is not None}
    return tuple(sorted(names - spec.approval_predicates.keys()))
