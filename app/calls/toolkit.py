"""A tool call on its way, and the protocol of the steps that handle it, one inside the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from plangate.spec.builtin import BuiltinTool as BuiltinDefinition
from plangate.spec.models import AgentSpec, ToolSpec
from plangate.spec.variable_schemas import agent_schema

from app.engine.query_run import QueryRun
from app.journal.models import Scope
from app.llm.messages import ToolDefinition, ToolUse
from app.tools.results import ToolResult
from app.variables.values import FilledCall

# Runs an agent as a child of a call: (run, agent, prompt, scope of the call, depth) -> result.
SubAgent = Callable[[QueryRun, AgentSpec, str, Scope, int], Awaitable[ToolResult]]

EMPTY_CALL = FilledCall({})


@dataclass(frozen=True, slots=True)
class AgentTools:
    """The tools that one agent may call: the built-in tools of its toolkits, and the declared tools that its
    spec names."""

    builtin: Mapping[str, BuiltinDefinition]
    declared: Mapping[str, ToolSpec]
    variables: bool = False
    """Strings in the arguments may be variables, and results may go to one."""

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return the tool definitions that go to the model."""
        tools: tuple[BuiltinDefinition | ToolSpec, ...] = (*self.builtin.values(), *self.declared.values())
        return tuple(ToolDefinition(t.name, t.description, self._schema(t)) for t in tools)

    def _schema(self, tool: BuiltinDefinition | ToolSpec) -> dict[str, Any]:
        return agent_schema(tool.name, tool.input_schema) if self.variables else dict(tool.input_schema)

    def argument_schema(self, name: str) -> Mapping[str, Any]:
        """Return the schema that the arguments of one of these tools must match."""
        builtin = self.builtin.get(name)
        return self.declared[name].input_schema if builtin is None else builtin.validation_schema

    def names(self) -> list[str]:
        return sorted([*self.builtin, *self.declared])


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool by an agent, at any depth of a run. The work id of its scope is its identity."""

    run: QueryRun
    agent: AgentSpec
    scope: Scope
    tools: AgentTools
    use: ToolUse
    depth: int
    sub_agent: SubAgent
    truncated: bool = False
    """The model's turn was cut off, so the arguments may be incomplete."""
    filled: FilledCall = EMPTY_CALL
    """The arguments, once they are parsed and their variables replaced."""

    @property
    def name(self) -> str:
        return self.use.name

    @property
    def use_id(self) -> str:
        """Return the model's own id of the call."""
        return self.use.id

    @property
    def args(self) -> dict[str, Any]:
        return self.filled.args

    @property
    def declared(self) -> ToolSpec | None:
        return self.tools.declared.get(self.use.name)

    @property
    def to_path(self) -> bool:
        """Return whether the result goes to a variable rather than into a prompt."""
        return self.filled.output is not None


class BuiltinTool(Protocol):
    """A tool that the service runs itself. Idempotent by the call's work id: after a crash it runs again from the
    start."""

    async def __call__(self, call: ToolCall) -> ToolResult: ...


class CallStep(Protocol):
    """A step of a tool call: it calls the step inside it, and may change the call before and the result after."""

    async def call(self, call: ToolCall) -> ToolResult: ...
