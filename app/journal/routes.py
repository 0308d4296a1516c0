"""The journal over HTTP: a query's events, and everything of a tenant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from plangate.events import EVENT_TYPES, TERMINAL_TYPES

from app.base.errors import FieldError, Invalid
from app.base.json import strict_json
from app.journal import store
from app.journal.http import SseResponse, claim_stream, get_streams, key_check, wants_stream
from app.journal.models import StoredEvent
from app.journal.streams import QueryCursor
from app.journal.views import STREAM, EventPage
from app.tenancy.http import GatedRoute, calling, door_of, json_response
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["events"])

After = Annotated[
    str | None,
    Query(max_length=500, description="A cursor: the `id` of the last event seen. Last-Event-ID wins."),
]
Types = Annotated[str | None, Query(max_length=1000, description="Only these types, separated by commas.")]


def cursor_of(request: Request, after: str | None) -> str | None:
    return request.headers.get("last-event-id") or after


def wanted(types: str | None) -> Sequence[str] | None:
    if types is None:
        return None
    names = [t.strip() for t in types.split(",") if t.strip()]
    unknown = sorted(set(names) - set(EVENT_TYPES))
    if unknown:
        raise Invalid(
            "There are no such event types.",
            [FieldError("query:types", f"{', '.join(unknown)}; known are {', '.join(EVENT_TYPES)}")],
        )
    return names


@router.get(
    "/queries/{query_id}/events",
    summary="The journal of a query: a page, or a stream",
    description="With Accept: text/event-stream the events come as they happen, until the terminal one.",
    response_model=EventPage,
    responses={200: {"description": "A page of events, or a stream of them.", "content": STREAM}},
)
async def query_events(
    request: Request,
    query_id: Annotated[str, Path(max_length=100)],
    caller: Annotated[Caller, calling("read")],
    after: After = None,
    types: Types = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    streams = get_streams(request)
    names = wanted(types)
    at = cursor_of(request, after)
    if wants_stream(request):
        async with claim_stream(request, caller) as place:
            async with streams.reads.transaction(caller.tenant, is_opening=True) as tx:
                position = await streams.position(tx, query_id, at)
            frames = streams.sse(caller.tenant, query_id, position, names, key_check(request))
            return SseResponse(frames, place)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        position = await streams.position(tx, query_id, at)
        rows = await store.page(tx, query_id, position, limit, names)
        last = rows[-1].seq if rows else position
        done = bool(rows) and rows[-1].type in TERMINAL_TYPES
        if not done and len(rows) < limit:
            done = await store.is_over_after(tx, query_id, last, names)
        cursor = QueryCursor.encode(await streams.generation(tx), query_id, last)
    events = b",".join(e.envelope() for e in rows)
    tail = strict_json.dumps({"nextCursor": cursor, "done": done})
    return json_response(b'{"events":[%s],%s' % (events, tail[1:]))


@router.get(
    "/events",
    summary="Everything of the tenant: a page, or a stream",
    description="Without a cursor it begins now. Deltas and progress (`text`, `reasoning`, `tool-progress`) come "
    "only where `types` names them. With Accept: text/event-stream it does not end.",
    response_model=EventPage,
    responses={200: {"description": "A page of events, or a stream of them.", "content": STREAM}},
)
async def tenant_events(
    request: Request,
    caller: Annotated[Caller, calling("read")],
    after: After = None,
    types: Types = None,
    runtime_id: Annotated[str | None, Query(alias="runtimeId", max_length=100)] = None,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    streams = get_streams(request)
    names = wanted(types)
    at = cursor_of(request, after)
    if wants_stream(request):
        async with claim_stream(request, caller) as place:
            async with streams.reads.transaction(caller.tenant, is_opening=True) as tx:
                position = await streams.tenant_position(tx, at)
            frames = streams.tenant_sse(
                caller.tenant, position, names, runtime_id, thread_id, key_check(request)
            )
            return SseResponse(frames, place)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        position = await streams.tenant_position(tx, at)
        rows = await streams.tenant_page(tx, position, limit, names, runtime_id, thread_id)
    events = b",".join(e.envelope() for _, e in rows if isinstance(e, StoredEvent))
    cursor = streams.tenant_cursor(caller.tenant, rows[-1][0] if rows else position)
    return json_response(
        b'{"events":[%s],%s' % (events, strict_json.dumps({"nextCursor": cursor, "done": False})[1:])
    )
