"""Work records over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from plangate.events import WorkKind, WorkStatus
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.base.database import Tx
from app.tenancy.http import MAX_PAGE, GatedRoute, before, calling, door_of, json_response, reading
from app.tenancy.models import Caller
from app.usage import service, views

router = APIRouter(route_class=GatedRoute, tags=["work"])


class Parameters(BaseModel):
    """Parameters of a request; a name that is none of them is refused: a filter that is not heard would show too much."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


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


@router.get("/work-records", summary="Work records, newest first", response_model=views.WorkPage)
async def list_work_records(
    request: Request, asked: Annotated[WorkFilter, Query()], caller: Annotated[Caller, calling("read")]
) -> Response:
    name = f"work-records {asked.query_id} {asked.kind} {asked.status}"
    position = before(request, name, asked.cursor)
    last = str(position[0]) if position else None

    async def listed(tx: Tx) -> Any:
        items, after = await service.page(tx, last, asked.query_id, asked.kind, asked.status, asked.limit)
        cursor = None if after is None else door_of(request).signer.encode(name, [after])
        return {"items": items, "nextCursor": cursor}

    return await reading(request, caller, listed)


@router.get(
    "/work-records/{work_id}",
    summary="A work record, with tree=true the tree below it",
    response_model=views.WorkRecord,
)
async def read_work_record(
    request: Request,
    work_id: Annotated[str, Path(max_length=100)],
    asked: Annotated[TreeParameters, Query()],
    caller: Annotated[Caller, calling("read")],
) -> Response:
    return json_response(await service.read(door_of(request).db, caller.tenant, work_id, tree=asked.tree))
