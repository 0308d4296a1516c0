"""The user's side: an HTTP endpoint on loopback that gives every call the same response, as cheaply as
possible."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import uvloop

HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"


class _Connection(asyncio.Protocol):
    """A kept-alive connection. It reads a request to its end and responds by path; bodies are discarded."""

    def __init__(self, answers: Mapping[bytes, bytes]) -> None:
        self._answers = answers
        self._head = b""
        self._left = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head += data
            head, end, data = self._head.partition(HEAD_END)
            if not end:
                return
            self._head = head
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(LENGTH)]
            self._left = int(lengths[0].removeprefix(LENGTH))
        self._left -= len(data)
        if not self._left:
            path, self._head = self._head.split(b" ", 2)[1], b""
            assert self._transport is not None
            self._transport.write(self._answers[path])


def _response(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@contextmanager
def endpoint(answers: Mapping[str, bytes]) -> Iterator[int]:
    """Serve JSON by path in a thread while the block runs; yield the port."""
    ready: list[int] = []
    up, over = threading.Event(), asyncio.Event()
    loop = uvloop.new_event_loop()
    prepared = {path.encode(): _response(body) for path, body in answers.items()}

    async def serve() -> None:
        server = cast(asyncio.Server, await loop.create_server(lambda: _Connection(prepared), "127.0.0.1", 0))
        ready.append(server.sockets[0].getsockname()[1])
        up.set()
        await over.wait()
        server.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    up.wait()
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
