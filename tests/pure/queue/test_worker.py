"""The loops of a worker without a database."""

from __future__ import annotations

import asyncio

import pytest

from app.engine import lease_store
from app.engine.processes import ProcessRecord
from app.engine.worker import Worker


@pytest.mark.parametrize("steps_between", range(6))
async def test_a_worker_stops_however_close_a_hint_comes_to_the_stop(
    monkeypatch: pytest.MonkeyPatch, steps_between: int
) -> None:
    async def nothing(*_: object) -> list[lease_store.Claim]:
        return []

    async def advance(_: object) -> None: ...

    async def none_dead(_: object) -> int:
        return 0

    monkeypatch.setattr(lease_store, "claim", nothing)
    monkeypatch.setattr(ProcessRecord, "find_deaths", none_dead)
    process = ProcessRecord(None, "prc_w", 10.0, is_child=True)  # type: ignore[arg-type]
    process.end = none_dead.__get__(process)  # type: ignore[assignment, attr-defined]
    worker = Worker(None, process, 4, advance)  # type: ignore[arg-type]
    await worker.start()
    await asyncio.sleep(0.01)
    worker.on_notify("")
    for _ in range(steps_between):
        await asyncio.sleep(0)
    async with asyncio.timeout(2):
        await worker.drain(grace_s=0)
