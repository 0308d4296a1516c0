"""HTTP/1.1 requests over outgoing connections, which are kept for later requests to the same server.

Responses are parsed by httptools, as the requests of our own clients are. Requests, responses and errors are httpx2's.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import httptools
import httpx2

from app.base.egress_policy import EgressDenied
from app.base.network import NetworkConnection

MAX_HEAD_BYTES: Final = 192 * 1024
"""Read before the body of a response begins, interim responses included."""

MAX_FRAMING_BYTES: Final = 128 * 1024
"""Limit on the bytes after the head of a response that carry no body: trailers and chunk extensions.

They are counted over the whole response, less CHUNK_FRAMING_BYTES for each chunk, so that a stream may have any number
of chunks."""

CHUNK_FRAMING_BYTES: Final = 24
"""Enough for the size of a chunk, which some servers pad to 16 digits, and its two ends of lines."""

READ_CHUNKS: Final = "read_chunks"
"""Response extension: a function that returns the body chunks received so far and bypasses httpx2's iterators."""

READ_BYTES: Final = 64 * 1024
KEEPALIVE_S: Final = 30.0

_TOKEN = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_FIELD_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(rb"[\x21-\x7e]+")

Origin = tuple[str, str, int]
"""The scheme, the host and the port of a server."""

Connect = Callable[[str, int, float | None], Awaitable[NetworkConnection]]
"""Opens a connection to a host and port within this many seconds. Raises ConnectTimeout, ConnectError or EgressDenied."""


