"""Helpers for routes that respond with a stream of the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request
from fastapi.responses import Response
from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from app.journal.event_stream import EventStream, KeyCheck
from app.journal.open_streams import OpenStream
from app.journal.streams import Streams
from app.tenancy.http import api_context, credential_of
from app.tenancy.models import Caller

SHUTDOWN_GRACE_S = (
    3.0  # at a shutdown streams end by themselves, between events; the library cuts them only after this
)
SSE_HEADERS = {"Cache-Control": "no-store", "Connection": "keep-alive", "X-Accel-Buffering": "no"}
SSE_MEDIA_TYPE = "text/event-stream"


class EventStreamResponse(Response):
    """A stream of the journal, which occupies one of the open streams until it ends. The connection drops a reader that
    stalls."""

    media_type = SSE_MEDIA_TYPE

    def __init__(self, stream: EventStream, place: OpenStream) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(SSE_HEADERS)
        self._stream = stream
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await self._stream.run(receive, send)
        finally:
            self._place.release()


class SseResponse(EventSourceResponse):
    """A response of encoded frames that occupies one of the open streams until it ends. The connection drops a reader
    that stalls."""

    media_type = SSE_MEDIA_TYPE

    def __init__(self, frames: AsyncIterator[bytes], place: OpenStream) -> None:
        super().__init__(frames, headers=SSE_HEADERS, ping=0, shutdown_grace_period=SHUTDOWN_GRACE_S)
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._place.release()


def get_streams(request: Request) -> Streams:
    streams: Streams = request.app.state.services.streams
    return streams


@asynccontextmanager
async def claim_stream(request: Request, caller: Caller) -> AsyncIterator[OpenStream]:
    """Claim one of the open streams for this request. Raise TooManyRequests.

    An error in the block releases it; otherwise the stream does when it ends.
    """
    tenant = await api_context(request).tenancy.get_tenant(caller.tenant)
    place = get_streams(request).open_streams.claim(caller, tenant.limits)
    try:
        yield place
    except BaseException:
        place.release()
        raise


def key_check(request: Request, tenant: str) -> KeyCheck:
    """Return a check whether this request's key or session is still valid, and the tenant is still here. It is repeated
    while a stream is open. The operator's key has streams of several tenants."""
    credential = credential_of(request)
    tenancy = api_context(request).tenancy
    return KeyCheck(credential.hash + tenant.encode(), lambda: tenancy.is_valid(credential, tenant))


def wants_stream(request: Request) -> bool:
    return SSE_MEDIA_TYPE in request.headers.get("accept", "")


EVENTS_DESCRIPTION = "Events as they happen. Each message has `id` (a cursor), `event` (the type) and one line of `data`, an Event."
