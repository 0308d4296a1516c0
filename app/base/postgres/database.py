"""One connection pool, and one way to open a transaction and set its tenant.

Only `transaction` below begins transactions. Stores send named SQL over the pool's asyncpg connection
(docs/decisions/0002). BEGIN, role and tenant are sent in
one message and end with the transaction, so they also work behind a pooler in transaction mode. A transaction
runs as the role `plangate_app`, which owns nothing and bypasses nothing, whatever the login may do.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from app.base.errors import TenantNotReady, TransactionConflict, Unavailable
from app.base.logs.structured import structlog
from app.base.metrics import Metrics
from app.base.postgres import hosts
from app.base.postgres.pool import ConnectionPool, PooledConnection

log = structlog.get_logger(__name__)

TENANT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")

MAX_TRANSACTION_S = 4.0  # so that a request is answered within five seconds even if the database hangs

OUTAGE_LOG_INTERVAL_S = 30.0
CONNECT_TIMEOUT_S = 5.0

# NULL on a standby.
TIMELINE = """
SELECT CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END
"""

SESSION_PARAMETERS = {
    "application_name": "plangate",
    "idle_in_transaction_session_timeout": "5000",
    "lock_timeout": "4000",
    "tcp_keepalives_idle": "10",
    "jit": "off",
    "random_page_cost": "1.1",  # SSDs: a page of a list must not become a sequential scan
}

# Errors that mean that the database or the network is unavailable: a later attempt may succeed.
OUTAGE_ERRORS = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server closed a connection that was just acquired
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.InternalServerError,
    asyncpg.exceptions.CannotConnectNowError,
    asyncpg.exceptions.ReadOnlySQLTransactionError,
    asyncpg.exceptions.LockNotAvailableError,  # a frozen process holds a row, until its session is ended
    asyncpg.exceptions.DeadlockDetectedError,
    asyncpg.exceptions.PostgresIOError,
    asyncio.TimeoutError,
)

# Errors for a DATABASE_URL with a wrong database, user or password.
ACCESS_ERRORS = (asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError)


def is_outage(error: BaseException) -> bool:
    """Return whether the error means that the database is unavailable, rather than that a statement is
    wrong."""
    if isinstance(error, asyncpg.InterfaceError):  # asyncpg raises it for wrong arguments too
        return "clos" in str(error) or "not connected" in str(error)
    return isinstance(error, OUTAGE_ERRORS)


# Ends with a commit that waits for the synchronous standby, if there is one: the standby then has all earlier commits, too.
# A transaction that has written waits anyway.
ACKNOWLEDGE = """
SELECT pg_logical_emit_message(true, 'plangate', 'acknowledge')
 WHERE current_setting('synchronous_standby_names') <> '' AND pg_current_xact_id_if_assigned() IS NULL
