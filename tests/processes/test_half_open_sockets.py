"""Sockets that send nothing do not take down a process, on the port of the API or of a worker."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from app.api.open_files import raise_open_files
from tests.support.service import folder, serving, started
from tests.support.specs import spec

pytestmark = pytest.mark.long

HALF_OPEN = 1_100


@pytest.fixture(scope="module")
def at() -> Iterator[Path]:
    with folder() as made:
        yield made


def connect(stack: ExitStack, url: str, count: int) -> list[socket.socket]:
    address = urlsplit(url)
    assert address.hostname
    return [
        stack.enter_context(socket.create_connection((address.hostname, address.port or 0)))
        for _ in range(count)
    ]


def test_more_silent_sockets_than_open_files_leave_the_service_working(at: Path) -> None:
    assert raise_open_files() > HALF_OPEN + 100  # of this process
    with serving(at, open_files=(256, 1024)) as service, ExitStack() as stack:
        connect(stack, service.url, HALF_OPEN)
        http = stack.enter_context(
            httpx.Client(base_url=service.url, headers={"authorization": f"Bearer {service.key}"}, timeout=10)
        )
        assert len(list(Path(f"/proc/{service.pid}/fd").iterdir())) < 900
        for _ in range(20):
            assert httpx.get(service.url + "/healthz", timeout=10).status_code == 200
        runtime = http.post("/runtimes", json=spec(tenant="local")).json()
        query = http.post("/queries", json={"runtimeId": runtime["id"], "prompt": "hello"})
        assert query.status_code == 202, query.text
        metrics = http.get("/metrics").text
        assert "plangate_connections_max 512.0" in metrics
        closed = re.findall(r'_(?:closed|rejected)_total\{reason="(?:evicted|process)"\} (\d+)', metrics)
        assert sum(map(int, closed)) >= HALF_OPEN - 512


def test_the_port_of_a_worker_closes_silent_sockets(at: Path) -> None:
    settings = {"PLANGATE_WORKER_PORT": "0", "PLANGATE_HEAD_TIMEOUT_S": "0.5"}
    with started(at, settings, ["worker"]) as (_, lines), ExitStack() as stack:
        line = next(line for line in lines if line.startswith("Its numbers"))
        url = line.split()[-1]
        (silent,) = connect(stack, url, 1)
        silent.settimeout(20)
        assert silent.recv(1) == b""
        assert httpx.get(urlsplit(url)._replace(path="/healthz").geturl()).status_code == 200
