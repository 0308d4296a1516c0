"""The one way out to addresses that a tenant chose: tools, providers with their own baseUrl, MCP, webhooks.

A network backend below the connection pool resolves the name once, checks every address it has, and connects
to a checked address itself. Everything above still sees the name: the Host header, the TLS server name and
the check of the certificate. So neither a spelling of an address, nor a name that resolves inwards, nor one
that resolves differently the second time leads into the operator's network. Redirects are off, proxies and
.netrc of the environment are not read, and cookies are not kept, since tenants share the pool.
"""

from __future__ import annotations

import asyncio
import functools
import http.cookiejar
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import httpcore2
import httpx2
import idna
import structlog

from app.base.shares import TenantShares
from app.base.threads import run_in_thread

log = structlog.get_logger(__name__)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
T = TypeVar("T")
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a name and a port to the addresses of the name. Raises OSError where there is none."""

MAX_ADDRESSES: Final = 6
"""How many addresses of one name are tried."""

DNS_LOOKUPS: Final = 256
TENANT_DNS_LOOKUPS: Final = 32
"""Names that are looked up at once, of all tenants and of one. A tenant's name server may never answer."""

MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
MAX_HEAD_BYTES: Final = 192 * 1024
"""What is read before the body of an answer begins. h11 bounds each head, and passes over any number of interim ones."""

HEAD_READ_BYTES: Final = 8 * 1024
PIECE_BYTES: Final = 256
"""So much a piece of a body counts at least: each is work, however small, and a chunk may be one byte."""

PIECES_AT_ONCE: Final = 500
"""Then others have their turn."""

NOT_PUBLIC: Final = "its address is not public"
KEEPALIVE_CONNECTIONS: Final = 100
KEEPALIVE_S: Final = 30.0

