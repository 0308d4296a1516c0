"""Read the journal for streams: a few at a time, and without errors while the database is unavailable."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from app.base.cursors import CursorSigner
from app.base.errors import Conflict, Malformed, NotFound, Unavailable
from app.base.ids import is_id
from app.base.postgres.database import Database, Tx
from app.journal import store
from app.journal.limits import StreamLimits
from app.journal.models import EventFilter, JournalEvent, Page, TenantPosition
from app.journal.reads import StreamReads
from app.journal.shared_bodies import SharedBodies

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


@dataclass(frozen=True, slots=True)
class TenantEventPage:
    """A page of a tenant's events. Nothing else follows below the transaction `settled` if it is `complete`."""

    rows: Sequence[tuple[TenantPosition, JournalEvent]]
    settled: int
    complete: bool

    def end(self, position: TenantPosition) -> TenantPosition:
        """Return where to read on after this page, which was read from `position`."""
        if self.rows:
            position = self.rows[-1][0]
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
        self.generation: str | None = None
        self._signer = signer
        self._limits = limits
        self._draining = draining

    # -- positions -------------------------------------------------------------------------------------------

    async def read_generation(self, tx: Tx) -> str:
        if self.generation is None:
            self.generation = await store.load_generation(tx)
        return self.generation

    async def position(self, tx: Tx, query_id: str, cursor: str | None) -> int:
        """Return the seq to read after. Raise NotFound if the tenant has no such query, Malformed for a wrong
        cursor."""
        next_seq = await store.load_next_seq(tx, query_id=query_id) if is_id("qry_", query_id) else None
        if next_seq is None:
            raise NotFound(f"There is no query {query_id!r}.")
        generation = await self.read_generation(tx)
        if cursor is None:
            return QueryCursor.START
        seq = QueryCursor.decode(generation, query_id, cursor)
        if seq >= next_seq:
            raise Malformed("The cursor is ahead of the query's newest event.")
        return seq

    async def tenant_position(self, tx: Tx, cursor: str | None) -> TenantPosition:
        """Return the position to continue from; without a cursor, from now on."""
        generation = await self.read_generation(tx)
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
        return self._signer.encode(TENANT_STREAM_KIND.format(tenant), [self.generation or "", *position])

    # -- reads; None is an outage, which a stream does not report --------------------------------------------

    async def load_generation(self, tenant: str) -> str | None:
        try:
            async with self.reads.transaction(tenant) as tx:
                return await self.read_generation(tx)
        except Unavailable:
            return None

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
                settled = await store.oldest_open_xid(tx)
                rows, complete = await store.load_tenant_stream_page(
                    tx, after=position, filters=filters, limit=MAX_PAGE_EVENTS
                )
        except Unavailable:
            return None
        return TenantEventPage(rows, settled, complete)

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
