"""From the kind of an error to its problem document (RFC 9457): one table, walked by a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.base import errors
from app.base.blobs.store import BlobStoreError
from app.base.errors import MAX_DETAIL_CHARS, MAX_LISTED_ERRORS, list_errors, truncate
from app.base.json import strict_json
from app.base.logs.processors import HTTP_METHODS, log_ids
from app.base.logs.structured import structlog
from app.base.postgres.database import is_outage
from app.base.postgres.health import HealthMonitor
from app.tenancy.http import RepeatedRequest

log = structlog.get_logger(__name__)

STATUS_BY_ERROR: dict[type[errors.PlangateError], int] = {
    errors.Malformed: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Gone: 410,
    errors.PreconditionFailed: 412,
    errors.TooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.RangeNotSatisfiable: 416,
    errors.WrongCell: 421,
    errors.Invalid: 422,
    errors.TooManyRequests: 429,
    errors.Unavailable: 503,
}
PROBLEM_MEDIA_TYPE = "application/problem+json"
INTERNAL_ERROR = "internal_error"
OPERATIONS_PATHS = ("/healthz", "/readyz", "/metrics")
SLUG_BY_STATUS = {404: "not_found", 405: "method_not_allowed", 400: "malformed", 413: "too_large"}


def problem_slugs() -> list[str]:
    """Return every value of a problem's `type`, in alphabetical order. Modules that are imported later may add some, so
    call it after the routes are imported."""
    kinds = [errors.PlangateError]
    for kind in kinds:  # it grows on the way
        kinds += kind.__subclasses__()
    own = {kind.kind for kind in kinds if hasattr(kind, "kind") and kind.__module__.startswith("app.")}
    return sorted(own | set(SLUG_BY_STATUS.values()) | {INTERNAL_ERROR})


def http_status(error: errors.PlangateError) -> int:
    return next(STATUS_BY_ERROR[kind] for kind in type(error).__mro__ if kind in STATUS_BY_ERROR)


def problem_response(
    request: Request,
    status: int,
    slug: str,
    title: str,
    detail: str,
    extra: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    body = {
        "type": slug,
        "title": title,
        "status": status,
        "detail": truncate(detail, MAX_DETAIL_CHARS),
        "instance": request.scope["path"][:500],
        **(extra or {}),
    }
    return Response(strict_json.dumps(body), status, headers, media_type=PROBLEM_MEDIA_TYPE)


async def plangate_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.PlangateError)
    if isinstance(error, BlobStoreError):
        log.warning("blobs.failed", error=error, **request_log_fields(request))
    extra: dict[str, Any] = dict(error.extra)
    if error.errors or isinstance(error, errors.Invalid):
        extra |= list_errors(error.errors)
    headers: dict[str, str] = dict(getattr(error, "headers", {}))
    retry = getattr(error, "retry_after_s", None)
    if retry is not None:
        headers["retry-after"] = str(retry)
    if isinstance(error, errors.Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    return problem_response(
        request, http_status(error), error.kind, error.title, error.detail, extra, headers
    )


async def validation_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    details = error.errors()
    count = len(details)
    many = f"more than {MAX_LISTED_ERRORS}" if count > MAX_LISTED_ERRORS else str(count)
    return problem_response(
        request,
        422,
        errors.Invalid.kind,
        errors.Invalid.title,
        f"The request has {many} problem{'s' if count > 1 else ''}; see errors.",
        list_errors(errors.FieldError(field_pointer(e["loc"]), field_message(e)) for e in details),
    )


def field_pointer(loc: tuple[int | str, ...]) -> str:
    """Return a JSON pointer into the body, or `query:limit` for a parameter."""
    where, *rest = loc
    if where != "body":
        return f"{where}:{'.'.join(str(p) for p in rest)}"
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in rest)


def field_message(error: Any) -> str:
    if error["type"] == "extra_forbidden":  # a model of ours names the field that may be meant
        return str(error["msg"]) if error["msg"].startswith("unknown field") else "unknown field"
    if error["type"] == "missing":
        return "required"
    return str(error["msg"])


async def http_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    slug = SLUG_BY_STATUS.get(error.status_code, "malformed")
    detail = {
        404: "There is no such route; GET /openapi.json lists them.",
        405: f"{request.method[:20]} is not possible here.",
    }.get(error.status_code, "The request could not be read.")
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        headers["allow"] = ", ".join(allowed_methods(request))
    return problem_response(
        request, error.status_code, slug, slug.replace("_", " ").capitalize(), detail, None, headers
    )


def allowed_methods(request: Request) -> list[str]:
    """Return the methods that any route takes at the path of the request. The framework names those of the first."""
    return [
        method
        for method in sorted(HTTP_METHODS)
        if any(r.matches({**request.scope, "method": method})[0] is Match.FULL for r in request.app.routes)
    ]


async def unexpected_error_response(request: Request, error: Exception) -> Response:
    if not is_outage(error):
        log.exception("http.internal_error", exc_info=error, **request_log_fields(request))
        return problem_response(
            request, 500, INTERNAL_ERROR, "The service failed", "This is a defect; the log has the trace."
        )
    return await plangate_error_response(
        request, errors.Unavailable("The database cannot be reached; try again in a moment.")
    )


class ShutdownResponder:
    """Answer with a 503 the requests that a stopping service does not carry out: those that arrive after its drain time,
    before anything else is done, and those that are still in progress when it stops, such as one with a slow body. This
    is not a defect, so nothing is logged."""

    def __init__(self, app: ASGIApp, health: HealthMonitor, draining: asyncio.Event) -> None:
        self._app = app
        self._health = health
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._health.refusing and scope["type"] == "http" and scope["path"] not in OPERATIONS_PATHS:
            await self._refuse(scope, receive, send)
            return
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except asyncio.CancelledError:
            if not self._draining.is_set() or scope["type"] != "http":
                raise
            if (
                not has_begun
            ):  # else the server closes the connection short of the answer, and says so in a line
                await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        over = errors.Unavailable("The service is shutting down: send the request again.")
        await (await plangate_error_response(Request(scope), over))(scope, receive, send)


def request_log_fields(request: Request) -> dict[str, str]:
    """Return log fields of a request without the sender's text: its method, its declared route, and valid ids."""
    route = getattr(request.scope.get("route"), "path", None)
    ids = log_ids(*request.scope.get("path_params", {}).values())
    return {"method": request.method, "route": route or "none", **ids}


async def repeated_response(_request: Request, repeated: Exception) -> Response:
    """Return the stored response of the request that an Idempotency-Key repeats."""
    assert isinstance(repeated, RepeatedRequest)
    return repeated.response


Handler = Callable[[Request, Exception], Awaitable[Response]]


def install(app: FastAPI) -> None:
    table: dict[type[Exception], Handler] = {
        errors.PlangateError: plangate_error_response,
        RepeatedRequest: repeated_response,
        RequestValidationError: validation_error_response,
        HTTPException: http_error_response,
        Exception: unexpected_error_response,
    }
    for kind, handler in table.items():
        app.add_exception_handler(kind, handler)
