"""References over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any

import orjson
import structlog
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, JsonValue, SkipValidation, model_validator
from starlette.types import Send

from app.base.clock import rfc3339
from app.base.errors import Invalid, NotFound, PlangateError
from app.base.json.process_pool import LARGE_BYTES
from app.base.postgres.database import Tx
from app.journal import store as journal_store
from app.journal.models import Scope
from app.references import store, views
from app.references.service import ReferenceService
from app.references.values import MAX_REFERENCE_BYTES
from app.tenancy.http import (
    Body,
    Cursor,
    GatedRoute,
    Limit,
    Reply,
    answer,
    before,
    calling,
    door_of,
    page,
    reading,
)
from app.tenancy.models import Caller

log = structlog.get_logger(__name__)


class LargeRoute(GatedRoute):
    """A large body is parsed and checked in a process of its own; only its small fields come here."""

    max_body_bytes = 2 * MAX_REFERENCE_BYTES  # a value may be written with escapes and white space

    @asynccontextmanager
    async def opened(self, request: Request, body: bytearray) -> AsyncIterator[None]:
        if len(body) <= LARGE_BYTES:
            async with super().opened(request, body):
                yield
            return
        # What stands for the body where one is compared with another.
        request._body = (await asyncio.to_thread(hashlib.sha256, body)).hexdigest().encode()
        async with references_of(request).large.taken_apart(body) as document:
            value = {"value": document} if document.has_value else {}
            request._json = [] if document.fields is None else {**document.fields, **value}
            yield


router = APIRouter(route_class=GatedRoute, tags=["references"])
large = APIRouter(route_class=LargeRoute, tags=["references"])

Kind = Annotated[str, Path(max_length=100)]
RefId = Annotated[str, Path(max_length=100)]


class Pieces(StreamingResponse):
    """A value in pieces. One that goes while it is read, and an outage, end the connection short of its length."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except PlangateError as error:
            log.warning("references.reading_cut", error=error)


class CreateReference(Body):
    """A value of a kind that the runtime declares, and, if its author made one, its glimpse."""

    kind: Annotated[str, Field(max_length=100)]
    value: SkipValidation[JsonValue]  # the gate and the schema of its kind check it
    glimpse: dict[str, Any] | None = None
    runtime_id: Annotated[str, Field(max_length=100)] | None = None
    runtime: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    work_id: Annotated[str, Field(max_length=100)] | None = None

    @model_validator(mode="after")
    def _one_runtime(self) -> CreateReference:
        if self.runtime_id is not None and self.runtime is not None:
            raise ValueError("name the runtime by runtimeId or by runtime, not both")
        return self


def references_of(request: Request) -> ReferenceService:
    references: ReferenceService = request.app.state.services.references
    return references


async def scope_of(tx: Tx, work_id: str) -> Scope:
    """Where the work is that does something with a reference."""
    scope = await journal_store.load_scope(tx, work_id)
    if scope is None:
        raise NotFound(f"There is no work record {work_id!r} of a query.")
    return scope


@large.post(
    "/references",
    status_code=201,
    summary="Store a value; the same value gives the same handle",
    response_model=views.ReferenceView,
    responses={200: {"model": views.ReferenceView, "description": "The value was there."}},
)
async def create_reference(
    request: Request, body: CreateReference, caller: Annotated[Caller, calling("data:write")]
) -> Response:
    services, references = request.app.state.services, references_of(request)
    runtime_id = body.runtime_id
    if runtime_id is None:
        async with door_of(request).db.transaction(caller.tenant) as tx:
            runtime_id = await services.runtimes.latest_id(tx, body.runtime or "default")
    runtime = await services.runtimes.get(caller.tenant, runtime_id)
    prepared = await references.prepare(caller.tenant, runtime, body.kind, body.value, body.glimpse)

    async def create(tx: Tx) -> Reply:
        scope = None if body.work_id is None else await scope_of(tx, body.work_id)
        made = await references.keep(tx, prepared, body.work_id)
        if made.created and scope is not None:
            await journal_store.append(tx, scope.query_id, [made.event(scope)])
        return Reply(made.wire(), 201 if made.created else 200, f"/references/{made.kind}/{made.id}", made.id)

    return await answer(request, caller, create)


@router.get("/references", summary="Handles and glimpses, newest first", response_model=views.ReferencePage)
async def list_references(
    request: Request,
    caller: Annotated[Caller, calling("read")],
    limit: Limit = 50,
    cursor: Cursor = None,
    kind: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    position = before(request, "references", cursor)
    at: tuple[Any, ...] = (None, None, None)
    if position is not None:
        try:
            at = (datetime.fromisoformat(str(position[0])), str(position[1]), str(position[2]))
        except (ValueError, IndexError) as error:
            raise Invalid("The cursor is not one this service issued for this list.") from error

    async def listed(tx: Tx) -> Any:
        rows = await store.page(tx, kind, at, limit + 1)
        items = [
            {
                "kind": r["kind"],
                "id": r["id"],
                "glimpse": orjson.loads(r["glimpse"]),
                "sizeBytes": r["size_bytes"],
                "createdAt": rfc3339(r["created_at"]),
                "expiresAt": rfc3339(r["expires_at"]) if r["expires_at"] else None,
                "workId": r["work_id"],
            }
            for r in rows
        ]
        exact = {(r["kind"], r["id"]): r["created_at"].isoformat() for r in rows}
        return page(
            request, "references", items, limit, lambda r: [exact[(r["kind"], r["id"])], r["kind"], r["id"]]
        )

    return await reading(request, caller, listed)


@router.get(
    "/references/{kind}/{id}",
    summary="The value, byte for byte as it is stored",
    response_model=JsonValue,
    response_description="The value, any JSON that the kind's schema allows.",
)
async def read_reference(
    request: Request,
    kind: Kind,
    id: RefId,
    caller: Annotated[Caller, calling("read")],
    work_id: Annotated[
        str | None,
        Query(alias="workId", max_length=100, description="The work record that this reading belongs on."),
    ] = None,
) -> Response:
    if work_id is not None:
        async with door_of(request).db.transaction(caller.tenant) as tx:
            await scope_of(tx, work_id)
    size, pieces = await references_of(request).read(caller.tenant, kind, id, work_id)
    return Pieces(pieces, headers={"content-length": str(size)}, media_type="application/json")


@router.get(
    "/references/{kind}/{id}/glimpse",
    summary="The handle and its glimpse",
    response_model=views.ReferenceView,
)
async def read_glimpse(
    request: Request, kind: Kind, id: RefId, caller: Annotated[Caller, calling("read")]
) -> Response:
    async def glimpse(tx: Tx) -> Any:
        return (await references_of(request).glimpse(tx, kind, id)).wire()

    return await reading(request, caller, glimpse)


@router.delete(
    "/references/{kind}/{id}",
    summary="Delete a value by hand, pinned or not",
    response_model=views.ReferenceDeleted,
)
async def delete_reference(
    request: Request, kind: Kind, id: RefId, caller: Annotated[Caller, calling("data:write")]
) -> Response:
    async def delete(tx: Tx) -> Any:
        await references_of(request).delete(tx, kind, id)
        return {"kind": kind, "id": id, "deleted": True}

    return await reading(request, caller, delete)
