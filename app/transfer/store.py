"""The SQL of exports and imports. Names of tables and columns come from the catalog and from tables.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson

from app.base.postgres import hosts
from app.transfer.tables import CONDITIONS, RENUMBERED, REPLACED

# Values are written and read in the same form, whatever the defaults of the two servers are.
SESSION: Final = """
SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '30s'; SET jit = off;
SET client_encoding = 'UTF8'; SET DateStyle = 'ISO, MDY'; SET TimeZone = 'UTC'; SET IntervalStyle = 'postgres';
SET extra_float_digits = 1; SET bytea_output = 'hex'
"""
SET_TENANT: Final = "SELECT set_config('plangate.tenant', $1, false)"
REVISION: Final = "SELECT version_num FROM alembic_version"
STATE: Final = "SELECT state FROM tenants WHERE tenant_id = $1"
BLOBS: Final = "SELECT digest, size_bytes, named FROM blobs WHERE tenant_id = $1 ORDER BY digest"
COLUMNS: Final = """
SELECT c.relname AS table, array_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) ORDER BY a.attname) AS columns
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
 WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
   AND EXISTS (SELECT FROM pg_attribute t WHERE t.attrelid = c.oid AND t.attname = 'tenant_id' AND NOT t.attisdropped)
 GROUP BY c.relname
"""
SEALED_ROWS: Final = "SELECT to_jsonb(t)::text AS row FROM {table} t WHERE t.tenant_id = $1"
INSERT_SEALED: Final = "INSERT INTO {table} SELECT (jsonb_populate_record(NULL::{table}, $1::text::jsonb)).*"
ROWS: Final = "SELECT {columns} FROM {table} WHERE tenant_id = $1{condition}{order}"
ORDERS: Final[Mapping[str, str]] = {"events": " ORDER BY xid, query_id, seq"}

LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended('plangate.import/' || $1, 0))"
STAGING: Final = "CREATE TEMP TABLE IF NOT EXISTS import_{table} ON COMMIT DELETE ROWS AS SELECT {columns} FROM {table} LIMIT 0"
# A row of another tenant, or one that no export writes, is not inserted, and missed by the caller: the policies let the
# owner write for all tenants.
INSERT_ROWS: Final = """
INSERT INTO {table} ({columns}) SELECT {columns} FROM import_{table}
 WHERE tenant_id = current_setting('plangate.tenant'){condition}
"""
DELETE_ROWS: Final = (
    "DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE tenant_id = $1 LIMIT $2))"
)
CURRENT_XID: Final = "SELECT pg_current_xact_id()::text::bigint"
OLDEST_XID: Final = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"

DELETE_BATCH_ROWS: Final = 10_000
SEALED_BATCH_ROWS: Final = 50


@asynccontextmanager
async def open_session(dsn: str, tenant: str) -> AsyncIterator[Any]:
    """Yield a connection of the schema's owner that sees every row of one tenant, those of deleted threads included."""
    connection = await hosts.connect(dsn, timeout=10)
    try:
        await connection.execute(SESSION)
        await connection.fetchval(SET_TENANT, tenant)
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def open_snapshot(dsn: str, tenant: str) -> AsyncIterator[Any]:
    """Yield such a connection in a transaction that only reads, and sees one moment."""
    async with (
        open_session(dsn, tenant) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        yield connection


async def columns_of_tables(connection: Any) -> dict[str, list[str]]:
    """Return the names and types of the columns of each table with a tenant."""
    return {row["table"]: list(row["columns"]) for row in await connection.fetch(COLUMNS)}


def names(table: str, columns: Iterable[str]) -> list[str]:
    """Return the names of the columns of a table that are in the file, from names with types."""
    all_names = [column.split(" ", 1)[0] for column in columns]
    return [name for name in all_names if name not in RENUMBERED.get(table, ())]


def _list(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _condition(table: str) -> str:
    """Return the condition of the rows that are in a file, to be added to others."""
    return f" AND {CONDITIONS[table]}" if table in CONDITIONS else ""


async def revision(connection: Any) -> str:
    return str(await connection.fetchval(REVISION))


async def state(connection: Any, tenant: str) -> str | None:
    """Return the state of a tenant, or None if there is no such tenant."""
    value: str | None = await connection.fetchval(STATE, tenant)
    return value


async def bodies(connection: Any, tenant: str) -> AsyncIterator[Any]:
    async for row in connection.cursor(BLOBS, tenant, prefetch=1000):
        yield row


async def sealed_rows(connection: Any, tenant: str, table: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the rows of a table with sealed values, a few at a time. Bytes are in the form that Postgres reads."""
    batch: list[dict[str, Any]] = []
    async for row in connection.cursor(SEALED_ROWS.format(table=table), tenant, prefetch=SEALED_BATCH_ROWS):
        batch.append(orjson.loads(row["row"]))
        if len(batch) == SEALED_BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


async def insert_sealed_row(connection: Any, table: str, row: Mapping[str, Any]) -> None:
    await connection.execute(INSERT_SEALED.format(table=table), orjson.dumps(row).decode())


async def copy_rows(
    connection: Any,
    tenant: str,
    table: str,
    columns: Sequence[str],
    output: Callable[[bytes], Awaitable[None]],
) -> None:
    """Write the rows of a table in the text format of COPY, one on each line."""
    replaced = REPLACED.get(table, {})
    expressions = ", ".join(f'{replaced.get(name, chr(34) + name + chr(34))} AS "{name}"' for name in columns)
    sql = ROWS.format(
        columns=expressions, table=table, condition=_condition(table), order=ORDERS.get(table, "")
    )
    await connection.copy_from_query(sql, tenant, output=output)


async def insert_rows(connection: Any, table: str, columns: Sequence[str], data: bytes) -> int:
    """Insert rows in the text format of COPY, in one transaction. Return their number.

    Postgres takes no COPY into a table with row-level security, so the rows pass through a temporary one.
    """

    async def source() -> AsyncIterator[bytes]:
        yield data

    async with connection.transaction():
        await connection.execute(STAGING.format(table=table, columns=_list(columns)))
        await connection.copy_to_table(f"import_{table}", source=source(), columns=columns)
        insert = INSERT_ROWS.format(table=table, columns=_list(columns), condition=_condition(table))
        tag: str = await connection.execute(insert)
    return int(tag.rpartition(" ")[2])


async def lock_import(connection: Any, tenant: str) -> bool:
    """Lock the import of a tenant until the connection ends. Return False if another import holds it."""
    return bool(await connection.fetchval(LOCK, tenant))


async def delete_tenant(connection: Any, tenant: str, tables: Iterable[str]) -> None:
    """Delete the rows of a tenant, in batches. `tables`: those that refer to others come first."""
    for table in tables:
        while True:
            tag = await connection.execute(DELETE_ROWS.format(table=table), tenant, DELETE_BATCH_ROWS)
            if tag == "DELETE 0":
                break


async def current_xid(connection: Any) -> int:
    """Return the id of a new transaction: everything that was committed before has a lower one."""
    return int(await connection.fetchval(CURRENT_XID))


async def oldest_open_xid(connection: Any) -> int:
    return int(await connection.fetchval(OLDEST_XID))
