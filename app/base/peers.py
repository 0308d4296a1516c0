"""Client addresses, and the peers they are counted as."""

from __future__ import annotations

import functools
import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
MAX_PEER_CHARS: Final = 64


def parse_address(host: str) -> Address | None:
    """Return the IP address in `host`, an IPv4-mapped IPv6 address as IPv4, or None if it is not an
    address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


@functools.lru_cache(maxsize=4096)
def peer_for_host(host: str) -> str:
    """Return the peer that an address is counted as.

    Each IPv4 address is a peer. An IPv6 address counts by its /64, because one machine may own a whole /64.
    """
    address = parse_address(host)
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host[:MAX_PEER_CHARS] if address is None else str(address)
