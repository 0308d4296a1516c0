"""`plangate` on an event loop that records callbacks with much CPU time as they end.

`python -m tests.support.measured_loop REPORT serve --port 0 ...` runs the command on asyncio's own loop, whose callbacks
can be measured, in place of uvloop's. Each line of the report is the CPU time of a callback in seconds, and where it was.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TextIO

import uvloop

from app.commands.main import main
from tests.support.callbacks import measured_callbacks


class Report(list[tuple[float, str]]):
    """Long callbacks, written to a file one by one."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def append(self, callback: tuple[float, str]) -> None:
        self._file.write(json.dumps(callback) + "\n")


if __name__ == "__main__":
    path = Path(sys.argv.pop(1))
    uvloop.new_event_loop = asyncio.new_event_loop  # type: ignore[assignment]
    with path.open("a", buffering=1) as file, measured_callbacks() as callbacks:
        callbacks.longest = Report(file)
        main()
