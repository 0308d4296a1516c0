"""The one way on which a call leaves a query, whatever its transport: intent on record, then offered or sent.

Tools, actions of plans and predicates all go through here. A call of the transport `client` waits for a process of
the user; the others are sent by this process, which first takes the call under the epoch of its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from app.base.clock import uptime_s
from app.base.errors import Unavailable
from app.base.metrics import Metrics
from app.base.postgres.database import Tx
from app.engine.query_run import QueryRun
from app.tools.ledger import AcquiredCall, CallLedger
from app.tools.models import Attempt, CallOutcome, NotDelivered, OutcomeUnknown, OutgoingCall, Sender

CLIENT_HOLD_S = 2.0  # how long a call that nobody took keeps its worker
PAUSES_S = (0.5, 2.0)  # before each further attempt
LONGEST_PAUSE_S = 30.0
EARLIER = "an attempt before this one may have arrived."


@dataclass(frozen=True, slots=True)
class Tried:
    """How an attempt went, and whether another one may follow, after so many seconds."""

    outcome: CallOutcome
    again: bool = False
    after_s: float = 0

    def doubted(self, doubt: str) -> CallOutcome:
        """Return the same result for an attempt that follows one which may have arrived. Only the receiver
        of the earlier call can end the doubt: a `409` to a repeated call may mean that the first one is
        still in progress, a `404` that it has removed its target."""
        if self.outcome.status == "unknown" or not (self.again or self.outcome.took_nothing):
            return self.outcome
        return CallOutcome("unknown", error=f"{doubt.rstrip('.')}. Then: {self.outcome.error}")


@dataclass(frozen=True, slots=True)
class LeasedCall:
    """A call of the service's own that was taken, and until when it may be sent (`uptime_s`)."""

    taken: AcquiredCall
    until_s: float


class CallDispatcher:
    """Brings calls to their outcomes. `senders` are the transports of the service by their kind."""

    def __init__(
        self, calls: CallLedger, senders: Mapping[str, Sender], lease_s: float, metrics: Metrics
    ) -> None:
        self._metrics = metrics
        self.calls = calls
        self._senders = senders
        self.lease_s = lease_s

    async def aclose(self) -> None:
        for sender in self._senders.values():
            await sender.aclose()

    async def outcome(self, run: QueryRun, call: OutgoingCall) -> CallOutcome:
        """Return the recorded outcome of a call, sending the call if needed. Idempotent by the call's work
        id: after a crash it continues from the recorded state of the call. Waits for a call slot of the
        query."""
        async with run.outside(call.work_id):
            await run.within_time(call.work_id)
            if call.sender == "client":
                await run.in_fenced_transaction(lambda tx: self.calls.offer(tx, call))
                return self._count(call, await self._wait_for_client(run, call))
            outcome = await self._send(run, call, offers=True)
            await run.in_fenced_transaction(lambda tx: self.settle(tx, run, call, outcome))
            return self._count(call, outcome)

    def _count(self, call: OutgoingCall, done: CallOutcome) -> CallOutcome:
        outcome = "error" if done.status == "done" and done.error is not None else done.status
        self._metrics.calls.labels(call.transport.kind, call.purpose, outcome).inc()
        return done

    async def outcome_of_offered_call(
        self, run: QueryRun, call: OutgoingCall, ready: LeasedCall | None = None
    ) -> CallOutcome:
        """Return the outcome of an action's call that the caller has offered and will settle (`settle`),
        each in a transaction of its own. The caller also bounds how many such calls are in flight."""
        if call.sender == "client":
            return self._count(call, await self._wait_for_client(run, call))
        return self._count(call, await self._send(run, call, ready=ready))

    def send_until_s(self) -> float:
        """Until when a call may be sent that is taken in a transaction which begins now and renews the lease. Half of the
        lease is left to who may take the query over: a process that slept through its own half sends nothing any more.
        """
        return uptime_s() + self.lease_s / 2

    async def settle(self, tx: Tx, run: QueryRun, call: OutgoingCall, outcome: CallOutcome) -> None:
        """Only what this epoch sent is written: an outcome that was on record stays as it is."""
        if call.sender == "service":
            await self.calls.settle(tx, call.work_id, run.lease.epoch, outcome)

    async def _wait_for_client(self, run: QueryRun, call: OutgoingCall) -> CallOutcome:
        """Wait for the result that a client process posts."""
        return await run.wait(
            lambda: run.look(lambda tx: self.calls.outcome(tx, call.work_id)),
            reason="client_call",
            hold_s=CLIENT_HOLD_S,
        )

    async def _send(
        self, run: QueryRun, call: OutgoingCall, *, offers: bool = False, ready: LeasedCall | None = None
    ) -> CallOutcome:
        """Send the call, and retry if nothing took effect or if repeating is safe. A failed retry that had
        no effect does not resolve an earlier attempt whose outcome is unknown, in this run or before it."""
        pauses = iter(PAUSES_S)
        taken = ready or await self._take(run, call, offers)
        doubt = EARLIER if isinstance(taken, LeasedCall) and taken.taken.number > 1 else None
        while True:
            tried = await self._try(run, call, taken)
            if tried.outcome.status == "unknown":
                doubt = tried.outcome.error
            pause_s = next(pauses, None) if tried.again else None
            asked_s = tried.after_s
            if pause_s is None or asked_s > LONGEST_PAUSE_S or (asked_s and run.outlasted_by(asked_s)):
                return tried.outcome if doubt is None else tried.doubted(doubt)
            await asyncio.sleep(max(pause_s, asked_s))
            taken = await self._take(run, call, offers)

    async def _take(self, run: QueryRun, call: OutgoingCall, offers: bool) -> LeasedCall | CallOutcome:
        async def take(tx: Tx) -> AcquiredCall | CallOutcome:
            if offers:
                await self.calls.offer(tx, call)
            return await self.calls.take(tx, call.work_id, run.lease.epoch)

        until_s = self.send_until_s()
        taken = await run.in_fenced_transaction(take, renew_s=self.lease_s)
        return taken if isinstance(taken, CallOutcome) else LeasedCall(taken, until_s)

    async def _try(self, run: QueryRun, call: OutgoingCall, ready: LeasedCall | CallOutcome) -> Tried:
        if isinstance(ready, CallOutcome):
            return Tried(ready)
        taken, until_s = ready.taken, ready.until_s

        def may_send() -> bool:
            return uptime_s() < until_s and not run.lease.lost

        attempt = Attempt(run.lease.tenant, run.runtime.name, call, taken.request, taken.number, may_send)
        try:
            return Tried(await self._senders[call.transport.kind].send(attempt))
        except NotDelivered as error:
            return Tried(CallOutcome("done", error=str(error)), True, error.retry_after_s or 0)
        except OutcomeUnknown as error:
            return Tried(CallOutcome("unknown", error=str(error)), call.replay == "safe")
        except Unavailable as error:  # senders read secrets before a byte leaves, and nothing after
            return Tried(CallOutcome("done", error=f"Nothing was sent: {error}"), True)