class HttpConnectionPool:
    """Connections to any servers: at most `keepalive` idle ones, and any number that are in use."""

    def __init__(self, connect: Connect, ssl_context: ssl.SSLContext, keepalive: int) -> None:
        self._connect = connect
        self._ssl_context = ssl_context
        self._ssl_context.set_alpn_protocols(["http/1.1"])
        self._keepalive = keepalive
        self._idle: dict[HttpConnection, float] = {}  # until when; the one that is idle for longest is first
        self._idle_of: dict[Origin, list[HttpConnection]] = {}

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return the response, whose body is not read yet. The extensions `timeout` and `trace` of the
        request mean what they mean in httpx2, except that `trace` is called only just before the first byte is sent.

        Raise a TransportError of httpx2, or EgressDenied.
        """
        timeouts = request.extensions.get("timeout", {})
        connection = await self._acquire(_origin(request.url), timeouts.get("connect"))
        try:
            return await connection.send(request, timeouts)
        except BaseException:
            await connection.aclose()
            raise

    async def _acquire(self, origin: Origin, timeout: float | None) -> HttpConnection:
        now = time.monotonic()
        idle = self._idle_of.get(origin, [])
        while idle:
            connection = idle[-1]
            until = self._idle[connection]
            self._forget(connection)
            if now < until and connection.network.is_reusable():
                return connection
            await connection.aclose()
        scheme, host, port = origin
        network = await self._connect(host, port, timeout)
        if scheme == "https":
            await network.start_tls(self._ssl_context, host, timeout)
        return HttpConnection(self, origin, network)

    async def release(self, connection: HttpConnection) -> None:
        """Keep a connection whose response was read to its end. Close those that are idle for too long, or too many."""
        now = time.monotonic()
        self._idle[connection] = now + KEEPALIVE_S
        self._idle_of.setdefault(connection.origin, []).append(connection)
        while self._idle:
            oldest, until = next(iter(self._idle.items()))
            if len(self._idle) <= self._keepalive and now < until:
                break
            self._forget(oldest)
            await oldest.aclose()

    def _forget(self, connection: HttpConnection) -> None:
        del self._idle[connection]
        idle = self._idle_of[connection.origin]
        idle.remove(connection)
        if not idle:
            del self._idle_of[connection.origin]

    async def aclose(self) -> None:
        """Close the idle connections. Those in use close when their responses do."""
        self._keepalive = 0
        for connection in list(self._idle):
            self._forget(connection)
            await connection.aclose()


def _origin(url: httpx2.URL) -> Origin:
    return url.scheme, url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)


class HttpConnection:
    """A connection to a server, one request at a time. The methods `on_...` are called by its parser."""

    def __init__(self, pool: HttpConnectionPool, origin: Origin, network: NetworkConnection) -> None:
        self.origin = origin
        self.network = network
        self._pool = pool
        self._parser: Any
        self._is_over = False  # it must not be used again
        self._begin("")

    def _begin(self, method: str) -> None:
        """Forget the response before."""
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True,
            lenient_keep_alive=True,  # the response follows an interim one that has `Connection: close`
        )
        self._has_no_body = method == "HEAD"
        self._why = ""  # it is refused, other than by the parser
        self._status = 0
        self._version = b""
        self._reason = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_head = False
        self._is_complete = False
        self._body: list[bytes] = []  # received, not yet read
        self._framing_bytes = 0

    async def send(self, request: httpx2.Request, timeouts: dict[str, float | None]) -> httpx2.Response:
        """Send a request and read the head of its response."""
        self._begin(request.method)
        head = _head(request)
        trace = request.extensions.get("trace")
        if trace is not None:
            await trace("http11.send_request_headers.started", {})
        try:
            await self._write(request, head, timeouts.get("write"))
        except httpx2.WriteError:
            self._is_over = True  # the server may have answered before it closed the connection
        await self._read_head(timeouts.get("read"))
        body = _Body(self, timeouts.get("read"))
        return httpx2.Response(
            self._status,
            headers=self._headers,
            stream=body,
            extensions={
                "http_version": self._version,
                "reason_phrase": self._reason,
                READ_CHUNKS: body.read_chunks,
            },
        )

    async def _write(self, request: httpx2.Request, head: bytes, timeout: float | None) -> None:
        if isinstance(request.stream, httpx2.ByteStream):
            (body,) = request.stream
            await self.network.write(head + body, timeout)
            return
        await self.network.write(head, timeout)
        is_chunked = "transfer-encoding" in request.headers
        assert isinstance(request.stream, AsyncIterable)
        async for chunk in request.stream:
            if chunk:
                await self.network.write(
                    b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk, timeout
                )
        if is_chunked:
            await self.network.write(b"0\r\n\r\n", timeout)

    async def _read_head(self, timeout: float | None) -> None:
        size = 0
        while not self._has_head:
            data = await self.network.read(READ_BYTES, timeout)
            if not data:
                raise httpx2.RemoteProtocolError("Server disconnected without sending a response.")
            size += len(data)
            self._feed(data)
            if size > MAX_HEAD_BYTES and not self._has_head:
                why = f"its answer begins with more than {MAX_HEAD_BYTES} bytes of headers"
                raise EgressDenied(self.origin[1], why, allowable=False)

    async def read_chunks(self, timeout: float | None) -> Sequence[bytes]:
        """Return the chunks of the body that have arrived, at least one, or none at its end. Chunks are not joined: what
        bounds a body counts them."""
        while not self._body and not self._is_complete:
            data = await self.network.read(READ_BYTES, timeout)
            if not data:
                self._end_with_connection()
                break
            self._feed(data)
            carried = sum(map(len, self._body)) + CHUNK_FRAMING_BYTES * len(self._body)
            self._framing_bytes += len(data) - carried
            if self._framing_bytes > MAX_FRAMING_BYTES and not self._is_complete:
                raise httpx2.RemoteProtocolError(f"more than {MAX_FRAMING_BYTES} bytes without a body")
        chunks, self._body = self._body, []
        return chunks

    def _end_with_connection(self) -> None:
        """End a body that is delimited by the end of the connection."""
        if any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self._headers):
            raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")
        self._is_complete = self._is_over = True

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._is_over = True
            if self._is_complete:
                return  # what follows a response does not invalidate it
            why = self._why or str(error)
            if isinstance(error, httptools.HttpParserUpgrade):
                why = "the server switched protocols, which nobody requested"
            raise httpx2.RemoteProtocolError(why) from error

    def on_message_begin(self) -> None:
        if self._is_complete:
            self._is_over = True  # bytes that nobody requested

    def on_status(self, status: bytes) -> None:
        if not self._is_complete:
            self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # else it is a trailer
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 100:
            self._why = f"the status {status:03} is not valid"
            raise ValueError(self._why)
        if status >= 200 and not self._is_complete:
            self._has_head = True
            self._status = status
            self._version = b"HTTP/" + self._parser.get_http_version().encode()
            if self._has_no_body:
                self._is_complete = self._is_over = True

    def on_body(self, body: bytes) -> None:
        if self._has_head and not self._is_complete:  # an interim response has no body
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._is_over = self._is_over or not self._parser.should_keep_alive()
        if not self._has_head:  # of an interim response
            self._headers = []
            self._reason = b""
            return
        self._is_complete = True

    async def finish(self) -> None:
        """Return to the pool once the response is complete. Close the connection if it cannot be used again."""
        if self._is_complete and not self._is_over:
            await self._pool.release(self)
        else:
            await self.aclose()

    async def aclose(self) -> None:
        await self.network.aclose()


class _Body(httpx2.AsyncByteStream):
    """The body of a response."""

    def __init__(self, connection: HttpConnection, timeout: float | None) -> None:
        self._connection: HttpConnection | None = connection
        self._timeout = timeout

    async def read_chunks(self) -> Sequence[bytes]:
        """Return the chunks that have arrived, at least one, or none at the end."""
        if self._connection is None:
            return ()
        try:
            return await self._connection.read_chunks(self._timeout)
        except BaseException:
            await self.aclose()
            raise

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while chunks := await self.read_chunks():
                for chunk in chunks:
                    yield chunk
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.finish()


def _head(request: httpx2.Request) -> bytes:
    """Return the head of a request. Raise LocalProtocolError if it is not valid HTTP."""
    target = request.url.raw_path
    lines = [b"%b %b HTTP/1.1" % (request.method.encode(), target)]
    if not (_TOKEN.fullmatch(request.method.encode()) and _TARGET.fullmatch(target)):
        raise httpx2.LocalProtocolError("the method or the path of the request is not valid")
    for name, value in request.headers.raw:
        if not (_TOKEN.fullmatch(name) and _FIELD_VALUE.fullmatch(value)) or value != value.strip():
            raise httpx2.LocalProtocolError(f"the header {name.decode(errors='replace')!r} is not valid")
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
