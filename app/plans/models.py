"""Plans as they stand in the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from plangate.spec.models import PlanSpec
from plangate.statuses import PlanStatus

DECISIONS: Final = {"rejected": "reject", "revised": "revise"}
"""The statuses of revisions that were not approved, and the decisions that led to them."""
_UNAPPROVED: Final = {decision: status for status, decision in DECISIONS.items()}


def revision_status(plan_status: str, decision: str | None, *, is_current: bool) -> str:
    """Return the status of a revision: `rejected` or `revised` if a person decided so, `replaced` if a later one was
    stored, else that of its plan."""
    if decision is not None:
        return _UNAPPROVED[decision]
    return str(plan_status) if is_current else "replaced"


def plan_labels(spec: PlanSpec | None) -> dict[str, str]:
    """Return what people read in place of each status that has an alias."""
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
    label: str  # what people read in place of the status
    revision: int
    copied_from: str | None
    query_id: str | None
    result: bytes | None
    created_at: datetime
    updated_at: datetime
    body: bytes
    digest: bytes
    decision: str | None
    feedback: str | None
    partial: bytes | None
    variables: bool  # strings that begin with a dagger are variables

    @property
    def revision_status(self) -> str:
        """The status of the current revision."""
        return revision_status(self.status, self.decision, is_current=True)

    @property
    def called(self) -> str:
        """What a planner calls it: its own key, else the id."""
        return self.key or self.id

    def for_model(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "id": self.called,
            "planId": self.id,
            "specName": self.spec_name,
            "revision": self.revision,
            "status": self.status,
            "digest": self.digest.hex(),
        }
        if self.decision is not None:
            out["decision"] = {"decision": self.decision, "feedback": self.feedback}
        return out
