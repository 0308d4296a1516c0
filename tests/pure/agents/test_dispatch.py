"""The way out of a query: who may send when, and what is tried again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from plangate.spec.transports import HttpTransport

from app.base.errors import Unavailable
from app.base.metrics import Metrics
from app.calls import dispatch
from app.calls.dispatch import CallDispatcher
from app.tools.ledger import AcquiredCall
from app.tools.models import Attempt, CallOutcome, NotDelivered, OutcomeUnknown, OutgoingCall

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

    async def take(self, _tx: Any, _work_id: str, epoch: int) -> AcquiredCall:
        self.number += 1
        self.told.append(("take", epoch))
        return AcquiredCall({"args": {}}, self.number)

    async def settle(self, _tx: Any, _work_id: str, _epoch: int, outcome: CallOutcome) -> CallOutcome:
        self.told.append(outcome.status)
        return outcome


class Run:
    """As much of a query's run as a call needs."""

    def __init__(self) -> None:
        self.lease = SimpleNamespace(tenant="acme", epoch=3, lost=False)
        self.runtime = SimpleNamespace(name="default")
        self.renewed: list[float | None] = []
        self.placed: list[str] = []

    @contextlib.asynccontextmanager
    async def outside(self, work_id: str) -> AsyncIterator[None]:
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

    async def send(self, attempt: Attempt) -> CallOutcome:
        self.attempts.append(attempt)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, CallOutcome)
        return outcome

    async def aclose(self) -> None: ...


async def sent(sender: Any, one: OutgoingCall, run: Run | None = None) -> tuple[CallOutcome, Calls]:
    calls = Calls()
    way: Any = CallDispatcher(calls, {"http": sender}, LEASE_S, Metrics())  # type: ignore[arg-type]
    return await way.outcome(run or Run(), one), calls


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PAUSES_S", (0.0, 0.0))


async def test_the_intent_is_on_record_before_the_call_and_the_outcome_after() -> None:
    run = Run()
    outcome, calls = await sent(Sender(CallOutcome("done", output=1)), call(), run)
    assert outcome.output == 1
    assert calls.told == ["offer", ("take", 3), "done"]
    assert run.renewed == [LEASE_S, None]  # the lease is renewed with the intent


@pytest.mark.parametrize("replay", ["safe", "never"])
async def test_what_was_not_sent_is_tried_three_times(replay: str) -> None:
    outcome, calls = await sent(Sender(*(NotDelivered("away") for _ in range(3))), call(replay))
    assert (outcome.status, outcome.error, calls.number) == ("done", "away", 3)


@pytest.mark.parametrize("replay", ["safe", "never"])
async def test_a_database_that_is_away_before_the_call_leaves_no_doubt(replay: str) -> None:
    """A sender reads secrets first: what comes then is no call whose outcome nobody knows."""
    away = Unavailable("The database cannot be reached.")
    outcome, calls = await sent(Sender(away, CallOutcome("done", output=2)), call(replay))
    assert (outcome.output, calls.number) == (2, 2)
    outcome, calls = await sent(Sender(away, away, away), call(replay))
    assert (outcome.status, outcome.error) == ("done", "Nothing was sent: The database cannot be reached.")


async def test_the_uncertain_is_repeated_only_where_that_is_safe() -> None:
    outcome, calls = await sent(Sender(OutcomeUnknown("cut")), call("never"))
    assert (outcome.status, outcome.error, calls.number) == ("unknown", "cut", 1)
    outcome, calls = await sent(Sender(OutcomeUnknown("cut"), CallOutcome("done", output=2)), call("safe"))
    assert (outcome.output, calls.number) == (2, 2)
    outcome, calls = await sent(Sender(*(OutcomeUnknown("cut") for _ in range(3))), call("safe"))
    assert (outcome.status, calls.number) == ("unknown", 3)


