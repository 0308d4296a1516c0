"""The one path of every tool call: parse, replace variables, validate, gate, record the intent, dispatch, check and
bound the result, or write it to its path.

Three outcomes go to the loop: a result, an error that the model can act on, and waiting, which is not an outcome
but the query going to sleep inside the call (see run.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from plangate.events import ToolInvocationEvent
from plangate.spec.builtin import BuiltinTool as BuiltinDefinition
from plangate.spec.gate_checks import TOOL_RESULT
from plangate.spec.models import AgentSpec, ToolSpec
from plangate.spec.variable_schemas import agent_schema, schema_without_meta
from plangate.statuses import WorkStatus

from app.base.errors import Malformed, TooLarge
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.logs.processors import bind_work_id
from app.base.postgres.database import Tx
from app.base.schema.checker import SchemaChecker
from app.calls.dispatch import CallDispatcher
from app.calls.gate import ToolGate
from app.calls.models import TurnCall
from app.calls.toolkit import BuiltinTool, SubAgent, ToolCall
from app.documents.writing import WriteRejected
from app.engine.query_run import QueryRun, retry_while_unavailable
from app.engine.work_data import readable_arguments
from app.journal import store as journal_store
from app.journal.models import Entry, Scope, Work, event
from app.llm.messages import ToolDefinition
from app.references.glimpses import MAX_GLIMPSE_BYTES
from app.references.service import ReferenceService
from app.tools.models import DEFAULT_TIMEOUT_MS, OutgoingCall, definition_digest, tool_request
from app.tools.results import Answer, Outcome, ToolError
from app.variables.service import VariableService
from app.variables.values import FilledCall, OutputPath, describe_errors

RESULT_MAX_BYTES = 64 * 1024
NOTED_BYTES = 16 * 1024  # of replaced arguments, before a result
RESOLVE = "resolveRef"
READ = f"read a part with {RESOLVE} and a path"
NO_READER = "ask for less: you have no tool that reads it"
TRUNCATED = (
    "The turn was cut at the model's output limit, so this call was not made: its arguments may be incomplete. "
    "Write shorter arguments, or make fewer calls in one turn."
)


@dataclass(frozen=True, slots=True)
class AgentTools:
    """What one agent may call: the builtin tools of its toolkits and the tools its spec names."""

    builtin: Mapping[str, BuiltinDefinition]
    declared: Mapping[str, ToolSpec]
    variables: bool = False  # strings in its arguments may be variables, and its results may go to one

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return the tool definitions that go to the model."""
        tools: tuple[BuiltinDefinition | ToolSpec, ...] = (*self.builtin.values(), *self.declared.values())
        return tuple(ToolDefinition(t.name, t.description, self._declaration(t)) for t in tools)

    def _declaration(self, tool: BuiltinDefinition | ToolSpec) -> dict[str, Any]:
        return agent_schema(tool.name, tool.input_schema) if self.variables else dict(tool.input_schema)

    def names(self) -> list[str]:
        return sorted([*self.builtin, *self.declared])


