"""Receive and send bodies of files over HTTP, in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Send

from app.base.blobs.store import ByteRange
from app.base.errors import FieldError, Invalid, Malformed, PlangateError, UnsupportedMediaType
from app.base.logs.structured import structlog
from app.tenancy.http import NamedRoute, reject_line_break, validate_query_string
from app.workspace.models import DEFAULT_TYPE, MEDIA_TYPE, Condition, StoredBody, parse_range
from app.workspace.service import FileChanged, Workspaces

log = structlog.get_logger(__name__)

BINARY_CONTENT: Final = {"schema": {"type": "string", "format": "binary"}}
RANGE_DESCRIPTION: Final = (
    "`HEAD` gives the headers alone. With `Range` one part is given, with `If-Range` only if the body is still the one with "
    "that `ETag`, else all of it, as also where several parts are asked for. All of a body is compared with its digest while "
    "it is sent, and the connection ends early if it differs; a part is not: the `ETag` is the SHA-256 of the whole."
)
RANGE_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    206: {"description": "The part that `Content-Range` says.", "content": {DEFAULT_TYPE: BINARY_CONTENT}}
}
MAX_TYPE_CHARS: Final = 200


class StreamingRoute(NamedRoute):
    """A route whose handler reads the body in pieces: admission does not buffer it. It is read only for valid
    keys."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_checked(request: Request) -> Response:
            reject_line_break(request)
            validate_query_string(request)
            return await handle(request)

        return handle_checked


class BodyResponse(StreamingResponse):
    """A body in pieces. If it cannot be read to its end, the connection ends short of its length."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except PlangateError as error:
            log.warning("workspace.reading_cut", error=error)


def get_workspaces(request: Request) -> Workspaces:
    workspaces: Workspaces = request.app.state.services.workspaces
    return workspaces


async def receive_body(request: Request, tenant: str) -> StoredBody:
    """Store the request's body in the blob store.

    Raise FileTooLarge, Malformed, UnsupportedMediaType, TooManyRequests, StorageFull.
    """
    _reject_partial_body(request)
    workspaces = get_workspaces(request)
    declared = request.headers.get("content-length", "")
    if declared.isdigit():
        workspaces.validate_size(int(declared))
    async with workspaces.open_upload(tenant) as upload:
        try:
            async for chunk in request.stream():
                await upload.write(chunk)
        except ClientDisconnect as gone:
            raise Malformed("The body was not sent to its end; nothing was written.") from gone
        return await upload.keep()


def _reject_partial_body(request: Request) -> None:
    """Reject bodies that are not the file itself: they would be stored as if they were."""
    headers = request.headers
    if "content-range" in headers:
        raise Malformed("A file is written as a whole. Send all of it, without Content-Range.")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("The body is stored as it is sent. Send it without Content-Encoding.")
    if headers.get("transfer-encoding", "chunked").strip().lower() != "chunked":
        raise UnsupportedMediaType(
            "The body is stored as it is sent. Send it with no Transfer-Encoding but chunked."
        )
    if headers.get("content-type", "").strip().lower().startswith("multipart/form-data"):
        raise UnsupportedMediaType(
            "The body is the file itself, not a form: with curl, send it by --data-binary @file or -T file."
        )


def parse_condition(request: Request) -> Condition | None:
    """Return the condition in `If-Match` or `If-None-Match`, or None. Raise Malformed."""
    for name, must_match in (("if-match", True), ("if-none-match", False)):
        tags = request.headers.get(name)
        if tags is not None:
            return Condition.parse(tags, must_match=must_match)
    return None


async def send_body(request: Request, tenant: str, body: StoredBody, headers: dict[str, str]) -> Response:
    """Return a stored body, or the requested part of it. Headers prevent browsers from showing or running
    it."""
    tag = f'"{body.digest.hex()}"'
    condition = parse_condition(request)
    if condition is not None and not condition.holds(body.digest):
        if condition.must_match:
            raise FileChanged("The file has changed since you read it: read it again without If-Match.")
        return Response(status_code=304, headers={"etag": tag, **headers})
    part = _requested_range(request, tag, body.size)
    pieces = get_workspaces(request).stream_body(tenant, body, part)
    first = [await anext(pieces)]  # a missing body is an error, not a truncated response
    begin, end = part or (0, body.size)
    response_headers = {
        "content-length": str(end - begin),
        "etag": tag,
        "accept-ranges": "bytes",
        "content-disposition": "attachment",
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; sandbox",
        "cache-control": "no-store",
        **({} if part is None else {"content-range": f"bytes {begin}-{end - 1}/{body.size}"}),
        **headers,
    }
    if request.method == "HEAD":
        await pieces.aclose()
        return Response(headers=response_headers, media_type=DEFAULT_TYPE)

    return BodyResponse(_join(first, pieces), 200 if part is None else 206, response_headers, DEFAULT_TYPE)


async def _join(first: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the bytes in `first`, without keeping them in memory, and then the rest."""
    yield first.pop()
    async for piece in rest:
        yield piece


def _requested_range(request: Request, tag: str, size: int) -> ByteRange | None:
    """Return the requested part of a body; with `If-Range`, only if the body is unchanged. Raise
    RangeNotSatisfiable."""
    if request.method != "GET" or request.headers.get("if-range", tag).strip() != tag:
        return None
    return parse_range(request.headers.get("range", ""), size)


def parse_media_type(request: Request) -> str | None:
    """Return the media type of the request's body, or None if the caller gave none. Raise Invalid."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type and (len(media_type) > MAX_TYPE_CHARS or not MEDIA_TYPE.fullmatch(media_type)):
        raise Invalid(
            "The Content-Type is not a valid media type.",
            [FieldError("header:Content-Type", "must be a media type")],
        )
    return None if media_type in ("", DEFAULT_TYPE, "application/x-www-form-urlencoded") else media_type
