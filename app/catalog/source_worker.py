"""Open one source and run statements on it, in a separate process (app/base/json/worker.py).

It is started for one statement, or one profile, and killed at its time limit. It writes no file.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from app.catalog.addresses import PostgresAddress
from app.catalog.engines.base import (
    Engine,
    ForeignKey,
    Rows,
    Structure,
    TableInfo,
    first_rows_sql,
    quote,
    quote_path,
)
from app.catalog.files import DataFile
from app.catalog.problems import StatementProblem
from app.catalog.profiling import SAMPLE_ROWS, profile_column
from app.catalog.results import Column, ResultRows
from app.catalog.sensitive import sensitive_columns
from app.catalog.statements import (
    CheckedStatement,
    check_parameters,
    check_statement,
    reads_sensitive_table,
    sensitive_outputs,
)

Answer = tuple[dict[str, Any], bytes]
"""The head of a response, and the value of its reference."""

Verb = Callable[[Mapping[str, Any]], Answer]

WITHHELD = (
    "The statement failed on a value that does not fit its type or function. The message of the database quotes the "
    "value and is withheld, because the statement reads a table with sensitive columns."
)
ORPHAN_VALUES = 1_000
COUNT_SHARE = 0.3  # of the time of a statement: so long the rows beyond the limit are counted


class SourceWorker:
    """Keeps the open source between requests."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._structure = Structure((), (), ())

    def verbs(self) -> Mapping[str, Verb]:
        handlers: dict[str, Verb] = {
            "open": self._open,
            "query": self._query,
            "structure": self._load_structure,
            "profile": self._profile,
        }
        return {name: _reporting(handler) for name, handler in handlers.items()}

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "open comes first"
        return self._engine

    def _open(self, head: Mapping[str, Any]) -> Answer:
        """Open the source. Return the identity of its cluster, for Postgres."""
        kind = head["kind"]
        if kind == "postgres":
            from app.catalog.engines.postgres import PostgresEngine  # noqa: PLC0415 - one engine a process

            postgres = PostgresEngine(
                PostgresAddress(**head["address"]), head["addresses"], head["schemas"], head["timeoutMs"]
            )
            self._engine = postgres
            return {"cluster": postgres.cluster()}, b""
        write_no_files()
        files = [DataFile(*file) for file in head["files"]]
        if kind == "sqlite":
            from app.catalog.engines.sqlite import SqliteEngine  # noqa: PLC0415

            self._engine = SqliteEngine(files, immutable=head["immutable"])
        else:
            from app.catalog.engines.duckdb import DuckDbEngine  # noqa: PLC0415

            self._engine = DuckDbEngine(files, head["memoryMb"], head["nullValues"])
        return {}, b""

    def _query(self, head: Mapping[str, Any]) -> Answer:
        """Run one statement. Return its complete result if it is small, else a glimpse; the value of the
        reference follows as bytes."""
        statement = check_statement(head["sql"], self.engine.dialect)
        check_parameters(statement, head["params"])
        sensitive = sensitive_columns(self.engine.names(), head["sensitive"], head["tagged"])
        try:
            rows, elapsed_ms = self.collect(
                statement, head["params"], sensitive, head["maxRows"], head["maxBytes"], head["timeoutMs"]
            )
        except StatementProblem as problem:
            if problem.quotes_values and reads_sensitive_table(statement, sensitive):
                raise StatementProblem(problem.code, WITHHELD) from None
            raise
        value = rows.value()
        known = {
            "rowCount": len(rows.rows),
            "bytes": len(value),
            "elapsedMs": elapsed_ms,
            "truncated": rows.truncated,
            "totalRows": rows.total,
        }
        if rows.is_small:
            return {**known, "small": True}, value
        return {**known, "small": False, "glimpse": rows.glimpse()}, value

    def collect(
        self,
        statement: CheckedStatement,
        params: Sequence[Any],
        sensitive: Mapping[str, Sequence[str]],
        max_rows: int,
        max_bytes: int,
        timeout_ms: int,
    ) -> tuple[ResultRows, int]:
        """Return the rows of a statement within the limits, and how long it ran, in milliseconds."""
        began = time.monotonic()
        count_until = began + timeout_ms / 1000 * COUNT_SHARE
        rows = ResultRows((), max_rows, max_bytes)
        beyond = 0

        def receive(columns: Sequence[tuple[str, str]] | None, batch: Rows) -> bool:
            nonlocal rows, beyond
            if columns is not None:
                flags = sensitive_outputs(statement, sensitive, [name for name, _ in columns])
                described = [Column(n, t, flag) for (n, t), flag in zip(columns, flags, strict=True)]
                rows = ResultRows(described, max_rows, max_bytes)
                return True
            if not rows.truncated:
                before = len(rows.rows)
                if rows.add(batch):
                    return True
                beyond = len(batch) - (len(rows.rows) - before)
            else:
                beyond += len(batch)
            return time.monotonic() < count_until

        complete = False

        def counted(columns: Sequence[tuple[str, str]] | None, batch: Rows) -> bool:
            nonlocal complete
            complete = receive(columns, batch)
            return complete

        self.engine.run(statement.sql, params, counted)
        if rows.truncated and complete:
            rows.total = len(rows.rows) + beyond
        return rows, round((time.monotonic() - began) * 1000)

    def _load_structure(self, head: Mapping[str, Any]) -> Answer:
        """Return the structure of the source, and keep it for the profiles of its tables."""
        self._structure = self.engine.structure(head["schemas"])
        return {"structure": asdict(self._structure)}, b""

    def _profile(self, head: Mapping[str, Any]) -> Answer:
        """Return what a sample of one table says about its columns and keys."""
        table = self._structure.tables[head["table"]]
        columns = [column for column in self._structure.columns if column.table == table.name]
        names = [column.name for column in columns]
        tables = sensitive_columns([(table.name, names)], head["sensitive"], head["tagged"])
        sensitive = {name for listed in tables.values() for name in listed}
        rows = self._sample(table, names)
        keys = sum(column.is_key for column in columns)
        profiles = [
            profile_column(
                column.name,
                [row[at] for row in rows],
                sensitive=column.name in sensitive,
                is_key=column.is_key,
                is_whole_key=column.is_key and keys == 1,
            )
            for at, column in enumerate(columns)
        ]
        return {
            "sampledRows": len(rows),
            "rowCount": self._count(table, len(rows)),
            "columns": list(map(asdict, profiles)),
            "orphans": [
                {"columns": list(key.columns), "toTable": key.to_table, "count": count}
                for key in self._structure.foreign_keys
                if key.table == table.name and (count := self._orphans(key))
            ],
        }, b""

    def _sample(self, table: TableInfo, columns: Sequence[str]) -> list[Sequence[Any]]:
        if not columns:
            return []
        try:
            return self._rows(self.engine.sample_sql(table, columns, SAMPLE_ROWS))
        except StatementProblem as problem:
            if problem.code in ("timeout", "source_unavailable", "not_read_only"):
                raise
            return self._rows(first_rows_sql(table, columns, SAMPLE_ROWS))

    def _rows(self, sql: str) -> list[Sequence[Any]]:
        rows: list[Sequence[Any]] = []

        def receive(columns: Sequence[tuple[str, str]] | None, batch: Rows) -> bool:
            rows.extend(batch)
            return True

        self.engine.run(sql, (), receive)
        return rows

    def _count(self, table: TableInfo, sampled: int) -> int | None:
        """Return how many rows the table has: the estimate of the database, or a count where that is cheap."""
        if sampled < SAMPLE_ROWS:
            return sampled
        if table.row_estimate is not None:
            return table.row_estimate
        if self.engine.dialect == "postgres":
            return None
        return int(self._rows(f"SELECT count(*) FROM {quote_path(table.path)}")[0][0])  # noqa: S608

    def _orphans(self, key: ForeignKey) -> int:
        """Return how many of some values of a foreign key have no row in the other table."""
        tables = {table.name: table for table in self._structure.tables}
        own, other = quote_path(tables[key.table].path), quote_path(tables[key.to_table].path)
        columns = ", ".join(map(quote, key.columns))
        present = " AND ".join(f"{quote(column)} IS NOT NULL" for column in key.columns)
        pairs = zip(key.columns, key.to_columns, strict=True)
        equal = " AND ".join(f"o.{quote(to)} = s.{quote(column)}" for column, to in pairs)
        sample = f"SELECT DISTINCT {columns} FROM {own} WHERE {present} LIMIT {ORPHAN_VALUES}"  # noqa: S608
        try:
            counts = self._rows(
                f"SELECT count(*) FROM ({sample}) s WHERE NOT EXISTS (SELECT 1 FROM {other} o WHERE {equal})"  # noqa: S608
            )
        except StatementProblem:
            return 0
        return int(counts[0][0])


def _reporting(handler: Verb) -> Verb:
    """Return the verb whose problems are answers."""

    def verb(head: Mapping[str, Any]) -> Answer:
        try:
            return handler(head)
        except StatementProblem as problem:
            return {"problem": {"code": problem.code, "message": problem.message}}, b""
        except TimeoutError:
            return {
                "problem": {"code": "timeout", "message": "The statement was stopped at its time limit."}
            }, b""

    return verb


def write_no_files() -> None:
    """Make every write to a file fail, whatever a statement manages to do."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def open_source(head: bytes) -> tuple[SourceWorker, tuple[bytes, bytes]]:
    """Open a source, which the process keeps. Return the answer to the verb `open`."""
    worker = SourceWorker()
    return worker, run_request(worker, "open", head)


def run_request(worker: SourceWorker, verb: str, head: bytes) -> tuple[bytes, bytes]:
    """Run one operation on a source that is open. Return the header of the response as JSON, and its body."""
    answer, value = worker.verbs()[verb](orjson.loads(head))
    return orjson.dumps(answer), value
