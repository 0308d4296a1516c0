"""Parsing of JSON that may be large, without blocking other work."""

from __future__ import annotations

import asyncio
import gc

from app.base.errors import TooLarge
from app.base.json import low_memory, strict_json
from app.base.json.limits import LIMITS


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
        if len(body) <= LIMITS.inline_parse_bytes:
            return parse_without_collections(body)
        if (
            body.count(b"[") + body.count(b"{") > LIMITS.containers
            and strict_json.containers(body) > LIMITS.containers
        ):
            raise TooLarge(f"The body may have {LIMITS.containers} objects and arrays.")
        parse = (
            low_memory.parse_cooperative if len(body) > LIMITS.process_bytes else parse_without_collections
        )
        async with self._turns:
            return await asyncio.to_thread(parse, body)
