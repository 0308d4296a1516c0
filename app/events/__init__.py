"""The types of events: the service writes them, and the API document describes them. The clients' types of events are
generated from that.

Every query has a journal of these, numbered 1..n without gaps. On the wire they are camelCase.
"""

from plangate.statuses import (
    ActionStatus,
    ApprovalStatus,
    Decision,
    FactKind,
    FactStatus,
    PlanStatus,
    QueryStatus,
    ShownPlanStatus,
    WorkKind,
    WorkStatus,
)

from app.events.base import Envelope, JsonObject, Timestamp, Wire
from app.events.carried import (
    ActionChange,
    AgentUse,
    ApprovalComment,
    ApprovalCommentNotice,
    ApprovalEnd,
    ApprovalInfo,
    ApprovalOutcome,
    ArtifactDigest,
    ArtifactInfo,
    ArtifactProducer,
    CostSummary,
    ErrorInfo,
    Fact,
    PlanChange,
    ReferenceHandle,
    StateChange,
    TrimmedTurns,
    Usage,
    Vote,
    WorkInfo,
)
from app.events.kinds import *  # noqa: F403
from app.events.kinds import __all__ as _kinds
from app.events.registry import (
    EVENT_MODELS,
    EVENT_TYPES,
    TERMINAL_TYPES,
)

__all__ = [
    "ActionChange",
    "ActionStatus",
    "AgentUse",
    "ApprovalComment",
    "ApprovalCommentNotice",
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
    "Fact",
    "FactKind",
    "FactStatus",
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
    "Usage",
    "Vote",
    "Wire",
    "WorkInfo",
    "WorkKind",
    "WorkStatus",
]
__all__ += _kinds
