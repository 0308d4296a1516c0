"""kill -9 during graphs: no finished action is repeated, no ready one is forgotten, and values equal those of an
undisturbed run."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.processes.acceptance import fifty
from tests.processes.acceptance.fifty import BOTH, FAILS, ON_SUCCESS, TOTAL, Answers, Run
from tests.processes.acceptance.house import House, Ledger, eventually
from tests.processes.acceptance.receiver import Receiver
from tests.processes.acceptance.user_process import carried_out
from tests.processes.acceptance.verdict import judge

KILLS, EACH = 4, 20  # so many, with so many new actions from one to the next: of 392
SENT = 49  # of the actions of a run: one is skipped
FORMS = [(kind, replay) for kind in ("client", "http") for replay in ("safe", "never")] * 2
Seen = tuple[
    Run, set[str], Counter[str]
]  # of a run, as its process was gone: what was over, and what had arrived


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers()


@pytest.fixture(scope="module")
def receiver(answers: Answers) -> Iterator[Receiver]:
    running = Receiver(answers)
    yield running
    answers.let_go()
    running.close()


@pytest.fixture(scope="module")
def home(receiver: Receiver) -> Iterator[House]:
    made = House(lease_s=2, allow_hosts=f"127.0.0.1:{receiver.port}")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def ledger(house: House) -> Ledger:
    """With a process of the user that serves while the service is away."""
    made = house.ledger()
    house.user(made, "actions", lease_ms=8_000)
    return made


def started(house: House, form: tuple[str, str], ledger: Ledger, receiver: Receiver) -> Run:
    kind, replay = form
    dispatcher = {"kind": kind, "replay": replay, **({"url": receiver.url} if kind == "http" else {})}
    return fifty.started(house, dispatcher, receiver if kind == "http" else ledger)


@pytest.fixture(scope="module")
def undisturbed(home: House, receiver: Receiver) -> tuple[list[str], Any]:
    """The statuses and the state that a run leaves when nothing happens to it."""
    if home.service is None:
        home.serve()
    run = fifty.started(home, {"kind": "http", "replay": "never", "url": receiver.url}, receiver)
    judge(home, run.reader)
    assert run.status() == "executed"
    assert set(run.arrivals().values()) == {1}
    statuses = run.statuses()
    assert {n for n, status in enumerate(statuses) if status != "succeeded"} == {FAILS, ON_SUCCESS}
    return statuses, run.state()


# --- again and again


@pytest.mark.long
def test_the_service_is_killed_again_and_again(
    house: House, ledger: Ledger, receiver: Receiver, undisturbed: tuple[list[str], Any]
) -> None:
    def strike(look: Callable[[], None]) -> None:
        house.kill_service()
        look()
        house.serve()

    weather([started(house, form, ledger, receiver) for form in FORMS], strike, undisturbed)


@pytest.mark.long
def test_the_worker_is_killed_again_and_again(
    house: House, ledger: Ledger, receiver: Receiver, undisturbed: tuple[list[str], Any]
) -> None:
    """The service lives on: it takes results that no process waits for, and hears what a person decides."""
    assert house.service is not None
    house.service.stop()
    house.serve("--no-worker")
    workers = [house.worker()]

    def strike(look: Callable[[], None]) -> None:
        workers.pop().kill()
        look()
        workers.append(house.worker())

    try:
        weather([started(house, form, ledger, receiver) for form in FORMS], strike, undisturbed)
    finally:
        for process in (*workers, house.service):
            process.stop()


def weather(
    runs: list[Run], strike: Callable[[Callable[[], None]], None], undisturbed: tuple[list[str], Any]
) -> None:
    """Kills when more has arrived, and each of the plans got further: who does not is set aside. Afterwards nobody can
    tell but by what was under way."""
    seen: list[Seen] = []
    again: Counter[str] = Counter()
    before, deadline, kills = [0] * len(runs), time.monotonic() + 100, 0

    def look() -> None:
        seen.extend((run, run.finished(), run.arrivals()) for run in runs)

    while not all(run.reader.over for run in runs):
        assert time.monotonic() < deadline, "\n".join(run.reader.tail() for run in runs)
        for run in runs:
            again += settled(run)
        now = [len(run.arrivals()) for run in runs]
        further = all(b < n or n == SENT for b, n in zip(before, now, strict=True))
        if kills < KILLS and further and sum(now) >= sum(before) + EACH:
            strike(look)
            kills += 1
            before = [len(run.arrivals()) for run in runs]
        time.sleep(0.01)
    for run, over, then in seen:
        last = run.arrivals()
        assert {key: last[key] for key in over} == {key: then[key] for key in over}, run.name
    for run in runs:
        judge(run.house, run.reader)
        assert (run.name, run.status(), run.statuses(), run.state()) == (run.name, "executed", *undisturbed)
        came = run.arrivals()
        assert len(came) == SENT, run.name
        if run.never:
            assert all(count <= 1 + again[key] for key, count in came.items()), run.name
        else:
            assert max(came.values()) <= 1 + kills, run.name
    assert kills == KILLS


def settled(run: Run) -> Counter[str]:
    """A person looks at what nobody knows. What took effect is said to have succeeded, with its result; what did not is
    made again. Gives what is made again although it had arrived."""
    again: Counter[str] = Counter()
    if not run.never or run.reader.newest.get("reason") != "outcome_unknown":
        return again
    known = dict(run.came())
    for row in run.rows():
        if row["status"] == "unknown":
            key = row["idempotencyKey"]
            done = carried_out([known[key]]) if key in known else {}
            if "output" in done:
                run.settle(row["index"], "succeeded", done["output"]["details"])
            else:
                run.settle(row["index"], "retry")
                again[key] += key in known
    return again


# --- what a person decides

HELD = (7, 41)
HELD_MS = 6000  # of a claim: a slow machine keeps a process from its heartbeat for two seconds
BEHIND = {26, 39, *BOTH, TOTAL}  # what waits for them


@pytest.mark.long
@pytest.mark.parametrize("kind", ["client", "http"])
def test_unknown_outcomes_are_settled_by_a_person(
    house: House, receiver: Receiver, answers: Answers, undisturbed: tuple[list[str], Any], kind: str
) -> None:
    ledger = house.ledger()
    first = house.user(ledger, "actions", lease_ms=HELD_MS)
    for held in (ledger, answers):
        held.hold(*HELD)
    runs = {
        outcome: started(house, (kind, "never"), ledger, receiver)
        for outcome in ("succeeded", "retry", "failed")
    }
    statuses, _ = undisturbed
    now = ["dispatched" if n in HELD else "pending" if n in BEHIND else s for n, s in enumerate(statuses)]
    for run in runs.values():
        eventually(
            lambda r=run: r.statuses() == now, "all that does not wait for those that are held is over"
        )
    house.kill_service()
    first.kill()
    for held in (ledger, answers):
        held.let_go()
    house.serve()
    house.user(ledger, "actions", lease_ms=HELD_MS)
    now = ["unknown" if n in HELD else s for n, s in enumerate(now)]
    for run in runs.values():
        eventually(lambda r=run: r.statuses() == now, "nobody knows what became of those that were held")
        run.reader.wait_type("query-status", to="waiting", reason="outcome_unknown")
    for outcome, run in runs.items():
        decide(run, outcome, undisturbed)


def decide(run: Run, outcome: str, undisturbed: tuple[list[str], Any]) -> None:
    """A person says what became of the held actions, and the plan goes on from there."""
    statuses, state = undisturbed
    values = {7: state["fan"]["a7"], 41: {"p41": state["parts"]["p41"]}}
    for n in HELD:
        run.settle(n, outcome, values[n] if outcome == "succeeded" else "seen in the books")
    judge(run.house, run.reader)
    keys = {row["idempotencyKey"]: row["index"] for row in run.rows()}
    came = {keys[key]: count for key, count in run.arrivals().items()}
    if outcome == "failed":
        left = ["failed" if n in HELD else "skipped" if n in BEHIND else s for n, s in enumerate(statuses)]
        assert (run.status(), run.statuses(), run.state()) == ("failed", left, without(state))
        assert came == {n: 1 for n, status in enumerate(left) if status != "skipped"}
    else:
        assert (run.status(), run.statuses(), run.state()) == ("executed", statuses, state)
        sent_again = HELD if outcome == "retry" else ()
        assert came == {n: 2 if n in sent_again else 1 for n in range(50) if n != ON_SUCCESS}


def without(state: Any) -> Any:
    """The state that is left where the held actions failed."""
    left = copy.deepcopy(state)
    del left["fan"]["a7"], left["parts"]["p41"], left["parts"]["p39"], left["left"], left["total"]
    return left
