"""Secrets of a tenant: sealed in the database, and never readable over HTTP."""

from __future__ import annotations

from app.base.postgres.database import Database, Tx
from app.base.sealing import Sealer, secret_context
from app.tenancy import store
from app.tenancy.models import SecretRecord


class Secrets:
    """The secrets of all tenants, under the service's key."""

    def __init__(self, db: Database, sealer: Sealer) -> None:
        self._db = db
        self._sealer = sealer

    async def put(self, tx: Tx, name: str, value: str) -> SecretRecord:
        """Set or rotate a secret."""
        sealed = self._sealer.seal(value.encode(), secret_context(tx.tenant, name))
        return await store.put_secret(tx, name=name, sealed=sealed)

    async def read(self, tenant: str, name: str) -> str | None:
        """Return the value for the service's own use, or None if there is no such secret."""
        async with self._db.transaction(tenant) as tx:
            sealed = await store.secret(tx, name=name)
        return None if sealed is None else self._sealer.open(sealed, secret_context(tenant, name)).decode()
