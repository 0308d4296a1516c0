"""A runtime that is registered and open: queries are started on it, and its author's functions run here."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal

from plangate.authoring import ActionDispatcher, DefinedTool
from plangate.client import READ_TIMEOUT_S, ServiceClient, path
from plangate.context import ReferenceCalls
from plangate.errors import NotAvailable, PlangateError
from plangate.journal import Journal, QueryEvents
from plangate.local_calls import LocalCalls, served_here
from plangate.local_service import LocalService
from plangate.spec.base import did_you_mean
from plangate.spec.models import AgentSpec, ReferenceSpec

log = logging.getLogger("plangate")

MAX_THREAD_ID_CHARS: Final = 200
DECISIONS: Final = ("approve", "reject", "revise")

EventHook = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A spec with everything that was only known when it was opened, and the functions that run here."""

    wire: dict[str, Any]
    tools: Mapping[str, DefinedTool]
    references: Mapping[str, ReferenceSpec]
    dispatcher: ActionDispatcher | None
    dispatchers: Mapping[str, ActionDispatcher]


class Runtime:
    """An open runtime. Made by `create_runtime`; belongs to the event loop that opens it."""

    def __init__(
        self,
        prepared: Prepared,
        url: str | None,
        api_key: str | None,
        services: Mapping[str, Any],
        hooks: Mapping[str, EventHook],
    ) -> None:
        self._prepared = prepared
        self._url = url
        self._api_key = api_key
        self._services = services
        self._hooks = hooks
        self._held: AsyncExitStack | None = None
        self._connection: ServiceClient | None = None
        self._record: dict[str, Any] = {}

    # -- opening and closing ---------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Runtime]:
        return self._open().__await__()

    async def __aenter__(self) -> Runtime:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes it: no more calls are taken, running handlers have a few seconds to end, and a service that
        was started for this runtime ends. Queries go on where a service stays. Closing twice is once."""
        held, self._held = self._held, None
        self._connection = None
        if held is not None:
            await held.aclose()

    async def _open(self) -> Runtime:
        if self._held is not None:
            return self
        async with AsyncExitStack() as held:
            client = await self._connect(held)
            record = await client.request("POST", "/runtimes", self._prepared.wire)
            prepared = self._prepared
            served = served_here(record["spec"], prepared.tools, prepared.dispatcher, prepared.dispatchers)
            if served:
                references = ReferenceCalls(client, record["id"], prepared.references)
                calls = LocalCalls(client, served, self._services, references)
                held.push_async_callback(calls.aclose)
                await calls.start()
            self._connection, self._record = client, record
            self._held = held.pop_all()
        return self

    async def _connect(self, held: AsyncExitStack) -> ServiceClient:
        tenant = self._prepared.wire["tenant"]["resourceId"]
        if self._url is not None and self._api_key is not None:
            client = ServiceClient(self._url, self._api_key, tenant)
        else:
            service = await asyncio.to_thread(LocalService.acquire)
            held.push_async_callback(asyncio.to_thread, service.release)
            client = ServiceClient(service.url, self._api_key or service.api_key, tenant, ended=service.ended)
        held.push_async_callback(client.aclose)
        return client

    @property
    def _client(self) -> ServiceClient:
        if self._connection is None:
            raise PlangateError(
                "the runtime is not open: use `async with create_runtime(...) as runtime`, or "
                "`runtime = await create_runtime(...)` and `await runtime.aclose()` at the end"
            )
        return self._connection

    @property
    def id(self) -> str:
        """The id of the registered version."""
        return str(self._registered["id"])

    @property
    def version(self) -> int:
        """Its number in the line of versions of its name."""
        return int(self._registered["version"])

    @property
    def spec(self) -> dict[str, Any]:
        """The registered spec, in its wire form."""
        registered: dict[str, Any] = self._registered["spec"]
        return registered

    @property
    def url(self) -> str:
        """Where the service is."""
        return self._client.url

    @property
    def _registered(self) -> dict[str, Any]:
        _ = self._client  # says so where nothing is registered yet
        return self._record

    # -- queries ---------------------------------------------------------------------------------------------

    def query(
        self,
        prompt: Any,
        thread_id: str | None,
        inputs: Mapping[str, Any] | None = None,
        resume: str | Mapping[str, Any] | None = None,
    ) -> QueryEvents:
        """Starts a query with the coordinator and gives its events, until the terminal `finish` or `error`.

        Each event is a dict with the envelope of the journal (`seq`, `type`, `queryId`, ...) and comes once, in
        order: lost connections and restarts of the service are bridged. Leaving the loop does not end the query.

        Args:
            prompt: Text; anything else is written as JSON.
            thread_id: Any string of the caller's, up to 200 characters; the same one is the same conversation.
            inputs: For variables and for the runtime's `inputSchema`.
            resume: Starts nothing, and gives the events of a query that is there: of a query's id all of them,
                of an event (or anything with its `queryId` and `seq`) those after it. The other arguments are
                ignored and may be None.

        Raises:
            TypeError, ValueError: at once, for an argument that cannot be used.
            ApiError: on reading, if the service refuses, for example inputs that do not match.
            ServiceUnavailable: on reading, if the service has not answered for five minutes; `resume` goes on.

        Example:
            >>> async def text_of(runtime):
            ...     events = runtime.query("Where is my bag?", "customer-17")
            ...     return "".join([e["text"] async for e in events if e["type"] == "text"])
        """
        if resume is not None:
            return self._follow(_resumed(resume))
        if thread_id is None:
            raise ValueError("thread_id is any string of yours that names the conversation")
        return self._start(None, prompt, thread_id, inputs)

    def run_specialist(
        self,
        specialist: str | AgentSpec,
        prompt: Any,
        thread_id: str | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
    ) -> QueryEvents:
        """Starts a query with one agent, and gives its events as `query` does.

        Args:
            specialist: An agent of the spec, or its name. Any role will do.
            prompt, inputs: As for `query`.
            thread_id: As for `query`; None is a thread of its own.

        Raises:
            ValueError: at once, for an agent that the spec does not have; the rest as `query`.

        Example:
            >>> async def types(runtime):
            ...     return [event["type"] async for event in runtime.run_specialist("helper", "Hi")]
        """
        name = specialist.name if isinstance(specialist, AgentSpec) else specialist
        known = [agent["name"] for agent in self._prepared.wire["agents"]]
        if name not in known:
            raise ValueError(f"the spec has no agent {name!r}{did_you_mean(str(name), known)}")
        return self._start(name, prompt, thread_id, inputs)

    def _start(
        self, agent: str | None, prompt: Any, thread_id: str | None, inputs: Mapping[str, Any] | None
    ) -> QueryEvents:
        if thread_id is not None and not (
            isinstance(thread_id, str) and 0 < len(thread_id) <= MAX_THREAD_ID_CHARS
        ):
            raise ValueError(f"thread_id is a string of 1 to {MAX_THREAD_ID_CHARS} characters")
        asked = {
            "runtimeId": self.id,
            "prompt": prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False),
            "threadKey": thread_id,
            "agent": agent,
            "inputs": None if inputs is None else dict(inputs),
        }
        return self._follow(Journal({key: value for key, value in asked.items() if value is not None}))

    def _follow(self, journal: Journal) -> QueryEvents:
        return QueryEvents(journal, self._client, self._tell)

    async def _tell(self, event: dict[str, Any]) -> None:
        for kind in (event["type"], "*"):
            hook = self._hooks.get(kind)
            if hook is None:
                continue
            try:
                told = hook(event)
                if inspect.isawaitable(told):
                    await told
            except Exception:
                log.exception("the event hook for %r failed", kind)

    async def get_query(self, query_id: str, *, wait_ms: int = 0) -> dict[str, Any]:
        """A query: status, output, usage, open approvals. `wait_ms` waits so long, at most 60,000, for its end.

        Raises:
            NotFound: if there is none. ServiceUnavailable: if the service does not answer.
        """
        answer: dict[str, Any] = await self._client.request(
            "GET",
            path("queries", query_id),
            params={"waitMs": wait_ms} if wait_ms else None,
            timeout_s=READ_TIMEOUT_S + wait_ms / 1000,
        )
        return answer

    async def cancel(self, query_id: str) -> dict[str, Any]:
        """Cancels a query at once, with everything that it called; gives the query. One that is over stays.

        Raises:
            NotFound: if there is none. ServiceUnavailable: if the service does not answer.
        """
        answer: dict[str, Any] = await self._client.request("POST", path("queries", query_id, "cancel"))
        return answer

    async def work(self, query_id: str) -> list[dict[str, Any]]:
        """The work records of a query, oldest first: agents, model calls, tool calls, actions, with parents.

        Raises:
            NotFound: if there is none. ServiceUnavailable: if the service does not answer.
        """
        return await self._items(path("queries", query_id, "work"))

    # -- approvals and plans ---------------------------------------------------------------------------------

    async def respond_to_approval(
        self,
        id: str,
        decision: Literal["approve", "reject", "revise"],
        feedback: str | None = None,
        partial: Any = None,
        *,
        digest: str | None = None,
    ) -> dict[str, Any]:
        """Decides about an approval, and gives it as it stands then.

        Args:
            id: The approval's, from an `approval-required` event's `data`.
            decision: `"revise"` asks for another plan; of a tool call it is a rejection with feedback.
            feedback: What the agent is told.
            partial: With `"revise"`, what may stay.
            digest: That of the approval that was looked at: another one is refused.

        Raises:
            ValueError: for another decision.
            Conflict: if it was decided otherwise, or has another digest. NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def approve_all(runtime, event):
            ...     if event["type"] == "approval-required":
            ...         await runtime.respond_to_approval(event["data"]["id"], "approve")
        """
        if decision not in DECISIONS:
            raise ValueError(f"a decision is one of {', '.join(DECISIONS)}, not {decision!r}")
        said = {"decision": decision, "feedback": feedback, "partial": partial, "digest": digest}
        answer: dict[str, Any] = await self._client.request(
            "POST", path("approvals", id), {key: value for key, value in said.items() if value is not None}
        )
        return answer

    async def get_plan(self, plan_id: str) -> dict[str, Any]:
        """A plan at its current revision, by its `pln_` id.

        Raises:
            NotFound: if there is none. ServiceUnavailable: if the service does not answer.
        """
        answer: dict[str, Any] = await self._client.request("GET", path("plans", plan_id))
        return answer

    async def plan_actions(self, plan_id: str) -> list[dict[str, Any]]:
        """The actions of a plan, in order: status, attempts, results.

        Raises:
            NotFound: if there is none. ServiceUnavailable: if the service does not answer.
        """
        return await self._items(path("plans", plan_id, "actions"))

    # -- references ------------------------------------------------------------------------------------------

    async def create_reference(self, spec: ReferenceSpec | str, payload: Any) -> dict[str, Any]:
        """Stores a value outside of every prompt, and gives its handle: `{"kind", "id", "glimpse"}`.

        Args:
            spec: From `define_reference`, or the name of a kind of the runtime's.
            payload: The value; a model, a dataclass or plain data.

        Raises:
            ValueError: if the value does not match the schema. InvalidRequest: if the service says so.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def keep(runtime, Basket):
            ...     handle = await runtime.create_reference(Basket, {"items": ["tea"]})
            ...     return handle["id"], handle["glimpse"]
        """
        return await self._references.create(spec, payload)

    async def resolve_reference(self, kind: str, id: str) -> Any:
        """The value behind a handle, as JSON.

        Raises:
            NotFound: if there is none. Gone: if it has expired. ServiceUnavailable: if nobody answers.
        """
        return await self._references.resolve(kind, id)

    async def reference_glimpse(self, kind: str, id: str) -> Any:
        """The glimpse of a handle. Raises as `resolve_reference`."""
        return await self._references.glimpse(kind, id)

    @property
    def _references(self) -> ReferenceCalls:
        return ReferenceCalls(self._client, self.id, self._prepared.references)

    @property
    def artifacts(self) -> Any:
        """Not available in this version."""
        raise NotAvailable("artifacts are not available in this version; keep values as references")

    async def _items(self, where: str) -> list[dict[str, Any]]:
        answer = await self._client.request("GET", where)
        items: list[dict[str, Any]] = answer["items"]
        return items


def _resumed(resume: Any) -> Journal:
    if isinstance(resume, str) and resume.startswith("qry_"):
        return Journal(query_id=resume)
    if isinstance(resume, Mapping) and isinstance(resume.get("queryId"), str):
        seen = resume.get("seq", 0)
        if isinstance(seen, int) and seen >= 0:
            return Journal(query_id=resume["queryId"], seen=seen)
    raise ValueError("resume is the id of a query (qry_...), or an event with its queryId and seq")
