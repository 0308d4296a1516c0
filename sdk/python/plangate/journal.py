"""Following a query's journal: every event once, in order, over as many connections as it takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, Self

import httpx
from httpx_sse import ServerSentEvent

from plangate.api.models import Event
from plangate.api.record import convert
from plangate.client import Outage, ServiceClient
from plangate.errors import ApiError
from plangate.event_types import TERMINAL_TYPES

FOLLOW_PATIENCE_S: Final = 300.0
"""How long a reader waits for a service that does not answer at all."""

MAX_BUFFERED_EVENTS: Final = 64
"""How many events are read before somebody takes them; then the service waits, and in the end lets go."""


@dataclass(slots=True)
class Journal:
    """A query that is to be started, or one that is there; `last_seq` is the number of the last event known.

    `execute` is the path that starts it by executing a plan; without it the body is that of a query.
    The connection may be lost at any moment, also before the service said which query it started: the request
    is made again under the same key, so that a query starts once.
    """

    body: Mapping[str, Any] | None = None
    execute: str | None = None
    query_id: str | None = None
    last_seq: int = 0
    _key: str = field(default_factory=lambda: uuid.uuid4().hex)
    _cursor: str | None = None

    async def events(self, client: ServiceClient) -> AsyncGenerator[Event, None]:
        """Yield each event after `seen`, until the terminal one.

        Raises:
            ApiError: if the service refuses the query or the reader.
            ServiceUnavailable: if the service has not answered for five minutes.
        """
        outage = Outage(client, FOLLOW_PATIENCE_S)
        if self.execute is not None and self.query_id is None:
            started = await client.request("POST", self.execute, self.body, patience_s=FOLLOW_PATIENCE_S)
            self.query_id = started["id"]
        while True:
            try:
                async with client.stream(*self._request(), headers=self._headers()) as (answer, stream):
                    outage.answered()
                    self._record_query_id(answer)
                    async for one in stream:
                        event = self._decode_new_event(one)
                        outage.over()
                        if event is None:
                            continue
                        yield event
                        if event.type in TERMINAL_TYPES:
                            return
                lost: Exception = httpx.ReadError("the stream ended before the query did")
            except (httpx.TransportError, ApiError) as error:
                lost = error
            await outage.wait(lost)

    def _request(self) -> tuple[str, str, Any]:
        if self.query_id is None:
            return "POST", "/queries/stream", self.body
        return "GET", f"/queries/{self.query_id}/stream", None

    def _headers(self) -> dict[str, str]:
        if self.query_id is None:
            return {"Idempotency-Key": self._key}
        return {"Last-Event-ID": self._cursor} if self._cursor else {}

    def _record_query_id(self, answer: httpx.Response) -> None:
        """Record the id of the started query, which is read from here on and not started again."""
        if self.query_id is None and "location" in answer.headers:
            self.query_id = answer.headers["location"].rsplit("/", 1)[1]

    def _decode_new_event(self, one: ServerSentEvent) -> Event | None:
        """Return the event if it is new, else None. Raise RemoteProtocolError for a gap, so that it is read again."""
        event: Event = convert(Event, json.loads(one.data))
        if event.seq > self.last_seq + 1 and self._cursor is not None:
            raise httpx.RemoteProtocolError(f"event {self.last_seq + 1} is missing from the stream")
        self.query_id = self.query_id or event.query_id
        self._cursor = one.id
        if event.seq <= self.last_seq:
            return None
        self.last_seq = event.seq
        return event


class QueryEvents:
    """The events of a query: an async iterator of typed events (`plangate.api.models`).

    `if event.type == "text":` tells a type checker that the event has `event.text`. An event is also the dict
    as it came: `event["queryId"]` is `event.query_id`. One of a type that this version does not know is there
    with its fields, as a plain `Record`.

    `Runtime.query` and its siblings return it. The query is started with the first step. A task of its own
    reads the stream, so that a loop may be left at any point: the reading ends with the iterator, or at once
    with `aclose`; the query keeps running.

    Example:
        >>> async def first_text(runtime):
        ...     events = runtime.query("Where is my bag?", "customer-17")
        ...     async for event in events:
        ...         if event.type == "text":
        ...             await events.aclose()
        ...             return event.text
    """

    def __init__(
        self,
        journal: Journal,
        connect: Callable[[], Awaitable[ServiceClient]],
        call_hooks: Callable[[Event], Awaitable[None]],
    ) -> None:
        """Await `connect` for the connection at the first step, and `call_hooks` with each event before it is
        returned."""
        self._journal = journal
        self._connect = connect
        self._call_hooks = call_hooks
        self._read: asyncio.Queue[Event | Exception | None] = asyncio.Queue(MAX_BUFFERED_EVENTS)
        self._reader: asyncio.Task[None] | None = None
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._over:
            raise StopAsyncIteration
        if self._reader is None:
            reading = _read(self._journal, self._connect, self._read)
            self._reader = asyncio.create_task(reading, name="plangate-read")
        item = await self._read.get()
        if isinstance(item, dict):
            await self._call_hooks(item)
            return item
        self._over = True
        if item is None:
            raise StopAsyncIteration
        raise item

    async def aclose(self) -> None:
        """Stop reading, and end a running loop. The query keeps running.

        Example:
            >>> async def first(runtime):
            ...     events = runtime.query("Hi", "thread-1")
            ...     try:
            ...         return await anext(events)
            ...     finally:
            ...         await events.aclose()
        """
        self._over = True
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    def __del__(self) -> None:
        reader = self._reader
        if reader is not None and not reader.done():
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and the reader with it
                reader.get_loop().call_soon_threadsafe(reader.cancel)


async def _read(
    journal: Journal,
    connect: Callable[[], Awaitable[ServiceClient]],
    into: asyncio.Queue[Event | Exception | None],
) -> None:
    """Read events into the queue. It holds no reference to the iterator, so that an abandoned one can end it."""
    try:
        async with aclosing(journal.events(await connect())) as events:
            async for event in events:
                await into.put(event)
        await into.put(None)
    except Exception as error:  # noqa: BLE001 - raised again where it is awaited
        await into.put(error)
