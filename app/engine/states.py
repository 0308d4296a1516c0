"""The lifecycle of a work record."""

from __future__ import annotations

from plangate.statuses import WorkStatus

from app.base.lifecycle import Lifecycle

WORK_LIFE = Lifecycle[WorkStatus](
    "work record",
    {
        "running": ("waiting", "succeeded", "failed", "cancelled", "unknown"),
        "waiting": ("running", "succeeded", "failed", "cancelled", "unknown"),
        # A person may have an action with an unknown outcome sent again.
        "unknown": ("running",),
        "succeeded": (),
        # The record of an action is closed with its query. What became of the action may be found out later.
        "failed": ("succeeded", "unknown"),
        "cancelled": ("succeeded", "failed", "unknown"),
    },
)
