"""The run of a query in a process: its lease, its branches, and how it parks.

Branches are agents and tool calls that run in parallel. A branch waits for an approval or for the result of a client,
for example. When no branch can continue, the query parks: its row becomes `waiting` and nothing of it stays in memory.
Parking fails if the wake counter has moved since the branches last checked, so no wake-up is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from app.base.errors import Unavailable
from app.base.postgres.database import Database, Tx
from app.engine import lease_store, store
from app.engine.limits import QueryLimits
from app.engine.models import QueryRecord, QueryTotals, WorkTree, usage_from_work
from app.engine.worker import ActiveQuery
from app.events import QueryStatusEvent
from app.journal.models import Delta, Entry, Lease, LeaseLost, QueryChange, Scope, event
from app.journal.service import load_heads
from app.journal.writer import JournalWriter, ParkRejected
from app.llm.messages import Usage
from app.llm.prices import together
from app.runtimes.models import Runtime

T = TypeVar("T")

# If branches wait for different reasons, the query shows the first of these: a person can act on the first ones.
REASONS = ("approval", "outcome_unknown", "limit_reached", "client_call", "agent_busy")
MAX_DEPTH = 8
MAX_PARALLEL = 8
TOOL_RESULT_MAX_BYTES = 64 * 1024


async def retry_while_unavailable(once: Callable[[], Awaitable[T]]) -> T:
    """Call `once` again, with growing delays, while the database cannot be reached."""
    delay_s = 0.05
    while True:
        try:
            return await once()
        except Unavailable:
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, 1.0)


class Parked(Exception):
    """The query is parked: unwind, and keep nothing in memory."""


class QueryFailed(Exception):
    """The whole query ends as failed, whatever its other branches do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class QueryRun:
    """The state that the branches of one query share."""

    def __init__(
        self,
        db: Database,
        journal: JournalWriter,
        running: ActiveQuery,
        query: QueryRecord,
        runtime: Runtime,
        tree: WorkTree,
        offered: Collection[str] = (),
    ) -> None:
        """`offered`: the work ids of calls that were in flight when the query last had a process."""
        self.db = db
        self.query = query
        self.runtime = runtime
        self.tree = tree
        self.lease: Lease = running.lease
        self._journal = journal
        self._running = running
        self._wake = running.wake_seen = query.wake
        self._active = 1
        self._version = 0  # increases whenever waiting branches must check again
        # Waiting branches: the version that they checked, or None if another branch resumes them; and why they wait.
        self._waiting: dict[object, tuple[int | None, str]] = {}
        self._changed = asyncio.Event()
        self._stirred = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._ended: BaseException | None = None
        self._progress_recorded = False
        self._busy_agents: set[str] = set()
        calls = [row for rows in tree.children.values() for row in rows if row.kind == "model_call"]
        self._spent = {row.id: (row.parent_id, row.usage, row.cost_usd) for row in calls}
        self._turns = sum(row.over for row in calls)  # an open call counts when it is repeated
        self._began = time.monotonic()
        self._stopped_at: str | None = None  # the limit that a branch waits at
        self.limits = QueryLimits.of(runtime.spec.limits, query.request.get("limits"))
        limits = runtime.spec.limits
        self.max_depth = (limits and limits.max_depth) or MAX_DEPTH
        self.tool_result_max_bytes = (limits and limits.tool_result_max_bytes) or TOOL_RESULT_MAX_BYTES
        self._max_open_calls = (limits and limits.max_parallel_tools) or MAX_PARALLEL
        self.model_slots = asyncio.Semaphore(
            self._max_open_calls
        )  # held around a model call, never while waiting
        open_work = {row.id for rows in tree.children.values() for row in rows if not row.over}
        self._offered = frozenset(open_work.intersection(offered))
        self._open_calls = set(self._offered)  # calls that have a slot
        self._waiting_calls: deque[tuple[str, asyncio.Future[None]]] = deque()  # calls that wait for a slot

    # -- writing ---------------------------------------------------------------------------------------------

    async def commit(self, entry: Entry) -> None:
        """Add an entry to the journal; it is durable when this returns. Raise LeaseLost if another process has the query."""
        await self._journal.commit(self.lease, entry)

    async def post(self, delta: Delta, *, is_first: bool) -> None:
        """Add a delta, the first of its turn or not, to the journal without waiting for its commit."""
        await self._journal.post(self.lease, delta, is_first=is_first)

    async def in_fenced_transaction(
        self, verb: Callable[[Tx], Awaitable[T]], *, renew_s: float | None = None
    ) -> T:
        """Run `verb`, which is idempotent by its work id, in a transaction that holds the query's row under
        this process's epoch, and retry it through outages. With `renew_s`, the lease also lasts that
        many seconds from then on. Raise LeaseLost if another process has the query."""

        async def once() -> T:
            if self.lease.lost:
                raise LeaseLost
            async with self.db.transaction(self.lease.tenant) as tx:
                if not await (
                    lease_store.lock_lease(tx, lease=self.lease)
                    if renew_s is None
                    else lease_store.renew_lease(tx, lease=self.lease, lease_s=renew_s)
                ):
                    self.lease.lost = True
                    raise LeaseLost
                return await verb(tx)

        return await retry_while_unavailable(once)

    async def read(self, verb: Callable[[Tx], Awaitable[T]]) -> T:
        """Read in a transaction, and retry through outages."""

        async def once() -> T:
            async with self.db.transaction(self.lease.tenant) as tx:
                return await verb(tx)

        return await retry_while_unavailable(once)

    async def record_progress(self, tx: Tx) -> None:
        """Record that the query made progress in this process: a step has ended that no later attempt repeats. Call it
        where work ends outside the journal; the journal records progress itself."""

        def known() -> None:
            self._progress_recorded = True

        if not self._progress_recorded:
            await lease_store.record_progress(tx, lease=self.lease)
            tx.after_commit(known)

    def scope(self, work_id: str, parent_id: str | None, agent: str) -> Scope:
        return Scope(self.query.id, self.query.thread_id, work_id, parent_id, agent)

    def call_context(self, scope: Scope, tool_use_id: str) -> dict[str, Any]:
        """Return what the receiver of a call learns about its origin. `tool_use_id` is the model's own id of the call."""
        return {
            "toolUseId": tool_use_id,
            "workId": scope.work_id,
            "queryId": self.query.id,
            "threadId": self.query.thread_id,
            "agent": scope.agent,
            "runtimeId": self.runtime.id,
            "resourceId": self.lease.tenant,
        }

    # -- spending --------------------------------------------------------------------------------------------

    def spend(self, entry: Entry) -> None:
        """Count what the model calls of an entry have used so far, by the agent's run that they belong to."""
        for work in entry.work:
            if work.kind == "model_call":
                self._spent[work.id] = (work.parent_id, usage_from_work(work), work.cost_usd)

    async def within_limits(self) -> None:
        """Wait until the query may make another model call, and count that call."""
        await self._wait_below_limit(self._limit_reached)
        self._turns += 1

    async def within_spending(self, entry: Entry) -> None:
        """Wait until a failed model call may be repeated; if that must wait, its record is written first."""
        self.spend(entry)
        if self._spent_up():
            await self.commit(entry)
            await self._wait_below_limit(self._spent_up)

    async def within_time(self, work_id: str) -> None:
        """Wait until the query may make this tool call. A call that has begun is finished in any case."""
        if work_id not in self._offered and not self.tree.below(work_id, "agent", "plan_execution"):
            await self._wait_below_limit(self._out_of_time)

    async def within_time_after(self, pause_s: float) -> None:
        """Return when the query will have time left after a pause of `pause_s`. If it will not, it waits at the limit now,
        because the pause would only use up its time."""
        await self._wait_below_limit(lambda: self._out_of_time(pause_s))

    def outlasted_by(self, pause_s: float) -> bool:
        """Return whether the query would have no time left after a pause of `pause_s`."""
        return self._out_of_time(pause_s) is not None

    async def _wait_below_limit(self, exceeded_limit: Callable[[], str | None]) -> None:
        """Wait at a limit until somebody raises it (`POST /queries/{id}/resume`); the query may park meanwhile."""

        async def raised() -> bool | None:
            self.limits = QueryLimits.of(
                self.runtime.spec.limits, (await self.read(self._load_request)).get("limits")
            )
            limit = exceeded_limit()
            self._stopped_at = limit or self._stopped_at
            return None if limit else True

        if exceeded_limit():
            await self.wait(raised, reason="limit_reached")

    async def _load_request(self, tx: Tx) -> dict[str, Any]:
        query = await store.load_query(tx, query_id=self.query.id)
        if query is None:  # it was deleted
            raise LeaseLost
        return query.request

    def _limit_reached(self) -> str | None:
        return self.limits.out_of_turns(self._turns) or self._spent_up()

    def _spent_up(self) -> str | None:
        usage = sum((s[1] for s in self._spent.values()), Usage())
        tokens = usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        cost = together(s[2] for s in self._spent.values() if s[2] is not None)
        return self.limits.spent_up(tokens, cost or 0) or self._out_of_time()

    def _out_of_time(self, later_s: float = 0) -> str | None:
        worked_s = time.monotonic() - self._began + later_s
        return self.limits.out_of_time(self.query.worked_ms + worked_s * 1000)

    def totals(self, agent_work_id: str | None = None) -> QueryTotals:
        """Return what the query has used, or what one agent's run has."""
        calls = [s for s in self._spent.values() if agent_work_id in (None, s[0])]
        costs = [s[2] for s in calls if s[2] is not None]
        return QueryTotals(sum((s[1] for s in calls), Usage()), together(costs), len(calls))

    # -- branches --------------------------------------------------------------------------------------------

    async def branches(self, works: Sequence[Awaitable[T]]) -> list[T]:
        """Run these in parallel, in place of the caller's branch. Any exception ends all of them."""
        if len(works) == 1:
            return [await works[0]]
        self._active += len(works) - 1
        left = len(works)

        async def branch(work: Awaitable[T]) -> T:
            nonlocal left
            result = await work
            left -= 1
            if left:  # the last branch continues as the caller
                self._active -= 1
                self._stirred.set()
            return result

        tasks = [asyncio.ensure_future(branch(w)) for w in works]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def wait(self, check: Callable[[], Awaitable[T | None]], *, reason: str, hold_s: float = 0) -> T:
        """Wait until `check` returns something. For `hold_s` seconds the branch still counts as moving;
        after that the query may park, and Parked unwinds everything."""
        self._ensure_watcher()
        hold_until = time.monotonic() + hold_s
        while True:
            version = self._version
            result = await check()
            if result is not None:
                return result
            if version != self._version:
                continue
            left = hold_until - time.monotonic()
            if left > 0:
                await self._wait_for_change(version, left)
                continue
            me = object()
            self._waiting[me] = (version, reason)
            self._active -= 1
            self._stirred.set()
            try:
                await self._wait_for_change(version, None)
            finally:
                self._active += 1
                del self._waiting[me]

    @contextlib.asynccontextmanager
    async def one_at_a_time(self, agent: str) -> AsyncIterator[None]:
        """Run calls to the same stateful agent one after another. A branch that waits for its turn does not
        keep the query in memory."""

        async def turn() -> bool | None:
            if agent in self._busy_agents:
                return None
            self._busy_agents.add(agent)
            return True

        if not await turn():
            await self.wait(turn, reason="agent_busy")
        try:
            yield
        finally:
            self._busy_agents.discard(agent)
            self._version += 1
            self._stirred.set()

    @contextlib.asynccontextmanager
    async def call_slot(self, work_id: str) -> AsyncIterator[None]:
        """Hold one of the slots for calls that are in flight, in the order of requests.

        A branch that waits for a slot does not keep the query in memory. Calls that were offered before the query parked,
        or before a crash, have slots already.
        """
        if work_id not in self._open_calls:
            await self._acquire_slot(work_id)
        try:
            yield
        finally:
            self._open_calls.discard(work_id)
            self._release_slot()

    async def _acquire_slot(self, work_id: str) -> None:
        if len(self._open_calls) < self._max_open_calls:
            self._open_calls.add(work_id)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_calls.append((work_id, turn))
        await self.suspend(turn, "client_call")

    def _release_slot(self) -> None:
        while self._waiting_calls and len(self._open_calls) < self._max_open_calls:
            work_id, turn = self._waiting_calls.popleft()
            if self.resume(turn):
                self._open_calls.add(work_id)

    async def suspend(self, turn: asyncio.Future[None], reason: str) -> None:
        """Wait until another branch resumes `turn`. A branch that waits here does not keep the query in
        memory."""
        self._ensure_watcher()
        if self._ended is None:
            self._waiting[turn] = (None, reason)
            self._active -= 1
            self._stirred.set()
            try:
                await turn
            finally:
                if self._waiting.pop(turn, None) is not None:
                    self._active += 1
        if self._ended is not None:
            raise self._ended

    def resume(self, turn: asyncio.Future[None]) -> bool:
        """Make the waiting branch count as moving from now on, so that the query cannot park in between.
        Return False if it no longer waits."""
        if self._waiting.pop(turn, None) is None:
            return False
        self._active += 1
        if not turn.done():
            turn.set_result(None)
        return True

    async def _wait_for_change(self, version: int, timeout_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while version == self._version and self._ended is None:
                    await self._changed.wait()
        if self._ended is not None:
            raise self._ended

    # -- sleeping and waking ---------------------------------------------------------------------------------

    def _ensure_watcher(self) -> None:
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(), name=f"watch-{self.query.id}")

    async def _watch(self) -> None:
        """Run beside waiting branches: receive wake-ups, and park the query when no branch can move."""
        try:
            while self._ended is None:
                if self._running.wakes.is_set():
                    self._running.wakes.clear()
                    await self._read_wake()
                versions = (version for version, _ in self._waiting.values())
                if self._active == 0 and all(version in (None, self._version) for version in versions):
                    await self._park()
                self._announce()
                await self._wait_for_wake()
        except Exception as error:  # noqa: BLE001 - any error that ends the watch ends the branches that rely on it
            self._ended = error
        finally:
            self._announce()

    async def _wait_for_wake(self) -> None:
        """Wait for a wake-up of the query, or for a change of its branches."""
        waits = [asyncio.ensure_future(e.wait()) for e in (self._running.wakes, self._stirred)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._stirred.clear()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self._ended is not None:
            for turn in self._waiting:
                if isinstance(turn, asyncio.Future) and not turn.done():
                    turn.set_result(None)

    async def _read_wake(self) -> None:
        """Read the wake counter, and only then let every waiting branch check: what changes later is
        noticed when parking."""
        heads = await retry_while_unavailable(
            lambda: load_heads(self.db, queries=[(self.query.tenant, self.query.id)])
        )
        if not heads or heads[0].epoch != self.lease.epoch:
            self.lease.lost = True
            raise LeaseLost
        self._wake = self._running.wake_seen = heads[0].wake
        self._version += 1

    async def _park(self) -> None:
        reason = min((reason for _, reason in self._waiting.values()), key=REASONS.index)
        scope = self.scope(self.query.root_work_id, None, self.query.agent)
        limit = {"limit": self._stopped_at} if reason == "limit_reached" else {}
        status_event = event(scope, QueryStatusEvent, from_="running", to="waiting", reason=reason, **limit)
        try:
            await self.commit(Entry(items=[status_event], change=QueryChange("waiting", reason, self._wake)))
            self._ended = Parked()
        except ParkRejected:
            await self._read_wake()

    async def aclose(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
