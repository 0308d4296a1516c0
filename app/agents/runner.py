"""The runner: takes the steps of the loop, records each before the next, and continues where the records end.

It decides nothing about the conversation (loop.py does) and knows no vendor, no transport and no plan.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from plangate.spec.file_toolkits import WRITE
from plangate.spec.memory_toolkit import RECALL
from plangate.spec.models import AgentSpec
from plangate.spec.toolkits import builtin_tools
from plangate.spec.variable_schemas import has_variables

from app.agents.builtin_tools.workspace import workspace_note
from app.agents.limits import AgentLimits
from app.agents.loop import (
    CallModel,
    CheckAnswer,
    FailRun,
    FinishRun,
    RunTools,
    Transcript,
    next_step,
    with_objection,
)
from app.agents.memory import load_memory
from app.agents.model_calls import ModelCaller, TurnFailed, call_model
from app.agents.prompt_window import PromptRecord
from app.agents.providers import ProviderPool, ProviderUnavailable
from app.agents.resolved_values import restore_values
from app.agents.transcript import load_transcript
from app.artifacts.models import Artifact
from app.artifacts.service import ArtifactService
from app.base.errors import Unavailable
from app.base.ids import new_id
from app.base.json import strict_json
from app.base.json.offload import offload, weight
from app.base.logs.structured import structlog
from app.base.postgres.database import Database
from app.base.schema.checker import SchemaChecker
from app.calls.models import TurnCall
from app.calls.tool_calls import ToolCalls
from app.calls.toolkit import AgentTools, ToolCall
from app.engine.ending import EndHook, end_early, summary_events
from app.engine.models import QueryRecord, WorkEntry, WorkTree
from app.engine.query_run import Parked, QueryFailed, QueryRun, retry_while_unavailable
from app.engine.service import load_query, load_work, lock_lease, mark_for_ending, mark_loaded, postpone_query
from app.engine.work_data import work_data
from app.engine.worker import ActiveQuery
from app.events import (
    DataToolAgentEvent,
    FinishEvent,
    QueryStatusEvent,
    ToolAgentEvent,
    WorkEndEvent,
    WorkStartEvent,
)
from app.journal.models import Entry, Event, Lease, LeaseLost, QueryChange, Scope, Work, event
from app.journal.writer import JournalWriter
from app.references.service import ReferenceService
from app.runtimes.models import Runtime
from app.runtimes.service import Runtimes
from app.tools.ledger import offered_calls
from app.tools.results import Answer, ToolError, ToolResult
from app.variables.service import VariableService

log = structlog.get_logger(__name__)

MAX_TURNS = 50


@dataclass(frozen=True, slots=True)
class AgentResult:
    """The end of an agent's run. `entry` closes its record; the caller commits it with what follows."""

    text: str
    finish_reason: str
    entry: Entry
    error_code: str | None = None
    work_id: str | None = None


