"""HTTP/1.1 to servers: framing of responses, invalid ones, and which connections are used again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest

from app.base import http11
from app.base.egress_policy import EgressDenied
from tests.pure.base.test_network import PoolTransport, pool, serve

OK = b"HTTP/1.1 200 OK\r\n"
CLOSE = OK + b"Connection: close\r\n"
SWITCH = b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
CONTINUE_AND_CLOSE = b"HTTP/1.1 100 Continue\r\nConnection: close\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Script:
    """Answers each request with the same pieces, and remembers the requests by connection."""

    def __init__(self, pieces: Sequence[bytes], *, then_close: bool = False) -> None:
        self._pieces = pieces
        self._then_close = then_close
        self.connections: list[list[bytes]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests: list[bytes] = []
        self.connections.append(requests)
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(size[1])) if size else b""
            if b"chunked" in head:
                body = await reader.readuntil(b"0\r\n\r\n")
            requests.append(head + body)
            for piece in self._pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
            if self._then_close:
                writer.close()
                return


async def fetch_twice(script: Script) -> list[bytes]:
    async with serve(script) as port, pool() as client:
        bodies = []
        for _ in range(2):
            bodies.append((await client.get(f"http://127.0.0.1:{port}/")).content)
            await asyncio.sleep(0.05)
        return bodies


@pytest.mark.parametrize(
    "pieces",
    [
        [OK + b"Content-Length: 5\r\n\r\nhello"],
        [OK + b"Content-", b"Length: 5\r\n\r", b"\nhel", b"lo"],
        [CHUNKED + b"2\r\nhe\r\n3;part=2\r\nllo\r\n0\r\nX-Trailer: 1\r\n\r\n"],
        [CHUNKED, b"2\r\nh", b"e\r\n", b"3\r\nllo\r\n", b"0\r\n", b"\r\n"],
        [b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", OK + b"Content-Length: 5\r\n\r\nhello"],
        [b"HTTP/1.1 105 X\r\nContent-Length: 4\r\n\r\nevil", OK + b"Content-Length: 5\r\n\r\nhello"],
        [b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"],
    ],
)
async def test_a_complete_response_leaves_its_connection_open(pieces: list[bytes]) -> None:
    script = Script(pieces)
    assert await fetch_twice(script) == [b"hello", b"hello"]
    assert [len(requests) for requests in script.connections] == [2]


@pytest.mark.parametrize(
    "pieces",
    [
        [CLOSE + b"Content-Length: 5\r\n\r\nhello"],
        [b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"],
        [OK + b"Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"],
        [OK + b"Content-Length: 5\r\n\r\nhello", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"],
        [OK + b"Content-Length: 5\r\n\r\nhello and no response"],
        [OK + b"Content-Length: 5\r\n\r\nhelloHTTP/1.1 000 X\r\n\r\n"],
        [OK + b"Content-Length: 5\r\n\r\nhello" + SWITCH],
        [CLOSE + b"Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"],
        [CLOSE + b"Content-Length: 5\r\n\r\nhello" + SWITCH],
        [CLOSE + b"Content-Length: 5\r\n\r\nhello and no response"],
        [CLOSE + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n5\r\nagain\r\n0\r\n\r\n"],
        [CONTINUE_AND_CLOSE + OK + b"Content-Length: 5\r\n\r\nhello"],
        [CONTINUE_AND_CLOSE, OK + b"Content-Length: 5\r\n\r\nhello"],
        [CONTINUE_AND_CLOSE + CLOSE + b"Content-Length: 5\r\n\r\nhello"],
    ],
)
async def test_a_connection_with_unrequested_bytes_or_a_close_is_not_used_again(pieces: list[bytes]) -> None:
    script = Script(pieces)
    assert await fetch_twice(script) == [b"hello", b"hello"]
    assert [len(requests) for requests in script.connections] == [1, 1]


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    script = Script([OK + b"\r\n", b"hel", b"lo"], then_close=True)
    assert await fetch_twice(script) == [b"hello", b"hello"]


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([], "Server disconnected without sending a response"),
        ([OK], "Server disconnected without sending a response"),
        ([OK + b"Content-Length: 5\r\n\r\nhel"], "without sending complete message body"),
        ([CHUNKED + b"5\r\nhello\r\n"], "without sending complete message body"),
        ([CHUNKED + b"five\r\nhello\r\n"], "chunk size"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "HTTP"),
        ([OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"], "Content-Length"),
        ([SWITCH], "switched protocols"),
        ([b"HTTP/1.1 099 X\r\nContent-Length: 4\r\n\r\nevil" + OK + b"\r\nhello"], "status 099 is not valid"),
        ([b"HTTP/1.1 000 X\r\n\r\n", OK + b"\r\nhello"], "status 000 is not valid"),
        ([CHUNKED + b"0\r\nX: " + b"x" * http11.MAX_FRAMING_BYTES * 2], "without a body"),
    ],
)
async def test_an_incomplete_or_invalid_response_is_an_error(pieces: list[bytes], error: str) -> None:
    async with serve(Script(pieces, then_close=True)) as port, pool() as client:
        with pytest.raises(httpx2.RemoteProtocolError, match=error):
            try:
                raise LookupError("of the caller, who retries while handling it")
            except LookupError:
                await client.get(f"http://127.0.0.1:{port}/")


async def test_extensions_of_chunks_are_bounded_over_the_whole_response() -> None:
    chunk = b"1;" + b"x" * 30_000 + b"\r\na\r\n"
    async with serve(Script([CHUNKED, chunk * 20, b"0\r\n\r\n"])) as port, pool() as client:
        with pytest.raises(httpx2.RemoteProtocolError, match="without a body"):
            await client.get(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("size", [b"1", b"%016x" % 1])
async def test_any_number_of_small_chunks_is_read(size: bytes) -> None:
    count = 2 * http11.MAX_FRAMING_BYTES // len(size + b"\r\n\r\n")
    body = CHUNKED + (size + b"\r\na\r\n") * count + b"0\r\n\r\n"
    async with serve(Script([body])) as port, pool() as client:
        assert (await client.get(f"http://127.0.0.1:{port}/")).content == b"a" * count


async def test_the_head_of_a_response_is_bounded_with_its_interim_responses() -> None:
    interim = b"HTTP/1.1 100 Continue\r\nX: " + b"x" * 10_000 + b"\r\n\r\n"
    async with serve(Script([interim * 30])) as port, pool() as client:
        with pytest.raises(EgressDenied, match=f"more than {http11.MAX_HEAD_BYTES} bytes of headers"):
            await client.get(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_responses_without_a_body_do_not_wait_for_one(method: str) -> None:
    status = b"HTTP/1.1 204 No Content\r\n\r\n" if method == "GET" else OK + b"Content-Length: 5\r\n\r\n"
    async with serve(Script([status])) as port, pool() as client:
        response = await client.request(method, f"http://127.0.0.1:{port}/")
    assert response.content == b""


async def test_bodies_of_requests_are_sent_whole_or_in_chunks() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"hel"
        yield b""
        yield b"lo"

    script = Script([OK + b"Content-Length: 0\r\n\r\n"])
    async with serve(script) as port, pool() as client:
        await client.post(f"http://127.0.0.1:{port}/a?b=c%20d", content=b"hello", headers={"x-one": "1"})
        await client.post(f"http://127.0.0.1:{port}/", content=parts())
    ((whole, chunks),) = script.connections
    assert whole.startswith(b"POST /a?b=c%20d HTTP/1.1\r\n")
    assert b"\r\nx-one: 1\r\n" in whole
    assert whole.endswith(b"\r\n\r\nhello")
    assert chunks.endswith(b"\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n")


@pytest.mark.parametrize("value", [b"a\r\nx-evil: 1", b"a\nb", b"a\0b", b" a", b"a\x7f"])
async def test_an_invalid_header_is_not_sent(value: bytes) -> None:
    script = Script([OK + b"Content-Length: 0\r\n\r\n"])
    async with serve(script) as port, pool() as client:
        with pytest.raises(httpx2.LocalProtocolError, match="x-key"):
            await client.get(f"http://127.0.0.1:{port}/", headers=[(b"x-key", value)])
    assert not any(script.connections)


async def test_an_answer_before_the_request_was_sent_is_read() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        await writer.drain()
        await reader.read()

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 1000
            await asyncio.sleep(0.01)

    async with serve(handler) as port, pool() as client:
        response = await client.post(f"http://127.0.0.1:{port}/", content=endless())
    assert (response.status_code, response.content) == (413, b"big")


async def test_idle_connections_are_limited_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([OK + b"Content-Length: 5\r\n\r\nhello"])
    async with serve(script) as port, pool(keepalive=2) as client:
        url = f"http://127.0.0.1:{port}/"
        transport = client._transport
        assert isinstance(transport, PoolTransport)
        await asyncio.gather(*(client.get(url) for _ in range(5)))
        assert (len(script.connections), len(transport.pool._idle)) == (5, 2)
        await asyncio.gather(*(client.get(url) for _ in range(2)))
        assert len(script.connections) == 5
        monkeypatch.setattr(http11, "KEEPALIVE_S", 0.0)
        for _ in range(3):
            await client.get(url)
        assert len(script.connections) == 6
        await transport.pool.aclose()
        assert not transport.pool._idle


async def test_a_response_that_is_not_read_to_its_end_closes_its_connection() -> None:
    script = Script([OK + b"Content-Length: 100000\r\n\r\nhello"])
    async with serve(script) as port, pool() as client:
        for _ in range(2):
            async with client.stream("GET", f"http://127.0.0.1:{port}/") as response:
                assert await anext(response.aiter_raw()) == b"hello"
    assert len(script.connections) == 2
