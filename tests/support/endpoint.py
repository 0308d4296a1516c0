"""A user's HTTP endpoint on loopback: it records requests and returns scripted responses."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What is sent back; `cut` closes the connection without a byte, `wait` holds it until the test ends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    wait: bool = False


def output(value: Any) -> Answer:
    return Answer(body=json.dumps({"output": value}).encode())


def error(message: str) -> Answer:
    return Answer(body=json.dumps({"error": message}).encode())


class Endpoint:
    """`answer` decides; `received` is what came, in order."""

    def __init__(self, answer: Callable[[Received], Answer]) -> None:
        self._answer = answer
        self.received: list[Received] = []
        self.came = asyncio.Event()
        self._ended = asyncio.Event()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def aclose(self) -> None:
        self._ended.set()
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                pairs = (line.split(":", 1) for line in head[1:] if line)
                headers = {name.lower(): value.strip() for name, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                one = Received(head[0].split(" ")[1], headers, body)
                self.received.append(one)
                answer = self._answer(one)
                self.came.set()
                if answer.wait:
                    await self._ended.wait()
                if answer.cut or answer.wait:
                    break
                writer.write(_bytes(answer))
                await writer.drain()
        writer.close()


def _bytes(answer: Answer) -> bytes:
    headers = {"content-length": str(len(answer.body)), **answer.headers}
    lines = [f"HTTP/1.1 {answer.status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + answer.body


@contextlib.asynccontextmanager
async def endpoint(*answers: Answer | Callable[[Received], Answer]) -> AsyncIterator[Endpoint]:
    """Gives these answers in turn, the last one for ever."""
    left = list(answers)

    def next_answer(received: Received) -> Answer:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer(received) if callable(answer) else answer

    running = Endpoint(next_answer)
    await running.start()
    try:
        yield running
    finally:
        await running.aclose()