"""

CommitListener = Callable[[str, Sequence[Any]], None]


class OldTimeline(ConnectionError):
    """The server is a primary of the past: another one was promoted since, and this process has seen it."""


class StatementTimeout(Exception):
    """A statement exceeded its time limit and its transaction was rolled back."""


class Tx:
    """An open transaction of one tenant. Functions that take one join their caller's transaction."""

    __slots__ = ("_commit_hooks", "_rollback_hooks", "acknowledges", "raw", "reports", "tenant")

    def __init__(self, raw: Any, tenant: str) -> None:
        self.raw = raw
        self.tenant = tenant
        self.reports: list[Any] = []
        """What listeners receive once the transaction is durable."""
        self.acknowledges = False
        """Whether the caller will report as durable what it has read here, although it may have written nothing: an earlier
        commit may not have waited for the synchronous standby to its end."""
        self._commit_hooks: list[Callable[[], None]] = []
        self._rollback_hooks: list[Callable[[], None]] = []

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        return list(await self.raw.fetch(sql, *args))

    async def fetch_within(self, seconds: float, sql: str, *args: Any) -> list[Any]:
        """Return the rows of a statement whose cost the caller can choose. Raise StatementTimeout."""
        await self.raw.execute(f"SET LOCAL statement_timeout = {round(seconds * 1000)}")
        try:
            return await self.fetch(sql, *args)
        except asyncpg.QueryCanceledError as error:
            raise StatementTimeout from error

    async def set_repeatable_read(self) -> None:
        """Make all statements of this transaction see the same snapshot. Call it first, in a read-only
        transaction."""
        await self.raw.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    async def row(self, sql: str, *args: Any) -> Any:
        return await self.raw.fetchrow(sql, *args)

    async def value(self, sql: str, *args: Any) -> Any:
        return await self.raw.fetchval(sql, *args)

    async def run(self, sql: str, *args: Any) -> str:
        """Execute a statement and return its command tag, such as `UPDATE 1`."""
        return str(await self.raw.execute(sql, *args))

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call `call` once the transaction is durable, and never if it fails."""
        self._commit_hooks.append(call)

    def after_rollback(self, call: Callable[[], None]) -> None:
        """Call `call` if the transaction did not become durable, as far as this process knows."""
        self._rollback_hooks.append(call)

    def run_hooks(self, *, durable: bool) -> None:
        """Call the functions that were registered for this outcome of the transaction."""
        for call in self._commit_hooks if durable else self._rollback_hooks:
            call()


class Database:
    """The connection pool of a process."""

    def __init__(self, pool: ConnectionPool, metrics: Metrics) -> None:
        self._pool = pool
        self.metrics = metrics
        self._listeners: list[CommitListener] = []
        self._next_outage_log = 0.0
        self.closed_tenants: frozenset[str] = frozenset()
        """Tenants that are being moved, or were: this process opens no more transactions for them."""
        self._timeline: str | None = None
        self._promotion_listeners: list[Callable[[], None]] = []

    def on_report(self, listener: CommitListener) -> None:
        """Register a listener, called with the tenant and the reports of a transaction once it is durable.

        It must return immediately and must not raise.
        """
        self._listeners.append(listener)

    def report(self, tenant: str, reports: Sequence[Any]) -> None:
        """Tell the listeners what is durable."""
        for listener in self._listeners:
            listener(tenant, reports)

    def on_promotion(self, listener: Callable[[], None]) -> None:
        """Register a listener, called before a connection to a promoted standby is used for the first time. What this process
        has in memory may be lost there. It must return immediately and must not raise."""
        self._promotion_listeners.append(listener)

    async def accept_connection(self, raw: Any) -> None:
        """Compare the timeline of a new connection's server with the one that this process knows. Raise OldTimeline for an
        older one."""
        timeline: str | None = await raw.fetchval(TIMELINE)
        if timeline is None or timeline == self._timeline:
            return
        if self._timeline is not None and timeline < self._timeline:
            raise OldTimeline(
                f"the server is on timeline {timeline}, and another one was on {self._timeline}"
            )
        is_promoted = self._timeline is not None
        self._timeline = timeline
        if is_promoted:
            log.warning("database.promoted")
            for listener in self._promotion_listeners:
                listener()

    @asynccontextmanager
    async def transaction(
        self, tenant: str, *, allow_closed: bool = False, within_s: float = MAX_TRANSACTION_S
    ) -> AsyncIterator[Tx]:
        """Open a transaction for `tenant` ('' for functions that span tenants), which must be over `within_s` seconds.

        Commit at the end of the block and roll back on any error. Raise Unavailable if the database is
        unreachable, or the synchronous standby did not confirm the commit in time, and TenantNotReady for a closed tenant.
        With `allow_closed`, it only reads the state of the tenant.
        """
        if tenant and not TENANT_ID.match(tenant):
            raise ValueError(f"not a tenant id: {tenant!r}")
        if tenant in self.closed_tenants and not allow_closed:
            raise TenantNotReady(tenant)
        async with self._acquire_connection(within_s) as raw:
            tx = Tx(raw, tenant)
            try:
                await _execute(
                    raw, f"BEGIN; SET LOCAL ROLE plangate_app; SET LOCAL plangate.tenant = '{tenant}'"
                )
                yield tx
                await _execute(raw, f"{ACKNOWLEDGE}; COMMIT" if tx.acknowledges else "COMMIT")
                await _wait_for_standby(raw)
            except BaseException:
                tx.run_hooks(durable=False)
                raise
            tx.run_hooks(durable=True)
            if tx.reports:
                self.report(tenant, tx.reports)

    async def call(self, statement: str, *args: Any) -> list[Any]:
        """Run one statement as its own transaction, for functions that span tenants.

        It is one message, without BEGIN, tenant and COMMIT around it. Raise Unavailable if the database is
        unreachable.
        """
        async with self._acquire_connection() as raw:
            rows = list(await raw.fetch(statement, *args))
            await _wait_for_standby(raw)
            return rows

    async def ping(self) -> None:
        """Raise Unavailable if the database is unreachable."""
        await self.call("SELECT 1")

    @asynccontextmanager
    async def _acquire_connection(self, within_s: float = MAX_TRANSACTION_S) -> AsyncIterator[Any]:
        """Yield a pooled connection for at most `within_s`, including the wait for it.

        It returns to the pool clean, or not at all.
        """
        deadline = asyncio.timeout(within_s)
        requested_at = time.perf_counter()
        try:
            async with deadline, self._pool.acquire() as connection:
                self.metrics.pool_wait.observe(time.perf_counter() - requested_at)
                raw = connection.raw
                try:
                    yield raw
                except BaseException as error:
                    if deadline.expired() or isinstance(error, asyncpg.ReadOnlySQLTransactionError):
                        raw.terminate()  # a server that does not respond would not roll back either
                    await _roll_back(connection)
                    raise
        except OUTAGE_ERRORS as error:
            if not is_outage(error):
                raise
            if isinstance(error, asyncpg.exceptions.DeadlockDetectedError):
                raise TransactionConflict(
                    "The transaction conflicted with another one and was rolled back; retry it."
                ) from error
            self.metrics.database_unavailable.inc()
            now = time.monotonic()
            if now >= self._next_outage_log:
                self._next_outage_log = now + OUTAGE_LOG_INTERVAL_S
                log.warning("database.outage", error=error)
            raise Unavailable("The database cannot be reached; try again in a moment.") from error

    def connection_counts(self) -> tuple[int, int]:
        """Return the size of the pool and the number of connections in use."""
        return self._pool.size, self._pool.in_use

    async def aclose(self) -> None:
        await self._pool.aclose()


async def _execute(raw: Any, sql: str) -> None:
    await raw.execute(sql)


async def _wait_for_standby(raw: Any) -> None:
    """Return once the synchronous standby has what this connection committed, if the wait of a commit was cut short."""
    while raw.was_cut_short:
        log.warning("database.standby_wait_cut")
        raw.was_cut_short = False
        await _execute(raw, ACKNOWLEDGE)


async def _roll_back(connection: PooledConnection) -> None:
    """Clean the connection or remove it from the pool: a canceled statement may still be in flight."""

    async def roll_back() -> None:
        async with asyncio.timeout(2):
            await connection.raw.execute("ROLLBACK")

    rollback = asyncio.ensure_future(roll_back())
    rollback.add_done_callback(
        lambda done: done.cancelled() or done.exception()
    )  # retrieve the error even if no caller is left
    try:
        await asyncio.shield(rollback)
    except asyncio.CancelledError:
        await connection.invalidate()
        raise
    except Exception:  # noqa: BLE001 - after any error, this connection is not used again
        await connection.invalidate()


TypeDefinitions = dict[frozenset[int], Any]
"""The rows that describe the arrays and composite types with these OIDs, as asyncpg reads them."""


@dataclass(frozen=True, slots=True)
class KnownStatement:
    """Stands for the statement that asyncpg would have sent. Its name says that it replaced no unnamed statement."""

    name: str = "known"


class SessionConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that shares the definitions of types with the other connections of its pool.

    asyncpg asks for the arrays and composite types of a statement on every connection anew. Each answer costs the
    database about 10 ms, and a statement of the journal waits for two of them.
    """

    types: TypeDefinitions
    was_cut_short = False
    """Whether a commit returned before the synchronous standby had it, because somebody canceled its wait."""

    def note_log_message(self, _connection: Any, message: Any) -> None:
        """Handle a warning of the server. Its text depends on the language of the server."""
        if getattr(message, "server_source_function", None) == "SyncRepWaitForLSN":
            self.was_cut_short = True

    async def _introspect_types(self, typeoids: set[int], timeout: float | None) -> tuple[Any, Any]:
        oids = frozenset(typeoids)
        if oids in self.types:
            return self.types[oids], KnownStatement()
        rows, statement = await super()._introspect_types(typeoids, timeout)
        self.types[oids] = rows
        return rows, statement


