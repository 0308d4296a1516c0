"""Checks of outgoing transports: address and headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from plangate.spec.base import SpecModel
from plangate.spec.problems import Step

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?")
_RESERVED_HEADERS: Final = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "keep-alive",
        "last-event-id",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_RESERVED_PREFIXES: Final = ("webhook-", "mcp-")


def transport_problems(transport: SpecModel) -> Iterator[tuple[tuple[Step, ...], str]]:
    """Return the place of each problem in the transport, and what to do about it."""
    url = getattr(transport, "url", None)
    if url is not None:
        why = _url_problem(url)
        if why is not None:
            yield ("url",), why
    names: set[str] = set()
    for name, value in getattr(transport, "headers", {}).items():
        lower = name.lower()
        if not _HEADER_NAME.fullmatch(name):
            yield ("headers", name), f"{name!r} is not the name of a header"
        elif lower in _RESERVED_HEADERS or lower.startswith(_RESERVED_PREFIXES):
            yield ("headers", name), f"the service writes the header {name!r} itself: remove it"
        elif lower in names:
            yield ("headers", name), f"the header {name!r} stands here twice: keep one"
        elif isinstance(value, str) and not is_header_value(value):
            yield ("headers", name), f"the value of the header {name!r} has characters that no header carries"
        names.add(lower)


def is_header_value(value: str) -> bool:
    """Return whether a header can carry this text: visible ASCII, with blanks and tabs only inside."""
    return _HEADER_VALUE.fullmatch(value) is not None


def _url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return f"{url[:200]!r} is not a URL"
    if parts.scheme not in ("http", "https") or not host:
        return f"{url[:200]!r} is not an address that begins with http:// or https:// and names a host"
    if parts.username is not None or parts.password is not None:
        return "an address holds no name or password: use a header with a secret"
    return "an address has no fragment: remove what stands after '#'" if parts.fragment else None
