"""The lifecycles of plans and of their actions."""

from __future__ import annotations

from typing import assert_never

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


def is_executing(status: PlanStatus) -> bool:
    """Return whether the execution of a plan has begun and not ended."""
    match status:
        case "executing":
            return True
        case "draft" | "approved" | "executed" | "failed":
            return False
        case _:
            assert_never(status)


def was_sent(status: ActionStatus) -> bool:
    """Return whether an action was sent and has not ended."""
    match status:
        case "dispatched" | "unknown":
            return True
        case "pending" | "succeeded" | "failed" | "skipped":
            return False
        case _:
            assert_never(status)


def awaits_result(status: ActionStatus) -> bool:
    """Return whether the service itself still decides the outcome of an action, without a person."""
    match status:
        case "pending" | "dispatched":
            return True
        case "unknown" | "succeeded" | "failed" | "skipped":
            return False
        case _:
            assert_never(status)
