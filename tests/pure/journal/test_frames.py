"""Frames of a stream: small chunks, shared bodies, heartbeats between frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from app.journal import frames, store
from app.journal.limits import StreamLimits
from app.journal.models import LARGE_EVENT_BYTES, LargeEvent, StoredEvent
from app.journal.shared_bodies import EventDeleted, SharedBodies

MEBIBYTE = 1024 * 1024
BODY = b'{"type":"custom","data":"' + b"x" * (4 * MEBIBYTE) + b'"}'
LARGE = LargeEvent(7, "custom", len(BODY))


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


async def always() -> bool:
    return True


async def batches(*found: frames.Batch) -> AsyncGenerator[frames.Batch, None]:
    for batch in found:
        yield batch


LIMITS = StreamLimits()


async def encoded(bodies: SharedBodies, *found: frames.Batch, limits: StreamLimits = LIMITS) -> list[bytes]:
    return [
        chunk async for chunk in frames.encode_frames(bodies, "acme", batches(*found), always, limits, b"")
    ]


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
    streams = [
        frames.encode_frames(bodies, "acme", batches([("c", "qry_1", LARGE)]), always, LIMITS)
        for _ in range(60)
    ]
    for _ in range(3):
        await asyncio.gather(*(anext(s) for s in streams))
    assert (bodies.shared_bytes, journal.reads) == (len(BODY), [len(BODY)])
    for stream in streams:
        await stream.aclose()
    assert bodies.shared_bytes == 0


async def test_deleting_a_large_event_ends_its_stream() -> None:
    journal = Journal()
    bodies = SharedBodies(journal.read, 0)
    stream = frames.encode_frames(bodies, "acme", batches([("c", "qry_1", LARGE)], []), always, LIMITS)
    await anext(stream)
    journal.body = None
    with pytest.raises(EventDeleted):
        await anext(stream)


async def test_chunks_of_many_events_stay_small() -> None:
    batch = [(f"c{n}", "qry_1", StoredEvent(n, "text", b'{"text":"%s"}' % (b"x" * 500))) for n in range(200)]
    chunks = await encoded(SharedBodies(Journal().read, 0), batch)
    assert max(map(len, chunks)) < frames.MIN_CHUNK_BYTES + 1000
    assert b"".join(chunks).count(b"\n\n") == 200


async def test_heartbeats_come_between_frames() -> None:
    event = StoredEvent(1, "text", b'{"type":"text"}')
    chunks = await encoded(
        SharedBodies(Journal().read, 0),
        [],
        [("c1", "qry_1", event)],
        [],
        limits=StreamLimits(heartbeat_interval_s=0),
    )
    assert chunks == [
        frames.HEARTBEAT_FRAME,
        b'id: c1\nevent: text\ndata: {"seq":1,"type":"text"}\n\n',
        frames.HEARTBEAT_FRAME,
    ]


async def test_a_revoked_key_ends_a_stream_within_a_large_event() -> None:
    valid = True

    async def allowed() -> bool:
        return valid

    bodies = SharedBodies(Journal().read, len(BODY))
    stream = frames.encode_frames(
        bodies, "acme", batches([("c", "qry_1", LARGE)]), allowed, StreamLimits(key_check_interval_s=0)
    )
    await anext(stream)
    valid = False
    assert [chunk async for chunk in stream] == []
    assert bodies.shared_bytes == 0
