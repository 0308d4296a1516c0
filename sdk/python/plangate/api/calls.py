"""The calls of the API. Generated from openapi/openapi.json by `make openapi`. Do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Unpack

from plangate.api import models
from plangate.api.requests import UNSET, Content, RequestOptions, Requests, present, present_json
from plangate.client import file_segments, segment


class Api(Requests):
    """Every operation of the HTTP API, but for streams, as a method: `runtime.api`.

    The fields of a body are arguments; those that are None are left out. Responses are records of
    `plangate.api.models`.

    Example:
        >>> async def spent(runtime):
        ...     report = await runtime.api.read_usage(group_by="agent")
        ...     return [(group.key, group.cost_usd) for group in report.items_]
    """

    async def list_approvals(
        self,
        *,
        status: Literal["pending", "approved", "rejected", "revised", "expired", "cancelled"] | None = None,
        query_id: str | None = None,
        thread_id: str | None = None,
        kind: Literal["plan", "tool"] | None = None,
        agent: str | None = None,
        tool: str | None = None,
        runtime: str | None = None,
        requester: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        can_decide: bool | None = None,
        text: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ApprovalPage:
        """The inbox: approvals, newest first.

        Needs a key with the scope `read`.

        A page examines the newest 2,000 approvals at most, 500 with `text`, and those of one
        query if `queryId` is given. It may be short or empty although there are more: follow
        `nextCursor` until it is null.
        """
        response: models.ApprovalPage = await self._call(
            models.ApprovalPage,
            "GET",
            "/approvals",
            params={
                "status": status,
                "queryId": query_id,
                "threadId": thread_id,
                "kind": kind,
                "agent": agent,
                "tool": tool,
                "runtime": runtime,
                "requester": requester,
                "from": from_,
                "to": to,
                "canDecide": can_decide,
                "text": text,
                "limit": limit,
                "cursor": cursor,
            },
            **request_options,
        )
        return response

    async def decide_approvals(
        self, *, decisions: list[models.DecideOne], **request_options: Unpack[RequestOptions]
    ) -> models.DecidedApprovals:
        """Decide many, all or nothing.

        Needs a key with the scope `approvals:decide`.
        """
        response: models.DecidedApprovals = await self._call(
            models.DecidedApprovals, "POST", "/approvals", body={"decisions": decisions}, **request_options
        )
        return response

    async def count_pending_approvals(
        self, **request_options: Unpack[RequestOptions]
    ) -> models.PendingCountsView:
        """How many approvals are pending.

        Needs a key with the scope `read`.
        """
        response: models.PendingCountsView = await self._call(
            models.PendingCountsView, "GET", "/approvals/counts", **request_options
        )
        return response

    async def read_approval(
        self, approval_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.ApprovalInfo:
        """One approval.

        Needs a key with the scope `read`.
        """
        response: models.ApprovalInfo = await self._call(
            models.ApprovalInfo, "GET", f"/approvals/{segment(approval_id)}", **request_options
        )
        return response

    async def decide_approval(
        self,
        approval_id: str,
        *,
        decision: Literal["approve", "reject", "revise"],
        args: Mapping[str, Any] | None = None,
        digest: str | None = None,
        feedback: str | None = None,
        partial: Any = None,
        scope: Literal["thread"] | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ApprovalInfo:
        """Decide: approve, reject or revise.

        Needs a key with the scope `approvals:decide`.

        If several people decide at once, the first decision wins. The same decision again by
        the same principal gives the first answer; a different one is a 409 that shows the
        winner.
        """
        response: models.ApprovalInfo = await self._call(
            models.ApprovalInfo,
            "POST",
            f"/approvals/{segment(approval_id)}",
            body={
                "decision": decision,
                **present(
                    {"args": args, "digest": digest, "feedback": feedback, "partial": partial, "scope": scope}
                ),
            },
            **request_options,
        )
        return response

    async def list_approval_comments(
        self,
        approval_id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.CommentPage:
        """Comments on an approval, newest first.

        Needs a key with the scope `approvals:decide`.
        """
        response: models.CommentPage = await self._call(
            models.CommentPage,
            "GET",
            f"/approvals/{segment(approval_id)}/comments",
            params={"limit": limit, "cursor": cursor},
            **request_options,
        )
        return response

    async def post_approval_comment(
        self, approval_id: str, *, text: str, **request_options: Unpack[RequestOptions]
    ) -> models.ApprovalComment:
        """Comment on an approval.

        Needs a key with the scope `approvals:decide`.
        """
        response: models.ApprovalComment = await self._call(
            models.ApprovalComment,
            "POST",
            f"/approvals/{segment(approval_id)}/comments",
            body={"text": text},
            **request_options,
        )
        return response

    async def read_approval_subject(
        self, approval_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.Subject:
        """The exact bytes that are approved; their SHA-256 is the digest.

        Needs a key with the scope `read`.
        """
        response: models.Subject = await self._call(
            models.Subject, "GET", f"/approvals/{segment(approval_id)}/subject", **request_options
        )
        return response

    async def read_approval_value(
        self,
        approval_id: str,
        *,
        path: str,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.StoredValuePage:
        """Read a value that was stored for an approval, in full.

        Needs a key with the scope `read`.

        `path` is a variable of the subject, or a path below it. The JSON comes in pages of
        `limit` characters.
        """
        response: models.StoredValuePage = await self._call(
            models.StoredValuePage,
            "GET",
            f"/approvals/{segment(approval_id)}/values",
            params={"path": path, "limit": limit, "cursor": cursor},
            **request_options,
        )
        return response

    async def list_artifacts(
        self,
        *,
        channel: str | None = None,
        work_id: str | None = None,
        parent_work_id: str | None = None,
        query_id: str | None = None,
        thread_id: str | None = None,
        agent: str | None = None,
        call_id: str | None = None,
        plan_id: str | None = None,
        action_index: int | None = None,
        status: Literal["active", "superseded", "withdrawn"] | None = None,
        tag: str | None = None,
        since: str | None = None,
        include_superseded: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ArtifactPage:
        """List artifacts, newest first.

        Needs a key with the scope `read`.

        Superseded and withdrawn ones are left out unless they are asked for.
        """
        response: models.ArtifactPage = await self._call(
            models.ArtifactPage,
            "GET",
            "/artifacts",
            params={
                "channel": channel,
                "workId": work_id,
                "parentWorkId": parent_work_id,
                "queryId": query_id,
                "threadId": thread_id,
                "agent": agent,
                "callId": call_id,
                "planId": plan_id,
                "actionIndex": action_index,
                "status": status,
                "tag": tag,
                "since": since,
                "includeSuperseded": include_superseded,
                "limit": limit,
                "cursor": cursor,
            },
            **request_options,
        )
        return response

    async def publish_artifact(
        self,
        *,
        channel: str,
        path: str,
        thread_id: str,
        action_index: int | None = None,
        kind: str | None = None,
        media_type: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent_artifact_ids: list[str] | None = None,
        replaces: str | None = None,
        summary: str | None = None,
        tags: list[str] | None = None,
        title: str | None = None,
        work_id: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ArtifactInfo:
        """Publish a file or a directory of a thread.

        Needs a key with the scope `data:write`.
        """
        response: models.ArtifactInfo = await self._call(
            models.ArtifactInfo,
            "POST",
            "/artifacts",
            body={
                "channel": channel,
                "path": path,
                "threadId": thread_id,
                **present(
                    {
                        "actionIndex": action_index,
                        "kind": kind,
                        "mediaType": media_type,
                        "metadata": metadata,
                        "parentArtifactIds": parent_artifact_ids,
                        "replaces": replaces,
                        "summary": summary,
                        "tags": tags,
                        "title": title,
                        "workId": work_id,
                    }
                ),
            },
            **request_options,
        )
        return response

    async def read_artifact(
        self, artifact_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.ArtifactInfo:
        """Read a record.

        Needs a key with the scope `read`.
        """
        response: models.ArtifactInfo = await self._call(
            models.ArtifactInfo, "GET", f"/artifacts/{segment(artifact_id)}", **request_options
        )
        return response

    async def choose_artifact(
        self,
        artifact_id: str,
        *,
        over: list[str],
        reason: str,
        work_id: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ArtifactInfo:
        """Choose an artifact over revisions that compete with it.

        Needs a key with the scope `data:write`.

        The revisions in `over`, which `competesWith` lists, become `superseded`. This is a new
        record in the chain of its thread.
        """
        response: models.ArtifactInfo = await self._call(
            models.ArtifactInfo,
            "POST",
            f"/artifacts/{segment(artifact_id)}/choose",
            body={"over": over, "reason": reason, **present({"workId": work_id})},
            **request_options,
        )
        return response

    async def read_artifact_content(
        self, artifact_id: str, *, path: str | None = None, **request_options: Unpack[RequestOptions]
    ) -> bytes:
        """The bytes as they were published.

        Needs a key with the scope `read`.

        Of a directory: the list of its files with their SHA-256, as `sha256sum` writes it; with
        `path`, one of them.

        `HEAD` gives the headers alone. With `Range` one part is given, with `If-Range` only if
        the body is still the one with that `ETag`, else all of it, as also where several parts
        are asked for. All of a body is compared with its digest while it is sent, and the
        connection ends early if it differs; a part is not: the `ETag` is the SHA-256 of the
        whole.
        """
        response: bytes = await self._call(
            bytes,
            "GET",
            f"/artifacts/{segment(artifact_id)}/content",
            params={"path": path},
            accept="*/*",
            raw=True,
            **request_options,
        )
        return response

    async def read_artifact_lineage(
        self, artifact_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.LineageView:
        """What it came from, and what came from it.

        Needs a key with the scope `read`.
        """
        response: models.LineageView = await self._call(
            models.LineageView, "GET", f"/artifacts/{segment(artifact_id)}/lineage", **request_options
        )
        return response

    async def withdraw_artifact(
        self,
        artifact_id: str,
        *,
        reason: str,
        work_id: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ArtifactInfo:
        """Withdraw an artifact.

        Needs a key with the scope `data:write`.

        Its record stays, with `status` `withdrawn`, and so does its content; lists leave it
        out. This is a new record in the chain of its thread.
        """
        response: models.ArtifactInfo = await self._call(
            models.ArtifactInfo,
            "POST",
            f"/artifacts/{segment(artifact_id)}/withdraw",
            body={"reason": reason, **present({"workId": work_id})},
            **request_options,
        )
        return response

    async def upload_artifact(
        self,
        channel: str,
        name: str,
        content: Content,
        *,
        media_type: str | None = None,
        thread_id: str,
        kind: str | None = None,
        title: str | None = None,
        summary: str | None = None,
        replaces: str | None = None,
        parent: list[str] | None = None,
        tag: list[str] | None = None,
        work_id: str | None = None,
        action_index: int | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ArtifactInfo:
        """Upload a body and publish it in one step.

        Needs a key with the scope `data:write`.

        It becomes the file `artifacts/{channel}/{name}` of the thread's workspace. The same
        body again, with the same parameters, is no new artifact. With `If-Match` or `If-None-
        Match: *` only over the file that you know, or over none.
        """
        response: models.ArtifactInfo = await self._call(
            models.ArtifactInfo,
            "PUT",
            f"/artifacts/{segment(channel)}/{segment(name)}",
            data=content,
            media_type=media_type,
            params={
                "threadId": thread_id,
                "kind": kind,
                "title": title,
                "summary": summary,
                "replaces": replaces,
                "parent": parent,
                "tag": tag,
                "workId": work_id,
                "actionIndex": action_index,
            },
            keyed=True,
            **request_options,
        )
        return response

    async def list_catalog_entries(
        self,
        *,
        kind: Literal[
            "table",
            "column",
            "relationship",
            "enum_value",
            "metric",
            "document",
            "knowledge",
            "data_quality_finding",
        ]
        | None = None,
        source: str | None = None,
        tag: str | None = None,
        parent_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.EntryPage:
        """List entries by id.

        Needs a key with the scope `read`.
        """
        response: models.EntryPage = await self._call(
            models.EntryPage,
            "GET",
            "/catalog/entries",
            params={
                "kind": kind,
                "source": source,
                "tag": tag,
                "parentId": parent_id,
                "limit": limit,
                "cursor": cursor,
            },
            **request_options,
        )
        return response

    async def write_catalog_entries(
        self, *, entries: list[models.NamedEntry], **request_options: Unpack[RequestOptions]
    ) -> models.EntryList:
        """Write many entries.

        Needs a key with the scope `data:write`.
        """
        response: models.EntryList = await self._call(
            models.EntryList, "POST", "/catalog/entries", body={"entries": entries}, **request_options
        )
        return response

    async def read_catalog_entry(
        self, id: str, **request_options: Unpack[RequestOptions]
    ) -> models.EntryView:
        """An entry.

        Needs a key with the scope `read`.
        """
        response: models.EntryView = await self._call(
            models.EntryView, "GET", f"/catalog/entries/{segment(id)}", **request_options
        )
        return response

    async def put_catalog_entry(
        self,
        id: str,
        *,
        kind: Literal[
            "table",
            "column",
            "relationship",
            "enum_value",
            "metric",
            "document",
            "knowledge",
            "data_quality_finding",
        ],
        content: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        name: str | None = None,
        qualified_name: str | None = None,
        related: list[str] | None = None,
        source: str | None = None,
        tags: list[str] | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.EntryView:
        """Write about data: an entry of your own, or what you know of one that a profile found.

        Needs a key with the scope `data:write`.

        Replaces what was written about the entry before. It takes precedence over what a
        profile found.
        """
        response: models.EntryView = await self._call(
            models.EntryView,
            "PUT",
            f"/catalog/entries/{segment(id)}",
            body={
                "kind": kind,
                **present(
                    {
                        "content": content,
                        "metadata": metadata,
                        "name": name,
                        "qualifiedName": qualified_name,
                        "related": related,
                        "source": source,
                        "tags": tags,
                    }
                ),
            },
            **request_options,
        )
        return response

    async def delete_catalog_entry(
        self, id: str, **request_options: Unpack[RequestOptions]
    ) -> models.EntryDeleted:
        """Delete what was written about an entry.

        Needs a key with the scope `data:write`.

        What a profile found stays.
        """
        response: models.EntryDeleted = await self._call(
            models.EntryDeleted, "DELETE", f"/catalog/entries/{segment(id)}", **request_options
        )
        return response

    async def search_catalog(
        self,
        *,
        query: str,
        kind: Literal[
            "table",
            "column",
            "relationship",
            "enum_value",
            "metric",
            "document",
            "knowledge",
            "data_quality_finding",
        ]
        | None = None,
        source: str | None = None,
        limit: int | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.FoundEntries:
        """Find entries by words and names.

        Needs a key with the scope `read`.
        """
        response: models.FoundEntries = await self._call(
            models.FoundEntries,
            "GET",
            "/catalog/search",
            params={"query": query, "kind": kind, "source": source, "limit": limit},
            **request_options,
        )
        return response

    async def list_events(
        self,
        *,
        after: str | None = None,
        types: str | None = None,
        runtime_id: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.EventPage:
        """Read a page of the tenant's events.

        Needs a key with the scope `read`.

        Without a cursor the page begins now. Deltas and progress (`text`, `reasoning`, `tool-
        progress`) are included only if `types` names them. A page examines at most 5,000
        events. If none of them passes the filters, the page is empty; continue with
        `nextCursor`.
        """
        response: models.EventPage = await self._call(
            models.EventPage,
            "GET",
            "/events",
            params={
                "after": after,
                "types": types,
                "runtimeId": runtime_id,
                "threadId": thread_id,
                "limit": limit,
            },
            **request_options,
        )
        return response

    async def list_grants(
        self,
        *,
        thread_id: str | None = None,
        agent: str | None = None,
        tool: str | None = None,
        active: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.GrantPage:
        """Remembered approvals, newest first.

        Needs a key with the scope `read`.

        A page examines the newest 2,000 grants at most, and those of one thread if `threadId`
        is given. It may be short or empty although there are more: follow `nextCursor` until it
        is null.
        """
        response: models.GrantPage = await self._call(
            models.GrantPage,
            "GET",
            "/grants",
            params={
                "threadId": thread_id,
                "agent": agent,
                "tool": tool,
                "active": active,
                "limit": limit,
                "cursor": cursor,
            },
            **request_options,
        )
        return response

    async def revoke_grant(
        self, grant_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.GrantView:
        """Revoke a remembered approval: the next such call asks again.

        Needs a key with the scope `approvals:decide`.
        """
        response: models.GrantView = await self._call(
            models.GrantView, "DELETE", f"/grants/{segment(grant_id)}", **request_options
        )
        return response

    async def check_health(self, **request_options: Unpack[RequestOptions]) -> models.Health:
        """The process runs."""
        response: models.Health = await self._call(models.Health, "GET", "/healthz", **request_options)
        return response

    async def list_keys(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.KeyPage:
        """List keys, newest first; never their text.

        Needs a key with the scope `admin`.
        """
        response: models.KeyPage = await self._call(
            models.KeyPage, "GET", "/keys", params={"limit": limit, "cursor": cursor}, **request_options
        )
        return response

    async def create_key(
        self,
        *,
        principal: str,
        scopes: list[
            Literal[
                "read",
                "runtimes:write",
                "queries:write",
                "plans:write",
                "plans:settle",
                "approvals:decide",
                "data:write",
                "sources:admin",
                "tools:serve",
                "actions:serve",
                "act-as",
                "admin",
            ]
        ],
        expires_at: str | None = None,
        tools: list[str] | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.NewKey:
        """Make an API key; it is shown this once.

        Needs a key with the scope `admin`.

        Never wider than the key that makes it. A repeated Idempotency-Key is a 409 with the id
        that was made.
        """
        response: models.NewKey = await self._call(
            models.NewKey,
            "POST",
            "/keys",
            body={
                "principal": principal,
                "scopes": scopes,
                **present({"expiresAt": expires_at, "tools": tools}),
            },
            **request_options,
        )
        return response

    async def revoke_key(self, key_id: str, **request_options: Unpack[RequestOptions]) -> models.KeyRevoked:
        """Revoke a key; it stops working within five seconds.

        Needs a key with the scope `admin`.
        """
        response: models.KeyRevoked = await self._call(
            models.KeyRevoked, "DELETE", f"/keys/{segment(key_id)}", **request_options
        )
        return response

    async def read_memory(
        self, runtime: str, resource: str, *, at: int | None = None, **request_options: Unpack[RequestOptions]
    ) -> models.MemoryView:
        """The memory of a runtime, or as it was.

        Needs a key with the scope `read`.

        One document for all threads of the runtime's name, whatever its version: what variables
        read as `†memory`.
        """
        response: models.MemoryView = await self._call(
            models.MemoryView,
            "GET",
            f"/memory/{segment(runtime)}/{segment(resource)}",
            params={"at": at},
            **request_options,
        )
        return response

    async def write_memory(
        self,
        runtime: str,
        resource: str,
        *,
        path: str,
        value: Any,
        method: Literal["set", "merge", "assign", "push", "concat"] | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.WriteView:
        """Write to the memory of a runtime.

        Needs a key with the scope `data:write`.

        For programs outside of any call. The log names the principal as the writer.
        """
        response: models.WriteView = await self._call(
            models.WriteView,
            "POST",
            f"/memory/{segment(runtime)}/{segment(resource)}",
            body={"path": path, "value": value, **present({"method": method})},
            **request_options,
        )
        return response

    async def delete_memory(
        self, runtime: str, resource: str, **request_options: Unpack[RequestOptions]
    ) -> models.MemoryDeleted:
        """Delete the memory of a runtime with its log, for good.

        Needs a key with the scope `data:write`.

        Nobody reads the document or its writes from then on, and their rows are removed within
        minutes. The numbers of writes go on. What a query took from the memory stays in the
        records of its thread, until that is deleted.
        """
        response: models.MemoryDeleted = await self._call(
            models.MemoryDeleted,
            "DELETE",
            f"/memory/{segment(runtime)}/{segment(resource)}",
            **request_options,
        )
        return response

    async def list_memory_writes(
        self,
        runtime: str,
        resource: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.WritePage:
        """The writes to the memory of a runtime, newest first.

        Needs a key with the scope `read`.
        """
        response: models.WritePage = await self._call(
            models.WritePage,
            "GET",
            f"/memory/{segment(runtime)}/{segment(resource)}/log",
            params={"limit": limit, "cursor": cursor},
            **request_options,
        )
        return response

    async def write_memory_of_call(
        self,
        runtime: str,
        resource: str,
        *,
        path: str,
        value: Any,
        work_id: str,
        method: Literal["set", "merge", "assign", "push", "concat"] | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.WriteView:
        """Write to the memory of a runtime from within a call.

        Needs a key with the scope `data:write`.

        The call is one of this runtime that the caller answers at the moment. Its query gets
        the event `state-write`.
        """
        response: models.WriteView = await self._call(
            models.WriteView,
            "POST",
            f"/memory/{segment(runtime)}/{segment(resource)}/log",
            body={"path": path, "value": value, "workId": work_id, **present({"method": method})},
            **request_options,
        )
        return response

    async def read_metrics(self, **request_options: Unpack[RequestOptions]) -> str:
        """The numbers of this process and what waits, for Prometheus.

        Needs the operator's key or the token of `PLANGATE_METRICS_TOKEN`.

        Or the token of `PLANGATE_METRICS_TOKEN`. Keys of tenants cannot read them.
        """
        response: str = await self._call(str, "GET", "/metrics", accept="text/plain", **request_options)
        return response

    async def list_plans(
        self,
        *,
        status: Literal["draft", "approved", "executing", "executed", "failed"] | None = None,
        thread_id: str | None = None,
        spec_name: str | None = None,
        decision: Literal["rejected", "revised"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.PlanPage:
        """List plans, newest first.

        Needs a key with the scope `read`.

        A page examines the newest 2,000 plans at most, and those of one thread if `threadId` is
        given. It ends with 4 MiB. It may be short or empty although there are more: follow
        `nextCursor` until it is null.
        """
        response: models.PlanPage = await self._call(
            models.PlanPage,
            "GET",
            "/plans",
            params={
                "status": status,
                "threadId": thread_id,
                "specName": spec_name,
                "decision": decision,
                "limit": limit,
                "cursor": cursor,
            },
            **request_options,
        )
        return response

    async def store_plan(
        self,
        *,
        body: Mapping[str, Any],
        spec_name: str,
        plan_id: str | None = None,
        runtime: str | None = None,
        runtime_id: str | None = None,
        thread_id: str | None = None,
        thread_key: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.PlanView:
        """Store a plan without a model.

        Needs a key with the scope `plans:write`.

        The same `planId` in the same thread makes the next revision of a draft.
        """
        response: models.PlanView = await self._call(
            models.PlanView,
            "POST",
            "/plans",
            body={
                "body": body,
                "specName": spec_name,
                **present(
                    {
                        "planId": plan_id,
                        "runtime": runtime,
                        "runtimeId": runtime_id,
                        "threadId": thread_id,
                        "threadKey": thread_key,
                    }
                ),
            },
            **request_options,
        )
        return response

    async def read_plan(self, plan_id: str, **request_options: Unpack[RequestOptions]) -> models.PlanView:
        """A plan at its current revision.

        Needs a key with the scope `read`.
        """
        response: models.PlanView = await self._call(
            models.PlanView, "GET", f"/plans/{segment(plan_id)}", **request_options
        )
        return response

    async def list_plan_actions(
        self,
        plan_id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ActionPage:
        """Its actions in order: status, attempts, results.

        Needs a key with the scope `read`.

        A page ends with 4 MiB of results: it may have fewer than `limit` although there are
        more.
        """
        response: models.ActionPage = await self._call(
            models.ActionPage,
            "GET",
            f"/plans/{segment(plan_id)}/actions",
            params={"limit": limit, "cursor": cursor},
            **request_options,
        )
        return response

    async def settle_action(
        self,
        plan_id: str,
        index: int,
        *,
        outcome: Literal["succeeded", "failed", "retry"],
        details: Any = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ActionView:
        """Settle an action whose outcome is unknown.

        Needs a key with the scope `plans:settle`.
        """
        response: models.ActionView = await self._call(
            models.ActionView,
            "POST",
            f"/plans/{segment(plan_id)}/actions/{segment(index)}",
            body={"outcome": outcome, **present({"details": details})},
            **request_options,
        )
        return response

    async def execute_plan(
        self,
        plan_id: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        thread_id: str | None = None,
        thread_key: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.AcceptedPlan:
        """Execute a plan through its gate, as a query.

        Needs a key with the scope `plans:write`.

        A plan that was ever approved runs once: executing it again, or in another thread,
        executes a copy.
        """
        response: models.AcceptedPlan = await self._call(
            models.AcceptedPlan,
            "POST",
            f"/plans/{segment(plan_id)}/execute",
            body=present({"inputs": inputs, "threadId": thread_id, "threadKey": thread_key}),
            **request_options,
        )
        return response

    async def read_plan_graph(
        self, plan_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.GraphView:
        """Read which action of a plan waits for which.

        Needs a key with the scope `read`.
        """
        response: models.GraphView = await self._call(
            models.GraphView, "GET", f"/plans/{segment(plan_id)}/graph", **request_options
        )
        return response

    async def draw_plan_graph(self, plan_id: str, **request_options: Unpack[RequestOptions]) -> str:
        """Draw a plan as a Mermaid flowchart.

        Needs a key with the scope `read`.
        """
        response: str = await self._call(
            str, "GET", f"/plans/{segment(plan_id)}/graph.mmd", accept="text/vnd.mermaid", **request_options
        )
        return response

    async def list_plan_revisions(
        self,
        plan_id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.RevisionPage:
        """List the revisions of a plan without their bodies, newest first.

        Needs a key with the scope `read`.
        """
        response: models.RevisionPage = await self._call(
            models.RevisionPage,
            "GET",
            f"/plans/{segment(plan_id)}/revisions",
            params={"limit": limit, "cursor": cursor},
            **request_options,
        )
        return response

    async def read_plan_revision(
        self, plan_id: str, revision: int, **request_options: Unpack[RequestOptions]
    ) -> models.RevisionView:
        """Read a revision of a plan.

        Needs a key with the scope `read`.
        """
        response: models.RevisionView = await self._call(
            models.RevisionView,
            "GET",
            f"/plans/{segment(plan_id)}/revisions/{segment(revision)}",
            **request_options,
        )
        return response

    async def read_revision_changes(
        self,
        plan_id: str,
        revision: int,
        *,
        from_: int | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.RevisionChanges:
        """What changed since an earlier revision.

        Needs a key with the scope `read`.

        Actions match by the fields that the plan declares in `actionKeys`, else if they are
        equal, by the longest common sequence, and between equal ones by kind and order. Every
        difference of a match is listed; if there are more than 10,000, or their pointers have
        more than 1 MiB, further pairs have one difference with both values.
        """
        response: models.RevisionChanges = await self._call(
            models.RevisionChanges,
            "GET",
            f"/plans/{segment(plan_id)}/revisions/{segment(revision)}/changes",
            params={"from": from_},
            **request_options,
        )
        return response

    async def list_plan_transitions(
        self,
        plan_id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.TransitionPage:
        """Every change of its status, by whom and why, oldest first.

        Needs a key with the scope `read`.
        """
        response: models.TransitionPage = await self._call(
            models.TransitionPage,
            "GET",
            f"/plans/{segment(plan_id)}/transitions",
            params={"limit": limit, "cursor": cursor},
            **request_options,
        )
        return response

    async def list_processes(self, **request_options: Unpack[RequestOptions]) -> models.ProcessList:
        """List the processes of the installation and their health.

        Needs the operator's key or a session of the operator.

        The running processes first, then those that ended in the last hour; up to 500.
        """
        response: models.ProcessList = await self._call(
            models.ProcessList, "GET", "/processes", **request_options
        )
        return response

    async def list_queries(
        self,
        *,
        status: Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"] | None = None,
        thread_id: str | None = None,
        runtime_id: str | None = None,
        agent: str | None = None,
        runtime: str | None = None,
        principal: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        text: str | None = None,
        reason: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.QueryPage:
        """List queries, newest first.

        Needs a key with the scope `read`.

        A page examines the newest 5,000 queries at most, 1,000 with `text`, and those of one
        thread if `threadId` is given. It may be short or empty although there are more: follow
        `nextCursor` until it is null.
        """
        response: models.QueryPage = await self._call(
            models.QueryPage,
            "GET",
            "/queries",
            params={
                "status": status,
                "threadId": thread_id,
                "runtimeId": runtime_id,
                "agent": agent,
                "runtime": runtime,
                "principal": principal,
                "from": from_,
                "to": to,
                "text": text,
                "reason": reason,
                "limit": limit,
                "cursor": cursor,
            },
            **request_options,
        )
        return response

    async def submit_query(
        self,
        *,
        prompt: str,
        agent: str | None = None,
        approval_expires_in_ms: int | None = None,
        data: Mapping[str, Any] | None = None,
        if_busy: Literal["queue", "reject", "interrupt"] | None = None,
        inputs: Mapping[str, Any] | None = None,
        limits: models.Limits | None = None,
        metadata: Mapping[str, Any] | None = None,
        runtime: str | None = None,
        runtime_id: str | None = None,
        thread_id: str | None = None,
        thread_key: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.AcceptedQuery:
        """Start a query.

        Needs a key with the scope `queries:write`.
        """
        response: models.AcceptedQuery = await self._call(
            models.AcceptedQuery,
            "POST",
            "/queries",
            body={
                "prompt": prompt,
                **present(
                    {
                        "agent": agent,
                        "approvalExpiresInMs": approval_expires_in_ms,
                        "data": data,
                        "ifBusy": if_busy,
                        "inputs": inputs,
                        "limits": limits,
                        "metadata": metadata,
                        "runtime": runtime,
                        "runtimeId": runtime_id,
                        "threadId": thread_id,
                        "threadKey": thread_key,
                    }
                ),
            },
            **request_options,
        )
        return response

    async def read_query(
        self, query_id: str, *, wait_ms: int | None = None, **request_options: Unpack[RequestOptions]
    ) -> models.QueryView:
        """Read a query; waitMs waits for its end.

        Needs a key with the scope `read`.
        """
        response: models.QueryView = await self._call(
            models.QueryView,
            "GET",
            f"/queries/{segment(query_id)}",
            params={"waitMs": wait_ms},
            **request_options,
        )
        return response

    async def cancel_query(
        self, query_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.QueryView:
        """Cancel a query at once.

        Needs a key with the scope `queries:write`.
        """
        response: models.QueryView = await self._call(
            models.QueryView, "POST", f"/queries/{segment(query_id)}/cancel", **request_options
        )
        return response

    async def list_query_events(
        self,
        query_id: str,
        *,
        after: str | None = None,
        types: str | None = None,
        limit: int | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.EventPage:
        """Read a page of a query's journal.

        Needs a key with the scope `read`.
        """
        response: models.EventPage = await self._call(
            models.EventPage,
            "GET",
            f"/queries/{segment(query_id)}/events",
            params={"after": after, "types": types, "limit": limit},
            **request_options,
        )
        return response

    async def resume_query(
        self, query_id: str, *, limits: models.Limits, **request_options: Unpack[RequestOptions]
    ) -> models.QueryView:
        """Raise the limits of a query that stopped at one.

        Needs a key with the scope `queries:write`.
        """
        response: models.QueryView = await self._call(
            models.QueryView,
            "POST",
            f"/queries/{segment(query_id)}/resume",
            body={"limits": limits},
            **request_options,
        )
        return response

    async def list_query_work(
        self, query_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.WorkList:
        """The work records of a query, oldest first.

        Needs a key with the scope `read`.
        """
        response: models.WorkList = await self._call(
            models.WorkList, "GET", f"/queries/{segment(query_id)}/work", **request_options
        )
        return response

    async def check_readiness(
        self, *, need: Literal["reads", "writes"] | None = None, **request_options: Unpack[RequestOptions]
    ) -> models.Readiness:
        """The process can work: its database answers.

        200 while the database answers reads. With `need=writes` it is 503 while the database
        takes no writes: it is read-only, or its disk is full. The response always has both
        `reads` and `writes`.
        """
        response: models.Readiness = await self._call(
            models.Readiness, "GET", "/readyz", params={"need": need}, **request_options
        )
        return response

    async def list_references(
        self,
        *,
        kind: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ReferencePage:
        """Handles and glimpses, newest first.

        Needs a key with the scope `read`.
        """
        response: models.ReferencePage = await self._call(
            models.ReferencePage,
            "GET",
            "/references",
            params={"kind": kind, "limit": limit, "cursor": cursor},
            **request_options,
        )
        return response

    async def create_reference(
        self,
        *,
        kind: str,
        value: Any,
        glimpse: Mapping[str, Any] | None = None,
        runtime: str | None = None,
        runtime_id: str | None = None,
        work_id: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ReferenceView:
        """Store a value; the same value gives the same handle.

        Needs a key with the scope `data:write`.
        """
        response: models.ReferenceView = await self._call(
            models.ReferenceView,
            "POST",
            "/references",
            body={
                "kind": kind,
                "value": value,
                **present(
                    {"glimpse": glimpse, "runtime": runtime, "runtimeId": runtime_id, "workId": work_id}
                ),
            },
            **request_options,
        )
        return response

    async def read_reference(
        self, kind: str, id: str, *, work_id: str | None = None, **request_options: Unpack[RequestOptions]
    ) -> Any:
        """The value, byte for byte as it is stored.

        Needs a key with the scope `read`.
        """
        response: Any = await self._call(
            Any,
            "GET",
            f"/references/{segment(kind)}/{segment(id)}",
            params={"workId": work_id},
            **request_options,
        )
        return response

    async def delete_reference(
        self, kind: str, id: str, **request_options: Unpack[RequestOptions]
    ) -> models.ReferenceDeleted:
        """Delete a value by hand, pinned or not.

        Needs a key with the scope `data:write`.
        """
        response: models.ReferenceDeleted = await self._call(
            models.ReferenceDeleted, "DELETE", f"/references/{segment(kind)}/{segment(id)}", **request_options
        )
        return response

    async def read_reference_glimpse(
        self, kind: str, id: str, **request_options: Unpack[RequestOptions]
    ) -> models.ReferenceView:
        """The handle and its glimpse.

        Needs a key with the scope `read`.
        """
        response: models.ReferenceView = await self._call(
            models.ReferenceView,
            "GET",
            f"/references/{segment(kind)}/{segment(id)}/glimpse",
            **request_options,
        )
        return response

    async def read_reference_part(
        self, kind: str, id: str, *, path: str, **request_options: Unpack[RequestOptions]
    ) -> Any:
        """Read a part of a value.

        Needs a key with the scope `read`.

        `path` is a JMESPath expression over the value, such as `length(rows)` or `rows[0:50]`.
        The response is what it selects, null if that is nothing. A part of more than 256 KiB is
        a 413: ask for less.
        """
        response: Any = await self._call(
            Any,
            "GET",
            f"/references/{segment(kind)}/{segment(id)}/part",
            params={"path": path},
            **request_options,
        )
        return response

    async def list_runtimes(
        self,
        *,
        name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.RuntimePage:
        """List registered versions, newest first.

        Needs a key with the scope `read`.
        """
        response: models.RuntimePage = await self._call(
            models.RuntimePage,
            "GET",
            "/runtimes",
            params={"name": name, "limit": limit, "cursor": cursor},
            **request_options,
        )
        return response

    async def register_runtime(
        self, spec: Mapping[str, Any], **request_options: Unpack[RequestOptions]
    ) -> models.RegisteredRuntime:
        """Register a spec; the same content gives the same runtime.

        Needs a key with the scope `runtimes:write`.

        A literal `apiKey` of a provider is moved into a secret before anything is stored. The
        first runtime of its name that has the transport `http` is answered with the
        `signingSecret` of its calls, once. MCP servers are asked for the definitions of the
        tools that the spec names, and the digests of these are put into the spec.
        """
        response: models.RegisteredRuntime = await self._call(
            models.RegisteredRuntime, "POST", "/runtimes", body=spec, **request_options
        )
        return response

    async def validate_runtime(
        self, spec: Mapping[str, Any], **request_options: Unpack[RequestOptions]
    ) -> models.Validation:
        """Check a spec without storing it; returns the first errors.

        Needs a key with the scope `runtimes:write`.
        """
        response: models.Validation = await self._call(
            models.Validation, "POST", "/runtimes/validate", body=spec, **request_options
        )
        return response

    async def read_runtime(
        self, runtime_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.RuntimeView:
        """Read a version with its spec.

        Needs a key with the scope `read`.
        """
        response: models.RuntimeView = await self._call(
            models.RuntimeView, "GET", f"/runtimes/{segment(runtime_id)}", **request_options
        )
        return response

    async def retire_runtime(
        self, runtime_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.RuntimeView:
        """Retire a version: running queries keep it, new ones cannot name it.

        Needs a key with the scope `runtimes:write`.
        """
        response: models.RuntimeView = await self._call(
            models.RuntimeView, "DELETE", f"/runtimes/{segment(runtime_id)}", **request_options
        )
        return response

    async def read_agent_prompt(
        self, runtime_id: str, agent: str, **request_options: Unpack[RequestOptions]
    ) -> models.AssembledPrompt:
        """The assembled prompt of an agent.

        Needs a key with the scope `read`.
        """
        response: models.AssembledPrompt = await self._call(
            models.AssembledPrompt,
            "GET",
            f"/runtimes/{segment(runtime_id)}/agents/{segment(agent)}/prompt",
            **request_options,
        )
        return response

    async def list_agent_tools(
        self, runtime_id: str, agent: str, **request_options: Unpack[RequestOptions]
    ) -> models.AgentToolList:
        """An agent's tools, each with the rule in force.

        Needs a key with the scope `read`.
        """
        response: models.AgentToolList = await self._call(
            models.AgentToolList,
            "GET",
            f"/runtimes/{segment(runtime_id)}/agents/{segment(agent)}/tools",
            **request_options,
        )
        return response

    async def rotate_signing_secret(
        self, runtime_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.SigningSecret:
        """Make a new signing secret for every version of the runtime's name; the old one signs for
        a day more.

        Needs a key with the scope `runtimes:write`.
        """
        response: models.SigningSecret = await self._call(
            models.SigningSecret, "POST", f"/runtimes/{segment(runtime_id)}/signing-secret", **request_options
        )
        return response

    async def list_secrets(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.SecretPage:
        """List the names of secrets.

        Needs a key with the scope `runtimes:write`.
        """
        response: models.SecretPage = await self._call(
            models.SecretPage, "GET", "/secrets", params={"limit": limit, "cursor": cursor}, **request_options
        )
        return response

    async def put_secret(
        self, name: str, *, value: str, **request_options: Unpack[RequestOptions]
    ) -> models.SecretView:
        """Set or rotate a secret; it can be used and not read.

        Needs a key with the scope `runtimes:write`.
        """
        response: models.SecretView = await self._call(
            models.SecretView, "PUT", f"/secrets/{segment(name)}", body={"value": value}, **request_options
        )
        return response

    async def delete_secret(
        self, name: str, **request_options: Unpack[RequestOptions]
    ) -> models.SecretDeleted:
        """Delete a secret.

        Needs a key with the scope `runtimes:write`.
        """
        response: models.SecretDeleted = await self._call(
            models.SecretDeleted, "DELETE", f"/secrets/{segment(name)}", **request_options
        )
        return response

    async def start_session(
        self,
        *,
        key: str | None = None,
        principal: str | None = None,
        tenant: str | None = None,
        ticket: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.WhoAmI:
        """Start a session for a browser.

        Sets an HttpOnly, SameSite=Strict cookie, which is Secure except on loopback. The
        session acts for one principal of one tenant with the scopes of the key, and ends with
        the key. With the cookie, writes need the header `Plangate-Request: 1`.
        """
        response: models.WhoAmI = await self._call(
            models.WhoAmI,
            "POST",
            "/session",
            body=present({"key": key, "principal": principal, "tenant": tenant, "ticket": ticket}),
            **request_options,
        )
        return response

    async def end_session(self, **request_options: Unpack[RequestOptions]) -> models.SessionEnded:
        """End the session of this request."""
        response: models.SessionEnded = await self._call(
            models.SessionEnded, "DELETE", "/session", **request_options
        )
        return response

    async def create_ticket(self, **request_options: Unpack[RequestOptions]) -> models.Ticket:
        """Create a ticket, with which a person signs in without the key.

        It starts one session, within five minutes, for the tenant and principal of this
        request. It is in the fragment of `url`, which browsers do not send to servers. A
        repeated Idempotency-Key is a 409.
        """
        response: models.Ticket = await self._call(
            models.Ticket, "POST", "/session/tickets", **request_options
        )
        return response

    async def list_sources(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.SourcePage:
        """List sources by name.

        Needs a key with the scope `read`.
        """
        response: models.SourcePage = await self._call(
            models.SourcePage, "GET", "/sources", params={"limit": limit, "cursor": cursor}, **request_options
        )
        return response

    async def read_source(self, name: str, **request_options: Unpack[RequestOptions]) -> models.SourceView:
        """A source and the state of its profile.

        Needs a key with the scope `read`.
        """
        response: models.SourceView = await self._call(
            models.SourceView, "GET", f"/sources/{segment(name)}", **request_options
        )
        return response

    async def put_source(
        self,
        name: str,
        *,
        kind: Literal["postgres", "duckdb", "sqlite"],
        options: models.SourceOptions | None = None,
        schemas: list[str] | None = None,
        url: models.SecretUrl | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.SourceView:
        """Declare a database or files that agents may read.

        Needs a key with the scope `sources:admin`.

        The address of a database is read from the secret and checked. A database that does not
        answer at the moment is accepted.
        """
        response: models.SourceView = await self._call(
            models.SourceView,
            "PUT",
            f"/sources/{segment(name)}",
            body={"kind": kind, **present({"options": options, "schemas": schemas, "url": url})},
            **request_options,
        )
        return response

    async def delete_source(
        self, name: str, **request_options: Unpack[RequestOptions]
    ) -> models.SourceDeleted:
        """Delete a source and what its profiles found.

        Needs a key with the scope `sources:admin`.

        What people wrote about it in the catalog stays.
        """
        response: models.SourceDeleted = await self._call(
            models.SourceDeleted, "DELETE", f"/sources/{segment(name)}", **request_options
        )
        return response

    async def profile_source(
        self, name: str, **request_options: Unpack[RequestOptions]
    ) -> models.ProfileAccepted:
        """Read structure and statistics of a source into the catalog.

        Needs a key with the scope `sources:admin`.

        In the background: the response names a query, whose events `tool-progress` tell how far
        it is. What the source no longer has leaves the catalog; what people wrote stays.
        """
        response: models.ProfileAccepted = await self._call(
            models.ProfileAccepted, "POST", f"/sources/{segment(name)}/profile", **request_options
        )
        return response

    async def read_tenant(self, **request_options: Unpack[RequestOptions]) -> models.TenantView:
        """Read the tenant of this request: its limits, and what it uses.

        Needs a key with the scope `admin`.
        """
        response: models.TenantView = await self._call(models.TenantView, "GET", "/tenant", **request_options)
        return response

    async def list_tenants(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.TenantPage:
        """List the tenants of the installation, by id.

        Needs the operator's key or a session of the operator.

        Tenants are changed with `plangate tenants`.
        """
        response: models.TenantPage = await self._call(
            models.TenantPage, "GET", "/tenants", params={"limit": limit, "cursor": cursor}, **request_options
        )
        return response

    async def list_threads(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ThreadPage:
        """List threads, newest first.

        Needs a key with the scope `read`.
        """
        response: models.ThreadPage = await self._call(
            models.ThreadPage, "GET", "/threads", params={"limit": limit, "cursor": cursor}, **request_options
        )
        return response

    async def create_thread(
        self, *, thread_key: str | None = None, **request_options: Unpack[RequestOptions]
    ) -> models.ThreadView:
        """Get the thread of a key, made on first use.

        Needs a key with the scope `queries:write`.
        """
        response: models.ThreadView = await self._call(
            models.ThreadView, "POST", "/threads", body=present({"threadKey": thread_key}), **request_options
        )
        return response

    async def read_thread(
        self, thread_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.ThreadView:
        """A thread and its active queries.

        Needs a key with the scope `read`.
        """
        response: models.ThreadView = await self._call(
            models.ThreadView, "GET", f"/threads/{segment(thread_id)}", **request_options
        )
        return response

    async def delete_thread(
        self, thread_id: str, **request_options: Unpack[RequestOptions]
    ) -> models.ThreadDeleted:
        """Delete a thread with all that is in it, for good.

        Needs a key with the scope `queries:write`.

        A 409 while one of its queries is not over. Nobody finds the thread from then on, nor
        its queries, events, plans, state, files and artifacts. What stays: what was used and
        what that cost (`GET /usage`), who decided on approvals, grants, and references, which
        belong to no thread.
        """
        response: models.ThreadDeleted = await self._call(
            models.ThreadDeleted, "DELETE", f"/threads/{segment(thread_id)}", **request_options
        )
        return response

    async def list_files(
        self,
        thread_id: str,
        *,
        prefix: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.FilePage:
        """The files of a thread, in the order of their paths.

        Needs a key with the scope `read`.
        """
        response: models.FilePage = await self._call(
            models.FilePage,
            "GET",
            f"/threads/{segment(thread_id)}/files",
            params={"prefix": prefix, "limit": limit, "cursor": cursor},
            **request_options,
        )
        return response

    async def read_file(
        self,
        thread_id: str,
        path: str,
        *,
        version: int | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> bytes:
        """A file of a thread, as it is or as it was in a version.

        Needs a key with the scope `read`.

        `HEAD` gives the headers alone. With `Range` one part is given, with `If-Range` only if
        the body is still the one with that `ETag`, else all of it, as also where several parts
        are asked for. All of a body is compared with its digest while it is sent, and the
        connection ends early if it differs; a part is not: the `ETag` is the SHA-256 of the
        whole.
        """
        response: bytes = await self._call(
            bytes,
            "GET",
            f"/threads/{segment(thread_id)}/files/{file_segments(path)}",
            params={"version": version},
            accept="*/*",
            raw=True,
            **request_options,
        )
        return response

    async def write_file(
        self,
        thread_id: str,
        path: str,
        content: Content,
        *,
        media_type: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.FileView:
        """Write a file of a thread: its next version.

        Needs a key with the scope `data:write`.

        The body is the file, of any content type. A reader sees the old version or the new one.
        The same body again is no new version. With `If-Match` or `If-None-Match: *` only over
        the file that you know, or over none.
        """
        response: models.FileView = await self._call(
            models.FileView,
            "PUT",
            f"/threads/{segment(thread_id)}/files/{file_segments(path)}",
            data=content,
            media_type=media_type,
            **request_options,
        )
        return response

    async def delete_file(
        self, thread_id: str, path: str, **request_options: Unpack[RequestOptions]
    ) -> models.FileView:
        """Delete a file of a thread; its versions stay.

        Needs a key with the scope `data:write`.
        """
        response: models.FileView = await self._call(
            models.FileView,
            "DELETE",
            f"/threads/{segment(thread_id)}/files/{file_segments(path)}",
            **request_options,
        )
        return response

    async def fork_thread(
        self, thread_id: str, *, at: int | None = None, **request_options: Unpack[RequestOptions]
    ) -> models.ThreadView:
        """A new thread whose state and files begin as those of this one are, or were.

        Needs a key with the scope `queries:write`.

        It takes the state, the files and the version of the runtime, but no conversation: its
        agents begin anew.
        """
        response: models.ThreadView = await self._call(
            models.ThreadView,
            "POST",
            f"/threads/{segment(thread_id)}/fork",
            body=present({"at": at}),
            **request_options,
        )
        return response

    async def list_thread_messages(
        self,
        thread_id: str,
        *,
        agent: str | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.MessagePage:
        """What its agents said and heard, oldest first.

        Needs a key with the scope `read`.

        The newest 100 runs of the thread, up to about 4 MiB of them, by agent. The next page
        has the runs before them.
        """
        response: models.MessagePage = await self._call(
            models.MessagePage,
            "GET",
            f"/threads/{segment(thread_id)}/messages",
            params={"agent": agent, "cursor": cursor},
            **request_options,
        )
        return response

    async def read_thread_state(
        self, thread_id: str, *, at: int | None = None, **request_options: Unpack[RequestOptions]
    ) -> models.StateView:
        """The state of a thread, or as it was.

        Needs a key with the scope `read`.
        """
        response: models.StateView = await self._call(
            models.StateView,
            "GET",
            f"/threads/{segment(thread_id)}/state",
            params={"at": at},
            **request_options,
        )
        return response

    async def list_state_writes(
        self,
        thread_id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.WritePage:
        """The writes to a thread's state, newest first.

        Needs a key with the scope `read`.
        """
        response: models.WritePage = await self._call(
            models.WritePage,
            "GET",
            f"/threads/{segment(thread_id)}/state/log",
            params={"limit": limit, "cursor": cursor},
            **request_options,
        )
        return response

    async def write_thread_state(
        self,
        thread_id: str,
        *,
        path: str,
        value: Any,
        work_id: str,
        method: Literal["set", "merge", "assign", "push", "concat"] | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.WriteView:
        """Write to a thread's state from within a call.

        Needs a key with the scope `data:write`.

        The call is one of this thread that the caller answers at the moment. Its query gets the
        event `state-write`.
        """
        response: models.WriteView = await self._call(
            models.WriteView,
            "POST",
            f"/threads/{segment(thread_id)}/state/log",
            body={"path": path, "value": value, "workId": work_id, **present({"method": method})},
            **request_options,
        )
        return response

    async def list_tool_calls(
        self,
        *,
        status: Literal["open", "claimed", "done", "unknown", "withdrawn"] | None = None,
        query_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.CallPage:
        """Calls that left the service, newest first.

        Needs a key with the scope `read`.

        A page examines the newest 2,000 calls at most, and those of one query if `queryId` is
        given. It may be short or empty although there are more: follow `nextCursor` until it is
        null.
        """
        response: models.CallPage = await self._call(
            models.CallPage,
            "GET",
            "/tool-calls",
            params={"status": status, "queryId": query_id, "limit": limit, "cursor": cursor},
            **request_options,
        )
        return response

    async def claim_tool_call(
        self,
        *,
        tools: list[models.ToolVersion],
        claim_token: str | None = None,
        lease_ms: int | None = None,
        max: int | None = None,
        purpose: Literal["tool", "action"] | None = None,
        query_id: str | None = None,
        runtime_id: str | None = None,
        thread_id: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ClaimedCalls:
        """Take open calls; each goes to one claimant.

        Needs a key with the scope `tools:serve`.

        Actions of plans and approval predicates are given only to keys with the scope
        `actions:serve`. The answer carries claim tokens, so it is not kept for a repeated
        Idempotency-Key.
        """
        response: models.ClaimedCalls = await self._call(
            models.ClaimedCalls,
            "POST",
            "/tool-calls/claim",
            body={
                "tools": tools,
                **present(
                    {
                        "claimToken": claim_token,
                        "leaseMs": lease_ms,
                        "max": max,
                        "purpose": purpose,
                        "queryId": query_id,
                        "runtimeId": runtime_id,
                        "threadId": thread_id,
                    }
                ),
            },
            **request_options,
        )
        return response

    async def emit_tool_event(
        self,
        work_id: str,
        *,
        claim_token: str,
        event_type: str,
        data: Any = UNSET,
        **request_options: Unpack[RequestOptions],
    ) -> models.ToolEventEmitted:
        """Emit an event of the tool's own type to the readers of the query.

        Needs a key with the scope `tools:serve`.

        The event has the type `custom`. `data` has at most 64 KiB of JSON.
        """
        response: models.ToolEventEmitted = await self._call(
            models.ToolEventEmitted,
            "POST",
            f"/tool-calls/{segment(work_id)}/events",
            body={"claimToken": claim_token, "eventType": event_type, **present_json({"data": data})},
            **request_options,
        )
        return response

    async def copy_file(
        self,
        work_id: str,
        path: str,
        content: Content,
        *,
        media_type: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.FileView:
        """Copy a file that an agent publishes from a workspace of yours.

        Needs a key with the scope `tools:serve`.

        The call is one of a workspace that the caller answers at the moment. The body is the
        file, of any content type; the service keeps it for the artifact.
        """
        response: models.FileView = await self._call(
            models.FileView,
            "PUT",
            f"/tool-calls/{segment(work_id)}/files/{file_segments(path)}",
            data=content,
            media_type=media_type,
            **request_options,
        )
        return response

    async def heartbeat_tool_call(
        self,
        work_id: str,
        *,
        claim_token: str,
        lease_ms: int | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ClaimHeld:
        """Hold a claim longer, never beyond the tool's timeout.

        Needs a key with the scope `tools:serve`.
        """
        response: models.ClaimHeld = await self._call(
            models.ClaimHeld,
            "POST",
            f"/tool-calls/{segment(work_id)}/heartbeat",
            body={"claimToken": claim_token, **present({"leaseMs": lease_ms})},
            **request_options,
        )
        return response

    async def report_tool_progress(
        self,
        work_id: str,
        *,
        claim_token: str,
        label: str,
        milestone: bool | str | None = None,
        phase_index: int | None = None,
        total_phases: int | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.ProgressRecorded:
        """Tell the readers of the query how far a call is.

        Needs a key with the scope `tools:serve`.
        """
        response: models.ProgressRecorded = await self._call(
            models.ProgressRecorded,
            "POST",
            f"/tool-calls/{segment(work_id)}/progress",
            body={
                "claimToken": claim_token,
                "label": label,
                **present({"milestone": milestone, "phaseIndex": phase_index, "totalPhases": total_phases}),
            },
            **request_options,
        )
        return response

    async def release_tool_call(
        self, work_id: str, *, claim_token: str, **request_options: Unpack[RequestOptions]
    ) -> models.ClaimReleased:
        """Give back a call that was claimed and not begun.

        Needs a key with the scope `tools:serve`.
        """
        response: models.ClaimReleased = await self._call(
            models.ClaimReleased,
            "POST",
            f"/tool-calls/{segment(work_id)}/release",
            body={"claimToken": claim_token},
            **request_options,
        )
        return response

    async def post_tool_result(
        self,
        work_id: str,
        *,
        claim_token: str,
        error: str | None = None,
        output: Any = UNSET,
        **request_options: Unpack[RequestOptions],
    ) -> models.ResultPosted:
        """Post what a call returned.

        Needs a key with the scope `tools:serve`.
        """
        response: models.ResultPosted = await self._call(
            models.ResultPosted,
            "POST",
            f"/tool-calls/{segment(work_id)}/result",
            body={"claimToken": claim_token, **present({"error": error}), **present_json({"output": output})},
            **request_options,
        )
        return response

    async def list_mcp_tools(
        self,
        *,
        url: str,
        headers: dict[str, str | models.SecretRef | None] | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.McpTools:
        """The tools of an MCP server as ToolSpecs, ready for a spec.

        Needs a key with the scope `runtimes:write`.

        Their annotations are what the server says of its tools: `readOnly` and `idempotent` let
        a call whose outcome is not known be repeated, so take them out where you do not believe
        it.
        """
        response: models.McpTools = await self._call(
            models.McpTools,
            "POST",
            "/tools/mcp/list",
            body={"url": url, **present({"headers": headers})},
            **request_options,
        )
        return response

    async def read_usage(
        self,
        *,
        group_by: Literal[
            "query", "thread", "agent", "model", "artifact", "revision", "channel", "runtime", "day"
        ]
        | None = None,
        order: Literal["key", "cost"] | None = None,
        from_: str | None = None,
        to: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.UsageReport:
        """What models used and cost, and what references kept out of prompts.

        Needs a key with the scope `read`.

        Queries, threads, artifacts and days come newest first, agents, models and channels by
        name. The revisions of one artifact stand together, the latest first.
        """
        response: models.UsageReport = await self._call(
            models.UsageReport,
            "GET",
            "/usage",
            params={
                "groupBy": group_by,
                "order": order,
                "from": from_,
                "to": to,
                "limit": limit,
                "cursor": cursor,
            },
            **request_options,
        )
        return response

    async def whoami(self, **request_options: Unpack[RequestOptions]) -> models.WhoAmI:
        """Return who this request is, and the version of the service.

        Any key or session will do.
        """
        response: models.WhoAmI = await self._call(models.WhoAmI, "GET", "/whoami", **request_options)
        return response

    async def list_work_records(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        query_id: str | None = None,
        kind: Literal[
            "query", "agent", "model_call", "tool_call", "predicate", "plan_execution", "action", "host"
        ]
        | None = None,
        status: Literal["running", "waiting", "succeeded", "failed", "cancelled", "unknown"] | None = None,
        **request_options: Unpack[RequestOptions],
    ) -> models.WorkPage:
        """Work records, newest first.

        Needs a key with the scope `read`.
        """
        response: models.WorkPage = await self._call(
            models.WorkPage,
            "GET",
            "/work-records",
            params={"limit": limit, "cursor": cursor, "queryId": query_id, "kind": kind, "status": status},
            **request_options,
        )
        return response

    async def read_work_record(
        self, work_id: str, *, tree: bool | None = None, **request_options: Unpack[RequestOptions]
    ) -> models.WorkRecord:
        """A work record, with tree=true the tree below it.

        Needs a key with the scope `read`.
        """
        response: models.WorkRecord = await self._call(
            models.WorkRecord,
            "GET",
            f"/work-records/{segment(work_id)}",
            params={"tree": tree},
            **request_options,
        )
        return response