_V4_REFUSED: Final = (
    ("this network", "0.0.0.0/8"),
    ("a private network", "10.0.0.0/8"),
    ("carrier-grade NAT", "100.64.0.0/10"),
    ("loopback", "127.0.0.0/8"),
    ("link-local, where clouds keep their metadata", "169.254.0.0/16"),
    ("a private network", "172.16.0.0/12"),
    ("reserved", "192.0.0.0/24"),
    ("documentation", "192.0.2.0/24"),
    ("a relay of 6to4", "192.88.99.0/24"),
    ("a private network", "192.168.0.0/16"),
    ("a private network", "198.18.0.0/15"),
    ("documentation", "198.51.100.0/24"),
    ("documentation", "203.0.113.0/24"),
    ("multicast", "224.0.0.0/4"),
    ("reserved", "240.0.0.0/4"),
    ("the metadata of a cloud", "168.63.129.16/32"),
)
_V6_REFUSED: Final = (
    ("unspecified", "::/128"),
    ("loopback", "::1/128"),
    ("IPv4-mapped", "::ffff:0:0/96"),
    ("a local translation of IPv4", "64:ff9b:1::/48"),
    ("a private network", "fc00::/7"),
    ("link-local", "fe80::/10"),
    ("multicast", "ff00::/8"),
    ("reserved, or a tunnel for IPv4", "2001::/23"),
    ("documentation", "2001:db8::/32"),
    ("documentation", "3fff::/20"),
)
_REFUSED: Final = tuple(
    (reason, ipaddress.ip_network(network)) for reason, network in (*_V4_REFUSED, *_V6_REFUSED)
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4: Final = ipaddress.IPv6Network("2002::/16")
_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")


class EgressRefused(Exception):
    """The service does not send this, or does not read on.

    The message says to which host, why, and, where an operator can allow it, how.
    """

    def __init__(self, host: str, why: str, *, allowable: bool = True) -> None:
        hint = " The operator can allow the host with PLANGATE_ALLOW_HOSTS." if allowable else ""
        super().__init__(f"Requests to {host!r} are refused: {why}.{hint}")
        self.host = host
        self.why = why


_tenant: ContextVar[str | None] = ContextVar("tenant_of_requests", default=None)


@contextmanager
def requests_of(tenant: str) -> Iterator[None]:
    """Attribute the requests in the block to this tenant, for its share of lookups and for the log."""
    before = _tenant.set(tenant)
    try:
        yield
    finally:
        _tenant.reset(before)


def requesting_tenant() -> str:
    """Return the tenant of the current request, or "" if there is none."""
    return _tenant.get() or ""


class Lookups:
    """Ask the operating system for addresses, in threads of our own: the event loop has two threads for names
    (uvloop), for all tenants and the database together. A lookup ends when the operating system gives up on it, which
    may be long after its caller did; its place is free then."""

    def __init__(
        self,
        total: int = DNS_LOOKUPS,
        per_tenant: int = TENANT_DNS_LOOKUPS,
        *,
        on_wait: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """`on_wait` is called with the seconds for which a lookup waited for its place."""
        self._shares = TenantShares(total, per_tenant)
        self._on_wait = on_wait

    @property
    def in_use(self) -> int:
        """Return the number of lookups in progress."""
        return self._shares.in_use

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        tenant = requesting_tenant()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._shares.acquire(tenant)
        self._on_wait(loop.time() - began)

        def ask() -> list[Any]:
            try:
                return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            finally:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._shares.release, tenant)

        try:
            found = await run_in_thread(ask)
        except RuntimeError as error:  # of the thread, which did not start; a lookup raises none
            self._shares.release(tenant)
            raise OSError("no thread can be started to look the name up") from error
        return [str(entry[4][0]) for entry in found]


system_resolver: Final = Lookups()
"""The addresses that the operating system knows, in its order of preference."""


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """Which hosts may be reached. `allow_hosts` are the operator's exceptions, as `host` or `host:port`.

    An exception names a host as it stands in the URL: allowing `localhost` does not allow `127.0.0.1`, and a
    port in it allows that port only. IPv6 addresses are written `[::1]` or `[::1]:8080`.
    """

    allow_hosts: frozenset[str] = frozenset()
    resolver: Resolver = system_resolver

    @classmethod
    def of(cls, allow_hosts: Iterable[str], *, resolver: Resolver = system_resolver) -> EgressPolicy:
        """Read the operator's exceptions. Raises ValueError for what is neither `host` nor `host:port`."""
        return cls(frozenset(_allowed_form(entry) for entry in allow_hosts), resolver)

    def allows(self, host: str, port: int) -> bool:
        """Return whether the operator named this host, or this host with this port."""
        plain = _plain(host)
        return plain in self.allow_hosts or f"{plain} {port}" in self.allow_hosts

    def check_url(self, url: str) -> None:
        """Check what can be checked without resolving a name.

        Raise EgressRefused for a scheme other than http and https, and for an address in the URL, however
        it is spelled, that is not allowed.
        """
        try:
            parsed = httpx2.URL(url)
            host = idna.decode(parsed.host) if "xn--" in parsed.host else parsed.host
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise EgressRefused(url[:200], "it is not a URL", allowable=False) from error
        _check_scheme(parsed.scheme, host)
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        if not host:
            raise EgressRefused(url[:200], "it names no host", allowable=False)
        if self.allows(host, port):
            return
        literal = _literal(host)
        why = why_refused(literal) if literal is not None else None
        if why is None and (_plain(host) == "localhost" or _plain(host).endswith(".localhost")):
            why = "it is this machine"
        if why is not None:
            raise EgressRefused(host, why)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the checked addresses of a host. Connect to one of them directly, without resolving the
        name again.

        Raise EgressRefused if any of them is not allowed: a name with both a public and a private address
        is an attack. Raise OSError if the name does not exist.
        """
        if not host or "%" in host or "/" in host:
            raise EgressRefused(host, "it is not the name of a host", allowable=False)
        literal = _literal(host)
        found = [str(literal)] if literal is not None else list(await self.resolver(host, port))
        if not found:
            raise OSError(f"the name {host} has no address")
        if not self.allows(host, port):
            for text in found:
                _check_address(host, text, written=literal is not None)
        return list(dict.fromkeys(found))[:MAX_ADDRESSES]


def why_refused(address: Address) -> str | None:
    """Why an address is not reached for a tenant, or None where it is public."""
    for reason, network in _REFUSED:
        if address.version == network.version and address in network:
            return f"its address {address} is {reason}"
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.scope_id is not None:
        return f"its address {address} has a zone"
    if address in _NAT64:
        return _embedded(address, int(address) & 0xFFFFFFFF)
    if address in _6TO4:
        return _embedded(address, (int(address) >> 80) & 0xFFFFFFFF)
    return None if address in _GLOBAL_V6 else f"its address {address} is not public"


def _embedded(address: Address, inner: int) -> str | None:
    why = why_refused(ipaddress.IPv4Address(inner))
    return None if why is None else f"{why}, inside of {address}"


def _check_address(host: str, text: str, *, written: bool) -> None:
    """Raise EgressRefused if the address is not public.

    A tenant that wrote the address itself is told what is wrong with it. The address behind a name is written to the
    log only: names of the operator's network must not be resolvable through this service.
    """
    try:
        address = ipaddress.ip_address(text)
        why = why_refused(address)
    except ValueError as error:
        raise EgressRefused(host, NOT_PUBLIC) from error
    if why is None:
        return
    if written:
        raise EgressRefused(host, why)
    log.warning("egress.address_refused", address=str(address).partition("%")[0], tenant=_tenant.get())
    raise EgressRefused(host, NOT_PUBLIC)


def _literal(host: str) -> Address | None:
    """Return the address that a host spells, in any spelling that a resolver accepts: 127.1, 0x7f000001,
    0177.0.0.1, [::1]."""
    plain = host.rstrip(".").removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(plain)
    except ValueError:
        pass
    if not plain.isascii() or not plain[:1].isdigit() or any(character.isspace() for character in plain):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(plain))
    except OSError:
        return None


def _plain(host: str) -> str:
    literal = _literal(host)
    return str(literal) if literal is not None else host.rstrip(".").lower()


def _allowed_form(entry: str) -> str:
    """Return the form in which exceptions are compared: the host, or the host, a space and the port."""
    text = entry.strip()
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if rest.startswith(":") else rest
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if not host or "/" in host or "*" in host or (port and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise ValueError(f"{entry!r} is not a host or host:port")
    return f"{_plain(host)} {int(port)}" if port else _plain(host)


def _check_scheme(scheme: str, host: str) -> None:
    if scheme not in ("http", "https"):
        raise EgressRefused(host, f"the scheme {scheme[:20]!r} is neither http nor https", allowable=False)


class _MeasuredBackend:
    """The network below a connection pool, whose connections bound the heads of responses."""

    def __init__(self) -> None:
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(self, host: str, port: int, *args: Any, **parts: Any) -> Any:
        return _Measured(await self._inner.connect_tcp(host, port, *args, **parts), host)

    async def connect_unix_socket(self, path: str, **_: Any) -> Any:
        raise EgressRefused(path, "it is a unix socket", allowable=False)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _CheckedBackend(_MeasuredBackend):
    """The network below a connection pool."""

    def __init__(self, policy: EgressPolicy) -> None:
        super().__init__()
        self._policy = policy

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Any:
        """Connect to the first checked address that answers; each gets its share of the time that is left."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        addresses = await self._resolve(host, port, deadline)
        for left in range(len(addresses), 0, -1):
            share = None if deadline is None else max(0.001, (deadline - loop.time()) / left)
            try:
                return _Measured(
                    await self._inner.connect_tcp(
                        addresses[-left], port, share, local_address, socket_options
                    ),
                    host,
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if left == 1:
                    raise
        raise httpcore2.ConnectError(f"the name {host} has no address")

    async def _resolve(self, host: str, port: int, deadline: float | None) -> list[str]:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._policy.addresses(host, port)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"resolving {host} took too long") from error
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"the name {host} cannot be resolved") from error


