"""Limits above which JSON is processed off the event loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """Sizes from which work on JSON leaves the event loop, and what one document may hold."""

    inline_bytes: int = 256 * 1024
    """Work on more bytes of JSON than this goes to a thread: that many take 2 to 5 ms."""

    inline_parts: int = 1_000
    """So does work on a value with more parts than this. 64 characters of a string count as one."""

    inline_parse_bytes: int = 128 * 1024
    """So does parsing more bytes from outside than this, which are checked as well."""

    process_bytes: int = 1024 * 1024
    """Work on more than this goes to a process of its own, if it keeps the interpreter: parsing that many bytes takes
    25 ms. A thread parses more than this in turns with the others, which takes half as long again."""

    containers: int = 1_000_000
    """Objects and arrays of one document: each takes many times its text in memory."""


LIMITS: Final = JsonLimits()
