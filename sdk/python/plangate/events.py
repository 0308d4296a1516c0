"""The catalogue of events: the one source for history, streams, the console, the docs and the clients.

Every query has a journal of these, numbered 1..n without gaps. On the wire they are camelCase; what a reader
does not know is ignored, and a type that it does not know becomes an `UnknownEvent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType

QueryStatus = Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"]
PlanStatus = Literal["draft", "approved", "executing", "executed", "failed"]
ShownPlanStatus = Literal["draft", "pending_approval", "approved", "executing", "executed", "failed"]
ActionStatus = Literal["pending", "dispatched", "succeeded", "failed", "skipped", "unknown"]
ApprovalStatus = Literal["pending", "approved", "rejected", "revised", "expired", "cancelled"]
Decision = Literal["approve", "reject", "revise"]
WorkKind = Literal["query", "agent", "model_call", "tool_call", "plan_execution", "action", "host"]
WorkStatus = Literal["running", "waiting", "succeeded", "failed", "cancelled", "unknown"]
JsonObject = dict[str, JsonValue]


class Wire(BaseModel):
    """Frozen data in camelCase; snake_case is accepted, unknown fields are ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
    )


# What events carry.


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
    """One principal's decision where a policy asks for several."""

    principal: str
    decision: Decision
    at: str


class ApprovalInfo(Wire):
    """The row of an approval. `digest` is the SHA-256 of its subject, which only its own route shows."""

    id: str
    kind: Literal["plan", "tool"]
    target: str
    digest: str
    glimpses: JsonObject = Field(default_factory=dict)
    query_id: str
    work_id: str
    agent: str | None = None
    thread_id: str
    runtime_id: str | None = None
    resource_id: str
    requested_by: str | None = None
    status: ApprovalStatus
    requested_at: str
    expires_at: str
    decided_at: str | None = None
    decided_by: str | None = None
    votes: tuple[Vote, ...] = ()
    decision: Decision | None = None
    feedback: str | None = None
    partial: JsonValue = None


class ApprovalOutcome(Wire):
    """How an approval ended."""

    outcome: Literal["approve", "reject", "revise", "expired", "cancelled"]


class ApprovalEnd(Wire):
    """An approval's end; `decided_by` is None where no principal decided."""

    id: str
    outcome: ApprovalOutcome
    feedback: str | None = None
    decided_by: str | None = None


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
    """The unit of work that published."""

    work_id: str
    parent_work_id: str | None = None
    kind: WorkKind
    query_id: str | None = None
    thread_id: str
    agent: str | None = None
    model: str | None = None


class ArtifactInfo(Wire):
    """The record of an artifact; the body stays in the workspace."""

    id: str
    version: int = 1
    channel: str
    kind: str
    path: str
    target_available: bool = True
    target_changed: bool = False
    is_directory: bool | None = None
    title: str | None = None
    summary: str | None = None
    media_type: str | None = None
    size_bytes: int | None = None
    digest: ArtifactDigest | None = None
    created_at: str
    producer: ArtifactProducer
    status: Literal["active", "superseded"] = "active"
    replaces: str | None = None
    parent_artifact_ids: tuple[str, ...] = ()
    competes_with: tuple[str, ...] = ()
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
    started_at: str | None = None
    ended_at: str | None = None
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


# The events.


class Envelope(Wire):
    """What every event has: its number in the journal, and whose it is. `at` is RFC 3339 in UTC."""

    seq: int
    query_id: str
    thread_id: str
    work_id: str | None
    parent_work_id: str | None
    agent: str | None
    at: str


class QueryStatusEvent(Envelope):
    """The query's status changed; `from` is None for its first."""

    type: Literal["query-status"]
    from_: QueryStatus | None = Field(alias="from")
    to: QueryStatus
    reason: str | None = None


class StepStartEvent(Envelope):
    """A model turn begins; its output follows."""

    type: Literal["step-start"]
    turn: int


class StepRetryEvent(Envelope):
    """The turn is repeated: discard its text so far."""

    type: Literal["step-retry"]
    turn: int
    reason: str


class TextEvent(Envelope):
    """A piece of the model's text; `workId` is the model call's."""

    type: Literal["text"]
    text: str
    turn: int


class ReasoningEvent(Envelope):
    """A piece of the model's reasoning; `workId` is the model call's."""

    type: Literal["reasoning"]
    text: str
    turn: int


class ContextTrimmedEvent(Envelope):
    """Oldest turns left the prompt."""

    type: Literal["context-trimmed"]
    data: TrimmedTurns


class ToolInvocationEvent(Envelope):
    """A tool is called, and later its result or error. `args` are as the model wrote them."""

    type: Literal["tool-invocation"]
    tool_invocation_id: str
    tool_name: str
    args: JsonValue = None
    state: Literal["call", "result", "error"]
    result: JsonValue = None
    error: ErrorInfo | None = None


class ToolProgressEvent(Envelope):
    """A running tool says how far it is."""

    type: Literal["tool-progress"]
    tool_name: str
    label: str
    phase_index: int | None = None
    total_phases: int | None = None
    milestone: bool | str | None = None


class ToolAgentEvent(Envelope):
    """A sub-agent starts or ends; the end lists the artifacts that it published."""

    type: Literal["tool-agent"]
    agent_name: str
    state: Literal["call", "result"]
    artifacts: tuple[JsonObject, ...] | None = None


