"""Secrets of a tenant: written, never read back over HTTP, sealed in the database."""

from __future__ import annotations

from app.base.postgres.database import Database, Tx
from app.base.sealing import Sealer, secret_context
from app.tenancy import store


class Secrets:
    def __init__(self, db: Database, sealer: Sealer) -> None:
        self._db = db
        self._sealer = sealer

    async def put(self, tx: Tx, name: str, value: str) -> tuple[object, object]:
        """Sets or rotates a secret; gives when it was made and when it was last written."""
        sealed = self._sealer.seal(value.encode(), secret_context(tx.tenant, name))
        row = await store.put_secret(tx, name, sealed)
        return row["created_at"], row["updated_at"]

    async def read(self, tenant: str, name: str) -> str | None:
        """The value, for the service's own use; None if there is none of that name."""
        async with self._db.transaction(tenant) as tx:
            sealed = await store.secret(tx, name)
        return None if sealed is None else self._sealer.open(sealed, secret_context(tenant, name)).decode()
