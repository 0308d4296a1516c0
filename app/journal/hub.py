"""Who in this process watches which query, and the newest events for them, straight from memory.

Everything here is a hint or a copy: a reader that finds a gap reads the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app.journal.models import LARGE_EVENT_BYTES, Event, JournalEvent, LargeEvent, Page, StoredEvent

FIRST_READER_WAIT_S = 5.0  # how long the first events of a new query wait for their reader
MAX_RING_BYTES = 256 * 1024  # what all watchers of one query share
MAX_RING_EVENTS = 5_000


@dataclass(slots=True, eq=False)
class Watcher:
    """One reader's wake-up, and the newest event that it has if it follows the journal."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    last_seq: int | None = None


@dataclass(slots=True, eq=False)
class QueryFeed:
    """The watchers of one query and its newest events, without a gap between them. `gone`: the query was deleted."""

    watchers: set[Watcher] = field(default_factory=set)
    ring: deque[JournalEvent] = field(default_factory=deque)
    size: int = 0
    is_deleted: bool = False

    def add(self, first: int, events: Sequence[Event]) -> None:
        if self.ring and self.ring[-1].seq + 1 != first:
            self.clear()  # somebody else wrote in between: the ring begins anew
        for offset, event in enumerate(events):
            seq, size = first + offset, len(event.body)
            if size > LARGE_EVENT_BYTES:
                self.ring.append(LargeEvent(seq, event.type, size))
            else:
                self.ring.append(StoredEvent(seq, event.type, event.body))
                self.size += size
        while self.size > MAX_RING_BYTES or len(self.ring) > MAX_RING_EVENTS:
            self.size -= _body_bytes(self.ring.popleft())

    def clear(self) -> None:
        """Somebody else may have written what comes next: readers who have the newest of these look it up."""
        self.ring.clear()
        self.size = 0

    def after(self, seq: int) -> Page | None:
        """Return a page of the events after `seq`, at most LARGE_EVENT_BYTES, or None if the ring does not have them."""
        if not self.ring or seq + 1 < self.ring[0].seq or seq > self.ring[-1].seq:
            return None
        events: list[JournalEvent] = []
        size = 0
        for event in itertools.islice(self.ring, seq + 1 - self.ring[0].seq, None):
            size += _body_bytes(event)
            if size > LARGE_EVENT_BYTES:
                return Page(events, complete=False)
            events.append(event)
        return Page(events, complete=True)


def _body_bytes(event: JournalEvent) -> int:
    return len(event.body) if isinstance(event, StoredEvent) else 0


class Hub:
    """The channels of a process."""

    def __init__(self) -> None:
        self._feeds: dict[str, QueryFeed] = {}
        self._tenants: dict[Watcher, str] = {}

    @contextlib.contextmanager
    def watch(self, query_id: str) -> Iterator[tuple[QueryFeed, Watcher]]:
        """Subscribes before the first read; the channel goes with its last watcher."""
        channel, watch = self.subscribe(query_id)
        try:
            yield channel, watch
        finally:
            self.unsubscribe(query_id, channel, watch)

    def hold_first_events(self, query_id: str, first: Sequence[Event]) -> None:
        """A query was just made, and whoever made it is about to follow: its first events wait here for him."""
        channel, watch = self.subscribe(query_id)
        channel.add(1, first)
        asyncio.get_running_loop().call_later(FIRST_READER_WAIT_S, self.unsubscribe, query_id, channel, watch)

    def subscribe(self, query_id: str) -> tuple[QueryFeed, Watcher]:
        channel = self._feeds.setdefault(query_id, QueryFeed())
        watch = Watcher()
        channel.watchers.add(watch)
        return channel, watch

    def unsubscribe(self, query_id: str, channel: QueryFeed, watch: Watcher) -> None:
        channel.watchers.discard(watch)
        if not channel.watchers and self._feeds.get(query_id) is channel:
            del self._feeds[query_id]

    @contextlib.contextmanager
    def watch_all(self, tenant: str) -> Iterator[Watcher]:
        """For streams over everything of a tenant: woken by any news, whoever's it is."""
        watch = Watcher()
        self._tenants[watch] = tenant
        try:
            yield watch
        finally:
            del self._tenants[watch]

    def watched_ids(self) -> list[str]:
        return list(self._feeds)

    def is_behind(self, query_id: str, next_seq: int) -> bool:
        """Whether somebody who follows this query has not got its newest event."""
        channel = self._feeds.get(query_id)
        return channel is not None and any(
            w.last_seq is not None and w.last_seq + 1 < next_seq for w in channel.watchers
        )

    def publish(self, query_id: str, first: int, events: Sequence[Event]) -> None:
        """Hands over what this process just committed."""
        channel = self._feeds.get(query_id)
        if channel is not None:
            channel.add(first, events)
            for watch in channel.watchers:
                watch.wake.set()
        self._wake_tenants()

    def mark_deleted(self, query_ids: Sequence[str]) -> None:
        """Says that these queries were deleted: nothing comes any more."""
        for query_id in query_ids:
            channel = self._feeds.get(query_id)
            if channel is not None:
                channel.is_deleted = True
                for watch in channel.watchers:
                    watch.wake.set()

    def invalidate(self, query_ids: Sequence[str] | None) -> None:
        """Says that there may be news; None: for everybody."""
        channels = (
            self._feeds.values()
            if query_ids is None
            else [c for q in query_ids if (c := self._feeds.get(q)) is not None]
        )
        for channel in channels:
            channel.clear()
            for watch in channel.watchers:
                watch.wake.set()
        self._wake_tenants()

    def _wake_tenants(self) -> None:
        for watch in self._tenants:
            watch.wake.set()
