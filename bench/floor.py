"""The floor: the least that a durable stream costs. No tenants, no keys, no queue, no recovery, no readers elsewhere.

A POST writes a session, a run and its 50 token events in one transaction, then streams them. Same server stack.
"""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import orjson
import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

TOKENS = 50
SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (id text PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS runs (id text PRIMARY KEY, session_id text NOT NULL REFERENCES sessions, prompt text NOT NULL);
CREATE TABLE IF NOT EXISTS events (run_id text NOT NULL, seq int NOT NULL, body bytea NOT NULL, PRIMARY KEY (run_id, seq));
"""


class FloorRequest(BaseModel):
    """The body of a request."""

    prompt: str


def floor(dsn: str) -> FastAPI:
    """Build the application on a database of its own."""
    pools: list[Any] = []

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        async with asyncpg.create_pool(dsn, min_size=10, max_size=10) as pool:
            await pool.execute(SCHEMA)
            pools.append(pool)
            yield

    api = FastAPI(lifespan=life)

    @api.post("/runs")
    async def run(ask: FloorRequest) -> Response:
        session, run_id = uuid.uuid4().hex, uuid.uuid4().hex
        bodies = [orjson.dumps({"seq": n, "type": "text", "text": f"token{n:02d} "}) for n in range(TOKENS)]
        async with pools[0].acquire() as connection, connection.transaction():
            await connection.execute("INSERT INTO sessions (id) VALUES ($1)", session)
            await connection.execute("INSERT INTO runs VALUES ($1, $2, $3)", run_id, session, ask.prompt)
            await connection.execute(
                "INSERT INTO events SELECT $1, n, b FROM unnest($2::bytea[]) WITH ORDINALITY AS e(b, n)",
                run_id,
                bodies,
            )

        async def frames() -> AsyncIterator[bytes]:
            for body in bodies:
                yield b"event: text\ndata: %s\n\n" % body
            yield b"event: finish\ndata: {}\n\n"

        return StreamingResponse(frames(), media_type="text/event-stream")

    return api


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"The floor listens on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        floor(sys.argv[1]), log_config=None, access_log=False, loop="uvloop", http="httptools"
    )
    uvicorn.Server(config).run(sockets=[listening])
