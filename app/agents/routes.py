"""What the agents of a thread said and heard, over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from app.agents import thread_messages as messages_of_thread
from app.queries import views
from app.tenancy.http import GatedRoute, Reading, whole_list

router = APIRouter(route_class=GatedRoute, tags=["queries"])

ThreadId = Annotated[str, Path(max_length=100)]


@router.get(
    "/threads/{thread_id}/messages",
    summary="What its agents said and heard, oldest first",
    response_model=views.MessageList,
)
async def list_thread_messages(
    thread_id: ThreadId, op: Reading, agent: Annotated[str | None, Query(max_length=100)] = None
) -> Response:
    return await op.respond(whole_list(await messages_of_thread.load_messages(op.tx, thread_id, agent)))
