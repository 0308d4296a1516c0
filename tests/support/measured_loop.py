"""`plangate` with an event loop that writes down which of its callbacks took much CPU time.

`python -m tests.support.measured_loop REPORT serve --port 0 ...` runs the command on asyncio's own loop, whose handles can
be measured, in place of uvloop's. The CPU time of a callback is that of the loop's thread alone, so neither other
processes nor other threads of the service are in it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from asyncio import events
from pathlib import Path
from typing import Any

import uvloop

REPORTED_S = 0.01


def measure(report: Path) -> None:
    """Append a line of JSON to `report` for every callback that takes more than `REPORTED_S`."""
    out = report.open("a", buffering=1)
    run = events.Handle._run
    collected = 0.0
    began_collecting = 0.0

    def on_collection(phase: str, _info: dict[str, int]) -> None:
        nonlocal collected, began_collecting
        if phase == "start":
            began_collecting = time.thread_time()
        else:
            collected += time.thread_time() - began_collecting

    def measured(handle: Any) -> None:
        nonlocal collected
        collected = 0.0
        what = handle._callback
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        if took >= REPORTED_S:
            owner = getattr(what, "__self__", None)
            name = repr(owner.get_coro()) if isinstance(owner, asyncio.Task) else repr(what)
            line = {"ms": took * 1000, "gc_ms": collected * 1000, "callback": name[:300], "at": time.time()}
            out.write(json.dumps(line) + "\n")

    gc.callbacks.append(on_collection)
    events.Handle._run = measured  # type: ignore[method-assign]


def main() -> None:
    report, *arguments = sys.argv[1:]
    measure(Path(report))
    uvloop.new_event_loop = asyncio.new_event_loop  # type: ignore[assignment]
    sys.argv = ["plangate", *arguments]
    from app.doors.cli import main as plangate  # noqa: PLC0415 - the loop is measured first

    plangate()


if __name__ == "__main__":
    main()
