"""The files of threads over HTTP. Bodies go through in pieces, in both directions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from app.tenancy.http import (
    GatedRoute,
    Operation,
    Paging,
    ReadOperation,
    begin,
    operation,
    require_scope,
    service,
)
from app.tenancy.models import Caller
from app.workspace import paths, views
from app.workspace.http import (
    BINARY_CONTENT,
    RANGE_DESCRIPTION,
    RANGE_RESPONSES,
    StreamingRoute,
    parse_condition,
    parse_media_type,
    receive_body,
    send_body,
)
from app.workspace.models import DEFAULT_TYPE, FileAuthor
from app.workspace.service import Workspaces

ThreadId = Annotated[str, Path(max_length=100)]
FilePath = Annotated[str, Path(description="Relative to the workspace; it may contain slashes.")]
Files = Annotated[Workspaces, service("workspaces")]

router = APIRouter(route_class=GatedRoute, tags=["files"])
streamed = APIRouter(route_class=StreamingRoute, tags=["files"])


@router.get(
    "/threads/{thread_id}/files",
    summary="The files of a thread, in the order of their paths",
    response_model=views.FilePage,
)
async def list_files(
    thread_id: ThreadId,
    op: ReadOperation,
    workspaces: Files,
    page: Paging,
    prefix: Annotated[
        str, Query(max_length=2000, description="What their paths begin with; a directory ends with /.")
    ] = "",
) -> Response:
    begins = paths.normalize_prefix(prefix)
    after = page.last(f"files:{thread_id}:{begins}") or ""
    await workspaces.require_own(op.tx, thread_id)
    rows = await workspaces.list_files(op.tx, thread_id, begins, after, page.rows)
    return await op.respond(page.body([r.wire() for r in rows], "path"))


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
    caller: Annotated[Caller, require_scope("read")],
    workspaces: Files,
    version: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> Response:
    async with begin(request, caller) as op:
        await workspaces.require_own(op.tx, thread_id)
        row = await workspaces.get_file(op.tx, thread_id, paths.normalize(path), version)
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
    request: Request,
    thread_id: ThreadId,
    path: FilePath,
    caller: Annotated[Caller, require_scope("data:write")],
    workspaces: Files,
) -> Response:
    file_path, media_type, condition = (
        paths.normalize(path),
        parse_media_type(request),
        parse_condition(request),
    )
    async with begin(request, caller) as op:
        await workspaces.require_own(op.tx, thread_id)
    body = await receive_body(request, caller.tenant)
    async with begin(request, caller) as op:
        row, new = await workspaces.write(
            op.tx,
            thread_id,
            file_path,
            body,
            FileAuthor(caller.principal),
            media_type=media_type,
            condition=condition,
        )
        return await op.respond(row.wire(), 201 if new else 200, row.location)


@streamed.delete(
    "/threads/{thread_id}/files/{path:path}",
    summary="Delete a file of a thread; its versions stay",
    response_model=views.FileView,
)
async def delete_file(
    thread_id: ThreadId, path: FilePath, op: Annotated[Operation, operation("data:write")], workspaces: Files
) -> Response:
    file_path, condition = paths.normalize(path), parse_condition(op.request)
    await workspaces.require_own(op.tx, thread_id)
    row = await workspaces.delete(op.tx, thread_id, file_path, FileAuthor(op.caller.principal), condition)
    return await op.respond(row.wire())
