"""The routes of client calls, and of the tools of MCP servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from plangate.json_pointer import json_pointer
from plangate.spec.base import Url, at_most
from plangate.spec.transport_checks import transport_problems
from plangate.spec.transports import Headers, McpTransport
from plangate.statuses import CallStatus
from pydantic import Field, JsonValue, SkipValidation, model_validator

from app.base.errors import FieldError, Invalid, Unavailable
from app.journal.http import SseResponse, claim_stream, key_check
from app.tenancy.http import (
    GatedRoute,
    Operation,
    Paging,
    ReadOperation,
    begin,
    json_response,
    operation,
    require_scope,
    service,
)
from app.tenancy.models import Caller
from app.tenancy.request_body import Body
from app.tools import views
from app.tools.claims import MAX_TOOL_EVENT_BYTES, ClientCalls
from app.tools.ledger import CallLedger
from app.tools.models import MAX_ERROR_CHARS, MAX_RESULT_BYTES, ClaimableTool, ClaimFilter
from app.tools.store import CallFilter
from app.tools.transports.mcp.pinning import McpPinning
from app.tools.transports.mcp.tools import specs
from app.workspace import paths
from app.workspace.http import BINARY_CONTENT, StreamingRoute, get_workspaces, receive_body
from app.workspace.models import DEFAULT_TYPE, FileAuthor
from app.workspace.views import FileView

router = APIRouter(route_class=GatedRoute, tags=["client tools"])

WorkId = Annotated[str, Path(max_length=100)]
Token = Annotated[str, Field(min_length=1, max_length=200)]
Calls = Annotated[ClientCalls, service("client_calls")]
Serving = Annotated[Operation, operation("tools:serve")]

LOOK_EVERY_S = 2.0


class ResultRoute(GatedRoute):
    max_body_bytes = MAX_RESULT_BYTES + 64 * 1024


results = APIRouter(route_class=ResultRoute, tags=["client tools"])
streamed = APIRouter(route_class=StreamingRoute, tags=["client tools"])
mcp = APIRouter(route_class=GatedRoute, tags=["runtimes"])


class ToolVersion(Body):
    """A tool that the claimant serves. With a digest, only calls of exactly that definition match."""

    name: Annotated[str, Field(max_length=200)]
    """The name of the tool."""
    definition_digest: Annotated[str, Field(max_length=100)] | None = None
    """Only calls of exactly this definition."""


class Claim(Body):
    """Claims calls. Choose a random `claimToken`: if the response is lost, repeat the claim with the same token to
    get the same calls again. Without one, the service chooses it. `queryId`, `threadId`, `runtimeId` and `purpose`
    restrict the claim to calls of this query, thread, version of a runtime, and kind."""

    tools: Annotated[list[ToolVersion], Field(min_length=1), at_most(500)]
    """The tools that the claimant serves."""
    max: Annotated[int, Field(ge=1, le=100)] = 1
    lease_ms: Annotated[int, Field(ge=1_000, le=300_000)] = 30_000
    claim_token: Annotated[str, Field(min_length=16, max_length=200)] | None = None
    """A random text of the claimant's own; unset, the service makes one."""
    query_id: Annotated[str, Field(max_length=100)] | None = None
    """Only calls of this query."""
    thread_id: Annotated[str, Field(max_length=100)] | None = None
    """Only calls of this thread."""
    runtime_id: Annotated[str, Field(max_length=100)] | None = None
    """Only calls of this version of a runtime."""
    purpose: Literal["tool", "action"] | None = None
    """Only calls of this purpose."""


class Heartbeat(Body):
    claim_token: Token
    lease_ms: Annotated[int, Field(ge=1_000, le=300_000)] = 30_000


class Progress(Body):
    claim_token: Token
    label: Annotated[str, Field(max_length=500)]
    phase_index: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    total_phases: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    milestone: bool | Annotated[str, Field(max_length=500)] | None = None


class ToolEvent(Body):
    """An event of the tool's own type, for the readers of the query. It must contain no value that a reference keeps out
    of events."""

    claim_token: Token
    event_type: Annotated[str, Field(min_length=1, max_length=100)]
    """The tool's own type of event, such as `page-scanned`."""
    data: SkipValidation[JsonValue] = None  # the strict parser accepted it
    """Any JSON."""


