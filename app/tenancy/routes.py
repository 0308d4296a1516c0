"""Keys and secrets over HTTP. A key is shown once; a secret never."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from plangate.spec.base import at_most
from pydantic import AwareDatetime, Field, field_validator

from app.base.errors import NotFound
from app.base.responses import to_wire
from app.tenancy import store, views
from app.tenancy.http import Body, GatedRoute, Operation, Paging, operation, service
from app.tenancy.secrets import Secrets
from app.tenancy.service import Tenancy

router = APIRouter(route_class=GatedRoute, tags=["keys and secrets"])

SecretName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
TenancyService = Annotated[Tenancy, service("tenancy")]
Administering = Annotated[Operation, operation("admin")]
Writing = Annotated[Operation, operation("runtimes:write")]


class CreateKey(Body):
    """A key for `principal`. `tools` are the only names it may serve with `tools:serve`."""

    principal: Annotated[str, Field(min_length=1, max_length=200)]
    scopes: Annotated[list[views.Scope], Field(min_length=1), at_most(50)]
    tools: Annotated[list[Annotated[str, Field(max_length=100)]], at_most(1000)] | None = None
    expires_at: AwareDatetime | None = None

    @field_validator("expires_at", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        given = datetime.fromisoformat(value)
        try:
            return given.astimezone(UTC) if given.tzinfo else given
        except OverflowError as error:
            raise ValueError("must be within the years 1 to 9999 in UTC") from error


class PutSecret(Body):
    value: Annotated[str, Field(min_length=1, max_length=65_536)]


@router.post(
    "/keys",
    status_code=201,
    summary="Make an API key; it is shown this once",
    description="Never wider than the key that makes it. A repeated Idempotency-Key is a 409 with the id that was made.",
    response_model=views.NewKey,
)
async def create_key(body: CreateKey, op: Administering, tenancy: TenancyService) -> Response:
    shown, row = await tenancy.create_key(
        op.tx, op.caller, body.principal, body.scopes, body.tools, body.expires_at
    )
    made = to_wire(views.NewKey, row, key=shown)
    return await op.respond(made, 201, f"/keys/{row['id']}", row["id"], secret=True)


@router.get("/keys", summary="List keys, newest first; never their text", response_model=views.KeyPage)
async def list_keys(op: Administering, page: Paging) -> Response:
    rows = await store.keys(op.tx, page.last("keys"), page.rows)
    return await op.respond(page.body([to_wire(views.KeyView, row) for row in rows], "id"))


@router.delete(
    "/keys/{key_id}",
    summary="Revoke a key; it stops working within five seconds",
    response_model=views.KeyRevoked,
)
async def revoke_key(
    key_id: Annotated[str, Path(max_length=100)], op: Administering, tenancy: TenancyService
) -> Response:
    if not await store.revoke_key(op.tx, key_id):
        raise NotFound(f"There is no key {key_id!r}.")
    op.tx.after_commit(tenancy.expire_cached_keys)
    return await op.respond({"id": key_id, "revoked": True})


@router.put(
    "/secrets/{name}",
    summary="Set or rotate a secret; it can be used and not read",
    response_model=views.SecretView,
)
async def put_secret(
    name: SecretName, body: PutSecret, op: Writing, secrets: Annotated[Secrets, service("secrets")]
) -> Response:
    created_at, updated_at = await secrets.put(op.tx, name, body.value)
    row = {"name": name, "created_at": created_at, "updated_at": updated_at}
    return await op.respond(to_wire(views.SecretView, row))


@router.get("/secrets", summary="List the names of secrets", response_model=views.SecretPage)
async def list_secrets(op: Writing, page: Paging) -> Response:
    rows = await store.secrets(op.tx, page.last("secrets"), page.rows)
    return await op.respond(page.body([to_wire(views.SecretView, row) for row in rows], "name"))


@router.delete("/secrets/{name}", summary="Delete a secret", response_model=views.SecretDeleted)
async def delete_secret(name: SecretName, op: Writing) -> Response:
    if not await store.delete_secret(op.tx, name):
        raise NotFound(f"There is no secret {name!r}.")
    return await op.respond({"name": name, "deleted": True})
