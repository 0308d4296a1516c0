"""Models of event fields."""

from __future__ import annotations

from typing import Literal

from plangate.spec.models import ApprovalRule
from plangate.statuses import (
    ActionStatus,
    ApprovalStatus,
    Decision,
    FactKind,
    FactStatus,
    ShownPlanStatus,
    WorkKind,
    WorkStatus,
)
from pydantic import Field, JsonValue

from app.events.base import JsonObject, Timestamp, Wire


class Usage(Wire):
    """Tokens of model calls."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


class ErrorInfo(Wire):
    """An error: a message for people and models, and a stable code."""

    message: str
    code: str
    """A stable code."""


class TrimmedTurns(Wire):
    """The turns that were dropped from the prompt. They stay on record."""

    turns: int
    """How many turns are left out."""
    tokens: int


class AgentUse(Wire):
    """The usage of a sub-agent, without a cost if the price is unknown."""

    agent_name: str
    model: str
    usage: Usage
    cost_usd: float | None = None


class Vote(Wire):
    """One principal's decision, the key it came with, and whether it asks for the approval to be remembered."""

    principal: str
    key_id: str | None = None
    """The id of the key that it came with."""
    decision: Decision
    scope: Literal["thread"] | None = None
    at: Timestamp
    """When the principal decided."""


class ReferenceHandle(Wire):
    """A stored reference: handle, glimpse and size in bytes, never the value."""

    kind: str
    """Its kind."""
    id: str
    """The id of the reference."""
    glimpse: JsonValue
    size_bytes: int


class Fact(Wire):
    """A fact that the kind of a plan declares. The service computes it when the plan reaches its gate, from the plan
    and the values stored for its approval; no model writes it."""

    name: str
    """The key of the fact in the spec of the plan."""
    label: str
    """What people read in place of the name."""
    unit: str | None = None
    """What the value counts, such as `USD`."""
    kind: FactKind | None = None
    """The type of the value; null for any JSON."""
    status: FactStatus
    """Whether it has a value. `depends_on_results` and `failed` are not known before execution."""
    value: JsonValue = None
    """A decimal is a string. Null unless the status is `known`."""


class GlimpsedVariable(Wire):
    """A variable of a call or of a plan, with a glimpse of its value. In a plan, `resultOf` has the actions whose result the
    value will be, if it is not known yet."""

    variable: str
    """The variable, such as `†state.total`."""
    pointer: str | None = None
    """Where the value is in the arguments of the call: a JSON pointer."""
    type: str | None = None
    """The type of the value."""
    digest: str | None = None
    size_bytes: int | None = None
    glimpse: JsonValue = None
    result_of: tuple[int, ...] | None = None
    """The actions whose result it will be."""


class ApprovalGlimpses(Wire):
    """The main parts of a subject, for lists: `args` of a tool call, and the other fields of a plan. Of a large plan, `body`
    has only the kinds of its actions. Long lists are cut, and the numbers say by how much."""

    args: JsonObject | None = None
    """The arguments of the call. Large values of variables are glimpses."""
    plan_id: str | None = None
    key: str | None = None
    """The key of the plan that its agent or host chose."""
    spec_name: str | None = None
    revision: int | None = None
    facts: tuple[Fact, ...] | None = None
    """The facts that the kind of the plan declares."""
    body: JsonObject | None = None
    """The plan as it is stored."""
    references: tuple[ReferenceHandle, ...] | None = None
    """The references that the plan names."""
    references_left_out: int | None = None
    """How many more references it names."""
    variables: tuple[GlimpsedVariable, ...] | None = None
    """The variables of the call or of the plan."""
    variables_left_out: int | None = None
    """How many more variables it has."""


class ApprovalInfo(Wire):
    """The row of an approval. `digest` is the SHA-256 of its subject, which only its own route shows."""

    id: str
    """The id of the approval."""
    kind: Literal["plan", "tool"]
    """Whether a plan or a tool call waits."""
    target: str
    """The id of the plan, or the name of the tool."""
    label: str | None = None  # of a plan: what people read in place of its status
    digest: str
    """The SHA-256 of the subject, in hex. Only the subject itself shows what is approved."""
    original_args: JsonObject | None = None  # the model's, where an approver replaced them
    """The arguments that the agent asked for, if an approver replaced them."""
    glimpses: ApprovalGlimpses = Field(default_factory=ApprovalGlimpses)
    """The main facts of the subject, for lists."""
    rule: ApprovalRule | None = None  # in force when it was asked
    """The rule that was in force when approval was requested."""
    query_id: str
    work_id: str
    agent: str | None = None
    thread_id: str
    runtime_id: str | None = None
    resource_id: str
    requested_by: str | None = None
    """The principal that asked for the query."""
    status: ApprovalStatus
    requested_at: Timestamp
    """When approval was requested."""
    expires_at: Timestamp
    decided_at: Timestamp | None = None
    decided_by: str | None = None
    grant_id: str | None = None  # of the remembered approval that decided it
    votes: tuple[Vote, ...] = ()
    """The decisions that count so far."""
    decision: Decision | None = None
    feedback: str | None = None
    partial: JsonValue = None
    waiting_parents: int = 0
    """How many agents wait for the agent that asks."""
    waiting_actions: int = 0
    """How many actions of the plan wait; 0 for a tool call."""


