"""Which hosts and addresses may be called: the checks of egress, and the lookup of names with a share for each tenant.

egress.py has the transport that applies them to every connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import idna

from app.base.logs.structured import structlog
from app.base.shares import TenantShares
from app.base.threads import run_in_thread

log = structlog.get_logger(__name__)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a name and a port to the addresses of the name. Raises OSError where there is none."""

MAX_ADDRESSES: Final = 6
"""How many addresses of one name are tried."""

DNS_LOOKUPS: Final = 256
TENANT_DNS_LOOKUPS: Final = 32
"""Names that are looked up at once, of all tenants and of one. A tenant's name server may never answer."""

NOT_PUBLIC: Final = "its address is not public"

_V4_DENIED: Final = (
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
_V6_DENIED: Final = (
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
_DENIED: Final = tuple(
    (reason, ipaddress.ip_network(network)) for reason, network in (*_V4_DENIED, *_V6_DENIED)
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4: Final = ipaddress.IPv6Network("2002::/16")
_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")


class EgressDenied(Exception):
    """The request is not sent, or its response is not read further.

    The message names the host and the reason and, if the operator can allow it, the setting.
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

        def resolve() -> list[Any]:
            try:
                return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            finally:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._shares.release, tenant)

        try:
            addresses = await run_in_thread(resolve)
        except RuntimeError as error:  # of the thread, which did not start; a lookup raises none
            self._shares.release(tenant)
            raise OSError("no thread can be started to look the name up") from error
        return [str(entry[4][0]) for entry in addresses]


system_resolver: Final = Lookups()
"""The addresses that the operating system knows, in its order of preference."""


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """The hosts that may be called. `allow_hosts` are the operator's exceptions, as `host` or `host:port`.

    An exception names a host as it stands in the URL: allowing `localhost` does not allow `127.0.0.1`, and a
    port in it allows that port only. IPv6 addresses are written `[::1]` or `[::1]:8080`.
    """

    allow_hosts: frozenset[str] = frozenset()
    resolver: Resolver = system_resolver

    @classmethod
    def from_hosts(cls, allow_hosts: Iterable[str], *, resolver: Resolver = system_resolver) -> EgressPolicy:
        """Read the operator's exceptions. Raises ValueError for what is neither `host` nor `host:port`."""
        return cls(frozenset(_allowed_form(entry) for entry in allow_hosts), resolver)

    def allows(self, host: str, port: int) -> bool:
        """Return whether the operator named this host, or this host with this port."""
        plain = _plain(host)
        return plain in self.allow_hosts or f"{plain} {port}" in self.allow_hosts

    def check_url(self, url: str) -> None:
        """Check what can be checked without resolving a name.

        Raise EgressDenied for a scheme other than http and https, and for an address in the URL, however
        it is spelled, that is not allowed.
        """
        try:
            parsed = httpx2.URL(url)
            host = idna.decode(parsed.host) if "xn--" in parsed.host else parsed.host
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise EgressDenied(url[:200], "it is not a URL", allowable=False) from error
        check_scheme(parsed.scheme, host)
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        if not host:
            raise EgressDenied(url[:200], "it names no host", allowable=False)
        if self.allows(host, port):
            return
        literal = _literal(host)
        why = denial_reason(literal) if literal is not None else None
        if why is None and (_plain(host) == "localhost" or _plain(host).endswith(".localhost")):
            why = "it is this machine"
        if why is not None:
            raise EgressDenied(host, why)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the checked addresses of a host. Connect to one of them directly, without resolving the
        name again.

        Raise EgressDenied if any of them is not allowed: a name with both a public and a private address
        is an attack. Raise OSError if the name does not exist.
        """
        if not host or "%" in host or "/" in host:
            raise EgressDenied(host, "it is not the name of a host", allowable=False)
        literal = _literal(host)
        addresses = [str(literal)] if literal is not None else list(await self.resolver(host, port))
        if not addresses:
            raise OSError(f"the name {host} has no address")
        if not self.allows(host, port):
            for text in addresses:
                _check_address(host, text, is_literal=literal is not None)
        return list(dict.fromkeys(addresses))[:MAX_ADDRESSES]


def denial_reason(address: Address) -> str | None:
    """Why an address is not reached for a tenant, or None where it is public."""
    for reason, network in _DENIED:
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
    why = denial_reason(ipaddress.IPv4Address(inner))
    return None if why is None else f"{why}, inside of {address}"


def _check_address(host: str, text: str, *, is_literal: bool) -> None:
    """Raise EgressDenied if the address is not public.

    A tenant that wrote the address itself learns what is wrong with it. The address behind a name is written to the
    log only: names of the operator's network must not be resolvable through this service.
    """
    try:
        address = ipaddress.ip_address(text)
        why = denial_reason(address)
    except ValueError as error:
        raise EgressDenied(host, NOT_PUBLIC) from error
    if why is None:
        return
    if is_literal:
        raise EgressDenied(host, why)
    log.warning("egress.address_refused", address=str(address).partition("%")[0], tenant=_tenant.get())
    raise EgressDenied(host, NOT_PUBLIC)


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


def check_scheme(scheme: str, host: str) -> None:
    if scheme not in ("http", "https"):
        raise EgressDenied(host, f"the scheme {scheme[:20]!r} is neither http nor https", allowable=False)
