"""The files of threads over HTTP. Bodies go through in pieces, in both directions."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response

from app.base.postgres.database import Tx
from app.tenancy.http import Cursor, GatedRoute, Limit, before, calling, door_of, json_response, page, reading
from app.tenancy.models import Caller
from app.workspace import paths, views
from app.workspace.http import (
    BINARY_CONTENT,
    RANGE_DESCRIPTION,
    RANGE_RESPONSES,
    StreamingRoute,
    get_workspaces,
    parse_condition,
    parse_media_type,
    receive_body,
    send_body,
)
from app.workspace.models import DEFAULT_TYPE, FileAuthor, FileRow
from app.workspace.service import require_thread

ThreadId = Annotated[str, Path(max_length=100)]
FilePath = Annotated[str, Path(description="Relative to the workspace; it may contain slashes.")]


router = APIRouter(route_class=GatedRoute, tags=["files"])
streamed = APIRouter(route_class=StreamingRoute, tags=["files"])


def place_of(row: FileRow) -> str:
    return f"/threads/{row.thread_id}/files/{quote(row.path)}"


@router.get(
    "/threads/{thread_id}/files",
    summary="The files of a thread, in the order of their paths",
    response_model=views.FilePage,
)
async def list_files(
    request: Request,
    thread_id: ThreadId,
    caller: Annotated[Caller, calling("read")],
    prefix: Annotated[
        str, Query(max_length=2000, description="What their paths begin with; a directory ends with /.")
    ] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    begins = paths.normalize_prefix(prefix)
    kind = f"files:{thread_id}:{begins}"
    position = before(request, kind, cursor)

    async def listed(tx: Tx) -> Any:
        after = str(position[0]) if position else ""
        rows = await get_workspaces(request).list_files(tx, thread_id, begins, after, limit + 1)
        return page(request, kind, [r.wire() for r in rows], limit, lambda r: [r["path"]])

    return await reading(request, caller, listed)


@streamed.head("/threads/{thread_id}/files/{path:path}", include_in_schema=False)
@streamed.get(
    "/threads/{thread_id}/files/{path:path}",
    summary="A file of a thread, as it is or as it was in a version",
    description=RANGE_DESCRIPTION,
    response_class=Response,
    responses={
        200: {
            "description": "The bytes. `ETag` is their SHA-256, `Plangate-File-Version` the version.",
            "content": {DEFAULT_TYPE: BINARY_CONTENT},
        },
        **RANGE_RESPONSES,
    },
)
async def read_file(
    request: Request,
    thread_id: ThreadId,
    path: FilePath,
    caller: Annotated[Caller, calling("read")],
    version: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> Response:
    workspaces = get_workspaces(request)
    asked = paths.normalize(path)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        row = await workspaces.get_file(tx, thread_id, asked, version)
    return await send_body(request, caller.tenant, row.body, {"plangate-file-version": str(row.version)})


@streamed.put(
    "/threads/{thread_id}/files/{path:path}",
    status_code=201,
    summary="Write a file of a thread: its next version",
    description="The body is the file, of any content type. A reader sees the old version or the new one. The same body "
    "again is no new version. With `If-Match` or `If-None-Match: *` only over the file that you know, or over none.",
    response_model=views.FileView,
    responses={200: {"model": views.FileView, "description": "A file that was there has a new version."}},
    openapi_extra={"requestBody": {"required": True, "content": {DEFAULT_TYPE: BINARY_CONTENT}}},
)
async def write_file(
    request: Request, thread_id: ThreadId, path: FilePath, caller: Annotated[Caller, calling("data:write")]
) -> Response:
    workspaces = get_workspaces(request)
    asked, kind, when = paths.normalize(path), parse_media_type(request), parse_condition(request)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        await require_thread(tx, thread_id)
    body = await receive_body(request, caller.tenant)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        row, new = await workspaces.write(
            tx, thread_id, asked, body, FileAuthor(caller.principal), media_type=kind, condition=when
        )
    return json_response(row.wire(), 201 if new else 200, place_of(row))


@streamed.delete(
    "/threads/{thread_id}/files/{path:path}",
    summary="Delete a file of a thread; its versions stay",
    response_model=views.FileView,
)
async def delete_file(
    request: Request, thread_id: ThreadId, path: FilePath, caller: Annotated[Caller, calling("data:write")]
) -> Response:
    asked, when = paths.normalize(path), parse_condition(request)

    async def delete(tx: Tx) -> Any:
        row = await get_workspaces(request).delete(tx, thread_id, asked, FileAuthor(caller.principal), when)
        return row.wire()

    return await reading(request, caller, delete)
