"""The steps of a move around its file: park the tenant, redirect or resume it, and delete what is left of it."""

from __future__ import annotations

from app.base.blobs.store import BlobStore
from app.engine.parking import wait_until_parked
from app.tenancy import moves
from app.transfer import store
from app.transfer.errors import TransferError
from app.transfer.tables import DELETION_ORDER


async def park(tenant: str, *, dsn: str) -> None:
    """Stop everything of a tenant, and return once nothing of it can be written any more.

    Raise NotFound, Conflict, or Unavailable if a process does not report; then the tenant stays parked.
    """
    async with store.open_session(dsn, tenant) as connection:
        await moves.park_tenant(connection, tenant)
        await wait_until_parked(connection, tenant)


async def resume(tenant: str, *, dsn: str) -> None:
    """Let a parked tenant continue here. Raise NotFound or Conflict."""
    async with store.open_session(dsn, tenant) as connection:
        await moves.resume_tenant(connection, tenant)


async def redirect(tenant: str, cell: str, *, dsn: str) -> None:
    """Send the users of a parked tenant to another cell. Raise NotFound or Conflict."""
    async with store.open_session(dsn, tenant) as connection:
        await moves.redirect_tenant(connection, tenant, cell)


async def remove(tenant: str, *, dsn: str, blobs: BlobStore) -> None:
    """Delete everything of a tenant that was moved to another cell, its bodies first. It can be repeated.

    Raise TransferError if the tenant was not moved, StoreUnavailable if the blob store does not work.
    """
    async with store.open_session(dsn, tenant) as connection:
        state = await store.state(connection, tenant)
        if state != "moved":
            raise TransferError(
                f"The tenant {tenant!r} {'does not exist' if state is None else 'was not moved'}: nothing was deleted. Only "
                "a tenant that `plangate tenants redirect` sent to another cell can be removed."
            )
        async with connection.transaction(readonly=True):
            async for row in store.bodies(connection, tenant):
                await blobs.delete(tenant, row["digest"])
        await store.delete_tenant(connection, tenant, DELETION_ORDER)
