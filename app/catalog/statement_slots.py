"""Slots for statements: how many may run on a source at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _SourceSlots:
    in_use: int = 0
    waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)
    """The limit that each waiting statement knows, and its turn."""


class StatementSlots:
    """The slots of all sources in use. A limit that changes applies to all statements of the source that begin from then
    on. Not thread-safe."""

    def __init__(self) -> None:
        self._sources: dict[tuple[str, str], _SourceSlots] = {}

    @property
    def sources(self) -> int:
        """Return how many sources have statements that run or wait."""
        return len(self._sources)

    @asynccontextmanager
    async def slot(self, tenant: str, source: str, limit: int) -> AsyncIterator[None]:
        """Wait, in order, until fewer than `limit` statements run on the source, and hold a slot while the block runs."""
        key = tenant, source
        slots = self._sources.setdefault(key, _SourceSlots())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        slots.waiting.append((limit, turn))
        self._admit(key, slots)
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                slots.in_use -= 1
            else:
                # `_admit` may have dropped it already.
                with contextlib.suppress(ValueError):
                    slots.waiting.remove((limit, turn))
            self._admit(key, slots)

    def _admit(self, key: tuple[str, str], slots: _SourceSlots) -> None:
        while slots.waiting and slots.in_use < slots.waiting[0][0]:
            _, turn = slots.waiting.popleft()
            if not turn.cancelled():
                slots.in_use += 1
                turn.set_result(None)
        if not slots.in_use and not slots.waiting and self._sources.get(key) is slots:
            del self._sources[key]
