"""Addresses of clients, as they are counted."""

from __future__ import annotations

import functools
import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
MAX_NAME_CHARS: Final = 64


def parse_address(host: str) -> Address | None:
    """Return the address that a text names, an IPv4 address mapped to IPv6 as the former; None if it names none."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


@functools.lru_cache(maxsize=4096)
def peer_of(host: str) -> str:
    """Return whom an address is counted as: an IPv4 address alone, IPv6 by its /64, which one machine may have."""
    address = parse_address(host)
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host[:MAX_NAME_CHARS] if address is None else str(address)
