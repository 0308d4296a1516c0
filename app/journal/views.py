"""Responses of the routes of events. The events themselves are defined in app.events."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.base.responses import View
from app.events import Event


class EventPage(View):
    """Events in their order. `nextCursor` is where to read on, also when the page is empty."""

    events: list[Event]
    """The events, in their order."""
    next_cursor: str
    """Where to read on: send it as `after`. It is there even if the page is empty."""
    done: Annotated[bool, Field(description="Nothing can follow: the query is over.")]
