"""A tenant that comes from another deployment. Only the owner of the schema changes the state of a tenant."""

from __future__ import annotations

import secrets
from typing import Any

from app.tenancy import store


async def finish_import(connection: Any, tenant: str) -> None:
    """Show a tenant whose rows are all here, and let its queries run. Its cursors are of a new history."""
    await store.finish_import(connection, tenant=tenant, history=secrets.randbits(62))
