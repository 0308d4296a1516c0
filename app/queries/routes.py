"""Queries over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from plangate.statuses import QueryStatus

from app.base.responses import to_wire
from app.documents.models import DocumentId
from app.documents.service import DocumentService
from app.events import Event
from app.journal.http import (
    EVENTS_DESCRIPTION,
    EventStreamResponse,
    claim_stream,
    get_streams,
    key_check,
    wants_stream,
)
from app.journal.hub import Hub, Watcher
from app.journal.models import QueryKey
from app.journal.service import load_heads
from app.queries import threads, views
from app.queries.deletion import Deletions
from app.queries.models import AcceptedSubmission, QueryFilter, Submission
from app.queries.schemas import ForkThread, MakeThread, Resume, SubmitQuery
from app.queries.service import CompiledInputs, InputSchemaNotCompiled, QueryService
from app.tenancy.http import (
    GatedRoute,
    Moment,
    Operation,
    Paging,
    ReadOperation,
    RepeatedRequest,
    api_context,
    begin,
    json_response,
    operation,
    raise_if_repeated,
    require_scope,
    service,
    traceparent_of,
)
from app.tenancy.models import Caller
from app.usage.service import list_query_records as work_of_query
from app.usage.views import WorkList
from app.workspace.service import Workspaces

router = APIRouter(route_class=GatedRoute, tags=["queries"])

QueryId = Annotated[str, Path(max_length=100)]
ThreadId = Annotated[str, Path(max_length=100)]
Queries = Annotated[QueryService, service("queries")]
Documents = Annotated[DocumentService, service("documents")]
Writing = Annotated[Operation, operation("queries:write")]


@router.post(
    "/queries",
    status_code=202,
    summary="Start a query",
    response_model=views.AcceptedQuery,
)
async def submit_query(
    request: Request,
    body: SubmitQuery,
    caller: Annotated[Caller, require_scope("queries:write")],
    queries: Queries,
) -> Response:
    if wants_stream(request):
        return await stream_new_query(request, body, caller, queries)
    submission = _submission(request, body, follow=False)
    accepted = await _submit_shared(request, caller, queries, submission)
    if accepted is not None:
        wire = to_wire(views.AcceptedQuery, accepted)
        return json_response(wire, HTTPStatus.ACCEPTED, accepted.links["self"])
    return (await _submit(request, caller, queries, submission))[1]


@router.post(
    "/queries/stream",
    summary="Start a query and follow it",
    description="The same body as `POST /queries`; the response is the stream of the query's events, from the first "
    "to the last. Needs the scope `read` too. Losing the connection does not affect the query: follow it with "
    "`GET /queries/{id}/stream`, or repeat the request with the same Idempotency-Key.",
    status_code=200,
    response_class=EventStreamResponse,
    responses={200: {"model": Event}},
    response_description=EVENTS_DESCRIPTION,
)
async def stream_new_query(
    request: Request,
    body: SubmitQuery,
    caller: Annotated[Caller, require_scope("queries:write")],
    queries: Queries,
) -> Response:
    caller.require_scope("read")
    async with claim_stream(request, caller) as place:
        submission = _submission(request, body, follow=True)
        accepted = await _submit_shared(request, caller, queries, submission)
        try:
            query_id = accepted.id if accepted else (await _submit(request, caller, queries, submission))[0]
        except RepeatedRequest as first:
            query_id = str(first.object_id)
        stream = get_streams(request).query_stream(
            (caller.tenant, query_id), 0, key_check(request, caller.tenant)
        )
        response = EventStreamResponse(stream, place)
        response.headers["location"] = queries.links(query_id)["self"]
        return response


def _submission(request: Request, body: SubmitQuery, *, follow: bool) -> Submission:
    return replace(body.submission(), follow=follow, traceparent=traceparent_of(request))


async def _submit_shared(
    request: Request, caller: Caller, queries: QueryService, submission: Submission
) -> AcceptedSubmission | None:
    """Return the query, once it is on record, or None if it needs a transaction of its own. A request with an Idempotency-Key
    needs one, which also stores the response."""
    if "idempotency-key" in request.headers:
        return None
    return await queries.submit_shared(caller, submission)


async def _submit(
    request: Request, caller: Caller, queries: QueryService, submission: Submission
) -> tuple[str, Response]:
    """Return the query's id and the response, once the query is on record. Raise RepeatedRequest for a repeated key."""
    compiled: CompiledInputs | None = None
    while True:
        try:
            async with begin(request, caller) as op:
                accepted = await queries.submit(op.tx, caller, submission, compiled)
                wire = to_wire(views.AcceptedQuery, accepted)
                return accepted.id, await op.respond(wire, 202, accepted.links["self"], accepted.id)
        except InputSchemaNotCompiled as missing:
            compiled = await queries.compile_inputs(missing.runtime)


