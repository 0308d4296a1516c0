"""Files that DuckDB reads: CSV, Parquet, JSON, and databases of its own.

What a statement may do is enforced by DuckDB: access to files and networks is off but for the declared files,
and the configuration is locked. DuckDB's own parser says that a statement is a SELECT: one that was written
to confuse another parser is still not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb

from app.catalog.engines.base import (
    ColumnInfo,
    Dialect,
    ForeignKey,
    Receive,
    Structure,
    TableInfo,
    quote,
    quote_path,
)
from app.catalog.files import DataFile
from app.catalog.problems import StatementProblem, nearest_names

BATCH_ROWS: Final = 2_000
THREADS: Final = 2
_READERS: Final = {"csv": "read_csv", "parquet": "read_parquet", "json": "read_json"}


class DuckDbEngine:
    """DuckDB in memory, with a view of each declared file, and declared databases attached read-only."""

    dialect: Dialect = "duckdb"

    def __init__(self, files: Sequence[DataFile], memory_mb: int, null_values: Sequence[str] = ()) -> None:
        """Open the files. `null_values` mean null in CSV files, besides an empty text. Raise StatementProblem if a
        file cannot be read."""
        self._null_values = ", ".join(_literal(text) for text in ("", *null_values))
        self._database = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{memory_mb}MB",
                "threads": THREADS,
                "temp_directory": "",
                "python_enable_replacements": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "allow_community_extensions": False,
            },
        )
        try:
            for file in files:
                self._open(file, alone=len(files) == 1)
        except duckdb.Error as error:
            raise StatementProblem("source_unavailable", f"A file cannot be read: {_first(error)}") from error
        allowed = ", ".join(_literal(file.path) for file in files if file.format != "duckdb")
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.execute(f"SET allowed_paths = [{allowed}]")
        self._database.execute("SET enable_external_access = false")
        self._database.execute("SET lock_configuration = true")

    def _open(self, file: DataFile, *, alone: bool) -> None:
        path, name = _literal(file.path), quote(file.name)
        if not Path(file.path).exists():
            raise StatementProblem("source_unavailable", f"The file {file.path} does not exist.")
        if file.format == "duckdb":
            self._database.execute(f"ATTACH {path} AS {name} (READ_ONLY)")
            if alone:
                self._database.execute(f"USE {name}")
        else:
            reader = _READERS[file.format]
            how = f", nullstr = [{self._null_values}]" if file.format == "csv" else ""
            self._database.execute(f"CREATE VIEW {name} AS SELECT * FROM {reader}({path}{how})")  # noqa: S608

    def run(self, sql: str, params: Sequence[Any], receive: Receive) -> None:
        try:
            statements = self._database.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise StatementProblem("not_read_only", "Only one SELECT, or WITH ... SELECT, can be run.")
            done = self._database.execute(statements[0], list(params) or None)
            if not receive([(str(d[0]), str(d[1])) for d in done.description or ()], ()):
                return
            while rows := done.fetchmany(BATCH_ROWS):
                if not receive(None, rows):
                    return
        except duckdb.Error as error:
            raise self._problem(error) from error

    def _problem(self, error: duckdb.Error) -> StatementProblem:
        text = _first(error)
        if isinstance(error, duckdb.OutOfMemoryException):
            return StatementProblem(
                "statement_too_large", "The statement needs more memory than the source has: read less."
            )
        if isinstance(error, duckdb.CatalogException) and text.startswith("Table with name "):
            name = text.removeprefix("Table with name ").partition(" does not exist")[0]
            known = nearest_names(name, [table for table, _ in self.names()])
            return StatementProblem("unknown_table", f"There is no table {name!r} in this source.{known}")
        code = (
            "unknown_column"
            if isinstance(error, duckdb.BinderException) and "column" in text
            else "query_failed"
        )
        # These are about the text of the statement. Any other may quote a value.
        is_about_values = not isinstance(
            error, duckdb.ParserException | duckdb.BinderException | duckdb.CatalogException
        )
        return StatementProblem(code, text, quotes_values=is_about_values)

    def names(self) -> Iterable[tuple[str, Sequence[str]]]:
        tables: dict[str, list[str]] = {}
        for name, column in self._database.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal ORDER BY 1, column_index"
        ).fetchall():
            tables.setdefault(name, []).append(column)
        return list(tables.items())

    def structure(self, schemas: Sequence[str]) -> Structure:
        main = self._database.execute("SELECT current_database()").fetchall()[0][0]

        def path_of(database: str, schema: str, table: str) -> tuple[str, ...]:
            return (
                *(() if database == main else (database,)),
                *(() if schema == "main" else (schema,)),
                table,
            )

        def name_of(database: str, schema: str, table: str) -> str:
            return ".".join(path_of(database, schema, table))

        tables = [
            TableInfo(
                name_of(database, schema, table),
                path_of(database, schema, table),
                schema,
                kind,
                comment,
                rows,
            )
            for database, schema, table, kind, comment, rows in self._database.execute(
                "SELECT database_name, schema_name, table_name, 'table', comment, estimated_size "
                "FROM duckdb_tables() WHERE NOT internal UNION ALL "
                "SELECT database_name, schema_name, view_name, 'view', comment, NULL "
                "FROM duckdb_views() WHERE NOT internal ORDER BY 1, 2, 3"
            ).fetchall()
            if not schemas or schema in schemas
        ]
        known = {table.name for table in tables}
        keys: set[tuple[str, str]] = set()
        foreign = []
        for database, schema, table, kind, columns, to_table, to_columns in self._database.execute(
            "SELECT database_name, schema_name, table_name, constraint_type, constraint_column_names, "
            "referenced_table, referenced_column_names FROM duckdb_constraints()"
        ).fetchall():
            name = name_of(database, schema, table)
            if kind == "PRIMARY KEY":
                keys |= {(name, column) for column in columns}
            elif kind == "FOREIGN KEY":
                target = name_of(database, schema, to_table)
                foreign.append(ForeignKey(name, tuple(columns), target, tuple(to_columns)))
        columns_found = []
        enums = []
        for database, schema, table, column, type_, nullable, comment in self._database.execute(
            "SELECT database_name, schema_name, table_name, column_name, data_type, is_nullable, comment "
            "FROM duckdb_columns() WHERE NOT internal ORDER BY 1, 2, 3, column_index"
        ).fetchall():
            name = name_of(database, schema, table)
            if name not in known:
                continue
            columns_found.append(
                ColumnInfo(name, column, type_, bool(nullable), (name, column) in keys, comment)
            )
            if type_.startswith("ENUM("):
                values = self._database.execute(f"SELECT unnest(enum_range(NULL::{type_}))").fetchall()
                enums.append((name, column, tuple(str(v) for (v,) in values)))
        return Structure(
            tuple(tables),
            tuple(columns_found),
            tuple(key for key in foreign if key.table in known and key.to_table in known),
            tuple(enums),
        )

    def sample_sql(self, table: TableInfo, columns: Sequence[str], rows: int) -> str:
        listed = ", ".join(map(quote, columns))
        sample = f"USING SAMPLE reservoir({rows} ROWS) REPEATABLE (42)"
        return f"SELECT {listed} FROM {quote_path(table.path)} {sample}"  # noqa: S608

    def close(self) -> None:
        self._database.close()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _first(error: duckdb.Error) -> str:
    """Return the message without the echo of the statement, in one line."""
    text = str(error).partition("\n\nLINE ")[0].strip()
    _, _, rest = text.partition("Error: ")
    return " ".join((rest or text).partition(" Traceback")[0].split())[:500]
