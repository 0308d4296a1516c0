"""HTTP connections of a process: how many bytes each may buffer, and when one is dropped.

A client that stops reading leaves bytes in two places: in our write buffer and in the socket's send buffer. Both are
bounded for each connection, and a connection whose client acknowledges nothing for a while is aborted, whatever the
application is doing with it: a stream, a download or a list.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import weakref
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from app.api.admission import Admission, AdmissionBounds, AdmittedConnection
from app.base.logs.structured import structlog
from app.base.metrics import Metrics

log = structlog.get_logger(__name__)

KEEP_ALIVE_S: Final = 75
"""How long a connection stays open without a request: longer than clients and load balancers keep theirs (mostly 60 s),
so that none sends a request into a connection that is being closed."""
CHECKS_PER_STALL: Final = 6  # a stalled reader is found this fraction of its time late, at most
ORPHAN_FACTOR: Final = 1.5  # the kernel ends a socket that this process has already closed this much later
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: discard what was not sent


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of one connection. `reader_bytes` is what a reader that stops reading may hold in all: half of it in the
    kernel, the rest in our buffers."""

    reader_bytes: int = 256 * 1024
    stalled_s: float = 30.0

    @property
    def send_buffer_bytes(self) -> int:
        """Return the SO_SNDBUF to ask for. Linux doubles it for its own accounting and overshoots by one packet."""
        return self.reader_bytes // 4

    @property
    def write_buffer_bytes(self) -> int:
        return self.reader_bytes // 16

    @property
    def slice_bytes(self) -> int:
        return self.reader_bytes // 16


def bound_send_buffer(listening: socket.socket, limits: ConnectionLimits) -> None:
    """Bound the send buffer of every socket that `listening` accepts; accepted sockets inherit these options."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
    timeout = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux
    if timeout is not None:
        listening.setsockopt(socket.IPPROTO_TCP, timeout, int(limits.stalled_s * ORPHAN_FACTOR * 1000))


class CountingTransport:
    """A transport that counts what is written to it. Its connection refers to it, and not the other way round, so that both
    are freed at once when the client disconnects."""

    def __init__(self, transport: Any, connection: Connection) -> None:
        self._transport = transport
        self._connection = weakref.proxy(connection)
        self._write = transport.write
        self.buffered = 0

    def write(self, data: bytes) -> None:
        self.buffered += len(data)
        self._connection.note_writing()
        self._write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(AdmittedConnection):
    """One HTTP connection."""

    def __init__(self, connections: Connections, **parts: Any) -> None:
        super().__init__(connections.admission, **parts)
        self._connections = connections
        self._writing = False
        self._acknowledged = 0
        self._progress_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=self._connections.limits.write_buffer_bytes)
        self._counting = CountingTransport(transport, self)
        super().connection_made(self._counting)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.writing.discard(self)
        super().connection_lost(exc)

    # -- readers ---------------------------------------------------------------------------------------------

    def note_writing(self) -> None:
        """Watch this connection until its client has acknowledged everything."""
        if not self._writing:
            self._writing = True
            self._progress_at = self.loop.time()
            self._connections.watch(self)

    def bytes_in_flight(self) -> int:
        """Return how many bytes wait in our buffer and in the socket's send buffer."""
        transport = self._counting
        return int(transport.get_write_buffer_size()) + _unacknowledged(transport)

    def check_progress(self, now: float) -> None:
        """Abort the connection if its client has acknowledged nothing for too long."""
        in_flight = self.bytes_in_flight()
        acknowledged = self._counting.buffered - in_flight
        if in_flight == 0:
            self._writing = False
            self._connections.writing.discard(self)
        elif acknowledged > self._acknowledged:
            self._progress_at = now
        elif now - self._progress_at >= self._connections.limits.stalled_s:
            self.drop("stalled")
        self._acknowledged = acknowledged

    def drop(self, reason: str) -> None:
        """Abort the connection at once, and discard what was not sent."""
        self._connections.metrics.readers_dropped.labels(reason).inc()
        log.info("connections.reader_dropped", count=self.bytes_in_flight())
        connection = self._counting.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._counting.abort()


class Connections:
    """The HTTP connections of a process. `configure` gives them to a server."""

    def __init__(
        self, limits: ConnectionLimits, metrics: Metrics, bounds: AdmissionBounds | None = None
    ) -> None:
        self.limits = limits
        self.admission = Admission(bounds or AdmissionBounds(), metrics)
        self.metrics = metrics
        self.writing: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        metrics.bytes_in_flight.set_function(self.bytes_in_flight)

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> Connection:
        """Make the protocol of a new connection, as uvicorn calls it."""
        return Connection(self, config=config, server_state=server_state, app_state=app_state, _loop=_loop)

    def configure(self, app: ASGIApp, **options: Any) -> Config:
        """Return the configuration of a server with these connections."""
        bounds = self.admission.bounds
        return Config(
            SlicedBodies(app, self.limits.slice_bytes),
            http=self.protocol,  # type: ignore[arg-type]  # any callable that makes protocols
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            forwarded_allow_ips=[str(network) for network in bounds.trusted],
            backlog=bounds.backlog,
            timeout_keep_alive=KEEP_ALIVE_S,
            **options,
        )

    def bytes_in_flight(self) -> int:
        return sum(c.bytes_in_flight() for c in self.writing)

    def watch(self, connection: Connection) -> None:
        self.writing.add(connection)
        if self._timer is None:
            self._schedule(connection.loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        interval = self.limits.stalled_s / CHECKS_PER_STALL
        self._timer = loop.call_later(interval, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in list(self.writing):
            connection.check_progress(now)
        self._timer = None
        if self.writing:
            self._schedule(loop)


class SlicedBodies:
    """An application whose large response bodies are sent in slices, each when the one before has left our buffer."""

    def __init__(self, app: ASGIApp, slice_bytes: int) -> None:
        self._app = app
        self._slice_bytes = slice_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = self._slice_bytes

        async def send_sliced(message: Message) -> None:
            body = message.get("body", b"")
            if len(body) > size:
                slices, last = memoryview(body), (len(body) - 1) // size * size
                for at in range(0, last, size):
                    await send({**message, "body": slices[at : at + size], "more_body": True})
                message = {**message, "body": slices[last:]}
            await send(message)

        await self._app(scope, receive, send_sliced)


if sys.platform == "linux":
    import fcntl
    import termios

    def _unacknowledged(transport: CountingTransport) -> int:
        """Return how many bytes the kernel holds for the peer: not sent, or sent and not acknowledged."""
        try:
            count = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
        except (OSError, ValueError):  # closed meanwhile
            return 0
        return int(struct.unpack("i", count)[0])

else:

    def _unacknowledged(transport: CountingTransport) -> int:
        return 0
