"""Approvals: what is asked, and what was decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import orjson
from plangate.spec.models import ApprovalRule

from app.base.clock import rfc3339
from app.journal.models import Scope

DEFAULT_EXPIRES_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a gate asks. `subject` are the bytes that are approved; `glimpses` is what travels in events."""

    kind: Literal["plan", "tool"]
    target: str
    subject: bytes
    glimpses: dict[str, Any]
    rule: ApprovalRule
    scope: Scope
    runtime_id: str
    requested_by: str
    expires_in_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of an approval that is no longer pending."""

    id: str
    status: Literal["approved", "rejected", "revised", "expired", "cancelled"]
    digest: bytes
    decided_by: str | None
    feedback: str | None
    partial: Any


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """An approval as every reader sees it."""

    id: str
    kind: str
    target: str
    digest: bytes
    glimpses: bytes
    rule: dict[str, Any]
    query_id: str
    work_id: str
    agent: str
    thread_id: str
    runtime_id: str
    tenant: str
    requested_by: str
    status: str
    requested_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    decision: str | None
    feedback: str | None
    partial: bytes | None
    votes: list[dict[str, Any]] = field(default_factory=list)

    def wire(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            "target": self.target,
            "digest": self.digest.hex(),
            "glimpses": orjson.loads(self.glimpses),
            "queryId": self.query_id,
            "workId": self.work_id,
            "agent": self.agent,
            "threadId": self.thread_id,
            "runtimeId": self.runtime_id,
            "resourceId": self.tenant,
            "requestedBy": self.requested_by,
            "status": self.status,
            "requestedAt": rfc3339(self.requested_at),
            "expiresAt": rfc3339(self.expires_at),
            "decidedAt": rfc3339(self.decided_at) if self.decided_at else None,
            "decidedBy": self.decided_by,
            "votes": self.votes,
            "decision": self.decision,
            "feedback": self.feedback,
            "partial": None if self.partial is None else orjson.loads(self.partial),
        }
