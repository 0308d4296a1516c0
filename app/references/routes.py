"""References over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, JsonValue, SkipValidation, model_validator
from starlette.types import Send

from app.base.errors import Invalid, NotFound, PlangateError
from app.base.json.limits import LIMITS
from app.base.logs.structured import structlog
from app.base.postgres.database import Tx
from app.base.responses import to_wire
from app.journal.models import Scope
from app.journal.service import append_events, load_scope
from app.references import store, views
from app.references.models import ReferenceFilter
from app.references.service import ReferenceService
from app.references.values import MAX_REFERENCE_BYTES, parse_document
from app.runtimes.service import Runtimes
from app.tenancy.http import (
    GatedRoute,
    Operation,
    Paging,
    ReadOperation,
    api_context,
    begin,
    json_response,
    operation,
    require_scope,
    service,
)
from app.tenancy.models import Caller
from app.tenancy.request_body import Body

log = structlog.get_logger(__name__)


class LargeRoute(GatedRoute):
    """Parses and checks large bodies in a separate process and passes only their small fields to the handler."""

    max_body_bytes = 2 * MAX_REFERENCE_BYTES  # a value may be written with escapes and white space

    @asynccontextmanager
    async def parse_body(self, request: Request, body: bytearray) -> AsyncIterator[None]:
        if len(body) <= LIMITS.process_bytes:
            async with super().parse_body(request, body):
                yield
            return
        # What stands for the body where one is compared with another.
        request._body = (await asyncio.to_thread(hashlib.sha256, body)).hexdigest().encode()
        async with references_of(request).processes.open(request=True) as process:
            fields, has_value = await process.keep(parse_document, body)
            value = {"value": process} if has_value else {}
            request._json = [] if fields is None else {**fields, **value}
            yield


router = APIRouter(route_class=GatedRoute, tags=["references"])
large = APIRouter(route_class=LargeRoute, tags=["references"])

Kind = Annotated[str, Path(max_length=100)]
RefId = Annotated[str, Path(max_length=100)]
References = Annotated[ReferenceService, service("references")]


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
    """The kind of reference that the runtime declares."""
    value: SkipValidation[JsonValue]  # the gate and the schema of its kind check it
    """The value, as the kind's schema describes it."""
    glimpse: dict[str, Any] | None = None
    runtime_id: Annotated[str, Field(max_length=100)] | None = None
    runtime: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    work_id: Annotated[str, Field(max_length=100)] | None = None
    """The unit of work that creates it."""

    @model_validator(mode="after")
    def _one_runtime(self) -> CreateReference:
        if self.runtime_id is not None and self.runtime is not None:
            raise ValueError("name the runtime by runtimeId or by runtime, not both")
        return self


def references_of(request: Request) -> ReferenceService:
    references: ReferenceService = request.app.state.services.references
    return references


async def scope_of(tx: Tx, work_id: str) -> Scope:
    """Return the position of the work that uses a reference."""
    scope = await load_scope(tx, work_id=work_id)
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
    request: Request,
    body: CreateReference,
    caller: Annotated[Caller, require_scope("data:write")],
    references: References,
    runtimes: Annotated[Runtimes, service("runtimes")],
) -> Response:
    runtime_id = body.runtime_id
    if runtime_id is None:
        async with api_context(request).db.transaction(caller.tenant) as tx:
            runtime_id = await runtimes.latest_id(tx, body.runtime or "default")
    runtime = await runtimes.get(caller.tenant, runtime_id)
    prepared = await references.prepare(caller.tenant, runtime, body.kind, body.value, body.glimpse)
    async with begin(request, caller) as op:
        scope = None if body.work_id is None else await scope_of(op.tx, body.work_id)
        reference = await references.keep(op.tx, prepared, body.work_id)
        if reference.created and scope is not None:
            await append_events(op.tx, query_id=scope.query_id, events=[reference.event(scope)])
        status = 201 if reference.created else 200
        return await op.respond(
            reference.wire(), status, f"/references/{reference.kind}/{reference.id}", reference.id
        )


@router.get("/references", summary="Handles and glimpses, newest first", response_model=views.ReferencePage)
async def list_references(
    op: ReadOperation, page: Paging, kind: Annotated[str | None, Query(max_length=100)] = None
) -> Response:
    position = page.position("references")
    before = None
    if position is not None:
        try:
            before = (datetime.fromisoformat(str(position[0])), str(position[1]), str(position[2]))
        except (ValueError, IndexError) as error:
            raise Invalid("The cursor is not one this service issued for this list.") from error
    rows = await store.page(op.tx, filters=ReferenceFilter(kind, before), limit=page.rows)
    items = rows[: page.limit]
    last = items[-1] if len(rows) > page.limit else None
    position = None if last is None else [last.created_at.isoformat(), last.kind, last.id]
    return await op.respond(page.body_until([to_wire(views.ListedReference, row) for row in items], position))


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
    caller: Annotated[Caller, require_scope("read")],
    references: References,
    work_id: Annotated[
        str | None,
        Query(alias="workId", max_length=100, description="The work record that this reading belongs on."),
    ] = None,
) -> Response:
    if work_id is not None:
        async with api_context(request).db.transaction(caller.tenant) as tx:
            await scope_of(tx, work_id)
    size, pieces = await references.read(caller.tenant, kind, id, work_id)
    return Pieces(pieces, headers={"content-length": str(size)}, media_type="application/json")


@router.get(
    "/references/{kind}/{id}/part",
    summary="Read a part of a value",
    description="`path` is a JMESPath expression over the value, such as `length(rows)` or `rows[0:50]`. The response is what it "
    "selects, null if that is nothing. A part of more than 256 KiB is a 413: ask for less.",
    response_model=JsonValue,
    response_description="What the expression selects.",
)
async def read_reference_part(
    kind: Kind,
    id: RefId,
    caller: Annotated[Caller, require_scope("read")],
    references: References,
    path: Annotated[
        str, Query(min_length=1, max_length=1000, description="A JMESPath expression over the value.")
    ],
) -> Response:
    return json_response(await references.part(caller.tenant, kind, id, path))


@router.get(
    "/references/{kind}/{id}/glimpse",
    summary="The handle and its glimpse",
    response_model=views.ReferenceView,
)
async def read_reference_glimpse(
    kind: Kind, id: RefId, op: ReadOperation, references: References
) -> Response:
    return await op.respond((await references.glimpse(op.tx, kind, id)).wire())


@router.delete(
    "/references/{kind}/{id}",
    summary="Delete a value by hand, pinned or not",
    response_model=views.ReferenceDeleted,
)
async def delete_reference(
    kind: Kind, id: RefId, op: Annotated[Operation, operation("data:write")], references: References
) -> Response:
    await references.delete(op.tx, kind, id)
    return await op.respond({"kind": kind, "id": id, "deleted": True})
