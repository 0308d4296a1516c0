"""Outgoing TCP connections, with or without TLS, as an asyncio Protocol.

A read takes what has arrived, and each connection has one timer, which is set again only when it fires: a timeout of
its own for every read would take longer than parsing what was read. Errors are httpx2's.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import select
import socket
import ssl
from asyncio.staggered import staggered_race
from collections.abc import Sequence
from typing import Any, Final

import httpx2

MAX_UNREAD_BYTES: Final = 256 * 1024
"""Unread data of a connection above which its socket is not read."""

NEXT_ADDRESS_S: Final = 0.25
"""Seconds to wait for an address before the next one is tried as well (RFC 8305)."""


class NetworkConnection(asyncio.Protocol):
    """A TCP connection, with or without TLS. It has one reader and one writer at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._data = b""  # arrived and not read
        self._is_over = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._read_deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_reading_paused = False
        self._can_write = asyncio.Event()
        self._can_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data
        if len(self._data) > MAX_UNREAD_BYTES and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> None:
        self._is_over = True
        self._wake_reader()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over = True
        self._error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake_reader()
        self._can_write.set()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what has arrived, or wait for data; return nothing at the end. Raise ReadTimeout or ReadError."""
        if not self._data and not self._is_over:
            await self._wait_for_data(timeout)
        if not self._data:
            if self._error is not None:
                raise httpx2.ReadError(str(self._error)) from self._error
            if not self._is_over:
                raise httpx2.ReadTimeout("")
            return b""
        data, self._data = self._data[:max_bytes], self._data[max_bytes:]
        if self._is_reading_paused and len(self._data) <= MAX_UNREAD_BYTES:
            self._is_reading_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return data

    async def _wait_for_data(self, timeout: float | None) -> None:
        """Return once there is data, an end, or neither in time."""
        self._reader = self._loop.create_future()
        self._read_deadline = None
        if timeout is not None:
            self._read_deadline = deadline = self._loop.time() + timeout
            if self._timer is not None and self._timer.when() > deadline:
                self._timer.cancel()
                self._timer = None
            if self._timer is None:
                self._timer = self._loop.call_at(deadline, self._check_deadline)
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _check_deadline(self) -> None:
        """Wake the reader if its time is over. Reads since the timer was set have moved the deadline."""
        self._timer = None
        if self._reader is None or self._read_deadline is None:
            return
        if self._loop.time() >= self._read_deadline:
            self._wake_reader()
        else:
            self._timer = self._loop.call_at(self._read_deadline, self._check_deadline)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send the data; wait while too much is buffered. Raise WriteTimeout or WriteError."""
        if not buffer:
            return
        self._raise_if_over()
        self._transport.write(buffer)
        if not self._can_write.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._can_write.wait()
            except TimeoutError as error:
                raise httpx2.WriteTimeout(str(error)) from error
            self._raise_if_over()

    def _raise_if_over(self) -> None:
        if self._error is not None:
            raise httpx2.WriteError(str(self._error)) from self._error
        if self._is_over or self._transport.is_closing():
            raise httpx2.WriteError("the connection is closed")

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> NetworkConnection:
        """Negotiate TLS. Raise ConnectTimeout or ConnectError, and close the connection.

        Whatever arrives before TLS is in use may come from anybody on the way, and must not be read as the server's.
        """
        try:
            self._raise_if_not_silent()
            async with asyncio.timeout(timeout):
                transport = await self._loop.start_tls(
                    self._transport, self, ssl_context, server_hostname=server_hostname
                )
            if transport is None:
                raise ConnectionResetError("the connection was closed during the TLS handshake")
            self._raise_if_not_silent()
        except BaseException as error:
            self._transport.abort()
            if isinstance(error, TimeoutError):
                raise httpx2.ConnectTimeout(str(error)) from error
            if isinstance(error, OSError):
                raise httpx2.ConnectError(str(error)) from error
            raise
        self._transport = transport
        return self

    def _raise_if_not_silent(self) -> None:
        if self._data:
            raise ConnectionResetError("data before the end of the TLS handshake")
        if self._is_over:
            raise ConnectionResetError("the connection was closed before TLS was in use") from self._error

    async def aclose(self) -> None:
        try:
            self._transport.close()
            await asyncio.sleep(0)  # what was written goes out
        finally:
            self._transport.abort()

    def is_reusable(self) -> bool:
        """Return whether an idle connection can be used again: it has not ended, and has no data that nobody requested."""
        if self._data or self._is_over or self._transport.is_closing():
            return False
        poll = select.poll()  # the event loop may not have noticed the end yet
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)


async def open_connection(host: str, port: int, timeout: float | None = None) -> NetworkConnection:
    """Connect to the first address of the host that answers. Raise ConnectTimeout or ConnectError."""
    try:
        async with asyncio.timeout(timeout):
            return await _connect(host, port)
    except TimeoutError as error:
        raise httpx2.ConnectTimeout(str(error)) from error
    except (OSError, UnicodeError) as error:
        raise httpx2.ConnectError(str(error)) from error


async def _connect(host: str, port: int) -> NetworkConnection:
    """Connect to the first address of the host that answers."""
    attempts = [
        functools.partial(_connect_address, address, port) for address in await _addresses(host, port)
    ]
    if len(attempts) == 1:
        return await attempts[0]()
    connection: NetworkConnection | None
    connection, _, errors = await staggered_race(attempts, NEXT_ADDRESS_S)
    if connection is None:
        raise errors[-1] or OSError(f"the name {host} has no address")
    return connection


async def _connect_address(address: str, port: int) -> NetworkConnection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(NetworkConnection, address, port)
    return connection


async def _addresses(host: str, port: int) -> Sequence[str]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(info[4][0]) for info in found))
    return [host]
