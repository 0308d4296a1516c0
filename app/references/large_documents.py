"""Large documents of references: taken apart by a process of their own each (child.py), two at a time.

What the service holds of one is its text, until the child has it, and its canonical form; the parsed value is in the
child, with a bound on its memory. Why so, with what was measured: docs/decisions/0011.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson

from app.base.json.limits import LIMITS
from app.base.json.process_pool import JsonProcess, JsonProcessPool
from app.references.values import MAX_REFERENCE_BYTES, ValuePart, ValueRequest

TURN_S: Final = 4.0
"""How long a document waits for its turn: a request is answered within five seconds."""

CHILD_BYTES: Final = 16 * MAX_REFERENCE_BYTES
"""The memory of a child beyond which it is ended. Most values take 5 to 10 times their size, with what the service
itself holds of them; only what has next to nothing in its parts takes more than 12."""


class LargeDocuments:
    """The turns of a process."""

    def __init__(self, child_bytes: int = CHILD_BYTES, turn_s: float = TURN_S) -> None:
        self._children = JsonProcessPool("app.references.json_worker", child_bytes)
        self._turn_s = turn_s

    @asynccontextmanager
    async def taken_apart(self, body: bytearray) -> AsyncIterator[LargeDocument]:
        """Parse a request body, which is emptied. Raise Malformed, TooLarge or TooManyRequests."""
        async with self._children.one(self._turn_s) as child:
            answer, _ = await child.asked("fields", body, mostContainers=LIMITS.containers)
            yield LargeDocument(child, answer["fields"], answer["hasValue"])

    async def part(self, stored: bytes, path: str, limit: int) -> ValuePart:
        """Return `values.value_part` of a stored value. Raise Invalid or TooLarge."""
        async with self._children.one() as child:
            answer, _ = await child.asked("part", stored, path=path, limit=limit)
            return ValuePart(answer["content"], answer["shownBytes"])


class LargeDocument:
    """A parsed request body in a child: its small fields are here, its value is there."""

    def __init__(self, child: JsonProcess, fields: dict[str, Any] | None, has_value: bool) -> None:
        self._child = child
        self.fields = fields
        """Of the object that the body is; None where it is none."""
        self.has_value = has_value

    async def packed(self, asked: ValueRequest, glimpse: Any) -> tuple[bytearray, bytes]:
        """Return `values.pack_value` of the value; callable once. Raise Invalid or TooLarge."""
        answer, data = await self._child.asked(
            "pack",
            kind=asked.kind,
            schema=asked.schema,
            fields=asked.fields,
            maxBytes=asked.max_bytes,
            glimpse=glimpse,
        )
        self._child.end()  # what it holds is not needed while the value is stored
        return data, orjson.dumps(answer["glimpse"])
