"""Sending calls: deadlines, retries, and fencing."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from plangate.spec.transports import HttpTransport

from app.base.clock import uptime_s
from app.base.errors import Unavailable
from app.base.metrics import Metrics
from app.calls.dispatch import CallDispatcher, DispatchLimits
from app.tools.ledger import AcquiredCall
from app.tools.models import Attempt, NotDelivered, OutcomeUnknown, OutgoingCall
from app.tools.results import Answer, ToolError, ToolResult

LEASE_S = 10.0


def call(replay: Any = "never") -> OutgoingCall:
    transport = HttpTransport(url="https://tools.example/")
    return OutgoingCall("wrk_1", "qry_1", "tool", "add", "", b"{}", replay, 1_000, transport, "key")


class Calls:
    """Records what the dispatch asks of the rows."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.number = 0

    async def offer(self, _tx: Any, one: OutgoingCall) -> None:
        self.told.append("offer")

    async def take(self, _tx: Any, _call: OutgoingCall, _runtime: str, epoch: int) -> AcquiredCall:
        self.number += 1
        self.told.append(("take", epoch))
        return AcquiredCall({"args": {}}, self.number)

    async def settle(self, _tx: Any, _work_id: str, _epoch: int, outcome: ToolResult) -> ToolResult:
        self.told.append("done" if isinstance(outcome, Answer) else outcome.status)
        return outcome


class Run:
    """As much of a query's run as a call needs."""

    def __init__(self) -> None:
        self.lease = SimpleNamespace(tenant="acme", epoch=3, lost=False)
        self.runtime = SimpleNamespace(name="default")
        self.renewed: list[float | None] = []
        self.placed: list[str] = []

    @contextlib.asynccontextmanager
    async def call_slot(self, work_id: str) -> AsyncIterator[None]:
        self.placed.append(work_id)
        yield

    async def within_time(self, work_id: str) -> None:
        assert self.placed == [work_id]  # time is looked at once there is a place

    async def in_fenced_transaction(self, verb: Callable[[Any], Any], *, renew_s: float | None = None) -> Any:
        self.renewed.append(renew_s)
        return await verb(None)


class Sender:
    def __init__(self, *outcomes: Any) -> None:
        self._outcomes = list(outcomes)
        self.attempts: list[Attempt] = []

    async def send(self, attempt: Attempt) -> ToolResult:
        self.attempts.append(attempt)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, Answer | ToolError)
        return outcome

    async def aclose(self) -> None: ...


async def sent(
    sender: Any, one: OutgoingCall, run: Run | None = None, clock: Callable[[], float] = uptime_s
) -> tuple[Any, Calls]:
    calls = Calls()
    return await dispatcher(calls, sender, clock).outcome(run or Run(), one), calls  # type: ignore[arg-type]


def dispatcher(calls: Calls, sender: Any, clock: Callable[[], float] = uptime_s) -> CallDispatcher:
    """Return a dispatcher that repeats calls at once."""
    limits = DispatchLimits(pauses_s=(0.0, 0.0))
    return CallDispatcher(calls, {"http": sender}, LEASE_S, Metrics(), limits, clock)  # type: ignore[arg-type]


async def test_the_intent_is_recorded_before_the_call_and_the_result_after() -> None:
    run = Run()
    outcome, calls = await sent(Sender(Answer(1)), call(), run)
    assert outcome.value == 1
    assert calls.told == ["offer", ("take", 3), "done"]
    assert run.renewed == [LEASE_S, None]  # the lease is renewed with the intent


@pytest.mark.parametrize("replay", ["safe", "never"])
async def test_an_undelivered_call_is_tried_three_times(replay: str) -> None:
    outcome, calls = await sent(Sender(*(NotDelivered("away") for _ in range(3))), call(replay))
    assert (outcome.status, outcome.message, calls.number) == ("failed", "away", 3)


@pytest.mark.parametrize("replay", ["safe", "never"])
async def test_an_outage_before_the_call_leaves_no_unknown_outcome(replay: str) -> None:
    """A sender reads secrets first: what comes then is no call whose outcome nobody knows."""
    away = Unavailable("The database cannot be reached.")
    outcome, calls = await sent(Sender(away, Answer(2)), call(replay))
    assert (outcome.value, calls.number) == (2, 2)
    outcome, calls = await sent(Sender(away, away, away), call(replay))
    assert (outcome.status, outcome.message) == (
        "failed",
        "Nothing was sent: The database cannot be reached.",
    )