class DataToolAgentEvent(Envelope):
    """What a sub-agent used."""

    type: Literal["data-tool-agent"]
    data: AgentUse


class ApprovalRequiredEvent(Envelope):
    """A gate opens."""

    type: Literal["approval-required"]
    data: ApprovalInfo


class ApprovalDecisionEvent(Envelope):
    """An approval was decided, expired, or was cancelled."""

    type: Literal["approval-decision"]
    data: ApprovalEnd


class PlanStatusChangeEvent(Envelope):
    """A plan went from one status to the next; `pending_approval` is shown while a gate is open."""

    type: Literal["plan-status-change"]
    data: PlanChange


class ActionStatusChangeEvent(Envelope):
    """An action of an executing plan went from one status to the next."""

    type: Literal["action-status-change"]
    data: ActionChange


class ReferenceCreatedEvent(Envelope):
    """A reference was stored."""

    type: Literal["reference-created"]
    data: ReferenceHandle


class StateWriteEvent(Envelope):
    """Something was written to the state or to a data object."""

    type: Literal["state-write"]
    data: StateChange


class ArtifactPublishedEvent(Envelope):
    """An artifact was published."""

    type: Literal["artifact-published"]
    data: ArtifactInfo


class WorkStartEvent(Envelope):
    """A unit of work begins."""

    type: Literal["work-start"]
    data: WorkInfo


class WorkEndEvent(Envelope):
    """A unit of work ended."""

    type: Literal["work-end"]
    data: WorkInfo


class CustomEvent(Envelope):
    """What a tool wants to tell."""

    type: Literal["custom"]
    event_type: str
    data: JsonValue = None


class DataCostSummaryEvent(Envelope):
    """What the query used, before its end."""

    type: Literal["data-cost-summary"]
    data: CostSummary


class DataLatencySummaryEvent(Envelope):
    """Where the query's time went, in milliseconds, before its end."""

    type: Literal["data-latency-summary"]
    data: JsonObject


class FinishEvent(Envelope):
    """The query succeeded: the last event of its journal."""

    type: Literal["finish"]
    finish_reason: str
    usage: Usage
    output: JsonValue = None


class ErrorEvent(Envelope):
    """The query failed or was cancelled: the last event of its journal."""

    type: Literal["error"]
    error: ErrorInfo


class UnknownEvent(Envelope):
    """An event of a type that this version does not know; `fields` is the whole event as it came."""

    seq: int = 0
    query_id: str = ""
    thread_id: str = ""
    work_id: str | None = None
    parent_work_id: str | None = None
    agent: str | None = None
    at: str = ""
    type: str
    fields: JsonObject


Event = TypeAliasType(
    "Event",
    Annotated[
        QueryStatusEvent
        | StepStartEvent
        | StepRetryEvent
        | TextEvent
        | ReasoningEvent
        | ContextTrimmedEvent
        | ToolInvocationEvent
        | ToolProgressEvent
        | ToolAgentEvent
        | DataToolAgentEvent
        | ApprovalRequiredEvent
        | ApprovalDecisionEvent
        | PlanStatusChangeEvent
        | ActionStatusChangeEvent
        | ReferenceCreatedEvent
        | StateWriteEvent
        | ArtifactPublishedEvent
        | WorkStartEvent
        | WorkEndEvent
        | CustomEvent
        | DataCostSummaryEvent
        | DataLatencySummaryEvent
        | FinishEvent
        | ErrorEvent,
        Field(discriminator="type"),
    ],
)
"""Any event of the catalogue, told apart by `type`."""


def _by_type() -> dict[str, type[Envelope]]:
    union, _ = get_args(Event.__value__)
    return {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(union)}


EVENT_MODELS: Final = MappingProxyType(_by_type())
"""The model of each type, in the catalogue's order."""

EVENT_TYPES: Final[tuple[str, ...]] = tuple(EVENT_MODELS)
TERMINAL_TYPES: Final[frozenset[str]] = frozenset({"finish", "error"})


@cache
def event_adapter() -> TypeAdapter[Event]:
    """Validates and serialises any event of the catalogue; the OpenAPI document has its JSON Schema.

    Example:
        >>> sorted(event_adapter().json_schema()["discriminator"]["mapping"])[:2]
        ['action-status-change', 'approval-decision']
    """
    return TypeAdapter(Event)


def parse_event(data: Mapping[str, Any]) -> Event | UnknownEvent:
    """The event that a JSON object from a journal or a stream is.

    Args:
        data: The envelope with the fields of its type. Fields that are not in the catalogue are ignored.

    Raises:
        pydantic.ValidationError: (a ValueError) for a known type with a field missing or of another type, and
            for an event without a type.

    Example:
        >>> envelope = {"seq": 3, "queryId": "qry_1", "threadId": "thr_1", "workId": "wrk_2",
        ...             "parentWorkId": "wrk_1", "agent": "helper", "at": "2026-01-02T03:04:05.678Z"}
        >>> parse_event({**envelope, "type": "text", "text": "Hi", "turn": 1}).text
        'Hi'
        >>> parse_event({**envelope, "type": "not-yet", "data": 1}).fields["data"]
        1
    """
    kind = data.get("type")
    if isinstance(kind, str) and kind not in EVENT_MODELS:
        known = {key: value for key, value in data.items() if key != "fields"}
        return UnknownEvent.model_validate({**known, "fields": dict(data)})
    return event_adapter().validate_python(data)
