"""The states of a tenant that leaves a deployment, or comes from another one.

Only the owner of the schema changes them, over a connection of its own: the role of the service cannot.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from app.base.errors import Conflict, NotFound
from app.base.ids import new_id
from app.base.keys import new_key
from app.base.postgres.database import Tx
from app.tenancy import store
from app.tenancy.models import ApiKey


@dataclass(frozen=True, slots=True)
class ReplacementKey:
    """A key that replaces another one, and its text, which is shown only once."""

    replaces: str
    key: ApiKey
    text: str


async def park_tenant(connection: Any, tenant: str) -> None:
    """Serve no requests of the tenant and run none of its queries, until it is resumed. Parking it again changes nothing.
    Raise NotFound or Conflict."""
    await _change(connection, tenant, ("active", "parked"), "parked")


async def resume_tenant(connection: Any, tenant: str) -> None:
    """Let a parked tenant continue here. Raise NotFound or Conflict."""
    await _change(connection, tenant, ("parked",), "active")


async def redirect_tenant(connection: Any, tenant: str, cell: str) -> None:
    """Answer every request of a parked tenant with a 421 that names `cell`. Raise NotFound or Conflict."""
    await _change(connection, tenant, ("parked", "moved"), "moved", cell)


async def cell_of_moved_tenant(connection: Any, tenant: str) -> str | None:
    """Return the cell that a tenant was moved to, or None if it was not moved."""
    return await store.cell_of_moved_tenant(connection, tenant=tenant)


async def finish_import(connection: Any, tenant: str) -> None:
    """Show a tenant whose rows are all here, and let its queries run. Its cursors are of a new history."""
    await store.finish_import(connection, tenant=tenant, history=secrets.randbits(62))


async def replace_keys(tx: Tx, cell: str | None) -> list[ReplacementKey]:
    """Create a key of this cell for each key of the tenant that is in force, with the same rights. The old ones stay."""
    replaced = []
    for old in await store.valid_keys(tx):
        text, hash = new_key(cell=cell)
        key = await store.insert_key(
            tx,
            key_id=new_id("key_"),
            hash=hash,
            principal=old.principal,
            scopes=old.scopes,
            tools=old.tools,
            created_by=old.created_by,
            expires_at=old.expires_at,
        )
        replaced.append(ReplacementKey(old.id, key, text))
    return replaced


async def _change(
    connection: Any, tenant: str, before: tuple[str, ...], after: str, moved_to: str | None = None
) -> None:
    if await store.change_state(connection, tenant=tenant, before=before, after=after, moved_to=moved_to):
        return
    state = await store.tenant_state(connection, tenant=tenant)
    if state is None:
        raise NotFound(f"There is no tenant {tenant!r}.")
    raise Conflict(
        f"The tenant {tenant!r} is {state}. The command accepts only a tenant that is {' or '.join(before)}."
    )
