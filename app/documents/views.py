"""Answers of the routes of state and memory."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from app.base.responses import CursorPage, View
from app.events import JsonObject


class StateView(View):
    """The state of a thread, as it is or as it was. `write` is the number of its last write, 0 before any."""

    thread_id: str
    write: int
    """The number of its last write, 0 before any."""
    document: JsonObject
    """The state."""


class MemoryView(View):
    """The memory of a runtime's name, as it is or as it was. `write` is the number of its last write, 0 before any."""

    runtime: str
    resource: str
    write: int
    """The number of its last write, 0 before any."""
    document: JsonObject
    """The memory."""


class MemoryDeleted(View):
    runtime: str
    resource: str
    deleted: bool


class WriteView(View):
    """A write to the state or the memory. `failed`: what was written is the error of a call that failed."""

    write: int
    """The number of the write."""
    path: str
    """Where it was written."""
    method: Literal["set", "merge", "assign", "push", "concat"]
    value: Annotated[JsonValue, Field(description="Left out where it has more than 4 KiB of JSON.")] = None
    size_bytes: int
    glimpse: JsonValue
    failed: bool
    """Whether the value is the error of a call that failed."""
    work_id: str | None
    query_id: str | None
    agent: str | None
    forked_from: Annotated[
        str | None, Field(description="`<thread>@<write>` where the state began as that of another thread.")
    ]
    principal: Annotated[
        str | None, Field(description="The caller that wrote outside of any call; memory only.")
    ]
    at: datetime
    """When it was written."""


class WritePage(CursorPage):
    items: list[WriteView]
