"""The CPU time of each callback of the event loop, and where a long one was."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from app.base.logs.processors import thread_stack

SAMPLED_FROM_S = 0.03
OWN = ("app.", "tests.", "plangate.", "asyncpg.")


@dataclass
class Callbacks:
    """What ran on the loop: the CPU time of the longest callbacks, each with the places where it was seen."""

    longest: list[tuple[float, str]] = field(default_factory=list)

    @property
    def longest_s(self) -> float:
        return max((cpu_s for cpu_s, _ in self.longest), default=0.0)

    def over(self, bound_s: float) -> list[str]:
        """The callbacks above the bound, for the message of an assertion."""
        return [f"{cpu_s * 1000:.0f} ms\n{places}" for cpu_s, places in self.longest if cpu_s > bound_s]


@contextmanager
def measured_callbacks() -> Iterator[Callbacks]:
    """Measures the callbacks of this thread's loop in CPU time, which other load of the machine hardly changes. The loop
    is one of asyncio: uvloop has no place to measure."""
    found = Callbacks()
    run = asyncio.events.Handle._run
    loop_thread = threading.get_ident()
    since: list[float | None] = [None]
    seen: dict[str, int] = {}
    over = threading.Event()

    def measured(self: Any) -> Any:
        if threading.get_ident() != loop_thread:
            return run(self)
        since[0] = time.monotonic()
        begun = time.thread_time()
        try:
            return run(self)
        finally:
            cpu_s = time.thread_time() - begun
            since[0] = None
            if cpu_s > SAMPLED_FROM_S:
                places = "\n".join(
                    f"  {n}x {place}" for place, n in sorted(seen.items(), key=lambda s: -s[1])[:6]
                )
                found.longest.append((cpu_s, places))
            seen.clear()

    def sample() -> None:
        while not over.wait(0.005):
            begun = since[0]
            if begun is not None and time.monotonic() - begun > SAMPLED_FROM_S:
                frame = sys._current_frames().get(loop_thread)
                if frame is not None:
                    own = [p for p in thread_stack(frame) if p.startswith(OWN)]
                    place = " < ".join(own[:-5:-1])
                    seen[place] = seen.get(place, 0) + 1

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    asyncio.events.Handle._run = measured  # type: ignore[method-assign]
    try:
        yield found
    finally:
        asyncio.events.Handle._run = run  # type: ignore[method-assign]
        over.set()
        sampler.join()
