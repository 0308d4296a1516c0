"""Answers of the routes of queries and threads."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from plangate.events import ErrorInfo, JsonObject, QueryStatus, Usage, WorkKind, WorkStatus
from pydantic import Field, JsonValue

from app.tenancy.http import View
from app.tenancy.views import Page, WholeList


class QueryLinks(View):
    """Paths of the query's own routes."""

    self_: str = Field(alias="self")
    events: str
    cancel: str
    work: str


class AcceptedQuery(View):
    """A query that is on record."""

    id: str
    thread_id: str
    runtime_id: str
    status: Literal["queued", "running"]
    links: QueryLinks


class QuerySummary(View):
    """A query as a list shows it. `reason` says why it waits or how it ended; `planId` is set for the kind `plan`."""

    id: str
    thread_id: str
    runtime_id: str
    kind: Literal["agent", "plan"]
    agent: str
    status: QueryStatus
    reason: str | None
    principal: str
    prompt: str
    inputs: JsonObject | None
    metadata: JsonObject | None
    plan_id: str | None
    output: JsonValue
    error: ErrorInfo | None
    usage: Usage
    cost_usd: float | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    links: QueryLinks


class QueryView(QuerySummary):
    """A query with the ids of the approvals that it waits for."""

    open_approvals: list[str]


class QueryPage(Page):
    items: list[QuerySummary]


class ReferenceUse(View):
    """What a unit of work did with a reference. Of its `sizeBytes` a model was shown `promptBytes`; the rest stayed out
    of prompts."""

    use: Literal["create", "resolve", "hydrate"]
    kind: str
    id: str
    size_bytes: int
    prompt_bytes: int


class WorkView(View):
    """A unit of work: what it was given, what came of it. Model calls also say their model, usage and cost."""

    id: str
    parent_id: str | None
    kind: WorkKind
    name: str
    agent: str
    query_id: str
    thread_id: str
    status: WorkStatus
    started_at: datetime
    ended_at: datetime | None
    duration_ms: int | None
    attempts: int
    model: str | None = None
    prompt_cache_key: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    price_date: str | None = None
    tool_invocation_id: str | None = None
    references: list[ReferenceUse] | None = None
    input: JsonValue = None
    output: JsonValue = None
    error: JsonValue = None


class WorkList(WholeList):
    items: list[WorkView]


class ThreadSummary(View):
    """A conversation. `key` is the caller's own name for it; `runtimeId` the version that it began with."""

    id: str
    key: str | None
    runtime_id: str | None
    created_at: datetime


class ThreadView(ThreadSummary):
    """A conversation and the ids of its queries that are not over, oldest first."""

    active_queries: list[str]


class ThreadPage(Page):
    items: list[ThreadSummary]


class TextBlock(View):
    type: Literal["text"]
    text: str


class ThinkingBlock(View):
    """The model's reasoning; `opaque` is what its vendor wants back, unread."""

    type: Literal["thinking"]
    text: str
    opaque: JsonObject


class ToolUseBlock(View):
    """A call of a tool; `arguments` is the text that the model wrote."""

    type: Literal["tool_use"]
    id: str
    name: str
    arguments: str


class ToolResultBlock(View):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str
    is_error: bool


class MessageView(View):
    """What was said to an agent or by it."""

    agent: str
    role: Literal["user", "assistant"]
    blocks: list[
        Annotated[
            TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock,
            Field(discriminator="type"),
        ]
    ]


class MessageList(WholeList):
    items: list[MessageView]
