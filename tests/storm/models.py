"""A model vendor and action endpoint that can kill the process that calls it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.processes.acceptance.model_server import SlowModel

FATAL = "end your process"


class DeadlyModel(SlowModel):
    """Kills the process that asks it with a prompt of `fatal_prompt`, or that sends an action to `endpoint`. `killed` has
    the pids, in order."""

    def __init__(self, pace_s: float = 0.02) -> None:
        super().__init__(pace_s)
        self.killed: list[int] = []
        self.before_kill: Callable[[int], None] = lambda _: (
            None
        )  # is called with the number of the kill, from 1

    def fatal_prompt(self) -> str:
        return f"{FATAL}; {self.prompt(1)}"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/actions"

    async def _answer(self, head: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if FATAL.encode() not in body and not head.startswith("POST /actions"):
            return await super()._answer(head, body, writer)
        await asyncio.sleep(0.2)  # the attempt is in the journal by then
        pid = process_at(writer.get_extra_info("peername")[1], self.port)
        if pid is None:
            writer.close()
        else:
            self.before_kill(len(self.killed) + 1)
            self.killed.append(pid)
            os.kill(pid, signal.SIGKILL)
        return None


def process_at(port: int, peer: int) -> int | None:
    """Return the process of this machine that has the socket with this local port and this peer's port."""
    inodes = {f"socket:[{inode}]" for inode in _inodes(port, peer)}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if any(os.readlink(fd) in inodes for fd in (folder / "fd").iterdir()):
                return int(folder.name)
        except OSError:
            continue  # gone meanwhile, or not ours
    return None


def _inodes(port: int, peer: int) -> Iterator[str]:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ends = [int(address.rpartition(":")[2], 16) for address in fields[1:3]]
        if ends == [port, peer] and fields[9] != "0":
            yield fields[9]
