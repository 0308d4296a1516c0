"""How a parent process judges its child processes."""

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

from app.engine import children
from app.engine.children import ChildCommand, ChildLimits, ChildProcess, ChildProcesses
from tests.support.scripted_database import ScriptedDatabase

# A child whose tool starts a process that inherits the socket, and that is killed after that.
KILLED_BESIDE_A_HELPER = """
import os, signal, socket, subprocess
connection = socket.socket(fileno=os.dup(0))
connection.makefile("r").readline()
connection.sendall(b'{"running":[],"taken":0}\\n')
subprocess.Popen(["cat"], stdout=subprocess.DEVNULL)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Sink:
    """A process and a connection of which only the calls are seen."""

    pid = 0

    def __init__(self) -> None:
        self.kills = 0

    def kill(self) -> None:
        self.kills += 1

    def write(self, _: bytes) -> None:
        """Take it."""


def parent(
    *argv: str, db: ScriptedDatabase | None = None, limits: ChildLimits | None = None
) -> ChildProcesses:
    database: Any = db or ScriptedDatabase()
    return ChildProcesses(
        database, "prc_parent", ChildCommand(argv, {}), limits or ChildLimits(processes=1), 10.0
    )


def child() -> ChildProcess:
    sink: Any = Sink()
    return ChildProcess("prc_child", sink, sink, ready=True)


async def test_a_death_is_seen_while_a_grandchild_lives() -> None:
    db = ScriptedDatabase({"end_process": [{"news": True}]})
    processes = parent(sys.executable, "-c", KILLED_BESIDE_A_HELPER, db=db)
    processes._starting = 1
    await processes._run()
    assert [name for name, _ in db.calls] == ["register_process", "end_process"]
    assert db.calls[-1][1][1] == "died"
    assert processes.count == 0


async def test_silence_during_a_pause_of_the_parent_does_not_count(
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

    monkeypatch.setattr(children, "_memory_bytes", stall_once)
    one = child()
    limits = ChildLimits(watch_interval_s=0.01, silent_s=0.5)
    watch = asyncio.create_task(parent(limits=limits)._watch(one))
    async with asyncio.timeout(30):
        await looked_again.wait()
    assert not one.process.kills  # type: ignore[attr-defined]
    await watch
    assert one.process.kills == 1, "it stays silent"  # type: ignore[attr-defined]


async def test_a_joining_query_does_not_raise_the_share() -> None:
    claim = {"tenant": "acme", "query_id": "qry_b", "epoch": 1, "lost": False, "share": 3, "load_failures": 0}
    db = ScriptedDatabase({"count_suspects": [{"n": 1}], "claim_queries": [claim]})
    one = child()
    one.running, one.share = {"qry_a"}, 2
    processes = parent(db=db)
    processes._children[one.id] = one
    await processes._assign(one)
    assert one.running == {"qry_a", "qry_b"}
    assert one.room() == 0


async def test_an_idle_child_that_ran_a_query_gets_no_other() -> None:
    one, processes = child(), parent(db=ScriptedDatabase({"count_suspects": [{"n": 1}]}))
    one.ran = {"qry_a"}
    processes._children[one.id] = one
    await processes._place_suspects()
    assert one.stopping
    assert not one.running


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_terminal_signals_do_not_end_a_child() -> None:
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
