"""The RuntimeSpec and its parts as frozen models: what can be written down about a system of agents.

The models check shapes alone. What the parts ask of one another is checked by `plangate.spec.assembly`,
whose result is the form that is registered. Field names and meanings are those of the RuntimeSpec page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from plangate.spec.base import (
    MAX_ITEMS,
    MAX_TOOLS,
    Count,
    Flag,
    JsonSchema,
    Milliseconds,
    Name,
    SpecModel,
    TenantId,
    at_most,
)
from plangate.spec.transports import (
    ClientTransport,
    Dispatcher,
    HeaderValue,
    Replay,
    Transport,
)

Role = Literal["coordinator", "planner", "executor", "specialist"]
Interpreter = Literal["scripted", "mock", "noop"]
ProviderKind = Literal["anthropic", "openai", "bedrock", "vertex", "scripted", "mock", "noop"]
PlanStatus = Literal["draft", "approved", "executing", "executed", "failed"]

DEFAULT_SPEC_NAME: Final = "default"


# Approval rules.


class Quorum(SpecModel):
    """Who must approve: `minimum` different principals; `not_requester`: none of them asked for it."""

    minimum: Count = 1
    not_requester: Flag = False


class FreeArguments(SpecModel):
    """A remembered approval holds whatever these arguments of the tool are."""

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"free"})

    free: tuple[str, ...]


class ApprovalRule(SpecModel):
    """`never`, `always`, or `dynamic` with the id of a predicate as its `value`; expiry in milliseconds."""

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"kind"})

    kind: Literal["never", "always", "dynamic"]
    value: str | None = None
    approval_expires_in_ms: Milliseconds | None = None
    on_expiry: Literal["reject", "fail"] | None = None
    approvers: Quorum | None = None
    rememberable: Annotated[
        Annotated[bool, Field(strict=True), Tag("kind:flag")] | Annotated[FreeArguments, Tag("kind:free")],
        Discriminator(lambda value: "kind:flag" if isinstance(value, bool) else "kind:free"),
    ] = False

    @model_validator(mode="after")
    def _value_belongs_to_dynamic(self) -> ApprovalRule:
        if self.kind == "dynamic" and not self.value:
            raise PydanticCustomError("rule", "a dynamic rule names its predicate in 'value'")
        if self.kind != "dynamic" and self.value is not None:
            raise PydanticCustomError(
                "rule", "'value' belongs to a dynamic rule, not to '{kind}'", {"kind": self.kind}
            )
        return self


def _rule(value: Any) -> Any:
    """A bare word is a rule without settings; "default" is no rule at all."""
    if value == "default":
        return None
    return {"kind": value} if isinstance(value, str) else value


Rule = Annotated[ApprovalRule | None, BeforeValidator(_rule)]


class ApprovalPolicies(SpecModel):
    """A rule for each of the two channels; one that is unset leaves it to what stands below."""

    plans: Rule = None
    tools: Rule = None

    @field_validator("plans")
    @classmethod
    def _plans_have_no_predicates(cls, rule: ApprovalRule | None) -> ApprovalRule | None:
        if rule is not None and rule.kind == "dynamic":
            raise PydanticCustomError("rule", "a dynamic rule is for tools: plans take 'always' or 'never'")
        if rule is not None and rule.rememberable:
            raise PydanticCustomError("rule", "approvals of plans are not remembered: remove 'rememberable'")
        return rule


class ApprovalOverrides(SpecModel):
    """Rules that win over the policies: by agent and tool, and by agent."""

    tools: Annotated[dict[str, Annotated[dict[str, Rule], at_most(MAX_TOOLS)]], at_most(MAX_ITEMS)] = Field(
        default_factory=dict
    )
    agents: Annotated[dict[str, ApprovalPolicies], at_most(MAX_ITEMS)] = Field(default_factory=dict)


class ClientPredicate(SpecModel):
    """A predicate that is not data: a process of the user answers through the client transport."""

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"kind"})

    kind: Literal["client"] = "client"


Predicate = Annotated[
    Annotated[str, Field(min_length=1), Tag("kind:cel")] | Annotated[ClientPredicate, Tag("kind:client")],
    Discriminator(lambda value: "kind:cel" if isinstance(value, str) else "kind:client"),
]
"""A CEL expression over `args` and `ctx`, or {"kind": "client"}."""


# Parts of a runtime.


class TenantSpec(SpecModel):
    """Whose runtime it is: `resource_id` is the tenant's id; `version` is a label, never prompt content."""

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"resource_id"})

    resource_id: TenantId
    version: Annotated[str, Field(max_length=200)] = ""


class DisplayAlias(SpecModel):
    """What people read in place of a plan's status."""

    status: PlanStatus
    alias: Annotated[str, Field(min_length=1, max_length=200)]


