"""Ids of spans, computed from the ids of queries and work records and never stored (docs/decisions/0013).

Any process that ends a piece of work, even days later, gives its span the same ids, and a trace id leads to
its query.
"""

from __future__ import annotations

import re
from typing import Final

from app.base.ids import suffix

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_SPAN_BITS: Final = 64


def trace_id(query_id: str) -> int:
    """Return the 128 bits of the query's id. Its last 60 are random, as samplers and W3C Trace Context
    require."""
    return _number(query_id)


def span_id(work_id: str) -> int:
    """Return the last 64 bits of the record's id, 60 of them random. Never 0, which means "no span"."""
    return _number(work_id) % 2**_SPAN_BITS or 1


def traceparent(query: str, work: str) -> str:
    """Return the W3C Trace Context header that makes the callee a child of this work record."""
    return f"00-{trace_id(query):032x}-{span_id(work):016x}-01"


def parse_traceparent(header: str) -> tuple[int, int] | None:
    """Return the trace id and span id that a caller sent, or None if the header is invalid."""
    match = _PARENT.fullmatch(header)
    if match is None:
        return None
    trace, span = int(match[1], 16), int(match[2], 16)
    return (trace, span) if trace and span else None


def _number(id: str) -> int:
    value = 0
    for char in suffix(id):
        value = value << 5 | _ALPHABET.index(char)
    return value
