"""What every route has in common: the JSON gate, the caller, one way to answer, pages.

A route parses, calls one verb, returns. `answer` is the transaction of a POST: the effect, its events and the
stored answer of its Idempotency-Key commit together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Self
from urllib.parse import unquote, unquote_to_bytes

from fastapi import Query, Request, Response, Security
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes
from plangate.spec.base import is_unknown_field, unknown_field
from plangate.spec.bounds import error_details, without_excess_keys
from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from starlette.requests import ClientDisconnect

from app.base.cursors import CursorSigner
from app.base.errors import (
    Conflict,
    FieldError,
    Invalid,
    NotFound,
    TooLarge,
    UnsupportedMediaType,
)
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.json.parsing import Parser
from app.base.postgres.database import Database, Tx
from app.base.traces import parse_traceparent
from app.tenancy import idempotency
from app.tenancy.models import Caller
from app.tenancy.service import Tenancy

MAX_BODY_BYTES = 1024 * 1024
MAX_PAGE = 500
MAX_NAME_CHARS = 100


class Body(BaseModel):
    """A request body: camelCase on the wire, unknown fields refused, nothing coerced. Of many unknown fields the first ones are
    reported."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
        extra="forbid",
        strict=True,
        frozen=True,
    )

    @model_validator(mode="wrap")
    @classmethod
    def _explain_unknown_fields(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Bound the unknown fields, and name what each may mean."""
        try:
            return handler(without_excess_keys(cls, data))
        except ValidationError as error:
            details: list[Any] = list(error.errors(include_url=False))
            if not any(is_unknown_field(detail) for detail in details):
                raise
            lines = [error_details(d["type"], cls._message(d), d["loc"]) for d in details]
        raise ValidationError.from_exception_data(cls.__name__, lines, hide_input=True)

    @classmethod
    def _message(cls, detail: Any) -> str:
        if not is_unknown_field(detail):
            return str(detail["msg"])
        known = [field.alias or name for name, field in cls.model_fields.items()]
        return unknown_field(str(detail["loc"][0]), known)


class View(BaseModel):
    """The shape of an answer, for the OpenAPI document."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


def operation_id(route: APIRoute) -> str:
    """Return the id of an operation in the API document: the name of the function that answers it."""
    return route.name


class NamedRoute(APIRoute):
    """A route whose operation has the name of the function."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **{**options, "generate_unique_id_function": operation_id})


class GatedRoute(NamedRoute):
    """Every body goes through the one JSON gate before anything looks at it."""

    max_body_bytes = MAX_BODY_BYTES

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        limit = self.max_body_bytes

        async def gated(request: Request) -> Response:
            _refuse_nul(request)
            if request.method in ("POST", "PUT", "PATCH"):
                # Nobody without a key makes us read, let alone parse.
                authorization = request.headers.get("authorization")
                await door_of(request).tenancy.authenticate_key(authorization, host_of(request))
                if (key := request.headers.get("idempotency-key")) is not None:
                    idempotency.validate_key(key)
                async with self.opened(request, await _body(request, limit)):
                    return await handle(request)
            return await handle(request)

        return gated

    @asynccontextmanager
    async def opened(self, request: Request, body: bytearray) -> AsyncIterator[None]:
        """Lets the body through the gate, and holds what comes of it while the request is handled."""
        request._body = bytes(body)
        if body:
            request._json = await door_of(request).parser.parse(request._body)
        yield


def _refuse_nul(request: Request) -> None:
    """Postgres holds no NUL: nothing is named by one, and nothing can be looked for with one."""
    if "\0" in path_of(request):
        raise NotFound("The path contains NUL (%00), and nothing is named so.")
    refuse_odd_query(request)


def refuse_odd_query(request: Request) -> None:
    """Raise Invalid if the query string is not valid UTF-8 or has a NUL: invalid bytes would be replaced,
    and NUL cannot be stored."""
    flaws = [
        FieldError(
            f"query:{unquote(part.partition(b'=')[0])[:MAX_NAME_CHARS]}", "is not UTF-8: é is %C3%A9, not %E9"
        )
        for part in request.scope["query_string"].split(b"&")
        if not _is_utf8(part)
    ]
    if flaws:
        raise Invalid("A parameter is not UTF-8, and can be neither stored nor found.", flaws)
    flaws = [
        FieldError(f"query:{name}", "contains NUL")
        for name, value in request.query_params.multi_items()
        if "\0" in value
    ]
    if flaws:
        raise Invalid("A parameter contains NUL (%00), which cannot be stored or found.", flaws)


async def _body(request: Request, limit: int) -> bytearray:
    """All of the body, which may be empty."""
    body = bytearray()
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"The body may have {limit} bytes; this one says it has {declared}.")
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise TooLarge(f"The body may have {limit} bytes.")
    except ClientDisconnect as gone:
        raise TooLarge("The body was not sent to its end.") from gone
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind != "application/json":
        raise UnsupportedMediaType("Send the body as `Content-Type: application/json`.")
    return body


def _is_utf8(part: bytes) -> bool:
    try:
        unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Door:
    """What the routes stand on; one per application, at `app.state.door`."""

    db: Database
    tenancy: Tenancy
    signer: CursorSigner
    parser: Parser = field(default_factory=Parser)


def path_of(request: Request) -> str:
    """Return the requested path. `request.url` is put together with the Host header and may differ."""
    path: str = request.scope["path"]
    return path


def host_of(request: Request) -> str:
    """Return the client's address, or behind a trusted proxy the address that the proxy names; empty if there is none."""
    return "" if request.client is None else request.client.host


def traceparent_of(request: Request) -> str | None:
    """Return the caller's span (W3C Trace Context), or None if there is none that can be parsed."""
    given = request.headers.get("traceparent", "")
    return given if parse_traceparent(given) else None


def door_of(request: Request) -> Door:
    door: Door = request.app.state.door
    return door


bearer = HTTPBearer(auto_error=False, description="An API key of a tenant, or the operator's.")


async def _caller(
    request: Request,
    scopes: SecurityScopes,
    _credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> Caller:
    spec_tenant = None
    if request.method == "POST" and path_of(request) == "/runtimes":
        spec_tenant = _resource_id(getattr(request, "_json", None))
    caller = await door_of(request).tenancy.authenticate(
        request.headers.get("authorization"),
        request.headers.get("plangate-tenant"),
        request.headers.get("plangate-principal"),
        spec_tenant=spec_tenant,
        host=host_of(request),
    )
    for scope in scopes.scopes:
        caller.require_scope(scope)
    _refuse_unknown(request)
    return caller


def _refuse_unknown(request: Request) -> None:
    """Raise Invalid for unknown parameters and fields: a misspelled filter would list too much, and a
    misspelled field would be lost."""
    if not request.query_params:
        return
    taken = {known.alias for known in get_flat_params(request.scope["route"].dependant)}
    names = sorted(taken - request.path_params.keys())
    expected = f"expected one of: {', '.join(names)}" if names else "this operation has none"
    flaws = [
        FieldError(f"query:{name[:MAX_NAME_CHARS]}", f"unknown parameter; {expected}")
        for name in request.query_params
        if name not in names
    ]
    if flaws:
        raise Invalid("The request has unknown parameters; see errors.", flaws)


def _resource_id(body: Any) -> str | None:
    tenant = body.get("tenant") if isinstance(body, dict) else None
    id = (tenant.get("resourceId") or tenant.get("resource_id")) if isinstance(tenant, dict) else None
    return id if isinstance(id, str) else None


def calling(scope: str) -> Any:
    """Return the dependency that gives the caller of a route that needs `scope`; the OpenAPI document shows
    the scope."""
    return Security(_caller, scopes=[scope])


@dataclass(frozen=True, slots=True)
class Reply:
    """What a verb's route answers. `secret`: the body is not stored for a repetition, only `object_id`."""

    body: Any
    status: int = 200
    location: str | None = None
    object_id: str | None = None
    secret: bool = False


def json_response(body: Any, status: int = 200, location: str | None = None) -> Response:
    headers = {"location": location} if location else None
    data = body if isinstance(body, bytes) else strict_json.dumps(body)
    return Response(data, status, headers, media_type="application/json")


async def answer(
    request: Request, caller: Caller, verb: Callable[[Tx], Awaitable[Reply]], said: bytes | None = None
) -> Response:
    """Run a function in one transaction, under the request's Idempotency-Key if it has one. `said` is what
    identifies the request, if that is more than its body."""
    key = await _key(request, caller, said)
    db = door_of(request).db
    if key is None:
        async with db.transaction(caller.tenant) as tx:
            reply = await verb(tx)
        return json_response(await _written(reply.body), reply.status, reply.location)
    async with db.transaction(caller.tenant) as tx:
        stored = await idempotency.begin(tx, key)
        if stored is not None:
            return _again(stored)
        reply = await verb(tx)
        body = await _written(reply.body)
        kept = None if reply.secret else body
        stored = idempotency.Stored(reply.status, reply.location, reply.object_id, kept)
        await idempotency.finish(tx, key, stored)
    return json_response(body, stored.status, stored.location)


async def repeated(request: Request, caller: Caller) -> Response | None:
    """Return the stored response if the request repeats an Idempotency-Key. For routes that call another
    server before their transaction begins, and might get another result the second time."""
    key = await _key(request, caller)
    if key is None:
        return None
    async with door_of(request).db.transaction(caller.tenant) as tx:
        stored = await idempotency.begin(tx, key)
    return None if stored is None else _again(stored)


async def _key(request: Request, caller: Caller, said: bytes | None = None) -> idempotency.Key | None:
    given = request.headers.get("idempotency-key")
    if given is None:
        return None
    path, body = path_of(request), await request.body() if said is None else said
    return idempotency.Key.of(caller.principal, request.method, path, given, body)


def _again(stored: idempotency.Stored) -> Response:
    if stored.body is None:
        raise Conflict(
            "This Idempotency-Key already made an object whose answer carried a secret and was not kept.",
            extra={"id": stored.object_id},
        )
    return json_response(stored.body, stored.status, stored.location)


async def reading(request: Request, caller: Caller, verb: Callable[[Tx], Awaitable[Any]]) -> Response:
    """Run a read in a transaction, and respond 200 with its result."""
    async with door_of(request).db.transaction(caller.tenant) as tx:
        body = await verb(tx)
    return json_response(await _written(body))


async def _written(body: Any) -> bytes:
    """Return a body as JSON."""
    return body if isinstance(body, bytes) else await offload(strict_json.dumps, body)


Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many, newest first.")]
Cursor = Annotated[str | None, Query(max_length=4096, description="`nextCursor` of the page before.")]


def before(request: Request, kind: str, cursor: str | None) -> list[str | int] | None:
    """Return the position that a page's cursor stands for."""
    return None if cursor is None else door_of(request).signer.decode(kind, cursor)


def page(
    request: Request,
    kind: str,
    items: Sequence[Any],
    limit: int,
    position: Callable[[Any], Sequence[str | int]],
) -> dict[str, Any]:
    """`{items, nextCursor}`: the cursor is null on the last page."""
    more = len(items) > limit
    shown = list(items[:limit])
    cursor = door_of(request).signer.encode(kind, list(position(shown[-1]))) if more else None
    return {"items": shown, "nextCursor": cursor}
