"""What the agents of a thread said and heard, over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from app.agents import thread_messages as messages_of_thread
from app.base.postgres.database import Tx
from app.queries import views
from app.tenancy.http import GatedRoute, calling, reading
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["queries"])

ThreadId = Annotated[str, Path(max_length=100)]


@router.get(
    "/threads/{thread_id}/messages",
    summary="What its agents said and heard, oldest first",
    response_model=views.MessageList,
)
async def thread_messages(
    request: Request,
    thread_id: ThreadId,
    caller: Annotated[Caller, calling("read")],
    agent: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    async def messages(tx: Tx) -> Any:
        return {"items": await messages_of_thread.load_messages(tx, thread_id, agent), "nextCursor": None}

    return await reading(request, caller, messages)
