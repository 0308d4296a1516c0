"""The state of threads over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field, JsonValue, SkipValidation

from app.base.postgres.database import Tx
from app.documents import call_writes, service, views
from app.documents.service import DocumentService
from app.documents.store import VALUE_SHOWN_BYTES
from app.documents.writing import Method
from app.tenancy.http import (
    Body,
    Cursor,
    GatedRoute,
    Limit,
    Reply,
    answer,
    before,
    calling,
    door_of,
    json_response,
    page,
    reading,
    repeated,
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
    documents: DocumentService = request.app.state.services.documents
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


class WriteState(Body):
    """What the handler of a call writes: `workId` is the call, `path` a place such as `†state.total`."""

    work_id: Annotated[str, Field(max_length=100)]
    path: Annotated[str, Field(max_length=2000)]
    method: Method = "set"
    value: SkipValidation[JsonValue]  # the gate checked it


@router.post(
    "/threads/{thread_id}/state/log",
    status_code=201,
    summary="Write to a thread's state from within a call",
    description="The call is one of this thread that the caller answers at the moment. Its query is told, as of a result that "
    "goes to a path.",
    response_model=views.WriteView,
)
async def write_state(
    request: Request,
    thread_id: ThreadId,
    body: WriteState,
    caller: Annotated[Caller, calling("data:write")],
) -> Response:
    first = await repeated(request, caller)
    if first is not None:
        return first
    services, db = request.app.state.services, door_of(request).db
    documents: DocumentService = services.documents
    target = call_writes.parse_target(body.path)
    asked = call_writes.CallWrite(thread_id, body.work_id, caller.principal, target, body.method, body.value)
    async with db.transaction(caller.tenant) as tx:
        runtime_id = await call_writes.runtime_for_write(tx, asked)
    schema = (await services.runtimes.get(caller.tenant, runtime_id)).spec.state_schema
    made = await call_writes.prepare_large_write(db, caller.tenant, documents, asked, schema)

    async def write(tx: Tx) -> Reply:
        row = await call_writes.write(tx, documents, asked, schema, made)
        value = {"value": body.value} if row.size_bytes <= VALUE_SHOWN_BYTES else {}
        return Reply({**row.wire(), **value}, 201, f"/threads/{thread_id}/state?at={row.n}")

    return await answer(request, caller, write)
