"""Plans as they stand in the database, and as they are told on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from app.base.clock import rfc3339
from app.plans.states import PlanStatus


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
            "status": self.status.value,
            "digest": self.digest.hex(),
        }
        if self.decision is not None:
            out["decision"] = {"decision": self.decision, "feedback": self.feedback}
        return out

    def wire(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "key": self.key,
            "threadId": self.thread_id,
            "runtimeId": self.runtime_id,
            "specName": self.spec_name,
            "status": self.status.value,
            "revision": self.revision,
            "digest": self.digest.hex(),
            "body": orjson.Fragment(self.body),  # as it is stored: nobody parses it on the way
            "variables": self.variables,
            "copiedFrom": self.copied_from,
            "queryId": self.query_id,
            "decision": self.decision,
            "feedback": self.feedback,
            "partial": _stored_json(self.partial),
            "result": _stored_json(self.result),
            "createdAt": rfc3339(self.created_at),
            "updatedAt": rfc3339(self.updated_at),
        }


def _stored_json(data: bytes | None) -> orjson.Fragment | None:
    """JSON that is part of an answer as it is stored."""
    return None if data is None else orjson.Fragment(data)


def action_wire(row: Any) -> dict[str, Any]:
    return {
        "index": row["index"],
        "revision": row["revision"],
        "kind": row["kind"],
        "status": row["status"],
        "attempts": row["attempts"],
        "idempotencyKey": row["idempotency_key"],
        "workId": row["work_id"],
        "result": _stored_json(row["result"]),
        "error": _stored_json(row["error"]),
        "settledBy": row["settled_by"],
        "updatedAt": rfc3339(row["updated_at"]),
    }


def revision_wire(row: Any) -> dict[str, Any]:
    return {
        "revision": row["revision"],
        "body": orjson.Fragment(row["body"]),
        "digest": row["digest"].hex(),
        "storedBy": row["stored_by"],
        "storedAt": rfc3339(row["stored_at"]),
        "decision": row["decision"],
        "feedback": row["feedback"],
        "partial": _stored_json(row["partial"]),
    }


def transition_wire(row: Any) -> dict[str, Any]:
    return {
        "from": row["from_status"],
        "to": row["to_status"],
        "revision": row["revision"],
        "at": rfc3339(row["at"]),
        "by": row["by"],
        "workId": row["work_id"],
        "approvalId": row["approval_id"],
        "digest": row["digest"].hex(),
    }
