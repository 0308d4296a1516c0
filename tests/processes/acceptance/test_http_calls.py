"""kill -9 during calls of the transport `http`: nothing is lost, and no unsafe call is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, eventually
from tests.processes.acceptance.reader import Reader
from tests.processes.acceptance.receiver import Receiver
from tests.processes.acceptance.verdict import judge


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.close()


@pytest.fixture(scope="module")
def home(receiver: Receiver) -> Iterator[House]:
    made = House(lease_s=2, allow_hosts=f"127.0.0.1:{receiver.port}")
    try:
        yield made
    finally:
        made.close()


def posted(receiver: Receiver, replay: str, *, graph: bool = False) -> dict[str, Any]:
    """The notices, with tool and dispatcher behind the receiver's address."""
    made = specs.notices(replay, graph=graph, transport={"kind": "http", "url": receiver.url})
    dispatcher = {"kind": "http", "url": receiver.url, "replay": replay}
    own = {"actionDispatchers": {"notify": dispatcher, "call": dispatcher}} if graph else {}
    return {
        **made,
        "name": f"http-{made['name']}",
        **({"actionDispatcher": dispatcher} if not graph else own),
    }


def on_its_way(house: House, receiver: Receiver, spec: dict[str, Any], actions: int) -> Reader:
    """A query with an approved plan of which something has left and nothing has come back."""
    receiver.hold()
    reader = house.start(house.register(spec), specs.plan_and_execute(actions))
    house.approve(reader)
    eventually(lambda: receiver.of(reader.query_id), "a call arrives")
    return reader


@pytest.mark.parametrize("graph", [False, True])
def test_safe_calls_are_repeated_with_the_same_keys(house: House, receiver: Receiver, graph: bool) -> None:
    reader = on_its_way(house, receiver, posted(receiver, "safe", graph=graph), 3)
    house.kill_service()
    before = {h["idempotency-key"] for h, _ in receiver.of(reader.query_id)}
    receiver.let_go()
    house.serve()
    judge(house, reader)
    came = receiver.of(reader.query_id)
    keys = {h["idempotency-key"] for h, _ in came}
    assert len(keys) == (3 if graph else 1)
    assert before <= keys
    assert {b["attempt"] for h, b in came if h["idempotency-key"] in before} == {1, 2}


@pytest.mark.parametrize("graph", [False, True])
def test_unsafe_calls_wait_for_a_person(house: House, receiver: Receiver, graph: bool) -> None:
    reader = on_its_way(house, receiver, posted(receiver, "never", graph=graph), 1)
    house.kill_service()
    receiver.let_go()
    house.serve()
    reader.wait_type("query-status", to="waiting", reason="outcome_unknown")
    assert len(receiver.of(reader.query_id)) == 1
    (plan,) = [p for p in house.get("/plans?limit=500")["items"] if p["queryId"] == reader.query_id]
    house.post(f"/plans/{plan['id']}/actions/0", {"outcome": "succeeded", "details": "seen in the books"})
    judge(house, reader)
    assert len(receiver.of(reader.query_id)) == 1
