"""Closing a terminal ends its processes as SIGTERM does, with their Postgres."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.service import END_WITHIN_S, ROOT, copy_data_directory, folder, plain_environment

pytestmark = pytest.mark.long

COMMANDS = {
    "serve": (["serve", "--port", "0"], "Plangate listens on "),
    "worker": (["worker"], "Plangate worker runs"),
}


# A process keeps from its parent what it ignores: the tests themselves may run under nohup, or in the background of a
# shell, which ignores SIGINT there.
AS_SAID = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "signal.signal(signal.SIGHUP, int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
)


def started(
    data: Path, words: list[str], *, ignoring: bool = False, new_data: bool = False
) -> subprocess.Popen[str]:
    if not new_data:
        copy_data_directory(data, {})
    said = signal.SIG_IGN if ignoring else signal.SIG_DFL
    command = [sys.executable, "-m", "app", *words, "--data-dir", str(data)]
    return subprocess.Popen(
        [sys.executable, "-c", AS_SAID, str(int(said)), *command],
        cwd=ROOT,
        env=plain_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_terminal_leaves_no_postgres(command: str) -> None:
    words, told = COMMANDS[command]
    with folder() as at, started(at / "data", words) as process:
        assert process.stdout is not None and process.stdout.readline().startswith(told)
        assert (at / "data" / "cluster" / "postmaster.pid").exists()
        process.send_signal(signal.SIGHUP)
        process.wait(END_WITHIN_S)
        assert not (at / "data" / "cluster" / "postmaster.pid").exists()


def test_nohup_survives_a_hangup() -> None:
    with folder() as at, started(at / "data", COMMANDS["serve"][0], ignoring=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().rsplit(" ", 1)[1]
        process.send_signal(signal.SIGHUP)
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
        process.terminate()
        process.wait(END_WITHIN_S)
