"""Documents, the writes that made them, and the event of a write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from plangate.spec.variables import VariablePath

from app.base.responses import to_wire
from app.documents.views import WriteView
from app.documents.writing import Method

STATE = "state"
MEMORY = "memory"
SHARED = (STATE, MEMORY)
"""Kinds of documents that outlive a query. Each is an object."""

EMPTY = b"{}"
NOTHING = b""  # a data object before its first write


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
class DocumentLimits:
    """A write stores the whole document beside it, as a checkpoint, after `checkpoint_writes` writes or
    `checkpoint_bytes` of values without one. So rebuilding an earlier version reads at most that, or the size of the
    document if that is more. `document_bytes` bounds the JSON of a document."""

    document_bytes: int = 16 * 1024 * 1024
    checkpoint_writes: int = 100
    checkpoint_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Document:
    """A document, current or of the past: `head` is the number of its last write, 0 before any; `base` its initial value.
    The writes up to `forgotten` were deleted."""

    head: int
    body: bytes
    base: bytes = EMPTY
    forgotten: int = 0


@dataclass(frozen=True, slots=True)
class LockedDocument(Document):
    """A document whose row is locked. `checkpoint` is the number of the last write with a checkpoint, `since_bytes` the
    size of the values after it."""

    checkpoint: int = 0
    since_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The whole document after its write `n`."""

    n: int
    body: bytes


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write to one place of a document. `base` is the initial value of the document, `schema` what it must match, `data`
    the value as JSON, if the caller has it."""

    document: DocumentId
    target: VariablePath
    method: Method
    value: Any
    base: bytes = EMPTY
    schema: Mapping[str, Any] | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Author:
    """The call that writes or, outside of any call, the principal of the request. `part` distinguishes the writes of one
    call; `failed`: the value is the call's error."""

    work_id: str | None = None
    query_id: str | None = None
    agent: str | None = None
    part: int = 0
    failed: bool = False
    principal: str | None = None


@dataclass(frozen=True, slots=True)
class WriteRow:
    """A write in the log. `value` is None where it was not read."""

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
    value: bytes | None

    def change(self) -> dict[str, Any]:
        """Return the data of the event `state-write`."""
        return {"path": self.path, "method": self.method, "write": self.n}

    def wire(self) -> dict[str, Any]:
        out = to_wire(WriteView, self, write=self.n)
        if self.value is None:
            del out["value"]
        return out