class ApprovalComment(Wire):
    """A comment of a person on an approval. It is never sent to a model."""

    id: str
    """The id of the comment."""
    approval_id: str
    principal: str
    """The principal that wrote it."""
    text: str
    created_at: Timestamp


class ApprovalCommentNotice(Wire):
    """A comment of a person on an approval, without its text: people who may decide read it with the approval."""

    id: str
    """The id of the comment."""
    approval_id: str
    principal: str
    """The principal that wrote it."""
    count: int
    """How many comments the approval has with this one."""
    created_at: Timestamp


class ApprovalOutcome(Wire):
    """The outcome of an approval."""

    outcome: Literal["approve", "reject", "revise", "expired", "cancelled"]
    """The decision, or how it ended without one."""


class ApprovalEnd(Wire):
    """An approval's end; `decided_by` is None where no principal decided. `args`: those of an approver."""

    id: str
    """The id of the approval."""
    outcome: ApprovalOutcome
    """How it ended."""
    feedback: str | None = None
    decided_by: str | None = None
    args: JsonObject | None = None
    """The arguments of an approver, if they replaced the agent's."""
    grant_id: str | None = None


class PlanChange(Wire):
    """A transition of a plan. `from` is None when it is first stored; `label` is what people read."""

    plan_id: str
    revision: int
    from_: ShownPlanStatus | None = Field(default=None, alias="from")
    """The status before; null when it is first stored."""
    to: ShownPlanStatus
    """The status after."""
    label: str


class ActionChange(Wire):
    """A transition of the action `index` of a plan, counted from 0."""

    plan_id: str
    index: int
    """The place of the action in its plan, counted from 0."""
    kind: str
    """The kind of the action."""
    from_: ActionStatus | None = Field(default=None, alias="from")
    """The status before; null at first."""
    to: ActionStatus
    """The status after."""


class StateChange(Wire):
    """A write to a document: where and how, never the value. `write` identifies it in the log."""

    path: str
    """Where it was written."""
    method: Literal["set", "merge", "assign", "push", "concat"]
    write: str | int
    """The number of the write in the log."""


class ArtifactDigest(Wire):
    algorithm: Literal["sha256"]
    """Always `sha256`."""
    value: str
    """The digest, in hex."""


class ArtifactProducer(Wire):
    """The unit of work that published, by which call, and the plan action that this call carries out."""

    work_id: str
    parent_work_id: str | None = None
    kind: WorkKind
    """What kind of work it was."""
    query_id: str | None = None
    thread_id: str
    agent: str | None = None
    model: str | None = None
    call_id: str | None = None
    """The id of the tool call that published it."""
    plan_id: str | None = None
    action_index: int | None = None


class ArtifactDecision(Wire):
    """A record that withdraws the artifact `artifact_id`, or chooses it over the revisions `over`."""

    id: str
    """The id of the decision."""
    kind: Literal["withdraw", "choose"]
    """Whether the artifact was withdrawn or chosen."""
    artifact_id: str
    over: tuple[str, ...] = ()
    reason: str
    created_at: Timestamp
    principal: str | None = None  # of the host that decided, if no agent did
    producer: ArtifactProducer


class ArtifactInfo(Wire):
    """The record of an artifact; the body stays in the workspace."""

    id: str
    """The id of the artifact."""
    version: int = 1
    channel: str
    kind: str
    """What it is, such as `report`."""
    path: str
    """The file or directory of the workspace."""
    target_available: bool = True
    target_changed: bool | None = None  # left out for a directory in a list: read the one record
    is_directory: bool | None = None
    """Whether the target is a directory."""
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
    """The ids of other artifacts that replace the same one."""
    decisions: tuple[ArtifactDecision, ...] = ()  # the records that withdraw, choose or pass over it
    """Who withdrew or chose it."""
    tags: tuple[str, ...] = ()
    metadata: JsonObject | None = None


class WorkInfo(Wire):
    """The part of a work record that its start and end tell."""

    id: str
    """The id of the work record."""
    parent_id: str | None = None
    kind: WorkKind
    """What kind of work it is."""
    name: str
    """The name of the agent, tool, model or plan at work."""
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
    """Why it failed."""


class CostSummary(Wire):
    """The usage of the query, summed over its agents."""

    usage: Usage
    cost_usd: float | None = None
    model_calls: int | None = None
