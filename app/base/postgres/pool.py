"""A pool of asyncpg connections: SQLAlchemy's pool without its engine, and so without the ORM that its asyncio engine imports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.dialects.postgresql.asyncpg import dialect as PostgresDialect
from sqlalchemy.pool import AsyncAdaptedQueuePool, PoolProxiedConnection
from sqlalchemy.util.concurrency import greenlet_spawn

ACQUIRE_TIMEOUT_S = 5.0
RECYCLE_S = 1800


class PooledConnection:
    """A connection that is in use. `raw` is asyncpg's."""

    __slots__ = ("_pooled", "raw")

    def __init__(self, pooled: PoolProxiedConnection) -> None:
        self._pooled = pooled
        self.raw: Any = pooled.driver_connection

    async def invalidate(self) -> None:
        """Close the connection. It does not return to the pool."""
        await greenlet_spawn(self._pooled.invalidate)

    def release(self) -> None:
        """Return the connection to the pool, unless it was invalidated. It is not reset, so nothing has to be awaited."""
        if self._pooled.is_valid:
            self._pooled.close()


class ConnectionPool:
    """At most `size` connections, which `connect` opens when they are needed.

    `check` is called with each asyncpg connection that leaves the pool. If it raises InvalidatePoolError, all connections of
    the pool are replaced.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Any]], check: Callable[[Any], None], *, size: int
    ) -> None:
        dialect: Any = PostgresDialect  # its constructor has no types
        driver = dialect.import_dbapi()
        self._driver_error: type[Exception] = driver.Error
        self._pool = AsyncAdaptedQueuePool(
            lambda: driver.connect(async_creator_fn=connect),
            pool_size=size,
            max_overflow=0,
            timeout=ACQUIRE_TIMEOUT_S,
            recycle=RECYCLE_S,
            dialect=dialect(dbapi=driver),
            reset_on_return=None,  # a connection returns clean, or not at all
        )

        def check_out(adapted: Any, _record: Any, _proxy: Any) -> None:
            check(adapted.driver_connection)

        event.listen(self._pool, "checkout", check_out)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[PooledConnection]:
        """Yield a connection. Raise TimeoutError of SQLAlchemy if none is free in time, asyncpg's error if none opens."""
        try:
            connection = PooledConnection(await greenlet_spawn(self._pool.connect))
        except self._driver_error as error:
            raise error.__cause__ or error from None  # SQLAlchemy's adapter wraps errors of asyncpg
        try:
            yield connection
        finally:
            connection.release()

    @property
    def size(self) -> int:
        """The most connections that may be open."""
        return self._pool.size()

    @property
    def in_use(self) -> int:
        """The connections that are in use."""
        return self._pool.checkedout()

    async def aclose(self) -> None:
        """Close the connections that are not in use."""
        await greenlet_spawn(self._pool.dispose)
