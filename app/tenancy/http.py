"""The common parts of all routes: the JSON gate, the caller, the transaction, pages.

A route parses, calls a service (or, for a plain read, the store of its feature) and responds. Its `Operation` has the
transaction.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import unquote, unquote_to_bytes

from fastapi import Depends, Query, Request, Response, Security
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes
from pydantic import AfterValidator, BeforeValidator
from pydantic.alias_generators import to_camel
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path, get_name

from app.base.cursors import CursorSigner
from app.base.errors import (
    Conflict,
    FieldError,
    Forbidden,
    Invalid,
    NotFound,
    TooLarge,
    UnsupportedMediaType,
)
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.postgres.database import Tx
from app.base.traces import parse_traceparent
from app.tenancy import idempotency
from app.tenancy.api_context import ApiContext
from app.tenancy.cookies import session_credential
from app.tenancy.models import Caller, Credential, IdempotencyKey, StoredResponse
from app.tenancy.service import parse_authorization

MAX_BODY_BYTES = 1024 * 1024
MAX_PAGE = 500
MAX_NAME_CHARS = 100


_building = threading.RLock()


def operation_id(route: APIRoute) -> str:
    """Return the id of an operation in the API document, which generators make a function of: the name of the function
    that answers it, in camelCase. So it says what is done to what, without the path."""
    return to_camel(route.name)


class NamedRoute(APIRoute):
    """A route whose operation has the name of the function.

    At first it has only its path, methods and name. The first request or the API document builds the rest: building all
    routes takes a sixth of the CPU of importing the service.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        options["generate_unique_id_function"] = operation_id
        self._build: Callable[[], None] = partial(super().__init__, path, endpoint, **options)
        self.path = path
        self.endpoint = endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in options.get("methods") or ("GET",)}
        self.name = options.get("name") or get_name(endpoint)

    def __getattr__(self, name: str) -> Any:
        """Build the route, and return an attribute that it has from then on. If another thread builds one, wait for it."""
        with _building:
            build = self.__dict__.pop("_build", None)
            if build is not None:
                build()
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}") from None


class GatedRoute(NamedRoute):
    """Every body goes through the one JSON gate before anything looks at it."""

    max_body_bytes = MAX_BODY_BYTES

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        limit = self.max_body_bytes

        async def gated(request: Request) -> Response:
            _validate_address(request)
            if request.method in ("POST", "PUT", "PATCH"):
                await self.admit(request)
                if (key := request.headers.get("idempotency-key")) is not None:
                    idempotency.validate_key(key)
                async with self.parse_body(request, await _body(request, limit)):
                    return await handle(request)
            return await handle(request)

        return gated

    async def admit(self, request: Request) -> None:
        """Reject a client without a valid key or session before its body is read, let alone parsed."""
        await api_context(request).tenancy.find_caller(credential_of(request), host_of(request))

    @asynccontextmanager
    async def parse_body(self, request: Request, body: bytearray) -> AsyncIterator[None]:
        """Parse the body at the gate and hold the result while the request is handled."""
        request._body = bytes(body)
        if body:
            request._json = await api_context(request).parser.parse(request._body)
        yield


def _validate_address(request: Request) -> None:
    """Raise NotFound for a path with NUL, which Postgres cannot store, or with a line break; Invalid for a query string
    with NUL or that is not UTF-8."""
    if "\0" in path_of(request):
        raise NotFound("The path contains a NUL byte (%00), which no name can contain.")
    reject_line_break(request)
    validate_query_string(request)


def reject_line_break(request: Request) -> None:
    """Raise NotFound for a path with a line break. The pattern of a route ends before one at the end of the path, so
    that `a%0A` would name `a`."""
    if "\n" in path_of(request):
        raise NotFound("The path contains a line break (%0A), which no name can contain.")


def validate_query_string(request: Request) -> None:
    """Raise Invalid if the query string is not valid UTF-8 or has a NUL: invalid bytes would be replaced,
    and NUL cannot be stored."""
    errors = [
        FieldError(
            f"query:{unquote(part.partition(b'=')[0])[:MAX_NAME_CHARS]}", "is not UTF-8: é is %C3%A9, not %E9"
        )
        for part in request.scope["query_string"].split(b"&")
        if not _is_utf8(part)
    ]
    if errors:
        raise Invalid("A parameter is not UTF-8, and can be neither stored nor found.", errors)
    errors = [
        FieldError(f"query:{name}", "contains NUL")
        for name, value in request.query_params.multi_items()
        if "\0" in value
    ]
    if errors:
        raise Invalid("A parameter contains NUL (%00), which cannot be stored or found.", errors)


