"""The streams of a tenant's events. Those with the same filters share one read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from app.base.logs.structured import structlog
from app.journal import frames
from app.journal.event_stream import EventStream, KeyCheck, Rest, StreamSet, in_turns
from app.journal.hub import Hub
from app.journal.models import Event, EventFilter, LargeEvent, TenantPosition
from app.journal.reader import JournalReader, TenantEventPage

log = structlog.get_logger(__name__)

FeedKey = tuple[str, EventFilter]
"""A tenant and the filters of its streams."""
Frame = tuple[TenantPosition, bytes]


class TenantFeed:
    """One read of a tenant's events for all of `streams`, which have everything up to `position`."""

    def __init__(self, reader: JournalReader, key: FeedKey, position: TenantPosition) -> None:
        self.position = position
        self.streams: set[TenantStream] = set()
        self._reader = reader
        self._tenant, self._filters = key
        self._has_news = False
        self._task: asyncio.Task[None] | None = None

    def notify(self, events: Sequence[Event] | None) -> None:
        """Read, unless no stream gets any of these events."""
        if events is None or any(self._filters.matches_type(e.type) for e in events):
            self._has_news = True
            if self._task is None:
                self._task = asyncio.create_task(self._read(), name="tenant-feed")

    async def _read(self) -> None:
        """Read until there is nothing new. In an outage, the next poll notifies the feed again."""
        try:
            while self._has_news and self.streams:
                self._has_news = False
                page = await self._reader.load_tenant_page(self._tenant, self.position, self._filters)
                if page is None:
                    return
                self.position = page.end(self.position)
                self._has_news = self._has_news or not page.complete
                if page.rows:
                    await self._deliver(page)
        except Exception:
            log.exception("streams.poll_failed")
        finally:
            self._task = None

    async def _deliver(self, page: TenantEventPage) -> None:
        """Send these events to all streams. Each stream reads a large one itself, and what follows it."""
        encoded: list[Frame] = []
        has_large = False
        for at, event in page.rows:
            if isinstance(event, LargeEvent):
                has_large = True
                break
            cursor = self._reader.tenant_cursor(self._tenant, page.history, at, event)
            encoded.append((at, frames.encode_event(cursor, event)))
        data = b"".join(frame for _, frame in encoded)
        async for stream in in_turns(list(self.streams)):
            if stream in self.streams:
                stream.take(encoded, data, has_large=has_large)


class TenantFeeds:
    """The feeds of a process."""

    def __init__(self, hub: Hub, reader: JournalReader) -> None:
        self._hub = hub
        self._reader = reader
        self._feeds: dict[FeedKey, TenantFeed] = {}

    def join(self, stream: TenantStream, *, create: bool) -> bool:
        """Let a feed send this stream what follows its position. Return False if the stream must read first, because the
        feed is ahead of it, or there is none and it was not to be created."""
        feed = self._feeds.get(stream.feed_key)
        if feed is None and create:
            feed = self._feeds[stream.feed_key] = TenantFeed(self._reader, stream.feed_key, stream.position)
            self._hub.subscribe_tenant(stream.feed_key[0], feed)
            feed.streams.add(stream)
            feed.notify(None)  # something may have been committed before the feed was there
            return True
        if feed is None or stream.position < feed.position:
            return False
        feed.streams.add(stream)
        return True

    def has(self, stream: TenantStream) -> bool:
        """Return whether a feed sends this stream its events."""
        feed = self._feeds.get(stream.feed_key)
        return feed is not None and stream in feed.streams

    def leave(self, stream: TenantStream) -> None:
        feed = self._feeds.get(stream.feed_key)
        if feed is not None and stream in feed.streams:
            feed.streams.discard(stream)
            if not feed.streams:
                del self._feeds[stream.feed_key]
                self._hub.unsubscribe_tenant(stream.feed_key[0], feed)

    def positions(self) -> list[tuple[FeedKey, TenantPosition]]:
        return [(key, feed.position) for key, feed in self._feeds.items()]

    def notify(self, keys: Sequence[FeedKey]) -> None:
        """Let these feeds read."""
        for key in keys:
            feed = self._feeds.get(key)
            if feed is not None:
                feed.notify(None)


class TenantStream(EventStream):
    """The events of a tenant after a position. It lags by the longest open write and skips nothing."""

    __slots__ = ("_feeds", "_reader", "feed_key", "position")

    def __init__(
        self,
        streams: StreamSet,
        feeds: TenantFeeds,
        reader: JournalReader,
        key: KeyCheck,
        feed_key: FeedKey,
        position: TenantPosition,
        limit: int | None,
    ) -> None:
        super().__init__(streams, key, limit)
        self._feeds = feeds
        self._reader = reader
        self.feed_key = feed_key
        self.position = position

    def _unsubscribe(self) -> None:
        self._feeds.leave(self)

    def _flush_memory(self) -> bool:
        return self._feeds.has(self) or self._feeds.join(self, create=False)

    def _start(self, rest: Rest | None = None) -> None:
        self._feeds.leave(self)
        super()._start(rest)

    def take(self, encoded: Sequence[Frame], data: bytes, *, has_large: bool) -> None:
        """Send these frames, joined in `data`, without those that the stream has sent already. With `has_large`, read
        what follows them."""
        if not self.is_idle:
            self._feeds.leave(self)
            self._has_news = True
            return
        if encoded and encoded[0][0] <= self.position:
            encoded = [frame for frame in encoded if frame[0] > self.position]
            data = b"".join(frame for _, frame in encoded)
        if self._left is not None and self._left < len(encoded):
            data = b"".join(frame for _, frame in encoded[: self._left])
        sent = self._limited(encoded)
        if sent:
            self.position = sent[-1][0]
            self._push(data, is_last=self._left == 0)
        if has_large and self.is_idle:
            self._start()

    async def _catch_up(self) -> bool:
        tenant, filters = self.feed_key
        complete = False
        while not self._set.draining.is_set():
            if self._feeds.join(self, create=complete):
                return False
            page = await self._reader.load_tenant_page(tenant, self.position, filters)
            if page is None:
                await self._pause()
                continue
            rows = self._limited(page.rows)
            if rows:
                batch = [
                    (self._reader.tenant_cursor(tenant, page.history, at, e), at[1], e) for at, e in rows
                ]
                async with contextlib.aclosing(frames.chunks(self._reader.bodies, tenant, batch)) as chunks:
                    async for chunk in chunks:
                        await self._write(chunk)
            if self._left == 0:
                return True
            self.position = page.end(self.position)
            complete = page.complete
        return True
