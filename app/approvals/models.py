"""Approvals: what is asked, what is decided, and what is remembered."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import orjson
from plangate.events import ApprovalInfo
from plangate.spec.models import ApprovalRule

from app.approvals.principals import canonical_principal
from app.approvals.subject import args_text
from app.base.responses import to_wire
from app.journal.models import Scope

DecisionWord = Literal["approve", "reject", "revise"]
Gate = Literal["plan", "tool"]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a gate asks. `subject` are the bytes that are approved; `glimpses` is what travels in events."""

    kind: Gate
    target: str
    subject: bytes
    glimpses: dict[str, Any]
    rule: ApprovalRule
    scope: Scope
    runtime_id: str
    requested_by: str
    expires_in_ms: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What an approver says, and the key it comes with. `digest` binds it to what the approver saw; `args` are put in the
    place of a call's arguments; `scope` asks for the approval to be remembered."""

    decision: DecisionWord
    by: str
    key_id: str
    feedback: str | None = None
    partial: Any = None
    digest: str | None = None
    args: dict[str, Any] | None = None
    scope: Literal["thread"] | None = None


@dataclass(frozen=True, slots=True)
class DecidedApproval:
    """What became of an approval that is no longer pending. `original` is the subject that was asked for, where an
    approver replaced the arguments."""

    id: str
    status: Literal["approved", "rejected", "revised", "expired", "cancelled"]
    digest: bytes
    subject: bytes
    original: bytes | None
    fails_query: bool  # by its rule, should it have expired
    feedback: str | None
    partial: Any


@dataclass(frozen=True, slots=True)
class Vote:
    """One principal's word, and whether he wants it remembered."""

    principal: str
    key_id: str
    decision: str
    scope: str | None
    at: datetime


def _original_args(subject: bytes | None) -> orjson.Fragment | None:
    """Return the arguments as they are stored, without parsing them."""
    return None if subject is None else orjson.Fragment(args_text(subject))


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """An approval as every reader sees it. `votes` are those that count: a later edit makes earlier ones void."""

    id: str
    kind: str
    target: str
    digest: bytes
    original_subject: bytes | None
    edits: int
    grant_id: str | None
    glimpses: bytes
    rule: ApprovalRule
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
    label: str | None = None  # of a plan: what people read in place of its status
    votes: list[Vote] = field(default_factory=list)

    @property
    def voters(self) -> int:
        """Return how many people voted. Votes that were cast before names were compared as people may include two of one
        person."""
        return len({canonical_principal(vote.principal) for vote in self.votes})

    @property
    def minimum(self) -> int:
        """How many principals must approve."""
        return self.rule.approvers.minimum if self.rule.approvers else 1

    def wire(self) -> dict[str, Any]:
        args, rule = _original_args(self.original_subject), self.rule.to_wire()
        return to_wire(ApprovalInfo, self, original_args=args, rule=rule, resource_id=self.tenant)


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A remembered approval: calls of `tool` with these arguments, by this agent in this thread, need no person."""

    id: str
    approval_id: str
    thread_id: str
    agent: str
    tool: str
    definition_digest: str
    args: bytes
    free: list[str]
    granted_by: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
    active: bool
