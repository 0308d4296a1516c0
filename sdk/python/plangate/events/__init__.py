"""The catalogue of events: the one source for history, streams, the console, the docs and the clients.

Every query has a journal of these, numbered 1..n without gaps. On the wire they are camelCase; what a reader
does not know is ignored, and a type that it does not know becomes an `UnknownEvent`.
"""

from plangate.events.base import Envelope, JsonObject, Timestamp, Wire
from plangate.events.carried import (
    ActionChange,
    AgentUse,
    ApprovalEnd,
    ApprovalInfo,
    ApprovalOutcome,
    ArtifactDigest,
    ArtifactInfo,
    ArtifactProducer,
    CostSummary,
    ErrorInfo,
    PlanChange,
    ReferenceHandle,
    StateChange,
    TrimmedTurns,
    Usage,
    Vote,
    WorkInfo,
)
from plangate.events.catalogue import (
    EVENT_MODELS,
    EVENT_TYPES,
    TERMINAL_TYPES,
    UnknownEvent,
    event_adapter,
    parse_event,
)
from plangate.events.kinds import *  # noqa: F403
from plangate.events.kinds import __all__ as _kinds
from plangate.statuses import (
    ActionStatus,
    ApprovalStatus,
    Decision,
    PlanStatus,
    QueryStatus,
    ShownPlanStatus,
    WorkKind,
    WorkStatus,
)

__all__ = [
    "ActionChange",
    "ActionStatus",
    "AgentUse",
    "ApprovalEnd",
    "ApprovalInfo",
    "ApprovalOutcome",
    "ApprovalStatus",
    "ArtifactDigest",
    "ArtifactInfo",
    "ArtifactProducer",
    "CostSummary",
    "Decision",
    "EVENT_MODELS",
    "EVENT_TYPES",
    "Envelope",
    "ErrorInfo",
    "JsonObject",
    "PlanChange",
    "PlanStatus",
    "QueryStatus",
    "ReferenceHandle",
    "ShownPlanStatus",
    "StateChange",
    "TERMINAL_TYPES",
    "Timestamp",
    "TrimmedTurns",
    "UnknownEvent",
    "Usage",
    "Vote",
    "Wire",
    "WorkInfo",
    "WorkKind",
    "WorkStatus",
    "event_adapter",
    "parse_event",
]
__all__ += _kinds
