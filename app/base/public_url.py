"""The address at which clients reach the service: through a reverse proxy, and perhaps below a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

from app.base.peers import parse_address

_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True)
class PublicUrl:
    """`origin` is scheme and host; `path` is the prefix of all paths, without a slash at its end, or empty."""

    origin: str
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the parts of an address such as https://example.com/plangate. Raise ValueError."""
        parts = urlsplit(text)
        path = parts.path.rstrip("/")
        steps = path.split("/")
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or "@" in parts.netloc
            or parts.query
            or parts.fragment
            or not _PREFIX.fullmatch(path)
            or {".", ".."} & set(steps)
            or parts.port == 0
        ):
            raise ValueError("must be an address such as https://example.com or https://example.com/plangate")
        return cls(f"{parts.scheme}://{parts.netloc.lower()}", path)

    @property
    def is_loopback(self) -> bool:
        return is_loopback_host(urlsplit(self.origin).netloc)

    def __str__(self) -> str:
        return self.origin + self.path


def is_loopback_host(host: str) -> bool:
    """Return whether a host, with or without a port as in a Host header, names the machine of the client itself."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    address = parse_address(name)
    if address is None:
        return name == "localhost" or name.endswith(".localhost")
    return address.is_loopback
