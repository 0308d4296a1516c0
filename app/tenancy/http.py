"""What every route has in common: the JSON gate, the caller, the transaction, pages.

A route parses, calls one service, responds. Its `Operation` has the transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Self
from urllib.parse import unquote, unquote_to_bytes

from fastapi import Depends, Query, Request, Response, Security
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes
from plangate.field_docs import describe_fields
from plangate.spec.base import allow_nulls, is_unknown_field, unknown_field, without_nulls
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
from app.base.public_url import PublicUrl
from app.base.traces import parse_traceparent
from app.tenancy import idempotency
from app.tenancy.cookies import session_credential
from app.tenancy.models import Caller, Credential
from app.tenancy.service import Tenancy, parse_authorization

MAX_BODY_BYTES = 1024 * 1024
MAX_PAGE = 500
MAX_NAME_CHARS = 100


def _body_schema(schema: dict[str, Any], model: type[BaseModel]) -> None:
    describe_fields(schema, model)
    allow_nulls(schema)


class Body(BaseModel):
    """A request body: camelCase on the wire, unknown fields refused, nothing coerced, null is unset. Of many unknown fields the
    first ones are reported."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra=_body_schema,
    )

    @model_validator(mode="wrap")
    @classmethod
    def _explain_unknown_fields(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Bound the unknown fields, and name what each may mean."""
        try:
            return handler(without_nulls(cls, without_excess_keys(cls, data)))
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


def operation_id(route: APIRoute) -> str:
    """Return the id of an operation in the API document, which generators make a function of: the name of the function
    that answers it, in camelCase. So it says what is done to what, without the path."""
    return to_camel(route.name)


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
                await self.admit(request)
                if (key := request.headers.get("idempotency-key")) is not None:
                    idempotency.validate_key(key)
                async with self.opened(request, await _body(request, limit)):
                    return await handle(request)
            return await handle(request)

        return gated

    async def admit(self, request: Request) -> None:
        """Reject a client without a valid key or session before its body is read, let alone parsed."""
        await door_of(request).tenancy.find_caller(credential_of(request), host_of(request))

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
    public_url: PublicUrl | None = None


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


def credential_of(request: Request) -> Credential:
    """Return the key of the request, or else its session. Raise Unauthenticated, or CrossSiteRequest for a session."""
    authorization = request.headers.get("authorization")
    if authorization is None:
        credential = session_credential(request, door_of(request).public_url)
        if credential is not None:
            return credential
    return parse_authorization(authorization)


def address_of(request: Request) -> str:
    """Return the address of the service as the client sees it, without a slash at its end."""
    public_url = door_of(request).public_url
    if public_url is not None:
        return str(public_url)
    return f"{request.url.scheme}://{request.headers.get('host', '')}"


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
        credential_of(request),
        request.headers.get("plangate-tenant"),
        request.headers.get("plangate-principal"),
        spec_tenant=spec_tenant,
        host=host_of(request),
    )
    for scope in scopes.scopes:
        caller.require_scope(scope)
    refuse_unknown(request)
    return caller


def refuse_unknown(request: Request) -> None:
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


def calling(*scopes: str) -> Any:
    """Return the dependency that gives the caller of a route that needs `scopes` and begins its transaction
    itself. Without scopes any key will do. The OpenAPI document shows the scope."""
    return Security(_caller, scopes=list(scopes))


def json_response(body: Any, status: int = 200, location: str | None = None) -> Response:
    headers = {"location": location} if location else None
    data = body if isinstance(body, bytes) else strict_json.dumps(body)
    return Response(data, status, headers, media_type="application/json")


class Repeated(Exception):
    """The request repeats an Idempotency-Key: the stored response is its response."""

    def __init__(self, stored: idempotency.Stored) -> None:
        self.object_id = stored.object_id
        self.response = json_response(stored.body, stored.status, stored.location)


@dataclass(frozen=True, slots=True)
class Operation:
    """A request and its transaction, which is committed before the response is sent. What the request does, its
    events and the stored response of its Idempotency-Key are durable together, or not at all."""

    request: Request
    caller: Caller
    tx: Tx
    key: idempotency.Key | None

    async def respond(
        self,
        body: Any,
        status: int = 200,
        location: str | None = None,
        object_id: str | None = None,
        *,
        secret: bool = False,
    ) -> Response:
        """Return the response, and store it under the request's Idempotency-Key. `object_id` is what the request
        made. Of a `secret` body only that is stored."""
        data = body if isinstance(body, bytes) else await offload(strict_json.dumps, body)
        if self.key is not None:
            stored = idempotency.Stored(status, location, object_id, None if secret else data)
            await idempotency.finish(self.tx, self.key, stored)
        return json_response(data, status, location)


@asynccontextmanager
async def begin(request: Request, caller: Caller, identity: bytes | None = None) -> AsyncIterator[Operation]:
    """Begin the transaction of a request. Routes that first do other work call this; others depend on
    `operation`.

    Of the methods, POST has Idempotency-Keys. `identity` is what identifies the request, if that is more than
    its body. Raise Repeated for a repeated key.
    """
    key = await _key(request, caller, identity)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        stored = None if key is None else await idempotency.begin(tx, key)
        if stored is not None and stored.body is None:
            raise Conflict(
                "This Idempotency-Key already made an object whose answer carried a secret and was not kept.",
                extra={"id": stored.object_id},
            )
        if stored is not None:
            raise Repeated(stored)
        yield Operation(request, caller, tx, key)


async def raise_if_repeated(request: Request, caller: Caller) -> None:
    """Raise Repeated for a repeated Idempotency-Key. For routes that call another server before their
    transaction begins, and might get another result the second time."""
    if "idempotency-key" in request.headers:
        async with begin(request, caller):
            pass


async def _key(request: Request, caller: Caller, identity: bytes | None) -> idempotency.Key | None:
    given = request.headers.get("idempotency-key")
    if given is None or (request.method != "POST" and identity is None):
        return None
    body = await request.body() if identity is None else identity
    return idempotency.Key.of(caller.principal, request.method, path_of(request), given, body)


def operation(*scopes: str) -> Any:
    """Return the dependency that gives the `Operation` of a route that needs `scopes`; without scopes any key will do."""
    authenticated = calling(*scopes)

    async def begun(request: Request, caller: Caller = authenticated) -> AsyncIterator[Operation]:
        async with begin(request, caller) as this:
            yield this

    return Depends(begun, scope="function")


Reading = Annotated[Operation, operation("read")]


def service(name: str) -> Any:
    """Return the dependency that gives a service by its name in `app.assembly.Services`."""

    async def get(request: Request) -> Any:
        return getattr(request.app.state.services, name)

    return Depends(get)


Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many, newest first.")]
Cursor = Annotated[str | None, Query(max_length=4096, description="`nextCursor` of the page before.")]


@dataclass(slots=True)
class PageRequest:
    """The page of a list that a request asks for. A cursor is good for lists of the same `kind`."""

    signer: CursorSigner
    limit: int
    cursor: str | None
    kind: str = ""

    @property
    def rows(self) -> int:
        """How many rows to read: one more than the page shows tells whether there are more."""
        return self.limit + 1

    def position(self, kind: str) -> list[str | int] | None:
        """Return the position after which the page begins, or None for the first page."""
        self.kind = kind
        return None if self.cursor is None else self.signer.decode(kind, self.cursor)

    def last(self, kind: str) -> str | None:
        """Return the first part of the position as text."""
        position = self.position(kind)
        return None if position is None else str(position[0])

    def body(self, items: Sequence[Any], *keys: str) -> dict[str, Any]:
        """Return the response for items of which one more than `limit` was read; `keys` name the fields that are
        the position of an item."""
        shown = list(items[: self.limit])
        position = [shown[-1][key] for key in keys] if len(items) > self.limit else None
        return self.body_until(shown, position)

    def body_until(self, shown: list[Any], position: Sequence[str | int] | None) -> dict[str, Any]:
        """Return the response for these items; `position` is None on the last page."""
        cursor = None if position is None else self.signer.encode(self.kind, list(position))
        return {"items": shown, "nextCursor": cursor}


def page_of(request: Request, limit: int, cursor: str | None) -> PageRequest:
    return PageRequest(door_of(request).signer, limit, cursor)


async def _paging(request: Request, limit: Limit = 50, cursor: Cursor = None) -> PageRequest:
    return page_of(request, limit, cursor)


Paging = Annotated[PageRequest, Depends(_paging)]


def whole_list(items: Sequence[Any]) -> dict[str, Any]:
    """Return the response for a list that always comes at once."""
    return {"items": items}
