"""The worker of a process: takes queries that should move, keeps their leases, lets go of what it lost.

The row of a query is its own job (docs/decisions/0001): there is no second truth that could disagree. A hint by
NOTIFY makes it fast, a look every second makes it certain.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog
from structlog.contextvars import bind_contextvars

from app.base.errors import Unavailable
from app.base.logs.processors import log_ids
from app.base.postgres.database import Database
from app.engine import lease_store
from app.engine.processes import ProcessRecord
from app.journal import store as journal_store
from app.journal.models import Lease

log = structlog.get_logger(__name__)

LEASE_S = 10.0
TICK_S = 1.0
RENEW_SHARE = 0.3  # of the lease: so much of it has passed when it is renewed
HEARTBEAT_S = 3.0  # at most, between two heartbeats


@dataclass(slots=True, eq=False)
class ActiveQuery:
    """A query that this process works on. `wakes` is set when something it may wait for has happened."""

    lease: Lease
    load_failures: int = 0
    given: object = None
    wakes: asyncio.Event = field(default_factory=asyncio.Event)
    wake_seen: int = -1
    task: asyncio.Task[None] | None = None


Advance = Callable[[ActiveQuery], Awaitable[None]]
PeriodicTask = Callable[[], Awaitable[object]]


async def for_each_due(due: Sequence[tuple[str, str]], do: Callable[[str, str], Awaitable[object]]) -> None:
    """Call `do` for each (tenant, id) that `due` returned. An item that fails does not keep the rest from
    being done."""
    for tenant, id in due:
        try:
            await do(tenant, id)
        except Unavailable:
            raise
        except Exception:
            log.exception("worker.chore_item_failed", tenant=tenant, **log_ids(id))


class Worker:
    """`slots` queries at once. With no slots a process accepts queries and leaves them to others. A worker that does not
    claim (in a child process) works on what it is given."""

    def __init__(
        self,
        db: Database,
        process: ProcessRecord,
        slots: int,
        advance: Advance,
        lease_s: float = LEASE_S,
        *,
        claims: bool = True,
    ) -> None:
        self._db = db
        self._process = process
        self.owner = process.id
        self._claims = claims
        self.slots = slots
        self.lease_s = lease_s
        self._advance = advance
        self._running: dict[str, ActiveQuery] = {}
        self._hint = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._reserved = 0
        self._draining = False
        self._hears_taken_over: list[Callable[[str, str], None]] = []
        self._full = False  # the last look for work found no free slot, or more work than slots

    # -- what the API and the listener call ---------------------------------------------------------------

    def reserve(self) -> bool:
        """Take a free slot for a query that is about to be accepted here; `begin` or `unreserve` follows."""
        if (
            self._draining
            or not self._process.registered
            or len(self._running) + self._reserved >= self.slots
        ):
            return False
        self._reserved += 1
        return True

    def unreserve(self) -> None:
        self._reserved -= 1

    def begin(self, tenant: str, query_id: str, epoch: int, given: object) -> None:
        """Start a query that this process accepted and leased in one transaction. `given` is what the
        runner would otherwise have to read."""
        self._reserved -= 1
        self._start(lease_store.Claim(tenant, query_id, epoch), given)

    def take(self, claims: Sequence[lease_store.Claim]) -> None:
        """Start queries that were claimed for this process by its parent."""
        for claim in claims:
            self._start(claim)
            if claim.lost:
                self._notify_taken_over(claim)

    def on_notify(self, payload: str) -> None:
        """Handle a NOTIFY on `plangate_wake`: the query `tenant/id` has moved or, if the payload is empty, a
        query was queued."""
        running = self._running.get(payload.rpartition("/")[2])
        if running is not None:
            running.wakes.set()
        else:
            self._hint.set()

    def wake_all(self) -> None:
        for running in self._running.values():
            running.wakes.set()
        self._hint.set()

    def drop(self, query_id: str) -> None:
        """Stop working at once on a query that was canceled in this process."""
        running = self._running.get(query_id)
        if running is not None:
            self._lose(running)

    @property
    def busy(self) -> int:
        return len(self._running)

    @property
    def running_ids(self) -> list[str]:
        """Return the ids of the queries that this process runs."""
        return list(self._running)

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self, chores: Sequence[PeriodicTask] = ()) -> None:
        """Begins to take queries, and to do the chores every second; a process without slots does neither."""
        with contextlib.suppress(Unavailable):  # then it is registered as soon as that is possible
            await self._process.register()
        self._tasks = [asyncio.create_task(self._keep_leases(), name="worker-leases")]
        if self.slots and self._claims:
            self._tasks.append(asyncio.create_task(self._claim_loop(), name="worker-claims"))
            self._tasks.extend(
                asyncio.create_task(self._run_periodic_task(c), name="worker-chore")
                for c in (self._process.find_deaths, *chores)
            )

    def stop_starting(self) -> None:
        """Start no more queries: leave them to other processes. Queries that run here continue until `drain`."""
        self._draining = True

    async def drain(self, grace_s: float = 3.0) -> None:
        """Take no more queries, let running ones continue for `grace_s` seconds, and hand the rest back."""
        self._draining = True
        for task in self._tasks[1:]:
            task.cancel()
        tasks = [r.task for r in self._running.values() if r.task]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        left = list(self._running.values())
        for running in left:
            if running.task:
                running.task.cancel()
        await asyncio.gather(*(r.task for r in left if r.task), return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        held = [r.lease for r in left if not r.lease.lost]
        if held:
            with contextlib.suppress(Unavailable):
                leases = [(x.tenant, x.query_id, x.epoch) for x in held]
                await lease_store.release(self._db, self.owner, leases)
        await self._process.end()

    def _start(self, claim: lease_store.Claim, given: object = None) -> None:
        lease = Lease(claim.tenant, claim.query_id, claim.epoch)
        running = ActiveQuery(lease, load_failures=claim.load_failures, given=given)
        old = self._running.get(claim.query_id)
        if old is not None:
            self._lose(old)
        self._running[claim.query_id] = running
        running.task = asyncio.create_task(self._work(running), name=f"query-{claim.query_id}")

    async def _work(self, running: ActiveQuery) -> None:
        bind_contextvars(query_id=running.lease.query_id)  # of this task: for every line that it logs
        try:
            await self._advance(running)
        finally:
            if self._running.get(running.lease.query_id) is running:
                del self._running[running.lease.query_id]
            if (
                self._full or running.wakes.is_set()
            ):  # something waited for a slot, or woke this query as it parked
                self._hint.set()

    async def _claim_loop(self) -> None:
        await self._retry_until_done(self._process.register)
        await self._retry_until_done(
            self._process.find_deaths
        )  # what dead predecessors worked on is free at once
        self._hint.set()
        claimed_at = 0.0
        while not self._draining:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._hint.wait()
            self._hint.clear()
            if self._draining:
                return
            free = max(0, self.slots - len(self._running) - self._reserved)
            self._full = not free
            if self._full and time.monotonic() - claimed_at < TICK_S:
                continue
            claimed_at = time.monotonic()  # a full worker claims nothing, but it moves expired leases
            try:
                claims = await lease_store.claim(self._db, self.owner, free, self.lease_s)
            except Unavailable:
                await asyncio.sleep(TICK_S)
                continue
            except Exception:
                log.exception("worker.claim_failed")
                await asyncio.sleep(TICK_S)
                continue
            self.take(claims)
            if claims and len(claims) == free:
                self._full = True
                self._hint.set()

    async def _retry_until_done(self, once: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await once()
            except Unavailable:
                await asyncio.sleep(TICK_S)
            except Exception:
                log.exception("worker.start_failed")
                await asyncio.sleep(TICK_S)
            else:
                return

    async def _keep_leases(self) -> None:
        """Write heartbeats and renew leases. Once a second, look for running queries that were woken or lost without a
        notification."""
        every_s = min(RENEW_SHARE * self.lease_s, HEARTBEAT_S)
        reported = 0.0
        while True:
            await asyncio.sleep(TICK_S)
            running = list(self._running.values())
            asked = time.monotonic()
            try:
                if asked - reported >= every_s:
                    await self._process.register()  # if that was not possible before
                    await self._report(running)
                    reported = asked
                if not running:
                    continue
                heads = await journal_store.heads(
                    self._db, [(r.lease.tenant, r.lease.query_id) for r in running]
                )
            except Unavailable:
                continue
            except Exception:
                log.exception("worker.keep_failed")
                continue
            known = {h["id"]: h for h in heads}
            for one in running:
                self._compare(one, known.get(one.lease.query_id))

    async def _report(self, running: Sequence[ActiveQuery]) -> None:
        held = [(r.lease.tenant, r.lease.query_id, r.lease.epoch) for r in running if not r.lease.lost]
        await self._process.report(held, self.lease_s)

    def _compare(self, running: ActiveQuery, head: dict[str, object] | None) -> None:
        if self._running.get(running.lease.query_id) is not running:
            return
        if head is None or head["epoch"] != running.lease.epoch:
            log.warning("query.lease_lost", query_id=running.lease.query_id)
            self._db.metrics.leases_lost.inc()
            self._lose(running)
        elif head["wake"] != running.wake_seen:
            running.wakes.set()

    def _notify_taken_over(self, claim: lease_store.Claim) -> None:
        log.warning("query.taken_over", query_id=claim.query_id)
        self._db.metrics.leases_expired.inc()
        for hears in self._hears_taken_over:
            hears(claim.tenant, claim.query_id)

    def on_taken_over(self, hears: Callable[[str, str], None]) -> None:
        """From now on told of the tenant and id of every query that another process had left without a word."""
        self._hears_taken_over.append(hears)

    def _lose(self, running: ActiveQuery) -> None:
        running.lease.lost = True
        if running.task is not None:
            running.task.cancel()

    async def _run_periodic_task(self, chore: PeriodicTask) -> None:
        """Run a periodic task every few ticks for the life of the process. Tasks of several processes do
        not collide."""
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await chore()
            except Unavailable:
                continue
            except Exception:
                log.exception("worker.chore_failed")
