"""Clients that open a stream of events and stop reading."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import machine
from tests.processes.acceptance.house import House, eventually
from tests.storm.figures import Figures
from tests.storm.house import Probe, deadly_model, house_with
from tests.storm.one_request import metric

READER_BYTES = 256 * 1024
GONE_S = 60.0
SPEC = {
    "name": "long-story",
    "tenant": {"resourceId": "local", "version": "1"},
    "agents": [{"name": "helper", "role": "specialist", "model": {"id": "m", "provider": "mock"}}],
    "mockResponse": "".join(f"word {n:07d} of a long story; " for n in range(30_000)),
    "providers": {"mock": {"tokens": 300}},
}


@dataclass(frozen=True, slots=True)
class Size:
    readers: int
    stalled_reader_s: float


FULL = Size(readers=60, stalled_reader_s=30)
SMALL = Size(readers=10, stalled_reader_s=1)


def run(figures: Figures, size: Size = FULL) -> None:
    with (
        deadly_model(0.1) as model,
        house_with(model, stalled_reader_s=size.stalled_reader_s) as house,
        ExitStack() as stack,
    ):
        query = house.submit(house.register(SPEC), "tell")
        eventually(lambda: house.get(f"/queries/{query}")["endedAt"], "the story is told")
        assert house.service is not None
        memory = machine.rss_mb(house.service.pid)
        readers = [stack.enter_context(open_stream(house, query)) for _ in range(size.readers)]
        stopped, most = time.monotonic(), 0.0
        with Probe(house.url) as probe:
            while held := open_at_service(house, readers):
                most = max(most, metric(house, "plangate_connections_bytes_in_flight") / held)
                if time.monotonic() - stopped > GONE_S + 30:
                    break
                time.sleep(0.5)
            took = time.monotonic() - stopped
        figures.at_most("the last socket closed after", None if held else took, GONE_S, "s")
        figures.exactly("sockets still open", held, 0)
        figures.at_most("bytes held for a reader", most, READER_BYTES, "bytes")
        grown = max(machine.rss_mb(house.service.pid) - memory, 0) * 1024 / size.readers
        figures.publish("memory that the process grew by, per reader", grown, "KiB")
        dropped = metric(house, "plangate_readers_dropped_total")
        figures.exactly("readers dropped", int(dropped), size.readers)
        figures.exactly("probes that failed", probe.failed, 0)
        figures.publish("slowest /healthz beside them", probe.slowest_s * 1000, "ms")


def open_stream(house: House, query: str) -> socket.socket:
    """Request a stream, read its first bytes, and read no more."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", house.port))
    head = [f"GET /queries/{query}/stream HTTP/1.1", "Host: localhost", f"Authorization: Bearer {house.key}"]
    client.sendall("\r\n".join([*head, "", ""]).encode())
    client.settimeout(30)
    begun = client.recv(512)
    assert begun.startswith(b"HTTP/1.1 200"), begun
    return client


def open_at_service(house: House, clients: Sequence[socket.socket]) -> int:
    """Return how many of the connections the service still has a socket for."""
    assert house.service is not None
    ports = {client.getsockname()[1] for client in clients}
    inodes = set()
    for fd in Path("/proc", str(house.service.pid), "fd").iterdir():
        try:
            inodes.add(os.readlink(fd))
        except OSError:
            continue
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        _port(row[1]) == house.port and _port(row[2]) in ports and f"socket:[{row[9]}]" in inodes
        for row in rows
    )


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
