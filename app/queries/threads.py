"""Threads: create, read, list and fork."""

from __future__ import annotations

from typing import Any

from app.base.errors import NotFound
from app.base.ids import is_id, new_id
from app.base.postgres.database import Tx
from app.base.responses import to_wire
from app.documents.call_records import time_of_write
from app.documents.models import Document, DocumentId
from app.documents.service import DocumentService
from app.queries import store
from app.queries.views import ThreadSummary, ThreadView
from app.workspace.service import Workspaces, lock_thread


async def read_thread(tx: Tx, thread_id: str) -> dict[str, Any]:
    """Return a thread and its active queries. Raise NotFound."""
    row = await store.find_thread(tx, thread_id=thread_id) if is_id("thr_", thread_id) else None
    if row is None:
        raise NotFound(f"There is no thread {thread_id!r}.")
    return to_wire(ThreadView, row, active_queries=await store.active_in_thread(tx, thread_id=thread_id))


async def thread_page(tx: Tx, before: str | None, limit: int) -> list[dict[str, Any]]:
    """Return threads, newest first."""
    return [to_wire(ThreadSummary, row) for row in await store.thread_page(tx, before=before, limit=limit)]


async def create_thread(tx: Tx, key: str | None) -> tuple[dict[str, Any], bool]:
    """Return the thread of this key, and whether it is new."""
    new_thread_id = new_id("thr_")
    thread_id = await store.create_thread(tx, thread_id=new_thread_id, key=key, runtime_id=None)
    return await read_thread(tx, thread_id), thread_id == new_thread_id


async def fork_thread(
    tx: Tx,
    documents: DocumentService,
    workspaces: Workspaces,
    thread_id: str,
    origin_state: Document,
    glimpse: Any,
    at: int | None,
) -> dict[str, Any]:
    """Return a new thread whose state and files begin as copies of this thread's (the files as of the time
    of its write `at`), with the same version of the runtime. Of files on a machine of the user, those that were published
    are copied. Its agents remember nothing, because a write is not a point in their conversation. Raise NotFound."""
    await lock_thread(tx, thread_id)
    origin = await read_thread(tx, thread_id)
    fork_id = await store.create_thread(
        tx, thread_id=new_id("thr_"), key=None, runtime_id=origin["runtimeId"]
    )
    await documents.begin_from(
        tx, DocumentId.state(fork_id), origin_state, glimpse, f"{thread_id}@{origin_state.head}"
    )
    if at != 0:
        document = DocumentId.state(thread_id)
        moment = None if at is None else await time_of_write(tx, document=document, n=at)
        await workspaces.fork(tx, thread_id, fork_id, moment)
    return await read_thread(tx, fork_id)