async def _body(request: Request, limit: int) -> bytearray:
    """All of the body, which may be empty."""
    body = bytearray()
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(
            f"The request body has {declared} bytes, more than the maximum of {limit}. Send a smaller body."
        )
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise TooLarge(
                    f"The request body is larger than the maximum of {limit} bytes. Send a smaller body."
                )
    except ClientDisconnect as error:
        raise TooLarge("The body was not sent to its end.") from error
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


def path_of(request: Request) -> str:
    """Return the requested path. `request.url` is put together with the Host header and may differ."""
    path: str = request.scope["path"]
    return path


def host_of(request: Request) -> str:
    """Return the client's address, or behind a trusted proxy the address that the proxy names; empty if there is none."""
    return "" if request.client is None else request.client.host


def traceparent_of(request: Request) -> str | None:
    """Return the caller's span (W3C Trace Context), or None if there is none that can be parsed."""
    header = request.headers.get("traceparent", "")
    return header if parse_traceparent(header) else None


def api_context(request: Request) -> ApiContext:
    context: ApiContext = request.app.state.context
    return context


def credential_of(request: Request) -> Credential:
    """Return the key of the request, or else its session. Raise Unauthenticated, or CrossSiteRequest for a session."""
    authorization = request.headers.get("authorization")
    if authorization is None:
        credential = session_credential(request, api_context(request).public_url)
        if credential is not None:
            return credential
    return parse_authorization(authorization)


def address_of(request: Request) -> str:
    """Return the address of the service as the client sees it, without a slash at its end."""
    public_url = api_context(request).public_url
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
    caller = await api_context(request).tenancy.authenticate(
        credential_of(request),
        request.headers.get("plangate-tenant"),
        request.headers.get("plangate-principal"),
        spec_tenant=spec_tenant,
        host=host_of(request),
    )
    for scope in scopes.scopes:
        caller.require_scope(scope)
    reject_unknown_parameters(request)
    return caller


def reject_unknown_parameters(request: Request) -> None:
    """Raise Invalid for unknown parameters and fields: a misspelled filter would list too much, and a
    misspelled field would be lost."""
    if not request.query_params:
        return
    aliases = {known.alias for known in get_flat_params(request.scope["route"].dependant)}
    names = sorted(aliases - request.path_params.keys())
    expected = f"expected one of: {', '.join(names)}" if names else "this operation has none"
    errors = [
        FieldError(f"query:{name[:MAX_NAME_CHARS]}", f"unknown parameter; {expected}")
        for name in request.query_params
        if name not in names
    ]
    if errors:
        raise Invalid("The request has unknown parameters; see errors.", errors)


def _resource_id(body: Any) -> str | None:
    tenant = body.get("tenant") if isinstance(body, dict) else None
    id = (tenant.get("resourceId") or tenant.get("resource_id")) if isinstance(tenant, dict) else None
    return id if isinstance(id, str) else None


def require_scope(*scopes: str) -> Any:
    """Return the dependency that gives the caller of a route that needs `scopes` and begins its transaction
    itself. Without scopes any key will do. The OpenAPI document shows the scope."""
    return Security(_caller, scopes=list(scopes))


def json_response(body: Any, status: int = 200, location: str | None = None) -> Response:
    headers = {"location": location} if location else None
    data = body if isinstance(body, bytes) else strict_json.dumps(body)
    return Response(data, status, headers, media_type="application/json")


class RepeatedRequest(Exception):
    """The request repeats an Idempotency-Key: the stored response is its response."""

    def __init__(self, stored: StoredResponse) -> None:
        self.object_id = stored.object_id
        self.response = json_response(stored.body, stored.status, stored.location)


@dataclass(frozen=True, slots=True)
class Operation:
    """A request and its transaction, which is committed before the response is sent. What the request does, its
    events and the stored response of its Idempotency-Key are durable together, or not at all."""

    request: Request
    caller: Caller
    tx: Tx
    key: IdempotencyKey | None

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
            stored = StoredResponse(self.key.body_hash, status, location, object_id, None if secret else data)
            await idempotency.finish(self.tx, self.key, stored)
        return json_response(data, status, location)


