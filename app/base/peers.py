"""Client addresses and the peers that they count as."""

from __future__ import annotations

import functools
import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
MAX_PEER_CHARS: Final = 64


def parse_address(host: str) -> Address | None:
    """Parse an IP address, with an IPv4 address that is mapped to IPv6 as IPv4. Return None if the text is no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


@functools.lru_cache(maxsize=4096)
def peer_for_host(host: str) -> str:
    """Return the peer that an address counts as: each IPv4 address is one; IPv6 addresses count by their /64, because one
    machine may have a whole /64."""
    address = parse_address(host)
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host[:MAX_PEER_CHARS] if address is None else str(address)
