"""Tables that Postgres plans for as if they had millions of rows, without the time that these take."""

from __future__ import annotations

import re
from typing import Any

import asyncpg

ROWS = 2_000
"""What each table really holds: enough for statistics of values that one row in a hundred has."""
PLANNED_ROWS = 10_000_000
SMALLER = {
    "sources": 100,
    "catalog_entries": 100_000,
    "runtimes": 10_000,
    "secrets": 10_000,
    "api_keys": 10_000,
}
"""The rows of tables that grow with what a tenant declares, not with what it runs."""

COLUMNS = """
SELECT c.relname AS table, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
       a.attgenerated <> '' AS generated, a.attidentity <> '' AS identity
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> 'alembic_version'
   AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY c.relname, a.attnum
"""
CHECKS = """
SELECT c.relname AS table, k.conname AS name, pg_get_constraintdef(k.oid) AS text
  FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
 WHERE k.contype = 'c' AND c.relnamespace = 'public'::regnamespace
"""
ONE_OF = re.compile(r"CHECK \(\(+(\w+) = ANY \(ARRAY\[([^\]]+)\]")

USUAL = {
    ("queries", "status"): "succeeded",
    ("work_records", "status"): "succeeded",
    ("approvals", "status"): "approved",
    ("plans", "status"): "executed",
    ("plan_actions", "status"): "succeeded",
    ("outgoing_calls", "status"): "done",
}
"""The status of 99 rows in 100: work that is over."""
SHARED = {
    "tenant_id": "'acme'",
    "thread_id": "'thr_' || n / 8",
    "query_id": "'qry_' || n / 8",
    "plan_id": "'pln_' || n / 8",
    "parent_id": "'wrk_' || n / 8",
    "runtime_id": "'rt_' || n % 10",
    "agent": "'agent' || n % 10",
    "name": "'name' || n",
    "reason": "NULL",
    "retired_at": "CASE WHEN n % 100 = 0 THEN now() END",
}
"""Columns with the same value in several rows. All rows are of one tenant, whose size is what may make a statement slow."""
UNIQUE = {
    "text": "'{table}_' || n",
    "bytea": "convert_to(n::text, 'UTF8')",
    "integer": "n",
    "bigint": "n",
    "boolean": "n % 100 = 0",
    "timestamp with time zone": "now() - n * interval '1 min'",
    "numeric": "n",
    "double precision": "n",
    "xid8": "n::text::xid8",
    "date": "current_date - n",
    "jsonb": "'{{}}'",
    "json": "'{{}}'",
    "text[]": "ARRAY['word' || n % 50]",
    "bigint[]": "ARRAY[n::bigint]",
    "tsvector": "to_tsvector('english', 'word' || n)",
}


async def fill(owner: asyncpg.Connection) -> None:
    """Fill every table of an empty database, and let the planner believe that there are PLANNED_ROWS in each.

    The rows violate foreign keys and checks: only the distribution of their values counts. The planner multiplies the
    pages that a table has by the rows per page that its statistics say.
    """
    allowed: dict[tuple[str, str], list[str]] = {}
    for check in await owner.fetch(CHECKS):
        if (found := ONE_OF.search(check["text"])) is not None:
            allowed[check["table"], found[1]] = re.findall(r"'(\w+)'", found[2])
        await owner.execute(f'ALTER TABLE {check["table"]} DROP CONSTRAINT "{check["name"]}"')
    tables: dict[str, list[Any]] = {}
    for column in await owner.fetch(COLUMNS):
        if not (column["generated"] or column["identity"]):
            tables.setdefault(column["table"], []).append(column)
    await owner.execute("SET session_replication_role = replica")  # no triggers, so no foreign keys
    for table, columns in tables.items():
        values = [_value(table, c["name"], c["type"], allowed.get((table, c["name"]))) for c in columns]
        await owner.execute(
            f"INSERT INTO {table} ({', '.join(c['name'] for c in columns)}) "
            f"SELECT {', '.join(values)} FROM generate_series(1, {ROWS}) AS n ON CONFLICT DO NOTHING"
        )
    await owner.execute("RESET session_replication_role")
    await owner.execute("ANALYZE")
    for table in tables:
        await owner.execute(
            "UPDATE pg_class c SET reltuples = $2 FROM pg_index i"
            " WHERE i.indrelid = $1::text::regclass AND c.oid IN (i.indrelid, i.indexrelid) AND c.reltuples > 100",
            table,
            float(SMALLER.get(table, PLANNED_ROWS)),
        )


def _value(table: str, column: str, type: str, allowed: list[str] | None) -> str:
    """Return the SQL for the value of a column in the row `n`."""
    if allowed is not None:
        every = "(ARRAY[" + ", ".join(f"'{value}'" for value in allowed) + f"])[1 + n % {len(allowed)}]"
        usual = USUAL.get((table, column))
        return every if usual is None else f"CASE WHEN n % 100 = 0 THEN {every} ELSE '{usual}' END"
    if column in SHARED:
        return SHARED[column]
    return UNIQUE[type].format(table=table)
