"""The verbs of queries: accept, cancel, read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import orjson
from plangate.spec.problems import json_pointer
from plangate.spec.variable_schemas import data_name_problem
from plangate.statuses import QueryStatus

from app.approvals.service import ApprovalService
from app.base.errors import MAX_COLLECTED_ERRORS, Conflict, FieldError, Invalid, NotFound, TooManyRequests
from app.base.ids import is_id, new_id
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.postgres.database import Database, Tx
from app.base.responses import to_wire
from app.base.schema.checker import SchemaChecker
from app.engine import lease_store as queue_store
from app.engine import store
from app.engine.ending import EndHook, end_early
from app.engine.models import QueryRecord
from app.engine.worker import Worker, for_each_due
from app.journal.hub import Hub
from app.journal.models import Event
from app.queries import store as queries_store
from app.queries import threads
from app.queries.states import QUERY_LIFE
from app.queries.views import QuerySummary, QueryView
from app.runtimes.checks import is_priced
from app.runtimes.models import Runtime
from app.runtimes.service import Runtimes
from app.tenancy.models import Caller
from app.workspace.service import lock_thread


@dataclass(frozen=True, slots=True)
class Submission:
    """What `POST /queries` asks for."""

    prompt: str
    runtime_id: str | None = None
    runtime: str | None = None
    thread_id: str | None = None
    thread_key: str | None = None
    agent: str | None = None
    inputs: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None
    approval_expires_in_ms: int | None = None
    metadata: Mapping[str, Any] | None = None
    limits: Mapping[str, Any] | None = None
    if_busy: Literal["queue", "reject", "interrupt"] = "queue"
    follow: bool = False  # whoever asks streams the query from its first event
    traceparent: str | None = None  # the span of whoever asks: the query's own links to it


@dataclass(frozen=True, slots=True)
class AcceptedSubmission:
    """A query that is on record. `running`: this process works on it as soon as the transaction is durable."""

    id: str
    thread_id: str
    runtime_id: str
    status: str
    links: dict[str, str]


def links(query_id: str, public_path: str) -> dict[str, str]:
    """Return the paths of the query's own routes, below the path prefix of the service."""
    base = f"{public_path}/queries/{query_id}"
    return {"self": base} | {name: f"{base}/{name}" for name in ("events", "stream", "cancel", "work")}


