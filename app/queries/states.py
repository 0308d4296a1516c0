"""The lifecycle of a query."""

from __future__ import annotations

from plangate.statuses import QueryStatus

from app.base.lifecycle import Lifecycle

QUERY_LIFE = Lifecycle[QueryStatus](
    "query",
    {
        "queued": ("running", "cancelled"),
        "running": ("waiting", "succeeded", "failed", "cancelled"),
        "waiting": ("running", "failed", "cancelled"),
        "succeeded": (),
        "failed": (),
        "cancelled": (),
    },
)
