"""The records of a run: events, deltas, work records. Frozen data between the runner and the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, get_args

import orjson
from plangate.statuses import WorkKind, WorkStatus

from app.base.clock import now_text
from app.events import Envelope

PROGRESS_KINDS: frozenset[WorkKind] = frozenset({"model_call", "tool_call", "predicate", "action"})
"""Kinds of work whose end is progress of their query: no later attempt repeats them."""

PROGRESS_EVENT_TYPES: Final = ("text", "reasoning", "tool-progress")
"""Types of events that a tenant's events include only if they are named."""

LARGE_EVENT_BYTES: Final = 32 * 1024
"""A stream reads pages of this size, and larger events in slices of it, so that a reader that stalls holds no more."""

HEAD_BYTES: Final = 512
"""The first bytes of an event. They have its time and its place in the tree of work, so that with the size they tell the event
from any other one that could have its number."""

QueryKey = tuple[str, str]
"""A tenant and the id of one of its queries."""


def parse_query_key(text: str) -> QueryKey:
    """Return the key that a notification writes as `tenant/id`."""
    tenant, _, query_id = text.partition("/")
    return tenant, query_id


@dataclass(frozen=True, slots=True)
class QueryHead:
    """The position and the counters of a query. `live`: it has not ended."""

    tenant: str
    query_id: str
    next_seq: int
    wake: int
    epoch: int
    live: bool

    @property
    def query_key(self) -> QueryKey:
        return self.tenant, self.query_id


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of an event's envelope that says where in the tree of work it happened."""

    query_id: str
    thread_id: str
    work_id: str
    parent_work_id: str | None
    agent: str


@dataclass(frozen=True, slots=True)
class Event:
    """An event, encoded once. `body` is the envelope without its seq."""

    type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of text or reasoning; neighbours of one turn become one event when they are written."""

    type: Literal["text", "reasoning"]
    scope: Scope
    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of the journal, as every reader gets it."""

    seq: int
    type: str
    body: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.body)

    @property
    def head(self) -> bytes:
        return self.body[:HEAD_BYTES]

    def envelope(self) -> bytes:
        return b'{"seq":%d,%s' % (self.seq, self.body[1:])


@dataclass(frozen=True, slots=True)
class LargeEvent:
    """An event of the journal whose body is read apart from it. `head`: its first HEAD_BYTES."""

    seq: int
    type: str
    size_bytes: int
    head: bytes


JournalEvent = StoredEvent | LargeEvent


@dataclass(frozen=True, slots=True)
class EventHead:
    """What a cursor's hash is made of: the first HEAD_BYTES of an event's body, and its size."""

    head: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The filters of a tenant's events; None matches everything. Without `types`, deltas and progress are omitted."""

    types: tuple[str, ...] | None = None
    runtime_id: str | None = None
    thread_id: str | None = None

    def matches_type(self, type_: str) -> bool:
        return type_ not in PROGRESS_EVENT_TYPES if self.types is None else type_ in self.types


TenantPosition = tuple[int, str, int]
"""Transaction, query's id, seq: the order of a tenant's stream."""


@dataclass(frozen=True, slots=True)
class FilteredEvents:
    """A page of a tenant's events that pass a filter. `examined` is the last event that the filter has seen, if this is why
    the page ends; `complete` tells whether no event follows."""

    rows: Sequence[tuple[TenantPosition, JournalEvent]]
    examined: tuple[TenantPosition, EventHead] | None
    complete: bool


@dataclass(frozen=True, slots=True)
class History:
    """Which history of the database something was read from. `generation`: the cluster, the database, its last restore, and
    the last import of the tenant; `timeline`: the timeline of the cluster; each promotion of a standby begins a
    new one. `is_imported`: the tenant comes from another deployment, which may have issued a cursor."""

    generation: str
    timeline: str
    is_imported: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Events after a position. `complete`: no more existed when it was read."""

    events: list[JournalEvent]
    complete: bool


@cache
def _wire_form(kind: type[Envelope]) -> tuple[str, Mapping[str, str]]:
    """Return the type that events of this class have, and the names of their own fields on the wire."""
    names = {
        name: field.alias or name
        for name, field in kind.model_fields.items()
        if name != "type" and name not in Envelope.model_fields
    }
    return str(get_args(kind.model_fields["type"].annotation)[0]), names


def event(scope: Scope, kind: type[Envelope], **fields: Any) -> Event:
    """Return an event of a class of the catalog (`app.events`). `fields` have the names of the class.

    Raises:
        TypeError: the class has no such field.
    """
    type_, names = _wire_form(kind)
    if unknown := fields.keys() - names.keys():
        raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    envelope = {
        "type": type_,
        "queryId": scope.query_id,
        "threadId": scope.thread_id,
        "workId": scope.work_id,
        "parentWorkId": scope.parent_work_id,
        "agent": scope.agent,
        "at": now_text(),
    }
    envelope.update((names[name], value) for name, value in fields.items())
    return Event(type_, orjson.dumps(envelope))


@dataclass(frozen=True, slots=True)
class Work:
    """A work record as it will be written. A field that is None keeps its earlier value."""

    id: str
    parent_id: str | None
    kind: WorkKind
    name: str
    agent: str
    status: WorkStatus
    position: int = 0
    tool_invocation_id: str | None = None
    provider: str | None = None
    model: str | None = None
    prompt_cache_key: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    price_date: str | None = None
    prompt_bytes: int | None = None  # of a completed model call: the size of its last prompt,
    prompt_tokens: int | None = None  # what the vendor counted for it,
    prompt_usd: float | None = None  # and what these tokens cost
    attempts: int = 1
    input: bytes | None = None
    output: bytes | None = None
    error: bytes | None = None

    @property
    def over(self) -> bool:
        return self.status not in ("running", "waiting")

    @property
    def is_progress(self) -> bool:
        return self.over and self.kind in PROGRESS_KINDS


@dataclass(slots=True, eq=False)
class Lease:
    """A process's right to write for a query, under one epoch. The only mutable thing here: it can be lost."""

    tenant: str
    query_id: str
    epoch: int
    entries: int = 0
    lost: bool = False
    post_error: Exception | None = None  # of a delta that nobody waited for; the next entry raises it

    @property
    def query_key(self) -> QueryKey:
        return self.tenant, self.query_id


class LeaseLost(Exception):
    """Another process works on this query now, or it was canceled: stop, write nothing."""


@dataclass(frozen=True, slots=True)
class QueryChange:
    """The end of a process's work on a query: parked ('waiting') or over."""

    status: Literal["waiting", "succeeded", "failed", "cancelled"]
    reason: str | None = None
    wake: int | None = None  # for parking: the counter that was loaded; if it has moved, parking is rejected
    output: bytes | None = None
    error: bytes | None = None


@dataclass(slots=True)
class Entry:
    """What one step adds to the journal of a query, atomically."""

    items: list[Event | Delta] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    change: QueryChange | None = None


@dataclass(slots=True, eq=False)
class Pending:
    """The open entry of one lease: what was added since its last commit."""

    lease: Lease
    items: list[Event | Delta] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    change: QueryChange | None = None
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    number: int = 0
    events: list[Event] = field(default_factory=list)
