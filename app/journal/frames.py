"""Encode events as frames of a server-sent event stream."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Final

from app.journal.models import JournalEvent, LargeEvent, StoredEvent

if TYPE_CHECKING:
    from app.journal.shared_bodies import SharedBodies

RETRY_FRAME: Final = b"retry: 1000\n\n"
HEARTBEAT_FRAME: Final = b": heartbeat\n\n"
MIN_CHUNK_BYTES: Final = 16 * 1024  # frames that are sent at once

Batch = Sequence[tuple[str, str, JournalEvent]]
"""Events, each with its cursor and its query's id."""


def encode_event(cursor: str, event: StoredEvent) -> bytes:
    """Return the frame of an event: id, type, and the envelope on one line."""
    return b"".join((_frame_start(cursor, event), event.body[1:], b"\n\n"))


def _frame_start(cursor: str, event: JournalEvent) -> bytes:
    """Return the frame up to the number in the envelope; the rest of the body follows, without its opening brace."""
    return b'id: %s\nevent: %s\ndata: {"seq":%d,' % (cursor.encode(), event.type.encode(), event.seq)


async def chunks(bodies: SharedBodies, tenant: str, batch: Batch) -> AsyncGenerator[bytes, None]:
    """Yield the frames of a batch in chunks. Raise EventDeleted.

    A chunk may end within a frame; the last one does not.
    """
    chunk: list[bytes] = []
    size = 0
    for cursor, query_id, event in batch:
        if isinstance(event, LargeEvent):
            yield b"".join((*chunk, _frame_start(cursor, event)))
            at = 1  # the opening brace is before the number
            async with contextlib.aclosing(bodies.slices(tenant, query_id, event)) as slices:
                async for piece in slices:
                    yield piece[at:]
                    at = 0
            chunk, size = [b"\n\n"], 2
        else:
            frame = encode_event(cursor, event)
            chunk.append(frame)
            size += len(frame)
            if size >= MIN_CHUNK_BYTES:
                yield b"".join(chunk)
                chunk, size = [], 0
    if chunk:
        yield b"".join(chunk)