class Runner:
    """Advances queries for the worker."""

    def __init__(
        self,
        db: Database,
        journal: JournalWriter,
        runtimes: Runtimes,
        providers: ProviderPool,
        tool_calls: ToolCalls,
        host_queries: Mapping[str, Callable[[QueryRun], Awaitable[ToolResult]]],
        end_hooks: tuple[EndHook, ...],
        schemas: SchemaChecker,
        variables: VariableService,
        artifacts: ArtifactService,
        references: ReferenceService,
        limits: AgentLimits,
    ) -> None:
        self._limits = limits
        self._references = references
        self._artifacts = artifacts
        self._schemas = schemas
        self._variables = variables
        self._db = db
        self._journal = journal
        self._runtimes = runtimes
        self._providers = providers
        self._tool_calls = tool_calls
        self._host_queries = host_queries
        self._end_hooks = end_hooks

    async def advance(self, running: ActiveQuery) -> None:
        """Work on a query until it is over, parked, or lost. Only cancellation raises."""
        lease = running.lease
        try:
            failed = await self._work_on(running)
            if failed is not None:
                await self._fail(lease, failed)
        except Parked:
            return
        except LeaseLost:
            log.warning("query.lease_lost", query_id=lease.query_id)
            self._db.metrics.leases_lost.inc()
        except Unavailable as error:
            log.warning("query.abandoned", query_id=lease.query_id, error=error)
        except Exception:
            log.exception("query.internal_error", query_id=lease.query_id)

    async def _work_on(self, running: ActiveQuery) -> QueryFailed | None:
        """Work on a query. Return why it must be ended as failed, or None."""
        lease = running.lease
        run: QueryRun | None = None
        try:
            run = await retry_while_unavailable(lambda: self._load(running))
            if running.load_failures:
                await run.in_fenced_transaction(lambda tx: mark_loaded(tx, lease=lease))
            await self._root(run)
        except QueryFailed as failed:
            return failed
        except (Parked, LeaseLost, Unavailable):
            raise
        except Exception as error:
            log.exception("query.internal_error", query_id=lease.query_id)
            name = type(error).__name__
            if run is not None:
                return QueryFailed("internal_error", f"Internal error ({name}).")
            if running.load_failures + 1 >= self._limits.max_loads:
                return QueryFailed(
                    "internal_error",
                    f"The service could not load this query, {self._limits.max_loads} times in a row ({name}). Its log says "
                    "why, under the query's id.",
                )
            await self._postpone(lease, self._limits.reload_after_s * 2**running.load_failures)
        finally:
            if run is not None:
                await run.aclose()
        return None

    async def _postpone(self, lease: Lease, delay_s: float) -> None:
        """Give back a query that could not be loaded; another attempt follows after `delay_s` seconds."""

        async def once() -> None:
            async with self._db.transaction(lease.tenant) as tx:
                await postpone_query(tx, lease=lease, delay_s=delay_s)

        await retry_while_unavailable(once)
        lease.lost = True

    async def _load(self, running: ActiveQuery) -> QueryRun:
        query, rows, offered = await self._records(running)
        runtime = await self._runtimes.get(running.lease.tenant, query.runtime_id)
        return QueryRun(self._db, self._journal, running, query, runtime, WorkTree.of(rows), offered)

    async def _records(self, running: ActiveQuery) -> tuple[QueryRecord, list[WorkEntry], list[str]]:
        """Return the query, its work records and, if a call is in flight, the work ids of all calls that
        were ever offered."""
        if running.record is not None:
            return running.record, [], []
        lease = running.lease
        async with self._db.transaction(lease.tenant) as tx:
            query = await load_query(tx, query_id=lease.query_id)
            if query is None:
                raise LeaseLost
            rows = await load_work(tx, query_id=lease.query_id)
            in_flight = any(r.kind in ("tool_call", "predicate") and not r.over for r in rows)
            return query, rows, await offered_calls(tx, lease.query_id) if in_flight else []

    async def _fail(self, lease: Lease, failed: QueryFailed) -> None:
        """End the query as failed in one transaction, with everything that is still open below it. If that fails, the query
        is fenced, and a periodic task ends it step by step (app/engine/ending.py)."""

        async def end() -> None:
            async with self._db.transaction(lease.tenant) as tx:
                if not await lock_lease(tx, lease=lease):
                    raise LeaseLost
                await end_early(tx, self._end_hooks, lease.query_id, "failed", failed.code, failed.message)

        async def mark() -> None:
            async with self._db.transaction(lease.tenant) as tx:
                await mark_for_ending(
                    tx, query_id=lease.query_id, epoch=lease.epoch, code=failed.code, message=failed.message
                )

        try:
            await retry_while_unavailable(end)
        except LeaseLost:
            raise
        except Exception:
            log.exception("query.end_failed", query_id=lease.query_id)
            await retry_while_unavailable(mark)
        lease.lost = True

    # -- the root --------------------------------------------------------------------------------------------

    async def _root(self, run: QueryRun) -> None:
        root = run.query.root_work_id
        if run.query.kind in self._host_queries:
            outcome = await self._host_queries[run.query.kind](run)
            failed = isinstance(outcome, ToolError)
            text = outcome.message if isinstance(outcome, ToolError) else orjson.dumps(outcome.value).decode()
            result = AgentResult(
                text,
                "error" if failed else "end_turn",
                Entry(),
                f"{run.query.kind}_failed" if failed else None,
            )
        else:
            agent = run.runtime.agents[run.query.agent]
            result = await self._run_agent(run, agent, run.query.prompt, root, 0)
        await self._finish(run, result)

    async def _finish(self, run: QueryRun, result: AgentResult) -> None:
        entry = result.entry
        if result.error_code is not None:
            if entry.items or entry.work:
                await run.commit(entry)
            raise QueryFailed(result.error_code, result.text)
        scope = run.scope(run.query.root_work_id, None, run.query.agent)
        output, totals = orjson.dumps(result.text), run.totals()
        entry.items += [
            *summary_events(scope, totals),
            event(scope, QueryStatusEvent, from_="running", to="succeeded"),
            event(
                scope,
                FinishEvent,
                finish_reason=result.finish_reason,
                usage=totals.to_wire()["usage"],
                output=result.text,
            ),
        ]
        root = Work(
            id=run.query.root_work_id,
            parent_id=None,
            kind="query",
            name=run.query.kind,
            agent=run.query.agent,
            status="succeeded",
            output=output,
        )
        entry.work.append(root)
        entry.change = QueryChange("succeeded", output=output)
        await run.commit(entry)

    # -- an agent --------------------------------------------------------------------------------------------

    async def _run_agent(
        self,
        run: QueryRun,
        agent: AgentSpec,
        prompt: str,
        parent_id: str,
        depth: int,
        opening: Event | None = None,
    ) -> AgentResult:
        """Run an agent from where its records end. `opening` is the event before its start, which a new run emits."""
        record = next(iter(run.tree.below(parent_id, "agent")), None)
        if record is not None and record.over:  # a crash came after its end
            return _result_from_record(record)
        work = Work(
            id=record.id if record else new_id("wrk_"),
            parent_id=parent_id,
            kind="agent",
            name=agent.name,
            agent=agent.name,
            status="running",
            input=prompt.encode(),
        )
        entry = Entry()
        if record is None:
            began = event(run.scope(work.id, parent_id, agent.name), WorkStartEvent, data=work_data(work))
            entry = Entry([opening, began] if opening else [began], [work])
        return await self._run_turns(run, agent, work, entry, prompt, depth)

    async def _run_turns(
        self, run: QueryRun, agent: AgentSpec, work: Work, entry: Entry, prompt: str, depth: int
    ) -> AgentResult:
        scope = run.scope(work.id, work.parent_id, agent.name)
        tools = self._tools(run.runtime, agent)
        state = await restore_values(run, self._references, load_transcript(run.tree, work.id, prompt))
        state = replace(state, has_output_schema=agent.output_schema is not None)
        try:
            provider, vendor = await retry_while_unavailable(lambda: self._providers.of(run.runtime, agent))
        except ProviderUnavailable as error:
            return self._agent_failed(run, agent, work, entry, "provider_not_configured", str(error))
        schema_weight = max((weight(tool.input_schema) for tool in tools.declared.values()), default=0)
        caller = ModelCaller(
            agent,
            work.id,
            work.parent_id or "",
            agent.system_prompt,
            run.runtime.prompt_key(agent.name),
            await offload(tools.definitions, size=schema_weight),
            vendor,
            await self._notes(run, work.id, tools),
        )
        context = await load_memory(run, caller)
        while True:
            match next_step(state, agent.max_turns or MAX_TURNS):
                case CallModel() as step:
                    await run.within_limits()
                    try:
                        turn, closing, context = await call_model(
                            run, provider, caller, step, entry, context, self._limits
                        )
                    except TurnFailed as failed:
                        run.spend(failed.entry)
                        return self._agent_failed(
                            run, agent, work, failed.entry, failed.fault.code, failed.fault.message
                        )
                    state = replace(state, turns=(*state.turns, turn), open_turn=None)
                    entry = closing
                    run.spend(closing)
                case RunTools(calls):
                    if entry.items or entry.work:
                        await run.commit(entry)
                        entry = Entry()
                    truncated = state.turns[-1].stop_reason == "max_tokens"
                    answered = await run.branches(
                        [
                            self._tool_calls.answer(
                                ToolCall(
                                    run,
                                    agent,
                                    run.scope(call.work_id, work.id, agent.name),
                                    tools,
                                    call.use,
                                    depth,
                                    self._sub_agent,
                                    truncated,
                                ),
                                call,
                            )
                            for call in calls
                        ]
                    )
                    state = _with_answers(state, {c.work_id: c for c in answered})
                case CheckAnswer(text):
                    objection = await offload(_objection, text, agent.output_schema, self._schemas)
                    state = with_objection(state, objection)
                case FinishRun(text, reason):
                    closed = replace(work, status="succeeded", output=text.encode())
                    entry.work.append(closed)
                    entry.items.append(event(scope, WorkEndEvent, data=work_data(closed)))
                    return AgentResult(text, reason, entry, work_id=work.id)
                case FailRun(code, message):
                    return self._agent_failed(run, agent, work, entry, code, message)

    async def _notes(self, run: QueryRun, work_id: str, tools: AgentTools) -> str:
        """Return the notes about its environment that an agent's run gets at its start. The record of its first model
        call has them."""
        for row in run.tree.below(work_id, "model_call"):
            if row.position == 1 and row.input is not None:
                return PromptRecord.load(row.input).notes
        opening = []
        if tools.variables:
            opening.append(await self._variables.notes(run))
        elif RECALL.name in tools.builtin:
            opening.append(await self._variables.memory_notes(run))
        if WRITE.name in tools.builtin:
            opening.append(workspace_note(work_id, is_elsewhere=run.runtime.spec.workspace is not None))
        return "\n\n".join(opening)

    def _agent_failed(
        self, run: QueryRun, agent: AgentSpec, work: Work, entry: Entry, code: str, message: str
    ) -> AgentResult:
        failed = replace(work, status="failed", error=orjson.dumps({"code": code, "message": message}))
        entry.work.append(failed)
        scope = run.scope(work.id, work.parent_id, agent.name)
        entry.items.append(event(scope, WorkEndEvent, data=work_data(failed)))
        return AgentResult(message, "error", entry, code, work.id)

    async def _sub_agent(
        self, run: QueryRun, agent: AgentSpec, prompt: str, scope: Scope, depth: int
    ) -> ToolResult:
        """Run a routed agent for `call_agent`, as a child of the tool call with its own transcript, model and gates."""
        if depth > run.max_depth:
            return ToolError(
                f"Agents may nest calls {run.max_depth} deep; this call would be deeper.", "too_deep"
            )
        if not agent.stateful:
            return await self._call_agent(run, agent, prompt, scope, depth)
        async with run.one_at_a_time(
            agent.name
        ):  # the next run remembers this one, so its record must be closed
            return await self._call_agent(run, agent, prompt, scope, depth)

    async def _call_agent(
        self, run: QueryRun, agent: AgentSpec, prompt: str, scope: Scope, depth: int
    ) -> ToolResult:
        opening = event(scope, ToolAgentEvent, agent_name=agent.name, state="call")
        result = await self._run_agent(run, agent, prompt, scope.work_id, depth, opening)
        published = await self._published_artifacts(run, result)
        if result.entry.work:  # otherwise it ended before a crash, with its events
            used = run.totals(result.work_id).to_wire()
            data = {"agentName": agent.name, "model": agent.model.id, "usage": used["usage"]}
            if used["costUsd"] is not None:
                data["costUsd"] = used["costUsd"]
            result.entry.items += [
                event(scope, DataToolAgentEvent, data=data),
                event(
                    scope,
                    ToolAgentEvent,
                    agent_name=agent.name,
                    state="result",
                    artifacts=[a.wire() for a in published],
                ),
            ]
            await run.commit(result.entry)
        if result.error_code is not None:
            names = ", ".join(f"{a.id} ({a.record['path']})" for a in published)
            publications = f" Before that it published: {names}." if names else ""
            return ToolError(
                f"{agent.name} failed ({result.error_code}): {result.text}{publications}", "agent_failed"
            )
        briefs = tuple(a.brief() for a in published)
        sized = [(a, len(strict_json.dumps(brief))) for a, brief in zip(published, briefs, strict=True)]
        if sized:
            await run.in_fenced_transaction(lambda tx: self._artifacts.note(tx, scope.work_id, sized))
        return Answer(result.text, briefs)

    async def _published_artifacts(self, run: QueryRun, result: AgentResult) -> list[Artifact]:
        """Return what an agent's run published, even if the run failed."""
        work_id = result.work_id
        return [] if work_id is None else await run.read(lambda tx: self._artifacts.of_work(tx, work_id))

    def _tools(self, runtime: Runtime, agent: AgentSpec) -> AgentTools:
        builtin = {t.name: t for t in builtin_tools(runtime.spec, agent)}
        declared = {name: runtime.tools[name] for name in agent.tools or ()}
        return AgentTools(builtin, declared, has_variables(agent))


def _with_answers(state: Transcript, answers: Mapping[str, TurnCall]) -> Transcript:
    last = state.turns[-1]
    calls = tuple(answers.get(c.work_id, c) for c in last.calls)
    return replace(state, turns=(*state.turns[:-1], replace(last, calls=calls)))


def _objection(text: str, schema: Mapping[str, Any], schemas: SchemaChecker) -> str | None:
    """Return why a final answer does not match the agent's outputSchema, or None. Call it through `offload`."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return f"Your answer must be JSON and nothing else; it is not: {error}. Answer again."
    errors = schemas.errors(schema, value)
    if not errors:
        return None
    messages = "; ".join(f"{f.pointer or '/'}: {f.message}" for f in errors)
    return f"Your answer does not match the schema it must have: {messages}. Answer again, JSON only."


def _result_from_record(record: WorkEntry) -> AgentResult:
    if record.status == "succeeded":
        return AgentResult((record.output or b"").decode(), "end_turn", Entry(), work_id=record.id)
    error = orjson.loads(record.error or b'{"code": "cancelled", "message": "It was cancelled."}')
    return AgentResult(error["message"], "error", Entry(), error["code"], record.id)
