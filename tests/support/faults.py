"""Connections to the database that fail, lose responses or pause when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from app.base.postgres.database import SessionConnection, TypeDefinitions, connect_session
from app.base.postgres.hosts import Accept


def coroutine_name(coroutine: Any) -> str:
    """Return `Worker._work` for a coroutine of this method."""
    return getattr(coroutine, "__qualname__", type(coroutine).__name__)


AfterStatement = Callable[[], Awaitable[None]]

TYPES: TypeDefinitions = {}
"""Shared by all databases of the session: one server gives an OID once, and a copy of a database keeps those of its
template."""


@dataclass(eq=False)
class Fault:
    """What happens to statements that contain `text`: the first `skip` of them pass, the next `times` are affected.

    `within`: only statements of a transaction that has sent this text before. `every_other`: only odd ones are affected.
    """

    text: str
    skip: int = 0
    times: int = 1
    within: str = ""
    every_other: bool = False
    before: BaseException | None = None
    after: AfterStatement | None = None
    seen: int = 0

    def applies(self, sql: str, earlier: str) -> bool:
        """Count a statement that follows `earlier` ones in its transaction, and return whether it is affected."""
        if self.text not in sql or self.within not in earlier:
            return False
        self.seen += 1
        in_turn = not self.every_other or self.seen % 2 == 1
        return in_turn and self.skip < self.seen <= self.skip + self.times


@dataclass(eq=False)
class Probe:
    """Statements that contain `text`: how many were sent, and how many were open at once at most."""

    text: str
    count: int = 0
    open: int = 0
    most_open: int = 0


@dataclass
class Faults:
    """The faults of the connections of one process. Without faults, statements pass unchanged."""

    faults: list[Fault] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    recorded: list[tuple[str, str]] | None = None
    """The statements that were sent since a test set this to an empty list, and the coroutine of the task that sent each."""

    async def connect(self, dsn: str, _types: TypeDefinitions, accept: Accept) -> Any:
        """Open a connection of the pool."""
        connection = await connect_session(dsn, TYPES, accept, FaultyConnection)
        connection.faults = self
        return connection

    def fail(self, text: str, *, skip: int = 0, times: int = 1, error: BaseException | None = None) -> Fault:
        """Let statements that contain `text` fail before they are sent: as in an outage, or with `error`."""
        error = error or asyncpg.ConnectionDoesNotExistError("a fault of the test")
        return self._add(Fault(text, skip, times, before=error))

    def lose_commits(self, within: str, *, times: int = 1, every_other: bool = False) -> Fault:
        """Let transactions that contain `within` commit, and report a lost connection."""

        async def lose() -> None:
            raise asyncpg.ConnectionDoesNotExistError("a fault of the test: the response was lost")

        return self._add(Fault("COMMIT", 0, times, within, every_other, after=lose))

    def after(self, text: str, call: AfterStatement, *, skip: int = 0, times: int = 1) -> Fault:
        """Call `call` after a statement has taken effect and before its result is returned. If it raises, so does the
        statement."""
        return self._add(Fault(text, skip, times, after=call))

    def probe(self, text: str) -> Probe:
        """Count statements that contain `text`."""
        probe = Probe(text)
        self.probes.append(probe)
        return probe

    def _add(self, fault: Fault) -> Fault:
        self.faults.append(fault)
        return fault

    async def send(self, sql: str, earlier: str, statement: Callable[[], Awaitable[Any]]) -> Any:
        if self.recorded is not None:
            task = asyncio.current_task()
            self.recorded.append((coroutine_name(task.get_coro()) if task else "", " ".join(sql.split())))
        faults = [f for f in self.faults if f.applies(sql, earlier)]
        probes = [p for p in self.probes if p.text in sql]
        for probe in probes:
            probe.count += 1
            probe.open += 1
            probe.most_open = max(probe.most_open, probe.open)
        try:
            for fault in faults:
                if fault.before is not None:
                    raise fault.before
            result = await statement()
            for fault in faults:
                if fault.after is not None:
                    await fault.after()
            return result
        finally:
            for probe in probes:
                probe.open -= 1


class FaultyConnection(SessionConnection):
    """A connection of the pool that injects the faults of its process."""

    faults = Faults()  # none until the connection is open
    transaction_sql: str | None = None  # what the open transaction has sent

    async def _send(self, sql: str, statement: Callable[[], Awaitable[Any]]) -> Any:
        if sql.startswith("BEGIN"):
            self.transaction_sql = ""
        earlier = self.transaction_sql or ""
        if sql.endswith(("COMMIT", "ROLLBACK")):
            self.transaction_sql = None
        elif self.transaction_sql is not None:
            self.transaction_sql += sql
        return await self.faults.send(sql, earlier, statement)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        send = super().execute
        return await self._send(query, lambda: send(query, *args, timeout=timeout))

    async def fetch(self, query: str, *args: Any, timeout: float | None = None, **options: Any) -> Any:
        send = super().fetch
        return await self._send(query, lambda: send(query, *args, timeout=timeout, **options))

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None, **options: Any) -> Any:
        send = super().fetchrow
        return await self._send(query, lambda: send(query, *args, timeout=timeout, **options))

    async def fetchval(self, query: str, *args: Any, column: int = 0, timeout: float | None = None) -> Any:
        send = super().fetchval
        return await self._send(query, lambda: send(query, *args, column=column, timeout=timeout))
