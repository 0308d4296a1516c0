"""Admission of connections: how many there may be, and how long one may take to send a request.

A head must arrive within a deadline, a body must keep a rate while the service reads it, and the connections of a process
are bounded. At the bound, a new connection replaces one that has sent nothing or is idle. If there is none, the new
connection waits for a moment, and then gets a 503.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import json
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from app.base.logs.processors import Throttle
from app.base.logs.structured import structlog
from app.base.metrics import Metrics
from app.base.peers import parse_address, peer_for_host

log = structlog.get_logger(__name__)

TICK_S: Final = 0.5
WAIT_S: Final = 1.0
"""How long a connection waits for a place before it gets a 503."""
MAX_WAITING: Final = 64
"""How many connections wait for a place, or for their client to read the 503; others are closed without an answer."""
CLOSING_S: Final = 2.0
"""How long a client may take to read why its connection ends: meanwhile what it sends is discarded. A close with unread
data would be a reset, and a reset destroys the answer."""
EVICTABLE_AFTER_S: Final = 0.25
"""A connection that sends its request at once never makes room for another."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class AdmissionBounds:
    """Bounds on the connections of a process. With `per_peer` 0, there is no bound per peer."""

    connections: int = 20_000
    per_peer: int = 0
    trusted: tuple[Network, ...] = ()
    head_timeout_s: float = 10.0
    max_head_bytes: int = 64 * 1024
    body_timeout_s: float = 30.0
    body_min_bytes_per_s: int = 500
    backlog: int = 2048
    """Connections that the kernel may hold until they are accepted."""

    @property
    def tick_s(self) -> float:
        return min(TICK_S, self.head_timeout_s / 4, self.body_timeout_s / 4)


class Deadlines:
    """Connections with the same timeout, the one that started first in front."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._started: dict[AdmittedConnection, float] = {}

    def __len__(self) -> int:
        return len(self._started)

    def __iter__(self) -> Iterator[AdmittedConnection]:
        return iter(list(self._started))

    def __contains__(self, connection: AdmittedConnection) -> bool:
        return connection in self._started

    def start(self, connection: AdmittedConnection, now: float) -> None:
        """Start the deadline of a connection again from now."""
        self._started.pop(connection, None)
        self._started[connection] = now

    def stop(self, connection: AdmittedConnection) -> None:
        self._started.pop(connection, None)

    def first(self) -> AdmittedConnection | None:
        return next(iter(self._started), None)

    def pop_expired(self, now: float) -> list[AdmittedConnection]:
        expired = []
        for connection, started in self._started.items():
            if now - started < self.seconds:
                break
            expired.append(connection)
        for connection in expired:
            del self._started[connection]
        return expired


class Admission:
    """Admits the connections of a process, and holds them to their deadlines."""

    def __init__(self, bounds: AdmissionBounds, metrics: Metrics) -> None:
        self.bounds = bounds
        self.heads = Deadlines(bounds.head_timeout_s)
        self.bodies = Deadlines(bounds.body_timeout_s)
        self.waiting = Deadlines(WAIT_S)
        self.closing = Deadlines(CLOSING_S)
        self.idle: dict[AdmittedConnection, None] = {}
        self.now = 0.0
        """Seconds in which the loop ran: a time in which it was blocked, or the machine slept, counts against nobody."""
        self._metrics = metrics
        self._count = 0
        self._rejected: set[AdmittedConnection] = set()
        self._peers: Counter[str] = Counter()
        self._ticked = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._full = Throttle()
        self._peer_full = Throttle()
        metrics.connections_max.set(bounds.connections)

    # -- how many ----------------------------------------------------------------------------------------------

    def admit(self, connection: AdmittedConnection, *, evict: bool = True) -> bool:
        """Count a new connection, or return False if there is no place for it."""
        peer = self._counted_peer(connection)
        if peer is not None and self._peers[peer] >= self.bounds.per_peer:
            return False
        if self._count >= self.bounds.connections and not (evict and self._make_room(connection.loop.time())):
            return False
        self._count += 1
        self._metrics.connections.set(self._count)
        connection.counted = True
        connection.peer = peer
        if peer is not None:
            self._peers[peer] += 1
        return True

    def queue(self, connection: AdmittedConnection) -> bool:
        """Let a connection wait for a place, or return False if too many wait already."""
        if len(self.waiting) + len(self._rejected) >= MAX_WAITING:
            return False
        self.start(self.waiting, connection)
        return True

    def admit_waiting(self) -> None:
        """Give free places to the connections that have waited longest. A connection that has sent a request may replace
        another one."""
        for connection in self.waiting:
            if self.admit(connection, evict=connection.has_request):
                self.waiting.stop(connection)
                connection.start()

    def reject(self, connection: AdmittedConnection) -> None:
        """Count a connection that got no place, and log it once in a while."""
        self._rejected.add(connection)
        peer = self._counted_peer(connection)
        if peer is not None and self._peers[peer] >= self.bounds.per_peer:
            self._metrics.connections_rejected.labels("peer").inc()
            if self._peer_full.allow():
                log.warning(
                    "connections.peer_full", address=peer.partition("/")[0], count=self.bounds.per_peer
                )
        else:
            self._metrics.connections_rejected.labels("process").inc()
            if self._full.allow():
                log.warning("connections.full", count=self.bounds.connections)

    def release(self, connection: AdmittedConnection) -> None:
        """Forget a connection that has ended."""
        self.stop(connection)
        self._rejected.discard(connection)
        if not connection.counted:
            return
        connection.counted = False
        self._count -= 1
        self._metrics.connections.set(self._count)
        if connection.peer is not None:
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def _counted_peer(self, connection: AdmittedConnection) -> str | None:
        if not self.bounds.per_peer or connection.client is None:
            return None
        return bounded_peer(connection.client[0], self.bounds.trusted)

    def _make_room(self, now: float) -> bool:
        """Close the connection that has waited longest for its head, or else the one that has been idle longest."""
        victim = self.heads.first()
        if victim is not None and now - victim.head_started_at >= EVICTABLE_AFTER_S:
            self.release(victim)
            victim.transport.abort()
        elif (victim := next(iter(self.idle), None)) is not None:
            self.release(victim)
            victim.transport.close()  # its last response may not be sent yet
        else:
            return False
        self.count_closed("evicted")
        return True

    def count_closed(self, reason: str) -> None:
        self._metrics.connections_closed.labels(reason).inc()

    # -- how long ----------------------------------------------------------------------------------------------

    def start(self, deadlines: Deadlines, connection: AdmittedConnection) -> None:
        """Start a deadline of a connection, for its head, its body or its end."""
        if self._timer is None:
            self._ticked = connection.loop.time()
            self._arm(connection.loop)
        deadlines.start(connection, self.now)

    def stop(self, connection: AdmittedConnection) -> None:
        """Remove all deadlines of a connection."""
        for deadlines in (self.heads, self.bodies, self.waiting, self.closing):
            deadlines.stop(connection)
        self.idle.pop(connection, None)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self.bounds.tick_s, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now, tick_s = loop.time(), self.bounds.tick_s
        self.now += min(now - self._ticked, 2 * tick_s)
        self._ticked = now
        for connection in self.heads.pop_expired(self.now):
            connection.head_expired()
        for connection in self.bodies.pop_expired(self.now):
            connection.body_expired()
        self.admit_waiting()
        for connection in self.waiting.pop_expired(self.now):
            connection.wait_expired()
        for connection in self.closing.pop_expired(self.now):
            connection.transport.abort()
        if self.heads or self.bodies or self.waiting or self.closing:
            self._arm(loop)
        else:
            self._timer = None


@functools.lru_cache(maxsize=4096)
def bounded_peer(host: str, trusted: tuple[Network, ...]) -> str | None:
    """Return the peer that an address counts as (IPv6 by its /64), or None for loopback and trusted proxies, which have no
    bound."""
    address = parse_address(host)
    if address is None or address.is_loopback or any(address in network for network in trusted):
        return None
    return peer_for_host(host)


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Return the addresses and networks that the texts name. Raise ValueError if one is neither."""
    return tuple(ipaddress.ip_network(text) for text in texts)