class Result(Body):
    """The output of the tool, or the error for the model: exactly one of the two. Send `"output": null` if the tool
    returned nothing."""

    claim_token: Token
    output: SkipValidation[JsonValue] = None  # the strict parser accepted it
    """What the tool returned."""
    error: Annotated[str, Field(min_length=1, max_length=MAX_ERROR_CHARS)] | None = None
    """The error for the model."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Result:
        if self.error is not None and self.output is not None:
            raise ValueError("send output or error, not both")
        if self.error is None and "output" not in self.model_fields_set:
            raise ValueError('send output or error; send "output": null if the tool returned nothing')
        return self


class Release(Body):
    claim_token: Token


class McpServer(Body):
    """An MCP server over Streamable HTTP. A header is a text, or `{"secret": name}`."""

    url: Url
    headers: Annotated[Headers, at_most(50)] = Field(default_factory=dict)


@streamed.put(
    "/tool-calls/{work_id}/files/{path:path}",
    status_code=201,
    summary="Copy a file that an agent publishes from a workspace of yours",
    description="The call is one of a workspace that the caller answers at the moment. The body is the file, of any content "
    "type; the service keeps it for the artifact.",
    response_model=FileView,
    responses={200: {"model": FileView, "description": "A copy that was there has a new version."}},
    openapi_extra={"requestBody": {"required": True, "content": {DEFAULT_TYPE: BINARY_CONTENT}}},
)
async def copy_file(
    request: Request,
    work_id: WorkId,
    path: Annotated[str, Path(description="Relative to the workspace; it may contain slashes.")],
    caller: Annotated[Caller, require_scope("tools:serve")],
    calls: Calls,
) -> Response:
    target = paths.normalize(path)
    async with begin(request, caller) as op:
        await calls.workspace_scope(op.tx, caller, work_id)
    body = await receive_body(request, caller.tenant)
    async with begin(request, caller) as op:
        scope = await calls.lock_workspace_call(op.tx, caller, work_id)
        author = FileAuthor(scope.agent or caller.principal, None, scope.query_id)
        row, new = await get_workspaces(request).write(op.tx, scope.thread_id, target, body, author)
        return await op.respond(row.wire(), 201 if new else 200, row.location)


@router.get(
    "/tool-calls/stream",
    summary="Announce calls to claim, without the calls",
    description="Does not end. On each message, and after a reconnection, claim.",
    status_code=200,
    response_class=SseResponse,
    response_description="Messages of the type `calls`, whose data is `{}`.",
)
async def stream_tool_calls(
    request: Request, caller: Annotated[Caller, require_scope("tools:serve")]
) -> Response:
    async with claim_stream(request, caller) as place:
        return SseResponse(_hints(request, caller.tenant), place)


async def _hints(request: Request, tenant: str) -> AsyncIterator[bytes]:
    hints = request.app.state.services.call_notifications
    check = key_check(request, tenant)
    yield b"retry: 1000\n\nevent: calls\ndata: {}\n\n"
    with hints.watch(tenant) as notified:
        while not hints.closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await notified.wait()
            with contextlib.suppress(Unavailable):
                if not await check.is_valid():
                    return
            notified.clear()
            yield b"event: calls\ndata: {}\n\n"


@router.post(
    "/tool-calls/claim",
    summary="Take open calls; each goes to one claimant",
    description="Actions of plans and approval predicates are given only to keys with the scope `actions:serve`. "
    "The answer carries claim tokens, so it is not kept for a repeated Idempotency-Key.",
    response_model=views.ClaimedCalls,
)
async def claim_tool_call(body: Claim, op: Serving, calls: Calls) -> Response:
    claimed = await calls.claim(
        op.tx,
        op.caller,
        tools=[ClaimableTool(tool.name, tool.definition_digest) for tool in body.tools],
        limit=body.max,
        lease_ms=body.lease_ms,
        token=body.claim_token,
        only=ClaimFilter(body.query_id, body.thread_id, body.runtime_id, body.purpose),
    )
    return await op.respond({"calls": claimed}, secret=True)


@router.get(
    "/tool-calls",
    summary="Calls that left the service, newest first",
    description="A page examines the newest 2,000 calls at most, and those of one query if `queryId` is given. It may be "
    "short or empty although there are more: follow `nextCursor` until it is null.",
    response_model=views.CallPage,
)
async def list_tool_calls(
    op: ReadOperation,
    calls: Annotated[CallLedger, service("calls")],
    page: Paging,
    status: CallStatus | None = None,
    query_id: Annotated[str | None, Query(alias="queryId", max_length=100)] = None,
) -> Response:
    rows, last = await calls.page(
        op.tx, after=page.last("tool-calls"), limit=page.limit, filters=CallFilter(status, query_id)
    )
    return await op.respond(page.body_until(rows, last))


@router.post(
    "/tool-calls/{work_id}/heartbeat",
    summary="Hold a claim longer, never beyond the tool's timeout",
    response_model=views.ClaimHeld,
)
async def heartbeat_tool_call(work_id: WorkId, body: Heartbeat, op: Serving, calls: Calls) -> Response:
    until = await calls.heartbeat(op.tx, op.caller, work_id, body.claim_token, body.lease_ms)
    return await op.respond({"claimedUntil": until})


@router.post(
    "/tool-calls/{work_id}/progress",
    summary="Tell the readers of the query how far a call is",
    response_model=views.ProgressRecorded,
)
async def report_tool_progress(work_id: WorkId, body: Progress, op: Serving, calls: Calls) -> Response:
    fields = body.model_dump(exclude_none=True, exclude={"claim_token"})
    await calls.progress(op.tx, op.caller, work_id, body.claim_token, fields)
    return await op.respond({"recorded": True})


@router.post(
    "/tool-calls/{work_id}/events",
    summary="Emit an event of the tool's own type to the readers of the query",
    description=f"The event has the type `custom`. `data` has at most {MAX_TOOL_EVENT_BYTES // 1024} KiB of JSON.",
    response_model=views.ToolEventEmitted,
)
async def emit_tool_event(work_id: WorkId, body: ToolEvent, op: Serving, calls: Calls) -> Response:
    await calls.emit(op.tx, op.caller, work_id, body.claim_token, body.event_type, body.data)
    return await op.respond({"emitted": True})


@results.post(
    "/tool-calls/{work_id}/result", summary="Post what a call returned", response_model=views.ResultPosted
)
async def post_tool_result(work_id: WorkId, body: Result, op: Serving, calls: Calls) -> Response:
    outcome = {"error": body.error} if body.error is not None else {"output": body.output}
    adopted = await calls.result(op.tx, op.caller, work_id, body.claim_token, outcome)
    return await op.respond({"workId": work_id, "adopted": adopted})


@router.post(
    "/tool-calls/{work_id}/release",
    summary="Give back a call that was claimed and not begun",
    response_model=views.ClaimReleased,
)
async def release_tool_call(work_id: WorkId, body: Release, op: Serving, calls: Calls) -> Response:
    await calls.release(op.tx, op.caller, work_id, body.claim_token)
    return await op.respond({"workId": work_id, "released": True})


@mcp.post(
    "/tools/mcp/list",
    summary="The tools of an MCP server as ToolSpecs, ready for a spec",
    description="Their annotations are what the server says of its tools: `readOnly` and `idempotent` let a call whose "
    "outcome is not known be repeated, so take them out where you do not believe it.",
    response_model=views.McpTools,
)
async def list_mcp_tools(
    body: McpServer,
    caller: Annotated[Caller, require_scope("runtimes:write")],
    pinning: Annotated[McpPinning, service("mcp_pinning")],
) -> Response:
    transport = McpTransport(url=body.url, headers=body.headers)
    errors = [FieldError(json_pointer(place), message) for place, message in transport_problems(transport)]
    if errors:
        raise Invalid("The URL or the headers of the MCP server are invalid; see errors.", errors)
    tools = await pinning.list_tools(caller.tenant, body.url, body.headers)
    return json_response({"tools": specs(tools, transport)})
