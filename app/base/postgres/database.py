"""One pool, and one way to open a transaction and set its tenant.

The pool is SQLAlchemy's, in autocommit, so that only `transaction` below ever begins one; statements are named SQL
that the stores send over the pool's asyncpg connection (docs/decisions/0002). BEGIN, role and tenant travel in one
message and end with the transaction, so they hold behind a pooler in transaction mode too. A transaction works as
the role `plangate_app`, which owns nothing and bypasses nothing, whatever the login may do.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg
import structlog
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.base.errors import TransactionConflict, Unavailable
from app.base.metrics import Metrics, ModelCallUsage

log = structlog.get_logger(__name__)

TENANT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")

MAX_TRANSACTION_S = 4.0  # so that a request is answered within five seconds, whatever the database does

OUTAGE_LOG_INTERVAL_S = 30.0

SESSION_PARAMETERS = {
    "application_name": "plangate",
    "idle_in_transaction_session_timeout": "5000",
    "lock_timeout": "4000",
    "tcp_keepalives_idle": "10",
    "jit": "off",
    "random_page_cost": "1.1",  # no disk that turns: a page of a list must not become a scan of the table
}

# What the database says when it, or the way to it, is not there: worth asking again later.
OUTAGE_ERRORS = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server said goodbye to a connection that was just taken
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.InternalServerError,
    asyncpg.exceptions.CannotConnectNowError,
    asyncpg.exceptions.ReadOnlySQLTransactionError,
    asyncpg.exceptions.LockNotAvailableError,  # somebody holds a row for too long: a frozen process, until it is cut
    asyncpg.exceptions.DeadlockDetectedError,
    asyncpg.exceptions.PostgresIOError,
    PoolTimeout,
    asyncio.TimeoutError,
)

# What it says to a process that DATABASE_URL sends to the wrong place, or with a wrong name or password.
ACCESS_ERRORS = (asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError)


def driver_error(error: BaseException) -> BaseException:
    """What the driver said, where SQLAlchemy wrapped it."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return error


def is_outage(error: BaseException) -> bool:
    """Whether this error says that the database cannot be used now, rather than that a statement was wrong."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.connection_invalidated or isinstance(driver_error(error), OUTAGE_ERRORS)
    if isinstance(error, asyncpg.InterfaceError):  # also what a wrong argument raises
        return "clos" in str(error) or "not connected" in str(error)
    return isinstance(error, OUTAGE_ERRORS)


class EndedWork(NamedTuple):
    """A work record that is over; of a model call, what it took."""

    id: str
    kind: str
    status: str
    use: ModelCallUsage | None = None


EndedWorkListener = Callable[[str, Sequence[EndedWork]], None]


class StatementTimeout(Exception):
    """A statement was given so much time, and was not done in it. Its transaction is over."""


class Tx:
    """An open transaction of one tenant. Functions that take one join their caller's."""

    __slots__ = ("_commit_hooks", "_rollback_hooks", "ended_work", "raw", "tenant")

    def __init__(self, raw: Any, tenant: str) -> None:
        self.raw = raw
        self.tenant = tenant
        self.ended_work: list[EndedWork] = []  # by this transaction: told once it is durable
        self._commit_hooks: list[Callable[[], None]] = []
        self._rollback_hooks: list[Callable[[], None]] = []

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        return list(await self.raw.fetch(sql, *args))

    async def fetch_within(self, seconds: float, sql: str, *args: Any) -> list[Any]:
        """What a statement gives whose cost is the asker's choice. Raises StatementTimeout."""
        await self.raw.execute(f"SET LOCAL statement_timeout = {round(seconds * 1000)}")
        try:
            return await self.fetch(sql, *args)
        except asyncpg.QueryCanceledError as error:
            raise StatementTimeout from error

    async def set_repeatable_read(self) -> None:
        """What follows sees the database as it is now, whatever commits meanwhile. The first statement of a
        transaction that only reads."""
        await self.raw.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    async def row(self, sql: str, *args: Any) -> Any:
        return await self.raw.fetchrow(sql, *args)

    async def value(self, sql: str, *args: Any) -> Any:
        return await self.raw.fetchval(sql, *args)

    async def run(self, sql: str, *args: Any) -> str:
        """Executes and gives the command tag, such as `UPDATE 1`."""
        return str(await self.raw.execute(sql, *args))

    def after_commit(self, call: Callable[[], None]) -> None:
        """Runs `call` once the transaction is durable; not at all if it is not."""
        self._commit_hooks.append(call)

    def after_rollback(self, call: Callable[[], None]) -> None:
        """Runs `call` if the transaction did not become durable, as far as this process knows."""
        self._rollback_hooks.append(call)

    def run_hooks(self, *, durable: bool) -> None:
        for call in self._commit_hooks if durable else self._rollback_hooks:
            call()