class Flow(FlowControl):
    """Flow control that gives a body its time again after the service paused reading it."""

    def __init__(self, connection: AdmittedConnection) -> None:
        super().__init__(connection.transport)
        self._connection = weakref.proxy(
            connection
        )  # so that both are freed at once when the client disconnects

    def resume_reading(self) -> None:
        if self.read_paused:
            self._connection.restart_body_window()
        super().resume_reading()


class AdmittedConnection(HttpToolsProtocol):
    """A connection of a client, with bounds on what it sends."""

    def __init__(
        self,
        admission: Admission,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.admission = admission
        self.counted = False
        self.peer: str | None = None
        self.head_started_at = 0.0
        self._waits = False
        self._buffered = bytearray()  # what was sent while it waited
        self._ending = False
        self._between = True  # between two messages, or in a head: not in a body
        self._head_begun = False
        self._head_bytes = 0
        self._body_bytes = 0  # since its window began

    # -- its life ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(self)
        if self.admission.admit(self):
            self._start_head()
            return
        self._waits = True
        if not self.admission.queue(self):
            self._ending = True
            self.admission.reject(self)
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.admission.release(self)
        super().connection_lost(exc)
        self.admission.admit_waiting()

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        if self._waits:
            self._buffered += data
            if len(self._buffered) > self.admission.bounds.max_head_bytes:
                self.flow.pause_reading()
            self.admission.admit_waiting()
            return
        admission = self.admission
        admission.idle.pop(self, None)
        if self._between:
            self._head_bytes += len(data)
            if not self._busy and self not in admission.heads:
                self._start_head()
        else:
            self._body_bytes += len(data)
        super().data_received(data)
        if self._ending or self.transport.is_closing():
            return
        if not self._between:
            if self not in admission.bodies:
                admission.start(admission.bodies, self)
        elif self._head_begun and self._head_bytes > admission.bounds.max_head_bytes:
            self._reject_head()

    @property
    def has_request(self) -> bool:
        """Return whether a connection that waits for a place has sent something."""
        return bool(self._buffered)

    def start(self) -> None:
        """Process what the client sent while this connection waited for a place."""
        self._waits = False
        buffered, self._buffered = bytes(self._buffered), bytearray()
        self._start_head()
        self.flow.resume_reading()
        if buffered:
            self.data_received(buffered)

    def wait_expired(self) -> None:
        """End a connection that got no place in time."""
        self.admission.reject(self)
        if self.has_request:
            self._close_with(503, "unavailable", "The service is temporarily unavailable", FULL)
        else:
            self._ending = True
            self.transport.abort()

    @property
    def _busy(self) -> bool:
        """Return whether a response is in progress."""
        return self.cycle is not None and not self.cycle.response_complete

    # -- what the parser finds -----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_begun = True
        if not self._busy and self not in self.admission.heads:
            self._start_head()

    def on_headers_complete(self) -> None:
        limit = self.admission.bounds.max_head_bytes
        if self._head_bytes > limit and self._parsed_head_bytes() > limit:
            self._reject_head()
            raise ValueError("head too large")  # ends the parser
        self.admission.heads.stop(self)
        self._head_begun = False
        self._between = False
        self._head_bytes = 0
        self._body_bytes = 0
        super().on_headers_complete()
        if self.expect_100_continue:
            self.flow.pause_reading()  # no time limit applies to the body until the application reads it

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._between = True
        self.admission.bodies.stop(self)
        if not self._busy:  # answered before its body was there
            self._wait_for_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._busy or self.transport.is_closing() or not self._between:
            return
        if self._head_begun:
            self._start_head()
        else:
            self.admission.idle[self] = None

    def _start_head(self) -> None:
        self._unset_keepalive_if_required()
        self.head_started_at = self.loop.time()
        self.admission.start(self.admission.heads, self)

    def _wait_for_request(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        self.admission.idle[self] = None

    def _parsed_head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    # -- what ends it --------------------------------------------------------------------------------------------

    def head_expired(self) -> None:
        """End a connection whose head did not arrive in time."""
        if self._ending or self.transport.is_closing():
            return
        self.admission.count_closed("head_timeout")
        if self._head_begun:
            seconds = self.admission.bounds.head_timeout_s
            detail = f"The head of the request did not arrive within {seconds:g} s."
            self._close_with(408, "request_timeout", "The request did not arrive in time", detail)
        else:
            self.transport.close()  # nothing to answer

    def body_expired(self) -> None:
        """End a connection whose body made too little progress, or begin its next window."""
        if self._ending or self.transport.is_closing():
            return
        bounds = self.admission.bounds
        enough = bounds.body_timeout_s * bounds.body_min_bytes_per_s
        if self.flow.read_paused or self._body_bytes >= enough:
            self._begin_window()
            return
        self.admission.count_closed("body_timeout")
        detail = (
            f"Less than {bounds.body_min_bytes_per_s} bytes a second of the body arrived for "
            f"{bounds.body_timeout_s:g} s. Send the request again."
        )
        self._close_with(408, "request_timeout", "The request did not arrive in time", detail)

    def restart_body_window(self) -> None:
        """Begin the window of a body again: the time in which the service did not read does not count."""
        if self in self.admission.bodies:
            self._begin_window()

    def _begin_window(self) -> None:
        self._body_bytes = 0
        self.admission.start(self.admission.bodies, self)

    def _reject_head(self) -> None:
        self.admission.count_closed("head_too_large")
        detail = f"The head of a request may have {self.admission.bounds.max_head_bytes} bytes."
        self._close_with(431, "too_large", "The head of the request is too large", detail)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP with a problem document."""
        if not self._ending:
            detail = "The request could not be read: it is not HTTP/1.1."
            self._close_with(400, "malformed", "The request is malformed", detail)

    def _close_with(self, status: int, type_: str, title: str, detail: str) -> None:
        """End the connection with a problem document, unless the client would take it for another answer."""
        self._ending = True
        self._unset_keepalive_if_required()
        self.admission.stop(self)
        self.admission.start(self.admission.closing, self)
        if self._busy:
            own = not self._between and not self.pipeline
            answered = not own or self.cycle.response_started
            self.cycle.disconnected = True  # the application hears that the body is not coming
            self.cycle.message_event.set()
        else:
            answered = not self._between  # the answer came before the body
        if not answered:
            body = json.dumps({"type": type_, "title": title, "status": status, "detail": detail}).encode()
            head = [STATUS_LINE[status]]
            for name, value in self.server_state.default_headers:
                head += [name, b": ", value, b"\r\n"]
            head += [b"content-type: application/problem+json\r\ncontent-length: %d\r\n" % len(body)]
            head += [b"retry-after: 1\r\n"] if status == 503 else []
            self.transport.write(b"".join([*head, b"connection: close\r\n\r\n", body]))
            self.transport.write_eof()
        else:
            self.transport.close()


FULL: Final = "All connections of this process are in use; retry in a moment."
