"""The database becomes unavailable under a running service and returns."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from app.base import embedded_postgres
from app.base.embedded_postgres import locks, places
from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, eventually
from tests.processes.acceptance.model_server import SlowModel
from tests.processes.acceptance.verdict import arrivals, judge

ANSWERED_S = 5


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGKILL, id="kill"),
        pytest.param(signal.SIGQUIT, id="immediate", marks=pytest.mark.long),
        pytest.param(signal.SIGINT, id="fast", marks=pytest.mark.long),
    ],
)
def test_the_service_recovers_by_itself(house: House, model: SlowModel, how: signal.Signals) -> None:
    ledger = house.ledger()
    ledger.hold()
    house.user(ledger, "actions", lease_ms=60_000)
    runtime = house.register(specs.talker("talk", model.provider("anthropic")))
    prompts = [model.prompt(seconds) for seconds in (1.0, 4.0)]
    talks = [house.start(runtime, prompt, agent="talker") for prompt in prompts]
    notices = house.register(specs.notices())
    waiting, sent = (house.start(notices, specs.plan_and_execute()) for _ in range(2))
    house.approve(sent)
    eventually(lambda: ledger.lines("arrivals"), "the actions have arrived")
    waiting.wait_type("query-status", to="waiting")
    for reader in talks:
        reader.wait(lambda e: e["type"] == "text" and "w5 " in e["text"], "text of the model")

    postmaster = house.postmaster()
    assert postmaster is not None
    # The service would start it again within two seconds, in the midst of the questions.
    with locks.hold(house.data_dir / places.START_LOCK, 30):
        os.kill(postmaster, how)
        eventually(lambda: house.http.get("/readyz").status_code == 503, "the database is gone", ANSWERED_S)
        refuse(house, waiting.query_id)
        time.sleep(1)

    back = time.monotonic()
    used = embedded_postgres.start(house.data_dir)
    try:
        eventually(lambda: httpx.get(f"{house.url}/readyz").status_code == 200, "it recovers", 10)
        recovered = time.monotonic() - back
        with ThreadPoolExecutor(20) as clients:
            asked = list(clients.map(lambda _: house.http.get("/queries").status_code, range(60)))
        assert set(asked) == {200}, "no dead connection is left in the pool"
        ledger.let_go()
        house.approve(waiting)
        for prompt, reader in zip(prompts, talks, strict=True):
            assert reader.wait_end()["output"] == model.text(prompt)
        for reader in (waiting, sent):
            judge(house, reader, ledger)
            assert set(arrivals(ledger, reader.query_id).values()) == {1}
        for reader in talks:
            judge(house, reader)
        assert recovered < 10
    finally:
        used.release()


@pytest.mark.long
def test_a_lost_data_directory_is_not_recreated(house: House) -> None:
    """It may be a disk that is not mounted: an empty one in its place would answer, and know nothing."""
    query = house.submit(house.register(specs.notices()), specs.plan_and_execute())
    service, postmaster = house.service, house.postmaster()
    assert service is not None and postmaster is not None
    elsewhere = house.data_dir.with_name("elsewhere")
    house.data_dir.rename(elsewhere)
    os.kill(postmaster, signal.SIGKILL)
    told = f'"error": "EmbeddedPostgresError: {house.data_dir} is missing, '
    eventually(lambda: told in service.log.read_text("utf-8"), "it says so")
    time.sleep(3)  # the service looks every two seconds
    assert service.log.read_text("utf-8").count(told) == 1
    assert not house.data_dir.exists()
    assert httpx.get(f"{house.url}/readyz").status_code == 503
    elsewhere.rename(house.data_dir)
    house.until_ready()
    assert house.get(f"/queries/{query}")["id"] == query


@pytest.mark.long
def test_an_unresponsive_database_counts_as_unavailable(house: House, model: SlowModel) -> None:
    """Its processes stand still: no request waits for them, and all goes on when they do."""
    runtime = house.register(specs.talker("talk", model.provider("openai")))
    prompt = model.prompt(1)
    reader = house.start(runtime, prompt, agent="talker")
    reader.wait(lambda e: e["type"] == "text" and "w5 " in e["text"], "text of the model")
    backends = [
        row["pid"] for row in house.sql("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    ]
    frozen = [house.postmaster(), *backends]
    try:
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        refuse(house, reader.query_id, clients=1)
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert reader.wait_end()["output"] == model.text(prompt)
    judge(house, reader)


def refuse(house: House, query_id: str, clients: int = 4) -> None:
    """Every kind of request, many at once and again and again, is answered 503 as a problem, in time."""
    answers: list[tuple[float, httpx.Response]] = []

    def ask(method: str, path: str, body: object) -> None:
        with httpx.Client(base_url=house.url, headers=house.http.headers, timeout=30, verify=False) as http:
            for _ in range(2):
                began = time.monotonic()
                answer = http.request(method, path, json=body)
                answers.append((time.monotonic() - began, answer))

    asked = [
        ("GET", "/readyz", None),
        ("GET", "/queries", None),
        ("GET", f"/queries/{query_id}", None),
        ("GET", f"/queries/{query_id}/events", None),
        ("POST", "/queries", {"runtimeId": "rt_unknown", "prompt": "hello"}),
        ("POST", "/tool-calls/claim", {"tools": [{"name": "actions"}]}),
        ("POST", "/approvals/apr_unknown", {"decision": "approve"}),
    ] * clients
    threads = [threading.Thread(target=ask, args=args) for args in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 2 * len(asked)
    for seconds, answer in answers:
        assert answer.status_code == 503, f"{answer.request.url} {answer.status_code} {answer.text}"
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["type"] == "unavailable"
        assert seconds < ANSWERED_S
