"""Queries and threads: what is submitted, and what is on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from plangate.statuses import QueryStatus

QueryKind = Literal["agent", "plan", "profile"]
IfBusy = Literal["queue", "reject", "interrupt"]


@dataclass(frozen=True, slots=True)
class Submission:
    """A request to start a query. `follow`: the client streams the query from its first event. `traceparent`: the
    client's span, to which the query's span links."""

    prompt: str
    runtime_id: str | None = None
    runtime: str | None = None
    thread_id: str | None = None
    thread_key: str | None = None
    agent: str | None = None
    inputs: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None
    approval_expires_in_ms: int | None = None
    metadata: Mapping[str, Any] | None = None
    limits: Mapping[str, Any] | None = None
    if_busy: IfBusy = "queue"
    follow: bool = False
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class AcceptedSubmission:
    """A query that is on record. With the status `running`, this process starts it once the transaction is durable."""

    id: str
    thread_id: str
    runtime_id: str
    status: Literal["queued", "running"]
    links: dict[str, str]


@dataclass(frozen=True, slots=True)
class NewQuery:
    """A query to be accepted. With `newest_of`, only if its runtime is the newest version of this name."""

    id: str
    new_thread_id: str
    submission: Submission
    runtime_id: str
    kind: QueryKind
    agent: str
    principal: str
    request: Mapping[str, Any]
    newest_of: str | None = None


SubmitOutcome = Literal["accepted", "started", "busy", "full", "no_thread", "retired", "stale"]


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """The result of the function `submit_query`. `bodies`: the query's first events, for a reader that follows it."""

    outcome: SubmitOutcome
    thread_id: str
    epoch: int
    bodies: list[bytes]


@dataclass(frozen=True, slots=True)
class QueryFilter:
    """Which queries a list shows; None shows all. `runtime` is a name, `principal` the one that submitted the query; `since`
    and `before` bound `createdAt`; `reason` is why it waits or how it ended. `text` is searched in the first 10,000 characters
    of the prompt, without regard to case."""

    status: QueryStatus | None = None
    thread_id: str | None = None
    runtime_id: str | None = None
    agent: str | None = None
    runtime: str | None = None
    principal: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    text: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A query, and the sums of its work records. `request`, `output` and `error` are stored JSON."""

    id: str
    thread_id: str
    runtime_id: str
    kind: QueryKind
    agent: str
    status: QueryStatus
    reason: str | None
    principal: str
    prompt: str
    request: bytes
    output: bytes | None
    error: bytes | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread. `key` is the caller's own name for it, `runtime_id` the version that it began with."""

    id: str
    key: str | None
    runtime_id: str | None
    created_at: datetime
