"""Which service the commands talk to, with which key, and how what it refuses becomes an exit code."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import typer

from plangate.cli.terminal_text import as_json, escape_lines
from plangate.client import ServiceClient, list_items, path
from plangate.defaults import DEFAULT_PORT, default_data_dir
from plangate.errors import NotFound, PlangateError, ServiceUnavailable, Unauthenticated

SUCCESS: Final = 0
REJECTED: Final = 1  # the service said no, or the command stopped
USAGE: Final = 2  # the command line cannot be used
NOT_SUCCEEDED: Final = 3  # the query failed or was cancelled
NO_ANSWER: Final = 4
INTERRUPTED: Final = 130
PATIENCE_S: Final = 5.0
MAX_PORT: Final = 65_535
KEY_PREFIX_CHARS: Final = 8
"""How much of a rejected key is shown: `plg_` and four characters. Of something shorter than a key, nothing is."""
MIN_KEY_CHARS: Final = 24

TENANT: Final = re.compile("[a-z0-9][a-z0-9_-]{0,62}")


class CommandError(Exception):
    """A command cannot go on; its message says what to do."""

    def __init__(self, message: str, code: int = REJECTED) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Target:
    """A service, the key to use and where it was found, and the tenant if the key is the operator's."""

    url: str
    key: str
    key_from: str
    tenant: str | None

    @classmethod
    def from_options(
        cls, url: str | None, key_file: Path | None, data_dir: Path | None, tenant: str | None
    ) -> Target:
        """Return the target of the options, else of the environment, else of this machine. Raise CommandError."""
        address = url or os.environ.get("PLANGATE_URL") or f"http://127.0.0.1:{_local_port()}"
        if not _is_address(address):
            raise CommandError(f"{address!r} is not an address such as http://127.0.0.1:8700.", USAGE)
        if tenant is not None and not TENANT.fullmatch(tenant):
            raise CommandError(
                f"--tenant: {tenant!r} is not a tenant id: 1 to 63 characters of a-z, 0-9, '-' and '_'.",
                USAGE,
            )
        return cls(address, *_key(address, key_file, data_dir), tenant)

    def describe_key(self) -> str:
        """Return the prefix of the key and where it was found, for the error about a rejected key."""
        prefix = self.key[:KEY_PREFIX_CHARS] if len(self.key) >= MIN_KEY_CHARS else ""
        which = f"begins with {prefix!r} and is from" if prefix else "is from"
        return f"The key that was sent {which} {self.key_from}."


def _local_port() -> int:
    text = os.environ.get("PLANGATE_PORT") or str(DEFAULT_PORT)
    if not (text.isascii() and text.isdecimal() and int(text) <= MAX_PORT):
        raise CommandError(f"PLANGATE_PORT must be a port number from 0 to {MAX_PORT}, not {text!r}.", USAGE)
    return int(text)


def _key(address: str, key_file: Path | None, data_dir: Path | None) -> tuple[str, str]:
    """Return the key and where it was found."""
    if key_file is not None:
        return _read_key(key_file), str(key_file)
    given = os.environ.get("PLANGATE_API_KEY")
    if given and (data_dir is None or not _is_loopback(address)):
        return _check_key(given, "PLANGATE_API_KEY"), "PLANGATE_API_KEY"
    if not _is_loopback(address):  # the operator's key of this machine is for no other one
        raise CommandError(f"A key is needed for {address}: set PLANGATE_API_KEY, or give --key-file.", USAGE)
    kept_in = data_dir or Path(os.environ.get("PLANGATE_DATA_DIR") or default_data_dir())
    try:
        return _read_key(kept_in / "local-key"), str(kept_in / "local-key")
    except CommandError as stop:
        told = "Set PLANGATE_API_KEY, give --key-file, or say with --data-dir where the service of this machine keeps"
        raise CommandError(f"{stop} {told} its data.", USAGE) from stop


