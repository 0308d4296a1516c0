"""The SQL of processes, leases and wake-ups. The functions are in migrations/functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from app.base.postgres.database import Database, Tx
from app.engine.models import Culprit, ProcessInfo, QueryClaim
from app.journal.models import Lease

CLAIM = "SELECT tenant_id AS tenant, id AS query_id, epoch, lost, share, load_failures FROM claim_queries($1, $2, $3, $4, $5)"
RELEASE = "SELECT release_leases($1, $2, $3, $4)"
REPORT = "SELECT id FROM report_process($1, $2, $3, $4, $5, $6)"
REGISTER = "SELECT register_process($1, $2, $3, $4, $5)"
END_PROCESS = "SELECT end_process($1, $2, $3, $4) AS news"
PRESUME_DEAD = "SELECT presume_dead($1) AS n"
LIST_PROCESSES = "SELECT * FROM list_processes($1)"
LOCKED = "SELECT id FROM locked_processes()"
# A process that was silent for a minute is presumed dead, as for its leases.
HEARTBEATS = (
    "SELECT id, heartbeat_at AS at, $1 = ANY (closing) AS is_closing FROM processes WHERE ended_at IS NULL"
)
# Without a lease, too: a release does not raise the epoch, and a commit checks nothing else.
FENCE_TENANT = """
UPDATE queries SET lease_epoch = lease_epoch + 1, lease_owner = NULL, lease_expires_at = NULL
 WHERE tenant_id = $1 AND status = 'running'
"""
CLOSED_TENANTS = "SELECT tenant_id FROM closed_tenants()"
CULPRITS = "SELECT tenant_id AS tenant, id AS query_id, epoch, deaths, own_deaths FROM culprits($1)"
COUNT_SUSPECTS = "SELECT count_suspects() AS n"
WAKE = "SELECT wake_query($1)"
LOCK = "SELECT status FROM queries WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE"
# For a transaction that holds rows which others lock after the query's: it must not wait.
TRY_LOCK = f"{LOCK} SKIP LOCKED"
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
LOCK_LEASE = """
SELECT 1 FROM queries WHERE tenant_id = $1 AND id = $2 AND lease_epoch = $3 AND status = 'running' AND (SELECT may_dispatch())
   FOR NO KEY UPDATE
"""
RENEW_LEASE = """
UPDATE queries SET lease_expires_at = greatest(lease_expires_at, clock_timestamp() + make_interval(secs => $4::float8))
 WHERE tenant_id = $1 AND id = $2 AND lease_epoch = $3 AND status = 'running' AND (SELECT may_dispatch()) RETURNING 1
"""
PROGRESS = (
    "UPDATE queries SET progress_epoch = lease_epoch WHERE tenant_id = $1 AND id = $2 AND lease_epoch = $3"
)
LOADED = "UPDATE queries SET load_failures = 0 WHERE tenant_id = $1 AND id = $2 AND lease_epoch = $3"

ENTER_TIMELINE = "SELECT enter_timeline($1) AS needs_recovery"
END_RECOVERY = "SELECT end_recovery()"
UNFINISHED = "SELECT tenant_id, id FROM unfinished_queries($1, $2, $3)"
FENCE = """
UPDATE queries SET lease_epoch = lease_epoch + 1, lease_owner = NULL, lease_expires_at = NULL
 WHERE tenant_id = $1 AND id = $2 AND status = 'running'
"""

EndReason = Literal["stopped", "died"]
HeldLease = tuple[str, str, int]
"""The tenant, the id and the epoch of a query that a process holds."""


async def claim(
    db: Database, *, owner: str, limit: int, lease_s: float, suspects: bool = False, company: int = 0
) -> list[QueryClaim]:
    """Claim up to `limit` queries for the process `owner`.

    With `suspects`, claim only queries that must run in a child process; it runs `company` queries already.
    """
    rows = await db.call(CLAIM, owner, limit, lease_s, suspects, company)
    return [QueryClaim(**row) for row in rows]


async def culprits(db: Database, *, fatal_deaths: int) -> list[Culprit]:
    """Return the queries for which this many processes died, the last of them while it ran nothing else."""
    rows = await db.call(CULPRITS, fatal_deaths)
    return [Culprit(**row) for row in rows]


async def count_suspects(db: Database) -> int:
    """Return how many queries wait for a child process."""
    (row,) = await db.call(COUNT_SUSPECTS)
    return int(row["n"])


async def release(db: Database, *, owner: str, leases: Sequence[HeldLease]) -> None:
    """Give back leases of a process that stops."""
    await db.call(RELEASE, owner, *_columns(leases))


async def register_process(
    db: Database, *, id: str, parent_id: str | None, host: str, pid: int, holds_lock: bool
) -> None:
    """Record that a process has started. Idempotent."""
    await db.call(REGISTER, id, parent_id, host, pid, holds_lock)


async def report_process(
    db: Database,
    *,
    id: str,
    leases: Sequence[HeldLease],
    lease_s: float | None,
    closing: Sequence[str] = (),
) -> set[str]:
    """Write a heartbeat and renew `leases`; return the ids of the queries that are still held. `closing`: the closed tenants
    whose queries the process is still stopping.

    Leases of this process that are not among them are released: the response to their claim was lost.
    """
    return {r["id"] for r in await db.call(REPORT, id, *_columns(leases), lease_s, list(closing))}


async def closed_tenants(db: Database) -> frozenset[str]:
    """Return the tenants that this process must not work for."""
    return frozenset(row["tenant_id"] for row in await db.call(CLOSED_TENANTS))


@dataclass(frozen=True, slots=True)
class ProcessHeartbeat:
    """The last heartbeat of a process. `is_closing`: it was still stopping the queries of a tenant."""

    at: datetime
    is_closing: bool


async def heartbeats(connection: Any, *, tenant: str) -> dict[str, ProcessHeartbeat]:
    """Return the last heartbeat of each process that may still write, over a connection of the schema's owner."""
    rows = await connection.fetch(HEARTBEATS, tenant)
    return {row["id"]: ProcessHeartbeat(row["at"], row["is_closing"]) for row in rows}


