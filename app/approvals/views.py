"""Answers of the routes of approvals and grants. An approval is the catalogue's `ApprovalInfo`, in events and here alike."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from plangate.events import ApprovalInfo, JsonObject, ReferenceHandle
from pydantic import Field, JsonValue
from typing_extensions import TypeAliasType

from app.base.responses import CursorPage, View


class ToolSubject(View):
    """What is approved of a tool call: the call, and what it was when the gate opened."""

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
    """What is approved of a plan: its bytes and inputs, and all that it names. `planDigest` is the SHA-256 of the plan
    alone; `runtimeVersion` and `dispatchers` are digests of the definitions that carry it out, by kind of action."""

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
    references: list[SubjectReference]
    """The references that it names, with their digests."""
    variables: list[SubjectVariable] | None = None
    """What its variables stand for, if it has any."""


Subject = TypeAliasType("Subject", Annotated[PlanSubject | ToolSubject, Field(discriminator="kind")])
"""What is approved, told apart by `kind`."""


class ApprovalPage(CursorPage):
    items: list[ApprovalInfo]


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
