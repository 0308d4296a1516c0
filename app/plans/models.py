"""Records of plans: the current revision, its history and its actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from plangate.spec.models import PlanSpec
from plangate.statuses import ActionStatus, Decision, PlanStatus, UnapprovedStatus

from app.journal.models import Scope

RevisionStatus = Literal[PlanStatus, UnapprovedStatus, "replaced"]

DECISIONS: Final[Mapping[UnapprovedStatus, Decision]] = {"rejected": "reject", "revised": "revise"}
"""The statuses of revisions that were not approved, and the decisions that led to them."""
_UNAPPROVED: Final = {decision: status for status, decision in DECISIONS.items()}


def revision_status(
    plan_status: PlanStatus, decision: Decision | None, *, is_current: bool
) -> RevisionStatus:
    """Return the status of a revision: `rejected` or `revised` if a person decided so, `replaced` if a later one was
    stored, else that of its plan."""
    if decision is not None:
        return _UNAPPROVED[decision]
    return plan_status if is_current else "replaced"


def plan_labels(spec: PlanSpec | None) -> dict[str, str]:
    """Return the display name of each status that has one."""
    return {a.status: a.alias for a in spec.display_aliases} if spec else {}


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan at its current revision. `body` are the stored bytes, `digest` their SHA-256."""

    id: str
    key: str | None
    thread_id: str
    runtime_id: str
    spec_name: str
    status: PlanStatus
    label: str  # the display name of the status
    revision: int
    copied_from: str | None
    query_id: str | None
    result: bytes | None
    created_at: datetime
    updated_at: datetime
    body: bytes
    digest: bytes
    decision: Decision | None
    feedback: str | None
    partial: bytes | None
    facts: bytes | None  # JSON; None until the revision reaches its gate
    variables: bool  # strings that begin with a dagger are variables

    @property
    def revision_status(self) -> RevisionStatus:
        """The status of the current revision."""
        return revision_status(self.status, self.decision, is_current=True)

    @property
    def name(self) -> str:
        """The planner's own key of the plan, else its id."""
        return self.key or self.id

    def for_model(self) -> dict[str, Any]:
        """Return what a model reads about the plan."""
        out: dict[str, Any] = {
            "id": self.name,
            "planId": self.id,
            "specName": self.spec_name,
            "revision": self.revision,
            "status": self.status,
            "digest": self.digest.hex(),
        }
        if self.decision is not None:
            out["decision"] = {"decision": self.decision, "feedback": self.feedback}
        return out


@dataclass(frozen=True, slots=True)
class Actor:
    """On whose behalf a plan changes: `by` is an agent of a query or the principal of a host, `scope` its work."""

    scope: Scope
    by: str
    approval_id: str | None = None


@dataclass(frozen=True, slots=True)
class PlanRevision:
    """A revision, and what was decided about it. `stored_by` is a work record. Lists have no `body` and no `partial`."""

    revision: int
    body: bytes | None
    digest: bytes
    stored_by: str
    stored_at: datetime
    decision: Decision | None
    feedback: str | None
    partial: bytes | None
    facts: bytes | None  # JSON; None until the revision reaches its gate
    plan_status: PlanStatus
    is_current: bool

    @property
    def status(self) -> RevisionStatus:
        """The status of the revision."""
        return revision_status(self.plan_status, self.decision, is_current=self.is_current)


@dataclass(frozen=True, slots=True)
class PlanTransition:
    """A change of a plan's status, numbered from 1. `from_` is None when the plan was stored."""

    n: int
    from_: PlanStatus | None
    to: PlanStatus
    revision: int
    at: datetime
    by: str
    work_id: str
    approval_id: str | None
    digest: bytes


@dataclass(frozen=True, slots=True)
class ActionState:
    """The status of an action of a plan that was approved, and how often it was sent."""

    index: int
    status: ActionStatus
    attempts: int


@dataclass(frozen=True, slots=True)
class PlanAction:
    """An action of a plan that was approved. `result` and `error` are stored JSON."""

    index: int
    revision: int
    kind: str
    status: ActionStatus
    attempts: int
    idempotency_key: str
    work_id: str | None
    result: bytes | None
    error: bytes | None
    settled_by: str | None
    updated_at: datetime

    @property
    def call_id(self) -> str:
        """The work record of the call of an action that was sent."""
        assert self.work_id is not None, f"action {self.index} was never sent"
        return self.work_id


@dataclass(frozen=True, slots=True)
class RevisionPair:
    """Two revisions of a plan to compare, and the fields that identify its actions, by kind."""

    plan_id: str
    earlier: int
    later: int
    before: bytes
    after: bytes
    keys: Mapping[str, Sequence[str]]
