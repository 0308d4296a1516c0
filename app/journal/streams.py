"""Open streams of the journal, and find news that they were not notified of.

A stream subscribes before its first read. A notification is only a hint to read again. What this process wrote itself
comes from memory. A waiting stream holds no connection of the database.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from app.base.cursors import CursorSigner
from app.base.errors import Unavailable
from app.base.logs.structured import structlog
from app.base.postgres.database import Database
from app.journal import store
from app.journal.event_stream import EventStream, KeyCheck, StreamSet
from app.journal.hub import Hub
from app.journal.limits import StreamLimits
from app.journal.models import EventFilter, QueryKey, TenantPosition
from app.journal.open_streams import OpenStreams
from app.journal.query_stream import QueryStream
from app.journal.reader import JournalReader
from app.journal.tenant_stream import TenantFeeds, TenantStream

log = structlog.get_logger(__name__)

MAX_POLLED_QUERIES: Final = 1_000
"""Queries that are looked up at a time. If more are watched, the others follow at the next look. Each lookup costs Postgres
14 µs, and after an outage of the notifications all are looked up at once."""


class Streams:
    """The open streams of this process."""

    def __init__(
        self,
        db: Database,
        hub: Hub,
        signer: CursorSigner,
        *,
        reads: int,
        shared_bytes: int,
        limits: StreamLimits,
    ) -> None:
        """Set up streams. `reads`: how many read the database at once; `shared_bytes`: limit for bodies of large
        events."""
        self._db = db
        self._hub = hub
        self._limits = limits
        self._set = StreamSet(limits)
        self.draining = self._set.draining
        self.reader = JournalReader(db, signer, limits, self.draining, reads=reads, shared_bytes=shared_bytes)
        self.reads = self.reader.reads
        self.open_streams = OpenStreams(db.metrics)
        self._feeds = TenantFeeds(hub, self.reader)
        self._unpolled: list[QueryKey] = []
        self._missed_news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._drain: asyncio.Task[None] | None = None

    def start(self) -> None:
        limits = self._limits
        heartbeat_check_s = min(limits.heartbeat_interval_s, limits.key_check_interval_s)
        self._tasks = [
            asyncio.create_task(self._poll(), name="poll-streams"),
            asyncio.create_task(_repeat(heartbeat_check_s, self._set.send_heartbeats), name="heartbeats"),
            asyncio.create_task(
                _repeat(limits.key_check_interval_s, self._set.check_keys), name="key-checks"
            ),
        ]

    def drain(self) -> None:
        """End all streams, between two events where their clients read."""
        if not self.draining.is_set():
            self.draining.set()
            self._hub.wake_all()
            self._drain = asyncio.create_task(self._set.drain(), name="drain-streams")

    def rewind(self) -> None:
        """End all streams, and forget the events in memory: a promoted standby may not have them. Readers resume with their
        cursors, which are compared with the events that are there."""
        self._hub.forget_events()
        self._set.finish_all()

    async def aclose(self) -> None:
        self.drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._drain is not None:
            await self._drain

    @property
    def shared_bytes(self) -> int:
        """Return the bytes of large events that streams of this process share."""
        return self.reader.bodies.shared_bytes

    # -- opening ---------------------------------------------------------------------------------------------

    def query_stream(
        self,
        query: QueryKey,
        after: int,
        key: KeyCheck,
        types: Collection[str] | None = None,
        limit: int | None = None,
    ) -> EventStream:
        """Return the stream of a query's events after a position. It ends after `limit` events, or when the key is
        revoked."""
        return QueryStream(self._set, self._hub, self.reader, key, query, after, types, limit)

    def tenant_stream(
        self,
        tenant: str,
        position: TenantPosition,
        key: KeyCheck,
        filters: EventFilter,
        limit: int | None = None,
    ) -> EventStream:
        """Return the stream of a tenant's events after a position."""
        return TenantStream(self._set, self._feeds, self.reader, key, (tenant, filters), position, limit)

    # -- lost hints ------------------------------------------------------------------------------------------

    def poll_soon(self) -> None:
        """Look for news of all streams at once: notifications may have been lost."""
        self._missed_news.set()

    async def _poll(self) -> None:
        """Look for news regularly, because the notification of it may have been lost."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.poll_interval_s):
                    await self._missed_news.wait()
            try:
                await self._poll_tenants()
                if self._missed_news.is_set():
                    self._missed_news.clear()
                    self._unpolled = self._hub.watched_queries()
                    while self._unpolled:
                        await self._poll_queries()
                else:
                    self._unpolled = self._unpolled or self._hub.watched_queries()
                    await self._poll_queries()
            except Unavailable:
                await asyncio.sleep(self._limits.poll_interval_s)
            except Exception:
                log.exception("streams.poll_failed")
                await asyncio.sleep(self._limits.poll_interval_s)

    async def _poll_queries(self) -> None:
        """Look at the next watched queries."""
        queries = self._unpolled[-MAX_POLLED_QUERIES:]
        awaited = self._hub.awaited_events(queries)
        if awaited:
            moved, deleted = await store.find_moved_queries(self._db, awaited=awaited)
            self._hub.mark_deleted(deleted)
            self._hub.invalidate(moved)
        del self._unpolled[-MAX_POLLED_QUERIES:]

    async def _poll_tenants(self) -> None:
        positions = self._feeds.positions()
        if positions:
            found = await store.find_tenant_events(self._db, positions=[(k[0], at) for k, at in positions])
            self._feeds.notify([positions[n][0] for n in found])


async def _repeat(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Repeat this forever, with a pause in between."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception:
            log.exception("streams.poll_failed")
