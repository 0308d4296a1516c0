"""Responses of the routes of events. The events themselves are defined in plangate.events."""

from __future__ import annotations

from typing import Annotated, Any

from plangate.events import Event
from pydantic import Field

from app.base.responses import View
from app.journal.http import SSE_MEDIA_TYPE


class EventPage(View):
    """Events in their order. `nextCursor` is where to read on, also when the page is empty."""

    events: list[Event]
    next_cursor: str
    done: Annotated[bool, Field(description="Nothing can follow: the query is over.")]


STREAM: dict[str, Any] = {
    SSE_MEDIA_TYPE: {
        "schema": {"$ref": "#/components/schemas/Event"},
        "x-stream": "Each message has `id` (a cursor), `event` (the type) and one line of `data`, an Event.",
    }
}
"""The content of an answer that streams events."""