def _read_key(file: Path) -> str:
    try:
        return _check_key(file.read_text("utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"There is no key to read in {file} ({type(error).__name__}).", USAGE) from error


def _check_key(text: str, where: str) -> str:
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise CommandError(f"{where} does not hold a key: keys begin with 'plg_'.", USAGE)
    return key


def _is_address(text: str) -> bool:
    """Return whether the text is the address of a service alone: a user name in it would replace the key."""
    try:
        parts = urlsplit(text)
        port = parts.port
        httpx.URL(text)
    except (ValueError, httpx.InvalidURL):  # brackets without an address in them, a port that is none
        return False
    more = "@" in parts.netloc or parts.query or parts.fragment or not text.isprintable() or " " in text
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and not more


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Remote:
    """The service, as commands ask it."""

    def __init__(self, client: ServiceClient) -> None:
        self.client = client

    async def get(self, *segments: str, **params: Any) -> Any:
        given = {name: value for name, value in params.items() if value is not None}
        return await self.client.request("GET", path(*segments), params=given or None, patience_s=PATIENCE_S)

    async def get_bytes(self, *segments: str) -> bytes:
        """Return the bytes of a response."""
        found: bytes = await self.client.request("GET", path(*segments), raw=True, patience_s=PATIENCE_S)
        return found

    async def post(self, body: Any, *segments: str) -> Any:
        return await self.client.request("POST", path(*segments), body, patience_s=PATIENCE_S)

    async def list_items(self, limit: int, *segments: str, **params: Any) -> list[dict[str, Any]]:
        """Return the entries of a list, newest first, over as many pages as needed."""
        return await list_items(self.client, path(*segments), params, limit, PATIENCE_S)


class _OutageHandler(logging.Handler):
    """What the library has to say, for the person who waits."""

    def emit(self, record: logging.LogRecord) -> None:
        _print_error(record.getMessage())


@contextmanager
def print_outages() -> Iterator[None]:
    """While a query is followed: a service that is away may come back, and for minutes nothing else would be said of it."""
    library, said = logging.getLogger("plangate"), _OutageHandler()
    before = library.level
    library.setLevel(logging.INFO)
    library.addHandler(said)
    try:
        yield
    finally:
        library.removeHandler(said)
        library.setLevel(before)


def run(target: Target, command: Callable[[Remote], Awaitable[int]]) -> None:
    """Run a command and exit with its code. Print an error that the user can act on to stderr."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

    async def commanded() -> int:
        client = ServiceClient(target.url, target.key, target.tenant)
        try:
            return await command(Remote(client))
        finally:
            await client.aclose()

    try:
        code = asyncio.run(commanded())
        sys.stdout.flush()
    except CommandError as stop:
        code = fail(str(stop), stop.code)
    except ServiceUnavailable as error:
        code = fail(str(error), NO_ANSWER)
    except Unauthenticated as error:
        code = fail(f"{error}\n  {target.describe_key()}", REJECTED)
    except PlangateError as error:
        nowhere = isinstance(error, NotFound) and error.detail.startswith("There is no such route")
        where = (
            f" {target.url} should be the address of a service alone, and an id has no '/'."
            if nowhere
            else ""
        )
        code = fail(f"{error}{where}", REJECTED)
    except ValueError as error:
        other = any(isinstance(e, UnicodeEncodeError) for e in (error, error.__cause__))
        told = "What is given has to be UTF-8: there are other bytes in it." if other else str(error)
        code = fail(told, USAGE)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # whoever read what we print has seen enough
        silence_stdout()
        code = 128 + signal.SIGPIPE
    except OSError as error:
        silence_stdout()
        code = fail(f"Nothing more can be written: {error.strerror}.", REJECTED)
    raise typer.Exit(code)


def silence_stdout() -> None:
    """Nobody takes what is still to be printed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(message: str, code: int) -> int:
    _print_error(message)
    return code


def _print_error(message: str) -> None:
    for n, line in enumerate(escape_lines(message)):
        typer.echo(f"plangate: {line}" if n == 0 else line, err=True)


def print_lines(*lines: str) -> None:
    for line in lines:
        typer.echo(line)


def print_json(value: Any) -> None:
    typer.echo(as_json(value))
