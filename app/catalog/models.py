"""Sources and their limits."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal

import orjson

from app.base.clock import rfc3339
from app.base.errors import Conflict, Invalid, NotFound

SourceKind = Literal["postgres", "duckdb", "sqlite"]
FILE_KINDS: Final = frozenset({"duckdb", "sqlite"})

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
    """What a statement may use. `concurrent_statements` are those of one process of the service."""

    timeout_ms: int = 15_000
    rows: int = 100_000
    bytes: int = 16 * MIB
    concurrent_statements: int = 4

    def wire(self) -> dict[str, int]:
        return {
            "timeoutMs": self.timeout_ms,
            "rows": self.rows,
            "bytes": self.bytes,
            "concurrentStatements": self.concurrent_statements,
        }


@dataclass(frozen=True, slots=True)
class Source:
    """A database, or a set of files, that agents may read.

    `secret` names the secret that holds the URL; `paths` are those of files. `sensitive` are patterns for the
    names of sensitive columns in place of the service's own; None means these. `null_values` are texts that
    mean null in CSV files, besides an empty one. `immutable`: the operator
    declares that the file does not change.
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
    profile: dict[str, Any] | None = None
    profile_query_id: str | None = None
    profile_status: str | None = None
    profile_thread: str | None = None
    profiled_at: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def settings(self) -> bytes:
        """Return what is stored beside the columns of a source."""
        return orjson.dumps(
            {
                "schemas": self.schemas,
                "paths": self.paths,
                "sensitive": self.sensitive,
                "nullValues": self.null_values,
                "immutable": self.immutable,
                "limits": asdict(self.limits),
            }
        )

    @classmethod
    def from_row(cls, row: Any) -> Source:
        settings = orjson.loads(row["settings"])
        sensitive = settings["sensitive"]
        return cls(
            row["name"],
            row["kind"],
            row["secret"],
            tuple(settings["schemas"]),
            tuple(settings["paths"]),
            None if sensitive is None else tuple(sensitive),
            tuple(settings["nullValues"]),
            settings["immutable"],
            row["declared"],
            SourceLimits(**settings["limits"]),
            None if row["profile"] is None else orjson.loads(row["profile"]),
            row["profile_query_id"],
            row["profile_status"],
            row["profile_thread"],
            row["profiled_at"],
            row["created_at"],
            row["updated_at"],
        )

    def with_limits(self, given: dict[str, int]) -> Source:
        return replace(self, limits=replace(self.limits, **given))

    def wire(self) -> dict[str, Any]:
        """Return the source as requests read it: never its URL."""
        options: dict[str, Any] = {"limits": self.limits.wire()}
        if self.kind in FILE_KINDS:
            options["paths"] = list(self.paths)
        if self.sensitive is not None:
            options["sensitive"] = list(self.sensitive)
        if self.null_values:
            options["nullValues"] = list(self.null_values)
        if self.immutable:
            options["immutable"] = True
        return {
            "name": self.name,
            "kind": self.kind,
            "url": None if self.secret is None else {"secret": self.secret},
            "schemas": list(self.schemas),
            "options": options,
            "declared": self.declared,
            "profile": {
                "status": self.profile_status or ("none" if self.profile is None else "succeeded"),
                "queryId": self.profile_query_id,
                "profiledAt": _moment(self.profiled_at),
                "found": self.profile,
            },
            "createdAt": _moment(self.created_at),
            "updatedAt": _moment(self.updated_at),
        }


@dataclass(frozen=True, slots=True)
class StatementResult:
    """What a statement returned. `value` is canonical JSON; `glimpse` is None if the result is small."""

    value: bytes
    glimpse: dict[str, Any] | None
    row_count: int
    elapsed_ms: int
    truncated: bool


def _moment(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at)