_head_bytes_left: ContextVar[list[int] | None] = ContextVar("head_bytes_left", default=None)
"""Of the request that is under way, until its answer has a body."""


class _Measured:
    """A connection of a pool. It reads a bounded number of bytes in front of the body of an answer."""

    def __init__(self, inner: Any, host: str) -> None:
        self._inner = inner
        self._host = host
        self.write = inner.write
        self.aclose = inner.aclose
        self.get_extra_info = inner.get_extra_info

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = _head_bytes_left.get()
        data: bytes = await self._inner.read(
            max_bytes if left is None else min(max_bytes, HEAD_READ_BYTES), timeout
        )
        if left is not None:
            left[0] -= len(data)
            if left[0] < 0:
                why = f"its answer begins with more than {MAX_HEAD_BYTES} bytes of headers"
                raise EgressRefused(self._host, why, allowable=False)
        return data

    async def start_tls(self, *args: Any, **parts: Any) -> _Measured:
        return _Measured(await self._inner.start_tls(*args, **parts), self._host)


async def _answered(answer: Awaitable[T]) -> T:
    """Return the response to a request, up to its body. What precedes the body is bounded."""
    before = _head_bytes_left.set([MAX_HEAD_BYTES])
    try:
        return await answer
    finally:
        _head_bytes_left.reset(before)


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of an answer, up to a number of bytes."""

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
                raise EgressRefused(self._host, why, allowable=False)
            if self._pieces_left % PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._left < 0:
                raise EgressRefused(
                    self._host, f"its answer is larger than {self._limit} bytes", allowable=False
                )
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _bound(response: Any, host: str, limit: int | None) -> None:
    """Bound the body. A compressed one is refused, as nobody asked for it and its size says nothing."""
    if limit is None:
        return
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        await response.aclose()
        raise EgressRefused(host, "its answer is compressed, which nobody asked for", allowable=False)
    response.stream = _BoundedStream(response.stream, host, limit)


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """Return the one context of the process: loading the certificates takes 25 ms."""
    return httpx2.create_ssl_context(trust_env=False)


def _pool(backend: Any, keepalive: int, connections: int | None = None) -> Any:
    """Return a connection pool, by default without a limit on connections: tenants share it, and one tenant whose requests
    hang could use up a limit."""
    return httpcore2.AsyncConnectionPool(
        ssl_context=_ssl_context(),
        max_connections=connections,
        max_keepalive_connections=keepalive,
        keepalive_expiry=KEEPALIVE_S,
        network_backend=backend,
    )


class EgressTransport(httpx2.AsyncHTTPTransport):
    """The transport of httpx2 with checked addresses and bounded responses."""

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        max_response_bytes: int | None = MAX_RESPONSE_BYTES,
        keepalive: int = KEEPALIVE_CONNECTIONS,
    ) -> None:
        """`keepalive` is how many idle connections are kept. A caller that passes None for `max_response_bytes` bounds
        responses itself."""
        # The base class would build a pool of its own, which takes no network backend; all else is inherited.
        self._pool = _pool(_CheckedBackend(policy), keepalive)
        self._limit = max_response_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        _check_scheme(request.url.scheme, request.url.host)
        response = await _answered(super().handle_async_request(request))
        await _bound(response, request.url.host, self._limit)
        return response


class OpenTransport(EgressTransport):
    """A transport for addresses that no tenant chose. It does not check them, but bounds the head of a response. The caller
    bounds the body."""

    def __init__(self, *, keepalive: int, connections: int) -> None:
        self._pool = _pool(_MeasuredBackend(), keepalive, connections)
        self._limit = None


def no_cookies() -> http.cookiejar.CookieJar:
    return http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=()))


def egress_client(
    policy: EgressPolicy, *, max_response_bytes: int | None = MAX_RESPONSE_BYTES, keep_alive: bool = True
) -> httpx2.AsyncClient:
    """Return a client that any number of tenants may share. Without `keep_alive`, every request has a connection of its
    own; `max_response_bytes` None is for endless streams.

    Its requests raise EgressRefused besides the errors of httpx2.
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
