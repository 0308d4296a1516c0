"""The SQL of leases and wake-ups; migrations/sql/0001_functions.sql says why each is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.base.database import Database, Tx

CLAIM = "SELECT tenant_id, id, epoch, crashes FROM claim_queries($1, $2, $3)"
RENEW = "SELECT id FROM renew_leases($1, $2, $3, $4)"
RELEASE = "SELECT release_leases($1, $2, $3)"
WAKE = "SELECT wake_query($1)"
LOCK = "SELECT status FROM queries WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE"


@dataclass(frozen=True, slots=True)
class Claim:
    """A query that this process may work on now. `crashes`: epochs in a row that ended uncleanly."""

    tenant: str
    query_id: str
    epoch: int
    crashes: int


async def claim(db: Database, owner: str, limit: int, lease_s: float) -> list[Claim]:
    rows = await db.call(CLAIM, owner, limit, lease_s)
    return [Claim(r["tenant_id"], r["id"], r["epoch"], r["crashes"]) for r in rows]


async def renew(
    db: Database, owner: str, ids: Sequence[str], epochs: Sequence[int], lease_s: float
) -> set[str]:
    """The ids whose lease is still this owner's, now for `lease_s` seconds more."""
    return {r["id"] for r in await db.call(RENEW, owner, list(ids), list(epochs), lease_s)}


async def release(db: Database, owner: str, ids: Sequence[str], epochs: Sequence[int]) -> None:
    await db.call(RELEASE, owner, list(ids), list(epochs))


async def wake(tx: Tx, query_id: str) -> bool:
    """Something the query may wait for happened in this transaction. False: the query is over."""
    return bool(await tx.value(WAKE, query_id))


async def lock(tx: Tx, query_id: str) -> str | None:
    """Takes the query's row before any plan or approval of it (the lock order); gives its status."""
    status: str | None = await tx.value(LOCK, tx.tenant, query_id)
    return status
