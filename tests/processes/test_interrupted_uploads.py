"""A service that stops during uploads and downloads."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.service import Service, folder, serving

SIZE = 64 * 1024 * 1024


@pytest.fixture
def at() -> Iterator[Path]:
    with folder() as made:
        yield made


def opened(service: Service, head: str) -> socket.socket:
    """A connection on which a request has begun."""
    url = httpx.URL(service.url)
    assert url.port is not None
    made = socket.create_connection((url.host, url.port), timeout=30)
    method, path, *more = head.split(" ")
    lines = [f"{method} {path} HTTP/1.1", "Host: plangate", f"Authorization: Bearer {service.key}"]
    made.sendall("\r\n".join([*lines, "Plangate-Tenant: acme", *more, "", ""]).encode())
    return made


def received(connection: socket.socket) -> bytes:
    got = b""
    while piece := connection.recv(1024 * 1024):
        got += piece
    connection.close()
    return got


@pytest.mark.long
def test_slow_clients_get_an_error_and_no_defect_is_logged(at: Path) -> None:
    with serving(at) as service:
        headers = {"authorization": f"Bearer {service.key}", "plangate-tenant": "acme"}
        with httpx.Client(base_url=service.url, headers=headers, timeout=60) as http:
            thread = http.post("/threads", json={}).json()["id"]
            files = f"/threads/{thread}/files"
            assert http.put(f"{files}/large", content=b"x" * SIZE).status_code == 201
        slow = [
            opened(service, "POST /queries Content-Type:application/json Content-Length:100"),
            opened(service, f"PUT {files}/a Content-Length:100"),
            opened(service, f"PUT /artifacts/design/a?threadId={thread} Content-Length:100"),
        ]
        for connection in slow:
            connection.sendall(b"{")
        reader = opened(service, f"GET {files}/large")
        assert reader.recv(15) == b"HTTP/1.1 200 OK"
        incoming = at / "data" / "blobs" / "incoming"
        while len(list(incoming.iterdir())) < 2:  # both uploads have begun, and what came before them
            time.sleep(0.01)
        os.kill(service.pid, signal.SIGTERM)
        for connection in slow:
            head, _, body = received(connection).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"content-type: application/problem+json" in head
            assert b"The service is shutting down" in body
        assert len(received(reader)) < SIZE
    assert list(incoming.iterdir()) == []
    assert '"trace"' not in (at / "log").read_text()
