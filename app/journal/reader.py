"""Read the journal for streams: a few at a time, and without errors while the database is unavailable."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from app.base.cursors import CursorSigner
from app.base.errors import Conflict, Malformed, NotFound, Unavailable
from app.base.ids import is_id
from app.base.postgres.database import Database, Tx
from app.journal import store
from app.journal.limits import StreamLimits
from app.journal.models import (
    EventFilter,
    EventHead,
    FilteredEvents,
    History,
    JournalEvent,
    Page,
    TenantPosition,
)
from app.journal.reads import StreamReads
from app.journal.shared_bodies import SharedBodies

MAX_PAGE_EVENTS = 500
TENANT_STREAM_KIND = "events of {}"  # cursors are bound to a tenant


class HistoryRewound(Conflict):
    """The database was restored, or lost its newest events: the cursor belongs to another history."""

    kind, title = "history_rewound", "The cursor is from another history of this database"


CURSOR = re.compile(r"([0-9a-f]{12})\.([0-9a-z]{10})\.([0-9]{1,18})\Z")
NO_EVENT_DIGEST: Final = "0" * 12


@dataclass(frozen=True, slots=True)
class QueryCursor:
    """A cursor `<hash of the event>.<end of the query's id>.<seq>`. It names the last event that its reader has."""

    digest: str
    seq: int

    START: ClassVar[int] = 0

    @classmethod
    def start(cls, query_id: str) -> str:
        """Return the cursor of a reader that has no event yet."""
        return cls.encode(NO_EVENT_DIGEST, query_id, cls.START)

    @staticmethod
    def encode(digest: str, query_id: str, seq: int) -> str:
        return f"{digest}.{query_id[-10:]}.{seq}"

    @classmethod
    def decode(cls, query_id: str, text: str) -> QueryCursor:
        """Return the parts of a cursor. Raise Malformed for an invalid cursor or one of another query."""
        match = CURSOR.match(text)
        if match is None:
            raise Malformed(
                "The cursor was not issued by this service: use the `id` of an event or `nextCursor`."
            )
        if match[2] != query_id[-10:]:
            raise Malformed("The cursor belongs to another query.")
        return cls(match[1], int(match[3]))


@dataclass(frozen=True, slots=True)
class TenantEventPage:
    """A page of a tenant's events. Nothing else follows below the transaction `settled` if it is complete."""

    page: FilteredEvents
    history: History
    settled: int

    @property
    def rows(self) -> Sequence[tuple[TenantPosition, JournalEvent]]:
        return self.page.rows

    @property
    def complete(self) -> bool:
        return self.page.complete

    def end(self, position: TenantPosition) -> TenantPosition:
        """Return where to read on after this page, which was read from `position`."""
        if self.rows:
            position = self.rows[-1][0]
        if self.page.examined is not None:
            return max(position, self.page.examined[0])
        return max(position, (self.settled, "", 0)) if self.complete else position


