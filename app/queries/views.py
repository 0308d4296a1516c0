"""Answers of the routes of queries and threads."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from app.base.responses import CursorPage, View
from app.events import ErrorInfo, JsonObject, QueryStatus, Usage


class QueryLinks(View):
    """Paths of the query's own routes."""

    self_: str = Field(alias="self")
    """The query."""
    events: str
    """Its events, in pages."""
    stream: str
    """Its events, as a stream."""
    cancel: str
    """Where to cancel it."""
    work: str
    """Its work records."""


class AcceptedQuery(View):
    """A query that is on record."""

    id: str
    """The id of the query."""
    thread_id: str
    runtime_id: str
    status: Literal["queued", "running"]
    links: QueryLinks


class QuerySummary(View):
    """A query as a list shows it. `reason` says why it waits or how it ended; `planId` is set for the kind `plan`."""

    id: str
    """The id of the query."""
    thread_id: str
    runtime_id: str
    kind: Literal["agent", "plan", "profile"]
    """Whether an agent works, or a plan is carried out without one."""
    agent: str
    status: QueryStatus
    reason: str | None
    """Why it waits, or how it ended."""
    principal: str
    prompt: str
    inputs: JsonObject | None
    metadata: JsonObject | None
    plan_id: str | None
    """The id of the plan that it carries out."""
    output: JsonValue
    """The result; null before it succeeded."""
    error: ErrorInfo | None
    """Why it failed."""
    usage: Usage
    cost_usd: float | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    links: QueryLinks


class QueryView(QuerySummary):
    """A query with the ids of the approvals that it waits for."""

    open_approvals: list[str]
    """The ids of the approvals that it waits for."""


class QueryPage(CursorPage):
    items: list[QuerySummary]


class ThreadSummary(View):
    """A conversation. `key` is the caller's own name for it; `runtimeId` the version that it began with."""

    id: str
    """The id of the thread."""
    key: str | None
    """The caller's own key of it."""
    runtime_id: str | None
    """The id of the version of the runtime that it began with."""
    created_at: datetime


class ThreadView(ThreadSummary):
    """A conversation and the ids of its queries that are not over, oldest first."""

    active_queries: list[str]
    """The ids of its queries that are not over, oldest first."""


class ThreadDeleted(View):
    id: str
    """The id of the thread."""
    deleted: Literal[True]


class ThreadPage(CursorPage):
    items: list[ThreadSummary]


class TextBlock(View):
    type: Literal["text"]
    text: str


class ThinkingBlock(View):
    """The model's reasoning; `opaque` is what its vendor wants back, unread."""

    type: Literal["thinking"]
    text: str
    opaque: JsonObject
    """What the vendor wants back, unread."""


class ToolUseBlock(View):
    """A call of a tool; `arguments` is the text that the model wrote."""

    type: Literal["tool_use"]
    id: str
    """The model's own id of the call."""
    name: str
    """The name of the tool."""
    arguments: str
    """The arguments, as the model wrote them."""


class ToolResultBlock(View):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str
    """What the tool returned."""
    is_error: bool


class MessageView(View):
    """A message to an agent, or from it."""

    agent: str
    role: Literal["user", "assistant"]
    """Who wrote it: `user` for a message to the agent."""
    blocks: list[
        Annotated[
            TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock,
            Field(discriminator="type"),
        ]
    ]
    """The content of the message."""


class MessagePage(View):
    """Messages of a thread, oldest first. The next page has those of earlier runs."""

    items: list[MessageView]
    next_cursor: str | None
    """Send it as `cursor` for the messages before these; null if there are none."""
