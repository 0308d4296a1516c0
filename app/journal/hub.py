"""The readers of each query in this process, and its newest events, served from memory.

Everything here is a hint or a copy: a reader that finds a gap reads the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app.journal.models import LARGE_EVENT_BYTES, Event, JournalEvent, LargeEvent, Page, QueryKey, StoredEvent

FIRST_READER_WAIT_S = 5.0  # how long the first events of a new query are kept for its first reader
MAX_RING_BYTES = 256 * 1024  # shared by all watchers of one query
MAX_RING_EVENTS = 5_000


@dataclass(slots=True, eq=False)
class Watcher:
    """The wake-up of one reader, and the newest event that it has if it follows a query."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    last_seq: int | None = None


@dataclass(slots=True, eq=False)
class QueryFeed:
    """The watchers of one query and its newest events without gaps. `is_deleted`: the query was deleted."""

    watchers: set[Watcher] = field(default_factory=set)
    ring: deque[JournalEvent] = field(default_factory=deque)
    size: int = 0
    is_deleted: bool = False

    def add(self, first: int, events: Sequence[Event]) -> None:
        if self.ring and self.ring[-1].seq + 1 != first:
            self.clear()  # another process wrote in between: start a new ring
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
        """Drop the events: another process may have written the next ones, so readers must query the
        database."""
        self.ring.clear()
        self.size = 0

    def after(self, seq: int) -> Page | None:
        """Return a page of the events after `seq`, at most LARGE_EVENT_BYTES, or None if the ring does not
        have them."""
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
    """The feeds of a process."""

    def __init__(self) -> None:
        self._feeds: dict[QueryKey, QueryFeed] = {}
        self._tenants: dict[Watcher, str] = {}

    @contextlib.contextmanager
    def watch(self, query: QueryKey) -> Iterator[tuple[QueryFeed, Watcher]]:
        """Subscribe to a query while the block runs. Subscribe before the first read."""
        feed, watch = self.subscribe(query)
        try:
            yield feed, watch
        finally:
            self.unsubscribe(query, feed, watch)

    def hold_first_events(self, query: QueryKey, first: Sequence[Event]) -> None:
        """Keep the first events of a new query for a while: the client that created it usually follows it."""
        feed, watch = self.subscribe(query)
        feed.add(1, first)
        asyncio.get_running_loop().call_later(FIRST_READER_WAIT_S, self.unsubscribe, query, feed, watch)

    def subscribe(self, query: QueryKey) -> tuple[QueryFeed, Watcher]:
        feed = self._feeds.setdefault(query, QueryFeed())
        watch = Watcher()
        feed.watchers.add(watch)
        return feed, watch

    def unsubscribe(self, query: QueryKey, feed: QueryFeed, watch: Watcher) -> None:
        feed.watchers.discard(watch)
        if not feed.watchers and self._feeds.get(query) is feed:
            del self._feeds[query]

    @contextlib.contextmanager
    def watch_all(self, tenant: str) -> Iterator[Watcher]:
        """Watch everything of a tenant. The watcher wakes at any news, even another tenant's."""
        watch = Watcher()
        self._tenants[watch] = tenant
        try:
            yield watch
        finally:
            del self._tenants[watch]

    def watched_queries(self) -> list[QueryKey]:
        return list(self._feeds)

    def is_behind(self, query: QueryKey, next_seq: int) -> bool:
        """Return whether a reader of this query lacks its newest event."""
        feed = self._feeds.get(query)
        return feed is not None and any(
            w.last_seq is not None and w.last_seq + 1 < next_seq for w in feed.watchers
        )

    def publish(self, query: QueryKey, first: int, events: Sequence[Event]) -> None:
        """Hand over events that this process just committed."""
        feed = self._feeds.get(query)
        if feed is not None:
            feed.add(first, events)
            for watch in feed.watchers:
                watch.wake.set()
        self._wake_tenants()

    def mark_deleted(self, queries: Sequence[QueryKey]) -> None:
        """Mark these queries as deleted and wake their readers: no more events will come."""
        for query in queries:
            feed = self._feeds.get(query)
            if feed is not None:
                feed.is_deleted = True
                for watch in feed.watchers:
                    watch.wake.set()

    def invalidate(self, queries: Sequence[QueryKey] | None) -> None:
        """Wake the readers of these queries to read the database; None is all queries."""
        feeds = (
            self._feeds.values()
            if queries is None
            else [c for q in queries if (c := self._feeds.get(q)) is not None]
        )
        for feed in feeds:
            feed.clear()
            for watch in feed.watchers:
                watch.wake.set()
        self._wake_tenants()

    def _wake_tenants(self) -> None:
        for watch in self._tenants:
            watch.wake.set()
