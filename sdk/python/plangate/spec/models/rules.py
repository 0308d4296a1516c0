"""Approval rules: for whom a person must decide, how long he has, and what overrides what."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator
from pydantic_core import PydanticCustomError

from plangate.spec.base import (
    MAX_ITEMS,
    MAX_TOOLS,
    Count,
    Flag,
    Key,
    Milliseconds,
    Shorthand,
    SpecModel,
    at_most,
    set_entries,
)


class Quorum(SpecModel):
    """The required approvers: `minimum` different principals; `not_requester` excludes the requester.

    Args:
        minimum: How many.
        not_requester: Whether none of them may be who asked for the query.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> Quorum(minimum=2, not_requester=True).to_wire()
        {'minimum': 2, 'notRequester': True}
    """

    minimum: Count = 1
    not_requester: Flag = False


class FreeArguments(SpecModel):
    """A remembered approval holds whatever these arguments of the tool are.

    Args:
        free: The names of the arguments.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> ApprovalRule(kind="always", rememberable=FreeArguments(free=("cents",))).to_wire()["rememberable"]
        {'free': ['cents']}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"free"})

    free: Annotated[tuple[Key, ...], at_most(MAX_ITEMS)]
    """The names of the arguments that may have any value."""


class ApprovalRule(SpecModel):
    """`never`, `always`, or `dynamic` with the id of a predicate as its `value`; expiry in milliseconds.

    Args:
        kind: What is asked of a person: nothing, every call, or the calls for which a predicate holds.
        value: The id of the predicate, for `dynamic`.
        approval_expires_in_ms: How long an approval may stay open, in milliseconds; unset, 7 days.
        on_expiry: What follows then: the call is rejected (`"reject"`, also when unset) or the query fails.
        approvers: `{"minimum": N, "not_requester": bool}`: how many different principals, and who may not.
        rememberable: Whether a decision may hold for the thread, for tools: True, or `{"free": [argument]}`
            with the arguments that may differ.

    Raises:
        pydantic.ValidationError: (a ValueError) for a `dynamic` rule without `value`, or another with one.

    Example:
        >>> ApprovalRule(kind="dynamic", value="big").to_wire()
        {'kind': 'dynamic', 'value': 'big'}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"kind"})

    kind: Literal["never", "always", "dynamic"]
    value: Key | None = None
    approval_expires_in_ms: Milliseconds | None = None
    on_expiry: Literal["reject", "fail"] | None = None
    approvers: Quorum | None = None
    rememberable: Annotated[
        Annotated[bool, Field(strict=True), Tag("kind:flag")] | Annotated[FreeArguments, Tag("kind:free")],
        Discriminator(lambda value: "kind:flag" if isinstance(value, bool) else "kind:free"),
    ] = False

    @model_validator(mode="after")
    def _value_belongs_to_dynamic(self) -> ApprovalRule:
        if self.kind == "dynamic" and not self.value:
            raise PydanticCustomError("rule", "a dynamic rule names its predicate in 'value'")
        if self.kind != "dynamic" and self.value is not None:
            raise PydanticCustomError(
                "rule", "'value' belongs to a dynamic rule, not to '{kind}'", {"kind": self.kind}
            )
        return self


def _rule(value: Any) -> Any:
    """Expand a bare word into a rule without settings; "default" is no rule."""
    if value == "default":
        return None
    return {"kind": value} if isinstance(value, str) else value


Rule = Annotated[
    ApprovalRule | None,
    BeforeValidator(_rule),
    Shorthand(
        type="string",
        enum=["never", "always", "default"],
        description="A rule without settings; `default` is no rule.",
    ),
]


class ApprovalPolicies(SpecModel):
    """A rule for each of the two channels; an unset rule falls through to the next level.

    Args:
        plans: The rule for executing plans: `"always"` or `"never"`, or an ApprovalRule of these kinds.
        tools: The rule for calls of tools: `"always"`, `"never"`, or an ApprovalRule.

    Raises:
        pydantic.ValidationError: (a ValueError) for a `dynamic` or `rememberable` rule for plans.

    Example:
        >>> ApprovalPolicies(plans="always").to_wire()
        {'plans': {'kind': 'always'}}
    """

    plans: Rule = None
    tools: Rule = None

    @field_validator("plans")
    @classmethod
    def _plans_have_no_predicates(cls, rule: ApprovalRule | None) -> ApprovalRule | None:
        if rule is not None and rule.kind == "dynamic":
            raise PydanticCustomError("rule", "a dynamic rule is for tools: plans take 'always' or 'never'")
        if rule is not None and rule.rememberable:
            raise PydanticCustomError("rule", "approvals of plans are not remembered: remove 'rememberable'")
        return rule


class ApprovalOverrides(SpecModel):
    """Rules that win over the policies: by agent and tool, and by agent.

    Args:
        tools: Rules by name of agent and name of tool.
        agents: Policies by name of agent.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed rule.

    Example:
        >>> overrides = ApprovalOverrides(tools={"clerk": {"pay": "always"}})
        >>> overrides.to_wire()
        {'tools': {'clerk': {'pay': {'kind': 'always'}}}}
    """

    tools: Annotated[
        dict[Key, Annotated[dict[Key, Rule], at_most(MAX_TOOLS)]], at_most(MAX_ITEMS), set_entries
    ] = Field(default_factory=dict)
    agents: Annotated[dict[Key, ApprovalPolicies], at_most(MAX_ITEMS), set_entries] = Field(
        default_factory=dict
    )


MAX_PREDICATE_CHARS: Final = 4_000


class ClientPredicate(SpecModel):
    """A predicate that is not data: a process of the user answers through the client transport.

    Args:
        kind: `"client"`.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> ClientPredicate().to_wire()
        {'kind': 'client'}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"kind"})

    kind: Literal["client"] = "client"
    """Always `client`."""


Predicate = Annotated[
    Annotated[str, Field(min_length=1, max_length=MAX_PREDICATE_CHARS), Tag("kind:cel")]
    | Annotated[ClientPredicate, Tag("kind:client")],
    Discriminator(lambda value: "kind:cel" if isinstance(value, str) else "kind:client"),
]
"""A CEL expression over `args` and `ctx`, or {"kind": "client"}."""
