"""The end of threads: gone for everybody at once, their rows in slices that fit into a transaction each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.artifacts.service import ArtifactService
from app.base.errors import Conflict, NotFound, TransactionConflict
from app.base.ids import is_id
from app.base.postgres.database import Database, StatementTimeout
from app.engine.worker import for_each_due
from app.queries import store

SLICE_ROWS: Final = 20_000
"""A thread with fewer rows goes in one transaction as a whole."""

MARKED: Final = 50_000
"""So many of its queries, the newest ones, are gone at once; those before them as soon as their rows are."""

SLICE_S: Final = 1.5
SLICES_AT_ONCE: Final = 50
"""Then the other threads that are deleted have their turn."""

DUE_AT_ONCE: Final = 10
TOLD: Final = 5


class ThreadBusy(Conflict):
    kind, title = "thread_busy", "The thread has a query that is not over"


class Deletions:
    def __init__(self, db: Database, artifacts: ArtifactService) -> None:
        self._db = db
        self._artifacts = artifacts

    async def delete(self, tenant: str, thread_id: str) -> None:
        """Once it returns nobody finds the thread. What does not fit into one transaction of its rows is removed
        afterwards, by `finish_due`; of very many queries and artifacts the oldest are read by their ids until then
        (docs/decisions/0014). Raises NotFound, ThreadBusy."""
        try:
            await self._begin(tenant, thread_id, SLICE_ROWS)
        except (
            StatementTimeout,
            TransactionConflict,
        ):  # in the way is another thread that is deleted, of the same bodies
            await self._begin(tenant, thread_id, 0)

    async def _begin(self, tenant: str, thread_id: str, rows: int) -> None:
        async with self._db.transaction(tenant) as tx:
            outcome, live = "no_thread", list[str]()
            if is_id("thr_", thread_id):
                outcome, live = await store.delete_thread(tx, thread_id, MARKED)
            if outcome == "no_thread":
                raise NotFound(f"There is no thread {thread_id!r}.")
            if outcome == "busy":
                raise _busy(live)
            await self._artifacts.forget(tx, thread_id)
            if rows:
                await store.purge_thread(tx, thread_id, rows, SLICE_S)

    async def finish_due(self) -> int:
        """Remove what is left of deleted threads, one slice per transaction. If this process dies, another
        one continues."""
        due = await store.due_deletions(self._db, DUE_AT_ONCE)
        await for_each_due(due, self._finish)
        return len(due)

    async def _finish(self, tenant: str, thread_id: str) -> None:
        rows = SLICE_ROWS
        for _ in range(SLICES_AT_ONCE):
            try:
                async with self._db.transaction(tenant) as tx:
                    if await store.purge_thread(tx, thread_id, rows, SLICE_S):
                        return
            except StatementTimeout:  # large rows, or a slow disk
                rows = max(1, rows // 10)


def _busy(live: Sequence[str]) -> ThreadBusy:
    told = ", ".join(live[:TOLD]) + (", ..." if len(live) > TOLD else "")
    are, them = ("1 query that is", "it") if len(live) == 1 else (f"{len(live)} queries that are", "them")
    return ThreadBusy(
        f"The thread has {are} not over: {told}. Wait for {them}, or cancel {them} (POST /queries/{{id}}/cancel), then "
        "delete the thread. Nothing was deleted.",
        extra={"queries": list(live[:TOLD])},
    )
