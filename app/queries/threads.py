"""The verbs of threads: find one, make one, read it, and what its agents said and heard."""

from __future__ import annotations

from typing import Any

from app.base.errors import NotFound
from app.base.ids import is_id, new_id
from app.base.postgres.database import Tx
from app.base.responses import to_wire
from app.documents import store as store_of_state
from app.documents.models import Document, DocumentId
from app.documents.service import DocumentService
from app.queries import store
from app.queries.views import ThreadSummary, ThreadView
from app.workspace.service import Workspaces, lock_thread


async def find_thread(tx: Tx, thread_id: str | None, key: str | None) -> Any:
    """Return the row of the thread with this id, else of the thread with this key, else None."""
    if thread_id is not None:
        return await store.thread_by_id(tx, thread_id)
    return await store.thread_by_key(tx, key) if key is not None else None


async def read_thread(tx: Tx, thread_id: str) -> dict[str, Any]:
    """Return a thread and its active queries. Raise NotFound."""
    row = await store.thread(tx, thread_id) if is_id("thr_", thread_id) else None
    if row is None:
        raise NotFound(f"There is no thread {thread_id!r}.")
    return to_wire(ThreadView, row, active_queries=await store.active_in_thread(tx, thread_id))


async def thread_page(tx: Tx, before: str | None, limit: int) -> list[dict[str, Any]]:
    """Threads, newest first."""
    return [to_wire(ThreadSummary, row) for row in await store.threads(tx, before, limit)]


async def create_thread(tx: Tx, key: str | None) -> tuple[dict[str, Any], bool]:
    """Return the thread of this key, and whether it is new."""
    thread_id = new_id("thr_")
    found = await store.make_thread(tx, thread_id, key, None)
    return await read_thread(tx, found), found == thread_id


async def fork_thread(
    tx: Tx,
    documents: DocumentService,
    workspaces: Workspaces,
    thread_id: str,
    begun: Document,
    glimpse: Any,
    at: int | None,
) -> dict[str, Any]:
    """Return a new thread whose state and files begin as copies of this thread's (the files as of the time
    of its write `at`), with the same version of the runtime. Its agents remember nothing, because a
    write is not a point in their conversation. Raise NotFound."""
    await lock_thread(tx, thread_id)
    origin = await read_thread(tx, thread_id)
    made = await store.make_thread(tx, new_id("thr_"), None, origin["runtimeId"])
    await documents.begin_from(tx, DocumentId.state(made), begun, glimpse, f"{thread_id}@{begun.head}")
    if at != 0:
        moment = None if at is None else await store_of_state.written_at(tx, DocumentId.state(thread_id), at)
        await workspaces.fork(tx, thread_id, made, moment)
    return await read_thread(tx, made)
