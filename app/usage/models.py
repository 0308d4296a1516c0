"""Work records and usage sums as they are sent to clients. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from plangate.events import Usage

from app.base.responses import to_wire
from app.llm.prices import together
from app.usage.views import (
    EstimatedKeptOut,
    KeptOut,
    KeptOutEstimate,
    ReferenceUse,
    Rollup,
    Spent,
    StatementView,
    Usages,
    WorkSummary,
)

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
RECORD_COLUMNS = [
    name for name, field in WorkSummary.model_fields.items() if field.is_required() and name != "duration_ms"
]
CALL_COLUMNS = ("model", "prompt_cache_key", "cost_usd")


@dataclass(slots=True)
class UsageSum:
    """What work used. `unpriced_calls` used tokens with an unknown price; `cost_usd` covers the other calls,
    or is None."""

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    unpriced_calls: int = 0
    uses: int = 0
    size_bytes: int = 0
    prompt_bytes: int = 0
    kept_out_bytes: int = 0

    @classmethod
    def from_rows(cls, *rows: Any) -> UsageSum:
        """Build a sum from rows of sums, each of which has some of the fields."""
        return cls(**{name: row[name] for row in rows for name in cls.__slots__ if name in row})

    @classmethod
    def from_failed_columns(cls, row: Any) -> UsageSum:
        """Build the sum of failed work from the `failed_` columns of a row."""
        return cls(**{name: row[f"failed_{name}"] for name in cls.__slots__ if f"failed_{name}" in row})

    @classmethod
    def from_record(cls, row: Any) -> UsageSum:
        """Build the sum of what a record itself used."""
        tokens = {name: row[name] for name in TOKENS}
        called = row["kind"] == "model_call"
        unpriced = called and row["cost_usd"] is None and any(tokens.values())
        return cls(int(called), **tokens, cost_usd=row["cost_usd"], unpriced_calls=int(unpriced))

    def add(self, other: UsageSum) -> None:
        self.cost_usd = together(c for c in (self.cost_usd, other.cost_usd) if c is not None)
        self.model_calls += other.model_calls
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cache_read_tokens += other.cache_read_tokens
        self.cache_write_tokens += other.cache_write_tokens
        self.reasoning_tokens += other.reasoning_tokens
        self.unpriced_calls += other.unpriced_calls
        self.uses += other.uses
        self.size_bytes += other.size_bytes
        self.prompt_bytes += other.prompt_bytes
        self.kept_out_bytes += other.kept_out_bytes

    def wire(self) -> dict[str, Any]:
        return to_wire(Rollup, self)


def record_wire(row: Any, uses: Sequence[Any] = (), statement: Any = None) -> dict[str, Any]:
    """Return a record for a response, with those bodies that the row has."""
    ended = row["ended_at"]
    more: dict[str, Any] = {name: row[name] for name in RECORD_COLUMNS}
    if row["kind"] == "model_call":
        date, _, table = (row["price_date"] or "").partition(" ")
        more |= {name: row[name] for name in CALL_COLUMNS}
        more |= {"usage": to_wire(Usage, row), "price_date": date or None, "price_table": table or None}
    duration_ms = round((ended - row["started_at"]).total_seconds() * 1000) if ended else None
    out = to_wire(WorkSummary, more, duration_ms=duration_ms)
    if row["tool_invocation_id"]:
        out["toolInvocationId"] = row["tool_invocation_id"]
    if uses:
        out["references"] = [to_wire(ReferenceUse, use) for use in uses]
    if statement is not None:
        out["statement"] = to_wire(StatementView, statement)
    for name in ("input", "output", "error"):
        if row.get(name) is not None:
            out[name] = decode_body(row[name])
    return out


def summary_wire(row: Any) -> dict[str, Any]:
    """Return a record without its input and output. A long error is replaced by a pointer to it."""
    out = record_wire(row)
    if row["error_bytes"] is not None and row["error"] is None:
        told = f"The error has {row['error_bytes']} bytes: GET /work-records/{row['id']} has it."
        out["error"] = {"code": "too_long", "message": told}
    return out


def decode_body(data: bytes) -> Any:
    """Return a body as JSON if it is JSON, else as text."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode()


def group_key(by: str, key: str | None) -> dict[str, Any]:
    """Return what names a group. The key of a revision in the database also has its place in its chain."""
    if by != "revision" or key is None:
        return {"key": key}
    first, revision, artifact = key.split("/")
    return {"key": artifact, "firstArtifactId": first, "revision": int(revision)}


def usage_row_wire(row: Any) -> dict[str, Any]:
    """Return a row of usage: totals, and the part of failed work."""
    failed = to_wire(Spent, UsageSum.from_failed_columns(row))
    kept = {"references": _kept_out_wire(row, ""), "artifacts": _kept_out_wire(row, "artifact_")}
    return to_wire(Usages, UsageSum.from_rows(row), failed=failed, **kept)


def _kept_out_wire(row: Any, prefix: str) -> dict[str, Any]:
    """Return what references or artifacts kept out of prompts, from the columns with this prefix."""
    counted = {name: row[prefix + name] for name in KeptOut.model_fields}
    tokens, usd = row[f"{prefix}kept_out_tokens"], row[f"{prefix}kept_out_usd"]
    estimate = to_wire(
        KeptOutEstimate,
        {
            "tokens": None if tokens is None else round(tokens),
            "tokens_from_bytes": row[f"{prefix}tokens_bytes"],
            "cost_usd": None if usd is None else round(usd, 6),
            "cost_from_bytes": row[f"{prefix}usd_bytes"],
        },
    )
    return to_wire(EstimatedKeptOut, counted, estimate=estimate)


def tree_wire(
    rows: Sequence[Any], reference_sums: Mapping[str, UsageSum], work_id: str
) -> list[dict[str, Any]]:
    """Return the record and all its descendants, each with its rollup: what it and its descendants used.

    Parents come before their children, siblings oldest first. `rows` are the records of its query,
    `reference_sums` what some of them did with references.
    """
    children: dict[str | None, list[Any]] = {}
    by_id: dict[str, Any] = {}
    for row in rows:
        children.setdefault(row["parent_id"], []).append(row)
        by_id[row["id"]] = row
    ordered: list[Any] = []
    stack = [by_id[work_id]]
    while stack:
        row = stack.pop()
        ordered.append(row)
        stack += reversed(children.get(row["id"], ()))
    sums: dict[str, UsageSum] = {}  # only of records that used anything: most are tool calls
    for row in reversed(ordered):  # children before their parents
        parts = [sums[child["id"]] for child in children.get(row["id"], ()) if child["id"] in sums]
        parts += [reference_sums[row["id"]]] if row["id"] in reference_sums else []
        if parts or row["kind"] == "model_call":
            total = UsageSum.from_record(row)
            for part in parts:
                total.add(part)
            sums[row["id"]] = total
    nothing = UsageSum().wire()
    return [
        {**summary_wire(row), "rollup": sums[row["id"]].wire() if row["id"] in sums else nothing}
        for row in ordered
    ]
