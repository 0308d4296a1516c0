"""Reading streams as a client sees their frames."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from starlette.types import Message

from app.api.http import create_app
from app.journal.event_stream import EventStream, KeyCheck
from app.journal.models import EventFilter
from tests.support.client import eventually
from tests.support.world import World


@dataclass(frozen=True)
class Frame:
    """One event of a stream. `data` is the text on the wire."""

    id: str
    event: str
    data: str

    @property
    def envelope(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.data)
        return found


def frames(text: str) -> list[Frame]:
    """The frames of a whole stream, by the rules of the format: lines end with LF, CR or CR LF, and nothing else."""
    out: list[Frame] = []
    fields: dict[str, str] = {}
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if line == "":
            if "data" in fields:
                out.append(Frame(fields.get("id", ""), fields.get("event", ""), fields["data"]))
            fields = {}
            continue
        if line.startswith(":"):
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
    return out


async def always() -> bool:
    return True


KEY = KeyCheck(b"a key", always)


class Reading:
    """A client that reads a stream, without HTTP. It may stop reading: `reads.clear()`."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self.body = b""
        self.ended = asyncio.Event()
        """Set with the last bytes."""
        self.reads = asyncio.Event()
        self.reads.set()
        self._moved = asyncio.Event()
        self._task = asyncio.create_task(stream.run(self._receive, self._send))

    async def _receive(self) -> Message:
        await self.ended.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if not self.reads.is_set():
            await self.reads.wait()
        self.body += message["body"]
        self._moved.set()
        if not message["more_body"]:
            self.ended.set()

    @property
    def frames(self) -> list[Frame]:
        return frames(self.body.decode())

    async def until(self, holds: Callable[[bytes], bool], patience_s: float = 10) -> bytes:
        """What has arrived once that holds."""
        async with asyncio.timeout(patience_s):
            while not holds(self.body):
                self._moved.clear()
                await self._moved.wait()
        return self.body

    async def end(self, patience_s: float = 10) -> list[Frame]:
        """All frames, once the stream has ended."""
        async with asyncio.timeout(patience_s):
            await self._task
        assert self.ended.is_set()
        return self.frames

    async def close(self) -> list[Frame]:
        """Disconnect; gives the frames that arrived."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return self.frames


def open_query(world: World, query_id: str, after: int = 0, *types: str) -> Reading:
    stream = world.services.streams.query_stream(("acme", query_id), after, KEY, types or None)
    return Reading(stream)


async def open_tenant(world: World, after: str | None, *types: str, key: KeyCheck = KEY) -> Reading:
    streams = world.services.streams
    async with world.services.db.transaction("acme") as tx:
        position = await streams.reader.tenant_position(tx, after)
    return Reading(streams.tenant_stream("acme", position, key, EventFilter(types or None)))


async def follow(
    world: World, query_id: str, after: int = 0, *types: str, patience_s: float = 10
) -> list[Frame]:
    """A query's stream from a position to its end, without HTTP."""
    return await open_query(world, query_id, after, *types).end(patience_s)


@contextlib.asynccontextmanager
async def served(world: World) -> AsyncIterator[str]:
    """The world's application behind a real socket; gives its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(world.services), log_config=None, lifespan="off", access_log=False)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await eventually(lambda: asyncio.sleep(0, server.started), "uvicorn listens")
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listening.close()


@contextlib.asynccontextmanager
async def wire(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the world's application over a real socket, under the operator's key at work for `acme`."""
    async with (
        served(world) as address,
        httpx.AsyncClient(base_url=address, headers=world.api.headers, timeout=20, trust_env=False) as client,
    ):
        yield client
