"""One open stream of a client, and all those of a process.

A stream on which nothing happens is an entry in tables: it has no timer and no task but the one of its request, which
waits for the client to disconnect. News is sent by `OpenStreams.flush`, for many streams in one turn of the event loop.
Only a stream that must read the database, or whose client reads slowly, has a task for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from app.base.logs.structured import structlog
from app.base.memory import trim_memory
from app.journal.frames import HEARTBEAT_FRAME, RETRY_FRAME
from app.journal.limits import StreamLimits
from app.journal.shared_bodies import EventDeleted

if TYPE_CHECKING:  # child processes do without it
    from starlette.types import Receive, Send

log = structlog.get_logger(__name__)

STREAMS_PER_TURN: Final = 200
"""Streams that are served in one turn of the event loop."""
CONCURRENT_KEY_CHECKS: Final = 8
TRIM_AFTER_STREAMS: Final = 500
"""Once so many streams have ended, the memory that they used is given back to the operating system."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """How to find out whether the key or session of a stream is still valid. Streams with one `hash` share the
    answer."""

    hash: bytes
    is_valid: Callable[[], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class _KeyStreams:
    """The open streams of one key or session."""

    check: KeyCheck
    streams: set[EventStream] = field(default_factory=set)


class StreamSet:
    """The open streams of a process: what they have in common, and what is done for all of them at once."""

    def __init__(self, limits: StreamLimits) -> None:
        self.limits = limits
        self.draining = asyncio.Event()
        self._sent_at: dict[EventStream, float] = {}  # the stream that sent nothing for longest is first
        self._keys: dict[bytes, _KeyStreams] = {}
        self._news: dict[EventStream, None] = {}
        self._is_flushing = False
        self._are_all_over = asyncio.Event()
        self._most = 0  # streams that were open at once since memory was given back

    def add(self, stream: EventStream) -> None:
        self.note_sent(stream)
        self._most = max(self._most, len(self._sent_at))
        self._keys.setdefault(stream.key.hash, _KeyStreams(stream.key)).streams.add(stream)

    def remove(self, stream: EventStream) -> None:
        self._sent_at.pop(stream, None)
        self._news.pop(stream, None)
        if not self._sent_at:
            self._are_all_over.set()
        owned = self._keys.get(stream.key.hash)
        if owned is not None:
            owned.streams.discard(stream)
            if not owned.streams:
                del self._keys[stream.key.hash]

    def note_sent(self, stream: EventStream) -> None:
        self._sent_at.pop(stream, None)
        self._sent_at[stream] = asyncio.get_running_loop().time()

    def is_heartbeat_due(self, stream: EventStream) -> bool:
        now = asyncio.get_running_loop().time()
        return now - self._sent_at.get(stream, now) >= self.limits.heartbeat_interval_s

    # -- news ------------------------------------------------------------------------------------------------

    def schedule(self, stream: EventStream) -> None:
        """Flush this stream in one of the next turns of the event loop."""
        self._news[stream] = None
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        for stream in list(itertools.islice(self._news, STREAMS_PER_TURN)):
            self._news.pop(stream, None)
            stream.flush()
        if self._news:
            asyncio.get_running_loop().call_soon(self._flush)
        else:
            self._is_flushing = False

    # -- what happens from time to time ----------------------------------------------------------------------

    async def send_heartbeats(self) -> None:
        """Send a heartbeat on each stream that has been silent for too long."""
        latest = asyncio.get_running_loop().time() - self.limits.heartbeat_interval_s
        silent = list(itertools.takewhile(lambda s: self._sent_at[s] <= latest, self._sent_at))
        async for stream in in_turns(silent):
            stream.send_heartbeat()
        self.give_back_memory()

    def give_back_memory(self) -> None:
        """Give memory back to the operating system if many streams have ended. It takes a few milliseconds."""
        if self._most - len(self._sent_at) >= TRIM_AFTER_STREAMS:
            self._most = len(self._sent_at)
            trim_memory()

    async def check_keys(self) -> None:
        """End the streams whose key or session is not valid anymore. Each key is checked once."""
        due = iter(list(self._keys.values()))

        async def check_next() -> None:
            for owned in due:
                if not await owned.check.is_valid():
                    async for stream in in_turns(list(owned.streams)):
                        stream.finish()

        await asyncio.gather(*(check_next() for _ in range(min(CONCURRENT_KEY_CHECKS, len(self._keys)))))

    def finish_all(self) -> None:
        """End all streams after what was sent."""
        for stream in list(self._sent_at):
            stream.finish()

    # -- the end of the process ------------------------------------------------------------------------------

    async def drain(self) -> None:
        """End all streams between two events. Cut those that have not ended after a while, because their clients do not
        read."""
        async for stream in in_turns(list(self._sent_at)):
            stream.notify()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.drain_grace_s):
                if self._sent_at:
                    self._are_all_over.clear()
                    await self._are_all_over.wait()
        for stream in list(self._sent_at):
            stream.abort()


async def in_turns(streams: Collection[EventStream]) -> AsyncGenerator[EventStream, None]:
    """Yield the streams, and let the event loop do other work after every STREAMS_PER_TURN."""
    for n, stream in enumerate(streams, 1):
        yield stream
        if n % STREAMS_PER_TURN == 0:
            await asyncio.sleep(0)


class EventStream(ABC):
    """One open stream. `run` sends it and returns when it is over."""

    __slots__ = (
        "_error",
        "_has_ended",
        "_has_news",
        "_head",
        "_is_over",
        "_left",
        "_request",
        "_send",
        "_set",
        "_task",
        "key",
    )

    def __init__(self, streams: StreamSet, key: KeyCheck, limit: int | None) -> None:
        """Set up a stream that ends after `limit` events, if that is given."""
        self.key = key
        self._set = streams
        self._left = limit
        self._head = RETRY_FRAME  # is sent with the first frames
        self._has_news = False
        self._is_over = False
        self._has_ended = False  # the last bytes were sent, or are being sent
        self._task: asyncio.Task[bool] | None = None
        self._request: asyncio.Task[Any] | None = None
        self._error: BaseException | None = None
        self._send: Send | None = None

    # -- for subclasses --------------------------------------------------------------------------------------

    @abstractmethod
    def _unsubscribe(self) -> None:
        """Stop being notified."""

    def _limited(self, events: Sequence[T]) -> Sequence[T]:
        """Return as many of the next events as may be sent, and count them."""
        if self._left is None:
            return events
        events = events[: self._left]
        self._left -= len(events)
        return events

    @abstractmethod
    def _flush_memory(self) -> bool:
        """Begin to be notified of news, and push what memory has. Return False if the rest must be read in `_catch_up`."""

    @abstractmethod
    async def _catch_up(self) -> bool:
        """Send everything that there is. Return whether the stream is over. Raise EventDeleted."""

    # -- its life --------------------------------------------------------------------------------------------

    async def run(self, receive: Receive, send: Send) -> None:
        """Send the stream until it is over or the client disconnects. The head of the response was sent."""
        self._send = send
        self._request = asyncio.current_task()
        self._set.add(self)
        try:
            self.flush()
            while (await receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            if self._error is not None:
                raise self._error from None
            raise
        finally:
            self._request = None
            self._forget()
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
            self._send = None

    def _forget(self) -> None:
        self._is_over = True
        self._set.remove(self)
        self._unsubscribe()

    @property
    def is_idle(self) -> bool:
        """Return whether everything was sent, and the client has read enough to be sent more."""
        return self._task is None and not self._is_over

    def notify(self) -> None:
        """Send news soon: there may be some, or the stream may have to end."""
        self._has_news = True
        if self.is_idle:
            self._set.schedule(self)

    def flush(self) -> None:
        """Send what memory has, and start a task for what must be read."""
        if not self.is_idle:
            return  # the task looks for news itself
        self._has_news = False
        try:
            is_complete = self._flush_memory()
            if not self.is_idle:
                return
            if self._set.draining.is_set():
                self.finish()
            elif not is_complete:
                self._start()
            elif self._head:
                self._push(b"")
        except Exception as error:  # noqa: BLE001 - it belongs to this stream, not to those that are flushed with it
            self._fail(error)

    def finish(self) -> None:
        """End the stream after what was sent, even within a large event: readers ignore an incomplete frame."""
        if self._is_over:
            return
        if self._task is None:
            self._push(b"", is_last=True)
        else:
            self._forget()
            self._task.cancel()

    def abort(self) -> None:
        """End the request of the stream at once, without its last bytes."""
        if self._request is not None:
            self._request.cancel()

    def _fail(self, error: BaseException) -> None:
        """Raise the error in the request."""
        self._error = error
        self.abort()

    # -- sending ---------------------------------------------------------------------------------------------

    def send_heartbeat(self) -> None:
        """Send a heartbeat, unless events are being sent."""
        if self.is_idle:
            self._push(HEARTBEAT_FRAME)
        elif not self._is_over:
            self._set.note_sent(self)

    def _push(self, data: bytes, *, is_last: bool = False) -> None:
        """Send at once. If that has to wait until the client has read, a task waits."""
        if is_last:
            self._forget()
            self._has_ended = True
        sending = cast(Coroutine[Any, Any, None], self._write(data, is_last=is_last))
        try:
            waits_for = sending.send(None)
        except StopIteration:
            return
        self._start(Rest(sending, waits_for))

    def _write(self, data: bytes, *, is_last: bool = False) -> Awaitable[None]:
        assert self._send is not None
        if self._head:
            data, self._head = self._head + data, b""
        if not self._is_over:
            self._set.note_sent(self)
        return self._send({"type": "http.response.body", "body": data, "more_body": not is_last})

    async def _pause(self) -> None:
        """Wait before the database is tried again, and send a heartbeat if one is due."""
        await asyncio.sleep(self._set.limits.poll_interval_s)
        if self._set.is_heartbeat_due(self):
            await self._write(HEARTBEAT_FRAME)

    def _start(self, rest: Rest | None = None) -> None:
        self._task = asyncio.create_task(self._work(rest), name="stream")
        self._task.add_done_callback(self._end_task)

    async def _work(self, rest: Rest | None) -> bool:
        """Wait for the rest of a write, and catch up. Return whether the stream is over."""
        if rest is not None:
            await rest
        if self._has_ended:
            return True
        try:
            return await self._catch_up()
        except EventDeleted:
            return True

    def _end_task(self, task: asyncio.Task[bool]) -> None:
        self._task = None
        if self._request is None or self._has_ended:
            return
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        elif self._is_over or task.cancelled() or task.result():
            self._push(b"", is_last=True)
        else:
            if self._head:
                self._push(b"")
            if self._has_news or self._set.draining.is_set():
                self.notify()


class Rest:
    """Awaits the rest of a coroutine whose first step led to a future."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        try:
            yield self._waits_for
        except BaseException:
            self._coroutine.close()
            raise
        yield from self._coroutine.__await__()
