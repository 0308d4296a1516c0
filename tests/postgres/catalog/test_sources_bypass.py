"""Statements that pass the parser are stopped by DuckDB, SQLite and the process itself."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from app.base.errors import TooLarge
from app.base.json.process_pool import JsonProcessPool, ProcessLimits
from app.catalog.engines.duckdb import DuckDbEngine
from app.catalog.engines.sqlite import SqliteEngine
from app.catalog.files import DataFile
from app.catalog.problems import StatementProblem
from app.catalog.source_worker import open_source, run_request
from tests.support.sources import make_csv, make_sqlite
from tests.support.writing_worker import environment_names, write_error

Engine = DuckDbEngine | SqliteEngine


def outcomes(engine: Engine, statements: Sequence[str]) -> list[str]:
    """Run statements that nobody parsed; return the code of each problem, or "ran"."""
    found = []
    for sql in statements:
        try:
            engine.run(sql, [], lambda *_: True)
            found.append("ran")
        except StatementProblem as problem:
            found.append(problem.code)
    return found


def digests(folder: Path) -> dict[str, str]:
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir()) if p.is_file()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_csv(tmp_path)
    make_sqlite(tmp_path)
    (tmp_path / "secret.txt").write_text("hidden\n")
    return tmp_path


def test_duckdb_reads_no_other_file_and_no_network(folder: Path) -> None:
    engine = DuckDbEngine([DataFile(str(folder / "orders.csv"), "orders", "csv")], 256)
    secret = folder / "secret.txt"
    statements = [
        f"SELECT * FROM read_text('{secret}')",
        f"SELECT size FROM read_blob('{secret}')",
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM '{folder}/shop.sqlite'",
        f"SELECT * FROM glob('{folder}/*')",
        f"SELECT * FROM sniff_csv('{secret}')",
        f"SELECT * FROM read_csv('{folder}/orders.csv/../secret.txt')",
        f"SELECT * FROM sqlite_scan('{folder}/shop.sqlite', 'orders')",
        "SELECT * FROM read_text('/proc/self/environ')",
        "SELECT * FROM read_csv('http://127.0.0.1:1/x.csv')",
        "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
        f"SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",
        "SELECT getenv('PATH')",
        "SELECT * FROM folder",
    ]
    assert "ran" not in outcomes(engine, statements)
    engine.close()


def test_duckdb_runs_only_select(folder: Path) -> None:
    engine = DuckDbEngine([DataFile(str(folder / "orders.csv"), "orders", "csv")], 256)
    before = digests(folder)
    statements = [
        f"COPY orders TO '{folder}/orders.csv' (USE_TMP_FILE false)",
        f"COPY orders TO '{folder}/copy.csv'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "SET memory_limit = '100GB'",
        f"ATTACH '{folder}/new.duckdb'",
        "INSTALL httpfs",
        "LOAD httpfs",
        f"EXPORT DATABASE '{folder}/export'",
        "CREATE TABLE t (x int)",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "EXPLAIN ANALYZE SELECT 1",
        "PREPARE p AS SELECT 1",
        "CHECKPOINT",
    ]
    assert set(outcomes(engine, statements)) <= {"not_read_only", "query_failed"}
    assert digests(folder) == before
    engine.close()


def test_duckdb_keeps_its_configuration(folder: Path) -> None:
    engine = DuckDbEngine([DataFile(str(folder / "orders.csv"), "orders", "csv")], 256)
    settings: list[Any] = []
    engine.run(
        "SELECT name, value FROM duckdb_settings() WHERE name IN ('enable_external_access', 'lock_configuration', "
        "'python_enable_replacements', 'autoload_known_extensions', 'memory_limit') ORDER BY name",
        [],
        lambda _, rows: settings.extend(rows) or True,
    )
    assert settings == [
        ("autoload_known_extensions", "false"),
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
        ("memory_limit", "244.1 MiB"),
        ("python_enable_replacements", "false"),
    ]
    engine.close()


def test_duckdb_attaches_its_databases_read_only(folder: Path) -> None:
    path = folder / "own.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute("CREATE TABLE parts AS SELECT range AS id FROM range(10)")
    engine = DuckDbEngine([DataFile(str(path), "own", "duckdb")], 256)
    before = digests(folder)
    rows: list[Any] = []
    engine.run("SELECT count(*) FROM parts", [], lambda _, found: rows.extend(found) or True)
    assert rows == [(10,)]
    assert outcomes(
        engine,
        [
            "INSERT INTO parts VALUES (1)",
            "DROP TABLE parts",
            f"SELECT size FROM read_blob('{folder}/secret.txt')",
        ],
    ) == [
        "not_read_only",
        "not_read_only",
        "query_failed",
    ]
    engine.close()
    assert digests(folder) == before


@pytest.mark.parametrize("immutable", [False, True])
def test_sqlite_only_reads(folder: Path, immutable: bool) -> None:
    engine = SqliteEngine([DataFile(str(folder / "shop.sqlite"), "shop", "sqlite")], immutable=immutable)
    before = digests(folder)
    statements = [
        "INSERT INTO orders VALUES (1000, 1, 1, NULL)",
        "UPDATE orders SET cents = 0",
        "DELETE FROM orders",
        "CREATE TABLE t (x)",
        "CREATE TEMP TABLE t (x)",
        "DROP TABLE orders",
        f"ATTACH '{folder}/new.sqlite' AS other",
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = ON",
        "PRAGMA journal_mode = DELETE",
        "VACUUM",
        f"VACUUM INTO '{folder}/copy.sqlite'",
        "SELECT load_extension('/tmp/x.so')",
        f"SELECT readfile('{folder}/secret.txt')",
        f"SELECT writefile('{folder}/x', 'y')",
        "SELECT * FROM pragma_database_list",
        "SELECT fts3_tokenizer('x', x'00')",
        "BEGIN IMMEDIATE",
        "REINDEX",
        "SELECT 1; SELECT 2",
    ]
    codes = outcomes(engine, statements)
    assert [sql for sql, code in zip(statements, codes, strict=True) if code == "ran"] == []
    rows: list[Any] = []
    engine.run("SELECT count(*) FROM orders", [], lambda _, found: rows.extend(found) or True)
    assert rows == [(300,)]
    engine.close()
    assert digests(folder) == before


async def test_the_process_of_files_writes_no_file(folder: Path) -> None:
    """Even a statement that nothing else stops: the system refuses the write."""
    async with JsonProcessPool().open() as process:
        assert await process.run(write_error, str(folder / "written")) == "File too large"
    assert (folder / "written").stat().st_size == 0


async def test_the_process_inherits_nothing_of_the_service(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANGATE_SECRET_KEY", "x" * 40)
    monkeypatch.setenv("PGPASSWORD", "y")
    async with JsonProcessPool().open() as process:
        names = await process.run(environment_names)
    assert not [name for name in names if name.startswith(("PLANGATE", "PG", "HOME"))]


async def test_a_process_that_uses_too_much_memory_is_killed(folder: Path) -> None:
    pool = JsonProcessPool(ProcessLimits(memory_bytes=250 * 1024 * 1024))
    files = [[str(folder / "orders.csv"), "orders", "csv"]]
    statement = {
        "sql": "SELECT len(list(x)) AS n FROM range(2000000000) a(x)",
        "params": [],
        "sensitive": None,
        "tagged": {},
        "maxRows": 10,
        "maxBytes": 10_000,
        "timeoutMs": 60_000,
    }
    async with pool.open() as process:
        await process.keep(
            open_source, orjson.dumps({"kind": "duckdb", "files": files, "memoryMb": 4_000, "nullValues": []})
        )
        with pytest.raises(TooLarge, match="more memory or time"):
            async with asyncio.timeout(60):
                await process.run(run_request, "query", orjson.dumps(statement))
    assert process._process.poll() is not None
