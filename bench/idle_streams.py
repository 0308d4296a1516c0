"""`make bench ARGS="--suite idle-streams"`: the cost of streams on which nothing happens, and how fast a decision
resumes a query while they are open.

Each query stream follows a query of its own that is parked at an approval. `--streams N` sets how many there are;
there is one stream of the tenant for every ten of them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

import uvloop

from bench import machine, programs, report
from bench.references import Api, Figures, tables
from bench.report import quantile

DEFAULT_STREAMS, QUICK_STREAMS = 2_000, 500
QUERIES_PER_TENANT_STREAM = 10
DECISIONS = 100
PAUSE_S = 0.05
"""Between two decisions, so that each meets a service that is idle."""
SETTLE_S = 4.0
HEARTBEAT_S = 15.0
"""Each stream sends one heartbeat in this time."""
QUIET_S = 5.0
"""How long the service is measured without streams."""
FREED_S = 6.0
WAIT_S = 30.0
WRITERS = 8
OPENING = 64
"""Streams that are opened at once."""
SPEC = {
    "name": "asking",
    "tenant": {"resourceId": "local", "version": "1"},
    "agents": [{"name": "clerk", "role": "specialist", "model": "m", "tools": ["pay"]}],
    "tools": [
        {"name": "pay", "inputSchema": {"type": "object"}, "transport": "client", "approval": "always"}
    ],
    "interpreter": "scripted",
}
QUERY = json.dumps(
    {"runtime": "asking", "prompt": json.dumps({"script": [{"tool": "pay", "args": {}}]})}
).encode()
RESUMED = b'"from":"waiting","to":"running"'


class Reader(asyncio.Protocol):
    """A client of one stream, which keeps what arrives only while it is asked to."""

    def __init__(self, request: bytes, opened: asyncio.Future[None]) -> None:
        self._request = request
        self._opened = opened
        self._body = bytearray()
        self._wanted: tuple[bytes, asyncio.Future[float]] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._opened.done():
            self._body += data
            if not self._body.startswith(b"HTTP/1.1 200"):
                self._opened.set_exception(SystemExit(bytes(self._body[:400]).decode(errors="replace")))
            elif b"retry: " in self._body:
                self._opened.set_result(None)
                self._body.clear()
        if self._wanted is not None:
            text, found = self._wanted
            self._body += data
            if text in self._body and not found.done():
                found.set_result(time.perf_counter())
                self._wanted = None
                self._body.clear()

    def connection_lost(self, error: Exception | None) -> None:
        lost = SystemExit(f"a stream ended: {error}")
        if not self._opened.done():
            self._opened.set_exception(lost)
        elif self._wanted is not None and not self._wanted[1].done():
            self._wanted[1].set_exception(lost)

    def arrival_of(self, text: bytes) -> asyncio.Future[float]:
        """Return the time at which this text will have arrived."""
        found: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._wanted = (text, found)
        return found


class Streams:
    """Open streams of one service."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self.readers: dict[str, Reader] = {}

    async def open(self, paths: list[str]) -> None:
        """Open a stream for each path. Raise SystemExit if one is refused."""
        limit = asyncio.Semaphore(OPENING)

        async def open_one(path: str) -> Reader:
            request = (
                f"GET {path.partition('#')[0]} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
                f"Authorization: Bearer {self._key}\r\nAccept: text/event-stream\r\n\r\n"
            ).encode()
            async with limit:
                loop = asyncio.get_running_loop()
                opened: asyncio.Future[None] = loop.create_future()
                _, reader = await loop.create_connection(
                    lambda: Reader(request, opened), "127.0.0.1", self._port
                )
                async with asyncio.timeout(WAIT_S):
                    await opened
                return reader

        readers = await asyncio.gather(*(open_one(path) for path in paths))
        self.readers.update(zip(paths, readers, strict=True))

    def close(self) -> None:
        for reader in self.readers.values():
            if reader.transport is not None:
                reader.transport.abort()
        self.readers.clear()


def park_queries(new_api: Callable[[], Api], count: int) -> list[str]:
    """Create queries and return their ids once all are parked at their approvals."""

    def submit(number: int) -> list[str]:
        with closing(new_api()) as api:
            own = range(number, count, WRITERS)
            return [json.loads(api("POST", "/queries", QUERY))["id"] for _ in own]

    with ThreadPoolExecutor(WRITERS) as pool:
        ids = [id for some in pool.map(submit, range(WRITERS)) for id in some]
    with closing(new_api()) as api:
        ends = time.monotonic() + WAIT_S + count / 50
        for status in ("queued", "running"):
            while json.loads(api("GET", f"/queries?status={status}&limit=1"))["items"]:
                if time.monotonic() > ends:
                    raise SystemExit("the queries were not parked in time")
                time.sleep(0.2)
    return ids


