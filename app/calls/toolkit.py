"""What a builtin tool gets and gives. Higher floors (plans) bring toolkits that the runner knows only by this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from plangate.spec.models import AgentSpec

from app.engine.query_run import QueryRun
from app.journal.models import Scope
from app.tools.results import Outcome

# Runs an agent as a child of the call in the scope: (run, agent, prompt, the call's scope, depth) -> outcome.
SubAgent = Callable[[QueryRun, AgentSpec, str, Scope, int], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool by an agent, at any depth of a run."""

    run: QueryRun
    agent: AgentSpec
    scope: Scope  # its work_id is the call's identity
    use_id: str  # the model's own id of the call
    name: str
    args: dict[str, Any]
    depth: int
    sub_agent: SubAgent
    to_path: bool = False  # its result goes to a variable, not into a prompt
    text: bytes | None = None  # the arguments as JSON, where they are large and at hand


class BuiltinTool(Protocol):
    """Idempotent by the call's work id: after a crash it is run again from the start."""

    async def __call__(self, call: ToolCall) -> Outcome: ...
