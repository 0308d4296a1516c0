"""The reference MCP server and the conformance suite for MCP clients, from npm (package.json beside this file)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.programs import npm_program

HERE = Path(__file__).parent
START_S = 30.0
SCENARIO_S = 60.0


@contextmanager
def running_everything() -> Iterator[str]:
    """The reference server `server-everything` over Streamable HTTP; gives its address."""
    node, modules = npm_program("mcp")
    program = modules / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    with (
        tempfile.TemporaryDirectory(prefix="mcp-") as folder,
        socket.create_server(("127.0.0.1", 0)) as found,
    ):
        port = found.getsockname()[1]
        found.close()
        log = Path(folder, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [node, str(program), "streamableHttp"],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                env={"PATH": os.environ["PATH"], "HOME": folder, "PORT": str(port)},
            )
        try:
            _wait_for(f"listening on port {port}", process, log)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def judged(scenario: str, version: str) -> list[dict[str, Any]]:
    """What the conformance suite says of our client in a scenario: checks with `id`, `status`, `errorMessage`."""
    node, modules = npm_program("mcp")
    suite = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    client = f"{sys.executable} -m tests.processes.mcp_programs.client"
    with tempfile.TemporaryDirectory(prefix="mcp-") as folder:
        done = subprocess.run(
            [
                *(node, "--import", str(HERE / "node20.mjs"), str(suite), "client", "--command", client),
                *("--scenario", scenario, "--spec-version", version, "-o", folder),
            ],
            capture_output=True,
            text=True,
            timeout=SCENARIO_S,
            env={"PATH": os.environ["PATH"], "HOME": folder},
            check=False,
        )
        found = list(Path(folder).glob("*/checks.json"))
        assert len(found) == 1, done.stdout + done.stderr
        checks: list[dict[str, Any]] = json.loads(found[0].read_text())
        said = "".join(file.read_text() for file in found[0].parent.glob("std*.txt"))
    assert checks, said
    return checks


def _wait_for(text: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        if re.search(re.escape(text), log.read_text()):
            return
        time.sleep(0.02)
    raise AssertionError(f"it did not start:\n{log.read_text()}")
