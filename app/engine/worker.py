"""The worker of a process: claims queries, renews their leases, and stops runs whose lease was lost.

The row of a query is its own job (docs/decisions/0001), so no queue can disagree with it. A NOTIFY wakes the worker at
once, and a poll every second finds notifications that were lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.base.errors import Unavailable
from app.base.logs.processors import log_ids
from app.base.logs.structured import structlog
from app.base.postgres.database import Database
from app.engine import lease_store
from app.engine.models import QueryClaim, QueryRecord
from app.engine.processes import ProcessRecord
from app.engine.promotions import Promotions
from app.journal.models import Lease, QueryHead
from app.journal.service import load_heads

log = structlog.get_logger(__name__)

RENEW_SHARE: Final = 0.3  # of the lease: it is renewed when this part of it has passed
MAX_HEARTBEAT_INTERVAL_S: Final = 3.0
SWEEP_TICKS: Final = 10
"""Ticks after which a sweep that found nothing runs again."""
PARK_GRACE_S: Final = 2.0
"""How long the running queries of a tenant that is parked may continue, before they are released."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """`slots`: queries that run at once. With none, a process accepts queries and leaves them to others. `tick_s`: seconds
    between two looks for work, and between two runs of a periodic task."""

    slots: int
    lease_s: float = 10.0
    tick_s: float = 1.0


@dataclass(slots=True, eq=False)
class ActiveQuery:
    """A query that this process works on. `wakes` is set when something it may wait for has happened. `record` is set if the
    process accepted the query itself."""

    lease: Lease
    load_failures: int = 0
    record: QueryRecord | None = None
    wakes: asyncio.Event = field(default_factory=asyncio.Event)
    wake_seen: int = -1
    task: asyncio.Task[None] | None = None


Advance = Callable[[ActiveQuery], Awaitable[None]]
PeriodicTask = Callable[[], Awaitable[object]]


async def for_each_due(due: Sequence[tuple[str, str]], do: Callable[[str, str], Awaitable[object]]) -> None:
    """Call `do` for each (tenant, id). An item that fails is logged, and the next ones follow."""
    for tenant, id in due:
        try:
            await do(tenant, id)
        except Unavailable:
            raise
        except Exception:
            log.exception("worker.periodic_item_failed", tenant=tenant, **log_ids(id))


class Worker:
    """Works on the queries of a process. In a child process, with `claims` False, it works on what its parent claims."""

    def __init__(
        self,
        db: Database,
        process: ProcessRecord,
        advance: Advance,
        limits: WorkerLimits,
        *,
        claims: bool = True,
        promotions: Promotions | None = None,
    ) -> None:
        self._db = db
        self._promotions = promotions
        self._process = process
        self.owner = process.id
        self._claims = claims
        self.slots = limits.slots
        self.lease_s = limits.lease_s
        self._tick_s = limits.tick_s
        self._advance = advance
        self._running: dict[str, ActiveQuery] = {}
        self._hint = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: dict[str, asyncio.Task[None]] = {}  # by closed tenant: stops its queries
        self._reserved = 0
        self._draining = False
        self._take_over_listeners: list[Callable[[str, str], None]] = []
        self._full = False  # at the last claim there was no free slot, or more work than slots

    # -- what the API and the listener call ---------------------------------------------------------------

    def reserve(self) -> bool:
        """Reserve a free slot for a query that is about to be accepted here; `begin` or `unreserve` follows."""
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

    def begin(self, epoch: int, record: QueryRecord) -> None:
        """Start a query that this process accepted and leased in one transaction. With `record`, the runner
        need not read it."""
        self._reserved -= 1
        self._start(QueryClaim(record.tenant, record.id, epoch), record)

    def take(self, claims: Sequence[QueryClaim]) -> None:
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

    async def start(
        self, periodic_tasks: Sequence[PeriodicTask] = (), sweeps: Sequence[PeriodicTask] = ()
    ) -> None:
        """Start to claim queries and to run the periodic tasks, and the sweeps less often. A process without slots does
        none of it."""
        with contextlib.suppress(Unavailable):  # then it is registered as soon as that is possible
            await self._check_promotion()
            await self._process.register()
        self._tasks = [asyncio.create_task(self._keep_leases(), name="worker-leases")]
        if self.slots and self._claims:
            self._tasks.append(asyncio.create_task(self._claim_loop(), name="worker-claims"))
            self._tasks.extend(
                asyncio.create_task(self._run_periodic_task(c), name="worker-periodic")
                for c in (self._process.find_deaths, *periodic_tasks)
            )
            self._tasks.extend(
                asyncio.create_task(self._run_periodic_task(c, SWEEP_TICKS), name="worker-sweep")
                for c in sweeps
            )

    def stop_starting(self) -> None:
        """Start no more queries: leave them to other processes. Queries that run here continue until `drain`."""
        self._draining = True

    async def drain(self, grace_s: float = 3.0) -> None:
        """Claim no more queries, let running ones continue for `grace_s` seconds, and release the rest."""
        self._draining = True
        for task in self._tasks[1:]:
            task.cancel()
        left = await self._stop_runs(list(self._running.values()), grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # They end soon: every query that they wait for has ended.
        await asyncio.gather(*self._closing.values(), return_exceptions=True)
        await self._release(left)
        await self._process.end()

    async def _stop_runs(self, runs: Sequence[ActiveQuery], grace_s: float) -> list[ActiveQuery]:
        """Let these queries continue for `grace_s` seconds. Cancel and return those that are left then."""
        tasks = [r.task for r in runs if r.task]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        left = [r for r in runs if self._running.get(r.lease.query_id) is r]
        for running in left:
            if running.task:
                running.task.cancel()
        await asyncio.gather(*(r.task for r in left if r.task), return_exceptions=True)
        return left

    async def _release(self, runs: Sequence[ActiveQuery]) -> None:
        leases = [(r.lease.tenant, r.lease.query_id, r.lease.epoch) for r in runs if not r.lease.lost]
        if leases:
            with contextlib.suppress(Unavailable):
                await lease_store.release(self._db, owner=self.owner, leases=leases)

    def _start(self, claim: QueryClaim, record: QueryRecord | None = None) -> None:
        lease = Lease(claim.tenant, claim.query_id, claim.epoch)
        running = ActiveQuery(lease, load_failures=claim.load_failures, record=record)
        old = self._running.get(claim.query_id)
        if old is not None:
            self._lose(old)
        self._running[claim.query_id] = running
        running.task = asyncio.create_task(self._work(running), name=f"query-{claim.query_id}")

    async def _work(self, running: ActiveQuery) -> None:
        structlog.contextvars.bind_contextvars(
            query_id=running.lease.query_id
        )  # of this task: for every line that it logs
        try:
            await self._advance(running)
        finally:
            if self._running.get(running.lease.query_id) is running:
                del self._running[running.lease.query_id]
            if (
                self._full or running.wakes.is_set()
            ):  # a query waits for a slot, or this query was woken as it parked
                self._hint.set()

    async def _claim_loop(self) -> None:
        await self._retry_until_done(self._process.register)
        await self._retry_until_done(
            self._process.find_deaths
        )  # queries of dead predecessors can be claimed at once
        self._hint.set()
        claimed_at = 0.0
        while not self._draining:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._tick_s):
                    await self._hint.wait()
            self._hint.clear()
            if self._draining:
                return
            free = max(0, self.slots - len(self._running) - self._reserved)
            self._full = not free
            if self._full and time.monotonic() - claimed_at < self._tick_s:
                continue
            claimed_at = time.monotonic()  # a full worker claims nothing, but it moves expired leases
            try:
                claims = await lease_store.claim(self._db, owner=self.owner, limit=free, lease_s=self.lease_s)
            except Unavailable:
                await asyncio.sleep(self._tick_s)
                continue
            except Exception:
                log.exception("worker.claim_failed")
                await asyncio.sleep(self._tick_s)
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
                await asyncio.sleep(self._tick_s)
            except Exception:
                log.exception("worker.start_failed")
                await asyncio.sleep(self._tick_s)
            else:
                return

    async def _keep_leases(self) -> None:
        """Write heartbeats and renew leases. Once a second, look for running queries that were woken or lost without a
        notification."""
        every_s = min(RENEW_SHARE * self.lease_s, MAX_HEARTBEAT_INTERVAL_S)
        reported = 0.0
        while True:
            await asyncio.sleep(self._tick_s)
            running = list(self._running.values())
            now = time.monotonic()
            try:
                if now - reported >= every_s:
                    await self._check_promotion()
                    await self._process.register()  # if that was not possible before
                    await self._close_tenants()
                    await self._report(list(self._running.values()))
                    reported = now
                if not running:
                    continue
                heads = await load_heads(
                    self._db, queries=[(r.lease.tenant, r.lease.query_id) for r in running]
                )
            except Unavailable:
                continue
            except Exception:
                log.exception("worker.keep_failed")
                continue
            known = {h.query_id: h for h in heads}
            for one in running:
                self._compare(one, known.get(one.lease.query_id))

    async def _close_tenants(self) -> None:
        """Stop working for tenants that are being moved. The next heartbeat says for which of them this is not done yet.

        A query may take long to stop, and the heartbeat must not wait for it: the leases of all tenants would expire.
        """
        closed = await lease_store.closed_tenants(self._db)
        for tenant, task in list(self._closing.items()):
            if task.done():
                del self._closing[tenant]
        for tenant in closed - self._closing.keys():
            runs = [r for r in self._running.values() if r.lease.tenant == tenant]
            if runs:
                task = asyncio.create_task(self._stop_for_move(tenant, runs), name=f"close-{tenant}")
                self._closing[tenant] = task
        # Queries use the database until they stop. A tenant that was closed before such a query began stays closed.
        self._db.closed_tenants = closed & ((closed - self._closing.keys()) | self._db.closed_tenants)

    async def _stop_for_move(self, tenant: str, runs: Sequence[ActiveQuery]) -> None:
        try:
            await self._release(await self._stop_runs(runs, PARK_GRACE_S))
        except Exception:  # heartbeats release the leases of queries that do not run any more
            log.exception("worker.close_failed", tenant=tenant)

    async def _check_promotion(self) -> None:
        if self._promotions is not None:
            await self._promotions.watch()

    async def _report(self, running: Sequence[ActiveQuery]) -> None:
        leases = [(r.lease.tenant, r.lease.query_id, r.lease.epoch) for r in running if not r.lease.lost]
        await self._process.report(leases, self.lease_s, list(self._closing))

    def _compare(self, running: ActiveQuery, head: QueryHead | None) -> None:
        if self._running.get(running.lease.query_id) is not running:
            return
        if head is None or head.epoch != running.lease.epoch:
            log.warning("query.lease_lost", query_id=running.lease.query_id)
            self._db.metrics.leases_lost.inc()
            self._lose(running)
        elif head.wake != running.wake_seen:
            running.wakes.set()

    def _notify_taken_over(self, claim: QueryClaim) -> None:
        log.warning("query.taken_over", query_id=claim.query_id)
        self._db.metrics.leases_expired.inc()
        for listener in self._take_over_listeners:
            listener(claim.tenant, claim.query_id)

    def on_taken_over(self, listener: Callable[[str, str], None]) -> None:
        """Register a callback for the tenant and id of each query that is taken over from a crashed process."""
        self._take_over_listeners.append(listener)

    def _lose(self, running: ActiveQuery) -> None:
        running.lease.lost = True
        if running.task is not None:
            running.task.cancel()

    async def _run_periodic_task(self, task: PeriodicTask, idle_ticks: int = 1) -> None:
        """Run a periodic task for the life of the process: every tick, or after `idle_ticks` ticks if it returned 0 or None.
        Tasks of several processes do not collide."""
        ticks = 1
        while True:
            await asyncio.sleep(ticks * self._tick_s)
            ticks = 1
            try:
                if not await task():
                    ticks = idle_ticks
            except Unavailable:
                continue
            except Exception:
                log.exception("worker.periodic_task_failed")
