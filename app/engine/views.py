"""Responses of the routes for the operator of an installation."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from app.base.responses import View, WholeList


class ProcessView(View):
    """A process of the service: an API server, a worker, or a child of one."""

    id: str
    """The id of the process."""
    parent_id: str | None
    """The process that started it, for a child process."""
    host: str
    """The name of its machine."""
    pid: int
    """Its process id there."""
    started_at: datetime
    heartbeat_at: datetime
    """When it last reported."""
    silent_s: float
    """Seconds since then, by the clock of the database."""
    ended_at: datetime | None
    end_reason: Literal["stopped", "died", "presumed_dead"] | None
    """How it ended; null while it lives."""
    running_queries: int
    """How many queries it runs."""


class ProcessList(WholeList):
    items: list[ProcessView]
