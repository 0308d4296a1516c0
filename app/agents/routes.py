"""The messages of a thread's agents over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from app.agents.thread_messages import MAX_PAGE_RUNS, load_messages
from app.queries import views
from app.tenancy.http import Cursor, GatedRoute, ReadOperation, page_of

router = APIRouter(route_class=GatedRoute, tags=["queries"])

ThreadId = Annotated[str, Path(max_length=100)]


@router.get(
    "/threads/{thread_id}/messages",
    summary="What its agents said and heard, oldest first",
    description="The newest 100 runs of the thread, up to about 4 MiB of them, by agent. The next page has the runs before "
    "them.",
    response_model=views.MessagePage,
)
async def list_thread_messages(
    request: Request,
    thread_id: ThreadId,
    op: ReadOperation,
    agent: Annotated[str | None, Query(max_length=100)] = None,
    cursor: Cursor = None,
) -> Response:
    page = page_of(request, MAX_PAGE_RUNS, cursor)
    before = page.last(f"messages {thread_id}")
    messages, last = await load_messages(op.tx, thread_id, agent, before)
    return await op.respond(page.body_until(messages, last))
