"""Sources and their limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from plangate.spec.catalog_toolkit import EntryKind

from app.base.errors import Conflict, Invalid, NotFound
from app.base.responses import to_wire
from app.catalog.kinds import FILE_KINDS, SourceKind
from app.catalog.views import ProfileState, SourceOptionsView, SourceView

SOURCE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
MIB: Final = 1024 * 1024
MAX_TIMEOUT_MS: Final = 300_000
MAX_ROWS: Final = 1_000_000
MAX_BYTES: Final = 16 * MIB
MAX_CONCURRENT: Final = 16


class SourceNotFound(NotFound):
    kind, title = "source_not_found", "There is no such source"


class SourceDeclared(Conflict):
    kind, title = "source_declared", "The operator declared this source"


class SourceRejected(Invalid):
    kind, title = "source_rejected", "The source cannot be used"


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """The limits of a statement. `concurrent_statements` applies to each process of the service."""

    timeout_ms: int = 15_000
    rows: int = 100_000
    bytes: int = 16 * MIB
    concurrent_statements: int = 4


@dataclass(frozen=True, slots=True)
class Source:
    """A database, or a set of files, that agents may read.

    `secret` names the secret that holds the URL; `paths` are those of files. `sensitive` are patterns for the
    names of sensitive columns in place of the service's own, which apply if it is None. `null_values` are texts
    that mean null in CSV files, besides an empty one. `declared`: the operator declared the source. `immutable`:
    the operator declares that the file does not change. `profile` counts what the last complete profile found.
    """

    name: str
    kind: SourceKind
    secret: str | None = None
    schemas: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    sensitive: tuple[str, ...] | None = None
    null_values: tuple[str, ...] = ()
    immutable: bool = False
    declared: bool = False
    limits: SourceLimits = field(default_factory=SourceLimits)
    profile: dict[str, int] | None = None
    profile_query_id: str | None = None
    profile_status: str | None = None
    profile_thread: str | None = None
    profiled_at: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def with_limits(self, limits: dict[str, int]) -> Source:
        return replace(self, limits=replace(self.limits, **limits))

    def wire(self) -> dict[str, Any]:
        """Return the source as clients get it: never its URL."""
        options: dict[str, Any] = {"limits": self.limits}
        if self.kind in FILE_KINDS:
            options["paths"] = list(self.paths)
        if self.sensitive is not None:
            options["sensitive"] = list(self.sensitive)
        if self.null_values:
            options["null_values"] = list(self.null_values)
        if self.immutable:
            options["immutable"] = True
        profile = {
            "status": self.profile_status or ("none" if self.profile is None else "succeeded"),
            "query_id": self.profile_query_id,
            "profiled_at": self.profiled_at,
            "found": self.profile,
        }
        return to_wire(
            SourceView,
            self,
            url=None if self.secret is None else {"secret": self.secret},
            schemas=list(self.schemas),
            options=to_wire(SourceOptionsView, options),
            profile=to_wire(ProfileState, profile),
        )


@dataclass(frozen=True, slots=True)
class StatementRecord:
    """A statement that a unit of work ran on a source. `rows` and `bytes` of its result are None if it failed with the code
    `error`."""

    work_id: str
    query_id: str
    source: str
    sql: str
    rows: int | None
    bytes: int | None
    elapsed_ms: int
    truncated: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Which entries a list has: those after an id, of one kind, source, tag and parent."""

    after: str | None = None
    kind: EntryKind | None = None
    source: str | None = None
    tag: str | None = None
    parent_id: str | None = None


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The result of a statement. `value` is canonical JSON; `glimpse` is None if the result is small."""

    value: bytes
    glimpse: dict[str, Any] | None
    row_count: int
    elapsed_ms: int
    truncated: bool
