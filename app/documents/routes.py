"""The state of threads and the memory of runtimes over HTTP."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field, JsonValue, SkipValidation
from starlette.convertors import PathConvertor, register_url_convertor

from app.base.errors import NotFound
from app.base.postgres.database import Tx
from app.documents import call_writes, store, views
from app.documents.models import MEMORY, STATE, DocumentId, WriteRequest
from app.documents.service import DocumentService, list_writes
from app.documents.store import MAX_LISTED_VALUE_BYTES
from app.documents.writing import Method
from app.runtimes.models import Runtime
from app.runtimes.service import Runtimes
from app.tenancy.http import (
    GatedRoute,
    Operation,
    PageRequest,
    Paging,
    ReadOperation,
    api_context,
    begin,
    json_response,
    operation,
    raise_if_repeated,
    require_scope,
    service,
)
from app.tenancy.models import Caller
from app.tenancy.request_body import Body


class RuntimeOfMemory(PathConvertor):
    """A runtime's name, which may contain slashes, in the path of a memory: `.../log` is the path of its log."""

    regex = r"(?!.+/[^/]+/log$).+"


register_url_convertor("runtime_of_memory", RuntimeOfMemory())

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
    caller: Annotated[Caller, require_scope("read")],
    documents: Documents,
    at: At = None,
) -> Response:
    return await _document(request, caller, documents, DocumentId.state(thread_id), at, threadId=thread_id)


@router.get(
    "/threads/{thread_id}/state/log",
    summary="The writes to a thread's state, newest first",
    response_model=views.WritePage,
)
async def list_state_writes(thread_id: ThreadId, op: ReadOperation, page: Paging) -> Response:
    return await _log(op, page, "writes", DocumentId.state(thread_id))


class Write(Body):
    """A write to one place, such as `†memory.total`."""

    path: Annotated[str, Field(max_length=2000)]
    """Where it is written, such as `total` or `orders[0]`."""
    method: Method = "set"
    value: SkipValidation[JsonValue]  # the JSON parser checked it
    """The value."""


class WriteOfCall(Write):
    """A write of a call's handler: `workId` is the call, `path` a path such as `†state.total`."""

    work_id: Annotated[str, Field(max_length=100)]
    """The id of the call whose result it is."""


@router.post(
    "/threads/{thread_id}/state/log",
    status_code=201,
    summary="Write to a thread's state from within a call",
    description="The call is one of this thread that the caller answers at the moment. Its query gets the event "
    "`state-write`.",
    response_model=views.WriteView,
)
async def write_thread_state(
    request: Request,
    thread_id: ThreadId,
    body: WriteOfCall,
    caller: Annotated[Caller, require_scope("data:write")],
    documents: Documents,
    runtimes: AllRuntimes,
) -> Response:
    await raise_if_repeated(request, caller)
    document = DocumentId.state(thread_id)
    target = call_writes.parse_target(body.path, STATE)
    runtime = await _runtime_of_call(request, caller, runtimes, document, body.work_id)
    schema = runtime.spec.state_schema
    write = WriteRequest(document, target, body.method, body.value, schema=schema)
    return await _write(request, caller, documents, write, f"/threads/{thread_id}/state", body.work_id)


# -- memory --------------------------------------------------------------------------------------------------


@memory.get(
    "/memory/{runtime:path}/{resource}/log",
    summary="The writes to the memory of a runtime, newest first",
    response_model=views.WritePage,
)
async def list_memory_writes(
    runtime: RuntimeName, resource: Resource, op: ReadOperation, page: Paging, runtimes: AllRuntimes
) -> Response:
    return await _log(op, page, "memory", await _memory_of(op.tx, op.caller, runtimes, runtime, resource))


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
    caller: Annotated[Caller, require_scope("data:write")],
    documents: Documents,
    runtimes: AllRuntimes,
) -> Response:
    await raise_if_repeated(request, caller)
    document = await _read_memory_id(request, caller, runtimes, runtime, resource)
    target = call_writes.parse_target(body.path, MEMORY)
    if (await _runtime_of_call(request, caller, runtimes, document, body.work_id)).name != runtime:
        raise call_writes.invalid_work("workId is work of another runtime")
    write = WriteRequest(document, target, body.method, body.value)
    return await _write(request, caller, documents, write, _address(runtime, resource), body.work_id)


