"""An agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    Tag,
    model_validator,
)

from plangate.spec.base import (
    MAX_ITEMS,
    MAX_KEY_CHARS,
    MAX_PROMPT_CHARS,
    MAX_TOOLS,
    Count,
    Flag,
    JsonSchema,
    Key,
    Name,
    Shorthand,
    SpecModel,
    Text,
    at_most,
)
from plangate.spec.models.declared import PlanSpec, ReferenceSpec, Toolkits, ToolSpec
from plangate.spec.models.providers import ModelSpec
from plangate.spec.models.rules import ApprovalPolicies, Rule
from plangate.spec.prompts import LayeredPrompt, render_layers

Role = Literal["coordinator", "planner", "executor", "specialist"]

STATEFUL_ROLES: Final = frozenset({"coordinator", "planner"})
PLAN_ROLES: Final = frozenset({"planner", "executor"})


def _prompt(value: Any) -> Any:
    """Replace a LayeredPrompt by its text."""
    return value.text if hasattr(value, "cache_key") else value


def _without_default(schema: dict[str, Any]) -> None:
    """Name no default in the JSON Schema: it depends on the role."""
    del schema["default"]


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

    `plan` is a plan's name, or the plan itself until assembly. `tools` holds names: the tools that are given as
    objects are in `bound_tools`, and `define_runtime` declares them.

    Args:
        name: Unique in the runtime.
        role: `"coordinator"`, `"planner"`, `"executor"` or `"specialist"`.
        stateful: Whether it remembers a thread; unset, as its role does: coordinators and planners.
        model: A ModelSpec, or the id of a model.
        system_prompt: Its prompt, as it is registered.
        routes: The names of the agents that it may call.
        tools: The tools that it may call: names, or in Python ToolSpecs.
        toolkits: Sets of built-in tools: ids or ToolkitSpecs.
        max_turns: How many model turns a run may take.
        plan: What a planner makes and an executor executes; unset, the only plan of the runtime.
        output_schema: What its final answer must match.
        prompt: A text, or layers.
        tools_table: Whether its prompt gets a table of the tools that it can call.
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
    stateful: Flag = Field(default=False, json_schema_extra=_without_default)
    model: Annotated[
        ModelSpec,
        BeforeValidator(lambda v: {"id": v} if isinstance(v, str) else v),
        Shorthand(type="string", minLength=1, maxLength=MAX_KEY_CHARS, description="The `id` alone."),
    ]
    system_prompt: Annotated[str, Field(max_length=MAX_PROMPT_CHARS), BeforeValidator(_prompt)] = ""
    routes: Annotated[tuple[Key, ...], at_most(MAX_ITEMS)] = ()
    tools: Annotated[tuple[Key, ...], at_most(MAX_TOOLS)] = ()
    toolkits: Toolkits = ()
    max_turns: Count | None = None
    plan: PlanOrName | None = None
    output_schema: JsonSchema | None = None
    prompt: Annotated[TextOrLayers | None, BeforeValidator(_prompt)] = None
    tools_table: Flag = True
    references: Annotated[tuple[ReferenceSpec, ...], at_most(MAX_ITEMS)] = ()
    approval_policies: ApprovalPolicies | None = None
    tool_approval_policies: Annotated[dict[Key, Rule], at_most(MAX_TOOLS)] = Field(default_factory=dict)

    _bound: tuple[ToolSpec, ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _complete(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Set `stateful` as the role does, and keep apart the tools that are given as objects."""
        if not isinstance(data, Mapping):
            return handler(data)
        fields = dict(data)
        if fields.get("stateful") is None and isinstance(fields.get("role"), str):
            fields["stateful"] = fields["role"] in STATEFUL_ROLES
        tools = fields.get("tools")
        bound: list[ToolSpec] = []
        if isinstance(tools, list | tuple):
            bound = [tool for tool in tools if isinstance(tool, ToolSpec)]
            fields["tools"] = tuple(tool.name if isinstance(tool, ToolSpec) else tool for tool in tools)
        agent = handler(fields)
        agent._bound = tuple(bound)
        return agent

    @property
    def bound_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that it was given as objects; the runtime collects them."""
        return self._bound

    @property
    def prompt_cache_key(self) -> str:
        """The fingerprint of its prompt as it is now: that of `system_prompt`, or of the layers of `prompt`."""
        if isinstance(self.prompt, dict):
            return render_layers(self.prompt).cache_key
        return LayeredPrompt(self.prompt or self.system_prompt).cache_key

    @property
    def plan_name(self) -> str | None:
        """The name of the agent's plan spec, in whichever form it is given."""
        return self.plan.name if isinstance(self.plan, PlanSpec) else self.plan
