"""The loops of a worker without a database."""

from __future__ import annotations

import asyncio

import pytest

from app.queue import store
from app.queue.worker import Worker


@pytest.mark.parametrize("steps_between", range(6))
async def test_a_worker_stops_however_close_a_hint_comes_to_the_stop(
    monkeypatch: pytest.MonkeyPatch, steps_between: int
) -> None:
    async def nothing(*_: object) -> list[store.Claim]:
        return []

    async def advance(_: object) -> None: ...

    monkeypatch.setattr(store, "claim", nothing)
    worker = Worker(None, "w", 4, advance)  # type: ignore[arg-type]
    worker.start()
    await asyncio.sleep(0.01)
    worker.hear("")
    for _ in range(steps_between):
        await asyncio.sleep(0)
    async with asyncio.timeout(2):
        await worker.drain(grace_s=0)
