"""One open stream: heartbeats, slow readers, revoked keys, errors, and the end of the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.journal.event_stream import STREAMS_PER_TURN, EventStream, KeyCheck, StreamSet
from app.journal.frames import HEARTBEAT_FRAME, RETRY_FRAME
from app.journal.limits import StreamLimits
from tests.support.sse import KEY, Reading

pytestmark = pytest.mark.timeout(20)


class Pieces(EventStream):
    """A stream of pieces. Some are in memory; others are read slowly."""

    def __init__(self, streams: StreamSet, *slow: bytes, key: KeyCheck = KEY) -> None:
        super().__init__(streams, key, None)
        self.memory: list[bytes] = []
        self.slow = list(slow)
        self.error: Exception | None = None
        self.may_read = asyncio.Event()
        self.may_read.set()

    def add(self, *pieces: bytes) -> None:
        self.memory += pieces
        self.notify()

    def _unsubscribe(self) -> None:
        pass  # whoever adds pieces notifies it

    def _flush_memory(self) -> bool:
        if self.slow or self.error:
            return False
        while self.memory and self.is_idle:
            piece = self.memory.pop(0)
            self._push(piece, is_last=piece == b"end")
        return True

    async def _catch_up(self) -> bool:
        while self.slow or self.memory:
            await self.may_read.wait()
            if self.error is not None:
                raise self.error
            await self._write((self.slow or self.memory).pop(0))
            if self._set.draining.is_set():
                return True
        return False


async def turn() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def streams() -> StreamSet:
    return StreamSet(StreamLimits(heartbeat_interval_s=0, drain_grace_s=0.1))


Start = Callable[[EventStream], Awaitable[Reading]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts streams, and disconnects those that are left."""
    readings: list[Reading] = []

    async def begin(stream: EventStream) -> Reading:
        readings.append(Reading(stream))
        await turn()
        return readings[-1]

    yield begin
    for reading in readings:
        await reading.close()


async def test_news_is_sent_in_its_order(streams: StreamSet, start: Start) -> None:
    stream = Pieces(streams, b"1", b"2")
    reading = await start(stream)
    stream.add(b"3")
    await turn()
    stream.add(b"4", b"end")
    await reading.end()
    assert reading.body == RETRY_FRAME + b"1234end"


async def test_a_silent_stream_begins_with_the_retry_frame(streams: StreamSet, start: Start) -> None:
    reading = await start(Pieces(streams))
    assert reading.body == RETRY_FRAME


async def test_an_idle_stream_has_no_task_but_that_of_its_request(streams: StreamSet, start: Start) -> None:
    tasks = len(asyncio.all_tasks())
    for _ in range(20):
        await start(Pieces(streams, b"1"))
    assert len(asyncio.all_tasks()) == tasks + 20


async def test_heartbeats_are_not_sent_within_events(streams: StreamSet, start: Start) -> None:
    stream = Pieces(streams, b"first half,", b"second half")
    reading = await start(stream)
    stream.may_read.clear()
    stream.slow = [b"a", b"b"]
    stream.notify()
    await turn()
    await streams.send_heartbeats()
    stream.may_read.set()
    await turn()
    await streams.send_heartbeats()
    assert reading.body == RETRY_FRAME + b"first half,second halfab" + HEARTBEAT_FRAME


async def test_a_slow_reader_gets_everything_once_and_delays_nobody(streams: StreamSet, start: Start) -> None:
    slow, other = Pieces(streams), Pieces(streams)
    slow_reading, other_reading = await start(slow), await start(other)
    slow_reading.reads.clear()
    for piece in (b"1", b"2", b"3"):
        slow.add(piece)
        other.add(piece)
        await turn()
    assert slow_reading.body == RETRY_FRAME
    assert other_reading.body == RETRY_FRAME + b"123"
    slow_reading.reads.set()
    await turn()
    slow.add(b"4")
    await turn()
    assert slow_reading.body == RETRY_FRAME + b"1234"


async def test_many_streams_are_served_in_several_turns(streams: StreamSet, start: Start) -> None:
    many = [Pieces(streams) for _ in range(STREAMS_PER_TURN + 1)]
    readings = [Reading(stream) for stream in many]
    await turn()
    for stream in many:
        stream.add(b"1")
    await asyncio.sleep(0)
    assert [r.body for r in readings].count(RETRY_FRAME + b"1") == STREAMS_PER_TURN
    await turn()
    assert {r.body for r in readings} == {RETRY_FRAME + b"1"}
    for reading in readings:
        await reading.close()


async def test_a_key_is_checked_once_for_all_its_streams(streams: StreamSet, start: Start) -> None:
    asked: list[str] = []
    valid = {"a": True, "b": True}

    def key(name: str) -> KeyCheck:
        async def is_valid() -> bool:
            asked.append(name)
            return valid[name]

        return KeyCheck(name.encode(), is_valid)

    readings = {name: [await start(Pieces(streams, key=key(name))) for _ in range(3)] for name in "ab"}
    await streams.check_keys()
    assert sorted(asked) == ["a", "b"]
    valid["a"] = False
    await streams.check_keys()
    await turn()
    assert [r.ended.is_set() for r in readings["a"]] == [True] * 3
    assert [r.ended.is_set() for r in readings["b"]] == [False] * 3


@pytest.mark.parametrize("is_reading", [True, False])
async def test_a_revoked_key_ends_a_stream_within_events(
    streams: StreamSet, start: Start, is_reading: bool
) -> None:
    async def never() -> bool:
        return False

    stream = Pieces(streams, b"half", key=KeyCheck(b"x", never))
    reading = await start(stream)
    reading.reads.clear()
    stream.may_read.clear()
    stream.slow = [b"the other half"]
    stream.notify()
    if is_reading:
        reading.reads.set()
    await turn()
    await streams.check_keys()
    reading.reads.set()
    await reading.end()
    assert reading.body == RETRY_FRAME + b"half"


async def test_an_error_ends_its_stream_only(streams: StreamSet, start: Start) -> None:
    broken, other = Pieces(streams), Pieces(streams)
    broken_reading, reading = await start(broken), await start(other)
    broken.error = ValueError("broken")
    broken.add(b"1")
    other.add(b"1")
    with pytest.raises(ValueError, match="broken"):
        await broken_reading.end()
    assert reading.body == RETRY_FRAME + b"1"


async def test_draining_ends_streams_and_cuts_readers_that_do_not_read(
    streams: StreamSet, start: Start
) -> None:
    busy = Pieces(streams, b"1")
    idle, reading, stuck = await start(Pieces(streams)), await start(busy), await start(Pieces(streams))
    busy.may_read.clear()
    busy.slow = [b"2", b"3"]
    busy.notify()
    await turn()
    stuck.reads.clear()
    stuck.stream.send_heartbeat()
    streams.draining.set()
    asyncio.get_running_loop().call_later(0.01, busy.may_read.set)
    await streams.drain()
    assert await idle.end() == []
    await reading.end()
    assert reading.body == RETRY_FRAME + b"12"
    with pytest.raises(asyncio.CancelledError):
        await stuck.end()
    assert stuck.body == RETRY_FRAME


async def test_nothing_is_sent_to_a_client_that_disconnected(streams: StreamSet, start: Start) -> None:
    stream = Pieces(streams)
    reading = await start(stream)
    await reading.close()
    stream.add(b"1")
    await streams.send_heartbeats()
    await turn()
    assert reading.body == RETRY_FRAME
