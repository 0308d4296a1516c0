"""Times on the wire: RFC 3339 UTC with milliseconds."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """`2026-11-21T17:32:34.000Z` for an aware datetime."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def now_text() -> str:
    """The present moment of this process's clock; for events only: leases and deadlines are the database's."""
    seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanos // 1_000_000:03d}Z"


def uptime_s() -> float:
    """Seconds that pass whatever happens to this process or its machine: also while it is stopped or suspended."""
    return time.clock_gettime(_UPTIME)


_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
