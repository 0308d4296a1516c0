"""Work records and usage over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.events import WorkKind, WorkStatus
from app.tenancy.http import (
    MAX_PAGE,
    GatedRoute,
    Moment,
    ReadOperation,
    api_context,
    json_response,
    page_of,
    require_scope,
)
from app.tenancy.models import Caller
from app.usage import service, views
from app.usage.models import WorkFilter

router = APIRouter(route_class=GatedRoute, tags=["work"])


class Parameters(BaseModel):
    """Parameters of a request."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class WorkParameters(Parameters):
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE, description="How many at most, newest first.")] = 50
    cursor: Annotated[str | None, Field(max_length=4096, description="`nextCursor` of the page before.")] = (
        None
    )
    query_id: Annotated[str | None, Field(max_length=100)] = None
    kind: WorkKind | None = None
    status: WorkStatus | None = None


class TreeParameters(Parameters):
    tree: Annotated[bool, Field(description="Also everything below it, as `below`.")] = False


class UsageParameters(Parameters):
    group_by: Annotated[views.GroupBy, Field(description="What each group is of.")] = "day"
    order: Annotated[
        views.GroupOrder,
        Field(
            description="`cost`: the most expensive groups, up to `limit`; there is no next page. Groups whose cost is not "
            "known come last, by their tokens."
        ),
    ] = "key"
    from_: Annotated[
        Moment | None,
        Field(alias="from", description="Without it, 30 days before `to`. A date is its first moment."),
    ] = None
    to: Annotated[Moment | None, Field(description="Without it, now; at most 366 days after `from`.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE, description="How many groups at most.")] = 50
    cursor: Annotated[str | None, Field(max_length=4096, description="`nextCursor` of the page before.")] = (
        None
    )


@router.get("/work-records", summary="Work records, newest first", response_model=views.WorkPage)
async def list_work_records(parameters: Annotated[WorkParameters, Query()], op: ReadOperation) -> Response:
    page = page_of(op.request, parameters.limit, parameters.cursor)
    last = page.last(f"work-records {parameters.query_id} {parameters.kind} {parameters.status}")
    filters = WorkFilter(last, parameters.query_id, parameters.kind, parameters.status)
    items, after = await service.page(op.tx, filters, page.limit)
    return await op.respond(page.body_until(items, after))


@router.get(
    "/work-records/{work_id}",
    summary="A work record, with tree=true the tree below it",
    response_model=views.WorkRecord,
)
async def read_work_record(
    request: Request,
    work_id: Annotated[str, Path(max_length=100)],
    parameters: Annotated[TreeParameters, Query()],
    caller: Annotated[Caller, require_scope("read")],
) -> Response:
    return json_response(
        await service.read_record(api_context(request).db, caller.tenant, work_id, tree=parameters.tree)
    )


@router.get(
    "/usage",
    summary="What models used and cost, and what references kept out of prompts",
    description="Queries, threads, artifacts and days come newest first, agents, models and channels by name. The "
    "revisions of one artifact stand together, the latest first.",
    response_model=views.UsageReport,
)
async def read_usage(parameters: Annotated[UsageParameters, Query()], op: ReadOperation) -> Response:
    page = page_of(op.request, parameters.limit, parameters.cursor)
    position = page.position(
        f"usage {parameters.group_by} {parameters.order} {parameters.from_} {parameters.to}"
    )
    if position is None:
        within, after = service.TimeRange.from_bounds(parameters.from_, parameters.to), None
    else:  # later pages use the range of the first one
        since, until, after = (str(part) for part in position)
        within = service.TimeRange(datetime.fromisoformat(since), datetime.fromisoformat(until))
    head, groups, last = await service.usage(
        op.tx, parameters.group_by, parameters.order, within, after, page.limit
    )
    end = None if last is None else [within.since.isoformat(), within.until.isoformat(), last]
    return await op.respond(head | page.body_until(groups, end))
