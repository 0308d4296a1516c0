"""Read a vendor's events from the open response of a turn, past the iterators of its SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from types import TracebackType
from typing import Final, Self

import httpx2

from app.llm.client import BoundedBody

MAX_EVENTS_PER_SLICE: Final = 100
"""Events to process before yielding to the event loop."""

_NOTHING: Final = object()


class StreamError(Exception):
    """An error that the vendor reported in its stream. The attributes are those that `fault_from_sdk` reads."""

    def __init__(
        self,
        message: str,
        body: object,
        *,
        status: int | None = None,
        response: httpx2.Response | None = None,
    ) -> None:
        super().__init__(message)
        self.status_code = status
        self.body = body
        self.response = response


class ResponseStream:
    """The events of a response. `read_events` takes a chunk of its body and yields the events that end in it."""

    def __init__(self, response: httpx2.Response, read_events: Callable[[bytes], Iterable[object]]) -> None:
        assert isinstance(response.stream, BoundedBody)  # compressed responses were rejected
        self._response = response
        self._body = response.stream
        self._read_events = read_events
        self._arrived: Iterator[object] | None = None

    async def wait_for_data(self) -> bool:
        """Wait for more of the body; return False at its end. While parsed events are left, only yield to the event loop."""
        if self._arrived is not None:
            await asyncio.sleep(0)
            return True
        chunks = await self._body.read_chunks()
        self._arrived = chain.from_iterable(map(self._read_events, chunks))
        return bool(chunks)

    def read_available(self) -> Iterator[object]:
        """Yield the next events that have arrived, at most MAX_EVENTS_PER_SLICE. They are parsed one by one: an error is
        raised only after the events before it."""
        assert self._arrived is not None
        for _ in range(MAX_EVENTS_PER_SLICE):
            event = next(self._arrived, _NOTHING)
            if event is _NOTHING:
                self._arrived = None
                return
            yield event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._response.aclose()
