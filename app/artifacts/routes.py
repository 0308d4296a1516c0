"""Artifacts over HTTP."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from plangate.spec.base import at_most
from pydantic import Field

from app.artifacts import views
from app.artifacts.decisions import MAX_OVER, MAX_REASON_CHARS, ArtifactDecisions
from app.artifacts.models import (
    MAX_CHANNEL_CHARS,
    MAX_KIND_CHARS,
    MAX_PARENTS,
    MAX_SUMMARY_CHARS,
    MAX_TAG_CHARS,
    MAX_TAGS,
    MAX_TITLE_CHARS,
    MAX_TYPE_CHARS,
    Artifact,
    ArtifactFilter,
    ArtifactStatus,
    ArtifactTarget,
    Producer,
    Publication,
)
from app.artifacts.publishing import lock_for_publishing, publish
from app.artifacts.service import ArtifactService
from app.base.errors import FieldError, Invalid
from app.base.postgres.database import Tx
from app.events.carried import ArtifactInfo
from app.journal.models import Scope
from app.journal.service import load_scope
from app.tenancy.http import (
    GatedRoute,
    Operation,
    Paging,
    ReadOperation,
    api_context,
    begin,
    operation,
    raise_if_repeated,
    require_scope,
    service,
)
from app.tenancy.models import Caller
from app.tenancy.request_body import Body
from app.tools.claim_check import require_claim
from app.workspace import paths
from app.workspace.http import (
    BINARY_CONTENT,
    RANGE_DESCRIPTION,
    RANGE_RESPONSES,
    StreamingRoute,
    get_workspaces,
    parse_condition,
    parse_media_type,
    receive_body,
    send_body,
)
from app.workspace.models import DEFAULT_TYPE, FileAuthor
from app.workspace.service import require_thread

router = APIRouter(route_class=GatedRoute, tags=["artifacts"])
streamed = APIRouter(route_class=StreamingRoute, tags=["artifacts"])

ArtifactId = Annotated[str, Path(max_length=100)]
Artifacts = Annotated[ArtifactService, service("artifacts")]
Decisions = Annotated[ArtifactDecisions, service("artifact_decisions")]
Deciding = Annotated[Operation, operation("data:write")]
Id = Annotated[str, Field(max_length=100)]
Tag = Annotated[str, Field(max_length=MAX_TAG_CHARS)]
Named = Annotated[str | None, Query(max_length=100)]

MAX_PATH_CHARS: Final = 2000
"""Of a path as it is written; paths.py says what the path itself may have."""

MAX_ACTION_INDEX: Final = 100_000


class PublishArtifact(Body):
    """A file or directory of a thread's workspace. With `workId`, a call that the caller is answering, the artifact
    belongs to the agent's run that made the call, and its query gets the event; otherwise it belongs to the caller,
    as a host. If the call carries out several actions of a plan, `actionIndex` names the action of the artifact."""

    thread_id: Id
    channel: Annotated[str, Field(max_length=MAX_CHANNEL_CHARS)]
    path: Annotated[str, Field(max_length=MAX_PATH_CHARS)]
    """The file or directory of the thread's workspace."""
    kind: Annotated[str, Field(max_length=MAX_KIND_CHARS)] | None = None
    """What it is, such as `report`."""
    title: Annotated[str, Field(max_length=MAX_TITLE_CHARS)] | None = None
    summary: Annotated[str, Field(max_length=MAX_SUMMARY_CHARS)] | None = None
    media_type: Annotated[str, Field(max_length=MAX_TYPE_CHARS)] | None = None
    replaces: Id | None = None
    parent_artifact_ids: Annotated[list[Id], at_most(MAX_PARENTS)] | None = None
    tags: Annotated[list[Tag], at_most(MAX_TAGS)] | None = None
    metadata: dict[str, Any] | None = None
    work_id: Id | None = None
    action_index: Annotated[int, Field(ge=0, le=MAX_ACTION_INDEX)] | None = None

    def publication(self) -> Publication:
        return Publication(
            self.channel,
            self.path,
            self.kind,
            self.title,
            self.summary,
            self.media_type,
            self.replaces,
            tuple(self.parent_artifact_ids or ()),
            tuple(self.tags or ()),
            self.metadata,
        )


