"""The process that opens one source and runs statements on it (app/base/json/worker.py).

It is started for one statement, or one profile, and killed at its time limit. It writes no file.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.base.json.worker import Answer, Verb
from app.catalog.engines.base import Engine, Rows
from app.catalog.files import DataFile
from app.catalog.problems import StatementProblem
from app.catalog.results import Column, ResultRows
from app.catalog.sensitive import sensitive_columns
from app.catalog.statements import CheckedStatement, check_parameters, check_statement, sensitive_outputs

COUNT_SHARE = 0.3  # of the time of a statement: so long the rows beyond the limit are counted


class SourceWorker:
    """Keeps the open source between requests."""

    def __init__(self) -> None:
        self._engine: Engine | None = None

    def verbs(self) -> Mapping[str, Verb]:
        handlers: dict[str, Callable[[Mapping[str, Any]], Answer]] = {
            "open": self._open,
            "query": self._query,
            "names": self._names,
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

            postgres = PostgresEngine(head["address"], head["addresses"], head["schemas"], head["timeoutMs"])
            self._engine = postgres
            return {"cluster": postgres.cluster()}, b""
        write_no_files()
        files = [DataFile(*file) for file in head["files"]]
        if kind == "sqlite":
            from app.catalog.engines.sqlite import SqliteEngine  # noqa: PLC0415

            self._engine = SqliteEngine(files, immutable=head["immutable"])
        else:
            from app.catalog.engines.duckdb import DuckDbEngine  # noqa: PLC0415

            self._engine = DuckDbEngine(files, head["memoryMb"])
        return {}, b""

    def _query(self, head: Mapping[str, Any]) -> Answer:
        """Run one statement. Return its complete result if it is small, else a glimpse; the value of the
        reference follows as bytes."""
        statement = check_statement(head["sql"], self.engine.dialect)
        check_parameters(statement, head["params"])
        sensitive = sensitive_columns(self.engine.names(), head["sensitive"], head["tagged"])
        rows, elapsed_ms = self.collect(
            statement, head["params"], sensitive, head["maxRows"], head["maxBytes"], head["timeoutMs"]
        )
        value = rows.value()
        found = {
            "rowCount": len(rows.rows),
            "bytes": len(value),
            "elapsedMs": elapsed_ms,
            "truncated": rows.truncated,
            "totalRows": rows.total,
        }
        if rows.is_small:
            return {**found, "small": True}, value
        return {**found, "small": False, "glimpse": rows.glimpse()}, value

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

    def _names(self, _head: Mapping[str, Any]) -> Answer:
        """Return the tables and their columns."""
        return {"tables": [[table, list(columns)] for table, columns in self.engine.names()]}, b""


def _reporting(handler: Callable[[Mapping[str, Any]], Answer]) -> Verb:
    """Return the verb whose problems are answers."""

    def verb(head: Mapping[str, Any], _data: bytearray) -> Answer:
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


def verbs() -> Mapping[str, Verb]:
    """Return the requests that this worker answers."""
    return SourceWorker().verbs()
