"""Client calls over HTTP: announced, claimed, kept alive, answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from plangate.spec.base import Url, at_most
from plangate.spec.problems import json_pointer
from plangate.spec.transport_checks import transport_problems
from plangate.spec.transports import Headers, McpTransport
from pydantic import Field, JsonValue, SkipValidation, model_validator

from app.base.errors import FieldError, Invalid, Unavailable
from app.base.postgres.database import Tx
from app.journal.http import SSE_MEDIA_TYPE, SseResponse, claim_stream, key_check
from app.tenancy.http import (
    Body,
    Cursor,
    GatedRoute,
    Limit,
    Reply,
    answer,
    before,
    calling,
    json_response,
    page,
    reading,
)
from app.tenancy.models import Caller
from app.tools import views
from app.tools.claims import ClientCalls
from app.tools.ledger import CallLedger
from app.tools.models import MAX_RESULT_BYTES
from app.tools.transports.mcp.pinning import McpPinning
from app.tools.transports.mcp.tools import specs

router = APIRouter(route_class=GatedRoute, tags=["client tools"])

WorkId = Annotated[str, Path(max_length=100)]
Token = Annotated[str, Field(min_length=1, max_length=200)]
LOOK_EVERY_S = 2.0


class ResultRoute(GatedRoute):
    max_body_bytes = MAX_RESULT_BYTES + 64 * 1024


results = APIRouter(route_class=ResultRoute, tags=["client tools"])
mcp = APIRouter(route_class=GatedRoute, tags=["runtimes"])


class Served(Body):
    """A tool that the claimant serves; with a digest only calls of exactly that definition."""

    name: Annotated[str, Field(max_length=200)]
    definition_digest: Annotated[str, Field(max_length=100)] | None = None


class Claim(Body):
    """Takes calls. Choose a random `claimToken` and repeat the claim with it if its answer is lost: it gives the
    same calls again. Without one the service makes it."""

    tools: Annotated[list[Served], Field(min_length=1), at_most(500)]
    max: Annotated[int, Field(ge=1, le=100)] = 1
    lease_ms: Annotated[int, Field(ge=1_000, le=300_000)] = 30_000
    claim_token: Annotated[str, Field(min_length=16, max_length=200)] | None = None


class Held(Body):
    claim_token: Token
    lease_ms: Annotated[int, Field(ge=1_000, le=300_000)] = 30_000


class Progress(Body):
    claim_token: Token
    label: Annotated[str, Field(max_length=500)]
    phase_index: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    total_phases: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    milestone: Annotated[str, Field(max_length=500)] | None = None


class Result(Body):
    """What the tool returned, or the error that the model is told: exactly one of the two."""

    claim_token: Token
    output: SkipValidation[JsonValue] = None  # the gate checked it
    error: Annotated[str, Field(min_length=1, max_length=20_000)] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Result:
        if self.error is not None and self.output is not None:
            raise ValueError("send output or error, not both")
        return self


class Release(Body):
    claim_token: Token


class McpServer(Body):
    """An MCP server over Streamable HTTP; a header is its text, or `{"secret": name}`."""

    url: Url
    headers: Annotated[Headers, at_most(50)] = Field(default_factory=dict)


def calls_of(request: Request) -> ClientCalls:
    calls: ClientCalls = request.app.state.services.client_calls
    return calls


@router.get(
    "/tool-calls/stream",
    summary="Announces that there may be calls to claim; never the calls",
    description="Does not end. On each message, and after a reconnection, claim.",
    response_class=Response,
    response_description="Messages of the type `calls`, whose data is an empty object.",
    responses={200: {"content": {SSE_MEDIA_TYPE: {"schema": {"type": "object"}}}}},
)
async def announce(request: Request, caller: Annotated[Caller, calling("tools:serve")]) -> Response:
    async with claim_stream(request, caller) as place:
        return SseResponse(_hints(request, caller.tenant), place)


async def _hints(request: Request, tenant: str) -> AsyncIterator[bytes]:
    hints = request.app.state.services.call_hints
    check = key_check(request)
    yield b"retry: 1000\n\nevent: calls\ndata: {}\n\n"
    with hints.watch(tenant) as heard:
        while not hints.closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await heard.wait()
            with contextlib.suppress(Unavailable):
                if not await check():
                    return
            heard.clear()
            yield b"event: calls\ndata: {}\n\n"


@router.post(
    "/tool-calls/claim",
    summary="Take open calls; each goes to one claimant",
    description="Actions of plans and approval predicates are given only to keys with the scope `actions:serve`. "
    "The answer carries claim tokens, so it is not kept for a repeated Idempotency-Key.",
    response_model=views.ClaimedCalls,
)
async def claim(request: Request, body: Claim, caller: Annotated[Caller, calling("tools:serve")]) -> Response:
    served = [(t.name, t.definition_digest) for t in body.tools]

    async def claiming(tx: Tx) -> Reply:
        calls = await calls_of(request).claim(tx, caller, served, body.max, body.lease_ms, body.claim_token)
        return Reply({"calls": calls}, secret=True)

    return await answer(request, caller, claiming)


@router.get("/tool-calls", summary="Calls that left the service, newest first", response_model=views.CallPage)
async def list_calls(
    request: Request,
    caller: Annotated[Caller, calling("read")],
    limit: Limit = 50,
    cursor: Cursor = None,
    status: Literal["open", "claimed", "done", "unknown", "withdrawn"] | None = None,
    query_id: Annotated[str | None, Query(alias="queryId", max_length=100)] = None,
) -> Response:
    position = before(request, "tool-calls", cursor)

    async def listed(tx: Tx) -> Any:
        calls: CallLedger = request.app.state.services.calls
        rows = await calls.page(tx, str(position[0]) if position else None, status, query_id, limit + 1)
        return page(request, "tool-calls", rows, limit, lambda r: [r["workId"]])

    return await reading(request, caller, listed)


@router.post(
    "/tool-calls/{work_id}/heartbeat",
    summary="Hold a claim longer, never beyond the tool's timeout",
    response_model=views.ClaimHeld,
)
async def heartbeat(
    request: Request, work_id: WorkId, body: Held, caller: Annotated[Caller, calling("tools:serve")]
) -> Response:
    async def holding(tx: Tx) -> Reply:
        until = await calls_of(request).heartbeat(tx, caller, work_id, body.claim_token, body.lease_ms)
        return Reply({"claimedUntil": until})

    return await answer(request, caller, holding)


@router.post(
    "/tool-calls/{work_id}/progress",
    summary="Tell the readers of the query how far a call is",
    response_model=views.ProgressTold,
)
async def progress(
    request: Request, work_id: WorkId, body: Progress, caller: Annotated[Caller, calling("tools:serve")]
) -> Response:
    fields = body.model_dump(by_alias=True, exclude_none=True, exclude={"claim_token"})

    async def telling(tx: Tx) -> Reply:
        await calls_of(request).progress(tx, caller, work_id, body.claim_token, fields)
        return Reply({"told": True})

    return await answer(request, caller, telling)


@results.post(
    "/tool-calls/{work_id}/result", summary="Post what a call returned", response_model=views.ResultPosted
)
async def result(
    request: Request, work_id: WorkId, body: Result, caller: Annotated[Caller, calling("tools:serve")]
) -> Response:
    outcome = {"error": body.error} if body.error is not None else {"output": body.output}

    async def posting(tx: Tx) -> Reply:
        adopted = await calls_of(request).result(tx, caller, work_id, body.claim_token, outcome)
        return Reply({"workId": work_id, "adopted": adopted})

    return await answer(request, caller, posting)


@router.post(
    "/tool-calls/{work_id}/release",
    summary="Give back a call that was claimed and not begun",
    response_model=views.ClaimReleased,
)
async def release(
    request: Request, work_id: WorkId, body: Release, caller: Annotated[Caller, calling("tools:serve")]
) -> Response:
    async def releasing(tx: Tx) -> Reply:
        await calls_of(request).release(tx, caller, work_id, body.claim_token)
        return Reply({"workId": work_id, "released": True})

    return await answer(request, caller, releasing)


@mcp.post(
    "/tools/mcp/list",
    summary="The tools of an MCP server as ToolSpecs, ready for a spec",
    description="Their annotations are what the server says of its tools: `readOnly` and `idempotent` let a call whose "
    "outcome is not known be repeated, so take them out where you do not believe it.",
    response_model=views.McpTools,
)
async def list_mcp_tools(
    request: Request, body: McpServer, caller: Annotated[Caller, calling("runtimes:write")]
) -> Response:
    transport = McpTransport(url=body.url, headers=body.headers)
    flaws = [FieldError(json_pointer(place), message) for place, message in transport_problems(transport)]
    if flaws:
        raise Invalid("The MCP server cannot be named so; see errors.", flaws)
    pinning: McpPinning = request.app.state.services.mcp_pinning
    found = await pinning.listed(caller.tenant, body.url, body.headers)
    return json_response({"tools": specs(found, transport)})