class PlanSpec(SpecModel):
    """A kind of plan. Its schema has a top-level array `actions`; `variables` allows daggers in it."""

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"name", "schema_"})

    name: Name
    schema_: JsonSchema = Field(alias="schema")
    display_aliases: Annotated[tuple[DisplayAlias, ...], at_most(MAX_ITEMS)] = ()
    variables: Flag = False

    @field_validator("display_aliases")
    @classmethod
    def _one_alias_a_status(cls, aliases: tuple[DisplayAlias, ...]) -> tuple[DisplayAlias, ...]:
        statuses = [alias.status for alias in aliases]
        for status in statuses:
            if statuses.count(status) > 1:
                raise PydanticCustomError(
                    "alias", "the status '{status}' has two aliases: keep one", {"status": status}
                )
        return aliases


class ReferenceSpec(SpecModel):
    """A kind of reference; `ttl_ms` None never expires.

    `glimpse` is a mapping of field name to JMESPath expression, which the service evaluates, or in Python a
    callable, which never crosses the wire.
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"name", "schema_"})

    name: Name
    schema_: JsonSchema = Field(alias="schema")
    ttl_ms: Annotated[int, Field(strict=True, ge=0)] | None = None
    glimpse: dict[str, str] | SkipJsonSchema[Callable[[Any], Any]] | None = None

    def to_wire(self) -> dict[str, Any]:
        wire = super().to_wire()
        if callable(self.glimpse):
            del wire["glimpse"]
        return wire


class ToolAnnotations(SpecModel):
    """What a tool promises: to change nothing, or nothing more when it is called again."""

    read_only: Flag = False
    idempotent: Flag = False


class ToolSpec(SpecModel):
    """A tool that exists; `agents[].tools` names who may call it."""

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"name", "input_schema", "transport"})

    name: Name
    description: str = ""
    input_schema: JsonSchema
    output_schema: JsonSchema | None = None
    approval: Rule = None
    annotations: ToolAnnotations | None = None
    timeout_ms: Milliseconds | None = None
    replay: Replay | None = None
    transport: Transport = ClientTransport()

    def replay_rule(self) -> Replay:
        """Whether a call may be repeated: what is written, else "safe" where read-only or idempotent."""
        if self.replay is not None:
            return self.replay
        promises = self.annotations
        return "safe" if promises is not None and (promises.read_only or promises.idempotent) else "never"


class ToolkitConfig(SpecModel):
    """`tools` narrows the toolkit to the named ones; unset leaves it whole."""

    tools: Annotated[tuple[str, ...], at_most(MAX_ITEMS)] | None = None

    def to_wire(self) -> dict[str, Any]:
        return {} if self.tools is None else {"tools": list(self.tools)}


class ToolkitSpec(SpecModel):
    """A set of builtin tools by its id; a bare string is the id alone."""

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"id"})

    id: str
    config: ToolkitConfig | None = None


ToolkitOrId = Annotated[
    ToolkitSpec, BeforeValidator(lambda value: {"id": value} if isinstance(value, str) else value)
]
Toolkits = Annotated[tuple[ToolkitOrId, ...], at_most(MAX_ITEMS)]


class ModelSpec(SpecModel):
    """Which model thinks: its id at the vendor and the name of a provider.

    `thinking` and `extra` go into the vendor's request as they are.
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"id", "provider"})

    id: Annotated[str, Field(min_length=1)]
    provider: Annotated[str, Field(min_length=1)] = "anthropic"
    max_output_tokens: Count | None = None
    thinking: dict[str, Any] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class ProviderSpec(SpecModel):
    """A provider by name. `kind` unset: the name is the kind.

    `api_key` names a secret or, until registration, is the key itself; `api_key_env` is a variable that the
    operator listed. `tokens` is for `mock`: in how many parts its text is streamed; `idle_timeout_s` for
    vendors: the longest silence of a stream in seconds.
    """

    kind: ProviderKind | None = None
    api_key: HeaderValue | None = None
    api_key_env: Annotated[str, Field(min_length=1)] | None = None
    base_url: Annotated[str, Field(min_length=1)] | None = None
    idle_timeout_s: Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)] | None = None
    tokens: Count | None = None


class LimitsSpec(SpecModel):
    """Defaults for every query of the runtime, summed over its agents; durations in milliseconds."""

    max_turns: Count | None = None
    max_tokens: Count | None = None
    max_cost_usd: Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)] | None = None
    max_duration_ms: Milliseconds | None = None
    max_depth: Count | None = None
    max_parallel_tools: Count | None = None
    max_parallel_actions: Count | None = None


