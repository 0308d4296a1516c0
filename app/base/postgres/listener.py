"""The one direct connection of a process for LISTEN. Notifications are hints: the process also polls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import asyncpg

from app.base.logs.processors import Throttle
from app.base.logs.structured import structlog
from app.base.postgres import hosts

log = structlog.get_logger(__name__)

NotifyCallback = Callable[[str], None]

CONNECTION_ERRORS = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # used at the moment when the server closed it
    TimeoutError,
)


class Listener:
    """Keep LISTEN alive through outages. `on_gap` is called after each (re)connect: notifications may have
    been lost."""

    def __init__(
        self,
        dsn: str,
        channels: Mapping[str, NotifyCallback],
        on_gap: Callable[[], None],
        accept: hosts.Accept | None = None,
    ) -> None:
        """`accept` raises an error for a server that must not be used."""
        self._dsn = dsn
        self._accept = accept
        self._channels = channels
        self._on_gap = on_gap
        self._task: asyncio.Task[None] | None = None
        self._outage_throttle = Throttle()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="listener")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        delay = 0.1
        while True:
            try:
                connection = await hosts.connect(self._dsn, timeout=5, accept=self._accept)
            except CONNECTION_ERRORS as error:
                if self._outage_throttle.allow():
                    log.warning("listener.outage", error=error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 2.0)
                continue
            if self._outage_throttle.reset():
                log.warning("listener.back")
            delay = 0.1
            try:
                await self._listen(connection)
            finally:
                connection.terminate()

    async def _listen(self, connection: Any) -> None:
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _: closed.set())
        try:
            for channel in self._channels:
                await connection.add_listener(channel, self._on_notify)
            self._on_gap()
            while not closed.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(10):
                        await closed.wait()
                    return
                async with asyncio.timeout(5):  # detect half-open connections
                    await connection.execute("SELECT 1")
        except CONNECTION_ERRORS as error:
            if self._outage_throttle.allow():
                log.warning("listener.lost", error=error)

    def _on_notify(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        self._channels[channel](str(payload))
