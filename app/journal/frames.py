"""Encode events as frames of a server-sent event stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final

from app.journal.limits import StreamLimits
from app.journal.models import JournalEvent, LargeEvent
from app.journal.shared_bodies import SharedBodies

RETRY_FRAME: Final = b"retry: 1000\n\n"
HEARTBEAT_FRAME: Final = b": heartbeat\n\n"
MIN_CHUNK_BYTES: Final = 16 * 1024  # frames that are sent at once

Batch = Sequence[tuple[str, str, JournalEvent]]
"""Events, each with its cursor and its query's id."""


async def limit_events(
    batches: AsyncGenerator[Batch, None], limit: int | None
) -> AsyncGenerator[Batch, None]:
    """Yield the batches until they have had `limit` events."""
    left = limit
    async with contextlib.aclosing(batches):
        async for batch in batches:
            yield batch if left is None else batch[:left]
            if left is not None and (left := left - len(batch)) <= 0:
                return


async def encode_frames(
    bodies: SharedBodies,
    tenant: str,
    batches: AsyncGenerator[Batch, None],
    is_allowed: Callable[[], Awaitable[bool]],
    limits: StreamLimits,
    head: bytes = RETRY_FRAME,
) -> AsyncGenerator[bytes, None]:
    """Yield the frames of these batches in chunks, and a heartbeat while they are empty.

    End when `is_allowed` returns False because the reader's key was revoked.
    """
    clock = asyncio.get_running_loop().time
    sent_at = clock()
    check_at = sent_at + limits.key_check_interval_s
    async with contextlib.aclosing(batches):
        async for batch in batches:
            async with contextlib.aclosing(_chunks(bodies, tenant, batch)) as chunks:
                async for chunk in chunks:
                    if clock() >= check_at:
                        if not await is_allowed():
                            return
                        check_at = clock() + limits.key_check_interval_s
                    if chunk or clock() - sent_at >= limits.heartbeat_interval_s:
                        yield head + (chunk or HEARTBEAT_FRAME)
                        head = b""
                        sent_at = clock()
    if head:
        yield head


async def _chunks(bodies: SharedBodies, tenant: str, batch: Batch) -> AsyncGenerator[bytes, None]:
    """Yield the frames of a batch: id, type, and the envelope on one line. Raise EventDeleted.

    A chunk may end within a frame; the last one does not. An empty batch has one empty chunk.
    """
    chunk: list[bytes] = []
    size = 0
    for cursor, query_id, event in batch:
        start = b'id: %s\nevent: %s\ndata: {"seq":%d,' % (cursor.encode(), event.type.encode(), event.seq)
        if isinstance(event, LargeEvent):
            yield b"".join((*chunk, start))
            at = 1  # the opening brace is before the number
            async with contextlib.aclosing(bodies.slices(tenant, query_id, event)) as slices:
                async for piece in slices:
                    yield piece[at:]
                    at = 0
            chunk, size = [b"\n\n"], 2
        else:
            chunk += (start, event.body[1:], b"\n\n")
            size += len(start) + len(event.body)
            if size >= MIN_CHUNK_BYTES:
                yield b"".join(chunk)
                chunk, size = [], 0
    if chunk or not batch:
        yield b"".join(chunk)
