"""Read a vendor's events from the open response of a turn, past the iterators of its SDK."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from types import TracebackType
from typing import Final, Self

import httpx2

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
    """The events of a response. `read_events` takes what has arrived and yields the events that end in it."""

    def __init__(self, response: httpx2.Response, read_events: Callable[[bytes], Iterable[object]]) -> None:
        assert isinstance(response.stream, AsyncIterable)
        self._response = response
        self._read_events = read_events
        self._chunks = aiter(response.stream)  # compressed responses were rejected
        self._events: Iterator[object] = iter(())  # read one by one: an error counts after what preceded it

    async def __anext__(self) -> object:
        while (event := next(self._events, _NOTHING)) is _NOTHING:
            self._events = iter(self._read_events(await anext(self._chunks)))
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._response.aclose()
