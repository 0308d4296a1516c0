"""Keys, sessions and secrets over HTTP. A key is shown once; a secret never."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from plangate.spec.base import at_most
from pydantic import AwareDatetime, Field, field_validator, model_validator

from app.base.errors import Conflict, NotFound
from app.base.responses import to_wire
from app.tenancy import store, views
from app.tenancy.cookies import clear_cookie, reject_other_sites, set_cookie
from app.tenancy.http import (
    GatedRoute,
    Operation,
    Paging,
    address_of,
    api_context,
    begin,
    host_of,
    json_response,
    operation,
    operator_only,
    reject_unknown_parameters,
    require_scope,
    service,
)
from app.tenancy.models import Caller
from app.tenancy.request_body import Body
from app.tenancy.secrets import Secrets
from app.tenancy.service import Tenancy, parse_key
from app.tenancy.sessions import Sessions


class SignInRoute(GatedRoute):
    """The route that takes a key or a ticket in its body. A page of another origin cannot use it."""

    max_body_bytes = 4096

    async def admit(self, request: Request) -> None:
        reject_other_sites(request)
        reject_unknown_parameters(request)


router = APIRouter(route_class=GatedRoute, tags=["keys and secrets"])
operator = APIRouter(route_class=GatedRoute, tags=["operations"])
sign_in = APIRouter(route_class=SignInRoute, tags=["keys and secrets"])

SecretName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
TenancyService = Annotated[Tenancy, service("tenancy")]
SessionService = Annotated[Sessions, service("sessions")]
AnyKey = Annotated[Operation, operation()]
AdminOperation = Annotated[Operation, operation("admin")]
RuntimeWriteOperation = Annotated[Operation, operation("runtimes:write")]


class CreateKey(Body):
    """A key for `principal`. `tools` are the only names it may serve with `tools:serve`."""

    principal: Annotated[str, Field(min_length=1, max_length=200)]
    scopes: Annotated[list[views.Scope], Field(min_length=1), at_most(50)]
    tools: Annotated[list[Annotated[str, Field(max_length=100)]], at_most(1000)] | None = None
    """The tools that the key may serve; unset, any."""
    expires_at: AwareDatetime | None = None
    """When the key expires; unset, never."""

    @field_validator("expires_at", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        moment = datetime.fromisoformat(value)
        try:
            return moment.astimezone(UTC) if moment.tzinfo else moment
        except OverflowError as error:
            raise ValueError("must be within the years 1 to 9999 in UTC") from error


class StartSession(Body):
    """Exactly one of `key` and `ticket`. With the operator's key, `tenant` is the tenant of the session; `principal`
    needs a key with the scope `act-as`. A ticket has both already."""

    key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The API key that the session stands for."""
    ticket: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """A ticket in place of a key."""
    tenant: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    principal: Annotated[str, Field(min_length=1, max_length=200)] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> StartSession:
        if (self.key is None) == (self.ticket is None):
            raise ValueError("send either key or ticket")
        if self.ticket is not None and (self.tenant, self.principal) != (None, None):
            raise ValueError("a ticket has its tenant and principal already: leave them out")
        return self


class PutSecret(Body):
    value: Annotated[str, Field(min_length=1, max_length=65_536)]
    """The value, which is never shown again."""


@router.post(
    "/keys",
    status_code=201,
    summary="Make an API key; it is shown this once",
    description="Never wider than the key that makes it. A repeated Idempotency-Key is a 409 with the id that was made.",
    response_model=views.NewKey,
)
async def create_key(body: CreateKey, op: AdminOperation, tenancy: TenancyService) -> Response:
    text, key = await tenancy.create_key(
        op.tx, op.caller, body.principal, body.scopes, body.tools, body.expires_at
    )
    view = to_wire(views.NewKey, key, key=text)
    return await op.respond(view, 201, f"/keys/{key.id}", key.id, secret=True)


@router.get("/keys", summary="List keys, newest first; never their text", response_model=views.KeyPage)
async def list_keys(op: AdminOperation, page: Paging, tenancy: TenancyService) -> Response:
    keys = await tenancy.list_keys(op.tx, before=page.last("keys"), limit=page.rows)
    return await op.respond(page.body([to_wire(views.KeyView, key) for key in keys], "id"))


@router.delete(
    "/keys/{key_id}",
    summary="Revoke a key; it stops working within five seconds",
    response_model=views.KeyRevoked,
)
async def revoke_key(
    key_id: Annotated[str, Path(max_length=100)], op: AdminOperation, tenancy: TenancyService
) -> Response:
    await tenancy.revoke_key(op.tx, key_id)
    return await op.respond({"id": key_id, "revoked": True})


