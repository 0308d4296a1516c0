"""The journal over HTTP: a query's events, and everything of a tenant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from app.base.errors import FieldError, Invalid
from app.base.json import strict_json
from app.events import EVENT_TYPES, TERMINAL_TYPES, Event
from app.journal import store
from app.journal.http import (
    EVENTS_DESCRIPTION,
    EventStreamResponse,
    claim_stream,
    get_streams,
    key_check,
    wants_stream,
)
from app.journal.models import EventFilter, JournalEvent, StoredEvent
from app.journal.reader import MAX_PAGE_EVENTS, QueryCursor
from app.journal.views import EventPage
from app.tenancy.http import GatedRoute, api_context, json_response, require_scope
from app.tenancy.models import Caller

router = APIRouter(route_class=GatedRoute, tags=["events"])

After = Annotated[
    str | None,
    Query(max_length=500, description="A cursor: the `id` of the last event seen. Last-Event-ID wins."),
]
Types = Annotated[str | None, Query(max_length=1000, description="Only these types, separated by commas.")]


def cursor_of(request: Request, after: str | None) -> str | None:
    return request.headers.get("last-event-id") or after


def parse_types(types: str | None) -> tuple[str, ...] | None:
    """Return the event types that a request names, or None for all. Raise Invalid for an unknown type."""
    if types is None:
        return None
    names = tuple(t.strip() for t in types.split(",") if t.strip())
    unknown = sorted(set(names) - set(EVENT_TYPES))
    if unknown:
        raise Invalid(
            "There are no such event types.",
            [FieldError("query:types", f"{', '.join(unknown)}; known are {', '.join(EVENT_TYPES)}")],
        )
    return names


QueryId = Annotated[str, Path(max_length=100)]
PageLimit = Annotated[int, Query(ge=1, le=MAX_PAGE_EVENTS, description="The most events of the page.")]
StreamLimit = Annotated[
    int | None, Query(ge=1, le=10**9, description="End the stream after this many events.")
]
RuntimeFilter = Annotated[str | None, Query(alias="runtimeId", max_length=100)]
ThreadFilter = Annotated[str | None, Query(alias="threadId", max_length=100)]


@router.get(
    "/queries/{query_id}/events",
    summary="Read a page of a query's journal",
    response_model=EventPage,
)
async def list_query_events(
    request: Request,
    query_id: QueryId,
    caller: Annotated[Caller, require_scope("read")],
    after: After = None,
    types: Types = None,
    limit: PageLimit = 100,
) -> Response:
    if wants_stream(request):
        return await stream_query(request, query_id, caller, after, types)
    streams = get_streams(request)
    names = parse_types(types)
    async with api_context(request).db.transaction(caller.tenant) as tx:
        before = cursor_of(request, after)
        position = await streams.reader.position(tx, query_id, before)
        rows = await store.load_page(tx, query_id=query_id, after=position, limit=limit, types=names)
        last = rows[-1].seq if rows else position
        done = bool(rows) and rows[-1].type in TERMINAL_TYPES
        if not done and len(rows) < limit:
            done = await store.is_over_after(tx, query_id=query_id, seq=last, types=names)
    cursor = (
        streams.reader.query_cursor(query_id, rows[-1]) if rows else before or QueryCursor.start(query_id)
    )
    return _page_response(rows, cursor, done=done)


def _page_response(events: Sequence[JournalEvent], cursor: str, *, done: bool) -> Response:
    bodies = b",".join(e.envelope() for e in events if isinstance(e, StoredEvent))
    tail = strict_json.dumps({"nextCursor": cursor, "done": done})
    return json_response(b'{"events":[%s],%s' % (bodies, tail[1:]))


@router.get(
    "/queries/{query_id}/stream",
    summary="Follow a query: its events as they happen",
    description="Ends after the terminal event, `finish` or `error`. Losing the connection does not affect the "
    "query: resume with `Last-Event-ID`.",
    status_code=200,
    response_class=EventStreamResponse,
    responses={200: {"model": Event}},
    response_description=EVENTS_DESCRIPTION,
)
async def stream_query(
    request: Request,
    query_id: QueryId,
    caller: Annotated[Caller, require_scope("read")],
    after: After = None,
    types: Types = None,
    limit: StreamLimit = None,
) -> Response:
    streams = get_streams(request)
    names = parse_types(types)
    async with claim_stream(request, caller) as place:
        async with streams.reads.transaction(caller.tenant, is_opening=True) as tx:
            position = await streams.reader.position(tx, query_id, cursor_of(request, after))
        stream = streams.query_stream(
            (caller.tenant, query_id), position, key_check(request, caller.tenant), names, limit
        )
        return EventStreamResponse(stream, place)


@router.get(
    "/events",
    summary="Read a page of the tenant's events",
    description="Without a cursor the page begins now. Deltas and progress (`text`, `reasoning`, `tool-progress`) "
    "are included only if `types` names them. A page examines at most 5,000 events. If none of them passes the filters, the "
    "page is empty; continue with `nextCursor`.",
    response_model=EventPage,
)
async def list_events(
    request: Request,
    caller: Annotated[Caller, require_scope("read")],
    after: After = None,
    types: Types = None,
    runtime_id: RuntimeFilter = None,
    thread_id: ThreadFilter = None,
    limit: PageLimit = 100,
) -> Response:
    if wants_stream(request):
        return await stream_events(request, caller, after, types, runtime_id, thread_id)
    streams = get_streams(request)
    filters = EventFilter(parse_types(types), runtime_id, thread_id)
    async with api_context(request).db.transaction(caller.tenant) as tx:
        cursor = cursor_of(request, after)
        position = await streams.reader.tenant_position(tx, cursor)
        page = await store.load_tenant_page(tx, after=position, filters=filters, limit=limit)
        end = page.examined or (page.rows[-1] if page.rows else None)
        if end is not None:
            cursor = streams.reader.tenant_cursor(caller.tenant, await store.load_history(tx), *end)
        elif cursor is None:
            cursor = await streams.reader.tenant_cursor_at(tx, position[0])
    return _page_response([e for _, e in page.rows], cursor, done=False)


@router.get(
    "/events/stream",
    summary="Follow all events of the tenant",
    description="Without a cursor the stream begins now. It does not end. Deltas and progress (`text`, `reasoning`, "
    "`tool-progress`) are included only if `types` names them.",
    status_code=200,
    response_class=EventStreamResponse,
    responses={200: {"model": Event}},
    response_description=EVENTS_DESCRIPTION,
)
async def stream_events(
    request: Request,
    caller: Annotated[Caller, require_scope("read")],
    after: After = None,
    types: Types = None,
    runtime_id: RuntimeFilter = None,
    thread_id: ThreadFilter = None,
    limit: StreamLimit = None,
) -> Response:
    streams = get_streams(request)
    filters = EventFilter(parse_types(types), runtime_id, thread_id)
    async with claim_stream(request, caller) as place:
        async with streams.reads.transaction(caller.tenant, is_opening=True) as tx:
            position = await streams.reader.tenant_position(tx, cursor_of(request, after))
        stream = streams.tenant_stream(
            caller.tenant, position, key_check(request, caller.tenant), filters, limit
        )
        return EventStreamResponse(stream, place)
