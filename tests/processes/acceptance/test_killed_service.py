"""kill -9 of the only process: during a model turn, an open gate, a dispatch."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, eventually
from tests.processes.acceptance.model_server import SlowModel
from tests.processes.acceptance.reader import Reader
from tests.processes.acceptance.verdict import arrivals, judge

FORMS = [(replay, graph) for replay in ("safe", "never") for graph in (False, True)]


def talking(house: House, model: SlowModel, kind: str, seconds: float) -> tuple[str, Reader]:
    """A query whose model turn is under way."""
    runtime = house.register(specs.talker(f"talk-{kind}", model.provider(kind)))
    prompt = model.prompt(seconds)
    reader = house.start(runtime, prompt, agent="talker")
    for word in ("w1 ", "w5 "):
        reader.wait(lambda e, w=word: e["type"] == "text" and w in e["text"], "text of the model")
    return prompt, reader


# --- in a model turn


@pytest.mark.long
@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_a_truncated_model_turn_is_repeated(house: House, model: SlowModel, kind: str) -> None:
    prompt, reader = talking(house, model, kind, 1.0)
    killed = house.restart()
    retried = reader.wait_type("step-retry")
    assert retried.at - killed < 30
    assert reader.wait_end()["output"] == model.text(prompt)
    assert "cut" in reader.ends
    judge(house, reader)
    assert model.asked(prompt) == 2


def test_an_accepted_query_completes_without_a_reader(house: House, model: SlowModel) -> None:
    runtime = house.register(specs.talker("talk-unread", model.provider("openai")))
    prompts = [model.prompt(0.2) for _ in range(5)]
    queries = [house.submit(runtime, prompt, agent="talker") for prompt in prompts]
    house.restart()
    for prompt, query in zip(prompts, queries, strict=True):
        reader = house.follow(query)
        assert reader.wait_end()["output"] == model.text(prompt)
        judge(house, reader)


def tries(reader: Reader) -> int:
    return sum(f.type == "step-retry" for f in list(reader.frames))


# --- while an approval is pending


@pytest.mark.parametrize("gate", ["plan", pytest.param("tool", marks=pytest.mark.long)])
def test_an_open_gate_outlives_the_process(house: House, gate: str) -> None:
    ledger = house.ledger()
    rule: dict[str, Any] = {"approval": "always"} if gate == "tool" else {}
    runtime = house.register(specs.notices(**rule))
    script = (
        specs.plan_and_execute()
        if gate == "plan"
        else {"script": [specs.call_agent("planner", specs.LOOK_UP)]}
    )
    early, parked = house.start(runtime, script), house.start(runtime, script)
    parked.wait_type("query-status", to="waiting", reason="approval")
    early.wait_type("approval-required", kind=gate)
    house.kill_service()
    with pytest.raises(httpx.TransportError):
        house.approve(parked)
    house.serve()
    house.user(ledger, "actions", "lookup", lease_ms=20_000)
    for reader in (parked, early):
        asked = time.monotonic()
        house.approve(reader)
        decided = reader.wait_type("approval-decision")
        assert decided.at - asked < 2
        judge(house, reader, ledger)
    assert parked.wait_end()


@pytest.mark.long
def test_an_acknowledged_decision_takes_effect(house: House) -> None:
    """Many gates are decided one after another while the process is killed: a decision counts or was not answered."""
    ledger = house.ledger()
    house.user(ledger, "actions", lease_ms=60_000)  # what is claimed when the process is killed outlives it
    runtime = house.register(specs.notices())
    readers = [house.start(runtime, specs.plan_and_execute(1)) for _ in range(8)]
    for reader in readers:
        reader.wait_type("query-status", to="waiting")
    answered = []
    for reader in readers[:4]:
        answered.append(house.approve(reader))
    house.kill_service()
    with pytest.raises(httpx.TransportError):
        house.approve(readers[4])
    house.serve()
    for row in answered:
        assert house.get(f"/approvals/{row['id']}")["status"] == "approved"
    for reader in readers[4:]:
        house.approve(reader)
    for reader in readers:
        house.approve(reader)  # the same again is the first answer
        judge(house, reader, ledger)


# --- while actions are being dispatched


def dispatching(house: House, forms: list[tuple[str, bool]], actions: int = 3) -> list[Reader]:
    """A query for each form, approved."""
    readers = []
    for replay, graph in forms:
        reader = house.start(
            house.register(specs.notices(replay, graph=graph)), specs.plan_and_execute(actions)
        )
        readers.append(reader)
    for reader in readers:
        house.approve(reader)
    return readers


NAMES = ("actions", "actions.notify", "actions.call", "lookup")


@pytest.mark.long
def test_a_dispatcher_that_keeps_its_claim_is_trusted(house: House) -> None:
    """The service dies and comes back within the claims' leases: every action arrives once, and its result counts."""
    ledger = house.ledger()
    ledger.hold()
    house.user(ledger, *NAMES, lease_ms=20_000)
    readers = dispatching(house, FORMS)
    eventually(lambda: len(ledger.lines("arrivals")) == 12, "all actions have arrived")
    house.kill_service()
    ledger.let_go()
    house.serve()
    for reader in readers:
        judge(house, reader, ledger)
        assert set(arrivals(ledger, reader.query_id).values()) == {1}
        assert plan_of(house, reader)["status"] == "executed"


