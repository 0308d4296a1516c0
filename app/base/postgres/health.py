"""Readiness of this process and its database, for `/readyz` and `/metrics`."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from app.base.errors import Unavailable
from app.base.logs.structured import structlog
from app.base.postgres.database import Database
from app.base.postgres.migrate import schema_is_current

log = structlog.get_logger(__name__)

WRITE_CHECK_INTERVAL_S: Final = 1.0
MAX_WRITE_CHECK_WAIT_S: Final = 1.0

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


class HealthMonitor:
    """The state of a process and its database.

    `draining` is set when the process was asked to stop: it still serves but should get no more requests.
    `refusing` is set when its drain time is over: it answers every request with a 503 until its listener closes.
    Reads are checked on request; writes at most once a second, in the background, and only while there are
    requests.
    """

    def __init__(self, db: Database) -> None:
        self.draining = False
        self.refusing = False
        self._db = db
        self._schema_check: asyncio.Task[None] | None = None
        self._write_check: asyncio.Task[None] | None = None
        self._last_write_succeeded: bool | None = None
        self._next_write_check = 0.0

    async def check_reads(self) -> None:
        """Raise Unavailable unless the database responds and has this version's schema. Concurrent callers
        share one check."""
        if self._schema_check is None or self._schema_check.done():
            self._schema_check = asyncio.create_task(self._check_schema(), name="health-reads")
            self._schema_check.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._schema_check)

    async def accepts_writes(self) -> bool:
        """Return whether the last check could write. Wait at most a second for a check, except for the first
        one."""
        now = time.monotonic()
        if (self._write_check is None or self._write_check.done()) and now >= self._next_write_check:
            self._next_write_check = now + WRITE_CHECK_INTERVAL_S
            self._write_check = asyncio.create_task(self._check_writes(), name="health-writes")
        if self._write_check is not None:
            await asyncio.wait(
                [self._write_check],
                timeout=None if self._last_write_succeeded is None else MAX_WRITE_CHECK_WAIT_S,
            )
        return bool(self._last_write_succeeded)

    async def aclose(self) -> None:
        tasks = [task for task in (self._schema_check, self._write_check) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _check_schema(self) -> None:
        try:
            async with self._db.transaction("") as tx:
                current = await schema_is_current(tx.raw)
        except Unavailable as error:
            error.extra.update(reads=False, writes=False)
            raise
        if not current:
            raise Unavailable(
                "The database schema does not match this version. If it is older, run `plangate migrate`; if it is newer, "
                "replace this process with the newer version."
            )

    async def _check_writes(self) -> None:
        before, self._last_write_succeeded = self._last_write_succeeded, await self._try_write()
        if before is not False and not self._last_write_succeeded:
            log.warning("database.refuses_writes")
        elif before is False and self._last_write_succeeded:
            log.warning("database.takes_writes_again")

    async def _try_write(self) -> bool:
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
