"""Queries and the records a run is rebuilt from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from plangate.statuses import WorkKind, WorkStatus

from app.base.ids import with_prefix
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
class WorkRow:
    """A work record as it stands in the database."""

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

    children: dict[str | None, list[WorkRow]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[WorkRow]) -> WorkTree:
        tree = cls()
        for row in rows:
            tree.children.setdefault(row.parent_id, []).append(row)
        return tree

    def below(self, parent_id: str, *kinds: str) -> list[WorkRow]:
        return [r for r in self.children.get(parent_id, ()) if not kinds or r.kind in kinds]


@dataclass(frozen=True, slots=True)
class PastRun:
    """A finished run of an agent, and about how many bytes its records hold."""

    work_id: str
    query_id: str
    size: int
