"""Work records and usage over HTTP."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from plangate.events import WorkKind, WorkStatus
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.tenancy.http import MAX_PAGE, GatedRoute, Reading, calling, door_of, json_response, page_of
from app.tenancy.models import Caller
from app.usage import service, views

router = APIRouter(route_class=GatedRoute, tags=["work"])


class Parameters(BaseModel):
    """Parameters of a request."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class WorkFilter(Parameters):
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE, description="How many at most, newest first.")] = 50
    cursor: Annotated[str | None, Field(max_length=4096, description="`nextCursor` of the page before.")] = (
        None
    )
    query_id: Annotated[str | None, Field(max_length=100)] = None
    kind: WorkKind | None = None
    status: WorkStatus | None = None


class TreeParameters(Parameters):
    tree: Annotated[bool, Field(description="Also everything below it, as `below`.")] = False


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


class UsageParameters(Parameters):
    group_by: Annotated[views.GroupBy, Field(description="What each group is of.")] = "day"
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
async def list_work_records(parameters: Annotated[WorkFilter, Query()], op: Reading) -> Response:
    page = page_of(op.request, parameters.limit, parameters.cursor)
    last = page.last(f"work-records {parameters.query_id} {parameters.kind} {parameters.status}")
    items, after = await service.page(
        op.tx, last, parameters.query_id, parameters.kind, parameters.status, page.limit
    )
    return await op.respond(page.body_until(items, None if after is None else [after]))


@router.get(
    "/work-records/{work_id}",
    summary="A work record, with tree=true the tree below it",
    response_model=views.WorkRecord,
)
async def read_work_record(
    request: Request,
    work_id: Annotated[str, Path(max_length=100)],
    parameters: Annotated[TreeParameters, Query()],
    caller: Annotated[Caller, calling("read")],
) -> Response:
    return json_response(
        await service.read_record(door_of(request).db, caller.tenant, work_id, tree=parameters.tree)
    )


@router.get(
    "/usage",
    summary="What models used and cost, and what references kept out of prompts",
    description="Queries, threads, artifacts and days come newest first, agents, models and channels by name. The "
    "revisions of one artifact stand together, the latest first.",
    response_model=views.UsageReport,
)
async def read_usage(parameters: Annotated[UsageParameters, Query()], op: Reading) -> Response:
    page = page_of(op.request, parameters.limit, parameters.cursor)
    position = page.position(f"usage {parameters.group_by} {parameters.from_} {parameters.to}")
    if position is None:
        within, after = service.TimeRange.from_bounds(parameters.from_, parameters.to), None
    else:  # later pages use the range of the first one
        since, until, after = (str(part) for part in position)
        within = service.TimeRange(datetime.fromisoformat(since), datetime.fromisoformat(until))
    head, groups, last = await service.usage(op.tx, parameters.group_by, within, after, page.limit)
    end = None if last is None else [within.since.isoformat(), within.until.isoformat(), last]
    return await op.respond(head | page.body_until(groups, end))
