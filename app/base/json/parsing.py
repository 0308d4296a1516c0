"""JSON from outside that may be large, parsed so that nobody else waits for it."""

from __future__ import annotations

import asyncio
import gc
from typing import Final

from app.base.errors import TooLarge
from app.base.json import low_memory, strict_json

MAX_CONTAINERS: Final = 1_000_000
"""Objects and arrays of one document: each takes many times its text in memory."""

AT_ONCE_BYTES: Final = 128 * 1024
UNHURRIED_BYTES: Final = 1024 * 1024
"""From here on the others get their turn while a document is parsed, which takes half as long again."""


def parse_without_collections(body: bytes) -> strict_json.JsonValue:
    """Return what `jsongate.parse` returns, with the garbage collector off meanwhile: parsed JSON has no cycles, and
    looking for them takes four times as long as parsing 1 MiB of brackets, with the GIL held. Raises Malformed."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return strict_json.parse(body)
    finally:
        if enabled:
            gc.enable()


class Parser:
    """Parses small documents at once, large ones in a thread, two at a time."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(2)

    async def parse(self, body: bytes) -> strict_json.JsonValue:
        """Return the value of a document, like `strict_json.parse`. Raise Malformed or TooLarge."""
        if len(body) <= AT_ONCE_BYTES:
            return parse_without_collections(body)
        if (
            body.count(b"[") + body.count(b"{") > MAX_CONTAINERS
            and strict_json.containers(body) > MAX_CONTAINERS
        ):
            raise TooLarge(f"The body may have {MAX_CONTAINERS} objects and arrays.")
        parse = low_memory.parsed_unhurried if len(body) > UNHURRIED_BYTES else parse_without_collections
        async with self._turns:
            return await asyncio.to_thread(parse, body)
