"""Documents, the writes that made them, and the event of a write."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.base.responses import to_wire
from app.documents.views import WriteView
from app.documents.writing import Method

STATE = "state"
MEMORY = "memory"
SHARED = (STATE, MEMORY)
"""Kinds of documents that outlive a query. Each is an object."""

EMPTY = b"{}"
NOTHING = b""  # of a data object that is there only once it is written to


@dataclass(frozen=True, slots=True)
class DocumentId:
    """The state of a thread (`owner_id` is the thread), a data object of a query, or the memory of a runtime's name, which
    belongs to no thread."""

    owner_id: str
    kind: str
    thread_id: str | None

    @classmethod
    def state(cls, thread_id: str) -> DocumentId:
        return cls(thread_id, STATE, thread_id)

    @classmethod
    def memory(cls, runtime_name: str) -> DocumentId:
        return cls(f"{MEMORY}:{runtime_name}", MEMORY, None)


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it is, or was: `head` is the number of its last write, 0 before any; `base` what it began as. The
    writes up to `forgotten` were deleted."""

    head: int
    body: bytes
    base: bytes = EMPTY
    forgotten: int = 0


@dataclass(frozen=True, slots=True)
class Author:
    """The call that writes, or, outside of any call, the principal of the request. `part` tells the writes of one call
    apart; `failed`: what is written is its error."""

    work_id: str | None
    query_id: str | None
    agent: str | None
    part: int = 0
    failed: bool = False
    principal: str | None = None

    @classmethod
    def outside(cls, principal: str) -> Author:
        return cls(None, None, None, principal=principal)


@dataclass(frozen=True, slots=True)
class WriteRow:
    """A write as it stands in the log."""

    kind: str
    n: int
    path: str
    method: Method
    size_bytes: int
    glimpse: Any
    failed: bool
    work_id: str | None
    query_id: str | None
    agent: str | None
    forked_from: str | None
    principal: str | None
    at: datetime
    value: bytes | None  # where it was asked for

    def change(self) -> dict[str, Any]:
        """Return the data of the event `state-write`."""
        return {"path": self.path, "method": self.method, "write": self.n}

    def wire(self) -> dict[str, Any]:
        out = to_wire(WriteView, self, write=self.n)
        if self.value is None:
            del out["value"]
        return out
