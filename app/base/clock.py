"""Format RFC 3339 timestamps and parse `retry-after` headers."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def rfc3339(moment: datetime) -> str:
    """Format an aware datetime as UTC with milliseconds: `2026-11-21T17:32:34.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def now_text() -> str:
    """Return this process's current time as RFC 3339 text. For events only: leases and deadlines use the
    database's clock."""
    seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanos // 1_000_000:03d}Z"


def uptime_s() -> float:
    """Return a monotonic clock in seconds that also advances while the process is stopped or the machine is
    suspended."""
    return time.clock_gettime(_UPTIME)


_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait that a response asks for, in seconds, or None. `retry-after` is a number of seconds or
    an HTTP date."""
    milliseconds = _parse_wait(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _parse_wait(value)
    if seconds is not None or value is None:
        return seconds
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _parse_wait(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
