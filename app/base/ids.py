"""Prefixed, time-ordered ids: `qry_` and 26 characters that sort, as text, by creation time.

The 26 characters are 128 bits in lower-case Crockford base32: 48 bits of Unix milliseconds (10 characters), a
20-bit counter that starts at a random value in the lower half each millisecond (4), and 60 random bits (12).
Crockford's digits precede its letters in ASCII, so the order holds in the C collation. The layout follows
UUIDv7 without its version bits, so that each part ends on a character. Creating an id takes about 0.9 µs. Ids
are not secrets: the tenant's key guards what they name.
"""

from __future__ import annotations

import os
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final

SUFFIX_CHARS: Final = 26

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS: Final = tuple(high + low for high in _ALPHABET for low in _ALPHABET)  # 10 bits at a time
_RANDOM_CHARS: Final = bytes(ord(_ALPHABET[byte & 31]) for byte in range(256))  # 5 bits of each random byte
_SUFFIX: Final = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}")
_PREFIX: Final = re.compile(r"[a-z]{2,8}_")

CLOCK_SLACK: Final = timedelta(hours=1)
_FIRST_MOMENT: Final = datetime(1971, 1, 1, tzinfo=UTC)
_LAST_MOMENT: Final = datetime(2400, 1, 1, tzinfo=UTC)
_END_MS: Final = 2**48  # the year 10889
_END_COUNTER: Final = 2**20


class _Ticker:
    """Generate (time, counter) texts, each greater than the previous one: if the clock goes back, the time stays at the
    last millisecond."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ms = -1
        self._ms_text = ""
        self._counter = 0

    def next(self, ms: int) -> str:
        with self._lock:
            counter = self._counter + 1
            if ms > self._ms:
                counter = self._begin(ms)
            elif counter >= _END_COUNTER:
                counter = self._begin(self._ms + 1)
            self._counter = counter
            return f"{self._ms_text}{_PAIRS[counter >> 10]}{_PAIRS[counter & 1023]}"

    def _begin(self, ms: int) -> int:
        self._ms = ms
        self._ms_text = _time_text(ms)
        return int.from_bytes(os.urandom(3)) % (_END_COUNTER // 2)


def _time_text(ms: int) -> str:
    if not 0 <= ms < _END_MS:
        raise ValueError(f"the time {ms} ms does not fit into the 48 bits of an id")
    return "".join(_PAIRS[ms >> shift & 1023] for shift in (40, 30, 20, 10, 0))


# Ordering within a process needs state that the process shares. A fork copies it, which is harmless because of the 60
# random bits.
_ticker = _Ticker()


def new_id(prefix: str) -> str:
    """Return a new id: `prefix` ("qry_"; the underscore is optional) and 26 characters. The ids of a process strictly
    increase, even if its clock goes back."""
    if prefix[-1:] != "_":
        prefix += "_"
    stamp = _ticker.next(time.time_ns() // 1_000_000)
    return f"{prefix}{stamp}{os.urandom(12).translate(_RANDOM_CHARS).decode('ascii')}"


def min_id(prefix: str, clock_ms: int) -> str:
    """Return a lower bound for ids of this time (Unix milliseconds) or later, which is above all earlier ids.

    Raise ValueError for a time outside of 48 bits.
    """
    return f"{prefix}{_time_text(clock_ms):0<{SUFFIX_CHARS}}"


def id_range(prefix: str, since: datetime | None, before: datetime | None) -> tuple[str, str]:
    """Return bounds of the ids of rows whose time, by the clock of the database, is from `since` on and before `before`. They
    allow for an hour between that clock and the one that made an id; None is no bound."""
    first = _FIRST_MOMENT if since is None else max(since, _FIRST_MOMENT)
    last = _LAST_MOMENT if before is None else min(before, _LAST_MOMENT)
    lowest, highest = first - CLOCK_SLACK, last + CLOCK_SLACK
    return min_id(prefix, int(lowest.timestamp() * 1000)), min_id(prefix, int(highest.timestamp() * 1000))


def is_id(prefix: str, text: str) -> bool:
    """Return whether `text` has the shape of an id with this prefix, whether or not such an object exists."""
    if prefix[-1:] != "_":
        prefix += "_"
    return text.startswith(prefix) and _SUFFIX.fullmatch(text, len(prefix)) is not None


def suffix(id: str) -> str:
    """Return the 26 characters after the prefix. Raise ValueError if `id` is not an id."""
    prefix, tail = id[:-SUFFIX_CHARS], id[-SUFFIX_CHARS:]
    if not _PREFIX.fullmatch(prefix) or not _SUFFIX.fullmatch(tail):
        raise ValueError("not an id: a prefix such as qry_ and 26 characters are expected")
    return tail


def with_prefix(prefix: str, id: str) -> str:
    """Return `id` with another prefix: the root work record of a query has the query's suffix.

    Raise ValueError if `id` is not an id.
    """
    return f"{prefix.removesuffix('_')}_{suffix(id)}"


def time_ms(id: str) -> int:
    """Return when the id was created, in Unix milliseconds. Raise ValueError if `id` is not an id."""
    value = 0
    for char in suffix(id)[:10]:
        value = value << 5 | _ALPHABET.index(char)
    return value


def age_ms(id: str) -> int:
    """Return the age of the id in milliseconds by this process's clock, or 0 if the clock is behind its
    creator's."""
    return max(time.time_ns() // 1_000_000 - time_ms(id), 0)