@operator.get(
    "/tenants",
    summary="List the tenants of the installation, by id",
    description="Tenants are changed with `plangate tenants`.",
    response_model=views.TenantPage,
    dependencies=[operator_only],
)
async def list_tenants(request: Request, page: Paging) -> Response:
    db = api_context(request).db
    tenants = await store.list_tenants(
        db, after=page.last("tenants"), limit=page.rows, max_counted=views.MAX_COUNTED
    )
    return json_response(page.body([to_wire(views.TenantView, tenant) for tenant in tenants], "id"))


@router.get(
    "/tenant",
    summary="Read the tenant of this request: its limits, and what it uses",
    response_model=views.TenantView,
)
async def read_tenant(op: AdminOperation) -> Response:
    tenant = await store.load_tenant_info(op.tx, max_counted=views.MAX_COUNTED)
    return await op.respond(to_wire(views.TenantView, tenant))


@router.get(
    "/whoami",
    summary="Return who this request is, and the version of the service",
    description="Any key or session will do.",
    response_model=views.WhoAmI,
)
async def whoami(caller: Annotated[Caller, require_scope()]) -> Response:
    return _private(json_response(_whoami(caller)))


@sign_in.post(
    "/session",
    summary="Start a session for a browser",
    description="Sets an HttpOnly, SameSite=Strict cookie, which is Secure except on loopback. The session acts for one "
    "principal of one tenant with the scopes of the key, and ends with the key. With the cookie, writes need the header "
    "`Plangate-Request: 1`.",
    response_model=views.WhoAmI,
)
async def start_session(
    request: Request, body: StartSession, tenancy: TenancyService, sessions: SessionService
) -> Response:
    host = host_of(request)
    if body.key is not None:
        caller = await tenancy.authenticate(parse_key(body.key), body.tenant, body.principal, host=host)
    else:
        caller = await sessions.find_ticket(body.ticket or "", host)
    async with begin(request, caller) as op:
        text, started = await sessions.start(op.tx, caller, body.ticket)
        caller = replace(caller, scopes=caller.scopes - {"act-as"}, session=started)
        response = await op.respond(_whoami(caller), object_id=started.id, secret=True)
    set_cookie(request, response, api_context(request).public_url, text, started)
    return response


@router.delete("/session", summary="End the session of this request", response_model=views.SessionEnded)
async def end_session(op: AnyKey, sessions: SessionService) -> Response:
    session = op.caller.session
    if session is None:
        raise Conflict(
            "This request has a key and no session. To end a key, revoke it with DELETE /keys/{id}."
        )
    await sessions.end(op.tx, session)
    response = await op.respond({"id": session.id, "ended": True})
    clear_cookie(op.request, response, api_context(op.request).public_url)
    return response


@router.post(
    "/session/tickets",
    summary="Create a ticket, with which a person signs in without the key",
    description="It starts one session, within five minutes, for the tenant and principal of this request. It is in the "
    "fragment of `url`, which browsers do not send to servers. A repeated Idempotency-Key is a 409.",
    response_model=views.Ticket,
)
async def create_ticket(op: AnyKey, sessions: SessionService) -> Response:
    text, ticket = await sessions.create_ticket(op.tx, op.caller)
    url = f"{address_of(op.request)}/console#ticket={text}"
    body = to_wire(views.Ticket, ticket, ticket=text, url=url)
    return _private(await op.respond(body, object_id=ticket.id, secret=True))


def _whoami(caller: Caller) -> dict[str, Any]:
    session = caller.session
    return to_wire(
        views.WhoAmI,
        caller,
        scopes=sorted(caller.scopes),
        tools=None if caller.tools is None else sorted(caller.tools),
        version=version("plangate-server"),
        session_id=None if session is None else session.id,
        expires_at=caller.expires_at if session is None else session.expires_at,
        operator=caller.is_operator,
    )


def _private(response: Response) -> Response:
    response.headers["cache-control"] = "no-store"
    return response


@router.put(
    "/secrets/{name}",
    summary="Set or rotate a secret; it can be used and not read",
    response_model=views.SecretView,
)
async def put_secret(
    name: SecretName,
    body: PutSecret,
    op: RuntimeWriteOperation,
    secrets: Annotated[Secrets, service("secrets")],
) -> Response:
    return await op.respond(to_wire(views.SecretView, await secrets.put(op.tx, name, body.value)))


@router.get("/secrets", summary="List the names of secrets", response_model=views.SecretPage)
async def list_secrets(op: RuntimeWriteOperation, page: Paging) -> Response:
    secrets = await store.secrets(op.tx, after=page.last("secrets"), limit=page.rows)
    return await op.respond(page.body([to_wire(views.SecretView, secret) for secret in secrets], "name"))


@router.delete("/secrets/{name}", summary="Delete a secret", response_model=views.SecretDeleted)
async def delete_secret(name: SecretName, op: RuntimeWriteOperation) -> Response:
    if not await store.delete_secret(op.tx, name=name):
        raise NotFound(f"There is no secret {name!r}.")
    return await op.respond({"name": name, "deleted": True})
