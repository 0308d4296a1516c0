"""A TCP socket that a test leaves open fails that test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CONFTEST = "from tests.conftest import _open_sockets, pytest_configure\n"

SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = session
asyncio_default_test_loop_scope = session
filterwarnings = ignore::ResourceWarning
    ignore::pytest.PytestUnraisableExceptionWarning
"""

BEGINNING = """
import asyncio, socket
import pytest

kept = []

@pytest.fixture(scope="module")
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server

@pytest.fixture
def connection(listening):
    with socket.create_connection(listening.getsockname()) as client:
        yield client

async def leave_when_the_client_does(reader, writer):
    await reader.read()
    writer.close()

async def server():
    return await asyncio.start_server(leave_when_the_client_does, "127.0.0.1", 0)
"""

TESTS = {
    "test_a_listener": """
def test_leaks(listening):
    kept.append(socket.create_server(("127.0.0.1", 0)))

def test_innocent(connection):
    pass
""",
    "test_b_connection": """
async def test_leaks():
    listening = await server()
    kept.append(socket.create_connection(listening.sockets[0].getsockname()))
    await asyncio.sleep(0.01)
    listening.close()

def test_innocent(connection):
    pass
""",
    "test_c_connection_to_a_fixture": """
def test_leaks(listening):
    kept.append(socket.create_connection(listening.getsockname()))

def test_innocent(connection):
    pass
""",
    "test_d_late": """
async def test_closes_a_little_later():
    listening = await server()
    _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    listening.close()
    asyncio.get_running_loop().call_later(0.2, writer.transport.abort)
""",
}


@pytest.mark.long
def test_a_socket_left_open_fails_the_test_that_opened_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    for name, tests in TESTS.items():
        (tmp_path / f"{name}.py").write_text(BEGINNING + tests)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    errors = done.stdout.partition("short test summary info")[0]  # where CI is set, the summary repeats them
    blamed = re.findall(r"left open: .*\((.*)\)", errors)
    assert done.returncode == 1
    assert blamed == [
        "test_a_listener.py::test_leaks",
        "test_b_connection.py::test_leaks",  # both of its ends
        "test_b_connection.py::test_leaks",
        "test_c_connection_to_a_fixture.py::test_leaks",
    ], done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("7 passed, 3 errors")
