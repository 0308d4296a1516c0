"""The load: a process of its own that posts, reads the stream to its end, and posts again on the same connection.

It is cheap on purpose, because it shares the machine: one asyncio protocol a client, no HTTP library, no JSON on the
way. It reads a job from standard input, writes a result to standard output, and stops by itself: after `runs` runs,
or after `seconds`, whichever comes first.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

END_OF_BODY = b"\r\n0\r\n\r\n"
TERMINAL = b"event: finish"


@dataclass(frozen=True, slots=True)
class Job:
    """What to send where. `request` is the whole HTTP/1.1 request, to be sent again and again; `first` is what ends the
    time to the first event."""

    port: int
    request: str
    clients: int
    runs: int
    seconds: float
    first: str = "event: "


@dataclass(slots=True)
class Result:
    """Seconds, in the order in which the runs ended; `elapsed_s` and `cpu_s` are the whole phase's."""

    first_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    bytes: int = 0
    error: str | None = None


class Client(asyncio.Protocol):
    """One connection that is kept alive, one run at a time."""

    def __init__(self, job: Job, left: list[int], result: Result, over: asyncio.Future[None]) -> None:
        self._job, self._left, self._result, self._over = job, left, result, over
        self._request = job.request.encode()
        self._first_event = job.first.encode()
        self._body = bytearray()
        self._sent = self._first = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        if not self._left[0]:
            self._end(None)
            return
        self._left[0] -= 1
        self._body.clear()
        self._first = 0.0
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._body += data
        if not self._first and self._first_event in self._body:
            self._first = time.perf_counter()
        if not self._body.endswith(END_OF_BODY):
            if self._body.startswith(b"HTTP/1.1") and not self._body.startswith(b"HTTP/1.1 20"):
                self._end("refused: " + bytes(self._body[:400]).decode(errors="replace"))
            return
        now = time.perf_counter()
        if TERMINAL not in self._body or not self._first:
            self._end(
                "a stream ended without its terminal event: "
                + bytes(self._body[-400:]).decode(errors="replace")
            )
            return
        self._result.first_s.append(self._first - self._sent)
        self._result.whole_s.append(now - self._sent)
        self._result.bytes += len(self._body)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"the connection was lost: {error}")

    def _end(self, error: str | None) -> None:
        if self._over.done():
            return
        self._result.error = self._result.error or error
        self._over.set_result(None)
        if self._transport is not None:
            self._transport.close()


async def load(job: Job) -> Result:
    """Run the job. An error of one client ends it and is in the result."""
    loop = asyncio.get_running_loop()
    result, left = Result(), [job.runs]
    began, cpu = time.perf_counter(), time.process_time()
    ends: list[asyncio.Future[None]] = []
    for _ in range(job.clients):
        over = loop.create_future()
        ends.append(over)
        await loop.create_connection(lambda end=over: Client(job, left, result, end), "127.0.0.1", job.port)  # type: ignore[misc]
    _, open_ones = await asyncio.wait(ends, timeout=job.seconds)
    if open_ones:
        result.error = (
            result.error
            or f"not over after {job.seconds} s, with {len(result.whole_s)} of {job.runs} runs done"
        )
    result.elapsed_s, result.cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return result


if __name__ == "__main__":
    json.dump(asdict(uvloop.run(load(Job(**json.load(sys.stdin))))), sys.stdout)
