"""The identity of spans: computed from the ids of queries and work records, kept nowhere (docs/decisions/0013).

Whoever ends a piece of work, in whatever process and after how many days, gives its span the same ids, and whoever has
a trace id has the query's id.
"""

from __future__ import annotations

import re
from typing import Final

from app.base.ids import suffix

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_SPAN_BITS: Final = 64


def trace_id(query_id: str) -> int:
    """The 128 bits of the query's id; the last 60 are random, as samplers and W3C Trace Context want them."""
    return _number(query_id)


def span_id(work_id: str) -> int:
    """The last 64 bits of the record's id, 60 of them random; never the 0 that means no span."""
    return _number(work_id) % 2**_SPAN_BITS or 1


def query_id_from_trace(trace: int) -> str:
    """The query of a trace: the inverse of `trace_id`."""
    return "qry_" + "".join(_ALPHABET[trace >> shift & 31] for shift in range(125, -1, -5))


def traceparent(query: str, work: str) -> str:
    """The header of W3C Trace Context that makes what is called a child of this work."""
    return f"00-{trace_id(query):032x}-{span_id(work):016x}-01"


def parse_traceparent(header: str) -> tuple[int, int] | None:
    """Trace id and span id that a caller sent, or None where the header is none that this service understands."""
    found = _PARENT.fullmatch(header)
    if found is None:
        return None
    trace, span = int(found[1], 16), int(found[2], 16)
    return (trace, span) if trace and span else None


def _number(id: str) -> int:
    value = 0
    for char in suffix(id):
        value = value << 5 | _ALPHABET.index(char)
    return value
