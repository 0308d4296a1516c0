"""A rolling restart: a process announces its stop before it stops listening, so no request fails."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from app.api.serving import drain_seconds
from app.settings import Settings
from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, eventually, readiness
from tests.support.balancer import LoadBalancer

DRAIN_S = 2
GONE_S = 10


@pytest.fixture(scope="module")
def draining() -> Iterator[House]:
    """Without a process at the beginning and the end of each test."""
    made = House(drain_s=DRAIN_S, lease_s=2)
    try:
        yield made
    finally:
        made.close()


def send_until(done: threading.Event, url: str, key: str, runtime: str, answers: Counter[object]) -> None:
    """Read and write in turn, over one connection, without a retry."""
    body = {"runtimeId": runtime, "prompt": "[]"}
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
        while not done.is_set():
            for method, path in (("GET", "/queries?limit=1"), ("POST", "/queries"), ("GET", "/runtimes")):
                try:
                    answer = client.request(method, path, json=body if method == "POST" else None)
                    answers[answer.status_code] += 1
                except httpx.HTTPError as error:
                    answers[repr(error)] += 1


def test_a_draining_process_serves_and_starts_no_query(draining: House) -> None:
    service = draining.serve()
    runtime = draining.register(specs.notices())
    with httpx.Client(base_url=draining.url, headers=draining.http.headers) as kept:
        assert "connection" not in kept.get("/queries").headers
        service.signal(signal.SIGTERM)
        eventually(lambda: readiness(draining.url) == 503, "/readyz changes first")
        query = draining.submit(runtime, "[]")
        answer = kept.get(f"/queries/{query}?waitMs=300")
        assert answer.status_code == 200
        assert answer.json()["status"] == "queued", "it is left to other processes"
        assert answer.headers["connection"] == "close", "no proxy uses this connection again"
    assert service.wait() == 0
    following = draining.serve()
    assert draining.get(f"/queries/{query}?waitMs=20000")["status"] != "queued", "the next process starts it"
    following.kill()


@pytest.mark.long
def test_a_second_signal_ends_the_drain(draining: House) -> None:
    draining.env["PLANGATE_DRAIN_S"] = "300"
    service = draining.serve()
    draining.env["PLANGATE_DRAIN_S"] = str(DRAIN_S)
    service.signal(signal.SIGTERM)
    eventually(lambda: readiness(draining.url) == 503, "it drains")
    began = time.monotonic()
    service.signal(signal.SIGINT)
    assert service.wait(GONE_S) == 0
    assert time.monotonic() - began < GONE_S


@pytest.mark.long
def test_no_request_fails_while_two_processes_restart(draining: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        other_port = free.getsockname()[1]
    other_url = f"http://127.0.0.1:{other_port}"
    first, second = draining.serve(), draining.serve_at(other_port)
    runtime = draining.register(specs.notices())
    balancer = LoadBalancer([draining.url, other_url]).start()
    answers: Counter[object] = Counter()
    done = threading.Event()
    arguments = (done, balancer.url, draining.key, runtime, answers)
    clients = [threading.Thread(target=send_until, args=arguments) for _ in range(4)]
    try:
        eventually(lambda: len(balancer.ready) == 2, "both are in the balancer")
        for client in clients:
            client.start()
        for process, port in ((first, draining.port), (second, other_port)):
            before = answers.total()
            assert process.stop(DRAIN_S + GONE_S) < DRAIN_S + GONE_S
            assert answers.total() > before, "the other process served meanwhile"
            draining.serve_at(port)
            eventually(lambda: len(balancer.ready) == 2, "it is in the balancer again")
    finally:
        done.set()
        for client in clients:
            client.join()
        balancer.close()
    assert balancer.failures == []
    assert set(answers) == {200, 202}, answers


def test_only_a_non_loopback_service_drains_by_default() -> None:
    assert drain_seconds(Settings()) == 0
    assert drain_seconds(Settings(host="::1")) == 0
    assert drain_seconds(Settings(host="0.0.0.0")) == 5
    assert drain_seconds(Settings(host="0.0.0.0", drain_s=0)) == 0
    assert drain_seconds(Settings(drain_s=15)) == 15