@asynccontextmanager
async def begin(request: Request, caller: Caller, identity: bytes | None = None) -> AsyncIterator[Operation]:
    """Begin the transaction of a request. Routes that first do other work call this; others depend on
    `operation`.

    Of the methods, POST has Idempotency-Keys. `identity` is what identifies the request, if that is more than
    its body. Raise RepeatedRequest for a repeated key.
    """
    key = await _key(request, caller, identity)
    async with api_context(request).db.transaction(caller.tenant) as tx:
        response = None if key is None else await idempotency.begin(tx, key)
        # A first request with a key stores its response.
        tx.acknowledges = request.method != "GET" if key is None else response is not None
        if response is not None and response.body is None:
            raise Conflict(
                "This Idempotency-Key already made an object whose answer carried a secret and was not kept.",
                extra={"id": response.object_id},
            )
        if response is None:
            yield Operation(request, caller, tx, key)
    if response is not None:
        raise RepeatedRequest(response)


async def raise_if_repeated(request: Request, caller: Caller) -> None:
    """Raise RepeatedRequest for a repeated Idempotency-Key. For routes that call another server before their
    transaction begins, and might get another result the second time."""
    if "idempotency-key" in request.headers:
        async with begin(request, caller):
            pass


async def _key(request: Request, caller: Caller, identity: bytes | None) -> IdempotencyKey | None:
    key = request.headers.get("idempotency-key")
    if key is None or (request.method != "POST" and identity is None):
        return None
    idempotency.validate_key(key)
    body = await request.body() if identity is None else identity
    return IdempotencyKey(
        caller.principal, request.method, path_of(request), key, hashlib.sha256(body).digest()
    )


def operation(*scopes: str) -> Any:
    """Return the dependency that gives the `Operation` of a route that needs `scopes`; without scopes any key will do."""
    authenticated = require_scope(*scopes)

    async def begin_operation(request: Request, caller: Caller = authenticated) -> AsyncIterator[Operation]:
        async with begin(request, caller) as this:
            yield this

    return Depends(begin_operation, scope="function")


ReadOperation = Annotated[Operation, operation("read")]


OPERATOR_SCOPE = "operator"
"""Stands for the operator in the OpenAPI document. It is not a scope of keys."""


async def _require_operator(
    request: Request, _credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
) -> None:
    caller = await api_context(request).tenancy.find_caller(credential_of(request), host_of(request))
    if not caller.is_operator:
        raise Forbidden(
            "Only the operator may read this: send the operator's key, or a session that it started without `principal`."
        )
    reject_unknown_parameters(request)


operator_only: Any = Security(_require_operator, scopes=[OPERATOR_SCOPE])
"""The dependency of routes for the operator of the installation. They work in no tenant, so none is looked up or created,
and they hold no transaction: each function that spans tenants is a statement of its own (`Database.call`)."""


def service(name: str) -> Any:
    """Return the dependency that gives a service by its name in `app.assembly.Services`."""

    async def get(request: Request) -> Any:
        return getattr(request.app.state.services, name)

    return Depends(get)


def _require_date(value: object) -> object:
    """Reject numbers, which would be parsed as seconds since 1970."""
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value):
        return value
    raise ValueError("must be a date such as 2026-11-21, or a time such as 2026-11-21T17:32:34Z")


def _to_utc(value: datetime) -> datetime:
    if not 2000 <= value.year <= 2200:
        raise ValueError("the year must be from 2000 to 2200")
    return value if value.tzinfo else value.replace(tzinfo=UTC)


Moment = Annotated[datetime, BeforeValidator(_require_date), AfterValidator(_to_utc)]
"""A date, which is its first moment in UTC, or a time, of the years 2000 to 2200."""

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
        """Return how many rows to read: one more than the page shows, to know whether there are more."""
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
        page = list(items[: self.limit])
        position = [page[-1][key] for key in keys] if len(items) > self.limit else None
        return self.body_until(page, position)

    def body_until(
        self, items: list[Any], position: Sequence[str | int] | str | int | None
    ) -> dict[str, Any]:
        """Return the response for these items. `position` is what the next page begins after, None on the last page."""
        parts = [position] if isinstance(position, str | int) else position
        cursor = None if parts is None else self.signer.encode(self.kind, list(parts))
        return {"items": items, "nextCursor": cursor}


def page_of(request: Request, limit: int, cursor: str | None) -> PageRequest:
    return PageRequest(api_context(request).signer, limit, cursor)


async def _paging(request: Request, limit: Limit = 50, cursor: Cursor = None) -> PageRequest:
    return page_of(request, limit, cursor)


Paging = Annotated[PageRequest, Depends(_paging)]


async def _ordered_paging(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many, in their order.")] = 50,
    cursor: Cursor = None,
) -> PageRequest:
    return page_of(request, limit, cursor)


OrderedPaging = Annotated[PageRequest, Depends(_ordered_paging)]
"""The page of a list in the order in which its items came."""


def whole_list(items: Sequence[Any]) -> dict[str, Any]:
    """Return the response for a list that always comes at once."""
    return {"items": items}
