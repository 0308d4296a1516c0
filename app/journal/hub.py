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
from typing import Protocol

from app.journal.models import (
    HEAD_BYTES,
    LARGE_EVENT_BYTES,
    Event,
    JournalEvent,
    LargeEvent,
    Page,
    QueryKey,
    StoredEvent,
)

FIRST_READER_WAIT_S = 5.0  # how long the first events of a new query are kept for its first reader
MAX_RING_BYTES = 256 * 1024  # shared by all watchers of one query
MAX_RING_EVENTS = 5_000


class QueryWatcher(Protocol):
    """A reader of a query's events."""

    @property
    def position(self) -> int | None:
        """Return the number of the newest event that it has. None: it will look for more by itself."""

    def notify(self) -> None:
        """Take notice that there may be more, or that the query was deleted. Does not call the hub."""


class TenantWatcher(Protocol):
    """A reader of a tenant's events."""

    def notify(self, events: Sequence[Event] | None) -> None:
        """Take notice of these events, or of unknown ones. Does not call the hub."""


@dataclass(slots=True, eq=False)
class Watcher:
    """A reader that waits for an event of asyncio."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    position: int | None = 0

    def notify(self) -> None:
        self.wake.set()


@dataclass(slots=True, eq=False)
class QueryFeed:
    """The watchers of one query and its newest events without gaps. `is_deleted`: the query was deleted. `is_quiet`: this
    process added no event for a while. `hold`: the timer that keeps it for its first reader."""

    watchers: set[QueryWatcher] = field(default_factory=set)
    ring: deque[JournalEvent] = field(default_factory=deque)
    size: int = 0
    is_deleted: bool = False
    is_quiet: bool = True
    hold: asyncio.TimerHandle | None = None

    def add(self, first: int, events: Sequence[Event]) -> None:
        self.is_quiet = False
        if self.ring and self.ring[-1].seq + 1 != first:
            self.clear()  # another process wrote in between: start a new ring
        for offset, event in enumerate(events):
            seq, size = first + offset, len(event.body)
            if size > LARGE_EVENT_BYTES:
                self.ring.append(LargeEvent(seq, event.type, size, event.body[:HEAD_BYTES]))
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

    def clear_if_idle(self) -> None:
        """Drop the events if all watchers have them and none was added since the last call."""
        if self.ring and self.is_quiet and self.hold is None:
            last = self.ring[-1].seq
            if all(w.position is not None and w.position >= last for w in self.watchers):
                self.clear()
        self.is_quiet = True

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

    def notify(self) -> None:
        for watcher in self.watchers:
            watcher.notify()


def _body_bytes(event: JournalEvent) -> int:
    return len(event.body) if isinstance(event, StoredEvent) else 0


class Hub:
    """The feeds of a process."""

    def __init__(self) -> None:
        self._feeds: dict[QueryKey, QueryFeed] = {}
        self._tenants: dict[str, set[TenantWatcher]] = {}

    # -- watchers --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def watch(self, query: QueryKey) -> Iterator[Watcher]:
        """Watch a query while the block runs. Begin before the first read."""
        watcher = Watcher()
        feed = self.subscribe(query, watcher)
        try:
            yield watcher
        finally:
            self.unsubscribe(query, feed, watcher)

    def hold_first_events(self, query: QueryKey, first: Sequence[Event]) -> None:
        """Keep the events of a new query until its first reader leaves: the client that created it usually follows it.
        Without a reader, drop them after FIRST_READER_WAIT_S."""
        feed = self._feeds.setdefault(query, QueryFeed())
        feed.add(1, first)
        feed.hold = asyncio.get_running_loop().call_later(FIRST_READER_WAIT_S, self._end_hold, query, feed)

    def _end_hold(self, query: QueryKey, feed: QueryFeed) -> None:
        if feed.hold is not None:
            feed.hold.cancel()  # a timer refers to the events until then
            feed.hold = None
        if not feed.watchers and self._feeds.get(query) is feed:
            del self._feeds[query]

    def subscribe(self, query: QueryKey, watcher: QueryWatcher) -> QueryFeed:
        """Watch a query. Subscribe before the first read."""
        feed = self._feeds.setdefault(query, QueryFeed())
        feed.watchers.add(watcher)
        return feed

    def unsubscribe(self, query: QueryKey, feed: QueryFeed, watcher: QueryWatcher) -> None:
        feed.watchers.discard(watcher)
        if not feed.watchers:
            self._end_hold(query, feed)

    def subscribe_tenant(self, tenant: str, watcher: TenantWatcher) -> None:
        self._tenants.setdefault(tenant, set()).add(watcher)

    def unsubscribe_tenant(self, tenant: str, watcher: TenantWatcher) -> None:
        watchers = self._tenants.get(tenant, set())
        watchers.discard(watcher)
        if not watchers:
            self._tenants.pop(tenant, None)

    # -- polling ---------------------------------------------------------------------------------------------

    def watched_queries(self) -> list[QueryKey]:
        return list(self._feeds)

    def awaited_events(self, queries: Sequence[QueryKey]) -> dict[QueryKey, int]:
        """Return the number of the event that a watcher of each query waits for. Leave out queries whose watchers look
        for themselves, and those that this process added an event to since the last call: it may be committing the next.
        Drop events that all watchers have."""
        awaited = {}
        for query in queries:
            feed = self._feeds.get(query)
            if feed is not None:
                was_quiet = feed.is_quiet
                feed.clear_if_idle()
                if not was_quiet:
                    continue
                positions = [p for w in feed.watchers if (p := w.position) is not None]
                if positions:
                    awaited[query] = min(positions) + 1
        return awaited

    # -- news ------------------------------------------------------------------------------------------------

    def publish(self, query: QueryKey, first: int, events: Sequence[Event]) -> None:
        """Hand over events that this process just committed."""
        feed = self._feeds.get(query)
        if feed is not None:
            feed.add(first, events)
            feed.notify()
        for watcher in self._tenants.get(query[0], ()):
            watcher.notify(events)

    def mark_deleted(self, queries: Sequence[QueryKey]) -> None:
        """Mark these queries as deleted and notify their readers: no more events will come."""
        for query in queries:
            feed = self._feeds.get(query)
            if feed is not None:
                feed.is_deleted = True
                feed.notify()

    def invalidate(self, queries: Sequence[QueryKey]) -> None:
        """Notify the readers of these queries that another process wrote events: they read the database."""
        for query in queries:
            feed = self._feeds.get(query)
            if feed is not None:
                feed.clear()
                feed.notify()
        for tenant in {tenant for tenant, _ in queries}:
            for watcher in self._tenants.get(tenant, ()):
                watcher.notify(None)

    def forget_events(self) -> None:
        """Drop the events of all queries."""
        for feed in self._feeds.values():
            feed.clear()

    def wake_all(self) -> None:
        """Notify all readers of queries, because the process stops."""
        for feed in self._feeds.values():
            feed.notify()
