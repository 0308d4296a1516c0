"""The kinds of event, one class each, and their union.

To add a kind, add its class, and its name to `__all__` and to `Event`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from plangate.statuses import QueryStatus
from pydantic import Field, JsonValue
from typing_extensions import TypeAliasType

from app.events.base import Envelope, JsonObject
from app.events.carried import (
    ActionChange,
    AgentUse,
    ApprovalCommentNotice,
    ApprovalEnd,
    ApprovalInfo,
    ArtifactDecision,
    ArtifactInfo,
    CostSummary,
    ErrorInfo,
    PlanChange,
    ReferenceHandle,
    StateChange,
    TrimmedTurns,
    Usage,
    WorkInfo,
)

__all__ = [
    "ActionStatusChangeEvent",
    "ApprovalCommentEvent",
    "ApprovalDecisionEvent",
    "ApprovalRequiredEvent",
    "ArtifactDecisionEvent",
    "ArtifactPublishedEvent",
    "ContextTrimmedEvent",
    "CustomEvent",
    "DataCostSummaryEvent",
    "DataLatencySummaryEvent",
    "DataToolAgentEvent",
    "ErrorEvent",
    "Event",
    "FinishEvent",
    "PlanStatusChangeEvent",
    "QueryStatusEvent",
    "ReasoningEvent",
    "ReferenceCreatedEvent",
    "StateWriteEvent",
    "StepRetryEvent",
    "StepStartEvent",
    "TextEvent",
    "ToolAgentEvent",
    "ToolInvocationEvent",
    "ToolProgressEvent",
    "WorkEndEvent",
    "WorkStartEvent",
]


class QueryStatusEvent(Envelope):
    """The query's status changed; `from` is None for its first. `limit`: which one, for the reason `limit_reached`."""

    type: Literal["query-status"]
    from_: QueryStatus | None = Field(alias="from")
    """The status before; null at first."""
    to: QueryStatus
    """The status after."""
    reason: str | None = None
    """Why it waits, or how it ended."""
    limit: Literal["maxTurns", "maxTokens", "maxCostUsd", "maxDurationMs"] | None = None
    """The limit that was reached."""


class StepStartEvent(Envelope):
    """A model turn begins; its output follows."""

    type: Literal["step-start"]
    turn: int


class StepRetryEvent(Envelope):
    """The turn is repeated: discard its text so far."""

    type: Literal["step-retry"]
    turn: int
    reason: str
    """Why the turn is repeated."""


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
    """What is left out of the prompt."""


class ToolInvocationEvent(Envelope):
    """A tool is called, and later its result or error. `sent_args`: an approver's, in the place of the model's."""

    type: Literal["tool-invocation"]
    tool_invocation_id: str
    tool_name: str
    args: JsonValue = None
    """The arguments, as the model wrote them."""
    sent_args: JsonObject | None = None
    """The arguments of an approver, if they replaced the model's."""
    state: Literal["call", "result", "error"]
    """Whether it is called, or has returned or failed."""
    result: JsonValue = None
    """What the tool returned."""
    error: ErrorInfo | None = None
    """The error that the model receives."""


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
    """Whether it starts (`call`) or has ended (`result`)."""
    artifacts: tuple[ArtifactInfo, ...] | None = None
    """At the end, what the sub-agent published."""


class DataToolAgentEvent(Envelope):
    """The usage of a sub-agent."""

    type: Literal["data-tool-agent"]
    data: AgentUse
    """What the sub-agent used."""


class ApprovalRequiredEvent(Envelope):
    """An approval is requested, or requested again: an approver replaced the arguments, and others must approve."""

    type: Literal["approval-required"]
    data: ApprovalInfo
    """The approval."""


class ApprovalDecisionEvent(Envelope):
    """An approval was decided, expired, or was canceled."""

    type: Literal["approval-decision"]
    data: ApprovalEnd
    """How the approval ended."""


class ApprovalCommentEvent(Envelope):
    """A person commented on an approval. Comments on approvals of queries that are over have no event."""

    type: Literal["approval-comment"]
    data: ApprovalCommentNotice
    """The comment, without its text."""


class PlanStatusChangeEvent(Envelope):
    """A plan went from one status to the next; `pending_approval` is shown while an approval is pending."""

    type: Literal["plan-status-change"]
    data: PlanChange
    """The transition."""


class ActionStatusChangeEvent(Envelope):
    """An action of an executing plan went from one status to the next."""

    type: Literal["action-status-change"]
    data: ActionChange
    """The transition."""


class ReferenceCreatedEvent(Envelope):
    """A reference was stored."""

    type: Literal["reference-created"]
    data: ReferenceHandle
    """The handle of the reference."""


class StateWriteEvent(Envelope):
    """Something was written to the state, the memory or a data object."""

    type: Literal["state-write"]
    data: StateChange
    """What was written where."""


class ArtifactPublishedEvent(Envelope):
    """An artifact was published."""

    type: Literal["artifact-published"]
    data: ArtifactInfo
    """The record of the artifact."""


class ArtifactDecisionEvent(Envelope):
    """An artifact was withdrawn, or chosen over competing revisions, by an agent or by a host. A decision of a
    host has no event once the query that published the artifact is over."""

    type: Literal["artifact-decision"]
    data: ArtifactDecision
    """The record of the decision."""


class WorkStartEvent(Envelope):
    """A unit of work begins."""

    type: Literal["work-start"]
    data: WorkInfo
    """The work record as it begins."""


class WorkEndEvent(Envelope):
    """A unit of work ended."""

    type: Literal["work-end"]
    data: WorkInfo
    """The work record as it ended."""


class CustomEvent(Envelope):
    """An event of a tool's own type. Whoever answers the call of the tool sends it."""

    type: Literal["custom"]
    event_type: str
    """The tool's own type."""
    data: JsonValue = None
    """What the tool sent."""


class DataCostSummaryEvent(Envelope):
    """Usage of the query so far, sent just before it ends."""

    type: Literal["data-cost-summary"]
    data: CostSummary
    """What the query used."""


class DataLatencySummaryEvent(Envelope):
    """Where the query's time went, in milliseconds, before its end."""

    type: Literal["data-latency-summary"]
    data: dict[str, float]
    """Milliseconds by what they were spent on."""


class FinishEvent(Envelope):
    """The query succeeded: the last event of its journal."""

    type: Literal["finish"]
    finish_reason: str
    """How the last model turn ended."""
    usage: Usage
    output: JsonValue = None
    """The result of the query."""


class ErrorEvent(Envelope):
    """The query failed or was canceled: the last event of its journal."""

    type: Literal["error"]
    error: ErrorInfo
    """Why the query failed or who canceled it."""


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
        | ApprovalCommentEvent
        | ApprovalDecisionEvent
        | PlanStatusChangeEvent
        | ActionStatusChangeEvent
        | ReferenceCreatedEvent
        | StateWriteEvent
        | ArtifactPublishedEvent
        | ArtifactDecisionEvent
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
"""Any event, distinguished by `type`."""
