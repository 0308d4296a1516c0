"""A reference: a typed handle to a value that stays out of prompts, and the glimpse that travels with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.base.responses import to_wire
from app.events import ReferenceCreatedEvent
from app.journal.models import Event, Scope, event
from app.references.views import ReferenceView

Handle = tuple[str, str]
"""Kind and id."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The description of a stored value, without the value. `digest` is its SHA-256, `created` whether it is new."""

    kind: str
    id: str
    glimpse: Any
    size_bytes: int
    digest: bytes
    created_at: datetime
    expires_at: datetime | None
    created: bool = False

    def handle(self) -> dict[str, Any]:
        return {"kind": self.kind, "id": self.id, "glimpse": self.glimpse, "sizeBytes": self.size_bytes}

    def wire(self) -> dict[str, Any]:
        return to_wire(ReferenceView, self)

    def event(self, scope: Scope) -> Event:
        return event(scope, ReferenceCreatedEvent, data=self.handle())


@dataclass(frozen=True, slots=True)
class PreparedReference:
    """A value that was validated and may be stored. `ttl_ms` None: it does not expire."""

    kind: str
    id: str
    data: bytes | bytearray
    digest: bytes
    glimpse: bytes
    ttl_ms: int | None


@dataclass(frozen=True, slots=True)
class ReferenceState:
    """The state of a reference: `reference` is None if it does not exist or has `expired`."""

    handle: Handle
    reference: Reference | None
    expired: bool


@dataclass(frozen=True, slots=True)
class ReferenceFilter:
    """The filters of a list of references: a kind, and a position to continue after (creation time, kind and id)."""

    kind: str | None = None
    before: tuple[datetime, str, str] | None = None
