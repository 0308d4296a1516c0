"""The life of an approval."""

from __future__ import annotations

from enum import StrEnum

from app.base.lifecycle import Lifecycle


class ApprovalStatus(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    REVISED = "revised"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


APPROVAL_LIFE = Lifecycle(
    "approval",
    {
        ApprovalStatus.PENDING: tuple(s for s in ApprovalStatus if s != ApprovalStatus.PENDING),
        **{s: () for s in ApprovalStatus if s != ApprovalStatus.PENDING},
    },
)

STATUS_OF_DECISION = {
    "approve": ApprovalStatus.APPROVED,
    "reject": ApprovalStatus.REJECTED,
    "revise": ApprovalStatus.REVISED,
}
