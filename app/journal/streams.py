"""Reading the journal: pages, live streams, cursors.

Read, then wait, then read: a stream subscribes before its first read, a notification is only a hint to read again,
and what this process wrote itself comes straight from memory. While it waits a stream holds nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import structlog

from app.base.cursors import Signer
from app.base.database import Database, Tx
from app.base.errors import Conflict, Malformed, NotFound, Unavailable
from app.base.ids import is_id
from app.journal import store
from app.journal.hub import Hub
from app.journal.models import TERMINAL_TYPES, StoredEvent

log = structlog.get_logger(__name__)

PAGE = 500
SHORT_PAGE_BYTES = 128 * 1024  # a page cut by its bytes has more than this, or one event
RETRY = b"retry: 1000\n\n"
LOOK_EVERY_S = 1.0
TENANT_STREAM_KIND = "events of {}"  # a cursor is one tenant's
CHECK_KEY_EVERY_S = 2.0  # and keys are remembered for two seconds: revoked ones stop within five


class HistoryRewound(Conflict):
    """The database was restored or replaced: the cursor speaks of another history."""

    kind, title = "history_rewound", "The cursor is from another history of this database"


CURSOR = re.compile(r"([0-9a-f]{8})\.([0-9a-z]{10})\.([0-9]{1,18})\Z")


@dataclass(frozen=True, slots=True)
class QueryCursor:
    """`<generation>.<end of the query's id>.<seq>`: bound to its query and to the database's history."""

    START: ClassVar[int] = 0

    @staticmethod
    def encode(generation: str, query_id: str, seq: int) -> str:
        return f"{generation}.{query_id[-10:]}.{seq}"

    @staticmethod
    def decode(generation: str, query_id: str, text: str) -> int:
        """The seq to read after. Malformed, of another query, or of another history: an error, never a skip."""
        found = CURSOR.match(text)
        if found is None:
            raise Malformed(
                "The cursor is not one this service issued: use the `id` of an event or `nextCursor`."
            )
        if found[2] != query_id[-10:]:
            raise Malformed("The cursor belongs to another query.")
        if found[1] != generation:
            raise HistoryRewound(
                "The database was restored since: read the query's events again from the start."
            )
        return int(found[3])


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    """Whether the event is set before the time is over."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Streams:
    """Readers of the journal in this process."""

    def __init__(self, db: Database, hub: Hub, signer: Signer) -> None:
        self._db = db
        self._hub = hub
        self._signer = signer
        self._generation: str | None = None
        self.draining = asyncio.Event()
        self._poll: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._poll = asyncio.create_task(self._look(), name="streams-look")

    async def aclose(self) -> None:
        self.draining.set()
        self._hub.hint(None)
        if self._poll is not None:
            self._poll.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._poll

    async def generation(self, tx: Tx) -> str:
        if self._generation is None:
            self._generation = str(await tx.value("SELECT database_generation()"))
        return self._generation

    # -- one query -------------------------------------------------------------------------------------------

    async def position(self, tx: Tx, query_id: str, cursor: str | None) -> int:
        """Checks that the tenant has the query and that the cursor is one of it; gives the seq to read after."""
        heads = await store.own_heads(tx, [query_id]) if is_id("qry_", query_id) else []
        if not heads:
            raise NotFound(f"There is no query {query_id!r}.")
        generation = await self.generation(tx)
        if cursor is None:
            return QueryCursor.START
        seq = QueryCursor.decode(generation, query_id, cursor)
        if seq >= heads[0]["next_seq"]:
            raise Malformed("The cursor is ahead of the query's newest event.")
        return seq

    async def follow(
        self, tenant: str, query_id: str, after: int, types: Sequence[str] | None = None
    ) -> AsyncGenerator[list[StoredEvent], None]:
        """Batches of events after a position, live, until the terminal one, or until the query is deleted; an empty one
        when nothing happened for a while. Types filter what is given, not what is passed over."""
        over = None
        with self._hub.watch(query_id) as (channel, watch):
            while True:
                watch.woken.clear()
                batch = channel.after(after)
                complete = batch is not None
                if batch is None:
                    batch = await self._read(tenant, query_id, after)
                    complete = len(batch) < PAGE and sum(len(e.body) for e in batch) < SHORT_PAGE_BYTES
                    if not batch and over is None:  # who resumes after the terminal event waits for nothing
                        over = await self._over(tenant, query_id, after)
                        if over:
                            return
                if batch:
                    after = batch[-1].seq
                    wanted = [e for e in batch if types is None or e.type in types]
                    if wanted:
                        yield wanted
                    if batch[-1].type in TERMINAL_TYPES:
                        return
                if self.draining.is_set() or (channel.gone and not batch):
                    return
                watch.seen = after
                while complete and not await _happens(watch.woken, CHECK_KEY_EVERY_S):
                    yield []

    async def _read(self, tenant: str, query_id: str, after: int) -> list[StoredEvent]:
        """A page; through outages, because a stream is not the place to tell of one."""
        while True:
            try:
                async with self._db.transaction(tenant) as tx:
                    return await store.page(tx, query_id, after, PAGE)
            except Unavailable:
                if self.draining.is_set():
                    return []
                await asyncio.sleep(LOOK_EVERY_S)

    async def _over(self, tenant: str, query_id: str, after: int) -> bool | None:
        try:
            async with self._db.transaction(tenant) as tx:
                return await store.is_over_after(tx, query_id, after)
        except Unavailable:
            return None

    def frame(self, query_id: str, event: StoredEvent) -> bytes:
        """An event as it stands in a stream: id, type, and the envelope on one line."""
        cursor = QueryCursor.encode(self._generation or "", query_id, event.seq)
        return b"id: %s\nevent: %s\ndata: %s\n\n" % (cursor.encode(), event.type.encode(), event.envelope())

    async def sse(
        self,
        tenant: str,
        query_id: str,
        after: int,
        types: Sequence[str] | None,
        allowed: Callable[[], Awaitable[bool]],
    ) -> AsyncIterator[bytes]:
        """The frames of a query's stream, many a chunk. Ends when the key of the reader is revoked."""
        head = RETRY
        while self._generation is None:
            try:
                async with self._db.transaction(tenant) as tx:
                    await self.generation(tx)
            except Unavailable:
                if self.draining.is_set():
                    return
                await asyncio.sleep(LOOK_EVERY_S)
        clock = asyncio.get_running_loop().time
        due = clock() + CHECK_KEY_EVERY_S
        async with contextlib.aclosing(self.follow(tenant, query_id, after, types)) as batches:
            async for batch in batches:
                if clock() >= due:
                    if not await allowed():
                        return
                    due = clock() + CHECK_KEY_EVERY_S
                if batch:
                    yield head + b"".join(self.frame(query_id, e) for e in batch)
                    head = b""
        if head:
            yield head

    # -- everything of a tenant ------------------------------------------------------------------------------

    async def tenant_position(self, tx: Tx, cursor: str | None) -> tuple[int, str, int]:
        """Where to read on: without a cursor from now on."""
        generation = await self.generation(tx)
        if cursor is None:
            return (await self._settled(tx), "", 0)
        found, xid, query_id, seq = self._decode(tx.tenant, cursor)
        if found != generation:
            raise HistoryRewound("The database was restored since: start the stream without a cursor.")
        return (xid, query_id, seq)

    async def _settled(self, tx: Tx) -> int:
        """The oldest transaction that may still be open: nothing can appear below it any more."""
        return int(await tx.value("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"))

    def _decode(self, tenant: str, cursor: str) -> tuple[str, int, str, int]:
        match self._signer.decode(TENANT_STREAM_KIND.format(tenant), cursor):
            case [str(generation), int(xid), str(query_id), int(seq)]:
                return generation, xid, query_id, seq
        raise Malformed("The cursor is not one this service issued for this stream.")

    def tenant_cursor(self, tenant: str, position: tuple[int, str, int]) -> str:
        return self._signer.encode(TENANT_STREAM_KIND.format(tenant), [self._generation or "", *position])

    async def tenant_page(
        self,
        tx: Tx,
        position: tuple[int, str, int],
        limit: int,
        types: Sequence[str] | None,
        runtime_id: str | None,
        thread_id: str | None,
    ) -> list[tuple[tuple[int, str, int], StoredEvent]]:
        rows = await store.tenant_page(tx, position, limit, types, runtime_id, thread_id)
        return [
            ((r["xid"], r["query_id"], r["seq"]), StoredEvent(r["seq"], r["type"], r["body"])) for r in rows
        ]

    async def tenant_sse(
        self,
        tenant: str,
        position: tuple[int, str, int],
        types: Sequence[str] | None,
        runtime_id: str | None,
        thread_id: str | None,
        allowed: Callable[[], Awaitable[bool]],
    ) -> AsyncIterator[bytes]:
        """The frames of the tenant's stream; it lags by the longest open write, and skips nothing."""
        yield b"retry: 1000\n\n"
        checked = asyncio.get_running_loop().time()
        with self._hub.watch_all(tenant) as watch:
            while not self.draining.is_set():
                watch.woken.clear()
                rows, seen = [], 0
                with contextlib.suppress(Unavailable):
                    async with self._db.transaction(tenant) as tx:
                        settled = await self._settled(tx)
                        rows = await self.tenant_page(tx, position, PAGE, types, runtime_id, thread_id)
                        seen = settled  # not before: a page that could not be read was not passed over
                if rows:
                    position = rows[-1][0]
                    yield b"".join(
                        b"id: %s\nevent: %s\ndata: %s\n\n"
                        % (self.tenant_cursor(tenant, at).encode(), e.type.encode(), e.envelope())
                        for at, e in rows
                    )
                else:
                    position = max(position, (seen, "", 0))  # what was passed over is not read again
                    await _happens(watch.woken, LOOK_EVERY_S)
                now = asyncio.get_running_loop().time()
                if now - checked >= CHECK_KEY_EVERY_S:
                    checked = now
                    if not await allowed():
                        return

    # -- lost hints ------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """One statement a second over the heads of all watched queries finds what no hint told of."""
        known: dict[str, int] = {}
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            watched = self._hub.watched()
            if not watched:
                known.clear()
                continue
            try:
                heads = {h["id"]: h["next_seq"] for h in await store.heads(self._db, watched)}
            except Unavailable:
                continue
            except Exception:
                log.exception("streams.look_failed")
                continue
            self._hub.gone([q for q in watched if q not in heads])
            moved = [q for q, seq in heads.items() if known.get(q) != seq or self._hub.behind(q, seq)]
            known = heads
            if moved:
                self._hub.hint(moved)
