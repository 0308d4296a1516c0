"""A scripted MCP server over Streamable HTTP, exact to the byte where it matters."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ADD = {"name": "add", "description": "Adds one", "inputSchema": NUMBER}
JSON_TYPE = {"content-type": "application/json"}
STREAM_TYPE = {"content-type": "text/event-stream"}


@dataclass(frozen=True)
class Reply:
    """`end`: "whole" ends the body, "cut" closes the connection before, "hang" waits until the other side goes."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON_TYPE))
    body: bytes = b""
    end: str = "whole"


@dataclass(frozen=True)
class Asked:
    """A request as it came in; `rpc` is the method of its message, "" without one."""

    method: str
    rpc: str
    headers: dict[str, str]
    message: dict[str, Any]


def result(asked: Asked, value: Any, **parts: Any) -> Reply:
    body = {"jsonrpc": "2.0", "id": asked.message["id"], "result": value}
    return Reply(body=json.dumps(body).encode(), **parts)


def error(asked: Asked, code: int, message: str, **parts: Any) -> Reply:
    body = {"jsonrpc": "2.0", "id": asked.message["id"], "error": {"code": code, "message": message}}
    return Reply(body=json.dumps(body).encode(), **parts)


def event(message: Any, id: str = "") -> bytes:
    return (
        f"{f'id: {id}' if id else ''}\ndata: {json.dumps(message) if message else ''}\n\n".lstrip().encode()
    )


def text(words: str, **parts: Any) -> dict[str, Any]:
    """The result of a tool: one text."""
    return {"content": [{"type": "text", "text": words}], **parts}


class FakeMcp:
    """`tools` is what it lists, `answer` what a call of a tool gives; `on` replaces the answer to a method of the
    protocol, or of HTTP ("GET", "DELETE"). `seen` is everything that came in, `calls` the messages that call a tool."""

    def __init__(self) -> None:
        self.tools: list[dict[str, Any]] = [ADD]
        self.answer: Any = text("done")
        self.version = "2025-06-18"
        self.on: dict[str, Callable[[Asked], Reply]] = {}
        self.seen: list[Asked] = []
        self.called = asyncio.Event()
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [asked.message["params"] for asked in self.seen if asked.rpc == "tools/call"]

    def rpcs(self) -> list[str]:
        """What came in, in order: methods of the protocol, or of HTTP where there was no message."""
        return [asked.rpc or asked.method for asked in self.seen]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    async def stop(self) -> None:
        """Close the connections that clients keep, too."""
        self._server.close()
        for writer in self._serving.values():
            writer.close()
        await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            await self._answer(reader, writer)
        finally:
            del self._serving[task]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                message = json.loads(body) if body else {}
                asked = Asked(head[0].split()[0], message.get("method", ""), headers, message)
                self.seen.append(asked)
                if asked.rpc == "tools/call":
                    self.called.set()
                if not await self._write(self._reply(asked), reader, writer):
                    break
        writer.close()

    def _reply(self, asked: Asked) -> Reply:
        replaced = self.on.get(asked.rpc or asked.method)
        if replaced is not None:
            return replaced(asked)
        if asked.rpc == "initialize":
            answer = {
                "protocolVersion": self.version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"},
            }
            return result(asked, answer, headers={**JSON_TYPE, "mcp-session-id": "session-1"})
        if asked.rpc == "tools/list":
            return result(asked, {"tools": self.tools})
        if asked.rpc == "tools/call":
            return result(asked, self.answer)
        if asked.rpc == "server/discover":
            return error(asked, -32601, "Method not found", status=404)
        if asked.method == "DELETE":
            return Reply(204)
        return Reply(202) if asked.method == "POST" else Reply(405)

    async def _write(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = [f"HTTP/1.1 {reply.status} x", *(f"{k}: {v}" for k, v in reply.headers.items())]
        lines += ["" if reply.status == 204 else "transfer-encoding: chunked", ""]
        writer.write("\r\n".join(line for line in lines[:-1] if line).encode() + b"\r\n\r\n")
        if reply.status != 204:
            if reply.body:
                writer.write(b"%x\r\n%s\r\n" % (len(reply.body), reply.body))
            if reply.end == "whole":
                writer.write(b"0\r\n\r\n")
        await writer.drain()
        if reply.end == "hang":
            await reader.read()
        return reply.end == "whole"


@contextlib.asynccontextmanager
async def fake_mcp() -> AsyncIterator[FakeMcp]:
    server = FakeMcp()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.contextmanager
def fake_mcp_in_a_thread() -> Iterator[str]:
    """The server for tests without an event loop of their own; gives its address."""
    ready, over, urls = threading.Event(), asyncio.Event(), list[str]()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        async with fake_mcp() as server:
            urls.append(server.url)
            loops.append(asyncio.get_running_loop())
            ready.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield urls[0]
    finally:
        loops[0].call_soon_threadsafe(over.set)
        thread.join(10)