class ToolCalls:
    """Brings tool calls to their answers."""

    def __init__(
        self,
        toolkits: Mapping[str, BuiltinTool],
        gate: ToolGate,
        dispatch: CallDispatcher,
        references: ReferenceService,
        schemas: SchemaChecker,
        variables: VariableService,
    ) -> None:
        self._variables = variables
        self._toolkits = toolkits
        self._gate = gate
        self._dispatch = dispatch
        self._references = references
        self._schemas = schemas

    async def offered(self, tx: Tx, query_id: str) -> list[str]:
        """Return the work ids of the query's calls that were ever offered, except those of plan actions."""
        return await self._dispatch.calls.offered(tx, query_id)

    async def answer(
        self,
        run: QueryRun,
        agent: AgentSpec,
        parent_id: str,
        tools: AgentTools,
        call: TurnCall,
        *,
        truncated: bool,
        depth: int,
        sub_agent: SubAgent,
    ) -> TurnCall:
        """Return the call with its answer, which is on record by then."""
        scope = run.scope(call.work_id, parent_id, agent.name)
        with bind_work_id(call.work_id):
            return await self._answer(run, agent, scope, tools, call, truncated, depth, sub_agent)

    async def _answer(
        self,
        run: QueryRun,
        agent: AgentSpec,
        scope: Scope,
        tools: AgentTools,
        call: TurnCall,
        truncated: bool,
        depth: int,
        sub_agent: SubAgent,
    ) -> TurnCall:
        if truncated:
            refusal = ToolError(TRUNCATED, "turn_truncated")
            return await self._record(run, agent, scope, tools, call, refusal)
        await run.within_time(call.work_id)
        filled = await self._fill(run, scope, tools, call)
        if isinstance(filled, ToolError):
            return await self._record(run, agent, scope, tools, call, filled)
        declared = tools.declared.get(call.use.name)
        definition = definition_digest(declared) if declared else ""
        allowed = await self._gate.passed(run, agent, scope, call.use, filled, definition)
        if isinstance(allowed, ToolError):
            return await self._record(run, agent, scope, tools, call, allowed)
        to_path = filled.output is not None
        text = None if allowed.replaced else filled.text
        made = ToolCall(
            run, agent, scope, call.use.id, call.use.name, allowed.args, depth, sub_agent, to_path, text
        )
        outcome = await self._outcome(tools, made)
        if filled.output is not None:
            outcome = await self._deliver(tools, made, filled.output, outcome)
        replaced = allowed.args if allowed.replaced else None
        return await self._record(run, agent, scope, tools, call, outcome, replaced)

    async def _fill(
        self, run: QueryRun, scope: Scope, tools: AgentTools, call: TurnCall
    ) -> FilledCall | ToolError:
        """Parse the arguments of the call, replace its variables, and validate the result."""
        name = call.use.name
        builtin, declared = tools.builtin.get(name), tools.declared.get(name)
        if builtin is None and declared is None:
            return ToolError(
                f"There is no tool {name!r}. You can call: {', '.join(tools.names()) or 'none'}.",
                "unknown_tool",
            )
        schema = builtin.validation_schema if builtin else declared.input_schema if declared else {}
        args = await offload(_parse_arguments, call.use.arguments)
        if isinstance(args, ToolError):
            return args
        if not tools.variables:
            return await self._valid(FilledCall(args), schema)
        filled = await self._variables.fill(run, scope, name, schema, args)
        return (
            filled
            if isinstance(filled, ToolError)
            else await self._valid(filled, schema_without_meta(schema))
        )

    async def _valid(self, filled: FilledCall, schema: Mapping[str, Any]) -> FilledCall | ToolError:
        flaws = await offload(self._schemas.compile(schema).errors, filled.args)
        if not flaws:
            return filled
        listed, by_variable = describe_errors(flaws, filled.sources)
        return ToolError(
            f"The arguments do not match the tool's schema, so the call was not made: {listed}",
            "variable_error" if by_variable else "bad_arguments",
        )

    async def _outcome(self, tools: AgentTools, call: ToolCall) -> Outcome:
        declared = tools.declared.get(call.name)
        if declared is not None:
            return await self._call_declared_tool(call, declared)
        await call.run.within_time(
            call.scope.work_id
        )  # others may have used it up while it stood at its gate
        return await self._toolkits[call.name](call)

    async def _deliver(
        self, tools: AgentTools, call: ToolCall, output: OutputPath, outcome: Outcome
    ) -> Outcome:
        """Write the result to its path and return a receipt. A result that cannot be written goes to the
        model instead."""
        if call.name == RESOLVE:  # that gives somebody's value, and what is in it is data
            output = replace(output, picks=False)
        try:
            return await self._variables.deliver(call.run, call.scope, output, outcome)
        except WriteRejected as refused:
            if isinstance(outcome, ToolError):
                return ToolError(f"{outcome.message} (It could not be written: {refused}.)", outcome.code)
            if outcome.record is not None:
                text: str | ToolError = strict_json.dumps(outcome.record).decode()
            else:
                text = await self._bound_result(call.run, call.scope, tools, call.name, outcome)
            return ToolError(
                f"{call.name} ran, but its result was not written: {refused}. Its result: {text}",
                "not_written",
            )

    async def _call_declared_tool(self, made: ToolCall, tool: ToolSpec) -> Outcome:
        """Send a call to the code that runs it, and check what it returns."""
        run, scope = made.run, made.scope
        call = OutgoingCall(
            work_id=scope.work_id,
            query_id=run.query.id,
            purpose="tool",
            name=tool.name,
            definition_digest=definition_digest(tool),
            request=tool_request(run.call_context(scope, made.use_id), made.args, made.text),
            replay=tool.replay_rule(),
            timeout_ms=tool.timeout_ms or DEFAULT_TIMEOUT_MS,
            transport=tool.transport,
            idempotency_key=scope.work_id,
        )
        done = await self._dispatch.outcome(run, call)
        if done.status == "unknown":
            why = done.error or "the process that had taken the call did not answer in time."
            return ToolError(
                f"It is unknown whether {tool.name} ran: {why} Check before you repeat it.",
                "outcome_unknown",
            )
        if done.status == "withdrawn":
            return ToolError(
                f"No process claimed the call of {tool.name} in time, so it was not made.", "not_served"
            )
        if done.error is not None:
            return ToolError(done.error, "tool_error")
        if tool.output_schema is not None:
            flaws = await offload(self._schemas.compile(tool.output_schema).errors, done.output)
            if flaws:
                listed = "; ".join(f"{f.pointer or '/'}: {f.message}" for f in flaws)
                return ToolError(
                    f"{tool.name} ran, but its result does not match its outputSchema: {listed}", "bad_result"
                )
        return Answer(done.output, text=done.text)

    # -- the record ------------------------------------------------------------------------------------------

    async def _record(
        self,
        run: QueryRun,
        agent: AgentSpec,
        scope: Scope,
        tools: AgentTools,
        call: TurnCall,
        outcome: Outcome,
        replaced: dict[str, Any] | None = None,
    ) -> TurnCall:
        """Close the call on record. `replaced` are the arguments that an approver put in place of the
        model's; the model is told about them before the answer."""
        note = "" if replaced is None else _approver_note(replaced)
        kept: str | ToolError
        on_record: str | None = None
        if isinstance(outcome, ToolError):
            kept = outcome
        elif outcome.record is not None:  # such an answer is bounded by the tool itself
            kept = strict_json.dumps(outcome.value).decode()
            on_record = strict_json.dumps(outcome.record).decode()
        else:
            kept = await self._bound_result(run, scope, tools, call.use.name, outcome)
        if not isinstance(kept, ToolError):
            text = kept if on_record is None else on_record
            body: dict[str, Any] = {"state": "result", "result": _readable_arguments(text)}
            closed = _closed_record(agent, scope, call, "succeeded", output=(note + text).encode())
            answered = replace(
                call, answer=note + kept, on_record=None if on_record is None else note + on_record
            )
        else:
            error = {"code": kept.code, "message": note + kept.message}
            body = {"state": "error", "error": error}
            status: WorkStatus = "unknown" if kept.code == "outcome_unknown" else "failed"
            closed = _closed_record(agent, scope, call, status, error=orjson.dumps(error))
            answered = replace(call, answer=note + kept.message, is_error=True)
        if replaced is not None:
            body["sent_args"] = replaced
        told = event(
            scope,
            ToolInvocationEvent,
            tool_invocation_id=call.use.id,
            tool_name=call.use.name,
            args=readable_arguments(call.use.arguments),
            **body,
        )
        await run.commit(Entry(items=[told], work=[closed]))
        return answered

    async def _bound_result(
        self, run: QueryRun, scope: Scope, tools: AgentTools, tool: str, answer: Answer
    ) -> str | ToolError:
        """Return the text for the model. A value that is too large for a prompt becomes a reference with
        its own glimpse or, if that is too large as well, a generic one."""
        value = answer.value
        data = value.encode() if isinstance(value, str) else answer.text
        if data is None:
            data = await offload(strict_json.dumps, value)
        size = len(data)
        if size <= RESULT_MAX_BYTES:
            return data.decode()
        own = value.get("glimpse") if isinstance(value, dict) else None
        glimpse = own if len(await offload(strict_json.dumps, own)) <= MAX_GLIMPSE_BYTES else None
        tenant = run.lease.tenant
        try:
            prepared = await retry_while_unavailable(
                lambda: self._references.prepare_unchecked(tenant, TOOL_RESULT, value, glimpse)
            )
        except TooLarge as error:
            return ToolError(f"{tool} ran, but its result cannot be kept. {error.detail}", "bad_result")

        async def keep(tx: Tx) -> dict[str, Any]:
            made = await self._references.keep(tx, prepared, scope.work_id)
            if made.created:
                await journal_store.append(tx, run.query.id, [made.event(scope)], run.lease.epoch)
            return made.handle()

        handle = await run.in_fenced_transaction(keep)
        return strict_json.dumps(
            {
                **handle,
                "note": f"The result of {tool} has {size} bytes, too many for a prompt. It is kept under this "
                f"handle: pass the handle on, or {READ if RESOLVE in tools.builtin else NO_READER}.",
            }
        ).decode()


