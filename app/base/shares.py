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

    def __init__(self, total: int, per_tenant: int) -> None:
        self.total = total
        self.per_tenant = per_tenant
        self.in_use = 0
        self._held: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def try_acquire(self, tenant: str) -> bool:
        """Take a place if the tenant may have another one now."""
        held = self._held.get(tenant, 0)
        if held >= min(self.per_tenant, self.total - self.in_use):
            return False
        self._held[tenant] = held + 1
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
                self._forget(tenant, turn)
            raise

    def release(self, tenant: str) -> None:
        """Release a place. Of the tenants that wait, those that hold the fewest places go first."""
        self.in_use -= 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        while self._waiting:
            next_tenant = min(self._waiting, key=lambda waiting: self._held.get(waiting, 0))
            if not self.try_acquire(next_tenant):
                return
            turn = self._waiting[next_tenant][0]
            self._forget(next_tenant, turn)
            turn.set_result(None)

    @asynccontextmanager
    async def place(self, tenant: str) -> AsyncIterator[None]:
        await self.acquire(tenant)
        try:
            yield
        finally:
            self.release(tenant)

    def _forget(self, tenant: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting[tenant]
        waiting.remove(turn)
        if not waiting:
            del self._waiting[tenant]
