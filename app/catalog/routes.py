"""Sources and the catalog over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Path, Query, Request, Response
from plangate.spec.catalog_toolkit import EntryKind

from app.base.postgres.database import Tx
from app.catalog import catalog, store, views
from app.catalog.entries import MAX_ID_CHARS
from app.catalog.models import SOURCE_NAME, EntryFilter
from app.catalog.schemas import EntryBody, PutSource, WriteEntries
from app.catalog.service import SourceService, check_kind
from app.tenancy.http import (
    GatedRoute,
    Operation,
    Paging,
    ReadOperation,
    begin,
    operation,
    require_scope,
    service,
    whole_list,
)
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["data"])

SourceName = Annotated[str, Path(pattern=f"^{SOURCE_NAME.pattern}$")]
Sources = Annotated[SourceService, service("sources")]


class StartsProfiles(Protocol):
    """Starts the query that profiles a source (app/queries/profiles.py)."""

    async def start(self, tx: Tx, caller: Caller, name: str) -> Any: ...


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
    caller: Annotated[Caller, require_scope("sources:admin")],
    sources: Sources,
) -> Response:
    source = body.source(name)
    check_kind(source)
    await sources.check(caller.tenant, source)
    async with begin(request, caller) as op:
        source, created = await sources.put(op.tx, source)
        return await op.respond(source.wire(), 201 if created else 200, f"/sources/{name}")


@router.get("/sources", summary="List sources by name", response_model=views.SourcePage)
async def list_sources(op: ReadOperation, page: Paging) -> Response:
    rows = await store.sources(op.tx, after=page.last("sources"), limit=page.rows)
    return await op.respond(page.body([row.wire() for row in rows], "name"))


@router.get(
    "/sources/{name}", summary="A source and the state of its profile", response_model=views.SourceView
)
async def read_source(name: SourceName, op: ReadOperation, sources: Sources) -> Response:
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


@router.post(
    "/sources/{name}/profile",
    status_code=202,
    summary="Read structure and statistics of a source into the catalog",
    description="In the background: the response names a query, whose events `tool-progress` tell how far it is. What the "
    "source no longer has leaves the catalog; what people wrote stays.",
    response_model=views.ProfileAccepted,
)
async def profile_source(
    name: SourceName,
    op: Annotated[Operation, operation("sources:admin")],
    profiles: Annotated[StartsProfiles, service("profiles")],
) -> Response:
    accepted = await profiles.start(op.tx, op.caller, name)
    body = {
        "id": accepted.id,
        "threadId": accepted.thread_id,
        "status": accepted.status,
        "links": accepted.links,
    }
    return await op.respond(body, 202, f"/queries/{accepted.id}", accepted.id)


# -- the catalog ---------------------------------------------------------------------------------------------

EntryPath = Annotated[str, Path(min_length=1, max_length=MAX_ID_CHARS)]
Writing = Annotated[Operation, operation("data:write")]


@router.put(
    "/catalog/entries/{id:path}",
    summary="Write about data: an entry of your own, or what you know of one that a profile found",
    description="Replaces what was written about the entry before. It takes precedence over what a profile found.",
    response_model=views.EntryView,
)
async def put_catalog_entry(id: EntryPath, body: EntryBody, op: Writing) -> Response:
    (entry,) = await catalog.write_entries(op.tx, [body.written_entry(id)])
    return await op.respond(entry.wire())


@router.post("/catalog/entries", summary="Write many entries", response_model=views.EntryList)
async def write_catalog_entries(body: WriteEntries, op: Writing) -> Response:
    entries = await catalog.write_entries(op.tx, [entry.written_entry(entry.id) for entry in body.entries])
    return await op.respond(whole_list([entry.wire() for entry in entries]))


@router.get("/catalog/entries", summary="List entries by id", response_model=views.EntryPage)
async def list_catalog_entries(
    op: ReadOperation,
    page: Paging,
    kind: EntryKind | None = None,
    source: Annotated[str | None, Query(max_length=63)] = None,
    tag: Annotated[str | None, Query(max_length=100)] = None,
    parent_id: Annotated[
        str | None,
        Query(alias="parentId", max_length=MAX_ID_CHARS, description="The table of columns, for example."),
    ] = None,
) -> Response:
    filters = EntryFilter(page.last("entries"), kind, source, tag, parent_id)
    rows = await store.page(op.tx, filters=filters, limit=page.rows)
    return await op.respond(page.body([row.wire() for row in rows], "id"))


@router.get("/catalog/search", summary="Find entries by words and names", response_model=views.FoundEntries)
async def search_catalog(
    op: ReadOperation,
    query: Annotated[str, Query(min_length=1, max_length=1000)],
    kind: EntryKind | None = None,
    source: Annotated[str | None, Query(max_length=63)] = None,
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
) -> Response:
    kinds, sources = None if kind is None else [kind], None if source is None else [source]
    return await op.respond(whole_list(await catalog.search(op.tx, query, kinds, sources, limit)))


@router.get("/catalog/entries/{id:path}", summary="An entry", response_model=views.EntryView)
async def read_catalog_entry(id: EntryPath, op: ReadOperation) -> Response:
    (entry,) = await catalog.read_entries(op.tx, [id], None)
    return await op.respond(entry.wire())


@router.delete(
    "/catalog/entries/{id:path}",
    summary="Delete what was written about an entry",
    description="What a profile found stays.",
    response_model=views.EntryDeleted,
)
async def delete_catalog_entry(id: EntryPath, op: Writing) -> Response:
    await catalog.delete_written(op.tx, id)
    return await op.respond({"id": id, "deleted": True})
