"""Shares of tenants: one tenant cannot take the slots of another."""

from __future__ import annotations

import asyncio
import random

import pytest

from app.base.shares import TenantShares


def take_all(shares: TenantShares, tenant: str) -> int:
    taken = 0
    while shares.try_acquire(tenant):
        taken += 1
    return taken


def test_a_tenant_is_limited_to_its_share() -> None:
    shares = TenantShares(256, 32)
    assert take_all(shares, "acme") == 32
    assert take_all(shares, "other") == 32
    assert shares.in_use == 64


def test_any_number_of_busy_tenants_leave_a_place_to_the_next() -> None:
    shares = TenantShares(256, 200)
    assert [take_all(shares, f"t{n}") for n in range(8)] == [128, 64, 32, 16, 8, 4, 2, 1]
    assert shares.in_use == 255
    assert shares.try_acquire("next")


async def test_waiting_is_in_order_and_ends_with_a_release() -> None:
    shares = TenantShares(8, 1)
    await shares.acquire("acme")
    first, second = (asyncio.create_task(shares.acquire("acme")) for _ in range(2))
    await asyncio.sleep(0)
    await shares.acquire("other")  # at once
    shares.release("acme")
    await first
    assert not second.done()
    shares.release("acme")
    await second
    assert shares.in_use == 2


async def test_the_tenant_with_the_fewest_places_is_served_first() -> None:
    shares = TenantShares(4, 4)
    assert take_all(shares, "busy") == 2
    assert shares.try_acquire("other")
    assert shares.try_acquire("third")
    waits = [asyncio.create_task(shares.acquire(tenant)) for tenant in ("busy", "new")]
    await asyncio.sleep(0)
    shares.release("third")
    await waits[1]
    assert not waits[0].done()
    waits[0].cancel()


@pytest.mark.parametrize("granted", [True, False])
async def test_a_canceled_waiter_keeps_no_slot(granted: bool) -> None:
    shares = TenantShares(8, 1)
    await shares.acquire("acme")
    waiting = asyncio.create_task(shares.acquire("acme"))
    await asyncio.sleep(0)
    if granted:
        shares.release("acme")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not granted:
        shares.release("acme")
    assert shares.in_use == 0
    assert shares.try_acquire("acme")


async def test_slots_are_neither_lost_nor_doubled() -> None:
    """Random takes, releases and cancellations of several tenants."""
    chance = random.Random(7)
    shares = TenantShares(12, 5)
    most = 0

    async def work(tenant: str) -> None:
        nonlocal most
        async with shares.slot(tenant):
            most = max(most, shares.in_use)
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)

    tasks = []
    for _ in range(500):
        tasks.append(asyncio.create_task(work(f"t{chance.randrange(4)}")))
        await asyncio.sleep(0)
        if chance.random() < 0.2:
            chance.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert shares.in_use == 0
    assert shares._slots_by_tenant == {}
    assert shares._waiting == {}
    assert 5 < most < 12  # one is always left
