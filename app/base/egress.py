"""The one way out to addresses that a tenant chose: tools, providers with their own baseUrl, MCP, webhooks.

The transport resolves the name once, checks every address it has, and connects to a checked address itself. Everything
above still sees the name: the Host header, the TLS server name and the check of the certificate. So neither a spelling of
an address, nor a name that resolves inwards, nor one that resolves differently the second time leads into the operator's
network. Redirects are off, proxies and .netrc of the environment are not read, and cookies are not kept, since tenants
share the pool.
"""

from __future__ import annotations

import asyncio
import functools
import http.cookiejar
import ssl
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2

from app.base.egress_policy import EgressDenied, EgressPolicy, check_scheme
from app.base.http11 import HttpConnectionPool
from app.base.network import NetworkConnection, open_connection

MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
PIECE_BYTES: Final = 256
"""The minimum that a piece of a body counts, because each piece is work and a chunk may be one byte."""

PIECES_AT_ONCE: Final = 500
"""After so many pieces, other tasks get a turn."""

KEEPALIVE_CONNECTIONS: Final = 100


class _CheckedAddresses:
    """Connects to addresses that the policy allows."""

    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy

    async def open_connection(self, host: str, port: int, timeout: float | None) -> NetworkConnection:
        """Connect to the first checked address that answers; each gets its share of the time that is left."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        addresses = await self._resolve(host, port, deadline)
        for left in range(len(addresses), 0, -1):
            share = None if deadline is None else max(0.001, (deadline - loop.time()) / left)
            try:
                return await open_connection(addresses[-left], port, share)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if left == 1:
                    raise
        raise httpx2.ConnectError(f"the name {host} has no address")

    async def _resolve(self, host: str, port: int, deadline: float | None) -> list[str]:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._policy.addresses(host, port)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"resolving {host} took too long") from error
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(f"the name {host} cannot be resolved") from error


class _BoundedStream(httpx2.AsyncByteStream):
    """A response body, limited to a maximum number of bytes."""

    def __init__(self, inner: Any, host: str, limit: int) -> None:
        self._inner = inner
        self._host = host
        self._left = self._limit = limit
        self._pieces_left = self._most_pieces = limit // PIECE_BYTES + 100

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            self._pieces_left -= 1
            if self._pieces_left < 0:
                why = f"its answer comes in more than {self._most_pieces} pieces"
                raise EgressDenied(self._host, why, allowable=False)
            if self._pieces_left % PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._left < 0:
                raise EgressDenied(
                    self._host, f"its answer is larger than {self._limit} bytes", allowable=False
                )
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _bound(response: Any, host: str, limit: int | None) -> None:
    """Bound the body. A compressed one is rejected: it was not requested, and its size says nothing."""
    if limit is None:
        return
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        await response.aclose()
        raise EgressDenied(host, "its answer is compressed, which nobody asked for", allowable=False)
    response.stream = _BoundedStream(response.stream, host, limit)


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """Return the one context of the process: loading the certificates takes 25 ms."""
    return httpx2.create_ssl_context(trust_env=False)


class EgressTransport(httpx2.AsyncBaseTransport):
    """A transport of httpx2 with checked addresses and bounded responses. It has no limit on connections: tenants share it,
    and one tenant whose requests hang could use up a limit."""

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        max_response_bytes: int | None = MAX_RESPONSE_BYTES,
        keepalive: int = KEEPALIVE_CONNECTIONS,
    ) -> None:
        """`keepalive` is how many idle connections are kept. A caller that passes None for `max_response_bytes` bounds
        responses itself."""
        self._pool = HttpConnectionPool(_CheckedAddresses(policy).open_connection, _ssl_context(), keepalive)
        self._limit = max_response_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        check_scheme(request.url.scheme, request.url.host)
        response = await self._pool.send(request)
        await _bound(response, request.url.host, self._limit)
        return response

    async def aclose(self) -> None:
        await self._pool.aclose()


class OpenTransport(EgressTransport):
    """A transport for addresses that no tenant chose. It does not check them, but bounds the head of a response. The caller
    bounds the body."""

    def __init__(self, *, keepalive: int) -> None:
        self._pool = HttpConnectionPool(open_connection, _ssl_context(), keepalive)
        self._limit = None


def no_cookies() -> http.cookiejar.CookieJar:
    return http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=()))


def egress_client(
    policy: EgressPolicy, *, max_response_bytes: int | None = MAX_RESPONSE_BYTES, keep_alive: bool = True
) -> httpx2.AsyncClient:
    """Return a client that any number of tenants may share. Without `keep_alive`, every request has a connection of its
    own; `max_response_bytes` None is for endless streams.

    Its requests raise EgressDenied besides the errors of httpx2.
    """
    return httpx2.AsyncClient(
        transport=EgressTransport(
            policy,
            max_response_bytes=max_response_bytes,
            keepalive=KEEPALIVE_CONNECTIONS if keep_alive else 0,
        ),
        trust_env=False,
        follow_redirects=False,
        cookies=no_cookies(),
        headers={"accept-encoding": "identity"},
    )
