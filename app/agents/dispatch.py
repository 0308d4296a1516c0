"""The one way on which a call leaves a query, whatever its transport: intent on record, then offered or sent.

Tools, actions of plans and predicates all go through here. A call of the transport `client` waits for a process of
the user; the others are sent by this process, which first takes the call under the epoch of its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from app.agents.run import QueryRun
from app.base.clock import uptime_s
from app.base.database import Tx
from app.base.errors import Unavailable
from app.base.metrics import Metrics
from app.tools.calls import OutgoingCalls, Taken
from app.tools.models import Attempt, CallOutcome, NotSent, OutgoingCall, Sender, Uncertain

CLIENT_HOLD_S = 2.0  # how long a call that nobody took keeps its worker
PAUSES_S = (0.5, 2.0)  # before each further attempt
LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class Tried:
    """How an attempt went, and whether another one may follow, after so many seconds."""

    outcome: CallOutcome
    again: bool = False
    after_s: float = 0


class Dispatch:
    """Brings calls to their outcomes. `senders` are the transports of the service by their kind."""

    def __init__(
        self, calls: OutgoingCalls, senders: Mapping[str, Sender], lease_s: float, metrics: Metrics
    ) -> None:
        self._metrics = metrics
        self.calls = calls
        self._senders = senders
        self._lease_s = lease_s

    async def aclose(self) -> None:
        for sender in self._senders.values():
            await sender.aclose()

    async def outcome(self, run: QueryRun, call: OutgoingCall, *, offered: bool = False) -> CallOutcome:
        """What became of a call. Idempotent by its work id: after a crash it goes on from where the call stands.
        `offered`: the caller wrote the intent already, in a transaction of its own. How many actions of a plan are
        outside at once is for who carries it out; other calls wait here for a place."""
        if call.purpose == "action":
            done = await self._brought(run, call, offered)
        else:
            async with run.outside(call.work_id):
                await run.within_time(call.work_id)
                done = await self._brought(run, call, offered)
        outcome = "error" if done.status == "done" and done.error is not None else done.status
        self._metrics.calls.labels(call.transport.kind, call.purpose, outcome).inc()
        return done

    async def _brought(self, run: QueryRun, call: OutgoingCall, offered: bool) -> CallOutcome:
        async def offer(tx: Tx) -> None:
            if not offered:
                await self.calls.offer(tx, call)

        if call.sender == "service":
            return await self._send(run, call, offered)
        await run.durably(offer)
        return await run.wait(
            lambda: run.look(lambda tx: self.calls.outcome(tx, call.work_id)),
            reason="client_call",
            hold_s=CLIENT_HOLD_S,
        )

    async def _send(self, run: QueryRun, call: OutgoingCall, offered: bool) -> CallOutcome:
        """Sends, again where nothing took effect or where repeating is safe, and records how it ended."""
        pauses = iter(PAUSES_S)
        while True:
            tried = await self._try(run, call, offered)
            pause_s = next(pauses, None) if tried.again else None
            if pause_s is None or tried.after_s > LONGEST_PAUSE_S:
                return await self._settled(run, call, tried.outcome)
            await asyncio.sleep(max(pause_s, tried.after_s))

    async def _try(self, run: QueryRun, call: OutgoingCall, offered: bool) -> Tried:
        async def take(tx: Tx) -> Taken | CallOutcome:
            if not offered:
                await self.calls.offer(tx, call)
            return await self.calls.take(tx, call.work_id, run.lease.epoch)

        # The lease is renewed with the intent. Half of it is left to who may take the query over: a process that
        # slept through its own half sends nothing any more.
        send_before = uptime_s() + self._lease_s / 2
        taken = await run.durably(take, renew_s=self._lease_s)
        if isinstance(taken, CallOutcome):
            return Tried(taken)

        def may_send() -> bool:
            return uptime_s() < send_before and not run.lease.lost

        attempt = Attempt(run.lease.tenant, run.runtime.name, call, taken.request, taken.number, may_send)
        try:
            return Tried(await self._senders[call.transport.kind].send(attempt))
        except NotSent as error:
            return Tried(CallOutcome("done", error=str(error)), True, error.retry_after_s or 0)
        except Uncertain as error:
            return Tried(CallOutcome("unknown", error=str(error)), call.replay == "safe")
        except Unavailable as error:  # senders read secrets before a byte leaves, and nothing after
            return Tried(CallOutcome("done", error=f"Nothing was sent: {error}"), True)

    async def _settled(self, run: QueryRun, call: OutgoingCall, outcome: CallOutcome) -> CallOutcome:
        """Only what this epoch sent is written: an outcome that was on record stays as it is."""
        return await run.durably(lambda tx: self.calls.settle(tx, call.work_id, run.lease.epoch, outcome))
