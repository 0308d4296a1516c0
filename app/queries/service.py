"""Accept, cancel, resume and read queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, assert_never

import orjson
from plangate.json_pointer import json_pointer
from plangate.spec.variable_schemas import data_name_problem

from app.approvals.service import ApprovalService
from app.base.errors import (
    MAX_COLLECTED_ERRORS,
    Conflict,
    FieldError,
    Invalid,
    NotFound,
    PlangateError,
    TooManyRequests,
)
from app.base.ids import is_id, new_id
from app.base.json import strict_json
from app.base.json.offload import is_small, offload
from app.base.postgres.database import Database, Tx
from app.base.responses import to_wire
from app.base.schema.checker import CompiledSchema, SchemaChecker
from app.engine.ending import EndHook, end_early
from app.engine.models import LockedQuery, QueryRecord
from app.engine.service import load_query, lock_for_end, save_request, wake_query
from app.engine.worker import Worker, for_each_due
from app.journal.hub import Hub
from app.journal.models import Event
from app.queries import store
from app.queries.models import (
    AcceptedSubmission,
    NewQuery,
    QueryFilter,
    QueryKind,
    QueryRow,
    Submission,
    SubmitOutcome,
    SubmitResult,
)
from app.queries.shared_submissions import SharedSubmissions, SubmissionResult
from app.queries.states import QUERY_LIFE
from app.queries.views import QuerySummary, QueryView
from app.runtimes.checks import is_priced
from app.runtimes.models import Runtime
from app.runtimes.service import Runtimes
from app.tenancy.models import Caller
from app.workspace.service import lock_thread

DEFAULT_RUNTIME: Final = "default"
DUE_BATCH: Final = 100  # queries that are failed at their limits in one round


def links(query_id: str, public_path: str) -> dict[str, str]:
    """Return the paths of the query's own routes, below the path prefix of the service."""
    base = f"{public_path}/queries/{query_id}"
    return {"self": base} | {name: f"{base}/{name}" for name in ("events", "stream", "cancel", "work")}


@dataclass(frozen=True, slots=True)
class CompiledInputs:
    """The compiled `inputSchema` of a version of a runtime."""

    runtime_id: str
    schema: CompiledSchema


