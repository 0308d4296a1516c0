"""Queries and the records a run is rebuilt from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import orjson

from app.agents.context import Given
from app.agents.loop import Call, OpenTurn, Transcript, Turn
from app.base.ids import with_prefix
from app.journal.models import Work, WorkKind, WorkStatus
from app.llm.codec import load_turn
from app.llm.messages import ToolUse, Usage


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


def usage_of(work: Work) -> Usage:
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


def transcript(tree: WorkTree, agent_work_id: str, prompt: str) -> Transcript:
    """One agent's run as its records tell it. The newest model call may be open: it is repeated."""
    turns: list[Turn] = []
    open_turn: OpenTurn | None = None
    calls = sorted(tree.below(agent_work_id, "tool_call"), key=lambda r: r.position)
    for row in sorted(tree.below(agent_work_id, "model_call"), key=lambda r: r.position):
        if turns and row.input is not None:
            turns[-1] = replace(turns[-1], objection=Given.load(row.input).objection)
        if row.status != "succeeded" or row.output is None:
            open_turn = OpenTurn(row.id, row.position, row.attempts, row.usage, row.cost_usd)
            continue
        open_turn = None
        blocks, stop_reason = load_turn(row.output)
        uses = [b for b in blocks if isinstance(b, ToolUse)]
        mine, calls = calls[: len(uses)], calls[len(uses) :]
        turns.append(
            Turn(
                row.position,
                blocks,
                stop_reason,
                tuple(_call(work, use) for work, use in zip(mine, uses, strict=True)),
            )
        )
    return Transcript(prompt, tuple(turns), open_turn)


def _call(row: WorkRow, use: ToolUse) -> Call:
    if not row.over:
        return Call(row.id, use, row.position)
    failed = row.error is not None
    return Call(row.id, use, row.position, answer_text(row), failed)


def answer_text(row: WorkRow) -> str:
    """What the model reads of a closed tool call."""
    if row.error is not None:
        return str(orjson.loads(row.error)["message"])
    return (row.output or b"").decode()
