"""Answers of the routes of approvals. An approval is the catalogue's `ApprovalInfo`, in events and here alike."""

from __future__ import annotations

from plangate.events import ApprovalInfo

from app.tenancy.http import View
from app.tenancy.views import Page


class ApprovalPage(Page):
    items: list[ApprovalInfo]


class DecidedApprovals(View):
    """The approvals that were decided, in the order of the request."""

    approvals: list[ApprovalInfo]
