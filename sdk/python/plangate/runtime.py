"""The runtime: queries, references and artifacts. Its bases are `ApprovalMethods`, `ThreadMethods`,
`MemoryMethods`, `DataMethods` and `PlanMethods`."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from plangate.api.models import Event, QueryView, WorkItem
from plangate.artifacts import Artifacts
from plangate.authoring.arguments import describe_type
from plangate.client import READ_TIMEOUT_S, ServiceClient, path
from plangate.context import ReferenceCalls, split_handle
from plangate.files import Files
from plangate.journal import Journal, QueryEvents
from plangate.plans import PlanMethods
from plangate.session import PreparedRuntime
from plangate.spec.base import did_you_mean
from plangate.spec.models import AgentSpec, ReferenceSpec
from plangate.thread_ids import check_thread_id, thread_fields

log = logging.getLogger("plangate")


class Runtime(PlanMethods):
    """A runtime, from `create_runtime` or `connect`. It belongs to the event loop that opens it.

    The first call that is awaited opens it, or `await runtime`. Close it at the end: `async with runtime`
    opens and closes it. One that was closed may be opened again. One that is dropped without being closed
    logs a warning and takes no more calls.

    Raises:
        PlangateError: when it is used after it was closed, or in another event loop.

    Example:
        >>> async def ask(spec):
        ...     async with create_runtime(spec) as runtime:
        ...         async for event in runtime.query("Where is my bag?", "customer-17"):
        ...             print(event["type"])
    """

    # -- queries ---------------------------------------------------------------------------------------------

    def query(
        self,
        prompt: Any,
        thread_id: str | None,
        inputs: Mapping[str, Any] | None = None,
        resume: str | Mapping[str, Any] | None = None,
        *,
        data: Mapping[str, Any] | None = None,
    ) -> QueryEvents:
        """Start a query with the coordinator and return its events, until the terminal `finish` or `error`.

        Each event is a typed object of `plangate.api.models` with the envelope of the journal (`seq`, `type`,
        `query_id`, ...), and a dict with the fields as on the wire. It comes once, in order: lost connections and
        restarts of the service are bridged. Leaving the loop does not end the query.

        Args:
            prompt: Text; anything else is written as JSON.
            thread_id: Any string of the caller's, up to 200 characters; the same one is the same conversation. One
                that begins with `thr_` is the service's id of a thread, as events and `fork_thread` have it.
            inputs: For variables, as `†input`, and for the runtime's `inputSchema`.
            resume: Starts nothing, and gives the events of a query that is there: of a query's id all of them,
                of an event (or anything with its `queryId` and `seq`) those after it. The other arguments are
                ignored and may be None.
            data: Named data objects for variables: `{"prices": ...}` is `†prices`. They are laid over those of
                `define_runtime`, and live as long as the query.

        Raises:
            ValueError: at once, for an argument that cannot be used.
            TypeError: at once, for a prompt that is no JSON, or inputs or data that are no mapping.
            ApiError: on reading, if the service refuses, for example inputs that do not match.
            ServiceUnavailable: on reading, if the service has not answered for five minutes; `resume` goes on.

        Example:
            >>> async def text_of(runtime):
            ...     events = runtime.query("Where is my bag?", "customer-17")
            ...     return "".join([e["text"] async for e in events if e["type"] == "text"])
        """
        if resume is not None:
            return self._follow(_journal_to_resume(resume), self._ensure_open)
        if thread_id is None:
            raise ValueError("thread_id is missing: it is any string of yours that names the conversation")
        return self._start(None, prompt, thread_id, inputs, data)

    def run_specialist(
        self,
        specialist: str | AgentSpec,
        prompt: Any,
        thread_id: str | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> QueryEvents:
        """Start a query with one agent, and return its events as `query` does.

        Args:
            specialist: An agent of the spec, or its name. Any role will do.
            prompt, inputs, data: As for `query`.
            thread_id: As for `query`; None is a thread of its own.

        Raises:
            ValueError: at once, for an agent that the spec does not have; the rest as `query`.

        Example:
            >>> async def types(runtime):
            ...     return [event["type"] async for event in runtime.run_specialist("helper", "Hi")]
        """
        name = specialist.name if isinstance(specialist, AgentSpec) else specialist
        known = self._names("agents")
        if known is not None and name not in known:
            raise ValueError(f"the spec has no agent {name!r}{did_you_mean(str(name), known)}")
        return self._start(name, prompt, thread_id, inputs, data)

    def execute_plan(
        self, plan_id: str, inputs: Mapping[str, Any] | None = None, thread_id: str | None = None
    ) -> QueryEvents:
        """Start a query that executes a plan through its gate, without a model; return its events as `query` does.

        A plan runs once: of one that was ever approved, or in another thread, a copy is executed, with an
        approval and a life of its own. The events have its id, as `planId`, and the approval as `target`.

        Args:
            plan_id: Its `pln_` id.
            inputs: For variables, as `†input`, and for the runtime's `inputSchema`.
            thread_id: As for `query`; None is the thread of the plan.

        Raises:
            ValueError: at once, for an id that cannot be one.
            TypeError: at once, for inputs that are no mapping.
            ApiError: on reading, if the service refuses, for example a revision that was rejected.
            ServiceUnavailable: on reading, if the service has not answered for five minutes.

        Example:
            >>> async def carry_out(runtime, plan, orders):
            ...     async for event in runtime.execute_plan(plan["id"], {"orders": orders}):
            ...         if event["type"] == "approval-required":
            ...             gate = event["data"]
            ...             subject = await runtime.approval_subject(gate["id"])
            ...             print(subject.value["body"])
            ...             await runtime.respond_to_approval(gate["id"], "approve", digest=subject.digest)
        """
        fields = {**_check_mappings({"inputs": inputs}), **thread_fields(thread_id)}
        return self._follow(Journal(fields, path("plans", plan_id, "execute")), self._ensure_open)

    def profile_source(self, name: str) -> QueryEvents:
        """Read structure and statistics of a source into the catalog, and return the events of the profile, until the
        terminal `finish` or `error`. Leaving the loop does not end the profile.

        It needs a key with `sources:admin`.

        Args:
            name: The name of the source.

        Raises:
            NotFound: on reading, if there is no such source.
            Conflict: on reading, if the source is being profiled.
            ServiceUnavailable: on reading, if the service has not answered for five minutes.

        Example:
            >>> async def profile(runtime):
            ...     async for event in runtime.profile_source("shop"):
            ...         if event["type"] == "tool-progress":
            ...             print(event["label"], event["phaseIndex"], event["totalPhases"])
        """
        return self._follow(Journal(execute=path("sources", name, "profile")), self._ensure_open)

    def _start(
        self,
        agent: str | None,
        prompt: Any,
        thread_id: str | None,
        inputs: Mapping[str, Any] | None,
        data: Mapping[str, Any] | None,
    ) -> QueryEvents:
        fields = {
            "prompt": prompt if isinstance(prompt, str) else _dump_prompt(prompt),
            **thread_fields(thread_id),
            **({} if agent is None else {"agent": agent}),
            **_check_mappings({"inputs": inputs, "data": data}),
        }
        journal = Journal(fields)

        async def connect() -> ServiceClient:
            client = await self._ensure_open()
            journal.body = {"runtimeId": self.id, **fields}
            return client

        return self._follow(journal, connect)

    def _follow(self, journal: Journal, connect: Callable[[], Awaitable[ServiceClient]]) -> QueryEvents:
        return QueryEvents(journal, connect, self._call_hooks)

    async def _call_hooks(self, event: Event) -> None:
        for kind in (event.type, "*"):
            hook = self._hooks.get(kind)
            if hook is None:
                continue
            try:
                returned = hook(event)
                if inspect.isawaitable(returned):
                    await returned
            except Exception:
                log.exception("the event hook for %r failed", kind)

    async def get_query(self, query_id: str, *, wait_ms: int = 0) -> QueryView:
        """Return a query: status, output, usage, open approvals.

        Args:
            query_id: From an event's `queryId`.
            wait_ms: Waits so long for its end, in milliseconds, at most 60,000.

        Raises:
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def answer(runtime, query_id):
            ...     return (await runtime.get_query(query_id, wait_ms=60_000))["output"]
        """
        return await self.api.read_query(
            query_id, wait_ms=wait_ms or None, timeout_s=READ_TIMEOUT_S + wait_ms / 1000
        )

    async def cancel(self, query_id: str) -> QueryView:
        """Cancel a query at once, with everything that it called, and return it. A finished query stays as it is.

        Args:
            query_id: From an event's `queryId`.

        Raises:
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def stop(runtime, event):
            ...     return (await runtime.cancel(event["queryId"]))["status"]
        """
        return await self.api.cancel_query(query_id)

    async def work(self, query_id: str) -> list[WorkItem]:
        """List the work records of a query, oldest first: agents, model calls, tool calls, actions, with parents.

        Args:
            query_id: From an event's `queryId`.

        Raises:
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def tools_used(runtime, query_id):
            ...     return [w["name"] for w in await runtime.work(query_id) if w["kind"] == "tool_call"]
        """
        return (await self.api.list_query_work(query_id)).items_

    # -- references ------------------------------------------------------------------------------------------

    async def create_reference(self, spec: ReferenceSpec | str, payload: Any) -> dict[str, Any]:
        """Store a value outside of every prompt, and return its handle: `{"kind", "id", "glimpse"}`.

        Args:
            spec: From `define_reference`, or the name of a kind of the runtime's.
            payload: The value; a model, a dataclass or plain data.

        Raises:
            ValueError: if the value does not match the schema.
            InvalidRequest: if the service says so, for a kind that is given by name.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def keep(runtime, Basket):
            ...     handle = await runtime.create_reference(Basket, {"items": ["tea"]})
            ...     return handle["id"], handle["glimpse"]
        """
        return await (await self._references()).create(spec, payload)

    async def resolve_reference(self, ref: Mapping[str, Any] | str, id: str | None = None) -> Any:
        """Return the value behind a handle, as JSON.

        Args:
            ref: The handle, such as `create_reference` returns; or its kind.
            id: The id, if `ref` is a kind.

        Raises:
            TypeError: at once, for what is no handle.
            NotFound: if there is none.
            Gone: if it has expired.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def value_of(runtime, handle):
            ...     return await runtime.resolve_reference(handle)
        """
        split_handle(ref, id)
        return await (await self._references()).resolve(ref, id)

    async def reference_glimpse(self, ref: Mapping[str, Any] | str, id: str | None = None) -> Any:
        """Return the glimpse of a handle, as JSON.

        Args:
            ref, id: As for `resolve_reference`.

        Raises:
            TypeError, NotFound, Gone, ServiceUnavailable: as `resolve_reference`.

        Example:
            >>> async def glimpse_of(runtime, handle):
            ...     return await runtime.reference_glimpse(handle)
        """
        split_handle(ref, id)
        return await (await self._references()).glimpse(ref, id)

    async def _references(self) -> ReferenceCalls:
        kinds = self._prepared.references if isinstance(self._prepared, PreparedRuntime) else {}
        await self._ensure_open()
        return ReferenceCalls(self.api, self.id, kinds)

    def files(self, thread_id: str) -> Files:
        """Return the files of a thread: `read`, `read_text`, `write`, `list`, `delete`, `publish`.

        Args:
            thread_id: As for `query`. A string of yours that no query had yet makes its thread.

        Raises:
            ValueError: at once, for a thread_id that cannot be one.

        Example:
            >>> async def attach(runtime, png):
            ...     await runtime.files("customer-17").write("photos/front.png", png)
        """
        check_thread_id(thread_id)
        return Files(self.api, thread_id, self.artifacts)

    @property
    def artifacts(self) -> Artifacts:
        """The artifacts of the tenant's threads: `publish`, `upload`, `get`, `list`, `read`, `lineage`."""
        return Artifacts(self.api)


def _check_mappings(mappings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    for name, values in mappings.items():
        if values is not None and not isinstance(values, Mapping):
            raise TypeError(f"{name} is a mapping of names to values, not {describe_type(values)}")
    return {name: dict(values) for name, values in mappings.items() if values is not None}


def _dump_prompt(prompt: Any) -> str:
    if prompt is None:
        raise ValueError("the prompt is missing: it is text, or anything else that JSON has a form for")
    try:
        return json.dumps(prompt, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the prompt is neither text nor JSON: {error}") from error


def _journal_to_resume(resume: Any) -> Journal:
    if isinstance(resume, str) and resume.startswith("qry_"):
        return Journal(query_id=resume)
    if isinstance(resume, Mapping) and isinstance(resume.get("queryId"), str):
        last_seq = resume.get("seq", 0)
        if isinstance(last_seq, int) and last_seq >= 0:
            return Journal(query_id=resume["queryId"], last_seq=last_seq)
    raise ValueError("resume is the id of a query (qry_...), or an event with its queryId and seq")
