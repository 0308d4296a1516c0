"""A signal during the first start, while a thread still loads the service, ends the process and leaves no Postgres."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from app.base.embedded_postgres import locks
from tests.processes.test_hangup import COMMANDS, started
from tests.support.service import END_WITHIN_S, folder

MOMENTS = {"initdb runs": "cluster.partial", "Postgres starts": "cluster/postmaster.pid"}
EXIT_CODES = {signal.SIGTERM: 0, signal.SIGINT: 130}


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("initdb runs", signal.SIGTERM),
        pytest.param("initdb runs", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("Postgres starts", signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("Postgres starts", signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_a_signal_during_the_first_start_leaves_no_postgres(moment: str, number: signal.Signals) -> None:
    with folder() as at, started(at / "data", COMMANDS["serve"][0], new_data=True) as process:
        try:
            wait_for(at / "data" / MOMENTS[moment])
            process.send_signal(number)
            assert process.wait(END_WITHIN_S) == EXIT_CODES[number]
        finally:
            process.kill()
        assert process.stdout is not None and process.stdout.read() == ""
        lock = locks.open_lock(at / "data" / "server.lock")
        try:
            assert locks.wait_exclusive(lock, END_WITHIN_S)
        finally:
            locks.release(lock)
