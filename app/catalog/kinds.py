"""The kinds of sources."""

from __future__ import annotations

from typing import Final, Literal

SourceKind = Literal["postgres", "duckdb", "sqlite"]
FILE_KINDS: Final = frozenset({"duckdb", "sqlite"})
