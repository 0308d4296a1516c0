"""Responses of the routes of approvals and grants. An approval is `ApprovalInfo`, as in events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from plangate.spec.transports import Replay
from pydantic import Field, JsonValue
from typing_extensions import TypeAliasType

from app.base.responses import CursorPage, View
from app.events import ApprovalComment, ApprovalInfo, Fact, JsonObject, ReferenceHandle


class ToolSubject(View):
    """The subject of an approval of a tool call: the call as it was when approval was requested."""

    kind: Literal["tool"]
    """Always `tool`."""
    tool: str
    args: JsonObject
    definition_digest: str
    runtime_version: str
    """The digest of the runtime's spec."""


class SubjectReference(ReferenceHandle):
    """A reference that a plan names. `digest` is the SHA-256 of its value at that moment."""

    digest: str


class SubjectVariable(View):
    """A path that a plan reads: its value at that moment, or in `resultOf` the actions whose result it will be."""

    variable: str
    """The variable, such as `†state.total`."""
    digest: str | None = None
    type: str | None = None
    """The type of the value."""
    size_bytes: int | None = None
    glimpse: JsonValue = None
    result_of: list[int] | None = None
    """The actions whose result it will be."""


class PlanSubject(View):
    """The subject of an approval of a plan: its body, its inputs, and everything that it names. `planDigest` is the
    SHA-256 of the plan alone; `runtimeVersion` and `dispatchers` are digests of the definitions that carry it out, by
    kind of action."""

    kind: Literal["plan"]
    """Always `plan`."""
    plan_id: str
    spec_name: str
    revision: int
    plan_digest: str
    """The SHA-256 of the plan alone, in hex."""
    body: JsonObject
    """The plan as it is stored."""
    inputs: JsonObject | None
    runtime_version: str
    """The digest of the runtime's spec."""
    dispatchers: dict[str, str]
    """The digests of the dispatchers that carry it out, by kind of action."""
    replay: dict[str, Replay]
    """Whether actions of a kind may be sent again if a crash left their outcome open: `safe` or `never`."""
    facts: list[Fact]
    """The facts that the kind of the plan declares, computed by the service."""
    references: list[SubjectReference]
    """The references that it names, with their digests."""
    variables: list[SubjectVariable] | None = None
    """What its variables stand for, if it has any."""


Subject = TypeAliasType("Subject", Annotated[PlanSubject | ToolSubject, Field(discriminator="kind")])
"""What is approved, discriminated by `kind`."""


class ApprovalPage(CursorPage):
    items: list[ApprovalInfo]


class PendingGroupView(View):
    """The pending approvals of one kind, agent and runtime."""

    kind: Literal["plan", "tool"]
    """Whether plans or tool calls wait."""
    agent: str
    runtime: str
    """The name of the runtime."""
    pending: int
    """How many approvals are pending."""


class PendingCountsView(View):
    """The pending approvals of the tenant: up to 10,000 of them, the oldest first, in up to 100 groups, the largest
    first."""

    pending: int
    """How many approvals are pending."""
    can_decide: int
    """How many of them you can decide or vote on (`canDecide` in `GET /approvals`)."""
    is_complete: bool
    """False if more are pending than were counted."""
    next_expires_at: datetime | None
    """When the first of them expires; null if none is pending."""
    groups: list[PendingGroupView]
    """The largest groups."""


class CommentPage(CursorPage):
    items: list[ApprovalComment]


class DecidedApprovals(View):
    """The approvals that were decided, in the order of the request."""

    approvals: list[ApprovalInfo]
    """The approvals, in the order of the request."""


class GrantView(View):
    """A remembered approval: calls of `tool` in this definition, by this agent in this thread, with these `args` and
    whatever values of the `free` ones, need no person. `approvalId` is the decision that made it; approvals that it
    decided name it as `grantId`. `active`: neither revoked nor past its time."""

    id: str
    """The id of the grant."""
    approval_id: str
    """The id of the decision that made it."""
    thread_id: str
    agent: str
    tool: str
    definition_digest: str
    args: JsonObject
    """The arguments that it holds for."""
    free: list[str]
    """The arguments that may have any value."""
    granted_by: str
    """The principal that asked for it to be remembered."""
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
    active: bool
    """Whether it holds: it is neither revoked nor past its time."""


class GrantPage(CursorPage):
    items: list[GrantView]