@router.get(
    "/queries",
    summary="List queries, newest first",
    description="A page examines the newest 5,000 queries at most, 1,000 with `text`, and those of one thread if "
    "`threadId` is given. It may be short or empty although there are more: follow `nextCursor` until it is null.",
    response_model=views.QueryPage,
)
async def list_queries(
    op: ReadOperation,
    queries: Queries,
    page: Paging,
    status: QueryStatus | None = None,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    runtime_id: Annotated[str | None, Query(alias="runtimeId", max_length=100)] = None,
    agent: Annotated[str | None, Query(max_length=100)] = None,
    runtime: Annotated[str | None, Query(max_length=100, description="The name of a runtime.")] = None,
    principal: Annotated[
        str | None, Query(max_length=200, description="The principal that submitted the query.")
    ] = None,
    from_: Annotated[Moment | None, Query(alias="from", description="Created then or later.")] = None,
    to: Annotated[Moment | None, Query(description="Created before.")] = None,
    text: Annotated[
        str | None,
        Query(min_length=1, max_length=200, description="In the first 10,000 characters of the prompt."),
    ] = None,
    reason: Annotated[
        str | None,
        Query(
            max_length=100,
            description="Why it waits or how it ended: `outcome_unknown` waits until a person settles an action, `poisoned` was "
            "set aside because it kept killing its process.",
        ),
    ] = None,
) -> Response:
    filters = QueryFilter(
        status=status,
        thread_id=thread_id,
        runtime_id=runtime_id,
        agent=agent,
        runtime=runtime,
        principal=principal,
        since=from_,
        before=to,
        text=text,
        reason=reason,
    )
    rows, last = await queries.page(op.tx, page.last("queries"), filters, page.limit)
    return await op.respond(page.body_until(rows, last))


@router.get(
    "/queries/{query_id}",
    summary="Read a query; waitMs waits for its end",
    response_model=views.QueryView,
)
async def read_query(
    request: Request,
    query_id: QueryId,
    caller: Annotated[Caller, require_scope("read")],
    queries: Queries,
    hub: Annotated[Hub, service("hub")],
    wait_ms: Annotated[int, Query(alias="waitMs", ge=0, le=60_000)] = 0,
) -> Response:
    deadline = asyncio.get_running_loop().time() + wait_ms / 1000
    with hub.watch((caller.tenant, query_id)) as watch:
        while True:
            watch.wake.clear()
            async with begin(request, caller) as op:
                wire = await queries.read(op.tx, query_id)
            left = deadline - asyncio.get_running_loop().time()
            if wire["endedAt"] is not None or left <= 0 or get_streams(request).draining.is_set():
                return json_response(wire)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await _wait_for_end(request, (caller.tenant, query_id), watch)


async def _wait_for_end(request: Request, query: QueryKey, watch: Watcher) -> None:
    """Return when the query has ended or this process stops. Each wake-up reads only the head: a long plan has thousands
    of events."""
    while not get_streams(request).draining.is_set():
        await watch.wake.wait()
        watch.wake.clear()
        heads = await load_heads(api_context(request).db, queries=[query])
        if not heads or not heads[0].live:
            return
        watch.position = heads[0].next_seq - 1


