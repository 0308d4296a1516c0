"""Readiness of this process and its database, for `/readyz` and `/metrics`."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog

from app.base.errors import Unavailable
from app.base.postgres.database import Database
from app.base.postgres.migrate import schema_is_current

log = structlog.get_logger(__name__)

CHECK_WRITES_EVERY_S: Final = 1.0
WAIT_FOR_WRITES_S: Final = 1.0

# On a standby, too, every transaction is read-only.
IS_READ_ONLY: Final = "SELECT current_setting('transaction_read_only')::boolean"
# Writes to the WAL and to no table, so that the commit is flushed and leaves nothing behind.
WRITE: Final = """
SELECT CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'local', true) END,
       pg_logical_emit_message(true, 'plangate', 'health')
"""
# A WAL segment has its blocks already, so a full disk fails what allocates blocks: here a temporary file of some 200 kB.
LITTLE_MEMORY: Final = "SET LOCAL work_mem = '64kB'"
ALLOCATE: Final = "SELECT count(*) FROM generate_series(1, 10000)"


class Health:
    """The state of a process and of its database. `draining` is set when the process was told to stop: it still serves,
    and should get no more requests. Reads are checked when somebody asks; writes at most once a second, in the
    background, and only while somebody asks."""

    def __init__(self, db: Database) -> None:
        self.draining = False
        self._db = db
        self._reading: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._writes: bool | None = None
        self._next_write_check = 0.0

    async def check_reads(self) -> None:
        """Raise Unavailable unless the database answers and has the schema of this version. Callers that come during a
        check share its result."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(), name="health-reads")
            self._reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._reading)

    async def writes(self) -> bool:
        """Return whether the database took a write when that was last checked. A check that takes longer than a second
        is not waited for, unless it is the first."""
        now = time.monotonic()
        if (self._writing is None or self._writing.done()) and now >= self._next_write_check:
            self._next_write_check = now + CHECK_WRITES_EVERY_S
            self._writing = asyncio.create_task(self._check_writes(), name="health-writes")
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=None if self._writes is None else WAIT_FOR_WRITES_S)
        return bool(self._writes)

    async def aclose(self) -> None:
        tasks = [task for task in (self._reading, self._writing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async with self._db.transaction("") as tx:
                current = await schema_is_current(tx.raw)
        except Unavailable as error:
            error.extra.update(reads=False, writes=False)
            raise
        if not current:
            raise Unavailable(
                "The database's schema is not that of this version: if it is older, run `plangate migrate`; if it is newer, "
                "replace this process by one of the newer version."
            )

    async def _check_writes(self) -> None:
        before, self._writes = self._writes, await self._write()
        if before is not False and not self._writes:
            log.warning("database.refuses_writes")
        elif before is False and self._writes:
            log.warning("database.takes_writes_again")

    async def _write(self) -> bool:
        try:
            async with self._db.transaction("") as tx:
                if await tx.value(IS_READ_ONLY):
                    return False
                await tx.run(LITTLE_MEMORY)
                await tx.value(ALLOCATE)
                await tx.value(WRITE)
        except Unavailable:
            return False
        except Exception:
            log.exception("database.write_check_failed")
            return False
        return True
