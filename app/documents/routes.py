"""The state of threads over HTTP."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field, JsonValue, SkipValidation

from app.documents import call_writes, views
from app.documents.service import DocumentService, log
from app.documents.store import VALUE_SHOWN_BYTES
from app.documents.writing import Method
from app.runtimes.service import Runtimes
from app.tenancy.http import (
    Body,
    GatedRoute,
    Paging,
    Reading,
    begin,
    calling,
    door_of,
    json_response,
    raise_if_repeated,
    service,
)
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["queries"])

ThreadId = Annotated[str, Path(max_length=100)]
Documents = Annotated[DocumentService, service("documents")]
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
    documents: Documents,
    at: Annotated[
        int | None, Query(ge=0, le=MOST_WRITES, description="As it was after this write; 0 is before any.")
    ] = None,
) -> Response:
    found = await documents.state_of(door_of(request).db, caller.tenant, thread_id, at)
    head = orjson.dumps({"threadId": thread_id, "write": found.head})
    return json_response(head[:-1] + b',"document":' + found.body + b"}")


@router.get(
    "/threads/{thread_id}/state/log",
    summary="The writes to a thread's state, newest first",
    response_model=views.WritePage,
)
async def state_log(
    thread_id: ThreadId,
    op: Reading,
    page: Paging,
) -> Response:
    position = page.position("writes")
    below = int(position[0]) if position else None
    rows = [r.wire() for r in await log(op.tx, thread_id, below, page.rows)]
    return await op.respond(page.body(rows, "write"))


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
    documents: Documents,
    runtimes: Annotated[Runtimes, service("runtimes")],
) -> Response:
    await raise_if_repeated(request, caller)
    target = call_writes.parse_target(body.path)
    asked = call_writes.CallWrite(thread_id, body.work_id, caller.principal, target, body.method, body.value)
    db = door_of(request).db
    async with db.transaction(caller.tenant) as tx:
        runtime_id = await call_writes.runtime_for_write(tx, asked)
    schema = (await runtimes.get(caller.tenant, runtime_id)).spec.state_schema
    made = await call_writes.prepare_large_write(db, caller.tenant, documents, asked, schema)
    async with begin(request, caller) as op:
        row = await call_writes.write(op.tx, documents, asked, schema, made)
        value = {"value": body.value} if row.size_bytes <= VALUE_SHOWN_BYTES else {}
        return await op.respond({**row.wire(), **value}, 201, f"/threads/{thread_id}/state?at={row.n}")
