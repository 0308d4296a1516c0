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
    BINARY,
    IN_PARTS,
    PART,
    StreamedRoute,
    condition_of,
    media_type_given,
    received,
    sent,
    workspaces_of,
)
from app.workspace.models import DEFAULT_TYPE, Author, FileRow
from app.workspace.service import thread_exists

ThreadId = Annotated[str, Path(max_length=100)]
FilePath = Annotated[str, Path(description="Relative to the workspace; it may contain slashes.")]


router = APIRouter(route_class=GatedRoute, tags=["files"])
streamed = APIRouter(route_class=StreamedRoute, tags=["files"])


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
    begins = paths.prefix_of(prefix)
    kind = f"files:{thread_id}:{begins}"
    position = before(request, kind, cursor)

    async def listed(tx: Tx) -> Any:
        after = str(position[0]) if position else ""
        rows = await workspaces_of(request).listed(tx, thread_id, begins, after, limit + 1)
        return page(request, kind, [r.wire() for r in rows], limit, lambda r: [r["path"]])

    return await reading(request, caller, listed)


@streamed.head("/threads/{thread_id}/files/{path:path}", include_in_schema=False)
@streamed.get(
    "/threads/{thread_id}/files/{path:path}",
    summary="A file of a thread, as it is or as it was in a version",
    description=IN_PARTS,
    response_class=Response,
    responses={
        200: {
            "description": "The bytes. `ETag` is their SHA-256, `Plangate-File-Version` the version.",
            "content": {DEFAULT_TYPE: BINARY},
        },
        **PART,
    },
)
async def read_file(
    request: Request,
    thread_id: ThreadId,
    path: FilePath,
    caller: Annotated[Caller, calling("read")],
    version: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> Response:
    workspaces = workspaces_of(request)
    asked = paths.normal(path)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        row = await workspaces.file(tx, thread_id, asked, version)
    return await sent(request, caller.tenant, row.body, {"plangate-file-version": str(row.version)})


@streamed.put(
    "/threads/{thread_id}/files/{path:path}",
    status_code=201,
    summary="Write a file of a thread: its next version",
    description="The body is the file, of any content type. A reader sees the old version or the new one. The same body "
    "again is no new version. With `If-Match` or `If-None-Match: *` only over the file that you know, or over none.",
    response_model=views.FileView,
    responses={200: {"model": views.FileView, "description": "A file that was there has a new version."}},
    openapi_extra={"requestBody": {"required": True, "content": {DEFAULT_TYPE: BINARY}}},
)
async def write_file(
    request: Request, thread_id: ThreadId, path: FilePath, caller: Annotated[Caller, calling("data:write")]
) -> Response:
    workspaces = workspaces_of(request)
    asked, kind, when = paths.normal(path), media_type_given(request), condition_of(request)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        await thread_exists(tx, thread_id)
    body = await received(request, caller.tenant)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        row, new = await workspaces.write(
            tx, thread_id, asked, body, Author(caller.principal), media_type=kind, when=when
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
    asked, when = paths.normal(path), condition_of(request)

    async def delete(tx: Tx) -> Any:
        row = await workspaces_of(request).delete(tx, thread_id, asked, Author(caller.principal), when)
        return row.wire()

    return await reading(request, caller, delete)
