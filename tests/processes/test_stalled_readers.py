"""Readers that stop reading: how much they hold, and for how long."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import specs
from tests.support.client import eventually
from tests.support.service import Service, folder, serving

pytestmark = pytest.mark.long

READERS = 20
STALLED_S = 3
BOUND = 256 * 1024
LISTEN, TIME_WAIT = "0A", "06"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with folder() as at, serving(at, {"PLANGATE_STALLED_READER_S": str(STALLED_S)}) as running:
        yield running


def client_of(service: Service) -> httpx.Client:
    headers = {"authorization": f"Bearer {service.key}", "plangate-tenant": "acme"}
    return httpx.Client(base_url=service.url, headers=headers, timeout=20, trust_env=False)


def long_history(client: httpx.Client) -> str:
    """A finished query whose journal has about 2 MB; gives its id."""
    client.post("/runtimes", json=specs.mock("x" * 900_000)).raise_for_status()
    query = client.post("/queries", json={"prompt": "hi"}).raise_for_status().json()["id"]
    assert client.get(f"/queries/{query}", params={"waitMs": 15_000}).json()["status"] == "succeeded"
    return str(query)


def large_file(client: httpx.Client) -> str:
    client.post("/runtimes", json=specs.mock()).raise_for_status()
    thread = client.post("/queries", json={"prompt": "hi"}).raise_for_status().json()["threadId"]
    path = f"/threads/{thread}/files/large.bin"
    client.put(path, content=bytes(2_000_000)).raise_for_status()
    return path


def stalled_reader(service: Service, path: str, accept: str) -> socket.socket:
    """A client that asks and reads nothing."""
    at = urlsplit(service.url)
    assert at.hostname and at.port
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect((at.hostname, at.port))
    lines = (
        f"GET {path} HTTP/1.1",
        "host: plangate",
        f"authorization: Bearer {service.key}",
        "plangate-tenant: acme",
        f"accept: {accept}",
    )
    reader.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    return reader


def sockets_of(service: Service, readers: list[socket.socket]) -> dict[int, int]:
    """The service's sockets to these readers, by the reader's port: how many bytes the kernel holds to be sent."""
    ports = {r.getsockname()[1] for r in readers}
    found = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, queues, *_ = line.split()
        port = int(remote.partition(":")[2], 16)
        of_service = int(local.partition(":")[2], 16) == urlsplit(service.url).port
        if of_service and port in ports and state not in (LISTEN, TIME_WAIT):
            found[port] = int(queues.partition(":")[0], 16)
    return found


def metrics(client: httpx.Client) -> dict[str, float]:
    text = client.get("/metrics").raise_for_status().text
    return {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}


@pytest.mark.parametrize("kind", ["stream", "download"])
async def test_readers_that_stall_hold_little_and_are_dropped(service: Service, kind: str) -> None:
    with client_of(service) as client, contextlib.ExitStack() as open_readers:
        if kind == "stream":
            path, accept = f"/queries/{long_history(client)}/stream", "text/event-stream"
        else:
            path, accept = large_file(client), "*/*"
        dropped = metrics(client).get("plangate_readers_dropped_total", 0)
        began = time.monotonic()
        readers = [stalled_reader(service, path, accept) for _ in range(READERS)]
        for reader in readers:
            open_readers.callback(reader.close)
        held, connections = [0.0], [READERS * 1.0]

        async def all_dropped() -> bool:
            found = metrics(client)
            held.append(found["plangate_connections_bytes_in_flight"])
            if held[-1] > READERS * 20_000:
                connections.append(found["plangate_pool_connections_busy"])
            return found.get("plangate_readers_dropped_total", 0) - dropped >= READERS

        await eventually(all_dropped, "all readers are dropped", patience_s=STALLED_S * 4)
        assert time.monotonic() - began < STALLED_S * 2
        assert READERS * 20_000 < max(held) <= READERS * BOUND
        assert min(connections) == 0, "none is held by a reader"
        assert sockets_of(service, readers) == {}
        assert metrics(client)["plangate_streams"] == 0
        for reader in readers:
            with pytest.raises(ConnectionResetError):
                while reader.recv(65536):
                    pass
