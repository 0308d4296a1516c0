"""The lifecycles of plans and of their actions."""

from __future__ import annotations

from plangate.statuses import ActionStatus, PlanStatus

from app.base.lifecycle import Lifecycle

PLAN_LIFE = Lifecycle[PlanStatus](
    "plan",
    {
        "draft": ("approved",),
        "approved": ("executing",),
        "executing": ("executed", "failed"),
        "executed": (),
        "failed": (),
    },
)

ACTION_LIFE = Lifecycle[ActionStatus](
    "action",
    {
        # An action that cannot be sent, since a value does not fit, fails before it is dispatched. If a retry is not
        # sent any more, the outcome of the earlier attempt stays unknown.
        "pending": ("dispatched", "skipped", "failed", "unknown"),
        "dispatched": ("succeeded", "failed", "skipped", "unknown"),
        # Only a person settles an unknown outcome; `retry` puts the action back to where it was sent from.
        "unknown": ("succeeded", "failed", "pending"),
        "succeeded": (),
        "failed": (),
        "skipped": (),
    },
)