async def resume(api: Api, streams: Streams, query: str) -> float:
    """Approve the call of a query; return the seconds until its stream shows that it runs again."""
    path = f"/queries/{query}/stream"
    listed = await asyncio.to_thread(api, "GET", f"/approvals?queryId={query}")
    (approval,) = json.loads(listed)["items"]
    body = json.dumps({"decision": "approve", "digest": approval["digest"]}).encode()
    arrival = streams.readers[path].arrival_of(RESUMED)
    began = time.perf_counter()
    await asyncio.to_thread(api, "POST", f"/approvals/{approval['id']}", body)
    async with asyncio.timeout(WAIT_S):
        return await arrival - began


class Meter:
    """The CPU of a service and of its Postgres, in ms per second."""

    def __init__(self, service: int, postmaster: int) -> None:
        self._service, self._postmaster = service, postmaster

    async def measure(self, seconds: float) -> tuple[float, float]:
        began = time.perf_counter()
        own, database = machine.cpu_s(self._service), machine.cpu_s(self._postmaster, below=True)
        await asyncio.sleep(seconds)
        own, database = (
            machine.cpu_s(self._service) - own,
            machine.cpu_s(self._postmaster, below=True) - database,
        )
        elapsed = time.perf_counter() - began
        return own / elapsed * 1000, database / elapsed * 1000


async def decide(
    new_api: Callable[[], Api], streams: Streams, queries: list[str], figures: Figures, column: str
) -> None:
    """Decide these approvals one after another and record how long the queries take to resume."""
    seconds = []
    with closing(new_api()) as api:
        for query in queries:
            await asyncio.sleep(PAUSE_S)
            seconds.append(await resume(api, streams, query))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        figures.add(f"decision to resumed work, {name}, ms", column, quantile(seconds, share) * 1000)


async def measure_streams(
    port: int, key: str, pid: int, postmaster: int, queries: list[str], tenant_streams: int
) -> Figures:
    """Measure the service without and with these streams, and after they closed."""
    figures, meter, streams = Figures(), Meter(pid, postmaster), Streams(port, key)

    def new_api() -> Api:
        return Api(port, key)

    def note(column: str, own: float, database: float) -> None:
        figures.add("CPU of the process, ms a second", column, own)
        figures.add("CPU of Postgres, ms a second", column, database)
        figures.add("CPU of both, ms a second", column, own + database)
        figures.add("memory of the process, MiB", column, machine.rss_mb(pid))
        print(
            f"{column}: CPU {own:.1f} + {database:.1f} ms a second, {machine.rss_mb(pid):.1f} MiB",
            file=sys.stderr,
        )

    alone, rest = queries[:DECISIONS], queries[DECISIONS:]
    await streams.open([f"/queries/{query}/stream" for query in alone])
    await decide(new_api, streams, alone, figures, "before")
    streams.close()
    await asyncio.sleep(FREED_S)
    before_mb = machine.rss_mb(pid)
    note("before", *await meter.measure(QUIET_S))
    began = time.perf_counter()
    await streams.open([f"/queries/{query}/stream" for query in rest])
    await streams.open([f"/events/stream#{n}" for n in range(tenant_streams)])
    print(f"{len(streams.readers)} streams opened in {time.perf_counter() - began:.1f} s", file=sys.stderr)
    await asyncio.sleep(SETTLE_S)
    kib = (machine.rss_mb(pid) - before_mb) * 1024 / len(streams.readers)
    figures.add("memory per stream, KiB", "open", kib)
    note("open", *await meter.measure(HEARTBEAT_S))
    await decide(new_api, streams, rest[:DECISIONS], figures, "open")
    streams.close()
    await asyncio.sleep(FREED_S)
    note("closed", *await meter.measure(QUIET_S))
    figures.add("memory, closed / before", "closed", machine.rss_mb(pid) / before_mb)
    return figures


def measure(count: int) -> str:
    """Measure with this many query streams; return the table."""
    with ExitStack() as stack:
        data = stack.enter_context(programs.data_dir())
        service, _ = stack.enter_context(programs.service(data))
        postgres = stack.enter_context(programs.database_of(data))
        postmaster = asyncio.run(programs.postmaster_of(postgres))
        key = Path(data / "local-key").read_text("utf-8").strip()
        with closing(Api(service.port, key)) as api:
            api("POST", "/runtimes", json.dumps(SPEC).encode())
        queries = park_queries(lambda: Api(service.port, key), count + DECISIONS)
        tenant_streams = count // QUERIES_PER_TENANT_STREAM
        figures = uvloop.run(
            measure_streams(service.port, key, service.pid, postmaster, queries, tenant_streams)
        )
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; {count} idle query streams and {tenant_streams} idle "
        f"tenant streams for {HEARTBEAT_S:.0f} s, then {DECISIONS} decisions."
    )
    columns: list[Any] = ["before", "open", "closed"]
    return "\n".join([about, "", *tables(figures, columns)])


def run(*, quick: bool, page: Path | None, streams: int | None = None) -> None:
    """Measure and print; with `page`, also write the table into it."""
    text = measure(streams or (QUICK_STREAMS if quick else DEFAULT_STREAMS))
    print(text)
    if page is not None:
        report.write(page, text, "idle-streams")