def _parse_arguments(written: str) -> dict[str, Any] | ToolError:
    try:
        args = strict_json.parse(written.encode() or b"{}")
    except (Malformed, UnicodeEncodeError) as error:
        return ToolError(
            f"The arguments are not valid JSON, so the call was not made: {error}", "bad_arguments"
        )
    if not isinstance(args, dict):
        return ToolError("The arguments must be a JSON object; the call was not made.", "bad_arguments")
    return args


def _approver_note(replaced: dict[str, Any]) -> str:
    """Return the line that tells a model which arguments were really sent."""
    shown = strict_json.dumps(replaced).decode()
    if len(shown.encode()) > NOTED_BYTES:
        shown = f"values too long to repeat of: {', '.join(replaced)}"[:NOTED_BYTES]
    return f"An approver changed the arguments of this call. Its arguments are now: {shown}\n"


def _closed_record(
    agent: AgentSpec,
    scope: Scope,
    call: TurnCall,
    status: WorkStatus,
    output: bytes | None = None,
    error: bytes | None = None,
) -> Work:
    return Work(
        id=scope.work_id,
        parent_id=scope.parent_work_id,
        kind="tool_call",
        name=call.use.name,
        agent=agent.name,
        status=status,
        position=call.position,
        tool_invocation_id=call.use.id,
        output=output,
        error=error,
    )


def _readable_arguments(text: str) -> Any:
    """Return the result as JSON if it is JSON, for readers of the journal."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
