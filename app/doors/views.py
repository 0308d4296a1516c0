"""Answers of the routes for operations."""

from __future__ import annotations

from typing import Literal

from app.tenancy.http import View


class Health(View):
    status: Literal["ok"]


class Readiness(View):
    """`running`: how many queries this process works on. `reads` and `writes`: what the database does."""

    status: Literal["ready"]
    running: int
    reads: bool
    writes: bool
