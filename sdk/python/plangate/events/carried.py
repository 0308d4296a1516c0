"""What events carry in their fields."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from plangate.events.base import JsonObject, Timestamp, Wire
from plangate.statuses import ActionStatus, ApprovalStatus, Decision, ShownPlanStatus, WorkKind, WorkStatus


class Usage(Wire):
    """Tokens of model calls."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


class ErrorInfo(Wire):
    """What went wrong: a message for people and models, and a stable code."""

    message: str
    code: str


class TrimmedTurns(Wire):
    """What left the prompt, not the record."""

    turns: int
    tokens: int


class AgentUse(Wire):
    """What a sub-agent used; no cost where a price is not known."""

    agent_name: str
    model: str
    usage: Usage
    cost_usd: float | None = None


class Vote(Wire):
    """One principal's decision, the key it came with, and whether it asks for the approval to be remembered."""

    principal: str
    key_id: str | None = None
    decision: Decision
    scope: Literal["thread"] | None = None
    at: Timestamp


class ApprovalInfo(Wire):
    """The row of an approval. `digest` is the SHA-256 of its subject, which only its own route shows."""

    id: str
    kind: Literal["plan", "tool"]
    target: str
    label: str | None = None  # of a plan: what people read in place of its status
    digest: str
    original_args: JsonObject | None = None  # the model's, where an approver replaced them
    glimpses: JsonObject = Field(default_factory=dict)
    rule: JsonObject | None = None  # in force when it was asked
    query_id: str
    work_id: str
    agent: str | None = None
    thread_id: str
    runtime_id: str | None = None
    resource_id: str
    requested_by: str | None = None
    status: ApprovalStatus
    requested_at: Timestamp
    expires_at: Timestamp
    decided_at: Timestamp | None = None
    decided_by: str | None = None
    grant_id: str | None = None  # of the remembered approval that decided it
    votes: tuple[Vote, ...] = ()
    decision: Decision | None = None
    feedback: str | None = None
    partial: JsonValue = None


class ApprovalOutcome(Wire):
    """How an approval ended."""

    outcome: Literal["approve", "reject", "revise", "expired", "cancelled"]


class ApprovalEnd(Wire):
    """An approval's end; `decided_by` is None where no principal decided. `args`: those of an approver."""

    id: str
    outcome: ApprovalOutcome
    feedback: str | None = None
    decided_by: str | None = None
    args: JsonObject | None = None
    grant_id: str | None = None


class PlanChange(Wire):
    """A transition of a plan. `from` is None when it is first stored; `label` is what people read."""

    plan_id: str
    revision: int
    from_: ShownPlanStatus | None = Field(default=None, alias="from")
    to: ShownPlanStatus
    label: str


class ActionChange(Wire):
    """A transition of the action `index` of a plan, counted from 0."""

    plan_id: str
    index: int
    kind: str
    from_: ActionStatus | None = Field(default=None, alias="from")
    to: ActionStatus


class ReferenceHandle(Wire):
    """A stored reference: handle, glimpse and size in bytes, never the value."""

    kind: str
    id: str
    glimpse: JsonValue
    size_bytes: int


class StateChange(Wire):
    """A write to a document: where and how, never the value. `write` identifies it in the log."""

    path: str
    method: Literal["set", "merge", "assign", "push", "concat"]
    write: str | int


class ArtifactDigest(Wire):
    algorithm: Literal["sha256"]
    value: str


class ArtifactProducer(Wire):
    """The unit of work that published, by which call, and the plan action that this call carries out."""

    work_id: str
    parent_work_id: str | None = None
    kind: WorkKind
    query_id: str | None = None
    thread_id: str
    agent: str | None = None
    model: str | None = None
    call_id: str | None = None
    plan_id: str | None = None
    action_index: int | None = None


class ArtifactDecision(Wire):
    """A record that withdraws the artifact `artifact_id`, or chooses it over the revisions `over`."""

    id: str
    kind: Literal["withdraw", "choose"]
    artifact_id: str
    over: tuple[str, ...] = ()
    reason: str
    created_at: Timestamp
    principal: str | None = None  # of the host that decided, if no agent did
    producer: ArtifactProducer


class ArtifactInfo(Wire):
    """The record of an artifact; the body stays in the workspace."""

    id: str
    version: int = 1
    channel: str
    kind: str
    path: str
    target_available: bool = True
    target_changed: bool | None = None  # left out for a directory in a list: read the one record
    is_directory: bool | None = None
    title: str | None = None
    summary: str | None = None
    media_type: str | None = None
    size_bytes: int | None = None
    digest: ArtifactDigest | None = None
    created_at: Timestamp
    producer: ArtifactProducer
    status: Literal["active", "superseded", "withdrawn"] = "active"
    replaces: str | None = None
    first_artifact_id: str | None = None  # if it replaces another: where that chain of revisions begins
    revision: int | None = None  # and its place in that chain, from 2
    parent_artifact_ids: tuple[str, ...] = ()
    competes_with: tuple[str, ...] = ()
    decisions: tuple[ArtifactDecision, ...] = ()  # the records that withdraw, choose or pass over it
    tags: tuple[str, ...] = ()
    metadata: JsonObject | None = None


class WorkInfo(Wire):
    """The part of a work record that its start and end tell."""

    id: str
    parent_id: str | None = None
    kind: WorkKind
    name: str
    agent: str | None = None
    status: WorkStatus
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    duration_ms: int | None = None
    model: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    attempts: int | None = None
    error: ErrorInfo | None = None


class CostSummary(Wire):
    """What the query used, summed over its agents."""

    usage: Usage
    cost_usd: float | None = None
    model_calls: int | None = None
