"""Connect to the server that takes writes, where an address names several.

`postgresql://user@pg1:5432,pg2:5432/plangate` names the servers of one cluster, of which one is the primary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

NEXT_HOST_S: Final = 0.5
"""Seconds after which the next server is tried as well: one that is down may not even reject a connection."""

Accept = Callable[[Any], Awaitable[None]]
"""Raises an error if a connection must not be used."""

_last_primaries: dict[str, str] = {}


def primary_address(dsn: str) -> str:
    """Return the address with `target_session_attrs`, for drivers and programs that choose the server themselves."""
    parts = urlsplit(dsn)
    if "," not in parts.netloc or "target_session_attrs=" in parts.query:
        return dsn
    query = f"{parts.query}&target_session_attrs=read-write".lstrip("&")
    return urlunsplit(parts._replace(query=query))


def server_addresses(dsn: str) -> list[str]:
    """Return an address for each server that the address names."""
    parts = urlsplit(primary_address(dsn))
    user, at, servers = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{user}{at}{server}")) for server in servers.split(",")]


async def connect(dsn: str, *, timeout: float, accept: Accept | None = None, **options: Any) -> Any:
    """Return a connection of asyncpg to the server that takes writes, within `timeout` seconds.

    The server that was the primary last is tried first, and the next one as soon as an attempt fails or takes long.
    """

    async def attempt(address: str) -> Any:
        connection = await asyncpg.connect(address, timeout=timeout, **options)
        try:
            if accept is not None:
                await accept(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    servers = server_addresses(dsn)
    if len(servers) == 1:
        return await attempt(dsn)
    last = _last_primaries.get(dsn)
    servers.sort(key=lambda server: server != last)
    attempts: dict[asyncio.Task[Any], str] = {}
    errors: list[BaseException] = []
    try:
        async with asyncio.timeout(timeout):
            while servers or attempts:
                if servers:
                    server = servers.pop(0)
                    attempts[asyncio.create_task(attempt(server), name="connect")] = server
                done, _ = await asyncio.wait(
                    attempts, timeout=NEXT_HOST_S if servers else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    server = attempts.pop(task)
                    if (error := task.exception()) is None:
                        _last_primaries[dsn] = server
                        return task.result()
                    errors.append(error)
    finally:
        for task in attempts:
            task.cancel()
            task.add_done_callback(_discard)
    # A standby rejects every connection; what the others say is the reason.
    reasons = [e for e in errors if not isinstance(e, asyncpg.TargetServerAttributeNotMatched)]
    raise (reasons or errors)[0]


def _discard(attempt: asyncio.Task[Any]) -> None:
    """Close the connection of an attempt that came too late."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().terminate()
