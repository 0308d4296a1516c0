"""Records of processes: start, heartbeat, end. This module decides which processes have died; the function claim_queries
decides what that means for their queries.

A process with the embedded database holds a file lock in the data directory, which the kernel drops when the process ends:
a free lock is a death, and a held one never is. Any other process is presumed dead after a minute without a heartbeat in
which the database was writable; that is taken back when it reports again. The exit of a child process is seen by its parent.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from app.base.errors import Unavailable
from app.base.logs.structured import structlog
from app.base.postgres.database import Database
from app.engine import lease_store

log = structlog.get_logger(__name__)

SILENT_S: Final = 60.0
"""Seconds without a heartbeat, counted while the database was writable, after which a process is presumed dead."""


class ProcessLocks:
    """Lock files of the processes that share a data directory, one per process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handles: dict[str, int] = {}

    def hold(self, process_id: str) -> None:
        """Lock the file of this process until it ends. Register the process only afterwards."""
        if process_id in self._handles:
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(self._file(process_id), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._handles[process_id] = handle

    def is_free(self, process_id: str) -> bool:
        """Return whether no process holds this lock, which means that its process has ended. If so, remove the lock file."""
        path = self._file(process_id)
        try:
            handle = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return True  # it existed before its process was registered: its process ended, or the data were restored
        except OSError:
            return False  # another account's: nobody can say
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        else:
            path.unlink(missing_ok=True)
            return True
        finally:
            os.close(handle)

    def release(self, process_id: str) -> None:
        """Remove the lock of a process that has recorded its end."""
        handle = self._handles.pop(process_id, None)
        if handle is not None:
            self._file(process_id).unlink(missing_ok=True)
            os.close(handle)

    def _file(self, process_id: str) -> Path:
        return self._folder / f"{process_id}.lock"


class ProcessRecord:
    """The record of this process, and its view of the others."""

    def __init__(
        self,
        db: Database,
        id: str,
        lease_s: float,
        *,
        locks: ProcessLocks | None = None,
        is_child: bool = False,
        silent_s: float = SILENT_S,
    ) -> None:
        """Args:
        locks: where the processes of this database hold file locks, if they share a machine and a data directory.
        is_child: this is a child process, which its parent registers.
        silent_s: seconds of writable time without a heartbeat after which a process is presumed dead.
        """
        self._db = db
        self.id = id
        self._lease_s = lease_s
        self._locks = locks
        self._silent_s = silent_s
        self.registered = is_child
        """Whether this process may own leases: only what happens to a registered process is on record."""

    async def register(self) -> None:
        """Record the start of this process, once. Raises Unavailable."""
        if self.registered:
            return
        if self._locks is not None:
            await asyncio.to_thread(self._locks.hold, self.id)
        await lease_store.register_process(
            self._db,
            id=self.id,
            parent_id=None,
            host=socket.gethostname()[:255],
            pid=os.getpid(),
            holds_lock=self._locks is not None,
        )
        self.registered = True

    async def report(
        self, leases: Sequence[tuple[str, str, int]], lease_s: float, closing: Sequence[str] = ()
    ) -> set[str]:
        """Write a heartbeat and renew `leases`; return the ids that this process still holds. `closing`: the closed tenants
        whose queries it is still stopping. Raise Unavailable."""
        return await lease_store.report_process(
            self._db, id=self.id, leases=leases, lease_s=lease_s, closing=closing
        )

    async def find_deaths(self) -> int:
        """Record the deaths of other processes that can be known by now; return how many. Raises Unavailable."""
        dead = await lease_store.presume_dead(self._db, silent_s=self._silent_s)
        if self._locks is not None:
            for id in await lease_store.locked_processes(self._db):
                if id != self.id and await asyncio.to_thread(self._locks.is_free, id):
                    dead += await lease_store.end_process(
                        self._db, id=id, reason="died", lease_s=self._lease_s
                    )
        if dead:
            log.warning("process.died", count=dead)
            self._db.metrics.process_deaths.inc(dead)
        return dead

    async def end(self) -> None:
        """Record that this process stops in good order; its remaining leases are released."""
        if not self.registered:
            return
        self.registered = False
        with suppress(Unavailable):
            await lease_store.end_process(self._db, id=self.id, reason="stopped", lease_s=self._lease_s)
        if self._locks is not None:
            self._locks.release(self.id)
