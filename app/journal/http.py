"""What routes need to answer with a stream of the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from fastapi import Request, Response
from sse_starlette import EventSourceResponse

from app.journal.streams import Streams
from app.tenancy.http import door_of

LAST_EVENTS_S = (
    3.0  # at a shutdown streams end by themselves, between events; the library cuts them only after this
)
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
SSE = "text/event-stream"


def streams_of(request: Request) -> Streams:
    streams: Streams = request.app.state.services.streams
    return streams


def event_stream(frames: AsyncIterator[bytes]) -> Response:
    """Return a stream of encoded frames. It brings its own heartbeats: the library's could fall into a frame that is
    sent in slices. Its connection drops a reader that stalls."""
    return EventSourceResponse(
        frames,
        headers=HEADERS,
        ping=0,
        shutdown_grace_period=LAST_EVENTS_S,
    )


def allowed(request: Request) -> Callable[[], Awaitable[bool]]:
    """Whether the key of this request still is one: an open stream asks every few seconds."""
    authorization = request.headers.get("authorization", "")
    tenancy = door_of(request).tenancy

    async def check() -> bool:
        return await tenancy.still_valid(authorization)

    return check


def wants_stream(request: Request) -> bool:
    return SSE in request.headers.get("accept", "")