async def _published(
    op: Operation,
    artifacts: ArtifactService,
    publication: Publication,
    target: ArtifactTarget,
    thread_id: str,
    work_id: str | None,
    action_index: int | None,
) -> Artifact:
    """Publish for a host, or for the unit of work of a call that the caller holds."""
    tx = op.tx
    producer = await _unit(tx, artifacts, thread_id, work_id, action_index)
    if work_id is None or producer is None:
        return await publish(tx, artifacts, publication, target, await artifacts.host(tx, thread_id), None)
    scope = await load_scope(tx, work_id=work_id)
    artifact = await publish(tx, artifacts, publication, target, producer, scope)
    # The query is locked now: who has the call has it until the end.
    await require_claim(tx, work_id, op.caller.principal, rejection="The artifact was not published")
    return artifact


async def _unit(
    tx: Tx, artifacts: ArtifactService, thread_id: str, work_id: str | None, action_index: int | None
) -> Producer | None:
    """Return the unit of work that publishes, or None for a host. Raise NotFound or Invalid."""
    if work_id is None:
        if action_index is None:
            return None
        raise Invalid(
            "The artifact was not published: actionIndex needs workId, the call that carries out the action.",
            [FieldError("/actionIndex", "must not be given without workId")],
        )
    producer = await artifacts.producer(tx, work_id, work_id, action_index)
    if producer.thread_id != thread_id:
        raise Invalid(
            "Nothing was changed: workId is work of another thread.",
            [FieldError("/workId", "must be a work record of the thread")],
        )
    return producer


@router.post(
    "/artifacts",
    status_code=201,
    summary="Publish a file or a directory of a thread",
    response_model=ArtifactInfo,
)
async def publish_artifact(
    request: Request,
    body: PublishArtifact,
    caller: Annotated[Caller, require_scope("data:write")],
    artifacts: Artifacts,
) -> Response:
    await raise_if_repeated(request, caller)
    async with api_context(request).db.transaction(caller.tenant) as tx:
        await get_workspaces(request).require_own(tx, body.thread_id)
    target = await artifacts.prepare(caller.tenant, body.thread_id, body.path)
    async with begin(request, caller) as op:
        artifact = await _published(
            op, artifacts, body.publication(), target, body.thread_id, body.work_id, body.action_index
        )
        return await op.respond(artifact.wire(), 201, f"/artifacts/{artifact.id}", artifact.id)


@streamed.put(
    "/artifacts/{channel}/{name}",
    status_code=201,
    summary="Upload a body and publish it in one step",
    description="It becomes the file `artifacts/{channel}/{name}` of the thread's workspace. The same body again, with the "
    "same parameters, is no new artifact. With `If-Match` or `If-None-Match: *` only over the file that you know, or over "
    "none.",
    response_model=ArtifactInfo,
    responses={200: {"model": ArtifactInfo, "description": "This was published already."}},
    openapi_extra={"requestBody": {"required": True, "content": {DEFAULT_TYPE: BINARY_CONTENT}}},
)
async def upload_artifact(
    request: Request,
    channel: Annotated[str, Path(max_length=100)],
    name: Annotated[str, Path(max_length=300)],
    caller: Annotated[Caller, require_scope("data:write")],
    artifacts: Artifacts,
    thread_id: Annotated[str, Query(alias="threadId", max_length=100)],
    kind: Annotated[str | None, Query(max_length=100)] = None,
    title: Annotated[str | None, Query(max_length=1000)] = None,
    summary: Annotated[str | None, Query(max_length=8000)] = None,
    replaces: Named = None,
    parent: Annotated[
        Annotated[list[Id], at_most(MAX_PARENTS)] | None,
        Query(description="Ids of parents; may be given several times."),
    ] = None,
    tag: Annotated[
        Annotated[list[Tag], at_most(MAX_TAGS)] | None, Query(description="May be given several times.")
    ] = None,
    work_id: Annotated[str | None, Query(alias="workId", max_length=100)] = None,
    action_index: Annotated[int | None, Query(alias="actionIndex", ge=0, le=MAX_ACTION_INDEX)] = None,
) -> Response:
    path, media_type = paths.normalize(f"artifacts/{channel}/{name}"), parse_media_type(request)
    when = parse_condition(request)
    publication = Publication(
        channel, path, kind, title, summary, media_type, replaces, tuple(parent or ()), tuple(tag or ())
    )
    async with begin(request, caller) as op:
        await require_thread(op.tx, thread_id)
        by = await _unit(op.tx, artifacts, thread_id, work_id, action_index)
        await artifacts.check(op.tx, publication)
    body = await receive_body(request, caller.tenant)
    params = sorted(request.query_params.multi_items())
    identity = orjson.dumps([body.digest.hex(), media_type, params])
    async with begin(request, caller, identity) as op:
        await lock_for_publishing(op.tx, thread_id, by.query_id if by is not None else None)
        await artifacts.lock(op.tx, thread_id)
        row, _ = await get_workspaces(request).write(
            op.tx, thread_id, path, body, FileAuthor(caller.principal), media_type=media_type, condition=when
        )
        artifact = await artifacts.same(op.tx, thread_id, publication, row, by)
        status = 200
        if artifact is None:
            target = artifacts.target(row)
            artifact = await _published(op, artifacts, publication, target, thread_id, work_id, action_index)
            status = 201
        return await op.respond(artifact.wire(), status, f"/artifacts/{artifact.id}", artifact.id)


