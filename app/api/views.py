"""Answers of the routes for operations."""

from __future__ import annotations

from typing import Literal

from app.base.responses import View


class Health(View):
    status: Literal["ok"]
    """Always `ok`."""


class Readiness(View):
    """`running`: the number of queries that this process runs. `reads` and `writes`: whether the database takes them.
    `recoveryNeeded`: whether work is stopped since a promotion, until the operator runs `plangate recover`."""

    status: Literal["ready"]
    """Always `ready`."""
    running: int
    """How many queries this process runs."""
    reads: bool
    """Whether the database answers reads."""
    writes: bool
    """Whether the database takes writes."""
    recovery_needed: bool
    """Whether work is stopped until the operator runs `plangate recover`."""
