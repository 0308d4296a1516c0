"""Places that all tenants use, of which each tenant has a share: a busy tenant delays its own work only."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TenantShares:
    """At most `total` places in use at once, and at most `per_tenant` of them by one tenant.

    Besides, a tenant gets another place only while more places are free than it holds. So some are always left for a
    tenant that holds none, however many tenants are busy. Not thread-safe.
    """

    def __init__(self, max_total: int, max_per_tenant: int) -> None:
        self.max_total = max_total
        self.max_per_tenant = max_per_tenant
        self.in_use = 0
        self._slots_by_tenant: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def try_acquire(self, tenant: str) -> bool:
        """Take a place if the tenant may have another one now."""
        held = self._slots_by_tenant.get(tenant, 0)
        if held >= min(self.max_per_tenant, self.max_total - self.in_use):
            return False
        self._slots_by_tenant[tenant] = held + 1
        self.in_use += 1
        return True

    async def acquire(self, tenant: str) -> None:
        """Take a place as soon as the tenant may have another one, in the order of asking."""
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
        """Release a place. Of the tenants that wait, those that hold the fewest places go first."""
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