class StorageFactories(SpecModel):
    """All null: the service owns its storage."""

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"kv", "plans", "memory"})

    kv: None = None
    plans: None = None
    memory: None = None

    @field_validator("kv", "plans", "memory", mode="before")
    @classmethod
    def _null(cls, value: Any) -> None:
        if value is not None:
            raise PydanticCustomError("storage", "the service owns its storage: leave this null")


def _prompt(value: Any) -> Any:
    """A LayeredPrompt is its text."""
    return value.text if hasattr(value, "cache_key") else value


PlanOrName = Annotated[
    Annotated[str, Tag("kind:name")] | Annotated[PlanSpec, Tag("kind:inline")],
    Discriminator(lambda value: "kind:name" if isinstance(value, str) else "kind:inline"),
]
TextOrLayers = Annotated[
    Annotated[str, Tag("kind:text")] | Annotated[dict[str, Any], Tag("kind:layers")],
    Discriminator(lambda value: "kind:text" if isinstance(value, str) else "kind:layers"),
]


class AgentSpec(SpecModel):
    """An agent. `prompt`, `references`, `approval_policies` and `tool_approval_policies` are for authoring:
    assembly turns them into `system_prompt` and into parts of the runtime.

    `stateful` unset follows the role. `plan` is a plan's name, or the plan itself until assembly.
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset(
        {"name", "role", "stateful", "model", "system_prompt", "routes", "toolkits"}
    )

    name: Name
    role: Role
    stateful: Flag | None = None
    model: Annotated[ModelSpec, BeforeValidator(lambda v: {"id": v} if isinstance(v, str) else v)]
    system_prompt: Annotated[str, BeforeValidator(_prompt)] = ""
    routes: Annotated[tuple[str, ...], at_most(MAX_ITEMS)] = ()
    tools: Annotated[tuple[str, ...], at_most(MAX_TOOLS)] = ()
    toolkits: Toolkits = ()
    max_turns: Count | None = None
    plan: PlanOrName | None = None
    output_schema: JsonSchema | None = None
    prompt: Annotated[TextOrLayers | None, BeforeValidator(_prompt)] = None
    references: Annotated[tuple[ReferenceSpec, ...], at_most(MAX_ITEMS)] = ()
    approval_policies: ApprovalPolicies | None = None
    tool_approval_policies: Annotated[dict[str, Rule], at_most(MAX_TOOLS)] = Field(default_factory=dict)

    @property
    def plan_name(self) -> str | None:
        """The name of the agent's plan spec, in whichever form it is given."""
        return self.plan.name if isinstance(self.plan, PlanSpec) else self.plan


class RuntimeSpec(SpecModel):
    """A system of agents as data; registering it gives a runtime that queries run on."""

    always_on_wire: ClassVar[frozenset[str]] = frozenset(
        {
            "tenant",
            "agents",
            "references",
            "plans",
            "toolkits",
            "approval_policies",
            "storage_factories",
            "providers",
        }
    )

    name: Annotated[str, Field(min_length=1, max_length=200)] = DEFAULT_SPEC_NAME
    tenant: TenantSpec
    agents: Annotated[tuple[AgentSpec, ...], at_most(MAX_ITEMS)]
    references: Annotated[tuple[ReferenceSpec, ...], at_most(MAX_ITEMS)] = ()
    plans: Annotated[tuple[PlanSpec, ...], at_most(MAX_ITEMS)] = ()
    tools: Annotated[tuple[ToolSpec, ...], at_most(MAX_TOOLS)] = ()
    toolkits: Toolkits = ()
    approval_policies: ApprovalPolicies | None = None
    approval_overrides: ApprovalOverrides | None = None
    approval_predicates: Annotated[dict[str, Predicate], at_most(MAX_ITEMS)] = Field(default_factory=dict)
    action_dispatcher: Dispatcher | None = None
    action_dispatchers: Annotated[dict[str, Dispatcher], at_most(MAX_ITEMS)] = Field(default_factory=dict)
    providers: Annotated[dict[str, ProviderSpec], at_most(MAX_ITEMS)] = Field(default_factory=dict)
    input_schema: JsonSchema | None = None
    state_schema: JsonSchema | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    interpreter: Interpreter | None = None
    mock_response: str | None = None
    limits: LimitsSpec | None = None
    storage_factories: StorageFactories = StorageFactories()


def to_wire(spec: SpecModel) -> dict[str, Any]:
    """The JSON object of a spec, or of a part of one, as it crosses the wire.

    An agent always has name, role, stateful, model, systemPrompt, routes and toolkits; a spec always has
    tenant, agents, references, plans, toolkits, approvalPolicies, storageFactories and providers; everything
    else is left out when it is unset or empty.
    """
    return spec.to_wire()
