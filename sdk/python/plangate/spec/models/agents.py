"""An agent."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from plangate.spec.base import (
    MAX_ITEMS,
    MAX_PROMPT_CHARS,
    MAX_TOOLS,
    Count,
    Flag,
    JsonSchema,
    Key,
    Name,
    SpecModel,
    Text,
    at_most,
)
from plangate.spec.models.declared import PlanSpec, ReferenceSpec, Toolkits
from plangate.spec.models.providers import ModelSpec
from plangate.spec.models.rules import ApprovalPolicies, Rule

Role = Literal["coordinator", "planner", "executor", "specialist"]


def _prompt(value: Any) -> Any:
    """Replace a LayeredPrompt by its text."""
    return value.text if hasattr(value, "cache_key") else value


PlanOrName = Annotated[
    Annotated[Key, Tag("kind:name")] | Annotated[PlanSpec, Tag("kind:inline")],
    Discriminator(lambda value: "kind:name" if isinstance(value, str) else "kind:inline"),
]
TextOrLayers = Annotated[
    Annotated[Text, Tag("kind:text")] | Annotated[dict[str, Any], Tag("kind:layers")],
    Discriminator(lambda value: "kind:text" if isinstance(value, str) else "kind:layers"),
]


class AgentSpec(SpecModel):
    """An agent. `prompt`, `references`, `approval_policies` and `tool_approval_policies` are for authoring:
    assembly turns them into `system_prompt` and into parts of the runtime.

    `stateful` unset follows the role. `plan` is a plan's name, or the plan itself until assembly.

    Args:
        name: Unique in the runtime.
        role: `"coordinator"`, `"planner"`, `"executor"` or `"specialist"`.
        stateful: Whether it remembers a thread.
        model: A ModelSpec, or the id of a model.
        system_prompt: Its prompt, as it is registered.
        routes: The names of the agents that it may call.
        tools: The names of the tools that it may call.
        toolkits: Sets of builtin tools: ids or ToolkitSpecs.
        max_turns: How many model turns a run may take.
        plan: What a planner makes and an executor executes.
        output_schema: What its final answer must match.
        prompt: A text, or layers.
        references: Kinds of reference that it works with.
        approval_policies: Its own rules for the two channels.
        tool_approval_policies: Rules for single tools.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field. Whether the names lead somewhere is
            checked by `define_runtime` and by the service.

    Example:
        >>> AgentSpec(name="helper", role="specialist", model="m-1", system_prompt="You help.").model.id
        'm-1'
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset(
        {"name", "role", "stateful", "model", "system_prompt", "routes", "toolkits"}
    )

    name: Name
    role: Role
    stateful: Flag | None = None
    model: Annotated[ModelSpec, BeforeValidator(lambda v: {"id": v} if isinstance(v, str) else v)]
    system_prompt: Annotated[str, Field(max_length=MAX_PROMPT_CHARS), BeforeValidator(_prompt)] = ""
    routes: Annotated[tuple[Key, ...], at_most(MAX_ITEMS)] = ()
    tools: Annotated[tuple[Key, ...], at_most(MAX_TOOLS)] = ()
    toolkits: Toolkits = ()
    max_turns: Count | None = None
    plan: PlanOrName | None = None
    output_schema: JsonSchema | None = None
    prompt: Annotated[TextOrLayers | None, BeforeValidator(_prompt)] = None
    references: Annotated[tuple[ReferenceSpec, ...], at_most(MAX_ITEMS)] = ()
    approval_policies: ApprovalPolicies | None = None
    tool_approval_policies: Annotated[dict[Key, Rule], at_most(MAX_TOOLS)] = Field(default_factory=dict)

    @property
    def plan_name(self) -> str | None:
        """The name of the agent's plan spec, in whichever form it is given."""
        return self.plan.name if isinstance(self.plan, PlanSpec) else self.plan
