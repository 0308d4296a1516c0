"""Slots for statements: at most as many statements run on a source as its limit says."""

from __future__ import annotations

import asyncio

from app.catalog.statement_slots import StatementSlots


class Statement:
    """A statement that runs until the test ends it."""

    def __init__(self, slots: StatementSlots, limit: int, source: str = "shop") -> None:
        self.is_running = False
        self._end = asyncio.Event()
        self.task = asyncio.create_task(self._run(slots, source, limit))

    async def _run(self, slots: StatementSlots, source: str, limit: int) -> None:
        async with slots.slot("acme", source, limit):
            self.is_running = True
            await self._end.wait()
        self.is_running = False

    async def end(self) -> None:
        self._end.set()
        await self.task
        await settle()


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def started(slots: StatementSlots, *limits: int) -> list[Statement]:
    statements = [Statement(slots, limit) for limit in limits]
    await settle()
    return statements


async def test_statements_wait_in_order_for_a_slot() -> None:
    slots = StatementSlots()
    one, two, three = await started(slots, 1, 1, 1)
    other = Statement(slots, 1, "other")
    await settle()
    assert [s.is_running for s in (one, two, three, other)] == [True, False, False, True]
    await one.end()
    assert [s.is_running for s in (two, three)] == [True, False]
    for statement in (two, three, other):
        await statement.end()


async def test_a_changed_limit_counts_the_statements_that_already_run() -> None:
    slots = StatementSlots()
    running = await started(slots, 2, 2)
    (lower,) = await started(slots, 1)
    await running[0].end()
    assert not lower.is_running  # one still runs under the former limit
    await running[1].end()
    assert lower.is_running
    higher = await started(slots, 3, 3, 3)
    assert [s.is_running for s in higher] == [True, True, False]
    await lower.end()
    assert higher[2].is_running
    for statement in higher:
        await statement.end()


async def test_a_canceled_statement_holds_no_slot() -> None:
    slots = StatementSlots()
    running, waiting, following = await started(slots, 1, 1, 2)
    waiting.task.cancel()
    await settle()
    assert following.is_running
    running.task.cancel()
    await settle()
    (last,) = await started(slots, 2)
    assert last.is_running
    for statement in (following, last):
        await statement.end()


async def test_a_slot_that_becomes_free_passes_over_a_canceled_statement() -> None:
    slots = StatementSlots()
    running, waiting, following = await started(slots, 1, 1, 1)
    waiting.task.cancel()
    await running.end()
    assert following.is_running
    assert waiting.task.cancelled()
    await following.end()
    assert slots.sources == 0


async def test_a_source_without_statements_takes_no_memory() -> None:
    slots = StatementSlots()
    for n in range(3):
        statement = Statement(slots, n + 1, f"source {n}")
        await settle()
        assert slots.sources == 1
        await statement.end()
    assert slots.sources == 0
