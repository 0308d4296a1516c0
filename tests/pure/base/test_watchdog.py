"""The watchdog of the event loop: counters, log lines, and stopping."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from app.base import watchdog
from app.base.logs import processors
from app.base.metrics import Metrics
from app.base.watchdog import LoopWatchdog, WatchdogLimits

PATIENCE_S = 20.0
THRESHOLD_S = 0.04


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """The lines of the log, as a process writes them."""
    out: list[dict[str, Any]] = []

    def keep(_logger: Any, _method: str, line: Any) -> Any:
        out.append(json.loads(structlog.processors.JSONRenderer()(None, "", line)))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.processors.add_log_level, *processors.PROCESSORS, keep])
    yield out
    structlog.reset_defaults()


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the watchdog has read the stacks."""
    done = threading.Event()
    read = watchdog._thread_stacks

    def reads(loop_thread: int) -> Any:
        stacks = read(loop_thread)
        done.set()
        return stacks

    monkeypatch.setattr(watchdog, "_thread_stacks", reads)
    return done


def number(metrics: Metrics, name: str) -> float:
    return metrics.registry.get_sample_value(f"plangate_{name}") or 0.0


async def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not there():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def sleeps(until: threading.Event) -> None:
    """Blocks the loop without using the CPU."""
    assert until.wait(PATIENCE_S)


def computes(until: threading.Event) -> None:
    """Blocks the loop with work of its own."""
    deadline = time.thread_time() + PATIENCE_S
    while not until.is_set():
        assert time.thread_time() < deadline


def anew(block: Callable[[threading.Event], None], sampled: threading.Event) -> None:
    """Blocks the loop until the watchdog samples this: a busy machine may have blocked it before."""
    sampled.clear()
    block(sampled)


async def line_about(lines: list[dict[str, Any]], function: str) -> dict[str, Any]:
    """The first line whose stacks show this function."""

    def found() -> list[dict[str, Any]]:
        return [line for line in lines if any(place.endswith(f" {function}") for place in line["trace"])]

    await until(lambda: bool(found()))
    return found()[0]


async def test_a_blocked_loop_is_counted_and_its_stack_is_logged(
    lines: list[dict[str, Any]], sampled: threading.Event
) -> None:
    metrics = Metrics()
    dog = LoopWatchdog(metrics, WatchdogLimits(THRESHOLD_S, log_every_s=0))
    dog.start()
    try:
        asyncio.get_running_loop().call_soon(anew, computes, sampled)
        line = await line_about(lines, "computes")
    finally:
        dog.stop()
    assert (line["event"], line["level"]) == ("loop.blocked", "warning")
    assert line["lag_ms"] >= 40
    assert line["cpu_ms"] > 0
    assert any(place.startswith(f"{__name__}:") and place.endswith(" computes") for place in line["trace"])
    assert "left_out" not in line
    assert number(metrics, "loop_blocked_total") >= 1
    assert number(metrics, "loop_lag_seconds_sum") >= THRESHOLD_S


async def test_a_late_report_has_the_lag_of_the_block(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, the timer has run again, on time, before the watchdog's thread looks."""
    metrics = Metrics()
    read, sampled = watchdog._thread_stacks, threading.Event()

    def reads_late(loop_thread: int) -> Any:
        stacks = read(loop_thread)
        beats = number(metrics, "loop_lag_seconds_count")
        sampled.set()
        deadline = time.monotonic() + PATIENCE_S
        while number(metrics, "loop_lag_seconds_count") < beats + 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return stacks

    monkeypatch.setattr(watchdog, "_thread_stacks", reads_late)
    dog = LoopWatchdog(metrics, WatchdogLimits(THRESHOLD_S, log_every_s=0))
    dog.start()
    try:
        asyncio.get_running_loop().call_soon(anew, sleeps, sampled)
        line = await line_about(lines, "sleeps")
    finally:
        dog.stop()
    assert line["lag_ms"] >= 40


async def test_the_log_line_shows_active_threads(
    lines: list[dict[str, Any]], sampled: threading.Event
) -> None:
    """The loop's thread waits; the stack of the thread that works tells for what."""
    over = threading.Event()
    worker = threading.Thread(target=computes, args=(over,))
    dog = LoopWatchdog(Metrics(), WatchdogLimits(THRESHOLD_S, log_every_s=0))
    dog.start()
    try:
        worker.start()
        asyncio.get_running_loop().call_soon(anew, sleeps, sampled)
        line = await line_about(lines, "sleeps")
    finally:
        over.set()
        worker.join()
        dog.stop()
    trace = line["trace"]
    before, after = trace[: trace.index("another thread")], trace[trace.index("another thread") :]
    assert any(place.endswith(" sleeps") for place in before)
    assert any(place.endswith(" computes") for place in after)


async def test_lines_are_limited_and_every_block_is_counted(
    lines: list[dict[str, Any]], sampled: threading.Event
) -> None:
    metrics = Metrics()
    dog = LoopWatchdog(metrics, WatchdogLimits(THRESHOLD_S, log_every_s=1_000))
    dog.start()
    try:
        asyncio.get_running_loop().call_soon(sleeps, sampled)
        await until(lambda: bool(lines))
        for blocked in range(int(number(metrics, "loop_blocked_total")), 3):
            asyncio.get_running_loop().call_soon(time.sleep, 2 * THRESHOLD_S)
            await until(lambda blocked=blocked: number(metrics, "loop_blocked_total") > blocked)  # type: ignore[misc]
    finally:
        dog.stop()
    assert len(lines) == 1


async def test_a_loop_that_stays_blocked_is_logged(lines: list[dict[str, Any]]) -> None:
    dog = LoopWatchdog(Metrics(), WatchdogLimits(THRESHOLD_S, still_blocked_s=0.1))
    dog.start()
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not lines:  # the loop is blocked by this test itself
            assert time.monotonic() < deadline
            time.sleep(0.01)  # noqa: ASYNC251
    finally:
        dog.stop()
    (line,) = lines
    assert (line["event"], line["level"]) == ("loop.still_blocked", "error")
    assert line["lag_ms"] >= 100
    assert any(place.endswith(" test_a_loop_that_stays_blocked_is_logged") for place in line["trace"])


async def test_a_suspended_process_is_not_reported_as_blocked(
    lines: list[dict[str, Any]], sampled: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stopped_s, thread_time=time.thread_time)
    monkeypatch.setattr(watchdog, "time", clock)

    def continues() -> None:
        nonlocal stopped_s
        sampled.clear()
        stopped_s = 10.0
        assert sampled.wait(PATIENCE_S)
        time.sleep(2 * THRESHOLD_S)  # the watchdog's thread runs before the loop does

    dog = LoopWatchdog(Metrics(), WatchdogLimits(THRESHOLD_S, log_every_s=0))
    dog.start()
    try:
        asyncio.get_running_loop().call_soon(continues)
        line = await line_about(lines, "continues")
    finally:
        dog.stop()
    assert (line["event"], line["level"]) == ("loop.blocked", "warning")
    assert line["lag_ms"] >= 10_000


async def test_stopping_twice_ends_the_thread_once() -> None:
    dog = LoopWatchdog(Metrics(), WatchdogLimits(THRESHOLD_S))
    dog.stop()
    dog.start()
    assert any(thread.name == "loop-watchdog" for thread in threading.enumerate())
    dog.stop()
    dog.stop()
    assert not any(thread.name == "loop-watchdog" for thread in threading.enumerate())
