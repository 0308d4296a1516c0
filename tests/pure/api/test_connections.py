"""HTTP connections of clients that stop reading."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.connections import ConnectionLimits, Connections, SlicedBodies, bound_send_buffer
from app.base.metrics import Metrics
from tests.support.client import eventually

LIMITS = ConnectionLimits(stalled_s=0.6)
BODY = b"x" * 4_000_000


async def large_body(scope: Scope, _receive: Receive, send: Send) -> None:
    length = [(b"content-length", str(len(BODY)).encode())] if scope["path"] == "/sized" else []
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": BODY})


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, limits: ConnectionLimits = LIMITS) -> AsyncIterator[tuple[str, Connections]]:
    """A server with these limits; gives the path of its port."""
    connections = Connections(limits, Metrics())
    listening = socket.socket()
    bound_send_buffer(listening, limits)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    config = uvicorn.Config(
        SlicedBodies(app, limits.slice_bytes),
        http=connections.protocol,  # type: ignore[arg-type]
        log_config=None,
        access_log=False,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment]
    task = asyncio.create_task(server.serve([listening]))
    try:
        yield listening.getsockname(), connections
    finally:
        server.should_exit = True
        await task


async def request(address: tuple[str, int], path: str, receive_buffer: int) -> socket.socket:
    """A client that sent a request and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, address)
    await loop.sock_sendall(client, f"GET {path} HTTP/1.1\r\nhost: test\r\n\r\n".encode())
    return client


async def read_all(client: socket.socket) -> bytes:
    received = bytearray()
    while chunk := await asyncio.get_running_loop().sock_recv(client, 65536):
        received += chunk
    return bytes(received)


@pytest.mark.parametrize("path", ["/chunked", "/sized"])
async def test_a_stalled_reader_is_dropped(path: str) -> None:
    async with serving(large_body) as (address, connections):
        client = await request(address, path, 4096)
        held = [0]

        async def dropped() -> bool:
            held.append(connections.bytes_in_flight())
            return max(held) > 0 and not connections.writing

        await eventually(dropped, "the reader is dropped")
        assert max(held) <= LIMITS.reader_bytes
        with pytest.raises(ConnectionResetError):  # what the socket held was discarded too
            await read_all(client)
        assert connections.metrics.readers_dropped.labels("stalled")._value.get() == 1
        client.close()


@pytest.mark.parametrize("size", [50_000, 400_000])  # within the send buffer, and beyond
async def test_a_reader_stalled_at_the_end_is_dropped(size: int) -> None:
    """The application is done, and the connection closes: what is left waits in the buffers."""

    async def small_body(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", str(size).encode()), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(size)})

    async with serving(small_body) as (address, connections):
        client = await request(address, "/", 2048)
        both = (address[1], client.getsockname()[1])
        await eventually(lambda: asyncio.sleep(0, _is_connected(*both)), "the request was received")
        await eventually(lambda: asyncio.sleep(0, not _is_connected(*both)), "the socket is gone")
        assert connections.writing == set()
        client.close()


def _is_connected(server: int, client: int) -> bool:
    """Return whether the kernel has a socket at the server's port whose peer has the client's."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any(
        (int(local.partition(":")[2], 16), int(remote.partition(":")[2], 16)) == (server, client)
        and state != "06"
        for _, local, remote, state, *_ in rows
    )


async def test_a_slow_reader_receives_everything() -> None:
    async with serving(large_body) as (address, connections):
        client = await request(address, "/sized", 65536)
        loop = asyncio.get_running_loop()
        received = 0
        async with asyncio.timeout(15):
            for _ in range(10):
                received += len(await loop.sock_recv(client, 100_000))
                await asyncio.sleep(LIMITS.stalled_s / 4)
            while received < len(BODY):
                received += len(await loop.sock_recv(client, 100_000))
        assert connections.metrics.readers_dropped.labels("stalled")._value.get() == 0
        client.close()


async def test_a_client_that_read_everything_may_be_idle() -> None:
    async with serving(large_body) as (address, connections):
        client = await request(address, "/sized", 65536)
        loop = asyncio.get_running_loop()
        received = 0
        while received < len(BODY):
            received += len(await loop.sock_recv(client, 1_000_000))
        await eventually(lambda: asyncio.sleep(0, not connections.writing), "nothing is in flight")
        await asyncio.sleep(LIMITS.stalled_s)
        await loop.sock_sendall(client, b"GET /sized HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
        assert (await read_all(client)).startswith(b"HTTP/1.1 200")
        client.close()
