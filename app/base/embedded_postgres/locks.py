"""`flock` for the embedded Postgres: the kernel drops a lock with its last holder, so kill -9 leaks none.

Three files lie in the data directory. `start.lock` is held while someone starts or stops the server.
`users.lock` is shared by every process that uses it. `server.lock` is inherited by `initdb`, the postmaster
and all their children: while it is taken, some process of the server lives, whatever a pid file says, and
also when that process is in another container on the same volume.
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
    """A descriptor of the lock file, made when missing. It is not inherited unless a child is given it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def try_exclusive(lock: int) -> bool:
    """Take the lock alone if nobody holds it; a lock that this descriptor shared is given up for the try."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def share(lock: int) -> None:
    """Hold the lock with others. Only called under `start.lock`, so nobody holds it alone for long."""
    fcntl.flock(lock, fcntl.LOCK_SH)


def wait_exclusive(lock: int, seconds: float) -> bool:
    """Wait for the lock, at most `seconds`."""
    deadline = time.monotonic() + seconds
    while not try_exclusive(lock):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_INTERVAL_SECONDS)
    return True


def release(lock: int) -> None:
    """Give the lock up and close it. A child that was forked meanwhile does not keep it."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


@contextmanager
def hold(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock alone for the block.

    Raises:
        EmbeddedPostgresError: someone else held it for all of `seconds`.
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
