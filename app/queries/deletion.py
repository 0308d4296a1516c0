"""Delete threads: hide them at once, and remove their rows in slices that fit into one transaction each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.artifacts.service import ArtifactService
from app.base.errors import Conflict, NotFound, TransactionConflict
from app.base.ids import is_id
from app.base.postgres.database import Database, StatementTimeout
from app.engine.worker import for_each_due
from app.queries import store

DUE_BATCH: Final = 10  # threads in one round
MAX_LISTED_QUERIES: Final = 5  # in the message of an error


@dataclass(frozen=True, slots=True)
class DeletionLimits:
    """Bounds on how much of a deleted thread one transaction removes.

    Attributes:
        slice_rows: a thread with fewer rows is removed in one transaction.
        slice_s: seconds that a transaction may take.
        slices_per_turn: then it is the turn of the next deleted thread.
        hidden_queries: the newest queries of a thread, which are hidden at once; older ones when their rows are removed.
    """

    slice_rows: int = 20_000
    slice_s: float = 1.5
    slices_per_turn: int = 50
    hidden_queries: int = 50_000


class ThreadBusy(Conflict):
    """The thread has queries that have not ended."""

    kind, title = "thread_busy", "The thread has a query that is not over"


class Deletions:
    """Deletes threads."""

    def __init__(self, db: Database, artifacts: ArtifactService, limits: DeletionLimits) -> None:
        self._db = db
        self._limits = limits
        self._artifacts = artifacts

    async def delete(self, tenant: str, thread_id: str) -> None:
        """Delete a thread. It is no longer found once this returns.

        Rows that do not fit into one transaction are removed later, by `finish_due`. If there are very many, the oldest
        queries and artifacts can be read by their ids until then (docs/decisions/0014). Raise NotFound or ThreadBusy.
        """
        try:
            await self._begin(tenant, thread_id, self._limits.slice_rows)
        except (StatementTimeout, TransactionConflict):  # another deleted thread has the same bodies
            await self._begin(tenant, thread_id, 0)

    async def _begin(self, tenant: str, thread_id: str, rows: int) -> None:
        async with self._db.transaction(tenant) as tx:
            outcome, live = "no_thread", list[str]()
            if is_id("thr_", thread_id):
                outcome, live = await store.delete_thread(
                    tx, thread_id=thread_id, queries=self._limits.hidden_queries
                )
            if outcome == "no_thread":
                raise NotFound(f"There is no thread {thread_id!r}.")
            if outcome == "busy":
                raise _busy(live)
            await self._artifacts.forget(tx, thread_id)
            if rows:
                await store.purge_thread(tx, thread_id=thread_id, rows=rows, within_s=self._limits.slice_s)

    async def finish_due(self) -> int:
        """Remove what is left of deleted threads, one slice per transaction. If this process dies, another
        one continues."""
        due = await store.due_deletions(self._db, limit=DUE_BATCH)
        await for_each_due(due, self._finish)
        return len(due)

    async def _finish(self, tenant: str, thread_id: str) -> None:
        rows = self._limits.slice_rows
        for _ in range(self._limits.slices_per_turn):
            try:
                async with self._db.transaction(tenant) as tx:
                    if await store.purge_thread(
                        tx, thread_id=thread_id, rows=rows, within_s=self._limits.slice_s
                    ):
                        return
            except StatementTimeout:  # large rows, or a slow disk
                rows = max(1, rows // 10)


def _busy(live: Sequence[str]) -> ThreadBusy:
    names = ", ".join(live[:MAX_LISTED_QUERIES]) + (", ..." if len(live) > MAX_LISTED_QUERIES else "")
    are, them = ("1 query that is", "it") if len(live) == 1 else (f"{len(live)} queries that are", "them")
    return ThreadBusy(
        f"The thread has {are} not over: {names}. Wait for {them}, or cancel {them} (POST /queries/{{id}}/cancel), then "
        "delete the thread. Nothing was deleted.",
        extra={"queries": list(live[:MAX_LISTED_QUERIES])},
    )
