"""No request blocks the event loop: every field gets its most expensive value while a probe requests /healthz.

`HOSTILE_SHAPES=all` sends every shape to every field, which takes many minutes; without it every field gets one shape,
another than its neighbors.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from app.runtimes.large_specs import LARGE_SPEC_BYTES
from tests.support.callbacks import measured_callbacks
from tests.support.hostile_bodies import Generator, Hostile
from tests.support.measured_loop import Report
from tests.support.service import END_WITHIN_S, ROOT, folder, plain_environment

ALL = os.environ.get("HOSTILE_SHAPES") == "all"
FULL_BYTES = 1024 * 1024
QUICK_SPEC_BYTES = 32 * 1024
SPECS = ("registerRuntime", "validateRuntime")
MAX_CALLBACK_MS = 100
MAX_PROBLEM_BYTES = 64 * 1024
TENANT = "hostile"
SPEC = {
    "tenant": {"resourceId": TENANT},
    "interpreter": "scripted",
    "agents": [
        {
            "name": "worker",
            "role": "specialist",
            "model": {"id": "none"},
            "tools": ["look", "spend"],
            "toolkits": ["references"],
        },
        {"name": "planner", "role": "planner", "model": {"id": "none"}, "plan": "Payments"},
    ],
    "references": [{"name": "Anything", "schema": {}}],
    "plans": [
        {
            "name": "Payments",
            "schema": {
                "type": "object",
                "properties": {"actions": {"type": "array", "items": {"type": "object"}}},
                "required": ["actions"],
            },
        }
    ],
    "tools": [
        {"name": "look", "inputSchema": {"type": "object"}},
        {"name": "spend", "inputSchema": {"type": "object"}, "approval": "always"},
    ],
    "actionDispatchers": {"pay": "client"},
}
PLAN = {"actions": [{"kind": "pay"}]}


@dataclass
class MeasuredService:
    """`plangate serve` with a loop that reports its long callbacks."""

    url: str
    headers: dict[str, str]
    _report: Any
    _log: Path

    def callbacks(self) -> list[tuple[float, str]]:
        """The long callbacks since the last call: milliseconds of CPU time, and where they were."""
        return [(cpu_s * 1000, places) for cpu_s, places in map(json.loads, self._report)]

    def log(self) -> str:
        return self._log.read_text()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        response = httpx.request(method, self.url + path, json=body, headers=self.headers, timeout=30)
        assert response.is_success, response.text
        return response.json()


@contextlib.contextmanager
def measured_service(at: Path) -> Iterator[MeasuredService]:
    report, log = at / "callbacks", at / "log"
    report.touch()
    command = [sys.executable, "-m", "tests.support.measured_loop", str(report), "serve", "--port", "0"]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*command, "--data-dir", str(at / "data")],
            cwd=ROOT,
            env={**plain_environment(), "PLANGATE_ALLOW_HOSTS": "127.0.0.1"},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        listens, key_in = (process.stdout.readline().strip() for _ in range(2))
        assert listens, log.read_text()[-2000:]
        key = Path(key_in.rsplit(" ", 1)[1]).read_text().strip()
        headers = {"authorization": f"Bearer {key}", "plangate-tenant": TENANT}
        with report.open() as reported:
            yield MeasuredService(listens.rsplit(" ", 1)[1], headers, reported, log)
    finally:
        process.terminate()
        process.wait(END_WITHIN_S)
        process.stdout.close()


class Probe(threading.Thread):
    """Asks for /healthz again and again until it is stopped."""

    def __init__(self, url: str) -> None:
        super().__init__(name="probe")
        self._at = urlsplit(url)
        self._stopping = threading.Event()
        self.statuses: Counter[int] = Counter()

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._at.hostname or "", self._at.port, timeout=30)
        with contextlib.closing(connection):
            while not self._stopping.wait(0.02):
                connection.request("GET", "/healthz")
                response = connection.getresponse()
                response.read()
                self.statuses[response.status] += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@dataclass
class World:
    """Things of the service that requests can name."""

    service: MeasuredService
    ids: dict[str, str] = field(default_factory=dict)
    samples: dict[str, Any] = field(default_factory=dict)

    def build(self) -> None:
        call = self.service.call
        runtime = call("POST", "/runtimes", SPEC)["id"]
        query = self._submit("look")
        until = time.monotonic() + 30
        calls: list[dict[str, Any]] = []
        while not calls:
            assert time.monotonic() < until, "no call to claim"
            body = {"tools": [{"name": "look"}], "leaseMs": 300_000}
            calls = call("POST", "/tool-calls/claim", body)["calls"]
        thread = call("GET", f"/queries/{query}")["threadId"]
        approval = call("GET", f"/queries/{self._submit('spend')}?waitMs=0")["id"]
        while not (waiting := call("GET", f"/queries/{approval}"))["openApprovals"]:
            assert time.monotonic() < until, "no approval"
        plan = call("POST", "/plans", {"specName": "Payments", "body": PLAN})["id"]
        (claimed,) = calls
        self.ids = {
            "runtime_id": runtime,
            "query_id": query,
            "thread_id": thread,
            "approval_id": waiting["openApprovals"][0],
            "plan_id": plan,
            "work_id": claimed["workId"],
            "index": "0",
            "name": "hostile",
            "runtime": "default",
            "resource": TENANT,
            "id": "knowledge:hostile",
            "artifact_id": "art_00000000000000000000000000",
            "path": "hostile",
        }
        self.samples = {
            **SPEC,
            "prompt": '{"script": []}',
            "limits": {"maxTurns": 1},
            "decision": "revise",
            "decisions": [{"id": self.ids["approval_id"], "decision": "reject"}],
            "specName": "Payments",
            "body": PLAN,
            "outcome": "failed",
            "kind": "Anything",
            "value": 0,
            "claimToken": claimed["claimToken"],
            "workId": claimed["workId"],
            "threadId": thread,
            "channel": "design",
            "path": "†state.x",
            "url": "http://127.0.0.1:9/mcp",
        }

    def _submit(self, tool: str) -> str:
        script = {"script": [{"tool": tool, "args": {}}]}
        body = {"agent": "worker", "prompt": json.dumps(script)}
        query: str = self.service.call("POST", "/queries", body)["id"]
        return query

    def target(self, path: str) -> str:
        return re.sub(r"{(\w+)}", lambda found: quote(self.ids[found[1]]), path)


def chosen(document: Any, samples: Any) -> Iterator[Hostile]:
    """The requests of this run. Specs above `LARGE_SPEC_BYTES` are checked in a process that takes a second to start, so
    fewer of them are sent."""
    optional = {"agent": "worker"}
    whole = Generator(document, samples, FULL_BYTES, optional)
    small = Generator(document, samples, LARGE_SPEC_BYTES - 4_000 if ALL else QUICK_SPEC_BYTES, optional)
    choose = iter if ALL else _one_shape_each
    yield from choose(whole.requests(but_not=SPECS))
    yield from choose(small.requests(only=SPECS[1:]))
    yield from islice(_one_shape_each(whole.requests(only=SPECS[:1])), None if ALL else 3)


def _one_shape_each(requests: Iterator[Hostile]) -> Iterator[Hostile]:
    """Of each place one shape, another than of the place before."""
    for number, (_, found) in enumerate(groupby(requests, key=lambda h: (h.operation, h.place))):
        shapes = list(found)
        yield shapes[number % len(shapes)]


@pytest.mark.long
@pytest.mark.timeout(3600 if ALL else 300)
def test_no_request_blocks_the_loop() -> None:
    with folder() as at, measured_service(at) as service:
        world = World(service)
        world.build()
        document = httpx.get(f"{service.url}/openapi.json").json()
        startup = service.callbacks()
        probe = Probe(service.url)
        probe.start()
        try:
            sent, slow, wrong = _send_all(world, document)
        finally:
            probe.stop()
        assert "internal_error" not in service.log()
    print(f"{sent} requests, {probe.statuses.total()} probes; the slowest callbacks: {slow[:5]}")
    assert not wrong
    assert max((ms for ms, _ in startup), default=0) < MAX_CALLBACK_MS, startup
    assert not slow or slow[0][0] < MAX_CALLBACK_MS
    assert set(probe.statuses) == {200}
    assert sent > 200


def _send_all(world: World, document: Any) -> tuple[int, list[tuple[float, str]], list[str]]:
    """How many were sent, the longest callbacks with their request, and answers that are not as documented."""
    service, sent = world.service, 0
    slow: list[tuple[float, str]] = []
    wrong: list[str] = []
    with httpx.Client(headers={**service.headers, "content-type": "application/json"}, timeout=60) as client:
        for hostile in chosen(document, world.samples):
            url = service.url + world.target(hostile.path)
            response = client.request(hostile.method.upper(), url, content=hostile.body)
            sent += 1
            what = f"{hostile.operation} {hostile.place} ({hostile.shape}): {response.status_code}"
            listed = document["paths"][hostile.path][hostile.method]["responses"]
            if str(response.status_code) not in listed or response.status_code >= 500:
                wrong.append(f"{what} {response.text[:200]}")
            if response.status_code in (400, 413, 422) and len(response.content) > MAX_PROBLEM_BYTES:
                wrong.append(f"{what} has {len(response.content)} bytes")
            slow += [(ms, f"{what}: {places}") for ms, places in service.callbacks()]
    return sent, sorted(slow, reverse=True), wrong


@pytest.mark.parametrize("size", [2_000, pytest.param(20_000, marks=pytest.mark.long)])
def test_hostile_bodies_are_json_of_their_size(size: int) -> None:
    document = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    operations: Counter[str] = Counter()
    for hostile in Generator(document, SPEC, size).requests():
        operations[hostile.operation] += 1
        assert len(hostile.body) <= size + 4_000
        json.loads(hostile.body)
    assert len(operations) > 20


def test_a_long_callback_is_reported() -> None:
    """Else the test above would prove nothing."""

    def occupy() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    async def occupy_once() -> None:
        asyncio.get_running_loop().call_soon(occupy)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    report = io.StringIO()
    with measured_callbacks() as callbacks:
        callbacks.longest = Report(report)
        asyncio.run(occupy_once())
    ((cpu_s, _),) = map(json.loads, report.getvalue().splitlines())
    assert cpu_s >= 0.05
