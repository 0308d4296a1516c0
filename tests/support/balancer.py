"""A load balancer on loopback: sends each request to a backend whose /readyz was 200 at the last probe."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence

import httpx

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "date"}


class LoadBalancer:
    """Runs in a thread of its own. It keeps connections to its backends open and repeats no request: a request that
    a backend does not answer gets a 502."""

    def __init__(self, backends: Sequence[str], probe_every_s: float = 0.1) -> None:
        self._backends = list(backends)
        self._probe_every_s = probe_every_s
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))
        self.ready: tuple[str, ...] = ()
        self.failures: list[str] = []
        self.url = ""

    def start(self) -> LoadBalancer:
        self._thread.start()
        self._listening.wait(5)
        return self

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        self._closed = asyncio.Event()
        self._turns = itertools.count()
        self._clients: set[asyncio.Task[None]] = set()
        async with (
            httpx.AsyncClient(timeout=30) as self._upstream,
            httpx.AsyncClient(timeout=2) as self._prober,
        ):
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            host, port = server.sockets[0].getsockname()
            self.url = f"http://{host}:{port}"
            probing = asyncio.create_task(self._probe())
            self._listening.set()
            await self._closed.wait()
            server.close()
            for task in (probing, *self._clients):
                task.cancel()
            await asyncio.gather(probing, *self._clients, return_exceptions=True)

    async def _probe(self) -> None:
        while True:
            self.ready = tuple([b for b in self._backends if await self._is_ready(b)])
            await asyncio.sleep(self._probe_every_s)

    async def _is_ready(self, backend: str) -> bool:
        try:
            return (await self._prober.get(f"{backend}/readyz")).status_code == 200
        except httpx.HTTPError:
            return False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone, or the balancer closes
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request of a client; return whether there was one."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head[:-4].split("\r\n")
        method, path, _ = first.split(" ")
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        length = next((int(v) for n, v in headers if n.lower() == "content-length"), 0)
        body = await reader.readexactly(length)
        sent = [(n, v) for n, v in headers if n.lower() not in HOP_BY_HOP]
        status, answer, received = await self._forward(method, path, sent, body)
        out = [f"HTTP/1.1 {status} -", *(f"{n}: {v}" for n, v in received), f"content-length: {len(answer)}"]
        writer.write("\r\n".join([*out, "", ""]).encode("latin-1") + answer)
        await writer.drain()
        return True

    async def _forward(
        self, method: str, path: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, bytes, list[tuple[str, str]]]:
        ready = self.ready
        if not ready:
            self.failures.append(f"{method} {path}: no backend is ready")
            return 502, b"", []
        backend = ready[next(self._turns) % len(ready)]
        try:
            answer = await self._upstream.request(method, backend + path, headers=headers, content=body)
        except httpx.HTTPError as error:
            self.failures.append(f"{method} {path} to {backend}: {error!r}")
            return 502, b"", []
        kept = [(n, v) for n, v in answer.headers.items() if n not in HOP_BY_HOP | {"content-encoding"}]
        return answer.status_code, answer.content, kept