class QueryService:
    def __init__(
        self,
        runtimes: Runtimes,
        approvals: ApprovalService,
        schemas: SchemaChecker,
        end_hooks: tuple[EndHook, ...],
        worker: Worker,
        db: Database,
        hub: Hub,
        public_path: str = "",
    ) -> None:
        self._hub = hub
        self._public_path = public_path
        self._db = db
        self._runtimes = runtimes
        self._approvals = approvals
        self._schemas = schemas
        self._end_hooks = end_hooks
        self._worker = worker

    # -- accepting -------------------------------------------------------------------------------------------

    async def submit(self, tx: Tx, caller: Caller, asked: Submission) -> AcceptedSubmission:
        """Write the query, its first events and its root work record; start it here if there is a free
        slot."""
        if asked.if_busy == "interrupt":
            await self._interrupt(tx, asked)
        line = asked.runtime or "default"
        named = asked.runtime_id is None and asked.thread_id is None and asked.thread_key is None
        remembered = self._runtimes.cached_latest_id(tx.tenant, line) if named else None
        if remembered is not None:
            runtime = await self._runtimes.get(tx.tenant, remembered, tx)
            accepted = await self._submit(tx, caller, asked, runtime, line)
            if accepted is not None:
                return accepted
        accepted = await self._submit(tx, caller, asked, await self.runtime_for(tx, asked), None)
        assert accepted is not None  # only a remembered version can be stale
        return accepted

    async def _submit(
        self, tx: Tx, caller: Caller, asked: Submission, runtime: Runtime, line: str | None
    ) -> AcceptedSubmission | None:
        """None when the version, remembered as the newest of `line`, is not that any more."""
        agent = self._agent_for(runtime, asked.agent)
        if runtime.spec.input_schema is not None:
            schema = await offload(self._schemas.compile, runtime.spec.input_schema)
            flaws = await offload(schema.errors, dict(asked.inputs or {}))
            if flaws:
                raise Invalid(
                    "inputs do not match the runtime's inputSchema.",
                    [FieldError("/inputs" + f.pointer, f.message) for f in flaws],
                )
        _check_cost_limit(runtime, asked.limits)
        named = ((name, data_name_problem(name)) for name in asked.data or {})
        found = (FieldError(json_pointer(("data", name)), why) for name, why in named if why)
        problems = list(islice(found, MAX_COLLECTED_ERRORS))
        if problems:
            raise Invalid("`data` has keys that are not valid variable names.", problems)
        return await self._accept(tx, caller, asked, runtime, agent, "agent", line=line)

    async def runtime_for(self, tx: Tx, asked: Submission) -> Runtime:
        """Return the version that the request names, else the one that the thread began with, else the
        newest version of the runtime."""
        runtime_id = asked.runtime_id
        if runtime_id is None:
            name = asked.runtime or "default"
            kept = await self._thread_runtime(tx, asked)
            if kept is not None and kept.name == name:
                return kept
            runtime_id = await self._runtimes.latest_id(tx, name)
        return await self._runtimes.get(tx.tenant, runtime_id, tx)

    async def _thread_runtime(self, tx: Tx, asked: Submission) -> Runtime | None:
        row = await threads.find_thread(tx, asked.thread_id, asked.thread_key)
        if row is None or row["runtime_id"] is None:
            return None
        return await self._runtimes.get(tx.tenant, row["runtime_id"], tx)

    def _agent_for(self, runtime: Runtime, agent: str | None) -> str:
        known = ", ".join(runtime.agents)
        if agent is None:
            entry = runtime.entry_agent()
            if entry is None:
                entries = runtime.coordinators
                reason = (
                    f"The runtime has {len(entries)} coordinators, so the query must name an agent."
                    if entries
                    else "The runtime has no coordinator, so the query must name an agent."
                )
                raise Invalid(reason, [FieldError("/agent", f"one of: {', '.join(entries) or known}")])
            return entry
        if agent not in runtime.agents:
            raise Invalid(f"The runtime has no agent {agent!r}.", [FieldError("/agent", f"one of: {known}")])
        return agent

    async def _interrupt(self, tx: Tx, asked: Submission) -> None:
        row = await threads.find_thread(tx, asked.thread_id, asked.thread_key)
        if row is not None and await queries_store.lock_thread(
            tx, row["id"]
        ):  # the lock order: the thread first
            for query_id in await queries_store.active_in_thread(tx, row["id"]):
                await self.cancel(tx, query_id, "interrupted")

    async def _accept(
        self,
        tx: Tx,
        caller: Caller,
        asked: Submission,
        runtime: Runtime,
        agent: str,
        kind: str,
        extra: Mapping[str, Any] | None = None,
        line: str | None = None,
    ) -> AcceptedSubmission | None:
        query_id, new_thread = new_id("qry_"), new_id("thr_")
        request = {
            "inputs": asked.inputs,
            "data": asked.data,
            "approvalExpiresInMs": asked.approval_expires_in_ms,
            "metadata": asked.metadata,
            "limits": asked.limits,
            "traceparent": asked.traceparent,
            **(extra or {}),
        }
        request = {k: v for k, v in request.items() if v is not None}
        worker = self._worker if self._worker.reserve() else None
        began = False
        try:
            row = await queries_store.submit(
                tx,
                query_id,
                asked.thread_id,
                new_thread,
                asked.thread_key,
                runtime.id,
                kind,
                agent,
                caller.principal,
                asked.prompt,
                strict_json.dumps(request),
                asked.if_busy,
                worker.owner if worker else None,
                self._worker.lease_s,
                line,
            )
            outcome, thread_id = row["outcome"], row["thread_id"]
            if outcome == "stale":
                return None
            self._refuse(outcome, asked)
            if asked.follow:
                first = [Event("query-status", body) for body in row["bodies"]]
                tx.after_commit(lambda: self._hub.hold_first_events((tx.tenant, query_id), first))
            if worker is not None and outcome == "started":
                record = QueryRecord(
                    tx.tenant,
                    query_id,
                    thread_id,
                    runtime.id,
                    kind,
                    agent,
                    caller.principal,
                    asked.prompt,
                    request,
                    thread_is_new=thread_id == new_thread,
                )
                tx.after_commit(lambda: worker.begin(tx.tenant, query_id, row["epoch"], record))
                tx.after_rollback(worker.unreserve)
                began = True
        finally:
            if worker is not None and not began:
                worker.unreserve()
        status = "running" if outcome == "started" else "queued"
        return AcceptedSubmission(query_id, thread_id, runtime.id, status, self.links(query_id))

    def links(self, query_id: str) -> dict[str, str]:
        """Return the paths of the query's own routes."""
        return links(query_id, self._public_path)

    async def accept_plan(
        self, tx: Tx, caller: Caller, asked: Submission, runtime: Runtime, plan_id: str
    ) -> AcceptedSubmission:
        """Accept a query of kind `plan`, which executes a stored plan through its gate, without a model."""
        accepted = await self._accept(tx, caller, asked, runtime, "", "plan", {"planId": plan_id})
        assert accepted is not None  # the version is named
        return accepted

    async def accept_profile(
        self, tx: Tx, caller: Caller, asked: Submission, runtime: Runtime, source: str
    ) -> AcceptedSubmission:
        """Accept a query of kind `profile`, which reads a data source into the catalog, without a model."""
        accepted = await self._accept(tx, caller, asked, runtime, "", "profile", {"source": source})
        assert accepted is not None  # the version is named
        return accepted

    async def thread_for(self, tx: Tx, asked: Submission, runtime: Runtime) -> str:
        """Return the thread that the request names, created on first use of a key; a new thread if it names
        none."""
        if asked.thread_id is not None:
            await lock_thread(tx, asked.thread_id)
            return asked.thread_id
        return await queries_store.make_thread(tx, new_id("thr_"), asked.thread_key, runtime.id)

    async def hold_thread(self, tx: Tx, thread_id: str) -> None:
        """Locks the thread for who locks a plan of it and then submits a query to it (the lock order). Raises
        NotFound."""
        if not await queries_store.lock_thread(tx, thread_id):
            raise NotFound(f"There is no thread {thread_id!r}.")

    def _refuse(self, outcome: str, asked: Submission) -> None:
        if outcome == "no_thread":
            raise NotFound(f"There is no thread {asked.thread_id!r}.")
        if outcome == "busy":
            raise Conflict(
                "The thread has an active query. Wait for it, or send ifBusy 'queue' or 'interrupt'."
            )
        if outcome == "retired":
            raise Conflict("This version of the runtime is retired; register it again, or name another.")
        if outcome == "full":
            raise TooManyRequests("The tenant's queue is full; wait for queries to finish.", retry_after_s=5)

    # -- ending ----------------------------------------------------------------------------------------------

    async def cancel(self, tx: Tx, query_id: str, reason: str = "cancelled") -> str:
        """Cancel the query in this transaction: a higher epoch fences off the process that works on it, so
        nothing new is dispatched. Gates close, and offered calls are withdrawn. Return the status, also
        if the query had ended."""
        return await self._end(tx, query_id, "cancelled", reason, "The query was cancelled.")

    async def _end(
        self, tx: Tx, query_id: str, to: Literal["failed", "cancelled"], reason: str, message: str
    ) -> str:
        """End a query from outside its run. No other code does."""
        row = await store.lock_for_end(tx, query_id) if is_id("qry_", query_id) else None
        if row is None:
            raise NotFound(f"There is no query {query_id!r}.")
        status: QueryStatus = row["status"]
        if status in QUERY_LIFE.terminal:
            return status
        await end_early(tx, self._end_hooks, query_id, to, reason, message)
        tx.after_commit(lambda: self._worker.drop(query_id))
        return to

    # -- limits ----------------------------------------------------------------------------------------------

    async def resume(self, tx: Tx, query_id: str, limits: Mapping[str, Any]) -> None:
        """Raise the limits of a query that stopped at one; the query continues where it stopped."""
        row = await store.lock_for_end(tx, query_id) if is_id("qry_", query_id) else None
        if row is None:
            raise NotFound(f"There is no query {query_id!r}.")
        kept = await store.request(tx, query_id)
        if kept["status"] != "waiting" or kept["reason"] != "limit_reached":
            raise Conflict(f"The query is {kept['status']}; only one that waits at a limit can be resumed.")
        if "maxCostUsd" in limits:
            record = await store.load_query(tx, query_id)
            assert record is not None  # its row is locked
            _check_cost_limit(await self._runtimes.get(tx.tenant, record.runtime_id, tx), limits)
        request = orjson.loads(kept["request"])
        request["limits"] = {**request.get("limits", {}), **limits}
        await store.set_request(tx, query_id, strict_json.dumps(request))
        await queue_store.wake(tx, query_id)

    async def fail_due_limits(self) -> int:
        """Fails what waited at a limit for seven days."""
        due = await queries_store.due_limits(self._db, 100)
        await for_each_due(due, self._fail_at_limit)
        return len(due)

    async def _fail_at_limit(self, tenant: str, query_id: str) -> None:
        async with self._db.transaction(tenant) as tx:
            await store.lock_for_end(tx, query_id)
            if await queries_store.is_past_limit(tx, query_id):  # else somebody raised it meanwhile
                told = "The query stopped at a limit that nobody raised."
                await self._end(tx, query_id, "failed", "limit_reached", told)

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(self, tx: Tx, query_id: str) -> dict[str, Any]:
        row = await queries_store.full(tx, query_id) if is_id("qry_", query_id) else None
        if row is None:
            raise NotFound(f"There is no query {query_id!r}.")
        approvals = await self._approvals.open_of_query(tx, query_id)
        return to_wire(QueryView, _summary(row), open_approvals=approvals, links=self.links(query_id))

    async def exists(self, tx: Tx, query_id: str) -> None:
        """NotFound unless the tenant has this query."""
        if not is_id("qry_", query_id) or await store.load_query(tx, query_id) is None:
            raise NotFound(f"There is no query {query_id!r}.")

    async def page(
        self, tx: Tx, before: str | None, filters: list[str | None], limit: int
    ) -> list[dict[str, Any]]:
        return [
            to_wire(QuerySummary, _summary(row), links=self.links(row["id"]))
            for row in await queries_store.page(tx, before, *filters, limit)
        ]


def _check_cost_limit(runtime: Runtime, limits: Mapping[str, Any] | None) -> None:
    """Invalid where a query asks for a limit on its cost that nobody could keep."""
    if "maxCostUsd" not in (limits or {}):
        return
    unknown = [a for a in runtime.spec.agents if not is_priced(runtime.spec, a)]
    if unknown:
        told = f"no price is known for {unknown[0].model.id!r}, the model of agent {unknown[0].name!r}: use maxTokens"
        raise Invalid("This limit could not be kept.", [FieldError("/limits/maxCostUsd", told)])


def _summary(row: Any) -> dict[str, Any]:
    """Return the columns of a query with what its request says."""
    request = orjson.loads(row["request"])
    asked = {
        "inputs": request.get("inputs"),
        "metadata": request.get("metadata"),
        "plan_id": request.get("planId"),
    }
    return {**row, **asked}
