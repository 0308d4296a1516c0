"""A terminal of a reader: a Bash that runs the commands of a page, one block after the other."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

DONE = "the-block-is-done"
END_WITHIN_S = 60.0


class Terminal:
    """What a block exports holds for the blocks after it. A command that fails ends the terminal."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._printed = ""

    def start(self, commands: str) -> None:
        """Start a block of commands. They read nothing from the terminal."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{{\n{commands}\n}} < /dev/null\necho {DONE}\n")
        self._process.stdin.flush()

    def wait_for(self, pattern: str) -> str:
        """Return the first line that matches. Fail if the terminal ends before it prints one."""
        for line in self._lines():
            if re.search(pattern, line):
                return line.strip()
        raise AssertionError(f"no line matches {pattern!r}:\n{self._printed}")

    def finish(self) -> str:
        """Return what the block printed, once all its commands have ended with success."""
        if any(line.strip() == DONE for line in self._lines()):
            printed, self._printed = self._printed.removesuffix(f"{DONE}\n"), ""
            return printed
        raise AssertionError(f"a command failed:\n{self._printed}")

    def run(self, commands: str) -> str:
        """Return what a block of commands prints."""
        self.start(commands)
        return self.finish()

    def interrupt(self) -> str:
        """Press Ctrl-C, and return what was printed until everything in the terminal has ended."""
        os.killpg(self._process.pid, signal.SIGINT)
        assert self._process.stdin is not None
        self._process.stdin.close()
        for _ in self._lines():
            pass
        self._process.wait(END_WITHIN_S)
        return self._printed

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._printed += line
            yield line


@contextlib.contextmanager
def terminal(at: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Open a terminal in a folder. What still runs in it when the block ends is interrupted."""
    with subprocess.Popen(
        ["bash", "-euo", "pipefail"],
        cwd=at,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        opened = Terminal(process)
        try:
            yield opened
        finally:
            if process.poll() is None:
                opened.interrupt()
