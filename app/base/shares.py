"""Slots that all tenants share fairly: a busy tenant delays only its own work."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TenantShares:
    """At most `max_total` slots in use, and at most `max_per_tenant` of them by one tenant.

    A tenant gets another slot only while more slots are free than it holds, so some are always left for a
    tenant that holds none, however many tenants are busy. Not thread-safe.
    """

    def __init__(self, max_total: int, max_per_tenant: int) -> None:
        self.max_total = max_total
        self.max_per_tenant = max_per_tenant
        self.in_use = 0
        self._slots_by_tenant: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def try_acquire(self, tenant: str) -> bool:
        """Acquire a slot if the tenant may have another one now; return whether it was acquired."""
        in_use = self._slots_by_tenant.get(tenant, 0)
        if in_use >= min(self.max_per_tenant, self.max_total - self.in_use):
            return False
        self._slots_by_tenant[tenant] = in_use + 1
        self.in_use += 1
        return True

    async def acquire(self, tenant: str) -> None:
        """Wait until the tenant may have another slot, in the order of the calls, and acquire it."""
        if tenant not in self._waiting and self.try_acquire(tenant):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(tenant)
            else:
                self._remove_waiter(tenant, turn)
            raise

    def release(self, tenant: str) -> None:
        """Release a slot. Among waiting tenants, those with the fewest slots go first."""
        self.in_use -= 1
        self._slots_by_tenant[tenant] -= 1
        if not self._slots_by_tenant[tenant]:
            del self._slots_by_tenant[tenant]
        while self._waiting:
            next_tenant = min(self._waiting, key=lambda waiting: self._slots_by_tenant.get(waiting, 0))
            if not self.try_acquire(next_tenant):
                return
            turn = self._waiting[next_tenant][0]
            self._remove_waiter(next_tenant, turn)
            turn.set_result(None)

    @asynccontextmanager
    async def slot(self, tenant: str) -> AsyncIterator[None]:
        """Hold a slot while the block runs."""
        await self.acquire(tenant)
        try:
            yield
        finally:
            self.release(tenant)

    def _remove_waiter(self, tenant: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting[tenant]
        waiting.remove(turn)
        if not waiting:
            del self._waiting[tenant]
