"""One connection pool, and one way to open a transaction and set its tenant.

The pool is SQLAlchemy's, in autocommit mode, so that only `transaction` below begins transactions. Stores
send named SQL over the pool's asyncpg connection (docs/decisions/0002). BEGIN, role and tenant are sent in
one message and end with the transaction, so they also work behind a pooler in transaction mode. A transaction
runs as the role `plangate_app`, which owns nothing and bypasses nothing, whatever the login may do.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import structlog
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.base.errors import TransactionConflict, Unavailable
from app.base.metrics import Metrics

log = structlog.get_logger(__name__)

TENANT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")

MAX_TRANSACTION_S = 4.0  # so that a request is answered within five seconds even if the database hangs

OUTAGE_LOG_INTERVAL_S = 30.0

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
    PoolTimeout,
    asyncio.TimeoutError,
)

# Errors for a DATABASE_URL with a wrong database, user or password.
ACCESS_ERRORS = (asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError)


def driver_error(error: BaseException) -> BaseException:
    """Return the driver's error where SQLAlchemy wrapped it."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return error


def is_outage(error: BaseException) -> bool:
    """Return whether the error means that the database is unavailable, rather than that a statement is
    wrong."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.connection_invalidated or isinstance(driver_error(error), OUTAGE_ERRORS)
    if isinstance(error, asyncpg.InterfaceError):  # asyncpg raises it for wrong arguments too
        return "clos" in str(error) or "not connected" in str(error)
    return isinstance(error, OUTAGE_ERRORS)


CommitListener = Callable[[str, Sequence[Any]], None]


class StatementTimeout(Exception):
    """A statement exceeded its time limit and its transaction was rolled back."""


class Tx:
    """An open transaction of one tenant. Functions that take one join their caller's transaction."""

    __slots__ = ("_commit_hooks", "_rollback_hooks", "raw", "reports", "tenant")

    def __init__(self, raw: Any, tenant: str) -> None:
        self.raw = raw
        self.tenant = tenant
        self.reports: list[Any] = []
        """What listeners are told once the transaction is durable."""
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

    def __init__(self, engine: AsyncEngine, metrics: Metrics) -> None:
        self._engine = engine
        self.metrics = metrics
        self._listeners: list[CommitListener] = []
        self._next_outage_log = 0.0

    def on_report(self, listener: CommitListener) -> None:
        """Register a listener, called with the tenant and the reports of a transaction once it is durable.

        It must return immediately and must not raise.
        """
        self._listeners.append(listener)

    def report(self, tenant: str, reports: Sequence[Any]) -> None:
        """Tell the listeners what is durable."""
        for listener in self._listeners:
            listener(tenant, reports)

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[Tx]:
        """Open a transaction for `tenant` ('' for functions that span tenants).

        Commit at the end of the block and roll back on any error. Raise Unavailable if the database is
        unreachable.
        """
        if tenant and not TENANT_ID.match(tenant):
            raise ValueError(f"not a tenant id: {tenant!r}")
        async with self._acquire_connection() as raw:
            tx = Tx(raw, tenant)
            try:
                await _execute(
                    raw, f"BEGIN; SET LOCAL ROLE plangate_app; SET LOCAL plangate.tenant = '{tenant}'"
                )
                yield tx
                await _execute(raw, "COMMIT")
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
            return list(await raw.fetch(statement, *args))

    @asynccontextmanager
    async def _acquire_connection(self) -> AsyncIterator[Any]:
        """Yield a pooled connection for at most MAX_TRANSACTION_S, including the wait for it.

        It returns to the pool clean, or not at all.
        """
        deadline = asyncio.timeout(MAX_TRANSACTION_S)
        requested_at = time.perf_counter()
        try:
            async with deadline, self._engine.connect() as connection:
                self.metrics.pool_wait.observe(time.perf_counter() - requested_at)
                raw: Any = (await connection.get_raw_connection()).driver_connection
                try:
                    yield raw
                except BaseException:
                    if deadline.expired():
                        raw.terminate()  # a server that does not respond would not roll back either
                    await _roll_back(connection, raw)
                    raise
        except (DBAPIError, *OUTAGE_ERRORS) as error:
            if not is_outage(error):
                raise
            if isinstance(driver_error(error), asyncpg.exceptions.DeadlockDetectedError):
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
        pool: Any = self._engine.pool
        return pool.size(), pool.checkedout()

    async def aclose(self) -> None:
        await self._engine.dispose()


async def _execute(raw: Any, sql: str) -> None:
    await raw.execute(sql)


async def _roll_back(connection: AsyncConnection, raw: Any) -> None:
    """Clean the connection or remove it from the pool: a canceled statement may still be in flight."""

    async def roll_back() -> None:
        async with asyncio.timeout(2):
            await raw.execute("ROLLBACK")

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


async def connect_session(dsn: str) -> Any:
    """Return a connection as the pool opens it, with the session parameters of the service."""
    return await asyncpg.connect(dsn, timeout=5, command_timeout=5, server_settings=SESSION_PARAMETERS)


def open_database(dsn: str, *, size: int = 10, metrics: Metrics | None = None) -> Database:
    """Create the pool for a `postgresql://` address. It connects with the first transaction."""
    if not dsn.startswith(("postgresql://", "postgres://")):
        raise ValueError("DATABASE_URL must begin with postgresql://")

    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda: connect_session(
            dsn
        ),  # asyncpg reads the address itself: sslmode, several hosts, passfile
        isolation_level="AUTOCOMMIT",
        pool_size=size,
        max_overflow=0,
        pool_timeout=5,
        pool_recycle=1800,
    )
    event.listen(engine.sync_engine, "checkout", _reject_closed)
    return Database(engine, metrics or Metrics())


def _reject_closed(adapted: Any, _record: Any, _proxy: Any) -> None:
    """Invalidate the whole pool if a checked-out connection is closed: a server that restarts closes all of
    them."""
    if adapted.driver_connection.is_closed():
        raise InvalidatePoolError
