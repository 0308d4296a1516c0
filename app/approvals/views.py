"""Answers of the routes of approvals and grants. An approval is the catalogue's `ApprovalInfo`, in events and here alike."""

from __future__ import annotations

from datetime import datetime

from plangate.events import ApprovalInfo, JsonObject

from app.base.responses import CursorPage, View


class ApprovalPage(CursorPage):
    items: list[ApprovalInfo]


class DecidedApprovals(View):
    """The approvals that were decided, in the order of the request."""

    approvals: list[ApprovalInfo]


class GrantView(View):
    """A remembered approval: calls of `tool` in this definition, by this agent in this thread, with these `args` and
    whatever values of the `free` ones, need no person. `approvalId` is the decision that made it; approvals that it
    decided name it as `grantId`. `active`: neither revoked nor past its time."""

    id: str
    approval_id: str
    thread_id: str
    agent: str
    tool: str
    definition_digest: str
    args: JsonObject
    free: list[str]
    granted_by: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
    active: bool


class GrantPage(CursorPage):
    items: list[GrantView]
