"""Plans as they stand in the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from plangate.statuses import PlanStatus


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan at its current revision. `body` are the stored bytes, `digest` their SHA-256."""

    id: str
    key: str | None
    thread_id: str
    runtime_id: str
    spec_name: str
    status: PlanStatus
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
