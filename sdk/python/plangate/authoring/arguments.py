"""Helpers of the define functions: forms of rules, and errors for wrong arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from plangate.spec.base import SpecModel
from plangate.spec.models import AgentSpec, ApprovalPolicies, ApprovalRule, ToolSpec
from plangate.spec.schemas import normalize_schema

Handler = Callable[[Any, Any], Any]
"""`(args, ctx)`, sync or async."""

Rule = str | Mapping[str, Any] | ApprovalRule | None
Policies = Mapping[str, Rule] | ApprovalPolicies | Literal["default"] | None


def drop_unset(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not None."""
    return {key: value for key, value in fields.items() if value is not None}


def parse_schema(value: Any, what: str) -> dict[str, Any]:
    """Return `normalize_schema(value)`, with `what` in its TypeError."""
    try:
        return normalize_schema(value)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from error


def parse_list(owner: str, what: str, values: Any, model: type[SpecModel] | None = None) -> tuple[Any, ...]:
    """Return the author's list as a tuple. Raise TypeError if it is not a list, or an item is not a `model`."""
    if isinstance(values, str | Mapping | SpecModel) or not isinstance(values, Iterable):
        raise TypeError(f"the {what} of {owner} are a list, not {describe_type(values)}")
    listed = tuple(values)
    if model and (strange := [value for value in listed if not isinstance(value, model)]):
        raise TypeError(
            f"the {what} of {owner} are what the define functions return; one is {describe_type(strange[0])}"
        )
    return listed


def parse_name(owner: str, what: str, value: Any, model: type[ToolSpec] | type[AgentSpec]) -> str:
    """Return the name of a tool or agent that is given by name or as an object. Raise TypeError otherwise."""
    if isinstance(value, str):
        return value
    if isinstance(value, model):
        return value.name
    raise TypeError(
        f"the {what} of {owner} are names or what the define functions return; one is {describe_type(value)}"
    )


def check_callable(value: Any, what: str, parameters: str, also: str = "") -> None:
    """Raise TypeError unless the value is a function of two arguments. `parameters` names them in the message."""
    if not callable(value):
        raise TypeError(f"{what} is {also}a function ({parameters}), not {describe_type(value)}")
    try:
        signature = inspect.signature(value)
    except ValueError:
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise TypeError(f"{what} must take ({parameters}), but takes {signature}") from error


def parse_policies(owner: str, approval: Policies) -> Any:
    """Return the rules for the two channels, or None if they are not set. Raise TypeError."""
    if approval is None or approval == "default":
        return None
    if not isinstance(approval, Mapping | ApprovalPolicies):
        raise TypeError(
            f"the approval of {owner} is a mapping such as {{'plans': 'always', 'tools': 'never'}}, "
            f"not {approval!r}"
        )
    return approval


def describe_type(value: Any) -> str:
    """Return how a message describes a value of the wrong type."""
    return "None" if value is None else f"a {type(value).__name__}"
