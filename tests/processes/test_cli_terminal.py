"""Client commands as processes: terminals, and output that cannot be written."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.processes.test_cli import PATIENCE_S, Commands, client, env, paying, pending
from tests.support import specs
from tests.support.service import ROOT, Service, folder, plain_environment, serving

__all__ = ["env"]


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    with folder() as at:
        yield at


@pytest.fixture(scope="module")
def service(data: Path) -> Iterator[Service]:
    pay = specs.tool("pay", approval="always")
    with serving(data) as running:
        with client(running) as http:
            for spec in (
                specs.scripted(pay, tenant="local", name="tools"),
                specs.mock("Hi", tenant="local", name="polite"),
            ):
                http.post("/runtimes", json=spec).raise_for_status()
        yield running


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with client(service) as made:
        yield made


@pytest.fixture
def commands(service: Service, data: Path, env: pytest.MonkeyPatch) -> Commands:
    return Commands(service, data)


def interrupted(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C, and again where nothing happens: one that comes just before Python waits for a line is heard with the next."""
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S / 3)
            return


def rest(terminal: int) -> bytes:
    """What was printed since, by a process that has ended."""
    said = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # nobody holds the other end any more
            return said
        if not part:
            return said
        said += part


@pytest.mark.parametrize(
    ("answer", "code", "status"),
    [(b"y\n", 0, "approved"), (b"n\n", 1, "pending"), (b"\x04", 1, "pending"), (None, 1, "pending")],
    ids=["yes", "no", "end of input", "interrupt"],
)
def test_a_person_at_a_terminal_confirms(
    commands: Commands, http: httpx.Client, answer: bytes | None, code: int, status: str
) -> None:
    approval = pending(http, paying(commands))
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "app", "approvals", "approve", approval["id"], *commands.at]
    with subprocess.Popen(
        words, cwd=ROOT, env=plain_environment(), stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = b""
        while b"Approve exactly this? [y/N]:" not in seen:
            assert select.select([ours], [], [], PATIENCE_S)[0], seen
            seen += os.read(ours, 65536)
        assert approval["digest"].encode() in seen
        if answer is None:
            interrupted(process)
        else:
            os.write(ours, answer)
        assert process.wait(PATIENCE_S) == code
        seen += rest(ours)
        assert (b"plangate: Nothing was decided." in seen) == (code == 1)
    os.close(ours)
    assert http.get(f"/approvals/{approval['id']}").json()["status"] == status


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["work", "{query}"], id="work"),
        pytest.param(["watch", "{query}"], id="watch", marks=pytest.mark.long),
        pytest.param(["openapi"], id="openapi", marks=pytest.mark.long),  # it loads the service three times
    ],
)
def test_unprintable_characters_are_escaped(commands: Commands, service: Service, words: list[str]) -> None:
    """A disk that is full, a reader that is gone, and nobody there at all: never a trace."""
    query = commands.said("query", "Hi", "--runtime", "polite", "--detach").strip()
    commands.said("watch", query)
    env = {**plain_environment(), "PLANGATE_URL": service.url, "PLANGATE_API_KEY": service.key}
    command = f"{sys.executable} -m app {' '.join(words).format(query=query)}"
    for where, code, told in (
        ("> /dev/full", 1, "plangate: {}othing more can be written: {}o space left on device.\n"),
        (">&-", 0, ""),
        (">&- 2>&-", 0, ""),
    ):
        ended = subprocess.run(
            ["/bin/sh", "-c", f"{command} {where}"],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
        assert ended.stderr.replace(": N", ": {}").replace(": n", ": {}") == told
