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

from plangate.client import Outage, ServiceClient
from plangate.errors import ApiError
from plangate.events import TERMINAL_TYPES

FOLLOW_PATIENCE_S: Final = 300.0
"""How long a reader waits for a service that does not answer at all."""

MAX_BUFFERED_EVENTS: Final = 64
"""How many events are read before somebody takes them; then the service waits, and in the end lets go."""


@dataclass(slots=True)
class Journal:
    """A query that is to be started, or one that is there; `seen` is the number of the last event known.

    `execute` is the path that starts it by executing a plan; without it the body is that of a query.
    The connection may be lost at any moment, also before the service said which query it started: the request
    is made again under the same key, so that a query starts once.
    """

    body: Mapping[str, Any] | None = None
    execute: str | None = None
    query_id: str | None = None
    seen: int = 0
    _key: str = field(default_factory=lambda: uuid.uuid4().hex)
    _cursor: str | None = None

    async def events(self, client: ServiceClient) -> AsyncGenerator[dict[str, Any], None]:
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
                async with client.stream(*self._request(), headers=self._headers()) as (answer, sent):
                    outage.answered()
                    self._record_query_id(answer)
                    async for one in sent:
                        event = self._decode_new_event(one)
                        outage.over()
                        if event is None:
                            continue
                        yield event
                        if event["type"] in TERMINAL_TYPES:
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

    def _decode_new_event(self, one: ServerSentEvent) -> dict[str, Any] | None:
        """Return the event if it is new, else None. Raise RemoteProtocolError for a gap, so that it is read again."""
        event: dict[str, Any] = json.loads(one.data)
        if event["seq"] > self.seen + 1 and self._cursor is not None:
            raise httpx.RemoteProtocolError(f"event {self.seen + 1} is missing from the stream")
        self.query_id = self.query_id or event["queryId"]
        self._cursor = one.id
        if event["seq"] <= self.seen:
            return None
        self.seen = event["seq"]
        return event


class QueryEvents:
    """The events of a query: an async iterator of dicts.

    Made by `Runtime.query` and `Runtime.run_specialist`. The query is started with the first step. A task of
    its own reads the stream, so that a loop may be left at any point: the reading ends with the iterator, or
    at once with `aclose`; the query goes on.

    Example:
        >>> async def first_text(runtime):
        ...     events = runtime.query("Where is my bag?", "customer-17")
        ...     async for event in events:
        ...         if event["type"] == "text":
        ...             await events.aclose()
        ...             return event["text"]
    """

    def __init__(
        self,
        journal: Journal,
        opened: Callable[[], Awaitable[ServiceClient]],
        tell: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Await `opened` for the connection at the first step, and `tell` with each event before it is returned."""
        self._journal = journal
        self._opened = opened
        self._tell = tell
        self._read: asyncio.Queue[dict[str, Any] | Exception | None] = asyncio.Queue(MAX_BUFFERED_EVENTS)
        self._reader: asyncio.Task[None] | None = None
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if self._over:
            raise StopAsyncIteration
        if self._reader is None:
            reading = _read(self._journal, self._opened, self._read)
            self._reader = asyncio.create_task(reading, name="plangate-read")
        found = await self._read.get()
        if isinstance(found, dict):
            await self._tell(found)
            return found
        self._over = True
        if found is None:
            raise StopAsyncIteration
        raise found

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
    opened: Callable[[], Awaitable[ServiceClient]],
    into: asyncio.Queue[dict[str, Any] | Exception | None],
) -> None:
    """Read events into the queue. It holds no reference to the iterator, so that an abandoned one can end it."""
    try:
        async with aclosing(journal.events(await opened())) as events:
            async for event in events:
                await into.put(event)
        await into.put(None)
    except Exception as error:  # noqa: BLE001 - raised again where it is awaited
        await into.put(error)
