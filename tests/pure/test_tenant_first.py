"""Every statement names its tenant, so that one tenant can live in one of several databases (docs/decisions/0026)."""

from __future__ import annotations

import re

import pytest

from tests.support.statements import Statement, functions, named_statements, table_uses, tenant_tables

TABLES = tenant_tables()
PARAMETER = r"(?:(?:\$\d+|v_tenant|p_tenant|tenant|\w+\.tenant)\b|current_setting\('plangate\.tenant'\))"
"""What names a tenant: a parameter, a variable of a function, or the column of an array of tenants that was passed."""

FRAGMENTS = {"app/artifacts/store.py:WITH_STATUS", "app/artifacts/store.py:TAGGED"}
"""Parts of statements: the condition on the tenant follows."""

SPANNING = {
    "claim_endings",
    "claim_queries",
    "closed_tenants",
    "count_suspects",
    "culprits",
    "due_approvals",
    "due_blobs",
    "due_calls",
    "due_deletions",
    "due_limits",
    "end_process",
    "find_key",
    "find_session",
    "key_exists",
    "list_processes",
    "list_tenants",
    "operator_counts",
    "presume_dead",
    "purge_forgotten_writes",
    "release_leases",
    "report_process",
    "stranded_queries",
    "sweep_idempotency",
    "sweep_references",
    "sweep_sessions",
    "take_lost_leases",
    "tenant_ids",
    "unfinished_queries",
    "unsummed_work",
}
"""Functions for the work of a whole database: leases of a process, sweeps, counts, and the key of a caller."""

STATEMENTS = [*named_statements(), *functions()]


def unnamed(statement: Statement) -> list[str]:
    """Return the tables of which the statement does not say the tenant."""
    return [found for text in statement.text.split(";") for found in _unnamed(text)]


def _unnamed(text: str) -> list[str]:
    found = []
    for use in table_uses(text, TABLES):
        prefix = rf"(?:{use.table}\.)?" if use.alias == use.table else rf"{use.alias}\."
        named = (
            rf"INTO {use.table}\b[^(]*\(tenant_id\b"
            if use.verb == "INTO"
            else rf"(?<![\w.]){prefix}tenant_id = {PARAMETER}"
        )
        if not re.search(named, text):
            found.append(f"{use.verb} {use.table} {use.alias}")
    return found


def test_statements_are_discovered() -> None:
    assert len(STATEMENTS) > 250
    assert len(TABLES) > 30


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT FROM plans WHERE tenant_id = $1", []),
        ("SELECT FROM plans p WHERE p.id = $1", ["FROM plans p"]),
        (
            "SELECT FROM plans p JOIN queries q ON q.tenant_id = p.tenant_id WHERE p.tenant_id = $1",
            ["JOIN queries q"],
        ),
        ("DELETE FROM events e USING queries q WHERE q.tenant_id = $1", ["DELETE FROM events e"]),
        ("UPDATE plans SET status = $2 WHERE id = $1", ["UPDATE plans plans"]),
        ("INSERT INTO events (query_id) VALUES ($1)", ["INTO events events"]),
    ],
)
def test_a_table_without_its_tenant_is_reported(text: str, tables: list[str]) -> None:
    assert unnamed(Statement("x", text)) == tables


def test_every_statement_names_the_tenant_of_each_table() -> None:
    wrong = {s.name: tables for s in STATEMENTS if (tables := unnamed(s)) and s.name not in FRAGMENTS}
    assert {name: tables for name, tables in wrong.items() if name not in SPANNING} == {}
    assert set(wrong) & SPANNING == SPANNING
