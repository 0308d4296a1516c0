"""A child process, from inside: works on the queries that its parent gives it, and ends with its parent.

`python -m app.api.child_process` is started by app/engine/children.py, which describes the messages. It serves nobody and uses
two database connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop

from app.assembly import Services, assemble
from app.base.logs.configure import configure
from app.deployment import greeted_child
from app.engine.children import MAX_LINE_BYTES
from app.engine.models import QueryClaim

REPORT_S: Final = 0.1
PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    for sent_by_a_terminal in (
        signal.SIGHUP,
        signal.SIGINT,
    ):  # to the whole group: the parent says when to stop
        signal.signal(sent_by_a_terminal, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(_take_connection()))


def _take_connection() -> socket.socket:
    """Return the socket that is the standard input, which no process that a tool starts inherits from then on."""
    connection = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    return connection


async def _run(connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection, limit=MAX_LINE_BYTES)
    line = await reader.readline()
    if not line:  # the parent ended before it sent its first message
        return
    greeting: dict[str, Any] = orjson.loads(line)
    end_with_parent(greeting["parentPid"])
    settings, site = greeted_child(greeting)
    configure(settings.log_level)
    services = assemble(settings, site, child_id=greeting["id"])
    await services.start_child()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    work = _ParentMessages(services, writer)
    tasks = [asyncio.create_task(work.listen(reader, stop)), asyncio.create_task(work.report())]
    await stop.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await services.aclose(grace_s=1.0)
    with contextlib.suppress(OSError):
        writer.write(b'{"stopped":true}\n')
        await writer.drain()


class _ParentMessages:
    """The messages between a child and its parent."""

    def __init__(self, services: Services, writer: asyncio.StreamWriter) -> None:
        self._worker = services.worker
        self._writer = writer
        self._claim_messages = 0

    async def listen(self, reader: asyncio.StreamReader, stop: asyncio.Event) -> None:
        """Take the queries that the parent sends, until it says stop or closes the socket."""
        while line := await reader.readline():
            message = orjson.loads(line)
            if "claims" in message:
                self._worker.take([QueryClaim(**c) for c in message["claims"]])
                self._claim_messages += 1
            else:
                break
        stop.set()

    async def report(self) -> None:
        """Report the queries that run here: after each change, and once a second as a heartbeat."""
        loop = asyncio.get_running_loop()
        last_report: tuple[list[str], int] | None = None
        reported_at = 0.0
        while True:
            running = (self._worker.running_ids, self._claim_messages)
            if running != last_report or loop.time() - reported_at >= 1.0:
                last_report, reported_at = running, loop.time()
                self._writer.write(orjson.dumps({"running": running[0], "taken": running[1]}) + b"\n")
            await asyncio.sleep(REPORT_S)


def end_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent ends, if it can. Otherwise the closed socket tells this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


if __name__ == "__main__":
    main()
