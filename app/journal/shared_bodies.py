"""Read bodies of large events separately, and share one copy among all readers of an event."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from app.base.postgres.database import Tx
from app.journal import store
from app.journal.models import LARGE_EVENT_BYTES, LargeEvent

BodyReader = Callable[[str, Callable[[Tx], Awaitable[bytes | None]]], Awaitable[bytes | None]]
"""Run a read for a tenant, retrying during outages."""


class EventDeleted(Exception):
    """The event was deleted while it was being read, or the process is stopping."""


@dataclass(slots=True, eq=False)
class SharedBody:
    """The one copy of a body, kept while a stream reads it."""

    size_bytes: int
    readers: int = 0
    body: bytes | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedBodies:
    """The bodies of large events that are being read in this process, at most `max_bytes` in total.

    If an event does not fit, each of its slices is read from the database when it is needed.
    """

    def __init__(self, read: BodyReader, max_bytes: int) -> None:
        self._read = read
        self._max_bytes = max_bytes
        self._bodies: dict[tuple[str, str, int], SharedBody] = {}
        self.shared_bytes = 0

    async def slices(self, tenant: str, query_id: str, event: LargeEvent) -> AsyncGenerator[bytes, None]:
        """Yield the body in slices. Raise EventDeleted."""
        with self._claim((tenant, query_id, event.seq), event.size_bytes) as shared:
            for at in range(0, event.size_bytes, LARGE_EVENT_BYTES):
                if shared is None:
                    yield await self._load(tenant, query_id, event.seq, at, LARGE_EVENT_BYTES)
                    continue
                async with shared.lock:
                    if shared.body is None:
                        shared.body = await self._load(tenant, query_id, event.seq, 0, event.size_bytes)
                yield shared.body[at : at + LARGE_EVENT_BYTES]

    @contextlib.contextmanager
    def _claim(self, key: tuple[str, str, int], size_bytes: int) -> Iterator[SharedBody | None]:
        """Hold the copy of this body while the block runs; None if there is no room for it."""
        shared = self._bodies.get(key)
        if shared is None:
            if self.shared_bytes + size_bytes > self._max_bytes:
                yield None
                return
            shared = self._bodies[key] = SharedBody(size_bytes)
            self.shared_bytes += size_bytes
        shared.readers += 1
        try:
            yield shared
        finally:
            shared.readers -= 1
            if shared.readers == 0:
                del self._bodies[key]
                self.shared_bytes -= size_bytes

    async def _load(self, tenant: str, query_id: str, seq: int, at: int, size: int) -> bytes:
        body = await self._read(
            tenant, lambda tx: store.load_body_slice(tx, query_id=query_id, seq=seq, at=at, size=size)
        )
        if body is None:
            raise EventDeleted(f"The event {seq} of query {query_id!r} was deleted.")
        return body