class Database:
    """The pool of a process."""

    def __init__(self, engine: AsyncEngine, metrics: Metrics) -> None:
        self._engine = engine
        self.metrics = metrics
        self._ended_work_listeners: list[EndedWorkListener] = []
        self._next_outage_log = 0.0

    def on_ended_work(self, listener: EndedWorkListener) -> None:
        """From now on told, with the tenant, of every work record that this process ended, once that is durable.
        Must return at once and raise nothing."""
        self._ended_work_listeners.append(listener)

    def record_ended_work(self, tenant: str, work: Sequence[EndedWork]) -> None:
        """The one place through which every end of a work record goes, whoever recorded it."""
        for one in work:
            self.metrics.count_work_record(one.kind, one.status)
            if one.use is not None:
                self.metrics.count_model_call(one.use)
        for listener in self._ended_work_listeners:
            listener(tenant, work)

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[Tx]:
        """A transaction under `tenant` ('' for functions that span tenants). Commits at the end of the block,
        rolls back on any error. An unreachable database is `Unavailable`."""
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
            if tx.ended_work:
                self.record_ended_work(tenant, tx.ended_work)

    async def call(self, statement: str, *args: Any) -> list[Any]:
        """One statement as a transaction of its own, for the functions that span tenants: without BEGIN, tenant
        and COMMIT around it, it is one message. An unreachable database is `Unavailable`."""
        async with self._acquire_connection() as raw:
            return list(await raw.fetch(statement, *args))

    @asynccontextmanager
    async def _acquire_connection(self) -> AsyncIterator[Any]:
        """A connection of the pool for TRANSACTION_S at most, the wait for it included; it goes back clean, or not
        at all."""
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
                        raw.terminate()  # a server that does not answer would not roll back either
                    await _roll_back(connection, raw)
                    raise
        except (DBAPIError, *OUTAGE_ERRORS) as error:
            if not is_outage(error):
                raise
            if isinstance(driver_error(error), asyncpg.exceptions.DeadlockDetectedError):
                raise TransactionConflict(
                    "Another request was in the way, and nothing was done; send it again."
                ) from error
            self.metrics.database_unavailable.inc()
            now = time.monotonic()
            if now >= self._next_outage_log:
                self._next_outage_log = now + OUTAGE_LOG_INTERVAL_S
                log.warning("database.outage", error=error)
            raise Unavailable("The database cannot be reached; try again in a moment.") from error

    def connection_counts(self) -> tuple[int, int]:
        """How many the pool may have, and how many are in use."""
        pool: Any = self._engine.pool
        return pool.size(), pool.checkedout()

    async def aclose(self) -> None:
        await self._engine.dispose()


async def _execute(raw: Any, sql: str) -> None:
    await raw.execute(sql)


async def _roll_back(connection: AsyncConnection, raw: Any) -> None:
    """Leaves the connection clean, or out of the pool: a cancelled statement may still be on its way."""

    async def roll_back() -> None:
        async with asyncio.timeout(2):
            await raw.execute("ROLLBACK")

    rollback = asyncio.ensure_future(roll_back())
    rollback.add_done_callback(
        lambda done: done.cancelled() or done.exception()
    )  # nobody may be left to hear it
    try:
        await asyncio.shield(rollback)
    except asyncio.CancelledError:
        await connection.invalidate()
        raise
    except Exception:  # noqa: BLE001 - whatever it is, this connection is not used again
        await connection.invalidate()


async def connect_session(dsn: str) -> Any:
    """Return a connection as the pool opens it, with the parameters of the service's sessions."""
    return await asyncpg.connect(dsn, timeout=5, command_timeout=5, server_settings=SESSION_PARAMETERS)


def open_database(dsn: str, *, size: int = 10, metrics: Metrics | None = None) -> Database:
    """The pool for a `postgresql://` address. Nothing connects before the first transaction."""
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
    """A server that went away took every connection with it: none that lay in the pool meanwhile is handed out."""
    if adapted.driver_connection.is_closed():
        raise InvalidatePoolError
