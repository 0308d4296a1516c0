"""Approvals: requests, decisions and grants."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import orjson
from plangate.spec.models import ApprovalPolicies, ApprovalRule
from plangate.statuses import ApprovalStatus, EndedApprovalStatus
from plangate.statuses import Decision as DecisionWord

from app.approvals.principals import canonical_principal
from app.approvals.subject import args_text
from app.base.responses import to_wire
from app.events import ApprovalComment, ApprovalInfo
from app.journal.models import Scope

GateKind = Literal["plan", "tool"]


@dataclass(frozen=True, slots=True)
class GateState:
    """The state of a gate for a piece of work: the operator's floor under its rule now, and whether the work opened it
    before."""

    floor: ApprovalPolicies
    was_requested: bool


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A request for approval. `subject` are the bytes to approve; `glimpses` is the part of it that events carry."""

    kind: GateKind
    target: str
    subject: bytes
    glimpses: dict[str, Any]
    rule: ApprovalRule
    scope: Scope
    runtime_id: str
    requested_by: str
    expires_in_ms: int
    waiting_actions: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of the principal `by`, who acts through a key. `digest` is that of the subject that the approver saw;
    `args` replace the arguments of a call; `scope` asks for the approval to be remembered."""

    decision: DecisionWord
    by: str
    key_id: str
    feedback: str | None = None
    partial: Any = None
    digest: str | None = None
    args: dict[str, Any] | None = None
    scope: Literal["thread"] | None = None


@dataclass(frozen=True, slots=True)
class EndedApproval:
    """The outcome of an approval that is no longer pending. `original` is the first subject, if an approver replaced the
    arguments."""

    id: str
    status: EndedApprovalStatus
    digest: bytes
    subject: bytes
    original: bytes | None
    fails_query: bool  # by its rule, if it expired
    feedback: str | None
    partial: Any


@dataclass(frozen=True, slots=True)
class Voter:
    """A principal that voted, and the key it acted through."""

    principal: str
    key_id: str


@dataclass(frozen=True, slots=True)
class VoteRow(Voter):
    """The vote of a principal. With a `scope` they ask for the approval to be remembered."""

    decision: DecisionWord
    scope: Literal["thread"] | None
    at: datetime


def _original_args(subject: bytes | None) -> orjson.Fragment | None:
    """Return the arguments as they are stored, without parsing them."""
    return None if subject is None else orjson.Fragment(args_text(subject))


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """An approval. `votes` are the ones that count: a later edit voids earlier votes."""

    id: str
    kind: GateKind
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
    status: ApprovalStatus
    requested_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    decision: DecisionWord | None
    feedback: str | None
    partial: bytes | None
    waiting_parents: int
    waiting_actions: int
    label: str | None = None  # of a plan: the display name of its status, as in `GET /plans`
    votes: list[VoteRow] = field(default_factory=list)

    @property
    def voters(self) -> int:
        """The number of people who voted. Votes recorded before principals were normalized may include two from one
        person."""
        return len({canonical_principal(vote.principal) for vote in self.votes})

    @property
    def excluded_requester(self) -> str | None:
        """The requester if the rule excludes the requester from deciding; else None."""
        approvers = self.rule.approvers
        return self.requested_by if approvers is not None and approvers.not_requester else None

    @property
    def minimum(self) -> int:
        """The number of principals who must approve."""
        return self.rule.approvers.minimum if self.rule.approvers else 1

    def wire(self) -> dict[str, Any]:
        args, rule = _original_args(self.original_subject), self.rule.to_wire()
        return to_wire(ApprovalInfo, self, original_args=args, rule=rule, resource_id=self.tenant)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of a principal on an approval."""

    id: str
    approval_id: str
    principal: str
    text: str
    created_at: datetime

    def wire(self) -> dict[str, Any]:
        return to_wire(ApprovalComment, self)


@dataclass(frozen=True, slots=True)
class PendingGroup:
    """The pending approvals of one kind, agent and runtime (by name)."""

    kind: GateKind
    agent: str
    runtime: str
    pending: int


@dataclass(frozen=True, slots=True)
class DecidersGroup:
    """Pending approvals that the same people can decide: everybody but the requester, if the rule excludes the requester,
    and those who voted."""

    excluded_requester: str | None
    voters: list[Voter]
    pending: int


@dataclass(frozen=True, slots=True)
class PendingCounts:
    """The pending approvals, and how many of them the caller can decide. `is_complete` is False if there are more than
    were counted."""

    pending: int
    can_decide: int
    is_complete: bool
    next_expires_at: datetime | None
    groups: list[PendingGroup]


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