@router.get(
    "/artifacts",
    summary="List artifacts, newest first",
    description="Superseded and withdrawn ones are left out unless they are asked for.",
    response_model=views.ArtifactPage,
)
async def list_artifacts(
    op: ReadOperation,
    page: Paging,
    artifacts: Artifacts,
    channel: Named = None,
    work_id: Annotated[str | None, Query(alias="workId", max_length=100)] = None,
    parent_work_id: Annotated[str | None, Query(alias="parentWorkId", max_length=100)] = None,
    query_id: Annotated[str | None, Query(alias="queryId", max_length=100)] = None,
    thread_id: Annotated[str | None, Query(alias="threadId", max_length=100)] = None,
    agent: Named = None,
    call_id: Annotated[str | None, Query(alias="callId", max_length=100)] = None,
    plan_id: Annotated[str | None, Query(alias="planId", max_length=100)] = None,
    action_index: Annotated[
        int | None,
        Query(alias="actionIndex", ge=0, le=MAX_ACTION_INDEX, description="Of the plan that `planId` names."),
    ] = None,
    status: ArtifactStatus | None = None,
    tag: Named = None,
    since: Annotated[datetime | None, Query(description="Published at this moment or later.")] = None,
    include_superseded: Annotated[
        bool, Query(alias="includeSuperseded", description="Also superseded and withdrawn ones.")
    ] = False,
) -> Response:
    if action_index is not None and plan_id is None:
        raise Invalid(
            "`actionIndex` needs `planId`: an index alone names no action.",
            [FieldError("query:planId", "must be given with actionIndex")],
        )
    filters = ArtifactFilter(
        call_id=call_id,
        plan_id=plan_id,
        work_id=work_id,
        query_id=query_id,
        parent_work_id=parent_work_id,
        thread_id=thread_id,
        tag=tag,
        agent=agent,
        channel=channel,
        action_index=action_index,
        status=status or (None if include_superseded else "active"),
        since=None if since is None else _aware(since),
    )
    last = page.last("artifacts:" + orjson.dumps(filters).decode())
    listed, after = await artifacts.page(op.tx, replace(filters, before=last), page.limit)
    position = None if after is None else [after]
    return await op.respond(page.body_until([artifact.wire() for artifact in listed], position))


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None or not 1970 < moment.year < 9999:
        raise Invalid(
            "`since` must be an RFC 3339 timestamp.",
            [FieldError("query:since", "must be a time with its zone, such as 2026-01-02T03:04:05Z")],
        )
    return moment


@router.get("/artifacts/{artifact_id}", summary="Read a record", response_model=ArtifactInfo)
async def read_artifact(artifact_id: ArtifactId, op: ReadOperation, artifacts: Artifacts) -> Response:
    return await op.respond((await artifacts.read(op.tx, artifact_id)).wire())


class WithdrawArtifact(Body):
    """Why the artifact is withdrawn. `workId` is as for publishing."""

    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON_CHARS)]
    """Why it is withdrawn."""
    work_id: Id | None = None