async def fence_tenant(connection: Any, *, tenant: str) -> None:
    """End the leases of all queries of a tenant, those that were released included, over a connection of the schema's owner."""
    await connection.execute(FENCE_TENANT, tenant)


def _columns(leases: Sequence[HeldLease]) -> list[list[Any]]:
    return [[lease[n] for lease in leases] for n in range(3)]


async def end_process(db: Database, *, id: str, reason: EndReason, lease_s: float, queries: int = 0) -> bool:
    """Record that a process has ended and free its leases. Return False if that was known before.

    `queries`: how many a child process ever ran, those that are over included.
    """
    (row,) = await db.call(END_PROCESS, id, reason, lease_s, queries)
    return bool(row["news"])


async def presume_dead(db: Database, *, silent_s: float) -> int:
    """Mark processes as dead that sent no heartbeat for this long while the database was writable. Return their number."""
    (row,) = await db.call(PRESUME_DEAD, int(silent_s * 1000))
    return int(row["n"])


async def list_processes(db: Database, *, limit: int) -> list[ProcessInfo]:
    """Return processes that live or ended in the last hour, the newest first."""
    return [ProcessInfo(**row) for row in await db.call(LIST_PROCESSES, limit)]


async def locked_processes(db: Database) -> list[str]:
    """Return the ids of processes that hold a lock file, as far as the database knows."""
    return [r["id"] for r in await db.call(LOCKED)]


async def enter_timeline(db: Database, *, lossless: bool) -> bool:
    """Record the timeline of the database. Return whether work is stopped. `lossless`: promotions lose nothing as long as
    commits wait for a standby."""
    (row,) = await db.call(ENTER_TIMELINE, lossless)
    return bool(row["needs_recovery"])


async def end_recovery(db: Database) -> None:
    """Let work continue."""
    await db.call(END_RECOVERY)


async def unfinished_queries(db: Database, *, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
    """Return the tenant and the id of queries that have not ended, after this one."""
    return [(row["tenant_id"], row["id"]) for row in await db.call(UNFINISHED, *after, limit)]


async def fence_query(tx: Tx, *, query_id: str) -> None:
    """End the lease of a query, so that the process that holds it writes nothing more."""
    await tx.run(FENCE, tx.tenant, query_id)


async def mark_for_ending(tx: Tx, *, query_id: str, epoch: int, code: str, message: str) -> None:
    """Fence the query and have it ended as failed by a periodic task (app/engine/ending.py)."""
    await tx.run(MARK_FOR_ENDING, tx.tenant, query_id, epoch, code, message)


async def lock_lease(tx: Tx, *, lease: Lease) -> bool:
    """Lock the query's row under the epoch of the lease. Return False if the lease was lost: write nothing then."""
    return await tx.value(LOCK_LEASE, lease.tenant, lease.query_id, lease.epoch) is not None


async def renew_lease(tx: Tx, *, lease: Lease, lease_s: float) -> bool:
    """Do the same as `lock_lease`, and make the lease last at least `lease_s` seconds from now on."""
    return await tx.value(RENEW_LEASE, lease.tenant, lease.query_id, lease.epoch, lease_s) is not None


async def record_progress(tx: Tx, *, lease: Lease) -> None:
    """Record that the query made progress under this lease."""
    await tx.run(PROGRESS, lease.tenant, lease.query_id, lease.epoch)


async def postpone_query(tx: Tx, *, lease: Lease, delay_s: float) -> None:
    """Give back a query that could not be loaded, to be claimed again after `delay_s` seconds."""
    await tx.run(POSTPONE, lease.tenant, lease.query_id, lease.epoch, delay_s)


async def mark_loaded(tx: Tx, *, lease: Lease) -> None:
    """Reset the count of failed loads."""
    await tx.run(LOADED, lease.tenant, lease.query_id, lease.epoch)


async def wake_query(tx: Tx, *, query_id: str) -> bool:
    """Wake a query: something that it may wait for happens in this transaction. Return False if it has ended."""
    return bool(await tx.value(WAKE, query_id))


async def lock_query(tx: Tx, *, query_id: str) -> str | None:
    """Lock the query's row, before any plan or approval of it (the lock order), and return its status."""
    status: str | None = await tx.value(LOCK, tx.tenant, query_id)
    return status


async def try_lock_query(tx: Tx, *, query_id: str) -> bool:
    """Lock the query's row, out of the lock order. Return False, without waiting, if another transaction holds it."""
    return await tx.value(TRY_LOCK, tx.tenant, query_id) is not None