@pytest.mark.long
def test_a_dispatcher_that_dies_leaves_the_outcome_unknown(house: House) -> None:
    """`safe` is offered again under the same key; `never` is unknown until a person says what became of it."""
    ledger = house.ledger()
    ledger.hold()
    first = house.user(ledger, *NAMES, lease_ms=6000)
    forms = [*FORMS, ("never", False), ("never", False)]
    readers = dispatching(house, forms)
    eventually(lambda: len(ledger.lines("arrivals")) == 18, "all actions have arrived")
    first.kill()
    house.restart()
    ledger.let_go()
    house.user(ledger, *NAMES, lease_ms=6000)
    outcomes = iter(("succeeded", "succeeded", "failed", "retry"))
    for (replay, graph), reader in zip(forms, readers, strict=True):
        if replay == "safe":
            judge(house, reader, ledger)
            assert set(arrivals(ledger, reader.query_id).values()) == {2}
            assert plan_of(house, reader)["status"] == "executed"
            continue
        reader.wait_type("query-status", to="waiting", reason="outcome_unknown")
        assert house.get(f"/queries/{reader.query_id}")["reason"] == "outcome_unknown"
        outcome = next(outcomes)
        plan = plan_of(house, reader)
        for index in range(3) if graph else (1,):
            house.post(f"/plans/{plan['id']}/actions/{index}", {"outcome": outcome})
        judge(house, reader, ledger)
        assert plan_of(house, reader)["status"] == ("failed" if outcome == "failed" else "executed")
        assert set(arrivals(ledger, reader.query_id).values()) == {2 if outcome == "retry" else 1}


@pytest.mark.long
def test_a_late_result_is_only_evidence(house: House) -> None:
    """The claims lapse while the service is away; the dispatcher that comes late is told so."""
    ledger = house.ledger()
    ledger.hold()
    house.user(ledger, *NAMES, lease_ms=1000)
    safe, never = dispatching(house, [("safe", False), ("never", False)])
    eventually(lambda: len(ledger.lines("arrivals")) == 6, "all actions have arrived")
    house.kill_service()
    time.sleep(1.2)
    house.serve()
    never.wait_type("query-status", to="waiting", reason="outcome_unknown")
    eventually(lambda: any(x.get("lapsed") for x in ledger.lines("answers", never.query_id)), "it is told")
    ledger.let_go()
    judge(house, safe, ledger)
    plan = plan_of(house, never)
    house.post(f"/plans/{plan['id']}/actions/0", {"outcome": "succeeded"})
    judge(house, never, ledger)
    assert set(arrivals(ledger, never.query_id).values()) == {1}


def plan_of(house: House, reader: Reader) -> dict[str, Any]:
    shown = reader.wait_type("plan-status-change").event["data"]["planId"]
    plan: dict[str, Any] = house.get(f"/plans/{shown}")
    return plan
