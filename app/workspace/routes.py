"""The files of threads over HTTP. Bodies go through in pieces, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final
from urllib.parse import quote

import structlog
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import Send

from app.base.database import Tx
from app.base.errors import Flaw, Invalid, Malformed, PlangateError
from app.tenancy.http import Cursor, GatedRoute, Limit, before, calling, door_of, json_response, page, reading
from app.tenancy.models import Caller
from app.workspace import paths, views
from app.workspace.models import DEFAULT_TYPE, Author, Body, FileRow
from app.workspace.service import Workspaces, thread_exists

log = structlog.get_logger(__name__)

BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
MAX_TYPE_CHARS: Final = 200

ThreadId = Annotated[str, Path(max_length=100)]
FilePath = Annotated[str, Path(description="Relative to the workspace; it may contain slashes.")]


class StreamedRoute(APIRoute):
    """The body is the caller's to read, in pieces: no gate looks at it. Nobody without a key makes us read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            flaws = [
                Flaw(f"query:{name}", "contains NUL")
                for name, value in request.query_params.multi_items()
                if "\0" in value
            ]
            if flaws:
                raise Invalid("A parameter contains NUL (%00), which cannot be stored or found.", flaws)
            return await handle(request)

        return checked


class Pieces(StreamingResponse):
    """A body in pieces. One that cannot be read to its end ends the connection short of its length."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except PlangateError as error:
            log.warning("workspace.reading_cut", detail=error.detail)


router = APIRouter(route_class=GatedRoute, tags=["files"])
streamed = APIRouter(route_class=StreamedRoute, tags=["files"])


def workspaces_of(request: Request) -> Workspaces:
    workspaces: Workspaces = request.app.state.services.workspaces
    return workspaces


async def received(request: Request, tenant: str) -> Body:
    """The body of the request, in the blob store. Raises FileTooLarge, Malformed."""
    workspaces = workspaces_of(request)
    declared = request.headers.get("content-length", "")
    if declared.isdigit():
        workspaces.refuse_size(int(declared))
    async with workspaces.incoming() as upload:
        try:
            async for chunk in request.stream():
                await upload.write(chunk)
        except ClientDisconnect as gone:
            raise Malformed("The body was not sent to its end; nothing was written.") from gone
        return await upload.keep(tenant)


async def sent(workspaces: Workspaces, tenant: str, body: Body, headers: dict[str, str]) -> Response:
    """A stored body as an answer. It is never given as something that a browser would show or run."""
    pieces = workspaces.body(tenant, body)
    first = await anext(pieces)  # what is not there is a problem, not an answer cut short

    async def all_of_it() -> Any:
        yield first
        async for piece in pieces:
            yield piece

    told = {
        "content-length": str(body.size),
        "etag": f'"{body.digest.hex()}"',
        "content-disposition": "attachment",
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
        **headers,
    }
    return Pieces(all_of_it(), headers=told, media_type=DEFAULT_TYPE)


def place_of(row: FileRow) -> str:
    return f"/threads/{row.thread_id}/files/{quote(row.path)}"


def media_type_given(request: Request) -> str | None:
    """What the caller says that the body is; None where he says nothing of it."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if len(given) > MAX_TYPE_CHARS or not given.isascii() or not given.isprintable():
        raise Invalid("The Content-Type is not one.", [Flaw("header:Content-Type", "must be a media type")])
    return None if given in ("", DEFAULT_TYPE, "application/x-www-form-urlencoded") else given


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
    position = before(request, f"files:{thread_id}", cursor)

    async def listed(tx: Tx) -> Any:
        after = str(position[0]) if position else ""
        rows = await workspaces_of(request).listed(tx, thread_id, begins, after, limit + 1)
        return page(request, f"files:{thread_id}", [r.wire() for r in rows], limit, lambda r: [r["path"]])

    return await reading(request, caller, listed)


@streamed.get(
    "/threads/{thread_id}/files/{path:path}",
    summary="A file of a thread, as it is or as it was in a version",
    response_class=Response,
    responses={
        200: {
            "description": "The bytes. `ETag` is their SHA-256, `Plangate-File-Version` the version.",
            "content": {DEFAULT_TYPE: BINARY},
        }
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
    headers = {"plangate-file-version": str(row.version)}
    return await sent(workspaces, caller.tenant, row.body, headers)


@streamed.put(
    "/threads/{thread_id}/files/{path:path}",
    status_code=201,
    summary="Write a file of a thread: its next version",
    description="The body is the file, of any content type. A reader sees the old version or the new one. The same body "
    "again is no new version.",
    response_model=views.FileView,
    responses={200: {"model": views.FileView, "description": "A file that was there has a new version."}},
    openapi_extra={"requestBody": {"required": True, "content": {DEFAULT_TYPE: BINARY}}},
)
async def write_file(
    request: Request, thread_id: ThreadId, path: FilePath, caller: Annotated[Caller, calling("data:write")]
) -> Response:
    workspaces = workspaces_of(request)
    asked, kind = paths.normal(path), media_type_given(request)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        await thread_exists(tx, thread_id)
    body = await received(request, caller.tenant)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        row, new = await workspaces.write(
            tx, thread_id, asked, body, Author(caller.principal), media_type=kind
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
    asked = paths.normal(path)

    async def delete(tx: Tx) -> Any:
        row = await workspaces_of(request).delete(tx, thread_id, asked, Author(caller.principal))
        return row.wire()

    return await reading(request, caller, delete)