Connect = Callable[[str, TypeDefinitions, hosts.Accept], Awaitable[Any]]


async def connect_session(
    dsn: str,
    types: TypeDefinitions | None = None,
    accept: hosts.Accept | None = None,
    connection_class: type[SessionConnection] = SessionConnection,
) -> Any:
    """Return a connection as the pool opens it, with the session parameters of the service.

    `types`: the definitions that the connections of the pool share. `accept` raises an error for a server that must not be
    used.
    """
    connection = await hosts.connect(
        dsn,
        timeout=CONNECT_TIMEOUT_S,
        accept=accept,
        command_timeout=5,
        server_settings=SESSION_PARAMETERS,
        connection_class=connection_class,
    )
    connection.types = {} if types is None else types
    connection.add_log_listener(connection.note_log_message)
    return connection


def open_database(
    dsn: str, *, size: int = 10, metrics: Metrics | None = None, connect: Connect = connect_session
) -> Database:
    """Create the pool for a `postgresql://` address. It connects with the first transaction."""
    if not dsn.startswith(("postgresql://", "postgres://")):
        raise ValueError("DATABASE_URL must begin with postgresql://")

    types: TypeDefinitions = {}

    async def accept(raw: Any) -> None:
        await database.accept_connection(raw)

    # Another server may take the place of one that restarts, with other types.
    pool = ConnectionPool(lambda: connect(dsn, types, accept), types.clear, size=size)
    database = Database(pool, metrics or Metrics())
    return database
