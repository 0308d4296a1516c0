"""Queries over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from app.base.errors import Conflict
from app.base.postgres.database import Tx
from app.documents.service import DocumentService
from app.journal import store as journal_store
from app.journal.http import SseResponse, claim_stream, get_streams, key_check, wants_stream
from app.journal.hub import Hub, Watcher
from app.journal.models import QueryKey
from app.journal.views import STREAM
from app.queries import threads, views
from app.queries.deletion import Deletions
from app.queries.schemas import ForkThread, MakeThread, Resume, SubmitQuery
from app.queries.service import QueryService, links
from app.tenancy import idempotency
from app.tenancy.http import (
    Cursor,
    GatedRoute,
    Limit,
    Reply,
    answer,
    before,
    calling,
    door_of,
    json_response,
    page,
    path_of,
    reading,
    repeated,
    traceparent_of,
)
from app.tenancy.models import Caller
from app.usage.service import list_query_records as work_of_query
from app.usage.views import WorkList

router = APIRouter(route_class=GatedRoute, tags=["queries"])

QueryId = Annotated[str, Path(max_length=100)]
ThreadId = Annotated[str, Path(max_length=100)]


def queries_of(request: Request) -> QueryService:
    queries: QueryService = request.app.state.services.queries
    return queries


@router.post(
    "/queries",
    status_code=202,
    summary="Start a query; with Accept: text/event-stream, also follow it",
    description="Following needs the scope `read` too. Losing the stream does not touch the query; the same "
    "Idempotency-Key gives it again.",
    response_model=views.AcceptedQuery,
    responses={200: {"description": "The query's events, from its first to its last.", "content": STREAM}},
)
async def submit_query(
    request: Request, body: SubmitQuery, caller: Annotated[Caller, calling("queries:write")]
) -> Response:
    queries = queries_of(request)

    follow = wants_stream(request)

    async def submit(tx: Tx) -> Reply:
        asked = replace(body.asked(), follow=follow, traceparent=traceparent_of(request))
        accepted = await queries.submit(tx, caller, asked)
        wire = accepted.wire()
        return Reply(wire, 202, wire["links"]["self"], accepted.id)

    if not follow:
        return await answer(request, caller, submit)
    caller.require_scope("read")
    async with claim_stream(request, caller) as place:
        query_id = await _submit_to_follow(request, caller, submit)
        frames = get_streams(request).sse(caller.tenant, query_id, 0, None, key_check(request))
        stream = SseResponse(frames, place)
        stream.headers["location"] = links(query_id)["self"]
        return stream


async def _submit_to_follow(request: Request, caller: Caller, submit: Any) -> str:
    """Submit a query and return its id. It is on record before the first byte of its stream; a repeated key gives the
    first query again."""
    given = request.headers.get("idempotency-key")
    async with door_of(request).db.transaction(caller.tenant) as tx:
        if given is None:
            return str((await submit(tx)).object_id)
        key = idempotency.Key.of(caller.principal, "POST", path_of(request), given, await request.body())
        stored = await idempotency.begin(tx, key)
        if stored is None:
            reply = await submit(tx)
            stored = idempotency.Stored(202, reply.location, reply.object_id, None)
            await idempotency.finish(tx, key, stored)
        if stored.object_id is None:
            raise Conflict("This Idempotency-Key was used by a request that created no query.")
        return stored.object_id


@router.get("/queries", summary="List queries, newest first", response_model=views.QueryPage)
async def list_queries(
    request: Request,
    caller: Annotated[Caller, calling("read")],
    limit: Limit = 50,
    cursor: Cursor = None,
    status: Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"] | None = None,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    runtime_id: Annotated[str | None, Query(alias="runtimeId", max_length=100)] = None,
    agent: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    position = before(request, "queries", cursor)

    async def listed(tx: Tx) -> Any:
        rows = await queries_of(request).page(
            tx, str(position[0]) if position else None, [status, thread_id, runtime_id, agent], limit + 1
        )
        return page(request, "queries", rows, limit, lambda r: [r["id"]])

    return await reading(request, caller, listed)


@router.get(
    "/queries/{query_id}",
    summary="Read a query; waitMs waits for its end",
    response_model=views.QueryView,
)
async def read_query(
    request: Request,
    query_id: QueryId,
    caller: Annotated[Caller, calling("read")],
    wait_ms: Annotated[int, Query(alias="waitMs", ge=0, le=60_000)] = 0,
) -> Response:
    queries, db = queries_of(request), door_of(request).db
    hub: Hub = request.app.state.services.hub
    deadline = asyncio.get_running_loop().time() + wait_ms / 1000
    with hub.watch((caller.tenant, query_id)) as (_, watch):
        while True:
            watch.wake.clear()
            async with db.transaction(caller.tenant) as tx:
                wire = await queries.read(tx, query_id)
            left = deadline - asyncio.get_running_loop().time()
            if wire["endedAt"] is not None or left <= 0 or get_streams(request).draining.is_set():
                return json_response(wire)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await _news_of_its_end(request, (caller.tenant, query_id), watch)


async def _news_of_its_end(request: Request, query: QueryKey, watch: Watcher) -> None:
    """Until the query is over, or this process ends. A long plan has thousands of news: where it stands is asked for
    each time, not all that a reader is told."""
    while not get_streams(request).draining.is_set():
        await watch.wake.wait()
        watch.wake.clear()
        heads = await journal_store.heads(door_of(request).db, [query])
        if not heads or not heads[0]["live"]:
            return


@router.post("/queries/{query_id}/cancel", summary="Cancel a query at once", response_model=views.QueryView)
async def cancel_query(
    request: Request, query_id: QueryId, caller: Annotated[Caller, calling("queries:write")]
) -> Response:
    queries = queries_of(request)

    async def cancel(tx: Tx) -> Reply:
        await queries.cancel(tx, query_id)
        return Reply(await queries.read(tx, query_id))

    return await answer(request, caller, cancel)


@router.post(
    "/queries/{query_id}/resume",
    summary="Raise the limits of a query that stopped at one",
    response_model=views.QueryView,
)
async def resume_query(
    request: Request, query_id: QueryId, body: Resume, caller: Annotated[Caller, calling("queries:write")]
) -> Response:
    queries = queries_of(request)

    async def resume(tx: Tx) -> Reply:
        await queries.resume(tx, query_id, body.limits.wire())
        return Reply(await queries.read(tx, query_id))

    return await answer(request, caller, resume)


@router.post(
    "/threads",
    status_code=201,
    summary="Get the thread of a key, made on first use",
    response_model=views.ThreadView,
    responses={200: {"model": views.ThreadView, "description": "The key has this thread already."}},
)
async def make_thread(
    request: Request, body: MakeThread, caller: Annotated[Caller, calling("queries:write")]
) -> Response:
    async def make(tx: Tx) -> Reply:
        thread, new = await threads.create_thread(tx, body.thread_key)
        return Reply(thread, 201 if new else 200, f"/threads/{thread['id']}", thread["id"])

    return await answer(request, caller, make)


@router.post(
    "/threads/{thread_id}/fork",
    status_code=201,
    summary="A new thread whose state and files begin as those of this one are, or were",
    description="It takes the state, the files and the version of the runtime, and not the memory: its agents begin anew.",
    response_model=views.ThreadView,
)
async def fork_thread(
    request: Request,
    thread_id: ThreadId,
    body: ForkThread,
    caller: Annotated[Caller, calling("queries:write")],
) -> Response:
    if (done := await repeated(request, caller)) is not None:
        return done
    documents: DocumentService = request.app.state.services.documents
    begun = await documents.state_of(door_of(request).db, caller.tenant, thread_id, body.at)
    glimpse = await documents.glimpse(begun)

    async def fork(tx: Tx) -> Reply:
        workspaces = request.app.state.services.workspaces
        thread = await threads.fork_thread(tx, documents, workspaces, thread_id, begun, glimpse, body.at)
        return Reply(thread, 201, f"/threads/{thread['id']}", thread["id"])

    return await answer(request, caller, fork)


@router.get("/threads", summary="List threads, newest first", response_model=views.ThreadPage)
async def list_threads(
    request: Request, caller: Annotated[Caller, calling("read")], limit: Limit = 50, cursor: Cursor = None
) -> Response:
    position = before(request, "threads", cursor)

    async def listed(tx: Tx) -> Any:
        rows = await threads.thread_page(tx, str(position[0]) if position else None, limit + 1)
        return page(request, "threads", rows, limit, lambda r: [r["id"]])

    return await reading(request, caller, listed)


@router.get(
    "/threads/{thread_id}", summary="A thread and its active queries", response_model=views.ThreadView
)
async def read_thread(
    request: Request, thread_id: ThreadId, caller: Annotated[Caller, calling("read")]
) -> Response:
    return await reading(request, caller, lambda tx: threads.read_thread(tx, thread_id))


@router.delete(
    "/threads/{thread_id}",
    summary="Delete a thread with all that is in it, for good",
    description="A 409 while one of its queries is not over. Nobody finds the thread from then on, nor its queries, events, "
    "plans, state, files and artifacts. What stays: what was used and what that cost (`GET /usage`), who decided on "
    "approvals, grants, and references, which belong to no thread.",
    response_model=views.ThreadDeleted,
)
async def delete_thread(
    request: Request, thread_id: ThreadId, caller: Annotated[Caller, calling("queries:write")]
) -> Response:
    deletions: Deletions = request.app.state.services.deletions
    await deletions.delete(caller.tenant, thread_id)
    return json_response({"id": thread_id, "deleted": True})


@router.get(
    "/queries/{query_id}/work",
    summary="The work records of a query, oldest first",
    response_model=WorkList,
)
async def query_work(
    request: Request, query_id: QueryId, caller: Annotated[Caller, calling("read")]
) -> Response:
    db = door_of(request).db
    async with db.transaction(caller.tenant) as tx:
        await queries_of(request).exists(tx, query_id)
    return json_response(await work_of_query(db, caller.tenant, query_id))
