"""Frames of a stream: small chunks and shared bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.journal import frames, store
from app.journal.models import HEAD_BYTES, LARGE_EVENT_BYTES, LargeEvent, StoredEvent
from app.journal.shared_bodies import EventDeleted, SharedBodies

MEBIBYTE = 1024 * 1024
BODY = b'{"type":"custom","data":"' + b"x" * (4 * MEBIBYTE) + b'"}'
LARGE = LargeEvent(7, "custom", len(BODY), BODY[:HEAD_BYTES])


class Journal:
    """One large event, as the database gives it."""

    def __init__(self, body: bytes | None = BODY) -> None:
        self.body = body
        self.reads: list[int] = []

    async def read(self, _tenant: str, read: Callable[[Any], Awaitable[bytes | None]]) -> bytes | None:
        return await read(self)

    async def value(self, sql: str, *args: Any) -> bytes | None:
        assert sql == store.BODY_SLICE
        *_, begin, size = args
        self.reads.append(size)
        await asyncio.sleep(0)
        return None if self.body is None else self.body[begin - 1 : begin - 1 + size]

    tenant = "acme"


async def encoded(bodies: SharedBodies, batch: frames.Batch) -> list[bytes]:
    return [chunk async for chunk in frames.chunks(bodies, "acme", batch)]


@pytest.mark.parametrize("room", [len(BODY), 0])
async def test_a_large_event_is_sent_in_slices(room: int) -> None:
    journal = Journal()
    small = StoredEvent(6, "text", b'{"type":"text"}')
    chunks = await encoded(SharedBodies(journal.read, room), [("c6", "qry_1", small), ("c7", "qry_1", LARGE)])
    assert max(map(len, chunks)) <= LARGE_EVENT_BYTES
    assert b"".join(chunks) == (
        b'id: c6\nevent: text\ndata: {"seq":6,"type":"text"}\n\n'
        b'id: c7\nevent: custom\ndata: {"seq":7,' + BODY[1:] + b"\n\n"
    )
    assert max(journal.reads) == (len(BODY) if room else LARGE_EVENT_BYTES)


async def test_readers_of_one_large_event_share_one_copy() -> None:
    journal = Journal()
    bodies = SharedBodies(journal.read, len(BODY))
    streams = [frames.chunks(bodies, "acme", [("c", "qry_1", LARGE)]) for _ in range(60)]
    for _ in range(3):
        await asyncio.gather(*(anext(s) for s in streams))
    assert (bodies.shared_bytes, journal.reads) == (len(BODY), [len(BODY)])
    for stream in streams:
        await stream.aclose()
    assert bodies.shared_bytes == 0


async def test_deleting_a_large_event_ends_its_stream() -> None:
    journal = Journal()
    bodies = SharedBodies(journal.read, 0)
    stream = frames.chunks(bodies, "acme", [("c", "qry_1", LARGE)])
    await anext(stream)
    journal.body = None
    with pytest.raises(EventDeleted):
        await anext(stream)


async def test_chunks_of_many_events_stay_small() -> None:
    batch = [(f"c{n}", "qry_1", StoredEvent(n, "text", b'{"text":"%s"}' % (b"x" * 500))) for n in range(200)]
    chunks = await encoded(SharedBodies(Journal().read, 0), batch)
    assert max(map(len, chunks)) < frames.MIN_CHUNK_BYTES + 1000
    assert b"".join(chunks).count(b"\n\n") == 200