class InputSchemaNotCompiled(Exception):
    """The `inputSchema` of the runtime has to be compiled before the transaction that accepts a query."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime.id)
        self.runtime = runtime


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
        self._shared = SharedSubmissions(db, self._accept_all)

    # -- accepting -------------------------------------------------------------------------------------------

    async def compile_inputs(self, runtime: Runtime) -> CompiledInputs:
        """Compile the `inputSchema` of a runtime that has one. Call it outside of transactions: a large schema takes
        seconds."""
        schema = runtime.spec.input_schema or {}
        return CompiledInputs(runtime.id, await offload(self._schemas.compile, schema))

    async def submit_shared(self, caller: Caller, submission: Submission) -> AcceptedSubmission | None:
        """Accept a query in a transaction that it may share with others of its tenant; it is durable when this returns.

        Return None if that is not possible: `submit` accepts it in a transaction of its own. A query that names a thread
        waits for locks, the newest version of a runtime and its compiled `inputSchema` may have to be read, and large
        queries together would occupy the process and the database for too long.
        """
        runtime = self._cached_runtime(caller.tenant, submission)
        if runtime is None:
            return None
        try:
            agent = await self._check(runtime, submission, None)
        except InputSchemaNotCompiled:
            return None
        query = _new_query(
            caller, submission, runtime.id, "agent", agent, newest_of=submission.runtime or DEFAULT_RUNTIME
        )
        if not is_small([submission.prompt, query.request]):
            return None
        return await self._shared.accept(caller.tenant, query)

    def _cached_runtime(self, tenant: str, submission: Submission) -> Runtime | None:
        """Return the newest version of the runtime that this process has cached. Return None if the request names a version or
        a thread."""
        if (
            submission.runtime_id is not None
            or submission.thread_id is not None
            or submission.thread_key is not None
        ):
            return None
        newest_id = self._runtimes.cached_latest_id(tenant, submission.runtime or DEFAULT_RUNTIME)
        return None if newest_id is None else self._runtimes.cached(tenant, newest_id)

    async def submit(
        self, tx: Tx, caller: Caller, submission: Submission, compiled: CompiledInputs | None = None
    ) -> AcceptedSubmission:
        """Write the query, its first events and its root work record; start it here if there is a free
        slot. Raise InputSchemaNotCompiled if `compiled` and the cache lack the runtime's `inputSchema`: roll back, compile
        it, and try again."""
        if submission.if_busy == "interrupt":
            await self._interrupt(tx, submission)
        cached = self._cached_runtime(tx.tenant, submission)
        if cached is not None:
            agent = await self._check(cached, submission, compiled)
            name = submission.runtime or DEFAULT_RUNTIME
            query = _new_query(caller, submission, cached.id, "agent", agent, newest_of=name)
            accepted = await self._accept(tx, query)
            if accepted is not None:
                return accepted
        runtime = await self.runtime_for(tx, submission)
        agent = await self._check(runtime, submission, compiled)
        return await self._accept_named(tx, _new_query(caller, submission, runtime.id, "agent", agent))

    async def _check(self, runtime: Runtime, submission: Submission, compiled: CompiledInputs | None) -> str:
        """Return the agent that the query starts with. Raise Invalid for what the runtime does not allow."""
        agent = self._agent_for(runtime, submission.agent)
        if runtime.spec.input_schema is not None:
            schema = (
                compiled.schema
                if compiled is not None and compiled.runtime_id == runtime.id
                else await offload(self._schemas.find, runtime.spec.input_schema)
            )
            if schema is None:
                raise InputSchemaNotCompiled(runtime)
            errors = await offload(schema.errors, dict(submission.inputs or {}))
            if errors:
                raise Invalid(
                    "inputs do not match the runtime's inputSchema.",
                    [FieldError("/inputs" + e.pointer, e.message) for e in errors],
                )
        _check_cost_limit(runtime, submission.limits)
        problems = ((name, data_name_problem(name)) for name in submission.data or {})
        invalid = (FieldError(json_pointer(("data", name)), problem) for name, problem in problems if problem)
        invalid_names = list(islice(invalid, MAX_COLLECTED_ERRORS))
        if invalid_names:
            raise Invalid("`data` has keys that are not valid variable names.", invalid_names)
        return agent

    async def runtime_for(self, tx: Tx, submission: Submission) -> Runtime:
        """Return the version that the request names, else the one that the thread began with, else the
        newest version of the runtime."""
        runtime_id = submission.runtime_id
        if runtime_id is None:
            name = submission.runtime or DEFAULT_RUNTIME
            of_thread = await self._thread_runtime(tx, submission)
            if of_thread is not None and of_thread.name == name:
                return of_thread
            runtime_id = await self._runtimes.latest_id(tx, name)
        return await self._runtimes.get(tx.tenant, runtime_id, tx)

    async def _thread_runtime(self, tx: Tx, submission: Submission) -> Runtime | None:
        thread = await store.find_thread(tx, thread_id=submission.thread_id, key=submission.thread_key)
        if thread is None or thread.runtime_id is None:
            return None
        return await self._runtimes.get(tx.tenant, thread.runtime_id, tx)

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

    async def _interrupt(self, tx: Tx, submission: Submission) -> None:
        thread = await store.find_thread(tx, thread_id=submission.thread_id, key=submission.thread_key)
        # The lock order: the thread first.
        if thread is not None and await store.lock_thread(tx, thread_id=thread.id):
            for query_id in await store.active_in_thread(tx, thread_id=thread.id):
                await self.cancel(tx, query_id, "interrupted")

    async def _accept(self, tx: Tx, query: NewQuery) -> AcceptedSubmission | None:
        """Write the query; with a free slot, start it here after the commit. Return None if its runtime is not the newest
        version of `newest_of`."""
        (outcome,) = await self._accept_all(tx, [query])
        if isinstance(outcome, PlangateError):
            raise outcome
        return outcome

    async def _accept_named(self, tx: Tx, query: NewQuery) -> AcceptedSubmission:
        """Write a query that names its version."""
        accepted = await self._accept(tx, query)
        assert accepted is not None
        return accepted

    async def _accept_all(self, tx: Tx, queries: Sequence[NewQuery]) -> list[SubmissionResult]:
        """Write the queries; as far as there are free slots, start them here after the commit."""
        worker = self._worker
        reserved = [worker.reserve() for _ in queries]
        is_started = [False] * len(queries)
        try:
            results = await store.submit(
                tx,
                queries=queries,
                owners=[worker.owner if has_slot else None for has_slot in reserved],
                lease_s=worker.lease_s,
            )
            for n, result in enumerate(results):
                if result.outcome == "started":
                    self._start_after_commit(tx, queries[n], result)
                    is_started[n] = True
        finally:
            for has_slot, has_started in zip(reserved, is_started, strict=True):
                if has_slot and not has_started:
                    worker.unreserve()
        return [self._outcome(tx, *pair) for pair in zip(queries, results, strict=True)]

    def _start_after_commit(self, tx: Tx, query: NewQuery, result: SubmitResult) -> None:
        """Start the query in the slot that is reserved for it, once it is durable."""
        record = QueryRecord(
            tenant=tx.tenant,
            id=query.id,
            thread_id=result.thread_id,
            runtime_id=query.runtime_id,
            kind=query.kind,
            agent=query.agent,
            principal=query.principal,
            prompt=query.submission.prompt,
            request=dict(query.request),
            thread_is_new=result.thread_id == query.new_thread_id,
        )
        tx.after_commit(lambda: self._worker.begin(result.epoch, record))
        tx.after_rollback(self._worker.unreserve)

    def _outcome(self, tx: Tx, query: NewQuery, result: SubmitResult) -> SubmissionResult:
        """Return what was accepted, or why nothing was."""
        try:
            status = _accepted_status(result.outcome, query.submission)
        except PlangateError as error:
            return error
        if status is None:
            return None
        if query.submission.follow:
            first = [Event("query-status", body) for body in result.bodies]
            tx.after_commit(lambda: self._hub.hold_first_events((tx.tenant, query.id), first))
        return AcceptedSubmission(query.id, result.thread_id, query.runtime_id, status, self.links(query.id))

    def links(self, query_id: str) -> dict[str, str]:
        """Return the paths of the query's own routes."""
        return links(query_id, self._public_path)

    async def accept_plan(
        self, tx: Tx, caller: Caller, submission: Submission, runtime: Runtime, plan_id: str
    ) -> AcceptedSubmission:
        """Accept a query of kind `plan`, which executes a stored plan through its gate, without a model."""
        query = _new_query(caller, submission, runtime.id, "plan", "", {"planId": plan_id})
        return await self._accept_named(tx, query)

    async def accept_profile(
        self, tx: Tx, caller: Caller, submission: Submission, runtime: Runtime, source: str
    ) -> AcceptedSubmission:
        """Accept a query of kind `profile`, which reads a data source into the catalog, without a model."""
        query = _new_query(caller, submission, runtime.id, "profile", "", {"source": source})
        return await self._accept_named(tx, query)

    async def thread_for(self, tx: Tx, submission: Submission, runtime: Runtime) -> str:
        """Return the thread that the request names, created on first use of a key; a new thread if it names
        none."""
        if submission.thread_id is not None:
            await lock_thread(tx, submission.thread_id)
            return submission.thread_id
        return await store.create_thread(
            tx, thread_id=new_id("thr_"), key=submission.thread_key, runtime_id=runtime.id
        )

    async def hold_thread(self, tx: Tx, thread_id: str) -> None:
        """Lock the thread, before a plan of it is locked and a query is submitted to it (the lock order). Raise
        NotFound."""
        if not await store.lock_thread(tx, thread_id=thread_id):
            raise NotFound(f"There is no thread {thread_id!r}.")

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
        query = await self._lock(tx, query_id)
        if query.status in QUERY_LIFE.terminal:
            return query.status
        await end_early(tx, self._end_hooks, query_id, to, reason, message)
        tx.after_commit(lambda: self._worker.drop(query_id))
        return to

    async def _lock(self, tx: Tx, query_id: str) -> LockedQuery:
        query = await lock_for_end(tx, query_id=query_id) if is_id("qry_", query_id) else None
        if query is None:
            raise NotFound(f"There is no query {query_id!r}.")
        return query

    # -- limits ----------------------------------------------------------------------------------------------

    async def resume(self, tx: Tx, query_id: str, limits: Mapping[str, Any]) -> None:
        """Raise the limits of a query that stopped at one; the query continues where it stopped."""
        query = await self._lock(tx, query_id)
        if query.status != "waiting" or query.reason != "limit_reached":
            raise Conflict(f"The query is {query.status}; only one that waits at a limit can be resumed.")
        record = await load_query(tx, query_id=query_id)
        assert record is not None  # its row is locked
        if "maxCostUsd" in limits:
            _check_cost_limit(await self._runtimes.get(tx.tenant, record.runtime_id, tx), limits)
        request = {**record.request, "limits": {**record.request.get("limits", {}), **limits}}
        await save_request(tx, query_id=query_id, request=strict_json.dumps(request))
        await wake_query(tx, query_id=query_id)

    async def fail_due_limits(self) -> int:
        """Fail queries that have waited at a limit for seven days. Return how many were due."""
        due = await store.due_limits(self._db, limit=DUE_BATCH)
        await for_each_due(due, self._fail_at_limit)
        return len(due)

    async def _fail_at_limit(self, tenant: str, query_id: str) -> None:
        async with self._db.transaction(tenant) as tx:
            await lock_for_end(tx, query_id=query_id)
            if await store.is_past_limit(tx, query_id=query_id):  # else somebody raised it meanwhile
                message = "The query stopped at a limit that nobody raised."
                await self._end(tx, query_id, "failed", "limit_reached", message)

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(self, tx: Tx, query_id: str) -> dict[str, Any]:
        """Return the query as `GET /queries/{id}` shows it. Raise NotFound."""
        row = await store.load_query(tx, query_id=query_id) if is_id("qry_", query_id) else None
        if row is None:
            raise NotFound(f"There is no query {query_id!r}.")
        return self._view(QueryView, row, open_approvals=await self._approvals.open_of_query(tx, query_id))

    async def require(self, tx: Tx, query_id: str) -> None:
        """Raise NotFound unless the tenant has this query."""
        if not is_id("qry_", query_id) or await load_query(tx, query_id=query_id) is None:
            raise NotFound(f"There is no query {query_id!r}.")

    async def page(
        self, tx: Tx, after: str | None, filters: QueryFilter, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return up to `limit` queries as `GET /queries` lists them, and the id after which the next page begins, or None on
        the last."""
        rows, last = await store.query_page(tx, after=after, filters=filters, limit=limit)
        return [self._view(QuerySummary, row) for row in rows], last

    def _view(self, model: type[QuerySummary], row: QueryRow, **derived: Any) -> dict[str, Any]:
        request = orjson.loads(row.request)
        return to_wire(
            model,
            row,
            inputs=request.get("inputs"),
            metadata=request.get("metadata"),
            plan_id=request.get("planId"),
            links=self.links(row.id),
            **derived,
        )


def _new_query(
    caller: Caller,
    submission: Submission,
    runtime_id: str,
    kind: QueryKind,
    agent: str,
    extra: Mapping[str, Any] | None = None,
    newest_of: str | None = None,
) -> NewQuery:
    request = {
        "inputs": submission.inputs,
        "data": submission.data,
        "approvalExpiresInMs": submission.approval_expires_in_ms,
        "metadata": submission.metadata,
        "limits": submission.limits,
        "traceparent": submission.traceparent,
        **(extra or {}),
    }
    return NewQuery(
        id=new_id("qry_"),
        new_thread_id=new_id("thr_"),
        submission=submission,
        runtime_id=runtime_id,
        kind=kind,
        agent=agent,
        principal=caller.principal,
        request={k: v for k, v in request.items() if v is not None},
        newest_of=newest_of,
    )


def _accepted_status(outcome: SubmitOutcome, submission: Submission) -> Literal["queued", "running"] | None:
    """Return the status of the new query, or None if the runtime is not the newest version. Raise the error of any other
    outcome."""
    match outcome:
        case "started":
            return "running"
        case "accepted":
            return "queued"
        case "stale":
            return None
        case "no_thread":
            raise NotFound(f"There is no thread {submission.thread_id!r}.")
        case "busy":
            raise Conflict(
                "The thread has an active query. Wait for it, or send ifBusy 'queue' or 'interrupt'."
            )
        case "retired":
            raise Conflict("This version of the runtime is retired; register it again, or name another.")
        case "full":
            raise TooManyRequests("The tenant's queue is full; wait for queries to finish.", retry_after_s=5)
        case _:
            assert_never(outcome)


def _check_cost_limit(runtime: Runtime, limits: Mapping[str, Any] | None) -> None:
    """Raise Invalid for a limit on the cost of a query that has an agent without a known price."""
    if "maxCostUsd" not in (limits or {}):
        return
    unknown = [a for a in runtime.spec.agents if not is_priced(runtime.spec, a)]
    if unknown:
        message = f"no price is known for {unknown[0].model.id!r}, the model of agent {unknown[0].name!r}: use maxTokens"
        raise Invalid("This limit could not be kept.", [FieldError("/limits/maxCostUsd", message)])
