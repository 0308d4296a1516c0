"""Outgoing connections: TLS, silence, slow readers and writers, resets, several addresses."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from app.base import network
from app.base.http11 import HttpConnectionPool
from app.base.network import open_connection

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> Any:
    """Run coroutines on each event loop; the service uses uvloop."""
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the certificate and the key of `localhost`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@asynccontextmanager
async def serve(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve while the block runs, then end every connection."""
    handlers: list[asyncio.Task[Any]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.append(task)
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            await handler(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers)
        await asyncio.sleep(0.01)  # transports close in the next turn of the loop


class PoolTransport(httpx2.AsyncBaseTransport):
    """A transport with nothing but a connection pool."""

    def __init__(self, tls: ssl.SSLContext | None = None, keepalive: int = 10) -> None:
        self.pool = HttpConnectionPool(open_connection, tls or ssl.create_default_context(), keepalive)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self.pool.send(request)

    async def aclose(self) -> None:
        await self.pool.aclose()


def pool(tls: ssl.SSLContext | None = None, keepalive: int = 10) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=PoolTransport(tls, keepalive), trust_env=False)


async def answer_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(HEAD % len(body) + body)
        await writer.drain()


def test_requests_share_a_tls_connection(runner: asyncio.Runner, certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    trusted = ssl.create_default_context(cafile=str(certificate))
    body = b"x" * 3_000_000
    accepted = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        await answer_each(reader, writer, body)

    async def scenario() -> None:
        async with serve(handler, tls) as port:
            async with pool(trusted) as client:
                for _ in range(2):
                    response = await client.request("GET", f"https://localhost:{port}/")
                    assert response.content == body
            async with pool() as client:
                with pytest.raises(httpx2.ConnectError) as failed:
                    await client.request("GET", f"https://localhost:{port}/")
        assert isinstance(failed.value.__context__, ssl.SSLCertVerificationError)

    runner.run(scenario())
    assert accepted == 1


def test_a_tls_handshake_has_a_timeout(runner: asyncio.Runner) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def scenario() -> None:
        async with serve(silent) as port:
            connection = await open_connection("127.0.0.1", port)
            with pytest.raises(httpx2.ConnectTimeout):
                await connection.start_tls(ssl.create_default_context(), "localhost", 0.1)

    runner.run(scenario())


def test_plain_data_before_tls_is_not_read_as_the_servers(runner: asyncio.Runner, certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    trusted = ssl.create_default_context(cafile=str(certificate))

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD % 6 + b"forged")
        await writer.start_tls(tls)
        await answer_each(reader, writer, b"real")

    async def scenario() -> None:
        async with serve(handler) as port:
            connection = await open_connection("127.0.0.1", port)
            if not connection._data:
                await connection._wait_for_data(None)
            with pytest.raises(httpx2.ConnectError, match="before the end of the TLS handshake"):
                await connection.start_tls(trusted, "localhost", 5)
            assert connection._transport.is_closing()

    runner.run(scenario())


def test_tls_does_not_begin_on_a_connection_that_ended(runner: asyncio.Runner) -> None:
    async def handler(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        pass  # the connection is closed

    async def scenario() -> None:
        async with serve(handler) as port:
            connection = await open_connection("127.0.0.1", port)
            if not connection._is_over:
                await connection._wait_for_data(None)
            with pytest.raises(httpx2.ConnectError, match="closed before TLS was in use"):
                await connection.start_tls(ssl.create_default_context(), "localhost", 5)

    runner.run(scenario())


@pytest.mark.parametrize("data", [b"forged", b""])
def test_what_arrives_during_the_tls_handshake_is_an_error(runner: asyncio.Runner, data: bytes) -> None:
    class Loop:
        async def start_tls(
            self, transport: object, protocol: asyncio.Protocol, *_args: object, **_more: object
        ) -> object:
            if data:
                protocol.data_received(data)
            else:
                protocol.eof_received()
            return transport

    async def handler(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def scenario() -> None:
        async with serve(handler) as port:
            connection = await open_connection("127.0.0.1", port)
            connection._loop = Loop()  # type: ignore[assignment]
            with pytest.raises(httpx2.ConnectError, match="TLS"):
                await connection.start_tls(ssl.create_default_context(), "localhost", 5)
            assert connection._transport.is_closing()

    runner.run(scenario())


def test_silence_ends_a_read_and_data_extends_it(runner: asyncio.Runner) -> None:
    async def handler(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(4):
            writer.write(b"x")
            await asyncio.sleep(0.2)
        await asyncio.sleep(60)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with serve(handler) as port:
            connection = await open_connection("127.0.0.1", port)
            began = loop.time()
            for _ in range(4):
                assert await connection.read(100, timeout=0.5) == b"x"
            with pytest.raises(httpx2.ReadTimeout):
                await connection.read(100, timeout=0.5)
            assert loop.time() - began >= 1.0  # 0.6 s until the last byte, then the whole timeout
            with pytest.raises(httpx2.ReadTimeout):
                await asyncio.wait_for(connection.read(100, timeout=0.05), 5)
            await connection.aclose()

    runner.run(scenario())


def test_a_slow_reader_holds_bounded_data(runner: asyncio.Runner) -> None:
    size = 32_000_000

    async def handler(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * size)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def scenario() -> None:
        async with serve(handler) as port:
            connection = await open_connection("127.0.0.1", port)
            await asyncio.sleep(0.5)
            assert len(connection._data) <= 2 * network.MAX_UNREAD_BYTES
            received = 0
            while data := await connection.read(65536, timeout=5):
                received += len(data)
            assert received == size
            await connection.aclose()

    runner.run(scenario())


def test_a_server_that_does_not_read_ends_a_write(runner: asyncio.Runner) -> None:
    async def handler(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async def scenario() -> None:
        async with serve(handler) as port:
            connection = await open_connection("127.0.0.1", port)
            with pytest.raises(httpx2.WriteTimeout):
                await connection.write(b"x" * 64_000_000, timeout=0.2)
            await connection.aclose()
            with pytest.raises(httpx2.WriteError):
                await connection.write(b"x", timeout=0.2)

    runner.run(scenario())


def test_a_reset_is_an_error_after_the_data_before_it(runner: asyncio.Runner) -> None:
    async def handler(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        await asyncio.sleep(0.2)
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def scenario() -> None:
        async with serve(handler) as port:
            connection = await open_connection("127.0.0.1", port)
            assert await connection.read(100, timeout=5) == b"x"
            with pytest.raises(httpx2.ReadError):
                await connection.read(100, timeout=5)
            await connection.aclose()

    runner.run(scenario())


def test_a_connection_that_its_server_closed_is_not_used_again(runner: asyncio.Runner) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD % 2 + b"ok")
        writer.close()
        await writer.wait_closed()

    async def scenario() -> None:
        async with serve(handler) as port, pool() as client:
            for _ in range(3):
                assert (await client.request("GET", f"http://127.0.0.1:{port}/")).content == b"ok"
                await asyncio.sleep(0.05)

    runner.run(scenario())


def test_the_next_address_is_tried(runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ["127.0.0.2", "127.0.0.1"]

    async def lookup(_host: str, _port: int) -> Sequence[str]:
        return addresses

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer_each(reader, writer, b"ok")

    monkeypatch.setattr(network, "_addresses", lookup)

    async def scenario() -> None:
        async with pool() as client:
            async with serve(handler) as port:
                assert (await client.request("GET", f"http://two.example:{port}/")).content == b"ok"
            with pytest.raises(httpx2.ConnectError) as failed:
                await client.request("GET", "http://two.example:1/")
            assert isinstance(failed.value.__context__, ConnectionRefusedError)

    runner.run(scenario())
