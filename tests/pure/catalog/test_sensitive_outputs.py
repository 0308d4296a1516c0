"""Which columns of a result may carry sensitive values, however the statement renames them."""

from __future__ import annotations

import pytest

from app.catalog.statements import Dialect, check_statement, sensitive_outputs

SENSITIVE = {"people": ["email"]}


def outputs(sql: str, columns: str, dialect: Dialect = "duckdb") -> list[bool]:
    return sensitive_outputs(check_statement(sql, dialect), SENSITIVE, columns.split(","))


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT email AS z FROM people", "z"),
        ("WITH t(a,b,k) AS (SELECT * FROM people) SELECT k FROM t", "k"),
        ("WITH t(a,b,k) AS (SELECT p.* FROM people p) SELECT k FROM t", "k"),
        ("WITH t(a,b,k) AS (SELECT * FROM (SELECT * FROM people)) SELECT k FROM t", "k"),
        ("SELECT k FROM (SELECT * FROM people) t(a,b,k)", "k"),
        ("SELECT k FROM people t(a,b,k)", "k"),
        ("SELECT k FROM (SELECT 1 AS i, '' AS k WHERE false UNION ALL SELECT id, email FROM people)", "k"),
        ("WITH t AS (SELECT 1 a, 2 k UNION ALL SELECT * FROM people) SELECT k FROM t", "k"),
        ("SELECT 1 AS a, 2 AS k UNION ALL SELECT * FROM people", "k"),
        ("SELECT z FROM (SELECT * RENAME (email AS z) FROM people)", "z"),
        ("SELECT y FROM (SELECT * RENAME (z AS y) FROM (SELECT * RENAME (email AS z) FROM people))", "y"),
        ("SELECT #3 FROM people", "x"),
        ("SELECT p FROM people p", "p"),
        ("SELECT COLUMNS('e.*') FROM people", "x"),
    ],
)
def test_a_renamed_column_stays_sensitive(sql: str, columns: str) -> None:
    assert outputs(sql, columns) == [True]


def test_a_row_as_an_argument_is_sensitive() -> None:
    assert outputs("SELECT to_jsonb(c.*) AS j FROM people c", "j", "postgres") == [True]


@pytest.mark.parametrize(
    ("sql", "columns", "expected"),
    [
        ("SELECT * FROM people", "id,name,email", [False, False, True]),
        ("SELECT p.* FROM people p", "id,name,email", [False, False, True]),
        ("SELECT count(*), count(email) FROM people", "n,m", [False, False]),
        ("WITH t(a, b) AS (SELECT id, name FROM people) SELECT a, b FROM t", "a,b", [False, False]),
        ("SELECT id AS n FROM people UNION ALL SELECT id FROM people", "n", [False]),
        ("SELECT * FROM orders", "id,email", [False, False]),
    ],
)
def test_other_columns_are_not_sensitive(sql: str, columns: str, expected: list[bool]) -> None:
    assert outputs(sql, columns) == expected
