"""The one path of every tool call, as steps around each other, and the record of how each call ended.

The loop gets a result or an error that the model can act on. A call that has to wait is not a result: its query is
parked inside the call (app/engine/query_run.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
from plangate.statuses import WorkStatus

from app.approvals.service import ApprovalService
from app.base.json import strict_json
from app.base.json.process_pool import JsonProcessPool
from app.base.logs.processors import bind_work_id
from app.base.schema.checker import SchemaChecker
from app.calls.arguments import ArgumentParser, ArgumentValidator, TimeLimit, TruncationCheck, VariableFiller
from app.calls.dispatch import CallDispatcher
from app.calls.gate import ApprovalGate, BuiltinGate
from app.calls.models import TurnCall
from app.calls.predicates import ApprovalPredicates
from app.calls.results import OutputValidator, ResultBounds, ResultDelivery, ResultLimit
from app.calls.toolkit import BuiltinTool, CallStep, ToolCall
from app.calls.tools import BuiltinTools, DeclaredTools
from app.engine.work_data import readable_arguments
from app.events import ToolInvocationEvent
from app.journal.models import Entry, Work, event
from app.references.service import ReferenceService
from app.tools.results import Answer, ToolError
from app.variables.service import VariableService

MAX_NOTE_BYTES: Final = 16 * 1024
"""Of the arguments that an approver changed, before a result."""


def build_call_path(
    toolkits: Mapping[str, BuiltinTool],
    approvals: ApprovalService,
    dispatch: CallDispatcher,
    references: ReferenceService,
    schemas: SchemaChecker,
    variables: VariableService,
    processes: JsonProcessPool,
) -> CallStep:
    """Return the path of every tool call: the first step, around all the others."""
    bounds = ResultBounds(references)
    step: CallStep = BuiltinTools(toolkits, OutputValidator(DeclaredTools(dispatch), schemas))
    step = ResultLimit(ResultDelivery(step, variables, bounds), bounds)
    predicates = ApprovalPredicates(dispatch, processes)
    step = BuiltinGate(ApprovalGate(step, approvals, predicates))
    step = VariableFiller(ArgumentValidator(step, schemas), variables)
    return TruncationCheck(TimeLimit(ArgumentParser(step)))


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """Runs the calls of model turns, and records their answers."""

    path: CallStep

    async def answer(self, call: ToolCall, turn_call: TurnCall) -> TurnCall:
        """Return the call of a turn with its answer. The answer is on record by then."""
        with bind_work_id(call.scope.work_id):
            return await _record(call, turn_call, await self.path.call(call))


async def _record(call: ToolCall, turn_call: TurnCall, result: Answer | ToolError) -> TurnCall:
    """Record the end of the call. If an approver changed the arguments, the model reads that before the result."""
    note = "" if result.edited_args is None else _approver_note(result.edited_args)
    body: dict[str, Any]
    if isinstance(result, Answer):
        text = result.value if result.record is None else strict_json.dumps(result.record).decode()
        body = {"state": "result", "result": _parse_if_json(text)}
        closed = _closed_work(call, turn_call, "succeeded", output=(note + text).encode())
        answered = replace(
            turn_call,
            answer=note + result.value,
            on_record=None if result.record is None else note + text,
        )
    else:
        error = {"code": result.code, "message": note + result.message}
        body = {"state": "error", "error": error}
        status: WorkStatus = "unknown" if result.status == "unknown" else "failed"
        closed = _closed_work(call, turn_call, status, error=orjson.dumps(error))
        answered = replace(turn_call, answer=error["message"], is_error=True)
    if result.edited_args is not None:
        body["sent_args"] = result.edited_args
    ended = event(
        call.scope,
        ToolInvocationEvent,
        tool_invocation_id=call.use.id,
        tool_name=call.use.name,
        args=readable_arguments(call.use.arguments),
        **body,
    )
    await call.run.commit(Entry(items=[ended], work=[closed]))
    return answered


def _approver_note(args: dict[str, Any]) -> str:
    """Return the line that tells a model which arguments were really sent."""
    text = strict_json.dumps(args).decode()
    if len(text.encode()) > MAX_NOTE_BYTES:
        text = f"values too long to repeat of: {', '.join(args)}"[:MAX_NOTE_BYTES]
    return f"An approver changed the arguments of this call. Its arguments are now: {text}\n"


def _closed_work(
    call: ToolCall,
    turn_call: TurnCall,
    status: WorkStatus,
    output: bytes | None = None,
    error: bytes | None = None,
) -> Work:
    return Work(
        id=call.scope.work_id,
        parent_id=call.scope.parent_work_id,
        kind="tool_call",
        name=call.name,
        agent=call.agent.name,
        status=status,
        position=turn_call.position,
        tool_invocation_id=call.use.id,
        output=output,
        error=error,
    )


def _parse_if_json(text: str) -> Any:
    """Return the result as JSON if it is JSON, for readers of the journal."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
