"""Work records and usage sums as they are sent to clients. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import orjson

from app.base.responses import to_wire
from app.events import Usage
from app.llm.prices import together
from app.usage.views import (
    EstimatedKeptOut,
    GroupBy,
    KeptOutEstimate,
    ReferenceUse,
    Rollup,
    Spent,
    StatementView,
    Usages,
    WorkSummary,
)

RECORD_FIELDS = [
    name for name, field in WorkSummary.model_fields.items() if field.is_required() and name != "duration_ms"
]
CALL_FIELDS = ("model", "prompt_cache_key", "cost_usd")


@dataclass(frozen=True, slots=True)
class WorkRow:
    """A work record. Lists leave out `input` and `output`, and an error that is long: `error_bytes` is its size. `bodies` are
    the bytes of the bodies of the records of its query up to this one."""

    id: str
    parent_id: str | None
    kind: str
    name: str
    agent: str
    query_id: str | None
    thread_id: str
    status: str
    tool_invocation_id: str | None
    model: str | None
    prompt_cache_key: str | None
    price_date: str | None
    attempts: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: float | None
    started_at: datetime
    ended_at: datetime | None
    input: bytes | None = None
    output: bytes | None = None
    error: bytes | None = None
    error_bytes: int | None = None
    bodies: int = 0


@dataclass(frozen=True, slots=True)
class WorkFilter:
    """The filters of a list of work records, newest first: before a record, of a query, kind and status."""

    before: str | None = None
    query_id: str | None = None
    kind: str | None = None
    status: str | None = None


@dataclass(slots=True)
class UsageSum:
    """Summed usage. `unpriced_calls` used tokens with an unknown price; `cost_usd` covers all other calls, or is
    None."""

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    unpriced_calls: int = 0
    uses: int = 0
    size_bytes: int = 0
    prompt_bytes: int = 0
    kept_out_bytes: int = 0
    cost_usd: float | None = None

    @classmethod
    def from_record(cls, record: WorkRow) -> UsageSum:
        """Build the sum of what a record itself used."""
        tokens = {name: getattr(record, name) for name in Usage.model_fields}
        is_call = record.kind == "model_call"
        unpriced = is_call and record.cost_usd is None and any(tokens.values())
        return cls(int(is_call), **tokens, cost_usd=record.cost_usd, unpriced_calls=int(unpriced))

    def add(self, other: UsageSum) -> None:
        self.cost_usd = together(c for c in (self.cost_usd, other.cost_usd) if c is not None)
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def wire(self) -> dict[str, Any]:
        return to_wire(Rollup, self)


_COUNTS = [field.name for field in fields(UsageSum) if field.name != "cost_usd"]


@dataclass(frozen=True, slots=True)
class KeptOutSum:
    """Bytes that references or artifacts kept out of prompts. `tokens` and `usd` estimate the cost of `tokens_bytes`
    and `usd_bytes` of `kept_out_bytes` in prompts; all other bytes belong to queries without a measured or priced
    call."""

    uses: int
    size_bytes: int
    prompt_bytes: int
    kept_out_bytes: int
    tokens: float | None
    tokens_bytes: int
    usd: float | None
    usd_bytes: int

    def wire(self) -> dict[str, Any]:
        estimate = {
            "tokens": None if self.tokens is None else round(self.tokens),
            "tokens_from_bytes": self.tokens_bytes,
            "cost_usd": None if self.usd is None else round(self.usd, 6),
            "cost_from_bytes": self.usd_bytes,
        }
        return to_wire(EstimatedKeptOut, self, estimate=to_wire(KeptOutEstimate, estimate))


@dataclass(frozen=True, slots=True)
class UsageGroupSum:
    """The usage of what has the key, or of everything. `failed` is the part that failed work used."""

    key: str | None
    spent: UsageSum
    failed: UsageSum
    references: KeptOutSum
    artifacts: KeptOutSum

    def wire(self) -> dict[str, Any]:
        return to_wire(
            Usages,
            self.spent,
            failed=to_wire(Spent, self.failed),
            references=self.references.wire(),
            artifacts=self.artifacts.wire(),
        )

    def wire_with_key(self, by: GroupBy) -> dict[str, Any]:
        """Return the group with what names it. In the database, the key of a revision also has its place in its chain."""
        if by != "revision" or self.key is None:
            return {"key": self.key, **self.wire()}
        first, revision, artifact = self.key.split("/")
        return {"key": artifact, "firstArtifactId": first, "revision": int(revision), **self.wire()}


def record_wire(
    record: WorkRow, uses: Sequence[ReferenceUse] = (), statement: StatementView | None = None
) -> dict[str, Any]:
    """Return a record for a response, with those bodies that it has."""
    values: dict[str, Any] = {name: getattr(record, name) for name in RECORD_FIELDS}
    if record.kind == "model_call":
        date, _, table = (record.price_date or "").partition(" ")
        values |= {name: getattr(record, name) for name in CALL_FIELDS}
        values |= {"usage": to_wire(Usage, record), "price_date": date or None, "price_table": table or None}
    ended = record.ended_at
    duration_ms = round((ended - record.started_at).total_seconds() * 1000) if ended else None
    out = to_wire(WorkSummary, values, duration_ms=duration_ms)
    if record.tool_invocation_id:
        out["toolInvocationId"] = record.tool_invocation_id
    if uses:
        out["references"] = [to_wire(ReferenceUse, use) for use in uses]
    if statement is not None:
        out["statement"] = to_wire(StatementView, statement)
    for name in ("input", "output", "error"):
        if (body := getattr(record, name)) is not None:
            out[name] = decode_body(body)
    return out


def summary_wire(record: WorkRow) -> dict[str, Any]:
    """Return a record without its input and output. A long error is replaced by a pointer to it."""
    out = record_wire(record)
    if record.error_bytes is not None and record.error is None:
        message = f"The error has {record.error_bytes} bytes: GET /work-records/{record.id} has it."
        out["error"] = {"code": "too_long", "message": message}
    return out


def decode_body(data: bytes) -> Any:
    """Return a body as JSON if it is JSON, else as text."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode()


def tree_wire(
    records: Sequence[WorkRow], reference_sums: Mapping[str, UsageSum], work_id: str
) -> list[dict[str, Any]]:
    """Return the record and all its descendants, each with its rollup: what it and its descendants used.

    Parents come before their children, siblings oldest first. `records` are those of its query,
    `reference_sums` what some of them did with references.
    """
    children: dict[str | None, list[WorkRow]] = {}
    for record in records:
        children.setdefault(record.parent_id, []).append(record)
    ordered: list[WorkRow] = []
    stack = [record for record in records if record.id == work_id]
    while stack:
        record = stack.pop()
        ordered.append(record)
        stack += reversed(children.get(record.id, ()))
    sums: dict[str, UsageSum] = {}  # only of records that used anything: most are tool calls
    for record in reversed(ordered):  # children before their parents
        parts = [sums[child.id] for child in children.get(record.id, ()) if child.id in sums]
        parts += [reference_sums[record.id]] if record.id in reference_sums else []
        if parts or record.kind == "model_call":
            total = UsageSum.from_record(record)
            for part in parts:
                total.add(part)
            sums[record.id] = total
    nothing = UsageSum().wire()
    return [
        {**summary_wire(record), "rollup": sums[record.id].wire() if record.id in sums else nothing}
        for record in ordered
    ]
