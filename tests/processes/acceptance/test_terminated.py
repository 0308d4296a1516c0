"""SIGTERM: open streams end between events, nothing accepted is lost, and the process exits within 10 s of its drain
time."""

from __future__ import annotations

import pytest

from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, eventually
from tests.processes.acceptance.model_server import SlowModel
from tests.processes.acceptance.verdict import arrivals, judge

GONE_S = 10


@pytest.mark.long
def test_streams_end_cleanly_and_resume_elsewhere(house: House, model: SlowModel) -> None:
    ledger = house.ledger()
    ledger.hold()
    house.user(ledger, "actions", lease_ms=60_000)
    runtime = house.register(specs.talker("talk", model.provider("anthropic")))
    short, long = model.prompt(1.5), model.prompt(5)
    talks = {prompt: house.start(runtime, prompt, agent="talker") for prompt in (short, long)}
    waiting, sent = (house.start(house.register(specs.notices()), specs.plan_and_execute()) for _ in range(2))
    house.approve(sent)
    eventually(lambda: ledger.lines("arrivals"), "the actions have arrived")
    waiting.wait_type("query-status", to="waiting")
    for reader in talks.values():
        reader.wait(lambda e: e["type"] == "text" and "w5 " in e["text"], "text of the model")

    assert house.service is not None
    assert house.service.stop() < GONE_S
    assert house.postmaster() is None, "the last user stops the database"
    eventually(lambda: all(r.ends for r in (*talks.values(), waiting, sent)), "the streams end")
    assert {r.ends[0] for r in (*talks.values(), waiting, sent)} == {"clean"}

    house.serve()
    ledger.let_go()
    house.approve(waiting)
    for prompt, reader in talks.items():
        assert reader.wait_end()["output"] == model.text(prompt)
        judge(house, reader)
    for reader in (waiting, sent):
        judge(house, reader, ledger)
        assert set(arrivals(ledger, reader.query_id).values()) == {1}
    assert model.asked(short) == 1, "what ends within the grace is not made again"
    assert model.asked(long) == 2
