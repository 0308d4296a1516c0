"""The dispatch of a call, whatever its transport: record the intent, then offer or send it.

Tools, actions of plans and predicates all use it. A call of the transport `client` waits for a client process; this
process sends the others, after it took the call under the epoch of its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.base.clock import uptime_s
from app.base.errors import Unavailable
from app.base.metrics import Metrics
from app.base.postgres.database import Tx
from app.engine.query_run import QueryRun
from app.tools.ledger import AcquiredCall, CallLedger
from app.tools.models import Attempt, NotDelivered, OutcomeUnknown, OutgoingCall, Sender
from app.tools.results import Answer, ToolError, ToolResult

EARLIER = "an attempt before this one may have arrived."


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    """How long the dispatch of a call waits."""

    client_hold_s: float = 2.0
    """How long a query stays in memory while its call is unclaimed."""
    pauses_s: tuple[float, ...] = (0.5, 2.0)
    """Before each further attempt."""
    max_pause_s: float = 30.0
    """A receiver that wants a longer pause gets no further attempt."""


@dataclass(frozen=True, slots=True)
class LeasedCall:
    """A call that this process took and may send until `until_s` (`uptime_s`)."""

    call: AcquiredCall
    until_s: float


class CallDispatcher:
    """Sends calls and returns their results. `senders` are the transports of the service by their kind."""

    def __init__(
        self,
        calls: CallLedger,
        senders: Mapping[str, Sender],
        lease_s: float,
        metrics: Metrics,
        limits: DispatchLimits = DispatchLimits(),
        clock: Callable[[], float] = uptime_s,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self.calls = calls
        self._senders = senders
        self.lease_s = lease_s

    async def aclose(self) -> None:
        for sender in self._senders.values():
            await sender.aclose()

    async def outcome(self, run: QueryRun, call: OutgoingCall) -> ToolResult:
        """Return the recorded result of a call, sending the call if needed. Idempotent by the call's work id: after a
        crash it continues from the recorded state of the call. Waits for a call slot of the query."""
        async with run.call_slot(call.work_id):
            await run.within_time(call.work_id)
            if call.sender == "client":
                await run.in_fenced_transaction(lambda tx: self.calls.offer(tx, call))
                return self._count(call, await self._wait_for_client(run, call))
            outcome = await self._send(run, call, offers=True)
            await run.in_fenced_transaction(lambda tx: self.settle(tx, run, call, outcome))
            return self._count(call, outcome)

    def _count(self, call: OutgoingCall, result: ToolResult) -> ToolResult:
        self._metrics.calls.labels(call.transport.kind, call.purpose, _metric_label(result)).inc()
        return result

    async def outcome_of_offered_call(
        self, run: QueryRun, call: OutgoingCall, ready: LeasedCall | None = None
    ) -> ToolResult:
        """Return the result of an action's call that the caller has offered and will settle (`settle`), each in a
        transaction of its own. The caller also bounds how many such calls are in flight."""
        if call.sender == "client":
            return self._count(call, await self._wait_for_client(run, call))
        return self._count(call, await self._send(run, call, ready=ready))

    def send_until_s(self) -> float:
        """Return until when a call may be sent that is taken in a transaction which begins now and renews the lease.
        Half of the lease remains for a process that takes the query over: a process that slept through its own half
        sends nothing more."""
        return self._clock() + self.lease_s / 2

    async def settle(self, tx: Tx, run: QueryRun, call: OutgoingCall, outcome: ToolResult) -> None:
        """Record the result of a call that this epoch sent. A result that is already on record stays as it is."""
        if call.sender == "service":
            await self.calls.settle(tx, call.work_id, run.lease.epoch, outcome)

    async def _wait_for_client(self, run: QueryRun, call: OutgoingCall) -> ToolResult:
        """Wait for the result that a client process posts."""
        return await run.wait(
            lambda: run.read(lambda tx: self.calls.outcome(tx, call.work_id)),
            reason="client_call",
            hold_s=self._limits.client_hold_s,
        )

    async def _send(
        self, run: QueryRun, call: OutgoingCall, *, offers: bool = False, ready: LeasedCall | None = None
    ) -> ToolResult:
        """Send the call, and retry if nothing took effect or if repeating is safe. A failed retry that had
        no effect does not resolve an earlier attempt whose outcome is unknown, in this run or before it."""
        pauses = iter(self._limits.pauses_s)
        leased = ready or await self._take(run, call, offers)
        doubt = EARLIER if isinstance(leased, LeasedCall) and leased.call.number > 1 else None
        while isinstance(leased, LeasedCall):
            result, retry_after_s = await self._attempt(run, call, leased)
            if isinstance(result, ToolError) and result.status == "unknown":
                doubt = result.message
            pause_s = None if retry_after_s is None else next(pauses, None)
            if pause_s is None or retry_after_s is None or self._is_too_long(run, retry_after_s):
                return result if doubt is None else _with_doubt(result, doubt)
            await asyncio.sleep(max(pause_s, retry_after_s))
            leased = await self._take(run, call, offers)
        return leased

    def _is_too_long(self, run: QueryRun, retry_after_s: float) -> bool:
        if retry_after_s > self._limits.max_pause_s:
            return True
        return retry_after_s > 0 and run.outlasted_by(retry_after_s)

    async def _take(self, run: QueryRun, call: OutgoingCall, offers: bool) -> LeasedCall | ToolResult:
        async def take(tx: Tx) -> AcquiredCall | ToolResult:
            if offers:
                await self.calls.offer(tx, call)
            return await self.calls.take(tx, call, run.runtime.name, run.lease.epoch)

        until_s = self.send_until_s()
        acquired = await run.in_fenced_transaction(take, renew_s=self.lease_s)
        return LeasedCall(acquired, until_s) if isinstance(acquired, AcquiredCall) else acquired

    async def _attempt(
        self, run: QueryRun, call: OutgoingCall, leased: LeasedCall
    ) -> tuple[ToolResult, float | None]:
        """Send the call once. Return its result, and the least seconds until another attempt, or None if the
        call must not be repeated."""
        acquired, until_s = leased.call, leased.until_s

        def may_send() -> bool:
            return self._clock() < until_s and not run.lease.lost

        attempt = Attempt(
            run.lease.tenant,
            run.runtime.name,
            call,
            acquired.request,
            acquired.number,
            may_send,
            acquired.secret,
        )
        try:
            return await self._senders[call.transport.kind].send(attempt), None
        except NotDelivered as error:
            return ToolError(str(error), had_no_effect=True), error.retry_after_s or 0
        except OutcomeUnknown as error:
            return ToolError.unknown(str(error)), 0 if call.replay == "safe" else None
        except Unavailable as error:  # senders read secrets before a byte leaves, and nothing after
            return ToolError(f"Nothing was sent: {error}", had_no_effect=True), 0


def _with_doubt(result: ToolResult, doubt: str) -> ToolResult:
    """Return the result of an attempt that follows one which may have arrived. Only the receiver of the
    earlier call can end the doubt: a `409` to a repeated call may mean that the first one is still in
    progress, a `404` that it has removed its target."""
    if isinstance(result, ToolError) and result.had_no_effect:
        return ToolError.unknown(f"{doubt.rstrip('.')}. Then: {result.message}")
    return result


def _metric_label(result: ToolResult) -> str:
    if isinstance(result, Answer):
        return "done"
    return "error" if result.status == "failed" else result.status
