"""Slots for calls in flight: limited, in order, without keeping a waiting query in memory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from plangate.spec.models import LimitsSpec

from app.engine.models import WorkEntry, WorkTree
from app.engine.query_run import Parked, QueryRun
from app.journal.models import Entry
from app.llm.messages import Usage

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Journal:
    def __init__(self) -> None:
        self.entries: list[Entry] = []

    async def commit(self, _lease: Any, entry: Entry) -> None:
        self.entries.append(entry)


def record(work_id: str, *, over: bool = False) -> WorkEntry:
    ended = NOW if over else None
    none: Any = None
    return WorkEntry(
        work_id,
        "wrk_a",
        "tool_call",
        "t",
        "a",
        "running",
        0,
        none,
        0,
        Usage(),
        none,
        none,
        none,
        none,
        NOW,
        ended,
    )


def query_run(most: int, *records: WorkEntry, offered: tuple[str, ...] = ()) -> tuple[QueryRun, Journal]:
    journal: Any = Journal()
    limits = LimitsSpec(max_parallel_tools=most)
    running: Any = SimpleNamespace(
        lease=SimpleNamespace(lost=False, epoch=1), wakes=asyncio.Event(), wake_seen=0
    )
    query: Any = SimpleNamespace(
        id="qry_1", thread_id="thr_1", root_work_id="wrk_1", agent="a", wake=0, worked_ms=0, request={}
    )
    runtime: Any = SimpleNamespace(spec=SimpleNamespace(limits=limits))
    db: Any = None
    return QueryRun(db, journal, running, query, runtime, WorkTree.of(records), offered), journal


class Calls:
    """Branches that are outside until they are let go."""

    def __init__(self, run: QueryRun) -> None:
        self._run = run
        self._over: dict[str, asyncio.Event] = {}
        self.out: list[str] = []

    async def make(self, name: str) -> None:
        async with self._run.call_slot(name):
            self.out.append(name)
            await self._over.setdefault(name, asyncio.Event()).wait()
            self.out.remove(name)

    async def end(self, name: str) -> None:
        self._over.setdefault(name, asyncio.Event()).set()
        await turns()


async def turns() -> None:
    """Until the loop has nothing left to do."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_slots_are_acquired_in_order() -> None:
    run, journal = query_run(2)
    calls = Calls(run)
    all_of_them = asyncio.create_task(run.branches([calls.make(name) for name in "abcde"]))
    await turns()
    assert calls.out == ["a", "b"]
    await calls.end("b")
    assert calls.out == ["a", "c"]
    await calls.end("a")
    await calls.end("c")
    assert calls.out == ["d", "e"]
    await calls.end("d")
    await calls.end("e")
    await all_of_them
    assert journal.entries == []
    await run.aclose()


async def test_an_offered_call_already_has_a_slot() -> None:
    """Also one whose answer is there, though no place is free; what is over has none."""
    run, _ = query_run(1, record("a"), record("b"), record("c", over=True), offered=("a", "b", "c"))
    calls = Calls(run)
    all_of_them = asyncio.create_task(run.branches([calls.make(name) for name in ("new", "a", "b")]))
    await turns()
    assert calls.out == ["a", "b"]
    await calls.end("a")
    assert calls.out == ["b"]
    await calls.end("b")
    assert calls.out == ["new"]
    await calls.end("new")
    await all_of_them
    await run.aclose()


async def test_a_query_parks_although_calls_wait_for_a_place() -> None:
    run, journal = query_run(1)

    async def held(name: str) -> None:
        async def nothing_yet() -> None:
            return None

        async with run.call_slot(name):
            await run.wait(nothing_yet, reason="client_call")

    with pytest.raises(Parked):
        await run.branches([held(name) for name in "abc"])
    (entry,) = journal.entries
    assert entry.change is not None
    assert (entry.change.status, entry.change.reason) == ("waiting", "client_call")
    await run.aclose()


async def test_parking_does_not_lose_a_slot() -> None:
    """What hands its place over and rests leaves nobody moving but the one who gets it."""
    run, journal = query_run(1)
    found: list[str] = []

    async def first() -> None:
        async with run.call_slot("a"):
            await turns()
        await run.wait(second_is_done, reason="approval")

    async def second_is_done() -> bool | None:
        return True if found else None

    async def second() -> None:
        async with run.call_slot("b"):
            await turns()
            found.append("b")
            run._version += 1
            run._stirred.set()

    await run.branches([first(), second()])
    assert (found, journal.entries) == (["b"], [])
    await run.aclose()


async def test_a_canceled_waiter_takes_no_slot() -> None:
    run, _ = query_run(1)
    run._active = 3
    calls = Calls(run)
    tasks = {name: asyncio.create_task(calls.make(name)) for name in "abc"}
    await turns()
    tasks["b"].cancel()
    await turns()
    await calls.end("a")
    assert calls.out == ["c"]
    await calls.end("c")
    await asyncio.gather(tasks["a"], tasks["c"])
    await run.aclose()
