"""Sources and the catalog over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from app.catalog import store, views
from app.catalog.schemas import PutSource
from app.catalog.service import SourceService, check_kind
from app.tenancy.http import (
    GatedRoute,
    Operation,
    Paging,
    Reading,
    begin,
    calling,
    operation,
    service,
)
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["data"])

SourceName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
Sources = Annotated[SourceService, service("sources")]


@router.put(
    "/sources/{name}",
    summary="Declare a database or files that agents may read",
    description="The address of a database is read from the secret and checked. A database that does not answer at the "
    "moment is accepted.",
    response_model=views.SourceView,
    responses={201: {"model": views.SourceView, "description": "The source is new."}},
)
async def put_source(
    request: Request,
    name: SourceName,
    body: PutSource,
    caller: Annotated[Caller, calling("sources:admin")],
    sources: Sources,
) -> Response:
    source = body.source(name)
    check_kind(source)
    await sources.check(caller.tenant, source)
    async with begin(request, caller) as op:
        stored, created = await sources.put(op.tx, source)
        return await op.respond(
            stored.wire(), 201 if created else 200, f"/sources/{name}" if created else None
        )


@router.get("/sources", summary="List sources by name", response_model=views.SourcePage)
async def list_sources(op: Reading, page: Paging) -> Response:
    rows = await store.sources(op.tx, page.last("sources"), page.rows)
    return await op.respond(page.body([row.wire() for row in rows], "name"))


@router.get(
    "/sources/{name}", summary="A source and the state of its profile", response_model=views.SourceView
)
async def read_source(name: SourceName, op: Reading, sources: Sources) -> Response:
    return await op.respond((await sources.get(op.tx, name)).wire())


@router.delete(
    "/sources/{name}",
    summary="Delete a source and what its profiles found",
    description="What people wrote about it in the catalog stays.",
    response_model=views.SourceDeleted,
)
async def delete_source(
    name: SourceName, op: Annotated[Operation, operation("sources:admin")], sources: Sources
) -> Response:
    await sources.delete(op.tx, name)
    return await op.respond({"name": name, "deleted": True})
