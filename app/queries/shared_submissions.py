"""Accept the queries of a tenant that arrive during a transaction together, in the next one.

There is no task for it: a request that finds no transaction in progress runs one for itself. Requests that arrive meanwhile
wait, and the first of them runs the next transaction for all of them. So one client waits for nobody, and many clients
that start together share a few commits.

A request is answered as fast as with a transaction of its own if the database stalls: a transaction may take as long as
the request that has waited longest for it may, and if it finds no database, those that wait for the next one find none
either.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.base.errors import PlangateError, TransactionConflict, Unavailable
from app.base.postgres.database import MAX_TRANSACTION_S, Database, Tx
from app.queries.models import AcceptedSubmission, NewQuery

MAX_BATCH_QUERIES: Final = 64

INTERRUPTED: Final = "The request was interrupted; the query may have been accepted. Check GET /queries before sending it again."

SubmissionResult = AcceptedSubmission | PlangateError | None
"""None: the runtime of the query is not the newest version of its name."""

AcceptAll = Callable[[Tx, Sequence[NewQuery]], Awaitable[Sequence[SubmissionResult]]]


@dataclass(slots=True, eq=False)
class _PendingSubmission:
    """A request that waits. `turn` becomes True if it must run the next transaction, False once it has its outcome. Its
    transaction must be over by `deadline`, in the time of the event loop."""

    query: NewQuery
    turn: asyncio.Future[bool]
    deadline: float
    outcome: SubmissionResult | Exception = None


class SharedSubmissions:
    """The submissions of a process, by tenant."""

    def __init__(self, db: Database, accept_all: AcceptAll) -> None:
        """`accept_all` writes queries in a transaction, and returns an outcome for each."""
        self._db = db
        self._accept_all = accept_all
        self._queues: dict[str, deque[_PendingSubmission]] = {}  # of tenants with a transaction in progress

    async def accept(self, tenant: str, query: NewQuery) -> AcceptedSubmission | None:
        """Accept a query; it is durable when this returns. Return None if its runtime is not the newest version. Raise the
        error of its outcome."""
        loop = asyncio.get_running_loop()
        own = _PendingSubmission(query, loop.create_future(), loop.time() + MAX_TRANSACTION_S)
        queue = self._queues.get(tenant)
        if queue is None:
            self._queues[tenant] = deque()
        else:
            queue.append(own)
            if not await self._wait(tenant, queue, own):
                return _result(own)
        await self._lead(tenant, own)
        return _result(own)

    async def _wait(self, tenant: str, queue: deque[_PendingSubmission], own: _PendingSubmission) -> bool:
        """Return whether this request must run the next transaction."""
        try:
            return await own.turn
        except asyncio.CancelledError:
            if own in queue:
                queue.remove(own)
            elif own.turn.done() and not own.turn.cancelled() and own.turn.result():
                self._wake_next(tenant)
            raise

    async def _lead(self, tenant: str, own: _PendingSubmission) -> None:
        """Run a transaction for this request and those that wait."""
        queue = self._queues[tenant]
        batch = [own, *(queue.popleft() for _ in range(min(len(queue), MAX_BATCH_QUERIES - 1)))]
        for one in batch:  # the outcome if this request is canceled
            one.outcome = Unavailable(INTERRUPTED)
        try:
            outage = await self._run(tenant, batch)
            if outage is not None:
                batch += queue
                queue.clear()
                for one in batch:
                    one.outcome = outage
        finally:
            self._wake_next(tenant)
            for one in batch[1:]:
                if not one.turn.done():
                    one.turn.set_result(False)

    async def _run(self, tenant: str, batch: Sequence[_PendingSubmission]) -> Unavailable | None:
        """Run a transaction, and set the outcomes. If it fails, each query has one of its own, so that a bad one fails alone.
        Return the error instead if there is no database."""
        left_s = max(0.0, batch[0].deadline - asyncio.get_running_loop().time())
        try:
            async with self._db.transaction(tenant, within_s=left_s) as tx:
                tx.acknowledges = True
                outcomes = await self._accept_all(tx, [one.query for one in batch])
        except Exception as error:  # noqa: BLE001 - it belongs to the requests
            if isinstance(error, Unavailable) and not isinstance(error, TransactionConflict):
                return error
            if len(batch) == 1:
                batch[0].outcome = error
                return None
            for n, one in enumerate(batch):
                outage = await self._run(tenant, [one])
                if outage is not None:
                    for rest in batch[n:]:
                        rest.outcome = outage
                    return None
            return None
        for one, outcome in zip(batch, outcomes, strict=True):
            one.outcome = outcome
        return None

    def _wake_next(self, tenant: str) -> None:
        """Let the request that has waited longest run the next transaction."""
        queue = self._queues[tenant]
        while queue:
            first = queue.popleft()
            if not first.turn.done():
                first.turn.set_result(True)
                return
        del self._queues[tenant]


def _result(waiting: _PendingSubmission) -> AcceptedSubmission | None:
    if isinstance(waiting.outcome, Exception):
        raise waiting.outcome
    return waiting.outcome