@router.post("/queries/{query_id}/cancel", summary="Cancel a query at once", response_model=views.QueryView)
async def cancel_query(query_id: QueryId, op: Writing, queries: Queries) -> Response:

    await queries.cancel(op.tx, query_id)
    return await op.respond(await queries.read(op.tx, query_id))


@router.post(
    "/queries/{query_id}/resume",
    summary="Raise the limits of a query that stopped at one",
    response_model=views.QueryView,
)
async def resume_query(query_id: QueryId, body: Resume, op: Writing, queries: Queries) -> Response:

    await queries.resume(op.tx, query_id, body.limits.wire())
    return await op.respond(await queries.read(op.tx, query_id))


@router.post(
    "/threads",
    status_code=201,
    summary="Get the thread of a key, made on first use",
    response_model=views.ThreadView,
    responses={200: {"model": views.ThreadView, "description": "The key has this thread already."}},
)
async def create_thread(body: MakeThread, op: Writing) -> Response:
    thread, new = await threads.create_thread(op.tx, body.thread_key)
    return await op.respond(thread, 201 if new else 200, f"/threads/{thread['id']}", thread["id"])


@router.post(
    "/threads/{thread_id}/fork",
    status_code=201,
    summary="A new thread whose state and files begin as those of this one are, or were",
    description="It takes the state, the files and the version of the runtime, but no conversation: its agents begin anew.",
    response_model=views.ThreadView,
)
async def fork_thread(
    request: Request,
    thread_id: ThreadId,
    body: ForkThread,
    caller: Annotated[Caller, require_scope("queries:write")],
    documents: Documents,
    workspaces: Annotated[Workspaces, service("workspaces")],
) -> Response:
    await raise_if_repeated(request, caller)
    state = await documents.read_for_request(
        api_context(request).db, caller.tenant, DocumentId.state(thread_id), body.at
    )
    glimpse = await documents.glimpse(state)
    async with begin(request, caller) as op:
        thread = await threads.fork_thread(op.tx, documents, workspaces, thread_id, state, glimpse, body.at)
        return await op.respond(thread, 201, f"/threads/{thread['id']}", thread["id"])


@router.get("/threads", summary="List threads, newest first", response_model=views.ThreadPage)
async def list_threads(
    op: ReadOperation,
    page: Paging,
) -> Response:
    rows = await threads.thread_page(op.tx, page.last("threads"), page.rows)
    return await op.respond(page.body(rows, "id"))


@router.get(
    "/threads/{thread_id}", summary="A thread and its active queries", response_model=views.ThreadView
)
async def read_thread(thread_id: ThreadId, op: ReadOperation) -> Response:
    return await op.respond(await threads.read_thread(op.tx, thread_id))


@router.delete(
    "/threads/{thread_id}",
    summary="Delete a thread with all that is in it, for good",
    description="A 409 while one of its queries is not over. Nobody finds the thread from then on, nor its queries, events, "
    "plans, state, files and artifacts. What stays: what was used and what that cost (`GET /usage`), who decided on "
    "approvals, grants, and references, which belong to no thread.",
    response_model=views.ThreadDeleted,
)
async def delete_thread(
    thread_id: ThreadId,
    caller: Annotated[Caller, require_scope("queries:write")],
    deletions: Annotated[Deletions, service("deletions")],
) -> Response:
    await deletions.delete(caller.tenant, thread_id)
    return json_response({"id": thread_id, "deleted": True})


@router.get(
    "/queries/{query_id}/work",
    summary="The work records of a query, oldest first",
    response_model=WorkList,
)
async def list_query_work(
    request: Request, query_id: QueryId, caller: Annotated[Caller, require_scope("read")], queries: Queries
) -> Response:
    async with begin(request, caller) as op:
        await queries.require(op.tx, query_id)
    return json_response(await work_of_query(api_context(request).db, caller.tenant, query_id))
