"""Queries and the records a run is rebuilt from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from plangate.statuses import QueryStatus, WorkKind, WorkStatus

from app.base.ids import with_prefix
from app.base.responses import to_wire
from app.events import Usage as TokenCounts
from app.journal.models import Work
from app.llm.messages import Usage


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """What a run needs of its query."""

    tenant: str
    id: str
    thread_id: str
    runtime_id: str
    kind: str
    agent: str
    principal: str
    prompt: str
    request: dict[str, Any]
    wake: int = 0
    worked_ms: int = 0
    thread_is_new: bool = False

    @property
    def root_work_id(self) -> str:
        return with_prefix("wrk_", self.id)


@dataclass(frozen=True, slots=True)
class LockedQuery:
    """What ending a query needs of its locked row."""

    status: QueryStatus
    reason: str | None
    thread_id: str
    agent: str


@dataclass(frozen=True, slots=True)
class DueEnding:
    """Why a query that is fenced must be ended as failed."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class QueryTotals:
    """What a query, or one run of an agent, has used. `cost_usd` is None if no price is known."""

    usage: Usage
    cost_usd: float | None
    model_calls: int

    def to_wire(self) -> dict[str, Any]:
        return {
            "usage": to_wire(TokenCounts, self.usage),
            "costUsd": self.cost_usd,
            "modelCalls": self.model_calls,
        }


@dataclass(frozen=True, slots=True)
class QueryClaim:
    """A query that this process may work on now, and what its lost leases say about it.

    `lost`: the lease before this one ended without a word from its owner. `share`: how many queries at most a child process
    may run together with it, itself included; None for any number.
    """

    tenant: str
    query_id: str
    epoch: int
    lost: bool = False
    share: int | None = None
    load_failures: int = 0


@dataclass(frozen=True, slots=True)
class Culprit:
    """A query that ended its processes, and that nobody works on now.

    `deaths`: processes that died while they worked on it and on others, since its last progress. `own_deaths`: child
    processes that died while they ran this query alone.
    """

    tenant: str
    query_id: str
    epoch: int
    deaths: int
    own_deaths: int


@dataclass(frozen=True, slots=True)
class WorkEntry:
    """A work record that was loaded from the database."""

    id: str
    parent_id: str | None
    kind: WorkKind
    name: str
    agent: str
    status: WorkStatus
    position: int
    tool_invocation_id: str | None
    attempts: int
    usage: Usage
    cost_usd: float | None
    input: bytes | None
    output: bytes | None
    error: bytes | None
    started_at: datetime
    ended_at: datetime | None

    @property
    def over(self) -> bool:
        return self.ended_at is not None


def usage_from_work(work: Work) -> Usage:
    return Usage(
        work.input_tokens,
        work.output_tokens,
        work.cache_read_tokens,
        work.cache_write_tokens,
        work.reasoning_tokens,
    )


@dataclass(slots=True)
class WorkTree:
    """The records of a query by their parents, oldest first."""

    children: dict[str | None, list[WorkEntry]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[WorkEntry]) -> WorkTree:
        tree = cls()
        for row in rows:
            tree.children.setdefault(row.parent_id, []).append(row)
        return tree

    def below(self, parent_id: str, *kinds: str) -> list[WorkEntry]:
        return [r for r in self.children.get(parent_id, ()) if not kinds or r.kind in kinds]


@dataclass(frozen=True, slots=True)
class PastRun:
    """A finished run of an agent, and about how many bytes its records hold."""

    work_id: str
    query_id: str
    started_at: datetime
    size: int


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process on record, and how many queries it runs. `silent_s`: seconds since its last heartbeat."""

    id: str
    parent_id: str | None
    host: str
    pid: int
    started_at: datetime
    heartbeat_at: datetime
    silent_s: float
    ended_at: datetime | None
    end_reason: Literal["stopped", "died", "presumed_dead"] | None
    running_queries: int
