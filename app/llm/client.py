"""The HTTP clients of providers, which limit what any provider can send.

The streams of all clients share one `ModelTraffic`, which limits the open streams and the rate at which one
tenant's bytes are read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from app.base.egress import (
    MAX_RESPONSE_BYTES,
    PIECE_BYTES,
    PIECES_AT_ONCE,
    EgressTransport,
    OpenTransport,
    no_cookies,
)
from app.base.egress_policy import EgressDenied, EgressPolicy, requesting_tenant
from app.base.http11 import READ_CHUNKS
from app.base.metrics import Metrics
from app.base.shares import TenantShares
from app.llm.provider import TooMuchSent

STREAMS_PER_SLOT: Final = 16
"""Twice the concurrent calls of a query by default, because one tenant gets at most half of the streams."""

MIN_LINE_COST_BYTES: Final = 64
"""A line counts as at least this many bytes: each costs work, even if it has one byte."""

_turn_bytes: ContextVar[int | None] = ContextVar("turn_bytes", default=None)
"""Maximum bytes of the response to the current request."""


@dataclass(frozen=True, slots=True)
class ModelBounds:
    """Limits for what providers may send. The settings of the service document each one."""

    streams: int = 1024
    keepalive: int = 100
    line_bytes: int = 1024 * 1024
    bytes_per_token: int = 4096
    tenant_bytes_per_s: int = 4 * 1024 * 1024
    remembered_tenants: int = 10_000
    """Tenants whose rate is remembered although they have no open stream."""

    def turn_bytes(self, max_tokens: int | None) -> int:
        """Return the maximum bytes of a turn with `max_tokens` requested tokens; None if the request has no
        limit."""
        if max_tokens is None:
            return MAX_RESPONSE_BYTES
        return min(MAX_RESPONSE_BYTES, self.line_bytes + max(0, max_tokens) * self.bytes_per_token)


class ModelTraffic:
    """The open provider streams of a process."""

    def __init__(
        self,
        bounds: ModelBounds | None = None,
        metrics: Metrics | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self.bounds = bounds or ModelBounds()
        self.metrics = metrics or Metrics()
        self._shares = TenantShares(self.bounds.streams, self.bounds.streams)
        self._paid_until: dict[str, float] = {}

    @property
    def open_streams(self) -> int:
        return self._shares.in_use

    @asynccontextmanager
    async def stream_slot(self) -> AsyncIterator[None]:
        """Hold a slot for one stream of the current tenant; wait until one is free."""
        began = time.monotonic()
        async with self._shares.slot(requesting_tenant()):
            self.metrics.model_stream_wait.observe(time.monotonic() - began)
            yield

    async def throttle(self, tenant: str, cost: int) -> None:
        """Wait as long as the tenant's rate requires after its streams received this much. The first second
        is free."""
        now = self._clock()
        paid_until = max(self._paid_until.get(tenant, 0.0), now - 1) + cost / self.bounds.tenant_bytes_per_s
        if tenant not in self._paid_until and len(self._paid_until) >= self.bounds.remembered_tenants:
            self._paid_until = {t: until for t, until in self._paid_until.items() if until > now - 1}
        self._paid_until[tenant] = paid_until
        if paid_until > now:
            self.metrics.model_stream_throttled.inc(paid_until - now)
            await self._sleep(paid_until - now)


class ModelClient(httpx2.AsyncClient):
    """A client for requests to providers.

    It ignores proxies and .netrc in the environment, follows no redirects, keeps no cookies, accepts no
    compression, and limits every response.
    """

    def __init__(self, transport: httpx2.AsyncBaseTransport, traffic: ModelTraffic) -> None:
        super().__init__(
            transport=transport,
            trust_env=False,
            follow_redirects=False,
            cookies=no_cookies(),
            headers={"accept-encoding": "identity"},
            event_hooks={"response": [self._bound_body]},
        )
        self.traffic = traffic

    @contextmanager
    def bound_response(self, max_tokens: int | None) -> Iterator[None]:
        """Limit the response to the request in the block by the number of tokens that it asks for."""
        before = _turn_bytes.set(self.traffic.bounds.turn_bytes(max_tokens))
        try:
            yield
        finally:
            _turn_bytes.reset(before)

    async def _bound_body(self, response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            why = "its response is compressed although the request did not allow it"
            raise EgressDenied(response.request.url.host, why, allowable=False)
        bounds = self.traffic.bounds
        limit = (_turn_bytes.get() or MAX_RESPONSE_BYTES) if response.is_success else bounds.line_bytes
        response.stream = BoundedBody(response, limit, self.traffic, requesting_tenant())


class BoundedBody(httpx2.AsyncByteStream):
    """A response body with a maximum size, read at the rate of its tenant."""

    def __init__(self, response: httpx2.Response, limit: int, traffic: ModelTraffic, tenant: str) -> None:
        self._inner: Any = response.stream
        self._read = _chunk_reader(response)
        self._limit = self._left = limit
        self._pieces = 0  # since other tasks had their turn
        self._traffic = traffic
        self._tenant = tenant

    async def read_chunks(self) -> Sequence[bytes]:
        """Return the chunks that have arrived, at least one, or none at the end. Raise TooMuchSent for a body above the
        limit, after the chunks before it were returned."""
        chunks = await self._read() if self._left >= 0 else ()
        total = size = 0
        for count, chunk in enumerate(chunks):
            lines = chunk.count(b"\n") + chunk.count(b"\r")
            cost = max(len(chunk), lines * MIN_LINE_COST_BYTES, PIECE_BYTES)
            self._left -= cost
            if self._left < 0:
                chunks = chunks[:count]
                break
            total += cost
            size += len(chunk)
        if self._left < 0 and not chunks:
            raise TooMuchSent("bytes", f"more than {self._limit} bytes", "PLANGATE_MODEL_BYTES_PER_TOKEN")
        self._traffic.metrics.model_stream_bytes.inc(size)
        await self._traffic.throttle(self._tenant, total)
        self._pieces += len(chunks)
        if self._pieces >= PIECES_AT_ONCE:
            self._pieces = 0
            await asyncio.sleep(0)
        return chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunks := await self.read_chunks():
            for chunk in chunks:
                yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _chunk_reader(response: httpx2.Response) -> Callable[[], Awaitable[Sequence[bytes]]]:
    """Return the function that reads the chunks that have arrived; one chunk at a time if the transport does not support
    this."""
    read: Callable[[], Awaitable[Sequence[bytes]]] | None = response.extensions.get(READ_CHUNKS)
    if read is not None:
        return read
    assert isinstance(response.stream, AsyncIterable)
    chunks = aiter(response.stream)

    async def read_next() -> Sequence[bytes]:
        chunk = await anext(chunks, None)
        return () if chunk is None else (chunk,)

    return read_next


def open_client(traffic: ModelTraffic) -> ModelClient:
    """Return a client for the vendors' own addresses and those that the operator configured."""
    return ModelClient(OpenTransport(keepalive=traffic.bounds.keepalive), traffic)


def egress_client(policy: EgressPolicy, traffic: ModelTraffic) -> ModelClient:
    """Return a client for addresses that tenants chose."""
    transport = EgressTransport(policy, max_response_bytes=None, keepalive=traffic.bounds.keepalive)
    return ModelClient(transport, traffic)
