"""The state of threads and the memory of runtimes over HTTP."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field, JsonValue, SkipValidation

from app.base.errors import NotFound
from app.documents import call_writes, store, views
from app.documents.models import MEMORY, STATE, DocumentId, WriteRow
from app.documents.service import DocumentService, log
from app.documents.store import VALUE_SHOWN_BYTES
from app.documents.writing import Method
from app.runtimes.service import Runtimes
from app.tenancy.http import (
    Body,
    GatedRoute,
    Operation,
    Paging,
    Reading,
    begin,
    calling,
    door_of,
    json_response,
    operation,
    raise_if_repeated,
    service,
)
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["state"])
memory = APIRouter(route_class=GatedRoute, tags=["memory"])

ThreadId = Annotated[str, Path(max_length=100)]
RuntimeName = Annotated[str, Path(max_length=200, description="The name of a runtime, without a version.")]
Resource = Annotated[str, Path(max_length=100, description="The tenant's `resourceId`: that of the key.")]
Documents = Annotated[DocumentService, service("documents")]
AllRuntimes = Annotated[Runtimes, service("runtimes")]
At = Annotated[int | None, Query(ge=0, le=2**53, description="As it was after this write; 0 is before any.")]


@router.get(
    "/threads/{thread_id}/state",
    summary="The state of a thread, or as it was",
    response_model=views.StateView,
)
async def read_thread_state(
    request: Request,
    thread_id: ThreadId,
    caller: Annotated[Caller, calling("read")],
    documents: Documents,
    at: At = None,
) -> Response:
    found = await documents.state_of(door_of(request).db, caller.tenant, thread_id, at)
    head = orjson.dumps({"threadId": thread_id, "write": found.head})
    return json_response(head[:-1] + b',"document":' + found.body + b"}")


@router.get(
    "/threads/{thread_id}/state/log",
    summary="The writes to a thread's state, newest first",
    response_model=views.WritePage,
)
async def list_state_writes(
    thread_id: ThreadId,
    op: Reading,
    page: Paging,
) -> Response:
    position = page.position("writes")
    below = int(position[0]) if position else None
    rows = [r.wire() for r in await log(op.tx, DocumentId.state(thread_id), below, page.rows)]
    return await op.respond(page.body(rows, "write"))


class Write(Body):
    """A write to one place, such as `†memory.total`."""

    path: Annotated[str, Field(max_length=2000)]
    """Where it is written, such as `total` or `orders[0]`."""
    method: Method = "set"
    value: SkipValidation[JsonValue]  # the gate checked it
    """The value."""


class WriteOfCall(Write):
    """What the handler of a call writes: `workId` is the call, `path` a place such as `†state.total`."""

    work_id: Annotated[str, Field(max_length=100)]
    """The id of the call whose result it is."""


@router.post(
    "/threads/{thread_id}/state/log",
    status_code=201,
    summary="Write to a thread's state from within a call",
    description="The call is one of this thread that the caller answers at the moment. Its query is told, as of a result that "
    "goes to a path.",
    response_model=views.WriteView,
)
async def write_thread_state(
    request: Request,
    thread_id: ThreadId,
    body: WriteOfCall,
    caller: Annotated[Caller, calling("data:write")],
    documents: Documents,
    runtimes: AllRuntimes,
) -> Response:
    await raise_if_repeated(request, caller)
    document = DocumentId.state(thread_id)
    target = call_writes.parse_target(body.path, STATE)
    asked = call_writes.CallWrite(document, body.work_id, caller.principal, target, body.method, body.value)
    db = door_of(request).db
    async with db.transaction(caller.tenant) as tx:
        runtime_id = await call_writes.runtime_for_write(tx, asked)
    schema = (await runtimes.get(caller.tenant, runtime_id)).spec.state_schema
    made = await call_writes.prepare_large_write(
        db, caller.tenant, documents, document, target, body.method, body.value, schema
    )
    async with begin(request, caller) as op:
        row = await call_writes.write(op.tx, documents, asked, schema, made)
        return await op.respond(_written(row, body), 201, f"/threads/{thread_id}/state?at={row.n}")


# -- memory --------------------------------------------------------------------------------------------------


# The routes of the log come first: a name may contain slashes.


@memory.get(
    "/memory/{runtime:path}/{resource}/log",
    summary="The writes to the memory of a runtime, newest first",
    response_model=views.WritePage,
)
async def list_memory_writes(
    runtime: RuntimeName, resource: Resource, op: Reading, page: Paging, runtimes: AllRuntimes
) -> Response:
    _check_resource(op.caller, resource)
    await runtimes.require_name(op.tx, runtime)
    position = page.position("memory")
    below = int(position[0]) if position else None
    rows = [r.wire() for r in await log(op.tx, DocumentId.memory(runtime), below, page.rows)]
    return await op.respond(page.body(rows, "write"))


@memory.post(
    "/memory/{runtime:path}/{resource}/log",
    status_code=201,
    summary="Write to the memory of a runtime from within a call",
    description="The call is one of this runtime that the caller answers at the moment. Its query gets the event "
    "`state-write`.",
    response_model=views.WriteView,
)
async def write_memory_of_call(
    request: Request,
    runtime: RuntimeName,
    resource: Resource,
    body: WriteOfCall,
    caller: Annotated[Caller, calling("data:write")],
    documents: Documents,
    runtimes: AllRuntimes,
) -> Response:
    await raise_if_repeated(request, caller)
    document = await _memory_of(request, caller, runtimes, runtime, resource)
    target = call_writes.parse_target(body.path, MEMORY)
    asked = call_writes.CallWrite(document, body.work_id, caller.principal, target, body.method, body.value)
    db = door_of(request).db
    async with db.transaction(caller.tenant) as tx:
        runtime_id = await call_writes.runtime_for_write(tx, asked)
    if (await runtimes.get(caller.tenant, runtime_id)).name != runtime:
        raise call_writes.invalid_work("workId is work of another runtime")
    made = await call_writes.prepare_large_write(
        db, caller.tenant, documents, document, target, body.method, body.value
    )
    async with begin(request, caller) as op:
        row = await call_writes.write(op.tx, documents, asked, None, made)
        return await op.respond(_written(row, body), 201, _address(runtime, resource, row))


@memory.get(
    "/memory/{runtime:path}/{resource}",
    summary="The memory of a runtime, or as it was",
    description="One document for all threads of the runtime's name, whatever its version: what variables read as `†memory`.",
    response_model=views.MemoryView,
)
async def read_memory(
    request: Request,
    runtime: RuntimeName,
    resource: Resource,
    caller: Annotated[Caller, calling("read")],
    documents: Documents,
    runtimes: AllRuntimes,
    at: At = None,
) -> Response:
    await _memory_of(request, caller, runtimes, runtime, resource)
    found = await documents.memory_of(door_of(request).db, caller.tenant, runtime, at)
    head = orjson.dumps({"runtime": runtime, "resource": resource, "write": found.head})
    return json_response(head[:-1] + b',"document":' + found.body + b"}")


@memory.post(
    "/memory/{runtime:path}/{resource}",
    status_code=201,
    summary="Write to the memory of a runtime",
    description="For programs outside of any call. The log names the principal as the writer.",
    response_model=views.WriteView,
)
async def write_memory(
    request: Request,
    runtime: RuntimeName,
    resource: Resource,
    body: Write,
    caller: Annotated[Caller, calling("data:write")],
    documents: Documents,
    runtimes: AllRuntimes,
) -> Response:
    await raise_if_repeated(request, caller)
    document = await _memory_of(request, caller, runtimes, runtime, resource)
    target = call_writes.parse_target(body.path, MEMORY)
    made = await call_writes.prepare_large_write(
        door_of(request).db, caller.tenant, documents, document, target, body.method, body.value
    )
    async with begin(request, caller) as op:
        row = await call_writes.write_from_outside(
            op.tx, documents, document, target, body.method, body.value, caller.principal, made
        )
        return await op.respond(_written(row, body), 201, _address(runtime, resource, row))


@memory.delete(
    "/memory/{runtime:path}/{resource}",
    summary="Delete the memory of a runtime with its log, for good",
    description="Nobody reads the document or its writes from then on, and their rows are removed within minutes. The "
    "numbers of writes go on. What a query took from the memory stays in the records of its thread, until that is deleted.",
    response_model=views.MemoryDeleted,
)
async def delete_memory(
    runtime: RuntimeName,
    resource: Resource,
    op: Annotated[Operation, operation("data:write")],
    runtimes: AllRuntimes,
) -> Response:
    _check_resource(op.caller, resource)
    await runtimes.require_name(op.tx, runtime)
    await store.forget(op.tx, DocumentId.memory(runtime))
    return await op.respond({"runtime": runtime, "resource": resource, "deleted": True})


async def _memory_of(
    request: Request, caller: Caller, runtimes: Runtimes, runtime: str, resource: str
) -> DocumentId:
    """Return the memory that a path names. Raise NotFound."""
    _check_resource(caller, resource)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        await runtimes.require_name(tx, runtime)
    return DocumentId.memory(runtime)


def _check_resource(caller: Caller, resource: str) -> None:
    """Raise NotFound unless the resource is the caller's tenant."""
    if resource != caller.tenant:
        raise NotFound(
            f"There is no memory of the resource {resource!r}; this key works for {caller.tenant!r}."
        )


def _address(runtime: str, resource: str, row: WriteRow) -> str:
    return f"/memory/{quote(runtime, safe='')}/{resource}?at={row.n}"


def _written(row: WriteRow, body: Write) -> dict[str, Any]:
    value = {"value": body.value} if row.size_bytes <= VALUE_SHOWN_BYTES else {}
    return {**row.wire(), **value}
