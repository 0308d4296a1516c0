"""The floor of a streamed run: the least that a durable stream of a model's tokens costs.

A POST writes a session and a run, reads the model over HTTP with an asyncio Protocol, httptools and orjson, and sends
each token once it is committed. One writer commits what arrived from all models since its last commit. No tenants,
no keys, no recovery, no usage, no readers elsewhere. Same server stack as the service.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
import httptools
import orjson
import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from bench.floor import SCHEMA
from bench.model import ANTHROPIC_PATH, OPENAI_PATH

END = b"event: finish\ndata: {}\n\n"


class FloorRequest(BaseModel):
    """The body of a request."""

    prompt: str


class Run:
    """A run in progress: `frames` are committed and not sent yet."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.seq = 0
        self.frames: list[bytes] = []
        self.is_over = False
        self.wake = asyncio.Event()


class Writer:
    """Commits what arrived since its last commit, then hands it to the runs."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._pending: list[tuple[Run, int, bytes | None]] = []
        self._has_work = asyncio.Event()

    def add(self, run: Run, text: str | None) -> None:
        """Add a token, or the end of the run."""
        body = None
        if text is not None:
            run.seq += 1
            body = orjson.dumps({"seq": run.seq, "type": "text", "text": text})
        self._pending.append((run, run.seq, body))
        self._has_work.set()

    async def work(self) -> None:
        async with self._pool.acquire() as connection:
            insert = await connection.prepare(
                "INSERT INTO events SELECT * FROM unnest($1::text[], $2::int[], $3::bytea[])"
            )
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                batch, self._pending = self._pending, []
                rows = [row for row in batch if row[2] is not None]
                await insert.fetch(
                    [run.id for run, _, _ in rows], [seq for _, seq, _ in rows], [body for _, _, body in rows]
                )
                for run, _, body in batch:
                    if body is None:
                        run.is_over = True
                        run.frames.append(END)
                    else:
                        run.frames.append(b"event: text\ndata: %s\n\n" % body)
                    run.wake.set()


class ModelConnection(asyncio.Protocol):
    """A kept-alive connection to the model, one response at a time."""

    def __init__(self, writer: Writer, idle: list[ModelConnection]) -> None:
        self._writer = writer
        self._idle = idle
        self._transport: asyncio.Transport | None = None
        self._run: Run | None = None
        self._parser: Any = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only

    def send(self, run: Run, request: bytes) -> None:
        assert self._transport is not None
        self._run, self._rest = run, b""
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        assert self._run is not None
        *lines, self._rest = (self._rest + body).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                text = token(orjson.loads(line[6:]))
                if text:
                    self._writer.add(self._run, text)

    def on_message_complete(self) -> None:
        assert self._run is not None
        self._writer.add(self._run, None)
        self._idle.append(self)


def token(event: Any) -> str | None:
    """Return the text of an event of either protocol."""
    if "choices" in event:
        choices = event["choices"]
        return choices[0]["delta"].get("content") if choices else None
    return event["delta"]["text"] if event["type"] == "content_block_delta" else None


def model_request(port: int, path: str, prompt: str) -> bytes:
    """Return the request for a streamed turn."""
    messages = [{"role": "user", "content": prompt}]
    body = orjson.dumps({"model": "m", "max_tokens": 1000, "messages": messages, "stream": True})
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def floor(dsn: str, model_port: int) -> FastAPI:
    """Build the application on a database of its own."""
    pools: list[Any] = []
    writers: list[Writer] = []
    idle: list[ModelConnection] = []

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        async with asyncpg.create_pool(dsn, min_size=10, max_size=10) as pool:
            await pool.execute(SCHEMA)
            pools.append(pool)
            writers.append(Writer(pool))
            work = asyncio.create_task(writers[0].work())
            yield
            work.cancel()
            await asyncio.wait([work])

    api = FastAPI(lifespan=life)

    async def respond(prompt: str, path: str) -> Response:
        run = Run()
        session = uuid.uuid4().hex
        async with pools[0].acquire() as connection, connection.transaction():
            await connection.execute("INSERT INTO sessions (id) VALUES ($1)", session)
            await connection.execute("INSERT INTO runs VALUES ($1, $2, $3)", run.id, session, prompt)
        if idle:
            model = idle.pop()
        else:
            loop = asyncio.get_running_loop()
            _, model = await loop.create_connection(
                lambda: ModelConnection(writers[0], idle), "127.0.0.1", model_port
            )
        model.send(run, model_request(model_port, path, prompt))

        async def frames() -> AsyncIterator[bytes]:
            while not run.is_over:
                await run.wake.wait()
                run.wake.clear()
                sent, run.frames = run.frames, []
                yield b"".join(sent)

        return StreamingResponse(frames(), media_type="text/event-stream")

    @api.post("/openai/runs")
    async def openai(ask: FloorRequest) -> Response:
        return await respond(ask.prompt, OPENAI_PATH)

    @api.post("/anthropic/runs")
    async def anthropic(ask: FloorRequest) -> Response:
        return await respond(ask.prompt, ANTHROPIC_PATH)

    return api


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"The floor listens on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        floor(sys.argv[1], int(sys.argv[2])),
        log_config=None,
        access_log=False,
        loop="uvloop",
        http="httptools",
    )
    uvicorn.Server(config).run(sockets=[listening])
