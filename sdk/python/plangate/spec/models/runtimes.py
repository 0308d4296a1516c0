"""The runtime as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from plangate.spec.base import (
    MAX_ITEMS,
    MAX_TOOLS,
    Count,
    Flag,
    JsonSchema,
    Key,
    Milliseconds,
    SpecModel,
    TenantId,
    Text,
    at_most,
    set_entries,
)
from plangate.spec.models.agents import AgentSpec
from plangate.spec.models.declared import PlanSpec, ReferenceSpec, Toolkits, ToolSpec
from plangate.spec.models.providers import ProviderSpec
from plangate.spec.models.rules import ApprovalOverrides, ApprovalPolicies, Predicate
from plangate.spec.transports import Dispatcher

Interpreter = Literal["scripted", "mock", "noop"]

DEFAULT_SPEC_NAME: Final = "default"


class TenantSpec(SpecModel):
    """The tenant of a runtime: `resource_id` is the tenant's id; `version` is a label, never prompt content.

    Args:
        resource_id: The tenant's id: lower-case letters, digits, `_` and `-`.
        version: A label of the author's, up to 200 characters.

    Raises:
        pydantic.ValidationError: (a ValueError) for something that is not a tenant id.

    Example:
        >>> TenantSpec(resource_id="acme").to_wire()
        {'resourceId': 'acme'}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"resource_id"})

    resource_id: TenantId
    version: Annotated[str, Field(max_length=200)] = ""


class LimitsSpec(SpecModel):
    """Defaults for every query of the runtime, summed over its agents; durations in milliseconds.

    Args:
        max_turns: Model turns; unset, 100.
        max_tokens: Tokens in and out.
        max_cost_usd: In US dollars; every model needs a known price then.
        max_duration_ms: Time at work, in milliseconds; waiting does not count.
        max_depth: How deep agents call agents; unset, 8.
        max_parallel_tools: Calls at the same time; unset, 8.
        max_parallel_actions: Actions of a plan at the same time.
        tool_result_max_bytes: How large a tool's result may be in a prompt, from 1 KiB to 1 MiB; unset, 64 KiB.
            A larger one becomes a reference.

    Raises:
        pydantic.ValidationError: (a ValueError) for what is not above 0 or out of its range.

    Example:
        >>> LimitsSpec(max_cost_usd=5.0).to_wire()
        {'maxCostUsd': 5.0}
    """

    max_turns: Count | None = None
    max_tokens: Count | None = None
    max_cost_usd: Annotated[float, Field(gt=0, le=10**9, strict=True, allow_inf_nan=False)] | None = None
    max_duration_ms: Milliseconds | None = None
    max_depth: Count | None = None
    max_parallel_tools: Count | None = None
    max_parallel_actions: Count | None = None
    tool_result_max_bytes: Annotated[int, Field(strict=True, ge=1024, le=1024 * 1024)] | None = None


def _no_storage(value: Any) -> None:
    """Drop storage factories that are all null: other harnesses of this family send them."""
    if value is None or (isinstance(value, Mapping) and all(item is None for item in value.values())):
        return
    raise PydanticCustomError("storage", "the service owns its storage: leave this out, or null")


class WorkspaceSpec(SpecModel):
    """Where the files of a runtime's threads are, if not in the service.

    Args:
        transport: `"client"`: a process of the user serves them, such as with `serve_directory`.
        claim_within_ms: How long a call waits for such a process; 1 h if unset.
        read_only: Agents have no tools that write files.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> WorkspaceSpec(transport="client").to_wire()
        {'transport': 'client'}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"transport"})

    transport: Literal["client"]
    claim_within_ms: Milliseconds | None = None
    read_only: Flag = False


class RuntimeSpec(SpecModel):
    """A system of agents as data; registering it gives a runtime that queries run on.

    Args:
        name: With the tenant it names a line of versions.
        tenant: Whose it is.
        agents: Who works in it.
        references, plans, tools: What there is; those that agents carry are added by `define_runtime`.
        toolkits: For every agent.
        approval_policies: The rules for every agent.
        approval_overrides: Rules that win over them.
        approval_predicates: By id, CEL expressions over `args` and `ctx`, or `{"kind": "client"}` where a
            process of the user answers.
        action_dispatcher: Where approved actions go.
        action_dispatchers: Where actions of one kind go.
        providers: By the name that models use.
        input_schema: What a query's inputs must match.
        state_schema: What the state of a thread must match.
        data: Named data objects for variables.
        workspace: Where the files of its threads are, if not in the service.
        interpreter: `"scripted"`, `"mock"` or `"noop"`: every agent runs without a model.
        mock_response: What `"mock"` answers.
        limits: Defaults for every query.
        storage_factories: Accepted if it is None or all None, then dropped: the service owns its storage.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field. What the parts ask of one another is
            checked by `define_runtime` and by the service.

    Example:
        >>> helper = AgentSpec(name="helper", role="specialist", model="m-1", system_prompt="You help.")
        >>> RuntimeSpec(tenant=TenantSpec(resource_id="acme"), agents=[helper]).name
        'default'
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset(
        {
            "tenant",
            "agents",
            "references",
            "plans",
            "toolkits",
            "approval_policies",
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
    approval_predicates: Annotated[dict[Key, Predicate], at_most(MAX_ITEMS), set_entries] = Field(
        default_factory=dict
    )
    action_dispatcher: Dispatcher | None = None
    action_dispatchers: Annotated[dict[Key, Dispatcher], at_most(MAX_ITEMS), set_entries] = Field(
        default_factory=dict
    )
    providers: Annotated[dict[Key, ProviderSpec], at_most(MAX_ITEMS), set_entries] = Field(
        default_factory=dict
    )
    input_schema: JsonSchema | None = None
    state_schema: JsonSchema | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    workspace: WorkspaceSpec | None = None
    interpreter: Interpreter | None = None
    mock_response: Text | None = None
    limits: LimitsSpec | None = None
    storage_factories: SkipJsonSchema[Annotated[None, BeforeValidator(_no_storage)]] = None


def to_wire(spec: SpecModel) -> dict[str, Any]:
    """Return the JSON object of a spec, or of a part of one, as it crosses the wire.

    An agent always has name, role, stateful, model, systemPrompt, routes and toolkits; a spec always has
    tenant, agents, references, plans, toolkits, approvalPolicies and providers; everything
    else is left out when it is unset or empty.
    """
    return spec.to_wire()
