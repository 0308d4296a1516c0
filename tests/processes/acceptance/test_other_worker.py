"""Two workers behind an API-only process: one dies, freezes or stops, and the other takes over."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, Process, eventually
from tests.processes.acceptance.model_server import SlowModel
from tests.processes.acceptance.reader import Reader
from tests.processes.acceptance.verdict import arrivals, judge

OWNER = "SELECT lease_owner, lease_epoch FROM queries WHERE id = $1"


@pytest.fixture(scope="module")
def patient(model: SlowModel) -> Iterator[House]:
    """With the leases that the service has by itself."""
    made = House(allow_hosts=f"127.0.0.1:{model.port}")
    try:
        made.serve("--no-worker")
        yield made
    finally:
        made.close()


@pytest.fixture
def brisk(home: House) -> Iterator[House]:
    if home.service is None:
        home.serve("--no-worker")
    yield home
    home.end_users()


def talking(house: House, model: SlowModel, seconds: float) -> tuple[str, Reader]:
    """A turn that has begun and does not end before the model is let go."""
    model.hold()
    runtime = house.register(specs.talker("talk", model.provider("anthropic")))
    prompt = model.prompt(seconds)
    reader = house.start(runtime, prompt, agent="talker")
    reader.wait(lambda e: e["type"] == "text" and "w5 " in e["text"], "text of the model")
    return prompt, reader


def epoch(house: House, reader: Reader) -> int:
    return int(house.sql(OWNER, reader.query_id)[0]["lease_epoch"])


@pytest.mark.long
def test_the_other_worker_takes_over_from_a_killed_one(patient: House, model: SlowModel) -> None:
    ledger = patient.ledger()
    ledger.hold()
    patient.user(ledger, "actions", lease_ms=60_000)
    first = patient.worker()
    planned = patient.start(patient.register(specs.notices()), specs.plan_and_execute())
    patient.approve(planned)
    eventually(lambda: ledger.lines("arrivals"), "the actions have arrived")
    prompt, reader = talking(patient, model, 2.5)
    second = patient.worker()
    first.kill()
    killed = time.monotonic()
    model.let_go()
    ledger.let_go()
    taken = reader.wait_type("step-retry").at - killed
    assert taken < 30
    assert reader.wait_end()["output"] == model.text(prompt)
    for one in (reader, planned):
        judge(patient, one)
    assert reader.ends[:1] in ([], ["clean"]), "the API lived on"
    assert set(arrivals(ledger, planned.query_id).values()) == {1}
    assert second.stop() < 10


@pytest.mark.long
def test_a_stopping_worker_hands_over_at_once(patient: House, model: SlowModel) -> None:
    first = patient.worker()
    prompt, reader = talking(patient, model, 2.5)
    second = patient.worker()
    assert first.stop() < 10
    gone = time.monotonic()
    model.let_go()
    assert reader.wait_type("step-retry").at - gone < 8, "long before the lease would have ended"
    assert reader.wait_end()["output"] == model.text(prompt)
    judge(patient, reader)
    second.stop()


@pytest.mark.long
def test_a_frozen_worker_writes_nothing(brisk: House, model: SlowModel) -> None:
    """It wakes up while the other works, and is still there when all is over."""
    first = brisk.worker()
    prompt, reader = talking(brisk, model, 2)
    second = brisk.worker()
    first.freeze()
    model.let_go()
    reader.wait_type("step-retry")
    taken = epoch(brisk, reader)
    first.thaw()
    assert reader.wait_end()["output"] == model.text(prompt)
    time.sleep(1)
    judge(brisk, reader)
    assert model.asked(prompt) == 2
    assert epoch(brisk, reader) == taken
    end(first, second)


@pytest.mark.long
def test_a_worker_frozen_between_dispatches_sends_nothing_more(brisk: House) -> None:
    """It wakes up with results it waited for; the other has carried on, and each action arrives once."""
    ledger = brisk.ledger()
    ledger.hold()
    brisk.user(ledger, "actions.notify", "actions.call", lease_ms=60_000)
    first = brisk.worker()
    spec = {**specs.notices(graph=True), "limits": {"maxParallelActions": 1}, "name": "one-by-one"}
    reader = brisk.start(brisk.register(spec), specs.plan_and_execute(4))
    brisk.approve(reader)
    eventually(lambda: ledger.lines("arrivals"), "the first action has arrived")
    second = brisk.worker()
    first.freeze()
    ledger.let_go()
    reader.wait_end()
    first.thaw()
    time.sleep(1)
    judge(brisk, reader, ledger)
    assert sorted(arrivals(ledger, reader.query_id).values()) == [1, 1, 1, 1]
    end(first, second)


def end(*workers: Process) -> None:
    for worker in workers:
        assert worker.stop() < 10
