"""`flock` locks of the embedded Postgres. The kernel releases a lock with its last holder, so kill -9 leaks
none.

The data directory has three lock files. A process holds `start.lock` while it starts or stops the server. All
processes that use the server share `users.lock`. `initdb`, the postmaster and all their children inherit
`server.lock`: while it is held, some process of the server is alive, whatever a pid file says, even in
another container on the same volume.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.base.embedded_postgres.faults import EmbeddedPostgresError

POLL_INTERVAL_SECONDS = 0.01


def open_lock(path: Path) -> int:
    """Return a descriptor of the lock file, created if missing. Children inherit it only if it is passed to
    them."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def try_exclusive(lock: int) -> bool:
    """Take the lock exclusively if it is free, and return whether that worked. A shared hold is given up in
    any case."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def share(lock: int) -> None:
    """Share the lock. Call it only under `start.lock`, so that no exclusive holder keeps it for long."""
    fcntl.flock(lock, fcntl.LOCK_SH)


def wait_exclusive(lock: int, seconds: float) -> bool:
    """Wait for the lock at most `seconds`; return whether it was taken."""
    deadline = time.monotonic() + seconds
    while not try_exclusive(lock):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_INTERVAL_SECONDS)
    return True


def release(lock: int) -> None:
    """Release the lock and close it. A child that was forked meanwhile does not keep it."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


@contextmanager
def hold(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock exclusively while the block runs.

    Raises:
        EmbeddedPostgresError: another process held it for all of `seconds`.
    """
    lock = open_lock(path)
    try:
        if not wait_exclusive(lock, seconds):
            raise EmbeddedPostgresError(
                f"Another process has been starting or stopping the embedded Postgres for {seconds:.0f} s "
                f"(it holds {path}). Wait for it or end it, then start again."
            )
        yield
    finally:
        release(lock)
