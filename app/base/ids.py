"""Prefixed, time-ordered ids: `qry_` and 26 characters that sort, as text, by the time they were made.

The 26 characters are 128 bits in lower-case Crockford base32: 48 bits of Unix milliseconds (10 characters), a
counter of 20 bits that starts anywhere in the lower half in each millisecond (4), and 60 random bits (12).
Crockford's digits stand before its letters in ASCII, so the order holds in the C collation. The layout is
UUIDv7's idea without its version bits, cut so that each part falls on a character. An id costs about 0.9 µs.
An id is a name and no secret: what it names is guarded by the tenant's key.
"""

from __future__ import annotations

import os
import re
import threading
import time
from typing import Final

SUFFIX_CHARS: Final = 26

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS: Final = tuple(high + low for high in _ALPHABET for low in _ALPHABET)  # 10 bits at a time
_RANDOM_CHARS: Final = bytes(ord(_ALPHABET[byte & 31]) for byte in range(256))  # 5 bits of each random byte
_SUFFIX: Final = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}")
_PREFIX: Final = re.compile(r"[a-z]{2,8}_")

_END_MS: Final = 2**48  # the year 10889
_END_COUNTER: Final = 2**20


class _Ticker:
    """Gives (time, counter) texts, each greater than the one before within its millisecond.

    A steady ticker never goes back: while the clock does, it stays at the last millisecond.
    """

    def __init__(self, *, steady: bool) -> None:
        self._steady = steady
        self._lock = threading.Lock()
        self._ms = -1
        self._ms_text = ""
        self._counter = 0

    def next(self, ms: int) -> str:
        with self._lock:
            counter = self._counter + 1
            if ms > self._ms or (ms < self._ms and not self._steady):
                counter = self._begin(ms)
            elif counter >= _END_COUNTER:
                counter = self._begin(self._ms + 1)
            self._counter = counter
            return f"{self._ms_text}{_PAIRS[counter >> 10]}{_PAIRS[counter & 1023]}"

    def _begin(self, ms: int) -> int:
        if not 0 <= ms < _END_MS:
            raise ValueError(f"{ms} ms is not a time an id can carry")
        self._ms = ms
        self._ms_text = "".join(_PAIRS[ms >> shift & 1023] for shift in (40, 30, 20, 10, 0))
        return int.from_bytes(os.urandom(3)) % (_END_COUNTER // 2)


# Order within a process needs state that the process shares. It holds nothing that a test would want to
# replace: whoever needs a certain time passes `clock_ms`. A fork copies it, which the 60 random bits make
# harmless.
_clock_ticker = _Ticker(steady=True)
_explicit_ticker = _Ticker(steady=False)


def new_id(prefix: str, clock_ms: int | None = None) -> str:
    """A new id: `prefix` ("qry_"; the underscore may be left out) and 26 characters.

    Without `clock_ms` (Unix milliseconds) the ids of a process are strictly increasing, also when its clock
    goes back. With it, the id carries exactly that time, and ids of one time are increasing as long as no
    other time comes between; these and the ids of the clock do not order each other within a millisecond.

    Raises ValueError for a time outside of 48 bits, or more than half a million ids at one `clock_ms`.
    """
    if prefix[-1:] != "_":
        prefix += "_"
    stamp = (
        _clock_ticker.next(time.time_ns() // 1_000_000)
        if clock_ms is None
        else _explicit_ticker.next(clock_ms)
    )
    return f"{prefix}{stamp}{os.urandom(12).translate(_RANDOM_CHARS).decode('ascii')}"


def min_id(prefix: str, clock_ms: int) -> str:
    """Below every id that carries this time (Unix milliseconds) or a later one, and above all earlier ones.

    Raises ValueError for a time outside of 48 bits.
    """
    if not 0 <= clock_ms < _END_MS:
        raise ValueError(f"{clock_ms} ms is not a time an id can carry")
    stamp = "".join(_PAIRS[clock_ms >> shift & 1023] for shift in (40, 30, 20, 10, 0))
    return f"{prefix}{stamp}{'0' * (SUFFIX_CHARS - len(stamp))}"


def is_id(prefix: str, text: str) -> bool:
    """Whether `text` has the shape of an id with this prefix; it says nothing about whether it exists."""
    if prefix[-1:] != "_":
        prefix += "_"
    return text.startswith(prefix) and _SUFFIX.fullmatch(text, len(prefix)) is not None


def suffix(id: str) -> str:
    """The 26 characters after the prefix. Raises ValueError when `id` is not an id."""
    prefix, tail = id[:-SUFFIX_CHARS], id[-SUFFIX_CHARS:]
    if not _PREFIX.fullmatch(prefix) or not _SUFFIX.fullmatch(tail):
        raise ValueError("not an id: a prefix such as qry_ and 26 characters are expected")
    return tail


def with_prefix(prefix: str, id: str) -> str:
    """The id that shares its suffix with `id`: the root work record of a query is named after the query.

    Raises ValueError when `id` is not an id.
    """
    return f"{prefix.removesuffix('_')}_{suffix(id)}"


def time_ms(id: str) -> int:
    """When the id was made, in Unix milliseconds. Raises ValueError when `id` is not an id."""
    value = 0
    for char in suffix(id)[:10]:
        value = value << 5 | _ALPHABET.index(char)
    return value


def age_ms(id: str) -> int:
    """How long ago the id was made, in milliseconds by this process's clock; 0 if that is behind the maker's."""
    return max(time.time_ns() // 1_000_000 - time_ms(id), 0)
