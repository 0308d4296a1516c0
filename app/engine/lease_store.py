"""The SQL of processes, leases and wake-ups. The functions are in migrations/functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.base.postgres.database import Database, Tx

CLAIM = "SELECT tenant_id, id, epoch, lost, share, load_failures FROM claim_queries($1, $2, $3, $4, $5)"
RELEASE = "SELECT release_leases($1, $2, $3, $4)"
REPORT = "SELECT id FROM report_process($1, $2, $3, $4, $5)"
REGISTER = "SELECT register_process($1, $2, $3, $4, $5)"
END_PROCESS = "SELECT end_process($1, $2, $3, $4) AS news"
PRESUME_DEAD = "SELECT presume_dead($1) AS n"
LOCKED = "SELECT id FROM locked_processes()"
CULPRITS = "SELECT tenant_id, id, epoch, deaths, own_deaths FROM culprits($1)"
COUNT_SUSPECTS = "SELECT count_suspects() AS n"
WAKE = "SELECT wake_query($1)"
LOCK = "SELECT status FROM queries WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE"
# Fenced by the epoch, and free of a lease: nobody works on it any more, and it is claimed only to be ended.
MARK_FOR_ENDING = """
UPDATE queries SET lease_epoch = lease_epoch + 1, lease_owner = NULL, lease_expires_at = NULL, retry_at = NULL,
       ending_code = $4, ending_message = $5
 WHERE tenant_id = $1 AND id = $2 AND lease_epoch = $3 AND status = 'running'
"""
POSTPONE = """
UPDATE queries SET load_failures = load_failures + 1, lease_owner = NULL, lease_expires_at = NULL,
       retry_at = clock_timestamp() + make_interval(secs => $4::float8)
 WHERE tenant_id = $1 AND id = $2 AND lease_epoch = $3 AND status = 'running'
"""
LOADED = "UPDATE queries SET load_failures = 0 WHERE tenant_id = $1 AND id = $2 AND lease_epoch = $3"

EndReason = Literal["stopped", "died"]
HeldLease = tuple[str, str, int]
"""The tenant, the id and the epoch of a query that a process holds."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A query that this process may work on now, and what its lost leases say about it.

    `lost`: the lease before this one ended without a word from its owner. `share`: how many queries at most a child process
    may run together with it, itself included; None for any number.
    """

    tenant: str
    query_id: str
    epoch: int
    lost: bool = False
    share: int | None = None
    load_failures: int = 0


@dataclass(frozen=True, slots=True)
class Culprit:
    """A query that ended its processes, and that nobody works on now.

    `deaths`: processes that died while they worked on it and on others, since its last progress. `own_deaths`: child
    processes that died while they ran this query alone.
    """

    tenant: str
    query_id: str
    epoch: int
    deaths: int
    own_deaths: int


async def claim(
    db: Database, owner: str, limit: int, lease_s: float, *, suspects: bool = False, company: int = 0
) -> list[Claim]:
    """Claim up to `limit` queries for the process `owner`.

    With `suspects`, claim only queries that must run in a child process; it runs `company` queries already.
    """
    rows = await db.call(CLAIM, owner, limit, lease_s, suspects, company)
    return [
        Claim(
            tenant=r["tenant_id"],
            query_id=r["id"],
            epoch=r["epoch"],
            lost=r["lost"],
            share=r["share"],
            load_failures=r["load_failures"],
        )
        for r in rows
    ]


async def culprits(db: Database, fatal_deaths: int) -> list[Culprit]:
    """Return the queries for which this many processes died, the last of them while it ran nothing else."""
    rows = await db.call(CULPRITS, fatal_deaths)
    return [Culprit(r["tenant_id"], r["id"], r["epoch"], r["deaths"], r["own_deaths"]) for r in rows]


async def count_suspects(db: Database) -> int:
    """Return how many queries wait for a child process."""
    (row,) = await db.call(COUNT_SUSPECTS)
    return int(row["n"])


async def release(db: Database, owner: str, held: Sequence[HeldLease]) -> None:
    """Give back leases of a process that stops."""
    await db.call(RELEASE, owner, *_columns(held))


async def register_process(
    db: Database, id: str, *, parent_id: str | None, host: str, pid: int, holds_lock: bool
) -> None:
    """Record that a process has started. Idempotent."""
    await db.call(REGISTER, id, parent_id, host, pid, holds_lock)


async def report_process(db: Database, id: str, held: Sequence[HeldLease], lease_s: float | None) -> set[str]:
    """Write a heartbeat and renew the leases `held`; return the ids of the queries that are still held.

    Leases of this process that are not among them are released: the response to their claim was lost.
    """
    return {r["id"] for r in await db.call(REPORT, id, *_columns(held), lease_s)}


def _columns(held: Sequence[HeldLease]) -> list[list[Any]]:
    return [[lease[n] for lease in held] for n in range(3)]


async def end_process(db: Database, id: str, reason: EndReason, lease_s: float, *, queries: int = 0) -> bool:
    """Record that a process has ended and free its leases. Return False if that was known before.

    `queries`: how many a child process ever ran, those that are over included.
    """
    (row,) = await db.call(END_PROCESS, id, reason, lease_s, queries)
    return bool(row["news"])


async def presume_dead(db: Database, silent_s: float) -> int:
    """Mark processes as dead that sent no heartbeat for this long while the database was writable. Return their number."""
    (row,) = await db.call(PRESUME_DEAD, int(silent_s * 1000))
    return int(row["n"])


async def locked_processes(db: Database) -> list[str]:
    """Return the ids of processes that hold a lock file, as far as the database knows."""
    return [r["id"] for r in await db.call(LOCKED)]


async def mark_for_ending(tx: Tx, query_id: str, epoch: int, code: str, message: str) -> None:
    """Fence the query and have it ended as failed by a periodic task (app/engine/ending.py)."""
    await tx.run(MARK_FOR_ENDING, tx.tenant, query_id, epoch, code, message)


async def postpone(tx: Tx, query_id: str, epoch: int, delay_s: float) -> None:
    """Give back a query that could not be loaded, to be claimed again after `delay_s` seconds."""
    await tx.run(POSTPONE, tx.tenant, query_id, epoch, delay_s)


async def mark_loaded(tx: Tx, query_id: str, epoch: int) -> None:
    """Reset the count of failed loads."""
    await tx.run(LOADED, tx.tenant, query_id, epoch)


async def wake(tx: Tx, query_id: str) -> bool:
    """Something the query may wait for happened in this transaction. False: the query is over."""
    return bool(await tx.value(WAKE, query_id))


async def lock(tx: Tx, query_id: str) -> str | None:
    """Lock the query's row, before any plan or approval of it (the lock order), and return its status."""
    status: str | None = await tx.value(LOCK, tx.tenant, query_id)
    return status
