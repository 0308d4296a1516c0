"""Measure the lag of the event loop, and log the stack of whatever blocks it.

A timer on the loop records how late it runs. A thread wakes when the timer is later than the threshold and
reads the stack of the loop's thread, which shows the callback that is running. C code that holds the
interpreter delays this thread too; the stack is then read as soon as that code returns, usually in the
function that called it.

If the loop's thread used little CPU time, it was waiting: for the system, for a lock, or for another thread
that held the interpreter. The log line then also has the stacks of other active threads.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final

from app.base.logs.processors import Throttle, thread_stack
from app.base.logs.structured import structlog
from app.base.metrics import Metrics

log = structlog.get_logger(__name__)

BEATS_PER_THRESHOLD: Final = 2
MAX_OTHER_THREADS: Final = 3
IDLE_FRAME_PREFIXES: Final = ("concurrent.futures.thread:", f"{__name__}:")
"""Innermost frames of idle threads: workers of executors, and the watchdog itself."""


@dataclass(frozen=True, slots=True)
class WatchdogLimits:
    """When a lag is logged, and how often."""

    threshold_s: float
    """A lag from this on counts as a blocked loop."""

    log_every_s: float = 30.0
    """At most one blocked loop is logged in this time."""

    still_blocked_s: float = 5.0
    """A blocked loop is logged after this time even if it has not continued: it may never do so."""


@dataclass(slots=True)
class _Beat:
    """One run of the timer: when the next run is due, how late this one was, and the CPU time of the loop's
    thread since the previous one. `next` is set when the timer has run again."""

    next_due: float
    lag_s: float = 0.0
    cpu_s: float = 0.0
    next: _Beat | None = None


class LoopWatchdog:
    """Measure the lag of one event loop. Call `start` on that loop; `stop` ends the measurement."""

    def __init__(self, metrics: Metrics, limits: WatchdogLimits) -> None:
        self._metrics = metrics
        self._limits = limits
        self._interval_s = limits.threshold_s / BEATS_PER_THRESHOLD
        self._throttle = Throttle(limits.log_every_s)
        self._stopping = threading.Event()
        self._last = _Beat(0.0)
        self._cpu_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start measuring the running loop."""
        loop = asyncio.get_running_loop()
        self._cpu_s = time.thread_time()
        self._schedule(loop, 0.0, 0.0)
        self._thread = threading.Thread(
            target=self._watch, args=(threading.get_ident(),), name="loop-watchdog", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop measuring. Idempotent."""
        if self._thread is None or self._timer is None:
            return
        self._timer.cancel()
        self._stopping.set()
        self._thread.join()
        self._thread = None

    # -- on the loop -----------------------------------------------------------------------------------------

    def _schedule(self, loop: asyncio.AbstractEventLoop, lag_s: float, cpu_s: float) -> None:
        previous, self._last = self._last, _Beat(time.monotonic() + self._interval_s, lag_s, cpu_s)
        previous.next = self._last
        self._timer = loop.call_later(self._interval_s, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        lag_s = max(0.0, time.monotonic() - self._last.next_due)
        cpu_before, self._cpu_s = self._cpu_s, time.thread_time()
        self._metrics.loop_lag.observe(lag_s)
        if lag_s >= self._limits.threshold_s:
            self._metrics.loop_blocked.inc()
        self._schedule(loop, lag_s, self._cpu_s - cpu_before)

    # -- in the thread ---------------------------------------------------------------------------------------

    def _watch(self, loop_thread: int) -> None:
        while True:
            last = self._last
            late_at = last.next_due + self._limits.threshold_s
            if self._stopping.wait(max(0.0, late_at - time.monotonic())):
                return
            if last.next is None and time.monotonic() >= late_at:
                self._report(last, loop_thread)

    def _report(self, last: _Beat, loop_thread: int) -> None:
        """Log what blocks the loop, when it continues or after `limits.still_blocked_s`."""
        logs = self._throttle.allow()
        of_loop, of_others = _thread_stacks(loop_thread) if logs else ([], [])
        watched_s = 0.0
        while (beat := last.next) is None:
            now = time.monotonic()
            if logs and watched_s >= self._limits.still_blocked_s:
                trace = of_loop + of_others
                log.error("loop.still_blocked", lag_ms=_milliseconds(now - last.next_due), trace=trace)
                logs = False
            if self._stopping.wait(self._interval_s):
                return
            # A process that was stopped or suspended for a while has no blocked loop: this thread did not run either.
            watched_s += min(time.monotonic() - now, 2 * self._interval_s)
        if logs:
            trace = of_loop if beat.cpu_s > beat.lag_s / 2 else of_loop + of_others
            lag_ms, cpu_ms = _milliseconds(beat.lag_s), _milliseconds(beat.cpu_s)
            log.warning("loop.blocked", lag_ms=lag_ms, cpu_ms=cpu_ms, trace=trace)


def _thread_stacks(loop_thread: int) -> tuple[list[str], list[str]]:
    """Return the stack of the loop's thread, and stacks of other active threads, each below a heading."""
    of_loop: list[str] = []
    of_others: list[str] = []
    threads = 0
    for ident, frame in sys._current_frames().items():
        places = thread_stack(frame)
        if ident == loop_thread:
            of_loop = places
        elif not places[-1].startswith(IDLE_FRAME_PREFIXES) and threads < MAX_OTHER_THREADS:
            threads += 1
            of_others += ["another thread", *places]
    return of_loop, of_others


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
