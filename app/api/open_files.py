"""The limit on open files, and how many of them connections of clients may use."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

MAX_DERIVED_CONNECTIONS: Final = 20_000
"""More only if PLANGATE_MAX_CONNECTIONS says so: each idle stream needs some 50 KB of memory."""
FIXED_RESERVE: Final = 128
"""Libraries, logs, the listener, bodies of files, subprocesses."""
MIN_BACKLOG: Final = 128
MAX_BACKLOG: Final = 2048


def raise_open_files() -> int:
    """Raise the soft limit on open files to the hard limit, and return the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS refuses "unlimited"
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else soft


def reserved_files(limit: int, model_streams: int, pool_size: int) -> int:
    """Return how many of `limit` open files connections of clients never use: at least an eighth, at most half. Model
    streams take most of them; queries that call tools have none open meanwhile."""
    needed = FIXED_RESERVE + pool_size + model_streams
    return min(limit // 2, max(needed, limit // 8))


def connection_bound(limit: int, reserve: int, requested: int | None) -> int:
    """Return how many connections of clients a process may have. Raise SystemExit if more are requested than open files allow."""
    available = limit - reserve
    if requested is None:
        return min(MAX_DERIVED_CONNECTIONS, available)
    if requested > available:
        raise SystemExit(
            f"PLANGATE_MAX_CONNECTIONS is {requested}, but the limit on open files is {limit}, and {reserve} of them are "
            f"reserved. Set it to {available} or less, or raise the hard limit (ulimit -Hn, LimitNOFILE of systemd)."
        )
    return requested


def backlog(reserve: int) -> int:
    """Return how many connections the kernel may hold for the listener: what it accepts at once fits the reserve."""
    return max(MIN_BACKLOG, min(MAX_BACKLOG, reserve // 2))
