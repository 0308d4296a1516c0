"""Reading streams as a client sees their frames."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from app.api.http import create_app
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


async def follow(
    world: World, query_id: str, after: int = 0, *types: str, patience_s: float = 10
) -> list[Frame]:
    """A query's stream from a position to its end, without HTTP."""
    out: list[bytes] = []
    async with asyncio.timeout(patience_s):
        async for chunk in world.services.streams.sse("acme", query_id, after, types or None, always):
            out.append(chunk)
    return frames(b"".join(out).decode())


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
