"""A reference: a typed handle to a value that stays out of prompts, and the glimpse that travels with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.base.clock import rfc3339
from app.journal.models import Event, Scope, event


@dataclass(frozen=True, slots=True)
class Reference:
    """What is told of a stored value: never the value."""

    kind: str
    id: str
    glimpse: Any
    size_bytes: int
    created_at: datetime
    expires_at: datetime | None
    created: bool = False

    def handle(self) -> dict[str, Any]:
        return {"kind": self.kind, "id": self.id, "glimpse": self.glimpse, "sizeBytes": self.size_bytes}

    def wire(self) -> dict[str, Any]:
        return {
            **self.handle(),
            "createdAt": rfc3339(self.created_at),
            "expiresAt": rfc3339(self.expires_at) if self.expires_at else None,
        }

    def event(self, scope: Scope) -> Event:
        return event(scope, "reference-created", data=self.handle())
