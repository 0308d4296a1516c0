"""Wait until no process works for a tenant that was parked."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from app.base.errors import Unavailable
from app.base.postgres.database import MAX_TRANSACTION_S
from app.engine import lease_store

HEARTBEATS_TO_SEE: Final = 2
"""The first one may have been under way when the tenant was parked."""
POLL_S: Final = 0.2
WAIT_S: Final = 90.0


async def wait_until_parked(connection: Any, tenant: str) -> None:
    """Return once nothing of a parked tenant can be written any more. `connection` belongs to the owner of the schema.

    Each process closes the tenant before its next heartbeat, or that heartbeat says that it is still stopping the tenant's
    queries (`Worker`) and does not count. A transaction that it had begun before ends within `MAX_TRANSACTION_S`. Raise
    Unavailable if a process lives and does not report, or does not stop the queries.
    """
    last = await lease_store.heartbeats(connection, tenant=tenant)
    left = dict.fromkeys(last, HEARTBEATS_TO_SEE)
    deadline = time.monotonic() + WAIT_S
    while any(left.values()):
        if time.monotonic() >= deadline:
            silent = ", ".join(sorted(id for id, count in left.items() if count))
            raise Unavailable(
                f"These processes do not report that they have released the tenant: {silent}. It stays parked. Stop these "
                "processes, wait a minute, and export again; or run `plangate tenants resume`."
            )
        await asyncio.sleep(POLL_S)
        current = await lease_store.heartbeats(connection, tenant=tenant)
        for id in list(left):
            if id not in current:
                del left[id]  # it has ended
            elif current[id].at > last[id].at and left[id]:
                last[id] = current[id]
                if not current[id].is_closing:
                    left[id] -= 1
    if last:
        await asyncio.sleep(MAX_TRANSACTION_S + 1)
    await lease_store.fence_tenant(connection, tenant=tenant)