async def test_an_unknown_outcome_is_repeated_only_if_safe() -> None:
    outcome, calls = await sent(Sender(OutcomeUnknown("cut")), call("never"))
    assert (outcome.status, outcome.message, calls.number) == ("unknown", "cut", 1)
    outcome, calls = await sent(Sender(OutcomeUnknown("cut"), Answer(2)), call("safe"))
    assert (outcome.value, calls.number) == (2, 2)
    outcome, calls = await sent(Sender(*(OutcomeUnknown("cut") for _ in range(3))), call("safe"))
    assert (outcome.status, calls.number) == ("unknown", 3)


async def test_an_undelivered_retry_does_not_resolve_an_earlier_attempt() -> None:
    """The endpoint dies with the first attempt: two that find nobody do not make it one that was never sent."""
    cut, away = OutcomeUnknown("cut."), NotDelivered("nothing was sent: nobody is there")
    outcome, calls = await sent(Sender(cut, away, away), call("safe"))
    assert (outcome.status, calls.number, calls.told[-1]) == ("unknown", 3, "unknown")
    assert outcome.message == "cut. Then: nothing was sent: nobody is there"
    outcome, _ = await sent(Sender(cut, NotDelivered("busy", 31.0)), call("safe"))
    assert outcome.status == "unknown"
    for answer in (Answer(2), ToolError("it failed")):
        outcome, _ = await sent(Sender(cut, away, answer), call("safe"))
        assert outcome == answer
    refused = ToolError("it answered 409: it is under way", had_no_effect=True)
    outcome, _ = await sent(Sender(cut, refused), call("safe"))
    assert (outcome.status, outcome.message) == ("unknown", "cut. Then: it answered 409: it is under way")
    assert (await sent(Sender(away, refused), call("safe")))[0] == refused


@pytest.mark.parametrize("replay", ["safe", "never"])
async def test_an_attempt_of_an_earlier_run_leaves_the_outcome_unknown(replay: str) -> None:
    """A process that was killed sent it, or a person said `retry`."""
    calls = Calls()
    calls.number = 1
    sender = Sender(*(NotDelivered("away") for _ in range(3)))
    outcome: Any = await dispatcher(calls, sender).outcome(Run(), call(replay))  # type: ignore[arg-type]
    assert (outcome.status, calls.told[-1]) == ("unknown", "unknown")
    assert outcome.message == "an attempt before this one may have arrived. Then: away"


async def test_a_retry_after_beyond_the_limit_is_not_followed() -> None:
    _, calls = await sent(Sender(NotDelivered("busy", 31.0)), call())
    assert calls.number == 1


async def test_the_right_to_send_ends_with_half_the_lease() -> None:
    now = 100.0
    sender = Sender(Answer())
    await sent(sender, call(), clock=lambda: now)
    (attempt,) = sender.attempts
    now = 104.9
    assert attempt.may_send()
    now = 105.0
    assert not attempt.may_send()


async def test_the_send_deadline_starts_before_the_intent() -> None:
    """A commit whose answer took long has used up its time."""
    now = 100.0

    class Slow(Run):
        async def in_fenced_transaction(
            self, verb: Callable[[Any], Any], *, renew_s: float | None = None
        ) -> Any:
            nonlocal now
            found = await super().in_fenced_transaction(verb, renew_s=renew_s)
            now += 6
            return found

    sender = Sender(Answer())
    await sent(sender, call(), Slow(), clock=lambda: now)
    assert not sender.attempts[0].may_send()


async def test_a_tool_call_takes_a_slot_and_an_action_does_not() -> None:
    run = Run()
    await sent(Sender(NotDelivered("away"), Answer()), call(), run)
    assert run.placed == ["wrk_1"]
    calls = Calls()
    action = replace(call(), purpose="action")
    outcome = await dispatcher(calls, Sender(Answer())).outcome_of_offered_call(run, action)  # type: ignore[arg-type]
    assert outcome == Answer()
    assert run.placed == ["wrk_1"]
    assert calls.told == [("take", 3)]  # who carries the plan out offers it, and writes how it ended


async def test_a_process_without_the_lease_sends_nothing() -> None:
    run, sender = Run(), Sender(Answer())
    await sent(sender, call(), run)
    run.lease.lost = True
    assert not sender.attempts[0].may_send()
