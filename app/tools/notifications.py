"""The connections of this process that wait for client calls, by tenant. A notification is only a hint: the claim
decides."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class CallNotifications:
    def __init__(self) -> None:
        self._waiting: dict[asyncio.Event, str] = {}
        self.closed = False

    @contextlib.contextmanager
    def watch(self, tenant: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set when a call may be there for this tenant."""
        event = asyncio.Event()
        self._waiting[event] = tenant
        try:
            yield event
        finally:
            del self._waiting[event]

    def on_notify(self, tenant: str) -> None:
        """Handle a NOTIFY on `plangate_calls`: a call was offered to this tenant's processes."""
        for event, owner in self._waiting.items():
            if owner == tenant:
                event.set()

    def wake_all(self) -> None:
        for event in self._waiting:
            event.set()

    def close(self) -> None:
        self.closed = True
        self.wake_all()
