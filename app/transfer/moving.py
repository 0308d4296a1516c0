"""The steps of a move around its file: park the tenant, redirect or resume it, and delete what is left of it."""

from __future__ import annotations

import hashlib
from typing import Final

from app.base.blobs.store import BlobLost, BlobStore
from app.engine.parking import wait_until_parked
from app.tenancy import moves
from app.transfer import store
from app.transfer.errors import TransferError
from app.transfer.tables import DELETION_ORDER

_MARKS: Final = "/cells"
"""Stands for a tenant in the names of marks; no tenant has such an id."""


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


async def mark_blobs(cell: str, *, blobs: BlobStore) -> None:
    """Write into the blob store that this cell keeps bodies there. Raise StoreUnavailable."""
    async with blobs.spool() as spool:
        await spool.write(_mark(cell))
        await blobs.keep(_MARKS, spool)


async def _are_blobs_of(cell: str, blobs: BlobStore) -> bool:
    mark = _mark(cell)
    try:
        async for _ in blobs.read(_MARKS, hashlib.sha256(mark).digest(), len(mark)):
            pass
    except BlobLost:
        return False
    return True


def _mark(cell: str) -> bytes:
    return f"The cell {cell} of Plangate keeps bodies here.\n".encode()


async def remove(tenant: str, *, dsn: str, blobs: BlobStore, keep_bodies: bool = False) -> None:
    """Delete everything of a tenant that was moved to another cell, its bodies first. It can be repeated.

    With `keep_bodies`, delete only its rows: a body has the same name in every deployment, so cells that share a blob store
    share the bodies of a tenant that moved.

    Raise TransferError if the tenant was not moved, or the other cell marked the blob store as its own; StoreUnavailable if
    the blob store does not work.
    """
    async with store.open_session(dsn, tenant) as connection:
        state = await store.state(connection, tenant)
        if state != "moved":
            raise TransferError(
                f"The tenant {tenant!r} {'does not exist' if state is None else 'was not moved'}: nothing was deleted. Only "
                "a tenant that `plangate tenants redirect` sent to another cell can be removed."
            )
        if not keep_bodies:
            cell = await moves.cell_of_moved_tenant(connection, tenant)
            if cell is not None and await _are_blobs_of(cell, blobs):
                raise TransferError(
                    f"The cell {cell!r} keeps the bodies of its files in the same blob store, so nothing was deleted: it would "
                    f"lose those of {tenant!r}. To delete only the rows, run the command with --keep-bodies."
                )
            async with connection.transaction(readonly=True):
                async for row in store.bodies(connection, tenant):
                    await blobs.delete(tenant, row["digest"])
        await store.delete_tenant(connection, tenant, DELETION_ORDER)
