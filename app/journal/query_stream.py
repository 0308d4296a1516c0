"""The stream of one query."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

from app.events import TERMINAL_TYPES
from app.journal import frames
from app.journal.event_stream import EventStream, KeyCheck, StreamSet
from app.journal.hub import Hub, QueryFeed
from app.journal.models import JournalEvent, LargeEvent, Page
from app.journal.reader import JournalReader


class QueryStream(EventStream):
    """The events of a query after a position, until the terminal event or the deletion of the query."""

    __slots__ = ("_feed", "_hub", "_is_known_open", "_query", "_reader", "_types", "last_seq")

    def __init__(
        self,
        streams: StreamSet,
        hub: Hub,
        reader: JournalReader,
        key: KeyCheck,
        query: tuple[str, str],
        after: int,
        types: Collection[str] | None,
        limit: int | None,
    ) -> None:
        """Set up a stream of this tenant and query. `types` filters what is sent, not what is passed over."""
        super().__init__(streams, key, limit)
        self._hub = hub
        self._reader = reader
        self._query = query
        self._types = types
        self._feed: QueryFeed | None = None
        self._is_known_open = False  # something may follow `last_seq`
        self.last_seq = after

    @property
    def position(self) -> int | None:
        """Return the number of the last event that was sent or passed over; None while more is being read."""
        return self.last_seq if self.is_idle else None

    def _unsubscribe(self) -> None:
        if self._feed is not None:
            self._hub.unsubscribe(self._query, self._feed, self)
            self._feed = None

    def _flush_memory(self) -> bool:
        if self._feed is None:
            self._feed = self._hub.subscribe(self._query, self)
        while self.is_idle:
            page = self._feed.after(self.last_seq)
            if page is None or not page.events:
                if self._feed.is_deleted:
                    self.finish()
                return page is not None and self._is_known_open
            if any(isinstance(e, LargeEvent) for e in page.events):
                return False
            selected, is_over = self._advance(page.events)
            data = b"".join(
                frames.encode_event(self._reader.query_cursor(self._query[1], e), e)
                for e in selected
                if not isinstance(e, LargeEvent)
            )
            if data or is_over:
                self._push(data, is_last=is_over)
            if page.complete:
                break
        return True

    def _advance(self, events: Sequence[JournalEvent]) -> tuple[Sequence[JournalEvent], bool]:
        """Return those of the next events that are sent, and whether nothing follows them."""
        selected = [e for e in events if self._types is None or e.type in self._types]
        self.last_seq = events[-1].seq
        self._is_known_open = True
        return self._limited(selected), self._left == 0 or events[-1].type in TERMINAL_TYPES

    async def _catch_up(self) -> bool:
        tenant, query_id = self._query
        while True:
            self._has_news = False
            page = await self._next_page()
            if page is None:
                if self._set.draining.is_set():
                    return True
                await self._pause()
                continue
            if page.events:
                selected, is_over = self._advance(page.events)
                batch = [(self._reader.query_cursor(query_id, e), query_id, e) for e in selected]
                async with contextlib.aclosing(frames.chunks(self._reader.bodies, tenant, batch)) as chunks:
                    async for chunk in chunks:
                        await self._write(chunk)
                if is_over:
                    return True
            if self._set.draining.is_set() or not (page.events or self._is_known_open):
                return True
            if page.complete and not self._has_news:
                return False

    async def _next_page(self) -> Page | None:
        """Return the next page, which is empty if there are no new events, or None in an outage."""
        feed = self._feed
        if feed is None:  # the stream ended meanwhile
            return Page([], complete=True)
        tenant, query_id = self._query
        page = feed.after(self.last_seq)
        if page is None:
            page = await self._reader.load_query_page(tenant, query_id, self.last_seq)
        if page is not None and not page.events:
            if feed.is_deleted:
                self._is_known_open = False
            elif not self._is_known_open:  # a reader that resumes after the terminal event must not wait
                is_over = await self._reader.is_over(tenant, query_id, self.last_seq)
                if is_over is None:
                    return None
                self._is_known_open = not is_over
        return page
