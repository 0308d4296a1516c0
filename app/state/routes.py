"""The state of threads over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response

from app.base.database import Tx
from app.state import service, views
from app.state.service import Documents
from app.tenancy.http import (
    Cursor,
    GatedRoute,
    Limit,
    before,
    calling,
    door_of,
    json_response,
    page,
    reading,
)
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["queries"])

ThreadId = Annotated[str, Path(max_length=100)]
MOST_WRITES = 2**53


@router.get(
    "/threads/{thread_id}/state",
    summary="The state of a thread, or as it was",
    response_model=views.StateView,
)
async def read_state(
    request: Request,
    thread_id: ThreadId,
    caller: Annotated[Caller, calling("read")],
    at: Annotated[
        int | None, Query(ge=0, le=MOST_WRITES, description="As it was after this write; 0 is before any.")
    ] = None,
) -> Response:
    documents: Documents = request.app.state.services.documents
    found = await documents.state_of(door_of(request).db, caller.tenant, thread_id, at)
    head = orjson.dumps({"threadId": thread_id, "write": found.head})
    return json_response(head[:-1] + b',"document":' + found.body + b"}")


@router.get(
    "/threads/{thread_id}/state/log",
    summary="The writes to a thread's state, newest first",
    response_model=views.WritePage,
)
async def state_log(
    request: Request,
    thread_id: ThreadId,
    caller: Annotated[Caller, calling("read")],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    position = before(request, "writes", cursor)

    async def listed(tx: Tx) -> Any:
        below = int(position[0]) if position else None
        rows = [r.wire() for r in await service.log(tx, thread_id, below, limit + 1)]
        return page(request, "writes", rows, limit, lambda r: [r["write"]])

    return await reading(request, caller, listed)
