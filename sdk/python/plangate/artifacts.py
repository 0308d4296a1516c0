"""Artifacts from Python: publishing what matters to others, finding it, and reading it as it was published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from plangate.api.calls import Api
from plangate.api.models import ArtifactInfo, LineageView
from plangate.api.record import Record
from plangate.api.requests import read_items
from plangate.authoring.arguments import describe_type
from plangate.context import Bridge
from plangate.thread_ids import resolve_thread_id

Records = list[Record]
ArtifactRecords = list[ArtifactInfo]


class Artifacts:
    """`runtime.artifacts`: what was published in the threads of a tenant, and publishing as a host.

    A record has `id`, `channel`, `kind`, `path`, `title`, `summary`, `sizeBytes`, `digest`, `producer`, `status`,
    `replaces`, `parentArtifactIds`, `tags`, `metadata` and more; never the content. It never changes.

    Example:
        >>> async def newest_design(runtime, thread_id):
        ...     for record in await runtime.artifacts.list(thread_id=thread_id, channel="design", limit=1):
        ...         return record["summary"], await runtime.artifacts.read(record["id"])
    """

    def __init__(self, api: Api, work_id: str | None = None) -> None:
        """Set `work_id` to the call that publishes; without it, a host publishes."""
        self._api = api
        self._work_id = work_id

    async def publish(
        self,
        thread_id: str,
        channel: str,
        path: str,
        *,
        kind: str | None = None,
        title: str | None = None,
        summary: str | None = None,
        media_type: str | None = None,
        replaces: str | None = None,
        parent_artifact_ids: Iterable[str] = (),
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        action_index: int | None = None,
    ) -> ArtifactInfo:
        """Publish a file or a directory of a thread's workspace as it is now, and return the record.

        Args:
            thread_id: As for `Runtime.query`. A string of yours that no query had yet makes its thread.
            channel: What it is for: lower-case words joined by dashes, such as `design`.
            path: In the workspace.
            kind: `file`, `report`, `patch` or another; by default what the target is.
            title: At most 200 characters.
            summary: What others must know of it without reading it, at most 2,000 characters.
            media_type: By default that of the file.
            replaces: The id of an earlier artifact of this channel.
            parent_artifact_ids: What it was made from.
            tags: Words to find it by.
            metadata: More about it, at most 8 KiB of JSON.
            action_index: In a dispatcher that carries out several plan actions at once: the action that it belongs to.

        Raises:
            ValueError: at once, for a thread_id that cannot be one.
            InvalidRequest: if something is out of bounds; nothing was published.
            NotFound: if nothing is at the path, or there is no such thread.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def hand_over(runtime):
            ...     record = await runtime.artifacts.publish(
            ...         "customer-17", "handoff", "notes", summary="What we know of the customer."
            ...     )
            ...     return record["id"]
        """
        return await self._api.publish_artifact(
            channel=channel,
            path=path,
            thread_id=await resolve_thread_id(self._api, thread_id),
            kind=kind,
            title=title,
            summary=summary,
            media_type=media_type,
            replaces=replaces,
            parent_artifact_ids=list(parent_artifact_ids) or None,
            tags=list(tags) or None,
            metadata=None if metadata is None else dict(metadata),
            work_id=self._work_id,
            action_index=action_index,
        )

    async def upload(
        self,
        thread_id: str,
        channel: str,
        name: str,
        body: bytes | str,
        *,
        kind: str | None = None,
        title: str | None = None,
        summary: str | None = None,
        media_type: str | None = None,
        replaces: str | None = None,
        parent_artifact_ids: Iterable[str] = (),
        tags: Iterable[str] = (),
        action_index: int | None = None,
    ) -> ArtifactInfo:
        """Write a body to `artifacts/<channel>/<name>` of a thread's workspace and publish it, in one step.

        The same body again, with the same arguments, is no new artifact.

        Args:
            name: Of the file.
            body: Text is sent as UTF-8.
            media_type: By default what the name says.
            thread_id, channel, kind, title, summary, replaces, parent_artifact_ids, tags, action_index: As for
                `publish`.

        Raises:
            ValueError, InvalidRequest, NotFound, ServiceUnavailable: as `publish`.
            TypeError: at once, for a body that is neither bytes nor text.
            TooLarge: if a file may not have so many bytes.

        Example:
            >>> async def attach(runtime, report):
            ...     return await runtime.artifacts.upload("customer-17", "analysis", "report.md", report)
        """
        data = to_bytes(body, "the body of an artifact")
        return await self._api.upload_artifact(
            channel,
            name,
            data,
            media_type=media_type,
            thread_id=await resolve_thread_id(self._api, thread_id),
            kind=kind,
            title=title,
            summary=summary,
            replaces=replaces,
            parent=list(parent_artifact_ids) or None,
            tag=list(tags) or None,
            work_id=self._work_id,
            action_index=action_index,
        )

    async def get(self, id: str) -> ArtifactInfo:
        """Return the record of an artifact.

        Args:
            id: From an event `artifact-published`, or from `list`.

        Raises:
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def is_newest(runtime, id):
            ...     return (await runtime.artifacts.get(id))["status"] == "active"
        """
        return await self._api.read_artifact(id)

    async def list(
        self,
        *,
        thread_id: str | None = None,
        channel: str | None = None,
        agent: str | None = None,
        query_id: str | None = None,
        work_id: str | None = None,
        call_id: str | None = None,
        plan_id: str | None = None,
        action_index: int | None = None,
        tag: str | None = None,
        status: Literal["active", "superseded", "withdrawn"] | None = None,
        since: datetime | None = None,
        include_superseded: bool = False,
        limit: int = 50,
    ) -> ArtifactRecords:
        """List the records that match all filters, newest first.

        Args:
            thread_id: As for `Runtime.query`.
            channel, agent, query_id, work_id, tag: Those of this channel, agent, query, unit of work, tag.
            call_id: What this tool call or dispatch published.
            plan_id: What the actions of this plan (`pln_...`) published.
            action_index: With `plan_id`: what this action published.
            status: `active`, `superseded` or `withdrawn`.
            since: Published at this moment or later; with its zone.
            include_superseded: Without it, and without a status, superseded and withdrawn ones are left out.
            limit: How many at most.

        Raises:
            InvalidRequest: for a filter that cannot be one.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def patches(runtime, query_id):
            ...     return await runtime.artifacts.list(query_id=query_id, channel="patch")
        """
        return await read_items(
            self._api.list_artifacts,
            thread_id=None if thread_id is None else await resolve_thread_id(self._api, thread_id),
            channel=channel,
            agent=agent,
            query_id=query_id,
            work_id=work_id,
            call_id=call_id,
            plan_id=plan_id,
            action_index=action_index,
            tag=tag,
            status=status,
            since=None if since is None else since.isoformat(),
            include_superseded=include_superseded or None,
            limit=limit,
        )

    async def read(self, id: str, within: str | None = None) -> bytes:
        """Return the bytes as they were published, even if the file has changed since; all are held in memory.

        Args:
            id: The artifact's. Of a directory its list is given, in the form of `sha256sum`.
            within: The path of a file inside of a directory that was published.

        Raises:
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def text_of(runtime, id):
            ...     return (await runtime.artifacts.read(id)).decode()
        """
        return await self._api.read_artifact_content(id, path=within)

    async def lineage(self, id: str) -> LineageView:
        """Return the sources and the results of an artifact: `{"artifact", "ancestors", "descendants"}`.

        Each step is `{"depth", "edges", "artifact"}`, the nearest first. An edge says how the step was reached:
        `kind` is `parent` or `replaces`, and `via` the id of the artifact one step nearer.

        Args:
            id: The artifact's.

        Raises:
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def made_from(runtime, id):
            ...     steps = (await runtime.artifacts.lineage(id))["ancestors"]
            ...     return [step["artifact"]["path"] for step in steps if step["depth"] == 1]
        """
        return await self._api.read_artifact_lineage(id)

    async def withdraw(self, id: str, reason: str) -> ArtifactInfo:
        """Withdraw an artifact, and return its record, whose `status` is now `withdrawn`.

        Its record and its content stay readable; lists leave it out. It cannot be undone.

        Args:
            id: The artifact's.
            reason: Why, up to 2,000 characters; it stays in the `decisions` of the record.

        Raises:
            NotFound: if there is none.
            Conflict: if it is already withdrawn.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def recall(runtime, id):
            ...     await runtime.artifacts.withdraw(id, "The measurements were of another part.")
        """
        return await self._api.withdraw_artifact(id, reason=reason, work_id=self._work_id)

    async def choose(self, id: str, over: Iterable[str], reason: str) -> ArtifactInfo:
        """Choose an artifact over revisions that compete with it, which become `superseded`, and return its record.

        It cannot be undone.

        Args:
            id: The artifact's.
            over: The ids of competing revisions, which `competesWith` of the record lists.
            reason: Why, up to 2,000 characters; it stays in the `decisions` of all of these records.

        Raises:
            NotFound: if there is none.
            InvalidRequest: if one of `over` does not compete with it.
            Conflict: if it is withdrawn, or another revision was chosen over it.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def settle(runtime, record):
            ...     await runtime.artifacts.choose(record["id"], record["competesWith"], "It passes the tests.")
        """
        if isinstance(over, str):
            raise TypeError("over must be a list of ids, not a string")
        return await self._api.choose_artifact(id, over=list(over), reason=reason, work_id=self._work_id)


class CallArtifacts:
    """`ctx.artifacts`: `runtime.artifacts` in the thread of a call. What is published belongs to the agent's run that made
    the call. In an async handler each call is awaited; in a sync one it returns its result."""

    def __init__(self, artifacts: Artifacts, thread_id: str, bridge: Bridge) -> None:
        self._artifacts = artifacts
        self._thread_id = thread_id
        self._bridge = bridge

    def publish(self, channel: str, path: str, **parts: Any) -> Any:
        """Publish as `Artifacts.publish` does. A call that is repeated after a crash gets the same record."""
        return self._bridge.run(self._artifacts.publish(self._thread_id, channel, path, **parts))

    def upload(self, channel: str, name: str, body: bytes | str, **parts: Any) -> Any:
        """Upload as `Artifacts.upload` does. A call that is repeated after a crash gets the same record."""
        return self._bridge.run(self._artifacts.upload(self._thread_id, channel, name, body, **parts))

    def get(self, id: str) -> Any:
        """Return a record, as `Artifacts.get` does."""
        return self._bridge.run(self._artifacts.get(id))

    def list(self, **filters: Any) -> Any:
        """List as `Artifacts.list` does, within the thread unless `thread_id` is given (None: all threads)."""
        return self._bridge.run(self._artifacts.list(**{"thread_id": self._thread_id, **filters}))

    def read(self, id: str, within: str | None = None) -> Any:
        """Return the bytes, as `Artifacts.read` does."""
        return self._bridge.run(self._artifacts.read(id, within))

    def lineage(self, id: str) -> Any:
        """Return the lineage, as `Artifacts.lineage` does."""
        return self._bridge.run(self._artifacts.lineage(id))

    def withdraw(self, id: str, reason: str) -> Any:
        """Withdraw an artifact of the thread, as `Artifacts.withdraw` does."""
        return self._bridge.run(self._artifacts.withdraw(id, reason))

    def choose(self, id: str, over: Iterable[str], reason: str) -> Any:
        """Choose an artifact of the thread, as `Artifacts.choose` does."""
        return self._bridge.run(self._artifacts.choose(id, over, reason))


def to_bytes(body: Any, name: str) -> bytes:
    """Return bytes, or text as UTF-8. Raise TypeError; `name` is what the message calls the body."""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise TypeError(f"{name} is bytes or text, not {describe_type(body)}")
