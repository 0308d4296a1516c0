"""Keys and secrets over HTTP. A key is shown once; a secret never."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from plangate.spec.base import at_most
from pydantic import AwareDatetime, Field, field_validator

from app.base.clock import rfc3339
from app.base.errors import NotFound
from app.base.postgres.database import Tx
from app.tenancy import store, views
from app.tenancy.http import (
    Body,
    Cursor,
    GatedRoute,
    Limit,
    Reply,
    answer,
    before,
    calling,
    page,
    reading,
)
from app.tenancy.models import Caller
from app.tenancy.service import key_wire

router = APIRouter(route_class=GatedRoute, tags=["keys and secrets"])

SecretName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


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
async def create_key(
    request: Request, body: CreateKey, caller: Annotated[Caller, calling("admin")]
) -> Response:
    tenancy = request.app.state.services.tenancy

    async def create(tx: Tx) -> Reply:
        shown, row = await tenancy.create_key(
            tx, caller, body.principal, body.scopes, body.tools, body.expires_at
        )
        return Reply({**key_wire(row), "key": shown}, 201, f"/keys/{row['id']}", row["id"], secret=True)

    return await answer(request, caller, create)


@router.get("/keys", summary="List keys, newest first; never their text", response_model=views.KeyPage)
async def list_keys(
    request: Request, caller: Annotated[Caller, calling("admin")], limit: Limit = 50, cursor: Cursor = None
) -> Response:
    position = before(request, "keys", cursor)

    async def listed(tx: Tx) -> Any:
        rows = await store.keys(tx, str(position[0]) if position else None, limit + 1)
        return page(request, "keys", [key_wire(r) for r in rows], limit, lambda r: [r["id"]])

    return await reading(request, caller, listed)


@router.delete(
    "/keys/{key_id}",
    summary="Revoke a key; it stops working within five seconds",
    response_model=views.KeyRevoked,
)
async def revoke_key(
    request: Request,
    key_id: Annotated[str, Path(max_length=100)],
    caller: Annotated[Caller, calling("admin")],
) -> Response:
    async def revoke(tx: Tx) -> Any:
        if not await store.revoke_key(tx, key_id):
            raise NotFound(f"There is no key {key_id!r}.")
        tx.after_commit(request.app.state.services.tenancy.expire_cached_keys)
        return {"id": key_id, "revoked": True}

    return await reading(request, caller, revoke)


@router.put(
    "/secrets/{name}",
    summary="Set or rotate a secret; it can be used and not read",
    response_model=views.SecretView,
)
async def put_secret(
    request: Request, name: SecretName, body: PutSecret, caller: Annotated[Caller, calling("runtimes:write")]
) -> Response:
    async def put(tx: Tx) -> Any:
        created_at, updated_at = await request.app.state.services.secrets.put(tx, name, body.value)
        return {"name": name, "createdAt": rfc3339(created_at), "updatedAt": rfc3339(updated_at)}

    return await reading(request, caller, put)


@router.get("/secrets", summary="List the names of secrets", response_model=views.SecretPage)
async def list_secrets(
    request: Request,
    caller: Annotated[Caller, calling("runtimes:write")],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    position = before(request, "secrets", cursor)

    async def listed(tx: Tx) -> Any:
        rows = await store.secrets(tx, str(position[0]) if position else None, limit + 1)
        items = [
            {"name": r["name"], "createdAt": rfc3339(r["created_at"]), "updatedAt": rfc3339(r["updated_at"])}
            for r in rows
        ]
        return page(request, "secrets", items, limit, lambda r: [r["name"]])

    return await reading(request, caller, listed)


@router.delete("/secrets/{name}", summary="Delete a secret", response_model=views.SecretDeleted)
async def delete_secret(
    request: Request, name: SecretName, caller: Annotated[Caller, calling("runtimes:write")]
) -> Response:
    async def delete(tx: Tx) -> Any:
        if not await store.delete_secret(tx, name):
            raise NotFound(f"There is no secret {name!r}.")
        return {"name": name, "deleted": True}

    return await reading(request, caller, delete)
