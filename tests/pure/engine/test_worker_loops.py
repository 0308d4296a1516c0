"""The loops of a worker without a database."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from app.engine.processes import ProcessRecord
from app.engine.worker import Worker, WorkerLimits
from tests.support.scripted_database import ScriptedDatabase


@pytest.mark.parametrize("steps_between", range(6))
async def test_a_notification_at_the_stop_does_not_keep_a_worker(steps_between: int) -> None:
    async def advance(_: object) -> None: ...

    db: Any = ScriptedDatabase({"presume_dead": [{"n": 0}], "end_process": [{"news": True}]})
    process = ProcessRecord(db, "prc_w", 10.0, is_child=True)
    worker = Worker(db, process, advance, WorkerLimits(slots=4))
    await worker.start()
    await asyncio.sleep(0.01)
    worker.on_notify("")
    for _ in range(steps_between):
        await asyncio.sleep(0)
    async with asyncio.timeout(2):
        await worker.drain(grace_s=0)
    assert "claim_queries" in [name for name, _ in db.calls]


async def test_a_sweep_that_found_nothing_waits_longer() -> None:
    runs: Counter[str] = Counter()

    async def run_task() -> None:
        runs["task"] += 1

    async def find_nothing() -> int:
        runs["idle sweep"] += 1
        return 0

    async def find_something() -> int:
        runs["busy sweep"] += 1
        return 5

    async def advance(_: object) -> None: ...

    db: Any = ScriptedDatabase({"presume_dead": [{"n": 0}], "end_process": [{"news": True}]})
    process = ProcessRecord(db, "prc_w", 10.0, is_child=True)
    worker = Worker(db, process, advance, WorkerLimits(slots=4, tick_s=0.01))
    await worker.start((run_task,), (find_nothing, find_something))
    await asyncio.sleep(0.5)
    await worker.drain(grace_s=0)
    assert runs["idle sweep"] >= 2
    assert runs["idle sweep"] * 3 <= min(runs["task"], runs["busy sweep"])
