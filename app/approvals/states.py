"""The lifecycle of an approval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from plangate.statuses import ApprovalStatus, Decision, EndedApprovalStatus

from app.base.lifecycle import Lifecycle

APPROVAL_LIFE = Lifecycle[ApprovalStatus](
    "approval",
    {
        "pending": ("approved", "rejected", "revised", "expired", "cancelled"),
        "approved": (),
        "rejected": (),
        "revised": (),
        "expired": (),
        "cancelled": (),
    },
)

STATUS_OF_DECISION: Final[Mapping[Decision, EndedApprovalStatus]] = {
    "approve": "approved",
    "reject": "rejected",
    "revise": "revised",
}