@memory.get(
    "/memory/{runtime:runtime_of_memory}/{resource}",
    summary="The memory of a runtime, or as it was",
    description="One document for all threads of the runtime's name, whatever its version: what variables read as `†memory`.",
    response_model=views.MemoryView,
)
async def read_memory(
    request: Request,
    runtime: RuntimeName,
    resource: Resource,
    caller: Annotated[Caller, require_scope("read")],
    documents: Documents,
    runtimes: AllRuntimes,
    at: At = None,
) -> Response:
    document = await _read_memory_id(request, caller, runtimes, runtime, resource)
    return await _document(request, caller, documents, document, at, runtime=runtime, resource=resource)


@memory.post(
    "/memory/{runtime:runtime_of_memory}/{resource}",
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
    caller: Annotated[Caller, require_scope("data:write")],
    documents: Documents,
    runtimes: AllRuntimes,
) -> Response:
    await raise_if_repeated(request, caller)
    document = await _read_memory_id(request, caller, runtimes, runtime, resource)
    target = call_writes.parse_target(body.path, MEMORY)
    write = WriteRequest(document, target, body.method, body.value)
    return await _write(request, caller, documents, write, _address(runtime, resource))


@memory.delete(
    "/memory/{runtime:runtime_of_memory}/{resource}",
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
    document = await _memory_of(op.tx, op.caller, runtimes, runtime, resource)
    await store.delete_writes(op.tx, document=document)
    return await op.respond({"runtime": runtime, "resource": resource, "deleted": True})


async def _read_memory_id(
    request: Request, caller: Caller, runtimes: Runtimes, runtime: str, resource: str
) -> DocumentId:
    """Return the memory that a path names, read in a transaction of its own. Raise NotFound."""
    async with api_context(request).db.transaction(caller.tenant) as tx:
        return await _memory_of(tx, caller, runtimes, runtime, resource)


async def _memory_of(tx: Tx, caller: Caller, runtimes: Runtimes, runtime: str, resource: str) -> DocumentId:
    """Return the memory that a path names. Raise NotFound unless the runtime exists and the resource is the caller's
    tenant."""
    if resource != caller.tenant:
        raise NotFound(
            f"There is no memory of the resource {resource!r}; this key works for {caller.tenant!r}."
        )
    await runtimes.require_name(tx, runtime)
    return DocumentId.memory(runtime)


def _address(runtime: str, resource: str) -> str:
    return f"/memory/{quote(runtime, safe='')}/{resource}"


# -- both ----------------------------------------------------------------------------------------------------


async def _document(
    request: Request,
    caller: Caller,
    documents: DocumentService,
    document: DocumentId,
    at: int | None,
    **names: str,
) -> Response:
    """Return the response with a document, whose JSON is sent as it is stored, after the fields in `names`."""
    version = await documents.read_for_request(api_context(request).db, caller.tenant, document, at)
    head = orjson.dumps({**names, "write": version.head})
    return json_response(head[:-1] + b',"document":' + version.body + b"}")


async def _log(op: Operation, page: PageRequest, kind: str, document: DocumentId) -> Response:
    position = page.position(kind)
    before = int(position[0]) if position else None
    rows = await list_writes(op.tx, document, before, page.rows)
    return await op.respond(page.body([row.wire() for row in rows], "write"))


async def _runtime_of_call(
    request: Request, caller: Caller, runtimes: Runtimes, document: DocumentId, work_id: str
) -> Runtime:
    async with api_context(request).db.transaction(caller.tenant) as tx:
        runtime_id = await call_writes.runtime_of_call(tx, document, work_id)
    return await runtimes.get(caller.tenant, runtime_id)


async def _write(
    request: Request,
    caller: Caller,
    documents: DocumentService,
    write: WriteRequest,
    address: str,
    work_id: str | None = None,
) -> Response:
    """Add a write to the log, for the handler of a call if it has a `work_id`, and return the response."""
    prepared = await call_writes.prepare(api_context(request).db, caller.tenant, documents, write)
    async with begin(request, caller) as op:
        row = await call_writes.add(op.tx, documents, write, prepared, caller.principal, work_id)
        value = {"value": write.value} if row.size_bytes <= MAX_LISTED_VALUE_BYTES else {}
        return await op.respond({**row.wire(), **value}, 201, f"{address}?at={row.n}")
