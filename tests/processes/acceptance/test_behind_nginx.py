"""Several processes behind the nginx of docs/operations.md: restarts and deaths under load."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, Process
from tests.processes.acceptance.model_server import SlowModel
from tests.processes.acceptance.verdict import judge
from tests.support import nginx

DRAIN_S = 2
REFUSING_S = 1
ADDRESSES = ("10.0.0.11:8700", "10.0.0.12:8700")
CLIENTS = 3
EMPTY_SCRIPT = '{"script": []}'
STREAMS = 4


@dataclass
class Load:
    """Clients that send requests without a retry, and what they got."""

    url: str
    key: str
    runtime: str
    answers: Counter[object] = field(default_factory=Counter)
    submitted: list[str] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._send) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._done.set()
            for thread in threads:
                thread.join()

    def _send(self) -> None:
        headers = {"Authorization": f"Bearer {self.key}"}
        with httpx.Client(base_url=self.url, headers=headers, timeout=30) as client:
            while not self._done.is_set():
                for number in range(2):
                    body = {"runtimeId": self.runtime, "prompt": EMPTY_SCRIPT}
                    keyed = {"Idempotency-Key": uuid.uuid4().hex} if number else {}
                    if answer := self._request(client, "POST", "/queries", json=body, headers=keyed):
                        self.submitted.append(answer.json()["id"])
                        self._request(client, "GET", f"/queries/{self.submitted[-1]}")
                self._request(client, "GET", "/queries?limit=1")
                time.sleep(0.02)

    def _request(self, client: httpx.Client, method: str, path: str, **more: object) -> httpx.Response | None:
        try:
            answer = client.request(method, path, **more)  # type: ignore[arg-type]
        except httpx.HTTPError as error:
            self.answers[repr(error)] += 1
            return None
        is_problem = answer.headers.get("content-type") == "application/problem+json"
        self.answers[answer.json()["type"] if is_problem else answer.status_code] += 1
        return answer if answer.is_success else None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def several(model: SlowModel) -> Iterator[House]:
    made = House(drain_s=DRAIN_S, lease_s=2, allow_hosts=f"127.0.0.1:{model.port}")
    try:
        yield made
    finally:
        made.close()


@pytest.mark.long
def test_a_process_refuses_requests_before_it_stops_listening(several: House) -> None:
    """The last second of a process: every request is a 503 without an effect, also on a connection from before."""
    service = several.serve("--no-worker")
    runtime = several.register(specs.notices())
    body = {"runtimeId": runtime, "prompt": "[]"}
    accepted, refused = 0, 0
    service.signal(signal.SIGTERM)
    with (
        httpx.Client(base_url=several.url, headers=several.http.headers) as client,
        contextlib.suppress(httpx.TransportError),
    ):
        while True:
            answer = client.post("/queries", json=body)
            if answer.status_code == 202:
                assert not refused, "it accepts nothing after the first refusal"
                accepted += 1
            else:
                assert answer.status_code == 503, answer.text
                assert answer.headers["retry-after"] == "1"
                assert answer.headers["connection"] == "close"
                refused += 1
            time.sleep(0.02)
    assert service.wait() == 0
    assert accepted
    assert refused
    following = several.serve("--no-worker")
    assert several.sql("SELECT count(*)::int AS n FROM queries")[0]["n"] == accepted
    following.stop()


@pytest.mark.long
def test_no_request_fails_while_processes_restart_and_die(several: House, model: SlowModel) -> None:
    other_port = free_port()
    servers = [several.serve("--no-worker"), several.serve_at(other_port, "--no-worker")]
    workers = [several.worker(), several.worker()]  # the second one takes over
    runtime = several.register(specs.notices())
    talker = several.register(specs.talker("talk", model.provider("openai")))
    ports = (several.port, other_port)
    with nginx.nginx(several.folder, "plangate.conf", dict(zip(ADDRESSES, ports, strict=True))) as url:
        prompts = [model.prompt(8) for _ in range(STREAMS)]
        queries = [several.submit(talker, prompt, agent="talker") for prompt in prompts]
        readers = [several.follow(query, url=url) for query in queries]
        for reader in readers:
            first = reader.wait(lambda e: e["type"] == "text", "text of the model")
            assert time.monotonic() - first.at < 5
            assert not reader.over, "nginx passes events on at once"
        before = count_queries(several, runtime)
        load = Load(url, several.key, runtime)
        with load.running():
            for server, port in zip(servers, ports, strict=True):
                answered = load.answers.total()
                assert server.stop() < DRAIN_S + REFUSING_S + 10
                assert load.answers.total() > answered, "the other one served meanwhile"
                restarted = restart(several, port)
            workers[0].kill()
            time.sleep(2)
        assert set(load.answers) == {200, 202}, load.answers
        everything_ran_once(several, load, before)
        before = count_queries(several, runtime)
        load = Load(url, several.key, runtime)
        with load.running():
            time.sleep(1)
            restarted.kill()
            time.sleep(2)
            restart(several, other_port)
        assert load.answers.keys() <= {200, 202, "in_progress"}, load.answers
        everything_ran_once(several, load, before)
        for prompt, reader in zip(prompts, readers, strict=True):
            assert reader.wait_end()["output"] == model.text(prompt)
            judge(several, reader)
            assert "clean" in reader.ends[:-1] or "cut" in reader.ends[:-1], "it was resumed"


def count_queries(house: House, runtime: str) -> int:
    return int(house.sql("SELECT count(*) AS n FROM queries WHERE runtime_id = $1", runtime)[0]["n"])


def everything_ran_once(house: House, load: Load, before: int) -> None:
    """Every accepted query succeeds. There is no other one since there were `before`, but of a request whose repetition
    came too early."""
    for query in load.submitted:
        found = house.get(f"/queries/{query}?waitMs=20000")
        assert found["status"] == "succeeded", found
    made = count_queries(house, load.runtime) - before
    assert len(load.submitted) <= made <= len(load.submitted) + load.answers["in_progress"]


def restart(house: House, port: int) -> Process:
    return house.serve("--no-worker") if port == house.port else house.serve_at(port, "--no-worker")
