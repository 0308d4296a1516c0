"""The lives of plans and of their actions."""

from __future__ import annotations

from enum import StrEnum

from app.base.lifecycle import Lifecycle


class PlanStatus(StrEnum):
    DRAFT = "draft"
    APPROVED = "approved"
    EXECUTING = "executing"
    EXECUTED = "executed"
    FAILED = "failed"


PLAN_LIFE = Lifecycle(
    "plan",
    {
        PlanStatus.DRAFT: (PlanStatus.APPROVED,),
        PlanStatus.APPROVED: (PlanStatus.EXECUTING,),
        PlanStatus.EXECUTING: (PlanStatus.EXECUTED, PlanStatus.FAILED),
        PlanStatus.EXECUTED: (),
        PlanStatus.FAILED: (),
    },
)


class ActionStatus(StrEnum):
    PENDING = "pending"
    DISPATCHED = "dispatched"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


ACTION_LIFE = Lifecycle(
    "action",
    {
        # What cannot be sent, since a value does not fit, fails before it is dispatched. A retry that is not sent any more
        # leaves what was sent before as unknown as it was.
        ActionStatus.PENDING: (
            ActionStatus.DISPATCHED,
            ActionStatus.SKIPPED,
            ActionStatus.FAILED,
            ActionStatus.UNKNOWN,
        ),
        ActionStatus.DISPATCHED: (
            ActionStatus.SUCCEEDED,
            ActionStatus.FAILED,
            ActionStatus.SKIPPED,
            ActionStatus.UNKNOWN,
        ),
        # Only a person settles an unknown outcome; `retry` puts it back to where it was sent from.
        ActionStatus.UNKNOWN: (ActionStatus.SUCCEEDED, ActionStatus.FAILED, ActionStatus.PENDING),
        ActionStatus.SUCCEEDED: (),
        ActionStatus.FAILED: (),
        ActionStatus.SKIPPED: (),
    },
)
