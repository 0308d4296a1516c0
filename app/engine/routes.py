"""Routes for the operator of an installation: its processes."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from app.base.responses import to_wire
from app.engine import lease_store, views
from app.tenancy.http import GatedRoute, api_context, json_response, operator_only, whole_list

router = APIRouter(route_class=GatedRoute, tags=["operations"])

MAX_PROCESSES: Final = 500


@router.get(
    "/processes",
    summary="List the processes of the installation and their health",
    description="The running processes first, then those that ended in the last hour; up to 500.",
    response_model=views.ProcessList,
    dependencies=[operator_only],
)
async def list_processes(request: Request) -> Response:
    processes = await lease_store.list_processes(api_context(request).db, limit=MAX_PROCESSES)
    return json_response(whole_list([to_wire(views.ProcessView, process) for process in processes]))
