"""Connections that are silent, too slow, too large, or too many."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import resource
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import uvicorn
from pydantic import ValidationError

from app.api.admission import MAX_WAITING, Admission, AdmissionBounds, bounded_peer, parse_networks
from app.api.connections import ConnectionLimits, Connections
from app.api.open_files import backlog, connection_bound, reserved_files
from app.api.serving import admission_bounds
from app.base.metrics import Metrics
from app.settings import Settings

BOUNDS = AdmissionBounds(100, head_timeout_s=0.3, body_timeout_s=0.3, body_min_bytes_per_s=1000)
GET = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n"
END_WITHIN_S = 20


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@dataclass
class App:
    """Answers with the length of the body, when it may."""

    may_read: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    early: int | None = None
    seen: list[str] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        self.begun.set()
        await self.may_read.wait()
        size, more, status = 0, True, self.early or 200
        while more and self.early is None:
            message = await receive()
            self.seen.append(message["type"])
            if message["type"] == "http.disconnect":
                return
            size, more = size + len(message["body"]), message["more_body"]
        await self.may_answer.wait()
        body = str(size).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass
class Deployment:
    port: int
    app: App
    admission: Admission
    metrics: Metrics

    def closed(self, reason: str) -> float:
        return (
            self.metrics.registry.get_sample_value("plangate_connections_closed_total", {"reason": reason})
            or 0
        )

    def refused(self, reason: str) -> float:
        return (
            self.metrics.registry.get_sample_value("plangate_connections_rejected_total", {"reason": reason})
            or 0
        )

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def pass_time(self, seconds: float) -> None:
        """Wait until deadlines have seen this time pass."""
        until = self.admission.now + seconds
        while self.admission.now < until:  # noqa: ASYNC110 - this clock has no event
            await asyncio.sleep(self.admission.bounds.tick_s / 4)


@contextlib.asynccontextmanager
async def served(
    bounds: AdmissionBounds = BOUNDS, *, reads: bool = True, answers: bool = True
) -> AsyncIterator[Deployment]:
    app, metrics = App(), Metrics()
    if reads:
        app.may_read.set()
    if answers:
        app.may_answer.set()
    connections = Connections(ConnectionLimits(), metrics, bounds)
    listening = socket.create_server(("127.0.0.1", 0))
    server = _Server(connections.configure(app, lifespan="off"))
    running = asyncio.create_task(server.serve([listening]))
    try:
        async with asyncio.timeout(END_WITHIN_S):
            yield Deployment(listening.getsockname()[1], app, connections.admission, metrics)
    finally:
        app.may_read.set()
        app.may_answer.set()
        server.should_exit = server.force_exit = True
        await running
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def problem(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    """The problem document that ends a connection."""
    status, headers, body = await response(reader)
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    assert await reader.read() == b""
    told = json.loads(body)
    assert told["status"] == status
    return status, told


# -- heads ---------------------------------------------------------------------------------------------------------


async def test_a_silent_socket_is_closed_without_a_response() -> None:
    async with served() as site, site.connect() as (reader, _):
        assert await reader.read() == b""
        assert site.closed("head_timeout") == 1


async def test_a_slow_request_head_times_out() -> None:
    async with served() as site, site.connect() as (reader, writer):
        answered = asyncio.create_task(problem(reader))
        with contextlib.suppress(ConnectionError):
            for byte in b"GET / HTTP/1.1\r\nx: " + b"y" * 10_000:
                if answered.done():
                    break
                writer.write(bytes([byte]))
                await asyncio.sleep(0.01)
        status, told = await answered
        assert (status, told["type"]) == (408, "request_timeout")
        assert "0.3 s" in told["detail"]


async def test_blank_lines_between_requests_do_not_keep_a_connection() -> None:
    async with served() as site, site.connect() as (reader, writer):
        writer.write(GET)
        assert (await response(reader))[0] == 200
        closed = asyncio.create_task(reader.read())
        while not closed.done():
            with contextlib.suppress(ConnectionError):
                writer.write(b"\r\n")
                await writer.drain()
            await asyncio.sleep(0.02)
        assert site.closed("head_timeout") == 1


async def test_an_idle_connection_outlives_the_time_of_a_head() -> None:
    async with served() as site, site.connect() as (reader, writer), site.connect() as _:
        for _ in range(3):
            writer.write(GET)
            assert (await response(reader))[0] == 200
            await asyncio.sleep(BOUNDS.head_timeout_s * 1.5)


async def test_a_long_response_has_no_deadline() -> None:
    async with (
        served(answers=False) as site,
        site.connect() as (reader, writer),
        site.connect() as (other, _),
    ):
        writer.write(GET)
        await site.app.begun.wait()
        await other.read()  # the deadline of a head has passed
        site.app.may_answer.set()
        assert (await response(reader))[0] == 200


@pytest.mark.parametrize("pieces", [1, 10])
async def test_a_large_request_head_is_rejected(pieces: int) -> None:
    async with served() as site, site.connect() as (reader, writer):
        head = b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000 + b"\r\n\r\n"
        step = len(head) // pieces + 1
        answered = asyncio.create_task(problem(reader))
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(head), step):
                writer.write(head[at : at + step])
                await writer.drain()
        status, told = await answered
        assert (status, told["type"]) == (431, "too_large")
        assert "65536" in told["detail"]
        assert not site.app.begun.is_set()


async def test_many_small_requests_in_one_packet_are_answered() -> None:
    async with served() as site, site.connect() as (reader, writer):
        writer.write(GET * 3000)
        for _ in range(3000):
            assert (await response(reader))[0] == 200


async def test_bytes_that_are_not_http_get_a_problem() -> None:
    async with served() as site, site.connect() as (reader, writer):
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        assert (await problem(reader))[0] == 400


# -- bodies --------------------------------------------------------------------------------------------------------


async def test_a_slow_body_is_ended_and_the_application_is_notified() -> None:
    async with served() as site, site.connect() as (reader, writer):
        writer.write(POST % 1_000_000)
        answered = asyncio.create_task(problem(reader))
        while not answered.done():
            with contextlib.suppress(ConnectionError):
                writer.write(b"x")
                await writer.drain()
            await asyncio.sleep(0.05)
        status, told = await answered
        assert status == 408
        assert "1000 bytes a second" in told["detail"]
        assert site.app.seen[-1] == "http.disconnect"
        assert site.closed("body_timeout") == 1


async def test_a_body_at_the_minimum_rate_has_no_deadline() -> None:
    async with served() as site, site.connect() as (reader, writer):
        until = site.admission.now + 4 * BOUNDS.body_timeout_s
        writer.write(b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n")
        sent = 0
        while site.admission.now < until:
            writer.write(b"100\r\n" + b"x" * 256 + b"\r\n")
            sent += 256
            await asyncio.sleep(0.02)
        writer.write(b"0\r\n\r\n")
        status, _, body = await response(reader)
        assert (status, int(body)) == (200, sent)


async def test_time_while_the_service_does_not_read_does_not_count() -> None:
    async with served(reads=False) as site, site.connect() as (reader, writer):
        body = b"x" * 5_000_000
        writer.write(POST % len(body) + body)
        await site.pass_time(3 * BOUNDS.body_timeout_s)
        site.app.may_read.set()
        status, _, size = await response(reader)
        assert (status, int(size)) == (200, len(body))


async def test_a_body_after_100_continue_has_time() -> None:
    async with served(reads=False) as site, site.connect() as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: here\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n")
        await site.app.begun.wait()
        await site.pass_time(3 * BOUNDS.body_timeout_s)
        site.app.may_read.set()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"abc")
        assert (await response(reader))[::2] == (200, b"3")


async def test_a_body_after_its_response_must_make_progress() -> None:
    async with served() as site, site.connect() as (reader, writer):
        site.app.early = 401
        writer.write(POST % 1_000_000)
        assert (await response(reader))[0] == 401
        assert await reader.read() == b""  # no second answer
        assert site.closed("body_timeout") == 1


async def test_a_connection_continues_after_a_late_body() -> None:
    async with served() as site, site.connect() as (reader, writer):
        site.app.early = 401
        writer.write(POST % 10)
        assert (await response(reader))[0] == 401
        writer.write(b"x" * 10 + GET[:5])
        await asyncio.sleep(0)
        writer.write(GET[5:])
        assert (await response(reader))[0] == 401


# -- how many ------------------------------------------------------------------------------------------------------


async def test_silent_sockets_are_replaced_by_requests() -> None:
    async with (
        served(replace(BOUNDS, connections=5, head_timeout_s=60)) as site,
        contextlib.AsyncExitStack() as stack,
    ):
        silent = [await stack.enter_async_context(site.connect()) for _ in range(40)]
        async with site.connect() as (reader, writer):
            writer.write(GET)
            assert (await response(reader))[0] == 200
        with contextlib.suppress(ConnectionError):
            assert await silent[0][0].read() == b""
        assert site.closed("evicted") >= 1


async def test_a_request_waits_for_a_free_connection() -> None:
    async with (
        served(replace(BOUNDS, connections=1), answers=False) as site,
        contextlib.AsyncExitStack() as stack,
    ):
        _, busy = await stack.enter_async_context(site.connect())
        busy.write(GET)
        await site.app.begun.wait()
        site.app.begun.clear()
        reader, writer = await stack.enter_async_context(site.connect())
        writer.write(POST % 100_000 + b"x" * 100_000)
        busy.close()
        await site.app.begun.wait()
        site.app.may_answer.set()
        assert (await response(reader))[::2] == (200, b"100000")
        assert site.refused("process") == 0


async def test_idle_connections_are_replaced_and_busy_ones_are_not() -> None:
    async with served(replace(BOUNDS, connections=2)) as site, contextlib.AsyncExitStack() as stack:
        idle_reader, idle_writer = await stack.enter_async_context(site.connect())
        idle_writer.write(GET)
        assert (await response(idle_reader))[0] == 200
        site.app.may_answer.clear()
        busy = [await stack.enter_async_context(site.connect()) for _ in range(2)]
        for _, writer in busy:
            site.app.begun.clear()
            writer.write(GET)
            await site.app.begun.wait()
        with contextlib.suppress(ConnectionError):
            assert await idle_reader.read() == b""
        reader, writer = await stack.enter_async_context(site.connect())
        writer.write(GET)
        status, told = await problem(reader)
        assert (status, told["type"]) == (503, "unavailable")
        assert site.refused("process") == 1
        site.app.may_answer.set()
        for reader, _ in busy:
            assert (await response(reader))[0] == 200


async def test_rejected_silent_connections_are_bounded_and_closed() -> None:
    async with (
        served(replace(BOUNDS, connections=1), answers=False) as site,
        contextlib.AsyncExitStack() as stack,
    ):
        _, writer = await stack.enter_async_context(site.connect())
        writer.write(GET)
        await site.app.begun.wait()
        silent = [await stack.enter_async_context(site.connect()) for _ in range(MAX_WAITING + 10)]
        for reader, _ in silent:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert site.refused("process") == len(silent)
        assert len(site.admission.waiting) == 0


class Peer:
    """What `Admission` needs of a connection."""

    counted = False
    peer = None
    loop = property(lambda _: asyncio.get_running_loop())

    def __init__(self, host: str) -> None:
        self.client = (host, 1)


async def test_a_peer_is_limited_to_its_share_of_connections() -> None:
    metrics = Metrics()
    trusted = parse_networks(["10.0.0.0/8"])
    connections = Admission(AdmissionBounds(100, per_peer=2, trusted=trusted), metrics)
    peers = [Peer("192.0.2.7") for _ in range(3)]
    assert [connections.admit(peer) for peer in peers] == [True, True, False]  # type: ignore[arg-type]
    assert connections.admit(Peer("192.0.2.8"))  # type: ignore[arg-type]
    assert all(connections.admit(Peer(host)) for host in ["127.0.0.1", "10.1.2.3"] * 3)  # type: ignore[arg-type]
    connections.release(peers[0])  # type: ignore[arg-type]
    assert connections.admit(peers[2])  # type: ignore[arg-type]
    assert metrics.registry.get_sample_value("plangate_connections") == 9


def test_a_peer_is_an_address_or_a_64_of_ipv6() -> None:
    trusted = parse_networks(["203.0.113.0/24", "2001:db8:ffff::/48"])
    counted = {
        "192.0.2.1": "192.0.2.1",
        "::ffff:192.0.2.1": "192.0.2.1",
        "2001:db8::1": "2001:db8::/64",
        "2001:db8::ffff:1": "2001:db8::/64",
        "fe80::1%eth0": "fe80::/64",
        "127.8.9.1": None,
        "::1": None,
        "::ffff:127.0.0.1": None,
        "203.0.113.9": None,
        "2001:db8:ffff::9": None,
    }
    assert {host: bounded_peer(host, trusted) for host in counted} == counted


def test_connections_leave_files_in_reserve() -> None:
    assert reserved_files(1024, model_streams=1024, pool_size=10) == 512
    assert connection_bound(1024, 512, None) == 512
    assert reserved_files(4096, model_streams=1024, pool_size=10) == 128 + 10 + 1024
    assert connection_bound(20_000, reserved_files(20_000, 1024, 10), None) > 10_000
    assert connection_bound(1_048_576, reserved_files(1_048_576, 1024, 10), None) == 20_000
    assert backlog(512) < 512
    with pytest.raises(
        SystemExit, match="PLANGATE_MAX_CONNECTIONS is 5000, but the limit on open files is 1024"
    ):
        connection_bound(1024, 512, 5000)


def test_connection_limits_come_from_settings() -> None:
    bounds = admission_bounds(Settings(max_connections=100, trusted_proxies=["10.0.0.0/8"]))
    assert (bounds.connections, bounds.per_peer) == (100, 50)
    assert bounds.trusted == parse_networks(["10.0.0.0/8"])
    assert admission_bounds(Settings(max_connections_per_peer=0)).per_peer == 0
    with pytest.raises(ValidationError, match="must be addresses or networks such as"):
        Settings(trusted_proxies=["balancer"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard


def test_networks_of_proxies_are_networks() -> None:
    assert parse_networks(["10.0.0.1"]) == (ipaddress.ip_network("10.0.0.1/32"),)
