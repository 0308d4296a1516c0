"""The life of a query."""

from __future__ import annotations

from enum import StrEnum

from app.base.lifecycle import Lifecycle


class QueryStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


QUERY_LIFE = Lifecycle(
    "query",
    {
        QueryStatus.QUEUED: (QueryStatus.RUNNING, QueryStatus.CANCELLED),
        QueryStatus.RUNNING: (
            QueryStatus.WAITING,
            QueryStatus.SUCCEEDED,
            QueryStatus.FAILED,
            QueryStatus.CANCELLED,
        ),
        QueryStatus.WAITING: (QueryStatus.RUNNING, QueryStatus.FAILED, QueryStatus.CANCELLED),
        QueryStatus.SUCCEEDED: (),
        QueryStatus.FAILED: (),
        QueryStatus.CANCELLED: (),
    },
)
