"""What a parent process concludes from what it sees of its child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from app.base.metrics import Metrics
from app.engine import children, lease_store
from app.engine.children import ChildCommand, ChildLimits, ChildProcess, ChildProcesses
from app.engine.lease_store import Claim

# A child whose tool starts a process that inherits the socket, and that is killed after that.
KILLED_BESIDE_A_HELPER = """
import os, signal, socket, subprocess
connection = socket.socket(fileno=os.dup(0))
connection.makefile("r").readline()
connection.sendall(b'{"running":[],"taken":0}\\n')
subprocess.Popen(["cat"], stdout=subprocess.DEVNULL)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Db:
    metrics = Metrics()


class Sink:
    """A process and a connection of which only the calls are seen."""

    pid = 0

    def __init__(self) -> None:
        self.kills = 0

    def kill(self) -> None:
        self.kills += 1

    def write(self, _: bytes) -> None:
        """Take it."""


def parent(*argv: str) -> ChildProcesses:
    return ChildProcesses(Db(), "prc_parent", ChildCommand(argv, {}), ChildLimits(processes=1), 10.0)  # type: ignore[arg-type]


def child() -> ChildProcess:
    sink: Any = Sink()
    return ChildProcess("prc_child", sink, sink, ready=True)


async def test_a_death_is_seen_while_a_helper_of_the_child_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()

    async def register(*_: Any, **__: Any) -> None:
        """Let it be on record."""

    async def end(_: Any, id: str, reason: str, __: float, *, queries: int) -> bool:
        ended.set_result((id, reason))
        return True

    monkeypatch.setattr(lease_store, "register_process", register)
    monkeypatch.setattr(lease_store, "end_process", end)
    processes = parent(sys.executable, "-c", KILLED_BESIDE_A_HELPER)
    processes._starting = 1
    await processes._run()
    assert ended.result()[1] == "died"
    assert processes.count == 0


async def test_the_silence_of_a_child_while_its_parent_stands_still_counts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    looked_again = asyncio.Event()

    def stall_once(_: int) -> int:
        nonlocal looks
        looks += 1
        if looks == 1:
            time.sleep(0.7)  # the parent is stopped
        elif looks == 4:
            looked_again.set()
        return 0

    monkeypatch.setattr(children, "WATCH_S", 0.01)
    monkeypatch.setattr(children, "SILENT_S", 0.5)
    monkeypatch.setattr(children, "_memory_bytes", stall_once)
    one = child()
    watch = asyncio.create_task(parent()._watch(one))
    async with asyncio.timeout(30):
        await looked_again.wait()
    assert not one.process.kills  # type: ignore[attr-defined]
    await watch
    assert one.process.kills == 1, "it stays silent"  # type: ignore[attr-defined]


async def test_a_query_that_joins_does_not_raise_the_share_of_those_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def count(_: Any) -> int:
        return 1

    async def claim(*_: Any, **__: Any) -> list[Claim]:
        return [Claim("acme", "qry_b", 1, share=3)]

    monkeypatch.setattr(lease_store, "count_suspects", count)
    monkeypatch.setattr(lease_store, "claim", claim)
    one = child()
    one.running, one.share = {"qry_a"}, 2
    processes = parent()
    processes._children[one.id] = one
    await processes._assign(one)
    assert one.running == {"qry_a", "qry_b"}
    assert one.room() == 0


async def test_a_child_that_ran_a_query_gets_no_other_once_it_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def culprits(*_: Any) -> list[Any]:
        return []

    async def count(_: Any) -> int:
        return 1

    monkeypatch.setattr(lease_store, "culprits", culprits)
    monkeypatch.setattr(lease_store, "count_suspects", count)
    one, processes = child(), parent()
    one.ran = {"qry_a"}
    processes._children[one.id] = one
    await processes._place_suspects()
    assert one.stopping
    assert not one.running


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_signals_of_a_terminal_do_not_end_a_child_and_its_socket_is_its_own() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "app.api.child_process"],
                stdin=theirs.fileno(),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        standard_input = Path(f"/proc/{process.pid}/fd/0")
        while process.poll() is None and str(standard_input.readlink()) != os.devnull:
            time.sleep(0.05)
        for number in (signal.SIGHUP, signal.SIGINT):
            process.send_signal(number)
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(60) == 0
