"""A SQLite file, opened read-only, with an authorizer that allows reading and nothing else."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote as percent_encode

from app.catalog.engines.base import (
    ColumnInfo,
    Dialect,
    ForeignKey,
    Receive,
    Structure,
    TableInfo,
    first_rows_sql,
    quote,
)
from app.catalog.files import DataFile
from app.catalog.problems import StatementProblem, nearest_names

BATCH_ROWS: Final = 1_000
MAX_VALUE_BYTES: Final = 16 * 1024 * 1024
_ALLOWED: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_FORBIDDEN_FUNCTIONS: Final = frozenset(
    {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "fsdir"}
)
_UNKNOWN: Final = re.compile(r"no such (table|column): (\S+)")


class SqliteEngine:
    """One SQLite file."""

    dialect: Dialect = "sqlite"

    def __init__(self, files: Sequence[DataFile], *, immutable: bool) -> None:
        """Open the file. `immutable`: the operator declares that nobody writes to it while it is open."""
        (file,) = files
        if not Path(file.path).exists():
            raise StatementProblem("source_unavailable", f"The file {file.path} does not exist.")
        mode = "mode=ro&immutable=1" if immutable else "mode=ro"
        try:
            self._database = sqlite3.connect(f"file:{percent_encode(file.path)}?{mode}", uri=True)
            self._database.execute("PRAGMA trusted_schema = OFF")
            self._database.execute("PRAGMA query_only = ON")
            self._database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            raise StatementProblem("source_unavailable", f"The file cannot be read: {error}") from error
        self._database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        self._lock()

    def _lock(self) -> None:
        self._database.set_authorizer(_authorize)

    def run(self, sql: str, params: Sequence[Any], receive: Receive) -> None:
        bound = {str(n): value for n, value in enumerate(params, 1)}
        try:
            cursor = self._database.execute(sql, bound)
            if cursor.description is None:
                raise StatementProblem("not_read_only", "Only SELECT, or WITH ... SELECT, can be run.")
            rows = cursor.fetchmany(BATCH_ROWS)
            if not receive(_columns(cursor, rows), ()):
                return
            while rows:
                if not receive(None, rows):
                    return
                rows = cursor.fetchmany(BATCH_ROWS)
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            raise self._problem(error) from error

    def _problem(self, error: Exception) -> StatementProblem:
        text = str(error)[:500]
        if "not authorized" in text or "prohibited" in text:
            return StatementProblem("not_read_only", f"The statement does more than read: {text}.")
        unknown = _UNKNOWN.search(text)
        if unknown is None:
            return StatementProblem("query_failed", f"{text}.")
        known = self.names()
        if unknown[1] == "table":
            near = nearest_names(unknown[2], [table for table, _ in known])
            return StatementProblem(
                "unknown_table", f"There is no table {unknown[2]!r} in this source.{near}"
            )
        columns = {column for _, names in known for column in names}
        near = nearest_names(unknown[2].rpartition(".")[2], columns)
        return StatementProblem("unknown_column", f"There is no column {unknown[2]!r}.{near}")

    def _query(self, sql: str, *params: Any) -> list[Any]:
        """Return the rows of a statement of our own, such as a pragma."""
        self._database.set_authorizer(None)
        try:
            return self._database.execute(sql, params).fetchall()
        finally:
            self._lock()

    def names(self) -> Iterable[tuple[str, Sequence[str]]]:
        return [
            (table, [row[1] for row in self._query(f"PRAGMA table_info({quote(table)})")])
            for table, _ in self._tables()
        ]

    def _tables(self) -> list[tuple[str, str]]:
        return self._query(
            "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') "
            "AND name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY name"
        )

    def structure(self, schemas: Sequence[str]) -> Structure:
        tables, columns, foreign = [], [], []
        primary: dict[str, tuple[str, ...]] = {}
        for name, kind in self._tables():
            tables.append(TableInfo(name, (name,), None, kind))
            found = self._query(f"PRAGMA table_info({quote(name)})")
            primary[name] = tuple(row[1] for row in sorted(found, key=lambda r: r[5]) if row[5])
            columns += [
                ColumnInfo(name, column, type_ or "ANY", not required, bool(key))
                for _, column, type_, required, _, key in found
            ]
        for table in tables:
            keys: dict[int, list[Any]] = {}
            for row in self._query(f"PRAGMA foreign_key_list({quote(table.name)})"):
                keys.setdefault(row[0], []).append(row)
            for parts in keys.values():
                target = parts[0][2]
                to_columns = tuple(p[4] for p in parts)
                if None in to_columns:  # the primary key of the target
                    to_columns = primary.get(target, ())
                if target in primary and len(to_columns) == len(parts):
                    foreign.append(ForeignKey(table.name, tuple(p[3] for p in parts), target, to_columns))
        return Structure(tuple(tables), tuple(columns), tuple(foreign))

    def sample_sql(self, table: TableInfo, columns: Sequence[str], rows: int) -> str:
        return first_rows_sql(table, columns, rows)

    def close(self) -> None:
        self._database.close()


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action not in _ALLOWED:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and str(second).lower() in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _columns(cursor: sqlite3.Cursor, rows: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
    """Return names and types. Result columns of SQLite have no declared type, so it is inferred from the first
    non-null value."""
    names = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}
    columns = []
    for index, described in enumerate(cursor.description or ()):
        first = next((row[index] for row in rows if row[index] is not None), None)
        columns.append((str(described[0]), "NULL" if first is None else names.get(type(first), "ANY")))
    return columns
