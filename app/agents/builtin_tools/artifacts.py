"""The built-in toolkit `artifacts`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from app.agents.builtin_tools.client_workspace import ClientWorkspace
from app.agents.builtin_tools.workspace import as_builtin_tool
from app.artifacts.decisions import ArtifactDecisions
from app.artifacts.models import Artifact, ArtifactFilter, ArtifactTarget, Producer, Publication
from app.artifacts.publishing import publish
from app.artifacts.service import ArtifactNotFound, ArtifactService, TargetMoved
from app.base.blobs.store import StoreUnavailable
from app.base.json import strict_json
from app.base.postgres.database import Tx
from app.calls.toolkit import BuiltinTool, ToolCall
from app.engine.query_run import retry_while_unavailable
from app.tools.results import Answer, ToolError, ToolResult

LISTED: Final = 20
TRIES: Final = 5


class ArtifactTools:
    """The tools that publish, read and list artifacts, withdraw them, and choose among competing revisions."""

    def __init__(
        self, artifacts: ArtifactService, decisions: ArtifactDecisions, client_files: ClientWorkspace
    ) -> None:
        self._client_files = client_files
        self._artifacts = artifacts
        self._decisions = decisions

    def verbs(self) -> dict[str, BuiltinTool]:
        tools: dict[str, BuiltinTool] = {
            "artifact_publish": self._publish,
            "artifact_get": self._get,
            "artifact_list": self._list,
            "artifact_withdraw": self._withdraw,
            "artifact_choose": self._choose,
        }
        return {name: as_builtin_tool(verb) for name, verb in tools.items()}

    async def _publish(self, call: ToolCall) -> ToolResult:
        done = await call.run.read(lambda tx: self._artifacts.of_call(tx, call.scope.work_id))
        if done is not None:  # before a crash
            return Answer(done.wire())
        args = call.args
        publication = Publication(
            args["channel"],
            args["path"],
            args.get("kind"),
            args.get("title"),
            args.get("summary"),
            args.get("mediaType"),
            args.get("replaces"),
            tuple(args.get("parentArtifactIds", ())),
            tuple(args.get("tags", ())),
            args.get("metadata"),
        )
        if call.run.runtime.spec.workspace is not None:
            # What cannot be published leaves no copy.
            await call.run.read(lambda tx: self._artifacts.check(tx, publication))
            failed = await self._client_files.copy(call, publication.path)
            if failed is not None:
                return failed
        for _ in range(TRIES):
            target = await self._prepare(call, publication.path)
            try:
                added = await call.run.in_fenced_transaction(
                    lambda tx, t=target: self._add(tx, call, publication, t)  # type: ignore[misc]
                )
                return Answer(added)
            except TargetMoved:
                continue
        return ToolError(
            f"{publication.path} keeps changing because other agents write to it, so it was not published.",
            TargetMoved.kind,
        )

    async def _prepare(self, call: ToolCall, path: str) -> ArtifactTarget:
        run = call.run

        async def once() -> ArtifactTarget | StoreUnavailable:
            try:
                return await self._artifacts.prepare(run.lease.tenant, run.query.thread_id, path)
            except StoreUnavailable as error:
                return error

        target = await retry_while_unavailable(once)
        if isinstance(target, StoreUnavailable):
            raise target
        return target

    async def _add(self, tx: Tx, call: ToolCall, publication: Publication, target: ArtifactTarget) -> object:
        work_id = call.scope.work_id
        producer = await self._artifacts.producer(tx, call.scope.parent_work_id or work_id, work_id)
        epoch = call.run.lease.epoch
        artifact = await publish(
            tx, self._artifacts, publication, target, producer, call.scope, epoch, once=True
        )
        return artifact.wire()

    async def _get(self, call: ToolCall) -> ToolResult:
        try:
            artifact = await call.run.read(lambda tx: self._artifacts.read(tx, call.args["id"]))
        except ArtifactNotFound:
            return Answer(None)
        return Answer((await self._list_records(call, [artifact]))[0])

    async def _list(self, call: ToolCall) -> ToolResult:
        args = call.args
        limit = args.get("limit", LISTED)
        filters = ArtifactFilter(
            channel=args.get("channel"),
            work_id=args.get("workId"),
            agent=args.get("agent"),
            thread_id=call.run.query.thread_id,
            status=args.get("status", "active"),
        )
        artifacts: list[Artifact] = []
        while True:
            left = limit - len(artifacts)
            more, after = await call.run.read(
                lambda tx, page=filters, n=left: self._artifacts.page(tx, page, n)  # type: ignore[misc]
            )
            artifacts += more
            if after is None or len(artifacts) >= limit:
                return Answer(await self._list_records(call, artifacts))
            filters = replace(filters, before=after)

    async def _withdraw(self, call: ToolCall) -> ToolResult:
        id, reason = call.args["id"], call.args["reason"]

        async def withdraw(tx: Tx, producer: Producer) -> Artifact:
            return await self._decisions.withdraw(tx, id, reason, producer, None, call.scope)

        return await self._decide(call, [id], withdraw)

    async def _choose(self, call: ToolCall) -> ToolResult:
        id, over, reason = (call.args[name] for name in ("id", "over", "reason"))

        async def choose(tx: Tx, producer: Producer) -> Artifact:
            return await self._decisions.choose(tx, id, over, reason, producer, None, call.scope)

        return await self._decide(call, [id, *over], choose)

    async def _decide(
        self, call: ToolCall, ids: list[str], decide: Callable[[Tx, Producer], Awaitable[Artifact]]
    ) -> ToolResult:
        """Decide about artifacts of the agent's own thread, once, and return the record of the first."""
        work_id, thread_id = call.scope.work_id, call.run.query.thread_id

        async def once(tx: Tx) -> Artifact:
            done = await self._decisions.of_call(tx, work_id)
            if done is not None:  # before a crash
                return done
            await self._decisions.require_thread(tx, ids, thread_id)
            producer = await self._artifacts.producer(tx, call.scope.parent_work_id or work_id, work_id)
            return await decide(tx, producer)

        return Answer((await call.run.in_fenced_transaction(once)).wire())

    async def _list_records(self, call: ToolCall, artifacts: list[Artifact]) -> list[dict[str, Any]]:
        """Return the records, and record that the call read them instead of the files."""
        records = [a.wire() for a in artifacts]
        sizes = [0 if call.to_path else len(strict_json.dumps(record)) for record in records]
        sizes_by_artifact = list(zip(artifacts, sizes, strict=True))
        await call.run.in_fenced_transaction(
            lambda tx: self._artifacts.note(tx, call.scope.work_id, sizes_by_artifact)
        )
        return records
