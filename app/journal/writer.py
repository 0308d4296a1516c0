"""The group-commit writer, one per process.

It takes everything that its queries produced during its last commit, writes it in one transaction, and passes
it to the streams of its own process in memory. The first token of a turn, and every entry for whose commit its
producer waits, is committed at once. Later tokens wait for others, for at most MAX_TOKEN_WAIT_S. Producers wait when
too much is pending; nothing is ever dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque

from app.base.errors import Unavailable
from app.base.logs.processors import Throttle
from app.base.logs.structured import structlog
from app.base.postgres.database import Database, is_outage
from app.events import EVENT_MODELS
from app.journal import store
from app.journal.ended_work import ended_work
from app.journal.hub import Hub
from app.journal.models import Delta, Entry, Event, Lease, LeaseLost, Pending, event

log = structlog.get_logger(__name__)

MAX_PENDING_BYTES = 8 * 1024 * 1024
MAX_BATCH_ENTRIES = 500
MAX_TOKEN_WAIT_S = 0.010
"""How long a token that is not the first of its turn may wait for others before its commit begins."""
MIN_RETRY_S, MAX_RETRY_S = 0.05, 1.0


class ParkRejected(Exception):
    """The query was woken between its last check and parking it: check again."""


class JournalWriter:
    """Writes the journal. `commit` is durable when it returns; `post` is durable before any later commit of
    the same lease."""

    def __init__(self, db: Database, hub: Hub, origin: str) -> None:
        self._db = db
        self._metrics = db.metrics
        self._hub = hub
        self._origin = origin
        self._queue: deque[Pending] = deque()
        self._open: dict[Lease, Pending] = {}
        self._bytes = 0
        self._is_due = asyncio.Event()
        self._token_timer: asyncio.TimerHandle | None = None  # of the token that has waited longest
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="journal-writer")

    async def aclose(self) -> None:
        """Write what is pending (for at most two seconds), then stop."""
        if self._task is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self._is_idle.wait()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def commit(self, lease: Lease, entry: Entry) -> None:
        """Add an entry and wait until it is durable.

        Raise LeaseLost if it was not and never will be written, ParkRejected if the query was woken, and any
        other exception if the entry itself is bad.
        """
        pending = self._add(lease, entry)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending.waiters.append(waiter)
        self._is_due.set()
        await waiter

    async def post(self, lease: Lease, delta: Delta, *, is_first: bool = False) -> None:
        """Add a delta without waiting for its commit; wait only while too much is pending.

        `is_first`: it is the first of its turn, so its commit is not delayed.
        """
        if not self._has_capacity.is_set():
            await self._has_capacity.wait()
        if lease.lost:
            raise LeaseLost
        self._bytes += len(delta.text)
        pending = self._open.get(lease)
        if pending is not None and pending.change is None and lease.post_error is None:
            pending.items.append(delta)
        else:
            self._add(lease, Entry(items=[delta]))
        if is_first:
            self._is_due.set()
        elif self._token_timer is None:
            self._token_timer = asyncio.get_running_loop().call_later(MAX_TOKEN_WAIT_S, self._is_due.set)
        if self._bytes > MAX_PENDING_BYTES:
            self._has_capacity.clear()
            self._is_due.set()

    def _add(self, lease: Lease, entry: Entry) -> Pending:
        if lease.lost:
            raise LeaseLost
        if lease.post_error is not None:
            error, lease.post_error = lease.post_error, None
            raise error
        pending = self._open.get(lease)
        # Parking is a batch entry of its own: it is rejected if the query was woken, and nothing else with it.
        parking = entry.change is not None and entry.change.wake is not None
        if pending is None or pending.change is not None or parking:
            pending = self._open[lease] = Pending(lease)
            self._queue.append(pending)
        pending.items.extend(entry.items)
        pending.work.extend(entry.work)
        pending.change = entry.change
        self._is_idle.clear()
        return pending

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            if self._token_timer is not None:
                self._token_timer.cancel()
                self._token_timer = None
            batch = self._next_batch()
            if self._queue:  # it did not fit into this batch
                self._is_due.set()
            if batch:
                await self._write(batch)
            if not self._queue:
                self._is_idle.set()

    def _next_batch(self) -> list[Pending]:
        """Return the next batch: at most one entry per lease, in order. Entries that cannot be encoded are
        rejected."""
        batch: list[Pending] = []
        leases: set[Lease] = set()
        later: deque[Pending] = deque()
        while self._queue and len(batch) < MAX_BATCH_ENTRIES:
            pending = self._queue.popleft()
            if pending.lease in leases:
                later.append(pending)
                continue
            leases.add(pending.lease)
            if self._open.get(pending.lease) is pending:
                del self._open[pending.lease]
            try:
                pending.events = merge_deltas(pending.items)
            except (TypeError, ValueError) as error:
                reject_entry(pending, error)
                continue
            pending.lease.entries += 1
            pending.number = pending.lease.entries
            batch.append(pending)
        later.extend(self._queue)
        self._queue = later
        self._bytes = sum(len(i.text) for p in self._queue for i in p.items if isinstance(i, Delta))
        if self._bytes <= MAX_PENDING_BYTES:
            self._has_capacity.set()
        return batch

    async def _write(self, batch: list[Pending]) -> None:
        """Write a batch, retrying during outages. A batch that fails is split until the bad entry is
        isolated."""
        delay, throttle = MIN_RETRY_S, Throttle()
        while True:
            began = time.perf_counter()
            try:
                outcomes, firsts = await store.commit_batch(self._db, origin=self._origin, batch=batch)
                break
            except Exception as error:  # noqa: BLE001 - any error goes to the entry that caused it
                if isinstance(error, Unavailable) or is_outage(error):
                    self._metrics.journal_outages.inc()
                    if throttle.allow():
                        log.warning("journal.outage", error=error, entries=len(batch))
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, MAX_RETRY_S)
                    continue
                if len(batch) > 1:
                    half = len(batch) // 2
                    await self._write(batch[:half])
                    await self._write(batch[half:])
                    return
                reject_entry(batch[0], error)
                return
        self._metrics.journal_commit.observe(time.perf_counter() - began)
        self._metrics.journal_entries.inc(len(batch))
        for pending, outcome, first in zip(batch, outcomes, firsts, strict=True):
            self._deliver(pending, outcome, first)
            if pending.work and outcome in ("written", "repeated"):
                self._report_ended(pending)

    def _report_ended(self, pending: Pending) -> None:
        """Report ended work records, after the waiters of the entry were resumed."""
        over = [ended_work(w) for w in pending.work if w.over]
        if over:
            self._db.report(pending.lease.tenant, over)

    @property
    def pending_bytes(self) -> int:
        """Return the size of posted text that is not durable yet."""
        return self._bytes

    def _deliver(self, pending: Pending, outcome: str | None, first: int) -> None:
        if outcome == "written":
            self._hub.publish(pending.lease.query_key, first, pending.events)
            resolve_waiters(pending, None)
        elif outcome == "repeated":
            self._hub.invalidate([pending.lease.query_key])
            resolve_waiters(pending, None)
        elif outcome == "woken":
            resolve_waiters(pending, ParkRejected())
        else:
            pending.lease.lost = True
            resolve_waiters(pending, LeaseLost())


def reject_entry(pending: Pending, error: Exception) -> None:
    """Report the error to the writer of the entry: now if it waits, otherwise with its next entry."""
    work_id = pending.work[0].id if pending.work else None
    log.error("journal.entry_rejected", query_id=pending.lease.query_id, work_id=work_id, error=error)
    if pending.waiters:
        resolve_waiters(pending, error)
    else:
        pending.lease.post_error = error


def resolve_waiters(pending: Pending, error: Exception | None) -> None:
    for waiter in pending.waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


def merge_deltas(items: list[Event | Delta]) -> list[Event]:
    """Merge adjacent deltas of one turn into one event."""
    out: list[Event] = []
    run: list[Delta] = []

    def flush() -> None:
        if run:
            head = run[0]
            out.append(
                event(head.scope, EVENT_MODELS[head.type], turn=head.turn, text="".join(d.text for d in run))
            )
            run.clear()

    for item in items:
        if isinstance(item, Event):
            flush()
            out.append(item)
            continue
        if run and (run[0].type, run[0].turn, run[0].scope) != (item.type, item.turn, item.scope):
            flush()
        run.append(item)
    flush()
    return out