class JournalReader:
    """The reads of all streams of a process."""

    def __init__(
        self,
        db: Database,
        signer: CursorSigner,
        limits: StreamLimits,
        draining: asyncio.Event,
        *,
        reads: int,
        shared_bytes: int,
    ) -> None:
        """Set up reads. `reads`: how many are in progress at once; `shared_bytes`: limit for bodies of large
        events."""
        self.reads = StreamReads(db, reads)
        self.bodies = SharedBodies(self._read_with_retry, shared_bytes)
        self._signer = signer
        self._limits = limits
        self._draining = draining

    # -- cursors ---------------------------------------------------------------------------------------------

    def query_cursor(self, query_id: str, event: JournalEvent) -> str:
        """Return the cursor of a reader that has this event and everything before it."""
        return QueryCursor.encode(self._digest(event), query_id, event.seq)

    async def position(self, tx: Tx, query_id: str, cursor: str | None) -> int:
        """Return the seq to read after.

        Raises:
            NotFound: the tenant has no such query.
            Malformed: the cursor is invalid or of another query.
            HistoryRewound: the event that it names is missing, or another one has its number.
        """
        after = QueryCursor.decode(query_id, cursor) if cursor is not None else None
        seq = QueryCursor.START if after is None else after.seq
        event = (
            await store.load_query_event_head(tx, query_id=query_id, seq=seq)
            if is_id("qry_", query_id)
            else None
        )
        if event is None:
            raise NotFound(f"There is no query {query_id!r}.")
        if after is not None and seq != QueryCursor.START and self._digest(event) != after.digest:
            raise HistoryRewound(
                "The database was restored since then, or lost its newest events: it does not have the event that the "
                "cursor names. Read the query's events again from the start."
            )
        return seq

    def tenant_cursor(
        self, tenant: str, history: History, position: TenantPosition, event: JournalEvent | EventHead | None
    ) -> str:
        """Return the cursor of a reader that has the event at this position and everything before it. If `event` is None,
        the tenant had no events yet."""
        digest = NO_EVENT_DIGEST if event is None else self._digest(event)
        return self._signer.encode(
            TENANT_STREAM_KIND.format(tenant), [history.generation, history.timeline, digest, *position]
        )

    async def tenant_position(self, tx: Tx, cursor: str | None) -> TenantPosition:
        """Return the position to continue from; without a cursor, from now on. Raise Malformed for an invalid cursor,
        HistoryRewound for one of another history."""
        if cursor is None:
            return (await store.oldest_open_xid(tx), "", 0)
        try:
            history, digest, position = self._decode(tx.tenant, cursor)
        except Malformed as error:
            if (await store.load_history(tx)).is_imported:
                raise HistoryRewound(
                    "The tenant was moved since then, and the cursor is from the deployment where it was. Start the stream "
                    "without a cursor."
                ) from error
            raise
        if not await self._is_same_history(tx, history, digest, position):
            raise HistoryRewound(
                "Since the cursor was issued, the database was restored, the tenant was moved, or the promotion of a standby "
                "lost the newest events. Start the stream without a cursor."
            )
        return position

    async def _is_same_history(self, tx: Tx, history: History, digest: str, position: TenantPosition) -> bool:
        """Return whether everything before `position` is what it was. On one timeline, only a deletion removes an event. On
        another one, nothing tells a deleted event from a lost one."""
        current = await store.load_history(tx)
        if history.generation != current.generation:
            return False
        if history.timeline == current.timeline or digest == NO_EVENT_DIGEST:
            return True
        event = await store.load_tenant_event_head(tx, position=position)
        return event is not None and self._digest(event) == digest

    async def tenant_cursor_at(self, tx: Tx, below: int) -> str:
        """Return a cursor after all events from transactions before `below`. It names the newest of them, so that it is
        found to be of another history if that is lost."""
        newest = await store.load_newest_event(tx, below=below)
        position, event = newest or ((0, "", 0), None)
        return self.tenant_cursor(tx.tenant, await store.load_history(tx), position, event)

    def _decode(self, tenant: str, cursor: str) -> tuple[History, str, TenantPosition]:
        match self._signer.decode(TENANT_STREAM_KIND.format(tenant), cursor):
            case [str(generation), str(timeline), str(digest), int(xid), str(query_id), int(seq)]:
                return History(generation, timeline), digest, (xid, query_id, seq)
        raise Malformed("The cursor was not issued for this stream.")

    def _digest(self, event: JournalEvent | EventHead) -> str:
        return self._signer.digest(b"%d:%s" % (event.size_bytes, event.head))

    # -- reads; None is an outage, which a stream does not report --------------------------------------------

    async def load_query_page(self, tenant: str, query_id: str, after: int) -> Page | None:
        try:
            async with self.reads.transaction(tenant) as tx:
                return await store.load_stream_page(tx, query_id=query_id, after=after, limit=MAX_PAGE_EVENTS)
        except Unavailable:
            return None

    async def is_over(self, tenant: str, query_id: str, after: int) -> bool | None:
        """Return whether nothing can follow this position."""
        try:
            async with self.reads.transaction(tenant) as tx:
                return await store.is_over_after(tx, query_id=query_id, seq=after)
        except Unavailable:
            return None

    async def load_tenant_page(
        self, tenant: str, position: TenantPosition, filters: EventFilter
    ) -> TenantEventPage | None:
        try:
            async with self.reads.transaction(tenant) as tx:
                history = await store.load_history(tx)
                settled = await store.oldest_open_xid(tx)
                page = await store.load_tenant_stream_page(
                    tx, after=position, filters=filters, limit=MAX_PAGE_EVENTS
                )
        except Unavailable:
            return None
        return TenantEventPage(page, history, settled)

    async def _read_with_retry(
        self, tenant: str, read: Callable[[Tx], Awaitable[bytes | None]]
    ) -> bytes | None:
        """Read, and retry during outages. Return None if the process is stopping."""
        while True:
            try:
                async with self.reads.transaction(tenant) as tx:
                    return await read(tx)
            except Unavailable:
                if self._draining.is_set():
                    return None
                await asyncio.sleep(self._limits.poll_interval_s)