async def test_what_was_not_sent_in_the_end_says_nothing_of_an_attempt_that_may_have_arrived() -> None:
    """The endpoint dies with the first attempt: two that find nobody do not make it one that was never sent."""
    cut, away = OutcomeUnknown("cut."), NotDelivered("nothing was sent: nobody is there")
    outcome, calls = await sent(Sender(cut, away, away), call("safe"))
    assert (outcome.status, calls.number, calls.told[-1]) == ("unknown", 3, "unknown")
    assert outcome.error == "cut. Then: nothing was sent: nobody is there"
    outcome, _ = await sent(Sender(cut, NotDelivered("busy", 31.0)), call("safe"))
    assert outcome.status == "unknown"
    for answer in (CallOutcome("done", output=2), CallOutcome("done", error="it failed")):
        outcome, _ = await sent(Sender(cut, away, answer), call("safe"))
        assert outcome == answer
    refused = CallOutcome("done", error="it answered 409: it is under way", took_nothing=True)
    outcome, _ = await sent(Sender(cut, refused), call("safe"))
    assert (outcome.status, outcome.error) == ("unknown", "cut. Then: it answered 409: it is under way")
    assert (await sent(Sender(away, refused), call("safe")))[0] == refused


@pytest.mark.parametrize("replay", ["safe", "never"])
async def test_an_attempt_before_this_run_may_have_arrived_too(replay: str) -> None:
    """A process that was killed sent it, or a person said `retry`."""
    calls = Calls()
    calls.number = 1
    sender = Sender(*(NotDelivered("away") for _ in range(3)))
    way: Any = CallDispatcher(calls, {"http": sender}, LEASE_S, Metrics())  # type: ignore[arg-type]
    outcome = await way.outcome(Run(), call(replay))
    assert (outcome.status, calls.told[-1]) == ("unknown", "unknown")
    assert outcome.error == "an attempt before this one may have arrived. Then: away"


async def test_who_asks_for_more_patience_than_we_have_is_not_tried_again() -> None:
    _, calls = await sent(Sender(NotDelivered("busy", 31.0)), call())
    assert calls.number == 1


async def test_the_right_to_send_ends_with_half_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(dispatch, "uptime_s", lambda: now)
    sender = Sender(CallOutcome("done"))
    await sent(sender, call())
    (attempt,) = sender.attempts
    now = 104.9
    assert attempt.may_send()
    now = 105.0
    assert not attempt.may_send()


async def test_the_right_to_send_counts_from_before_the_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose answer took long has used up its time."""
    now = 100.0
    monkeypatch.setattr(dispatch, "uptime_s", lambda: now)

    class Slow(Run):
        async def in_fenced_transaction(
            self, verb: Callable[[Any], Any], *, renew_s: float | None = None
        ) -> Any:
            nonlocal now
            found = await super().in_fenced_transaction(verb, renew_s=renew_s)
            now += 6
            return found

    sender = Sender(CallOutcome("done"))
    await sent(sender, call(), Slow())
    assert not sender.attempts[0].may_send()


async def test_a_call_takes_a_place_and_an_action_has_one_of_its_plans() -> None:
    run = Run()
    await sent(Sender(NotDelivered("away"), CallOutcome("done")), call(), run)
    assert run.placed == ["wrk_1"]
    calls = Calls()
    way: Any = CallDispatcher(calls, {"http": Sender(CallOutcome("done"))}, LEASE_S, Metrics())  # type: ignore[arg-type]
    action = replace(call(), purpose="action")
    assert (await way.outcome_of_offered_call(run, action)).status == "done"
    assert run.placed == ["wrk_1"]
    assert calls.told == [("take", 3)]  # who carries the plan out offers it, and writes how it ended


async def test_who_lost_the_query_sends_nothing() -> None:
    run, sender = Run(), Sender(CallOutcome("done"))
    await sent(sender, call(), run)
    run.lease.lost = True
    assert not sender.attempts[0].may_send()
