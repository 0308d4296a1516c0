"""Read the journal: pages, live streams, cursors.

A stream subscribes before its first read, and then reads and waits in turn. A notification is only a hint to
read again. What this process wrote itself comes from memory. A waiting stream holds no connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import structlog

from app.base.cursors import CursorSigner
from app.base.errors import Conflict, Malformed, NotFound, Unavailable
from app.base.ids import is_id
from app.base.postgres.database import Database, Tx
from app.events import TERMINAL_TYPES
from app.journal import frames, store
from app.journal.hub import Hub
from app.journal.limits import StreamLimits
from app.journal.models import EventFilter, JournalEvent, Page, QueryKey, TenantPosition
from app.journal.open_streams import OpenStreams
from app.journal.reads import StreamReads
from app.journal.shared_bodies import EventDeleted, SharedBodies

log = structlog.get_logger(__name__)

MAX_PAGE_EVENTS = 500
TENANT_STREAM_KIND = "events of {}"  # cursors are bound to a tenant


class HistoryRewound(Conflict):
    """The database was restored or replaced: the cursor belongs to another history."""

    kind, title = "history_rewound", "The cursor is from another history of this database"


CURSOR = re.compile(r"([0-9a-f]{8})\.([0-9a-z]{10})\.([0-9]{1,18})\Z")


@dataclass(frozen=True, slots=True)
class QueryCursor:
    """A cursor `<generation>.<end of the query's id>.<seq>`, bound to its query and the database's
    history."""

    START: ClassVar[int] = 0

    @staticmethod
    def encode(generation: str, query_id: str, seq: int) -> str:
        return f"{generation}.{query_id[-10:]}.{seq}"

    @staticmethod
    def decode(generation: str, query_id: str, text: str) -> int:
        """Return the seq to read after. Raise Malformed for an invalid cursor or one of another query,
        HistoryRewound for one of another history."""
        match = CURSOR.match(text)
        if match is None:
            raise Malformed(
                "The cursor was not issued by this service: use the `id` of an event or `nextCursor`."
            )
        if match[2] != query_id[-10:]:
            raise Malformed("The cursor belongs to another query.")
        if match[1] != generation:
            raise HistoryRewound(
                "The database was restored since then: read the query's events again from the start."
            )
        return int(match[3])


async def _wait_for_event(event: asyncio.Event, within_s: float) -> bool:
    """Return whether the event is set within the time."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Streams:
    """Readers of the journal in this process."""

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
        """Set up readers. `reads`: how many streams read the database at once; `shared_bytes`: limit for
        bodies of large events."""
        self._db = db
        self._limits = limits
        self.reads = StreamReads(db, reads)
        self.open_streams = OpenStreams(db.metrics)
        self._bodies = SharedBodies(self._read_with_retry, shared_bytes)
        self._hub = hub
        self._signer = signer
        self._generation: str | None = None
        self.draining = asyncio.Event()
        self._poll: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._poll = asyncio.create_task(self._poll_heads(), name="poll-streams")

    async def aclose(self) -> None:
        self.draining.set()
        self._hub.invalidate(None)
        if self._poll is not None:
            self._poll.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._poll

    @property
    def shared_bytes(self) -> int:
        """Return the bytes of large events that streams of this process share."""
        return self._bodies.shared_bytes

    async def generation(self, tx: Tx) -> str:
        if self._generation is None:
            self._generation = await store.load_generation(tx)
        return self._generation

    # -- one query -------------------------------------------------------------------------------------------

    async def position(self, tx: Tx, query_id: str, cursor: str | None) -> int:
        """Return the seq to read after. Raise NotFound if the tenant has no such query, Malformed for a wrong
        cursor."""
        next_seq = await store.load_next_seq(tx, query_id=query_id) if is_id("qry_", query_id) else None
        if next_seq is None:
            raise NotFound(f"There is no query {query_id!r}.")
        generation = await self.generation(tx)
        if cursor is None:
            return QueryCursor.START
        seq = QueryCursor.decode(generation, query_id, cursor)
        if seq >= next_seq:
            raise Malformed("The cursor is ahead of the query's newest event.")
        return seq

    async def follow(
        self, tenant: str, query_id: str, after: int, types: Sequence[str] | None = None
    ) -> AsyncGenerator[list[JournalEvent], None]:
        """Yield batches of events after a position, live, until the terminal event or the deletion of the
        query.

        Yield an empty batch when nothing happened for a while. `types` filters what is yielded.
        """
        over = None
        with self._hub.watch((tenant, query_id)) as (feed, watch):
            while True:
                watch.wake.clear()
                page = feed.after(after)
                if page is None:
                    page = await self._next_page(tenant, query_id, after)
                    if page is None:  # an outage
                        if self.draining.is_set():
                            return
                        await asyncio.sleep(self._limits.poll_interval_s)
                        yield []
                        continue
                    if (
                        not page.events and over is None
                    ):  # a reader that resumes after the terminal event must not wait
                        over = await self._is_over(tenant, query_id, after)
                        if over:
                            return
                if page.events:
                    after = page.events[-1].seq
                    selected = [e for e in page.events if types is None or e.type in types]
                    if selected:
                        yield selected
                    if page.events[-1].type in TERMINAL_TYPES:
                        return
                if self.draining.is_set() or (feed.is_deleted and not page.events):
                    return
                watch.last_seq = after
                while page.complete and not await _wait_for_event(
                    watch.wake, self._limits.idle_batch_interval_s
                ):
                    yield []

    async def _next_page(self, tenant: str, query_id: str, after: int) -> Page | None:
        """Return the next page, or None in an outage: a stream does not report outages."""
        try:
            async with self.reads.transaction(tenant) as tx:
                return await store.load_stream_page(tx, query_id=query_id, after=after, limit=MAX_PAGE_EVENTS)
        except Unavailable:
            return None

    async def _is_over(self, tenant: str, query_id: str, after: int) -> bool | None:
        try:
            async with self.reads.transaction(tenant) as tx:
                return await store.is_over_after(tx, query_id=query_id, seq=after)
        except Unavailable:
            return None

    async def _read_with_retry(
        self, tenant: str, read: Callable[[Tx], Awaitable[bytes | None]]
    ) -> bytes | None:
        """Read, and retry during outages. Return None if the process is stopping."""
        while True:
            try:
                async with self.reads.transaction(tenant) as tx:
                    return await read(tx)
            except Unavailable:
                if self.draining.is_set():
                    return None
                await asyncio.sleep(self._limits.poll_interval_s)

    async def sse(
        self,
        tenant: str,
        query_id: str,
        after: int,
        types: Sequence[str] | None,
        is_allowed: Callable[[], Awaitable[bool]],
        limit: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the frames of a query's stream in chunks. End after `limit` events, or when the reader's key is
        revoked."""
        batches = frames.limit_events(self._query_batches(tenant, query_id, after, types), limit)
        async with contextlib.aclosing(
            frames.encode_frames(self._bodies, tenant, batches, is_allowed, self._limits)
        ) as chunks:
            with contextlib.suppress(EventDeleted):  # readers ignore an incomplete frame
                async for chunk in chunks:
                    yield chunk

    async def _query_batches(
        self, tenant: str, query_id: str, after: int, types: Sequence[str] | None
    ) -> AsyncGenerator[frames.Batch, None]:
        while self._generation is None:
            try:
                async with self.reads.transaction(tenant) as tx:
                    await self.generation(tx)
            except Unavailable:
                if self.draining.is_set():
                    return
                await asyncio.sleep(self._limits.poll_interval_s)
        generation = self._generation
        async with contextlib.aclosing(self.follow(tenant, query_id, after, types)) as pages:
            async for events in pages:
                yield [(QueryCursor.encode(generation, query_id, e.seq), query_id, e) for e in events]

    # -- everything of a tenant ------------------------------------------------------------------------------

    async def tenant_position(self, tx: Tx, cursor: str | None) -> TenantPosition:
        """Return the position to continue from; without a cursor, from now on."""
        generation = await self.generation(tx)
        if cursor is None:
            return (await store.oldest_open_xid(tx), "", 0)
        cursor_generation, xid, query_id, seq = self._decode(tx.tenant, cursor)
        if cursor_generation != generation:
            raise HistoryRewound("The database was restored since then: start the stream without a cursor.")
        return (xid, query_id, seq)

    def _decode(self, tenant: str, cursor: str) -> tuple[str, int, str, int]:
        match self._signer.decode(TENANT_STREAM_KIND.format(tenant), cursor):
            case [str(generation), int(xid), str(query_id), int(seq)]:
                return generation, xid, query_id, seq
        raise Malformed("The cursor was not issued for this stream.")

    def tenant_cursor(self, tenant: str, position: TenantPosition) -> str:
        return self._signer.encode(TENANT_STREAM_KIND.format(tenant), [self._generation or "", *position])

    async def tenant_sse(
        self,
        tenant: str,
        position: TenantPosition,
        filters: EventFilter,
        is_allowed: Callable[[], Awaitable[bool]],
        limit: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the frames of the tenant's stream. It lags by the longest open write and skips nothing. It ends after
        `limit` events."""
        yield frames.RETRY_FRAME
        batches = frames.limit_events(self._tenant_batches(tenant, position, filters), limit)
        async with contextlib.aclosing(
            frames.encode_frames(self._bodies, tenant, batches, is_allowed, self._limits, b"")
        ) as chunks:
            with contextlib.suppress(EventDeleted):
                async for chunk in chunks:
                    yield chunk

    async def _tenant_batches(
        self,
        tenant: str,
        position: TenantPosition,
        filters: EventFilter,
    ) -> AsyncGenerator[frames.Batch, None]:
        with self._hub.watch_all(tenant) as watch:
            while not self.draining.is_set():
                watch.wake.clear()
                rows: list[tuple[TenantPosition, JournalEvent]] = []
                read_until = 0
                with contextlib.suppress(Unavailable):
                    async with self.reads.transaction(tenant) as tx:
                        settled = await store.oldest_open_xid(tx)
                        rows = await store.load_tenant_page(
                            tx, after=position, filters=filters, limit=MAX_PAGE_EVENTS, streamed=True
                        )
                        read_until = (
                            settled  # only after the read: a page that could not be read must not be skipped
                        )
                if rows:
                    position = rows[-1][0]
                    yield [(self.tenant_cursor(tenant, at), at[1], e) for at, e in rows]
                else:
                    position = max(position, (read_until, "", 0))  # do not read again what was filtered out
                    await _wait_for_event(watch.wake, self._limits.poll_interval_s)
                    yield []

    # -- lost hints ------------------------------------------------------------------------------------------

    async def _poll_heads(self) -> None:
        """Poll the heads of all watched queries once a second, to find events whose notification was lost."""
        known: dict[QueryKey, int] = {}
        while True:
            await asyncio.sleep(self._limits.poll_interval_s)
            watched = self._hub.watched_queries()
            if not watched:
                known.clear()
                continue
            try:
                heads = {h.query_key: h.next_seq for h in await store.load_heads(self._db, queries=watched)}
            except Unavailable:
                continue
            except Exception:
                log.exception("streams.poll_failed")
                continue
            self._hub.mark_deleted([q for q in watched if q not in heads])
            moved = [q for q, seq in heads.items() if known.get(q) != seq or self._hub.is_behind(q, seq)]
            known = heads
            if moved:
                self._hub.invalidate(moved)
