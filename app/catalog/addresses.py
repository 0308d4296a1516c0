"""The address of a Postgres source: the accepted parts of a URL. Pure.

A library that connects reads much more from a URL: several hosts, sockets, files with passwords and keys,
services, options of the session. Only what is named here reaches it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, cast
from urllib.parse import parse_qsl, unquote, urlsplit

SslMode = Literal["disable", "prefer", "require", "verify-full"]

SSL_MODES: Final = ("disable", "prefer", "require", "verify-full")
DEFAULT_PORT: Final = 5432


class AddressRejected(ValueError):
    """A URL that is not the address of a Postgres source. The message does not repeat the URL."""


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """One host, over TCP."""

    host: str
    port: int
    database: str
    user: str
    password: str
    ssl_mode: SslMode


def parse_address(url: str) -> PostgresAddress:
    """Return the parts of `postgresql://user:password@host:port/database?sslmode=...`. Raise AddressRejected."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise AddressRejected("it is not a URL: percent-encode special characters of the password") from error
    if parts.scheme not in ("postgresql", "postgres"):
        raise AddressRejected("it does not begin with postgresql://")
    if "," in parts.netloc.rpartition("@")[2]:
        raise AddressRejected("it names several hosts: name exactly one")
    if not host or "/" in unquote(host) or unquote(host) != host:
        raise AddressRejected("it names no host: sockets are not allowed")
    if parts.fragment:
        raise AddressRejected("it has a fragment: percent-encode '#' in the password")
    unknown = sorted({name for name, _ in query} - {"sslmode"})
    if unknown:
        raise AddressRejected(
            f"the parameter {unknown[0][:50]!r} is not allowed: a source has host, port, database, user, "
            "password and sslmode"
        )
    if len(query) > 1:
        raise AddressRejected("sslmode occurs twice")
    mode = query[0][1] if query else "prefer"
    if mode not in SSL_MODES:
        raise AddressRejected(f"sslmode is {mode[:20]!r}; it must be one of: {', '.join(SSL_MODES)}")
    database, user = unquote(parts.path.removeprefix("/")), unquote(parts.username or "")
    if not database or "/" in database or not user:
        raise AddressRejected("it must name a user and a database")
    password = unquote(parts.password or "")
    if "\0" in database + user + password:
        raise AddressRejected("it contains NUL")
    return PostgresAddress(host, port or DEFAULT_PORT, database, user, password, cast(SslMode, mode))
