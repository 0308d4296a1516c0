"""Another Postgres, read in read-only transactions over a connection that is closed afterward.

The process connects to the address that the egress check of the service picked, never to one that it looked
up itself, and it has no environment from which a driver could read hosts, passwords or keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

import asyncpg
import orjson

from app.catalog.addresses import PostgresAddress
from app.catalog.engines.base import (
    ColumnInfo,
    Dialect,
    ForeignKey,
    Receive,
    Structure,
    TableInfo,
    first_rows_sql,
    quote,
    quote_path,
)
from app.catalog.problems import StatementProblem, nearest_names

T = TypeVar("T")

BATCH_ROWS: Final = 1_000
CONNECT_S: Final = 5.0
LOCK_TIMEOUT_MS: Final = 2_000
_AS_TEXT: Final = (
    "date",
    "time",
    "timetz",
    "timestamp",
    "timestamptz",
    "interval",
    "uuid",
    "inet",
    "cidr",
    "macaddr",
    "money",
    "bit",
    "varbit",
)
_TIMES: Final = frozenset({"timestamp", "timestamptz"})

IDENTITY: Final = "SELECT system_identifier::text FROM pg_control_system()"
TABLES: Final = """
SELECT n.nspname, c.relname, CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'view' ELSE 'table' END,
       obj_description(c.oid, 'pg_class'), CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND n.nspname = ANY ($1)
   AND has_table_privilege(c.oid, 'SELECT')
 ORDER BY 1, 2
"""
COLUMNS: Final = """
SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
       EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'p' AND a.attnum = ANY (k.conkey)),
       col_description(c.oid, a.attnum),
       (SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = a.atttypid)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND n.nspname = ANY ($1)
   AND a.attnum > 0 AND NOT a.attisdropped AND has_table_privilege(c.oid, 'SELECT')
 ORDER BY 1, 2, a.attnum
"""
FOREIGN_KEYS: Final = """
SELECT n.nspname, c.relname, (SELECT array_agg(a.attname::text ORDER BY i) FROM unnest(k.conkey) WITH ORDINALITY u(num, i)
           JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.num),
       m.nspname, d.relname, (SELECT array_agg(a.attname::text ORDER BY i) FROM unnest(k.confkey) WITH ORDINALITY u(num, i)
           JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.num)
  FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_class d ON d.oid = k.confrelid JOIN pg_namespace m ON m.oid = d.relnamespace
 WHERE k.contype = 'f' AND k.conparentid = 0 AND n.nspname = ANY ($1) ORDER BY 1, 2, k.conname
"""
SCHEMAS: Final = """
SELECT nspname::text FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
   AND has_schema_privilege(oid, 'USAGE') ORDER BY 1
"""


class PinnedLoop(asyncio.SelectorEventLoop):
    """An event loop that knows the address of one host and looks nothing up. TLS still checks the name."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (self._address, port))]