class ChooseArtifact(Body):
    """The competing revisions that the artifact is chosen over, and why. `workId` is as for publishing."""

    over: Annotated[list[Id], Field(min_length=1), at_most(MAX_OVER)]
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON_CHARS)]
    """Why it was chosen."""
    work_id: Id | None = None


async def _decider(
    op: Operation, artifacts: ArtifactService, id: str, name: str, work_id: str | None
) -> tuple[Producer, str | None, Scope | None]:
    """Return the unit of work that decides about an artifact, the principal if that is a host, and the work whose query
    gets the event: of a host, that which published the artifact. Raise NotFound, Invalid, Forbidden or Conflict."""
    tx, publisher = op.tx, (await artifacts.read(op.tx, id)).record["producer"]
    thread_id = publisher["threadId"]
    unit = await _unit(tx, artifacts, thread_id, work_id, None)
    if work_id is None or unit is None:
        await lock_for_publishing(tx, thread_id, publisher.get("queryId"))
        host = await artifacts.host(tx, thread_id, name, op.caller.principal)
        return host, op.caller.principal, await load_scope(tx, work_id=publisher["workId"])
    await lock_for_publishing(tx, thread_id, unit.query_id)
    await require_claim(tx, work_id, op.caller.principal, rejection="Nothing was decided")
    return unit, None, await load_scope(tx, work_id=work_id)


@router.post(
    "/artifacts/{artifact_id}/withdraw",
    status_code=201,
    summary="Withdraw an artifact",
    description="Its record stays, with `status` `withdrawn`, and so does its content; lists leave it out. This is a new "
    "record in the chain of its thread.",
    response_model=ArtifactInfo,
)
async def withdraw_artifact(
    artifact_id: ArtifactId, body: WithdrawArtifact, op: Deciding, artifacts: Artifacts, decisions: Decisions
) -> Response:
    unit, principal, scope = await _decider(op, artifacts, artifact_id, "withdraw", body.work_id)
    artifact = await decisions.withdraw(op.tx, artifact_id, body.reason, unit, principal, scope)
    return await op.respond(artifact.wire(), 201, f"/artifacts/{artifact.id}", artifact.id)


@router.post(
    "/artifacts/{artifact_id}/choose",
    status_code=201,
    summary="Choose an artifact over revisions that compete with it",
    description="The revisions in `over`, which `competesWith` lists, become `superseded`. This is a new record in the "
    "chain of its thread.",
    response_model=ArtifactInfo,
)
async def choose_artifact(
    artifact_id: ArtifactId, body: ChooseArtifact, op: Deciding, artifacts: Artifacts, decisions: Decisions
) -> Response:
    unit, principal, scope = await _decider(op, artifacts, artifact_id, "choose", body.work_id)
    artifact = await decisions.choose(op.tx, artifact_id, body.over, body.reason, unit, principal, scope)
    return await op.respond(artifact.wire(), 201, f"/artifacts/{artifact.id}", artifact.id)


@router.head("/artifacts/{artifact_id}/content", include_in_schema=False)
@router.get(
    "/artifacts/{artifact_id}/content",
    summary="The bytes as they were published",
    description="Of a directory: the list of its files with their SHA-256, as `sha256sum` writes it; with `path`, one of "
    f"them.\n\n{RANGE_DESCRIPTION}",
    response_class=Response,
    responses={
        200: {
            "description": "The bytes; `ETag` is their SHA-256.",
            "content": {DEFAULT_TYPE: BINARY_CONTENT},
        },
        **RANGE_RESPONSES,
    },
)
async def read_artifact_content(
    request: Request,
    artifact_id: ArtifactId,
    caller: Annotated[Caller, require_scope("read")],
    artifacts: Artifacts,
    path: Annotated[
        str | None, Query(max_length=2000, description="A file of a directory that was published.")
    ] = None,
) -> Response:
    body = await artifacts.body(caller.tenant, artifact_id, path)
    return await send_body(request, caller.tenant, body, {})


@router.get(
    "/artifacts/{artifact_id}/lineage",
    summary="What it came from, and what came from it",
    response_model=views.LineageView,
)
async def read_artifact_lineage(artifact_id: ArtifactId, op: ReadOperation, artifacts: Artifacts) -> Response:
    return await op.respond(await artifacts.lineage(op.tx, artifact_id))
