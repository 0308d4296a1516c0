"""More silent connections than the service has file descriptors."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass

import httpx

from app.api.open_files import raise_open_files
from tests.storm.figures import Figures
from tests.support import specs
from tests.support.service import folder, serving

REQUESTS = 50


@dataclass(frozen=True, slots=True)
class Size:
    """`soft` and `hard` are the limits on open files that the service starts with."""

    sockets: int
    soft: int
    hard: int


FULL = Size(sockets=1_100, soft=1024, hard=1024)
SMALL = Size(sockets=300, soft=128, hard=256)


def run(figures: Figures, size: Size = FULL) -> None:
    raise_open_files()  # of this process
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > size.sockets + 100
    with folder() as at, serving(at, open_files=(size.soft, size.hard)) as service, ExitStack() as stack:
        port = int(service.url.rpartition(":")[2])
        for _ in range(size.sockets):
            client = stack.enter_context(socket.socket())
            client.connect(("127.0.0.1", port))
        slowest, answered = 0.0, 0
        for _ in range(REQUESTS):
            began = time.monotonic()
            answered += httpx.get(f"{service.url}/healthz", timeout=30).status_code == 200
            slowest = max(slowest, time.monotonic() - began)
        figures.exactly("requests on new connections that were answered", answered, REQUESTS)
        figures.at_most("the slowest of them", slowest, 5, "s")
        headers = {"Authorization": f"Bearer {service.key}"}
        with httpx.Client(base_url=service.url, headers=headers, timeout=60) as http:
            runtime = http.post("/runtimes", json=specs.mock(tenant="local")).json()["id"]
            query = http.post("/queries", json={"runtimeId": runtime, "prompt": "hello"}).json()["id"]
            ended = http.get(f"/queries/{query}?waitMs=20000").json()
        figures.exactly("a query beside them", ended["status"], "succeeded")