class PostgresEngine:
    """One connection to another Postgres."""

    dialect: Dialect = "postgres"

    def __init__(
        self, address: PostgresAddress, addresses: Sequence[str], schemas: Sequence[str], timeout_ms: int
    ) -> None:
        """Connect to the first of the checked `addresses` that answers. Raise StatementProblem."""
        self._schemas = tuple(schemas)
        self._timeout_ms = timeout_ms
        failure: Exception = OSError("the host has no address")
        for at in addresses:
            self._loop = PinnedLoop(at)
            try:
                self._connection = self._do(self._connect(address))
                return
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                self._loop.close()
                failure = error
                if isinstance(error, asyncpg.PostgresError):
                    break
        why = "it did not answer in time" if isinstance(failure, TimeoutError) else str(failure)[:300]
        raise StatementProblem("source_unavailable", f"The source cannot be reached: {why}.")

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    async def _connect(self, address: PostgresAddress) -> Any:
        mode = address.ssl_mode
        if mode == "prefer":
            try:
                return await self._connect_with(address, _tls(verify=False))
            except ConnectionError as error:
                if "rejected SSL" not in str(error):
                    raise
            return await self._connect_with(address, False)
        return await self._connect_with(
            address, False if mode == "disable" else _tls(verify=mode == "verify-full")
        )

    async def _connect_with(self, address: PostgresAddress, tls: ssl.SSLContext | bool) -> Any:
        settings = {
            "application_name": "plangate source",
            "default_transaction_read_only": "on",
            "statement_timeout": str(self._timeout_ms),
            "lock_timeout": str(LOCK_TIMEOUT_MS),
            "idle_in_transaction_session_timeout": str(self._timeout_ms + 5_000),
            "datestyle": "ISO",
            "intervalstyle": "iso_8601",
            "timezone": "UTC",
        }
        if self._schemas:
            settings["search_path"] = ", ".join(quote(schema) for schema in self._schemas)
        connection = await asyncpg.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=address.database,
            ssl=tls,
            timeout=CONNECT_S,
            server_settings=settings,
            statement_cache_size=0,
        )
        for name in _AS_TEXT:
            decode = _rfc3339 if name in _TIMES else str
            await connection.set_type_codec(
                name, schema="pg_catalog", encoder=str, decoder=decode, format="text"
            )
        for name in ("json", "jsonb"):
            await connection.set_type_codec(
                name, schema="pg_catalog", encoder=_json_text, decoder=_json_value, format="text"
            )
        return connection

    def cluster(self) -> str | None:
        """Return what identifies the cluster, or None if this role may not ask for it."""
        try:
            found: str = self._do(self._connection.fetchval(IDENTITY))
        except asyncpg.PostgresError:
            return None
        return found

    def run(self, sql: str, params: Sequence[Any], receive: Receive) -> None:
        try:
            self._do(self._run(sql, params, receive))
        except asyncpg.PostgresError as error:
            raise self._problem(error) from error
        except (asyncpg.InterfaceError, OverflowError) as error:  # a value that its parameter cannot hold
            raise StatementProblem(
                "bad_params", f"A value of `params` does not fit: {str(error)[:300]}."
            ) from error
        except TimeoutError as error:
            raise StatementProblem("timeout", "The statement was stopped at its time limit.") from error
        except OSError as error:
            raise StatementProblem("source_unavailable", f"The connection was lost: {error}.") from error

    async def _run(self, sql: str, params: Sequence[Any], receive: Receive) -> None:
        async with asyncio.timeout(self._timeout_ms / 1000):
            async with self._connection.transaction(readonly=True):
                statement = await self._connection.prepare(sql)
                columns = [(a.name, a.type.name) for a in statement.get_attributes()]
                if not columns:  # a command, such as SET or COMMIT, which is not run
                    raise StatementProblem("not_read_only", "Only SELECT, or WITH ... SELECT, can be run.")
                bound = [
                    _parameter(value, p.name)
                    for value, p in zip(params, statement.get_parameters(), strict=True)
                ]
                if not receive(columns, ()):
                    return
                cursor = await statement.cursor(*bound)
                while rows := await cursor.fetch(BATCH_ROWS):
                    if not receive(None, [tuple(map(_plain, row.values())) for row in rows]):
                        return

    def _problem(self, error: asyncpg.PostgresError) -> StatementProblem:
        text = str(error)[:400]
        where = f" at character {error.position}" if getattr(error, "position", None) else ""
        hint = f" {error.hint}" if getattr(error, "hint", None) else ""
        if isinstance(error, asyncpg.QueryCanceledError):
            return StatementProblem("timeout", "The statement was canceled at its time limit.")
        if isinstance(error, asyncpg.LockNotAvailableError):
            return StatementProblem(
                "query_failed", "A table is locked by somebody who changes it; try again later."
            )
        if isinstance(error, asyncpg.UndefinedTableError) and where:
            name = text.partition('"')[2].partition('"')[0] or text
            with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError):
                near = nearest_names(name, [table for table, _ in self.names()])
                return StatementProblem("unknown_table", f"There is no table {name!r} in this source.{near}")
        if isinstance(error, asyncpg.UndefinedColumnError) and where:
            return StatementProblem("unknown_column", f"{text}{where}.{hint or self._near_column(text)}")
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError | asyncpg.InsufficientPrivilegeError):
            return StatementProblem("not_read_only", f"{text}.")
        if isinstance(error, asyncpg.PostgresConnectionError | asyncpg.OperatorInterventionError):
            return StatementProblem("source_unavailable", f"The connection was lost: {text}.")
        if isinstance(error, asyncpg.DataError) and "for query argument" in text:
            return StatementProblem("bad_params", f"{text[0].upper()}{text[1:]}.")
        # An error with a position is about the text of the statement. Any other may quote a value: `name::regclass` does.
        return StatementProblem("query_failed", f"{text}{where}.{hint}", quotes_values=not where)

    def _near_column(self, text: str) -> str:
        name = text.removeprefix("column ").partition(" ")[0].strip('"').rpartition(".")[2]
        with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError):
            return nearest_names(name, {column for _, columns in self.names() for column in columns})
        return ""

    def names(self) -> Iterable[tuple[str, Sequence[str]]]:
        tables: dict[str, list[str]] = {}
        for schema, table, column, *_ in self._fetch(COLUMNS, self._read_schemas()):
            tables.setdefault(self._name_of(schema, table), []).append(column)
        return list(tables.items())

    def _fetch(self, sql: str, *params: Any) -> list[Any]:
        async def fetch() -> list[Any]:
            async with self._connection.transaction(readonly=True):
                return list(await self._connection.fetch(sql, *params))

        return self._do(fetch())

    def _read_schemas(self) -> list[str]:
        return list(self._schemas) or [row[0] for row in self._fetch(SCHEMAS)]

    def _name_of(self, schema: str, table: str) -> str:
        """Return the name under which a statement finds the table without more."""
        first = self._schemas[0] if self._schemas else "public"
        return table if schema == first else f"{schema}.{table}"

    def structure(self, schemas: Sequence[str]) -> Structure:
        try:
            return self._structure(list(schemas) or self._read_schemas())
        except asyncpg.PostgresError as error:
            raise self._problem(error) from error

    def _structure(self, schemas: list[str]) -> Structure:
        tables = [
            TableInfo(self._name_of(schema, table), (schema, table), schema, kind, comment, rows)
            for schema, table, kind, comment, rows in self._fetch(TABLES, schemas)
        ]
        known = {table.name for table in tables}
        columns, enums = [], []
        for schema, table, column, type_, nullable, key, comment, labels in self._fetch(COLUMNS, schemas):
            name = self._name_of(schema, table)
            columns.append(ColumnInfo(name, column, type_, nullable, key, comment))
            if labels:
                enums.append((name, column, tuple(labels)))
        foreign = [
            ForeignKey(
                self._name_of(schema, table), tuple(columns), self._name_of(to_schema, to_table), tuple(to)
            )
            for schema, table, columns, to_schema, to_table, to in self._fetch(FOREIGN_KEYS, schemas)
        ]
        return Structure(
            tuple(tables),
            tuple(columns),
            tuple(key for key in foreign if key.table in known and key.to_table in known),
            tuple(enums),
        )

    def sample_sql(self, table: TableInfo, columns: Sequence[str], rows: int) -> str:
        estimate = table.row_estimate or 0
        if table.kind != "table" or estimate <= 5 * rows:
            return first_rows_sql(table, columns, rows)
        listed, share = ", ".join(map(quote, columns)), 100 * 2 * rows / estimate
        sample = f"TABLESAMPLE SYSTEM ({share:.6f}) LIMIT {rows}"
        return f"SELECT {listed} FROM {quote_path(table.path)} {sample}"  # noqa: S608

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._do(self._connection.close(timeout=1))
        self._loop.close()


def _tls(*, verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _parameter(value: Any, type_: str) -> Any:
    """Return a value as the driver takes it for a parameter of this type: JSON has fewer types."""
    if value is None or type_ in ("json", "jsonb"):
        return value
    if type_ in _AS_TEXT or type_ in ("text", "varchar", "bpchar", "name"):
        return value if isinstance(value, str) else str(value)
    if type_ == "numeric" and isinstance(value, int | float):
        return str(value)
    return value


def _rfc3339(text: str) -> str:
    return text.replace(" ", "T", 1)


def _json_text(value: Any) -> str:
    return orjson.dumps(value).decode()


def _json_value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # an integer of more than 64 bits
        return text


def _plain(value: Any) -> Any:
    """Return composite values as objects and ranges as text."""
    if isinstance(value, asyncpg.Record):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, asyncpg.Range):
        low, high = ("[" if value.lower_inc else "("), ("]" if value.upper_inc else ")")
        return "empty" if value.isempty else f"{low}{value.lower},{value.upper}{high}"
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
