"""A reference: a typed handle to a value that stays out of prompts, and the glimpse that travels with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from plangate.events import ReferenceCreatedEvent

from app.base.responses import to_wire
from app.journal.models import Event, Scope, event
from app.references.views import ReferenceView


@dataclass(frozen=True, slots=True)
class Reference:
    """What is told of a stored value: never the value. `digest` is its SHA-256."""

    kind: str
    id: str
    glimpse: Any
    size_bytes: int
    digest: bytes
    created_at: datetime
    expires_at: datetime | None
    created: bool = False

    @classmethod
    def of(cls, kind: str, id: str, row: Any, *, created: bool = False) -> Reference:
        return cls(
            kind,
            id,
            orjson.loads(row["glimpse"]),
            row["size_bytes"],
            row["digest"],
            row["created_at"],
            row["expires_at"],
            created,
        )

    def handle(self) -> dict[str, Any]:
        return {"kind": self.kind, "id": self.id, "glimpse": self.glimpse, "sizeBytes": self.size_bytes}

    def wire(self) -> dict[str, Any]:
        return to_wire(ReferenceView, self)

    def event(self, scope: Scope) -> Event:
        return event(scope, ReferenceCreatedEvent, data=self.handle())


@dataclass(frozen=True, slots=True)
class PreparedReference:
    """A value that was checked and may be stored."""

    kind: str
    id: str
    data: bytes | bytearray
    digest: bytes
    glimpse: bytes
    ttl_ms: int | None
