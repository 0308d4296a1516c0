"""What a builtin tool gets and gives. Higher floors (plans) bring toolkits that the runner knows only by this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from plangate.spec.models import AgentSpec

from app.agents.run import QueryRun
from app.journal.models import Scope


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model reads of a call. `value` is JSON-able; a str goes as it is."""

    value: Any
    artifacts: tuple[dict[str, Any], ...] = ()  # of an agent that was called: what it published, in short
    text: bytes | None = None  # the value as JSON, where it is large and at hand


@dataclass(frozen=True, slots=True)
class ToolError:
    """An error that the model can act on."""

    message: str
    code: str = "tool_error"


Outcome = Answer | ToolError


# Runs an agent as a child of the call in the scope: (run, agent, prompt, the call's scope, depth) -> outcome.
SubAgent = Callable[[QueryRun, AgentSpec, str, Scope, int], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool by an agent, at any depth of a run."""

    run: QueryRun
    agent: AgentSpec
    scope: Scope  # its work_id is the call's identity
    name: str
    args: dict[str, Any]
    depth: int
    sub_agent: SubAgent
    to_path: bool = False  # its result goes to a variable, not into a prompt
    text: bytes | None = None  # the arguments as JSON, where they are large and at hand


class BuiltinTool(Protocol):
    """Idempotent by the call's work id: after a crash it is run again from the start."""

    async def __call__(self, call: ToolCall) -> Outcome: ...
