"""The common parts of all kinds of sources, inside the process that runs their statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Dialect = Literal["postgres", "duckdb", "sqlite"]

Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table or view. `name` is how a statement names it, and `path` its parts; `schema` is None where there are no
    schemas."""

    name: str
    path: tuple[str, ...]
    schema: str | None
    kind: str
    comment: str | None = None
    row_estimate: int | None = None


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column. `is_key` says that it belongs to the primary key."""

    table: str
    name: str
    type: str
    nullable: bool
    is_key: bool
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A declared reference from columns of a table to columns of another one."""

    table: str
    columns: tuple[str, ...]
    to_table: str
    to_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Structure:
    """Tables, columns, foreign keys and enum values of a source."""

    tables: tuple[TableInfo, ...]
    columns: tuple[ColumnInfo, ...]
    foreign_keys: tuple[ForeignKey, ...]
    enum_values: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """Table, column and the values that its type allows."""


def quote_path(path: Sequence[str]) -> str:
    """Return a name with its parts as SQL."""
    return ".".join(quote(part) for part in path)


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def first_rows_sql(table: TableInfo, columns: Sequence[str], rows: int) -> str:
    """Return the statement that reads some rows of a table, whichever come first."""
    return f"SELECT {', '.join(map(quote, columns))} FROM {quote_path(table.path)} LIMIT {rows}"  # noqa: S608


class Engine(Protocol):
    """An open source. Every method raises StatementProblem for what a caller can act on."""

    dialect: Dialect

    def run(self, sql: str, params: Sequence[Any], receive: Receive) -> None:
        """Run a statement; `receive` gets the columns first, and then rows until it returns False."""

    def structure(self, schemas: Sequence[str]) -> Structure: ...

    def sample_sql(self, table: TableInfo, columns: Sequence[str], rows: int) -> str:
        """Return the statement that reads a sample of a table, as random as the kind of source can do."""

    def names(self) -> Iterable[tuple[str, Sequence[str]]]:
        """Return the tables and their columns, for messages about unknown names."""

    def close(self) -> None: ...


Receive = Callable[[Sequence[tuple[str, str]] | None, Rows], bool]
"""Called with the columns as (name, type) and no rows, then with rows. Returns whether it wants more."""
