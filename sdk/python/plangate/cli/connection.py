"""The connection of commands: address, key, and exit codes of rejected requests."""

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
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import typer

from plangate.cell_urls import parse_cell_urls
from plangate.cli.terminal_text import as_json, escape_lines
from plangate.defaults import DEFAULT_PORT, default_data_dir
from plangate.errors import NotFound, PlangateError, ServiceUnavailable, Unauthenticated
from plangate.lazy_import import lazy_module

if TYPE_CHECKING:
    import httpx

    from plangate import client as http
else:  # `plangate --help` sends no request, and the HTTP client is a third of its time
    httpx = lazy_module("httpx")
    http = lazy_module("plangate.client")

SUCCESS: Final = 0
REJECTED: Final = 1  # the service said no, or the command stopped
USAGE: Final = 2  # the command line cannot be used
NOT_SUCCEEDED: Final = 3  # the query failed or was canceled
NO_ANSWER: Final = 4
INTERRUPTED: Final = 130
PATIENCE_S: Final = 5.0
MAX_PORT: Final = 65_535
KEY_PREFIX_CHARS: Final = 8
"""How much of a rejected key is shown: `plg_` and four characters. Of something shorter than a key, nothing is."""
MIN_KEY_CHARS: Final = 24

TENANT: Final = re.compile("[a-z0-9][a-z0-9_-]{0,62}")


class CommandError(Exception):
    """A command cannot continue; its message says what to do."""

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
    present = os.environ.get("PLANGATE_API_KEY")
    if present and (data_dir is None or not _is_loopback(address)):
        return _check_key(present, "PLANGATE_API_KEY"), "PLANGATE_API_KEY"
    if not _is_loopback(address):  # the operator's key of this machine is for no other one
        raise CommandError(f"A key is needed for {address}: set PLANGATE_API_KEY, or give --key-file.", USAGE)
    folder = data_dir or Path(os.environ.get("PLANGATE_DATA_DIR") or default_data_dir())
    try:
        return _read_key(folder / "local-key"), str(folder / "local-key")
    except CommandError as stop:
        message = "Set PLANGATE_API_KEY, give --key-file, or say with --data-dir where the service of this machine keeps"
        raise CommandError(f"{stop} {message} its data.", USAGE) from stop


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
    """The service, as commands call it. `wants_json`: print JSON, for programs."""

    def __init__(self, client: http.ServiceClient, *, wants_json: bool) -> None:
        self.client = client
        self.wants_json = wants_json

    def print_answer(self, answer: Any, text: str) -> None:
        """Print an answer: as JSON, or the text for people."""
        if self.wants_json:
            print_json(answer)
        else:
            print_lines(text)

    async def get(self, *segments: str, **params: Any) -> Any:
        present = {name: value for name, value in params.items() if value is not None}
        return await self.client.request(
            "GET", http.path(*segments), params=present or None, patience_s=PATIENCE_S
        )

    async def get_bytes(self, *segments: str) -> bytes:
        """Return the bytes of a response."""
        data: bytes = await self.client.request("GET", http.path(*segments), raw=True, patience_s=PATIENCE_S)
        return data

    async def post(self, body: Any, *segments: str) -> Any:
        return await self.client.request("POST", http.path(*segments), body, patience_s=PATIENCE_S)

    async def list_items(self, limit: int, *segments: str, **params: Any) -> list[dict[str, Any]]:
        """Return the entries of a list, newest first, over as many pages as needed."""
        return await http.list_items(self.client, http.path(*segments), params, limit, PATIENCE_S)


class _OutageHandler(logging.Handler):
    """Prints messages of the library for a waiting person."""

    def emit(self, record: logging.LogRecord) -> None:
        _print_error(record.getMessage())


@contextmanager
def print_outages() -> Iterator[None]:
    """Print outages while a query is followed, because the library otherwise waits silently for minutes."""
    library, handler = logging.getLogger("plangate"), _OutageHandler()
    before = library.level
    library.setLevel(logging.INFO)
    library.addHandler(handler)
    try:
        yield
    finally:
        library.removeHandler(handler)
        library.setLevel(before)


def run(target: Target, command: Callable[[Remote], Awaitable[int]], *, wants_json: bool) -> None:
    """Run a command and exit with its code. Print an error that the user can act on to stderr."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

    async def call() -> int:
        client = http.ServiceClient(target.url, target.key, target.tenant, cell_urls=parse_cell_urls(None))
        try:
            return await command(Remote(client, wants_json=wants_json))
        finally:
            await client.aclose()

    try:
        code = asyncio.run(call())
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
        message = "What is given has to be UTF-8: there are other bytes in it." if other else str(error)
        code = fail(message, USAGE)
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
    """Discard remaining output after its reader has gone."""
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
