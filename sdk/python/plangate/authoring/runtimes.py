"""The runtime: its tenant and its parts, assembled and validated, beside the functions of its author."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from pydantic import PrivateAttr

from plangate.authoring.arguments import (
    Policies,
    drop_unset,
    parse_list,
    parse_policies,
)
from plangate.authoring.dispatchers import ActionDispatcher, as_dispatcher, dispatcher_to_wire
from plangate.authoring.predicates import (
    PredicateFunction,
    missing_predicates,
    parse_predicates,
    predicate_functions,
    predicates_to_wire,
)
from plangate.authoring.tools import DefinedTool
from plangate.spec.assembly import assemble
from plangate.spec.models import (
    AgentSpec,
    ApprovalOverrides,
    PlanSpec,
    ReferenceSpec,
    RuntimeSpec,
    TenantSpec,
    ToolkitSpec,
    ToolSpec,
    WorkspaceSpec,
)


def define_tenant(
    resource_id: str | Mapping[str, Any] | TenantSpec | None = None, version: str | None = None, **fields: Any
) -> TenantSpec:
    """Name the tenant that a runtime belongs to.

    Args:
        resource_id: The tenant's id, which must be the caller's. Or all fields as a mapping.
        version: A label of the author's; never prompt content.
        fields: The same fields in the spelling of the wire: `resourceId`.

    Raises:
        TypeError: for a tenant that is neither named nor a mapping.
        pydantic.ValidationError: (a ValueError) for something that is not a tenant id, or an unknown field.

    Example:
        >>> define_tenant("acme", version="2026-01").resource_id
        'acme'
        >>> define_tenant({"resourceId": "acme"}) == define_tenant(resource_id="acme")
        True
    """
    wire_fields: dict[str, Any] = dict(fields)
    if isinstance(resource_id, TenantSpec):
        wire_fields |= resource_id.to_wire()
    elif isinstance(resource_id, Mapping):
        wire_fields |= resource_id
    elif resource_id is not None:
        wire_fields["resource_id"] = resource_id
    elif not wire_fields:
        raise TypeError("define_tenant takes the tenant's id, or a mapping such as {'resourceId': 'acme'}")
    return TenantSpec.model_validate(wire_fields if version is None else {**wire_fields, "version": version})


@dataclass(frozen=True, slots=True)
class LocalParts:
    """The Python-only parts of a runtime: the author's functions, and the arguments that it was defined with."""

    tools: Mapping[str, DefinedTool]
    references: Mapping[str, ReferenceSpec]
    predicates: Mapping[str, PredicateFunction]
    dispatcher: ActionDispatcher | None
    dispatchers: Mapping[str, ActionDispatcher]
    missing_predicates: tuple[str, ...]
    arguments: Mapping[str, Any]


class DefinedRuntime(RuntimeSpec):
    """A runtime that was assembled and found valid, and the functions of its author: from `define_runtime`.

    Its fields are those of RuntimeSpec, as they are registered: `agents`, `plans`, `tools` and the others.

    Args:
        fields: Those of RuntimeSpec.

    Example:
        >>> runtime = define_runtime("acme", [define_specialist("helper", "m-1", "You help.")])
        >>> runtime.agents[0].name, runtime.plans, runtime.tools
        ('helper', (), ())
        >>> runtime.model_dump(by_alias=True, mode="json") == runtime.wire
        True
    """

    _local: LocalParts = PrivateAttr()

    @property
    def spec(self) -> RuntimeSpec:
        """The data alone."""
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        return RuntimeSpec.model_construct(self.model_fields_set, **fields)

    @property
    def wire(self) -> dict[str, Any]:
        """The JSON object that is registered."""
        return self.to_wire()

    @property
    def local_tools(self) -> Mapping[str, DefinedTool]:
        """The tools that run here, by name."""
        return self._local.tools

    @property
    def reference_kinds(self) -> Mapping[str, ReferenceSpec]:
        """Kinds of reference by name, with the types and functions that they were defined with."""
        return self._local.references

    @property
    def predicates(self) -> Mapping[str, PredicateFunction]:
        """The functions of approval rules, by id."""
        return self._local.predicates

    @property
    def dispatcher(self) -> ActionDispatcher | None:
        """The function that carries approved actions out; None where there is none, or it is data."""
        return self._local.dispatcher

    @property
    def dispatchers(self) -> Mapping[str, ActionDispatcher]:
        """The functions for single kinds of action."""
        return self._local.dispatchers

    @property
    def missing_predicates(self) -> tuple[str, ...]:
        """Return the ids that rules name and that `create_runtime` must still provide."""
        return self._local.missing_predicates

    def complete(
        self,
        *,
        approval_predicates: Mapping[str, Any] | None = None,
        action_dispatcher: Any = None,
        interpreter: str | None = None,
        mock_response: str | None = None,
        workspace: Mapping[str, Any] | None = None,
    ) -> DefinedRuntime:
        """Return the same runtime with the parts that are known only when it is opened, assembled again.

        Args:
            approval_predicates: In addition to those that it has; of one id, the one that is given here.
            action_dispatcher, interpreter, mock_response, workspace: As for `define_runtime`, in place of what it has.

        Raises:
            ValueError: if a rule names a predicate that nobody provides, and whatever `define_runtime`
                refuses.

        Example:
            >>> runtime = define_runtime("acme", [define_specialist("helper", "m-1", "You help.")])
            >>> runtime.complete(interpreter="noop").wire["interpreter"]
            'noop'
        """
        predicates = {
            **parse_predicates(self._local.arguments["approval_predicates"]),
            **parse_predicates(approval_predicates),
        }
        late = {
            "approval_predicates": predicates,
            "action_dispatcher": action_dispatcher,
            "interpreter": interpreter,
            "mock_response": mock_response,
            "workspace": workspace,
        }
        return _assemble({**self._local.arguments, **drop_unset(late)})


def define_runtime(
    tenant: TenantSpec | str | Mapping[str, Any],
    agents: Sequence[AgentSpec],
    *,
    name: str = "default",
    tools: Sequence[ToolSpec] = (),
    plans: Sequence[PlanSpec] = (),
    references: Sequence[ReferenceSpec] = (),
    toolkits: Sequence[str | Mapping[str, Any] | ToolkitSpec] = (),
    providers: Mapping[str, Any] | None = None,
    approval_policies: Policies = None,
    approval_overrides: Mapping[str, Any] | ApprovalOverrides | None = None,
    approval_predicates: Mapping[str, Any] | None = None,
    action_dispatcher: Any = None,
    action_dispatchers: Mapping[str, Any] | None = None,
    input_schema: Any = None,
    state_schema: Any = None,
    data: Mapping[str, Any] | None = None,
    workspace: Mapping[str, Any] | WorkspaceSpec | None = None,
    interpreter: Literal["scripted", "mock", "noop"] | None = None,
    mock_response: str | None = None,
    limits: Mapping[str, Any] | None = None,
    storage_factories: Mapping[str, None] | None = None,
) -> DefinedRuntime:
    """Assemble a runtime from its parts, and validate it with the code that the service uses.

    Tools, plans and references that agents carry are collected; `tools`, `plans` and `references` add more.

    Args:
        tenant: From `define_tenant`, or the tenant's id.
        agents: From `define_coordinator` and its siblings.
        name: With the tenant it names a line of versions.
        tools, plans, references: What agents do not carry themselves, or name.
        toolkits: For every agent: ids, or `{"id", "config": {"tools": [...]}}`.
        providers: By name, such as `{"openai": {"apiKey": {"secret": "openai"}}}`.
        approval_policies: `{"plans": rule, "tools": rule}` for every agent; absent, the coordinator's.
        approval_overrides: `{"agents": ..., "tools": ...}`, stronger than what agents and tools say.
        approval_predicates: By id, a CEL expression or a function `(args, ctx)`. Left out, predicates may
            still be provided when the runtime is opened; given, a rule that names another is refused.
        action_dispatcher: A function `(actions, ctx)`, an `ActionDispatcher`, or a transport as data.
        action_dispatchers: The same, for each kind of action.
        input_schema, state_schema: Of a query's inputs and of the thread's state.
        data: Named data objects for variables.
        workspace: `{"transport": "client"}`: the files of threads are on a machine of yours. Serve them with
            `create_runtime(..., workspace=serve_directory(path))`.
        interpreter, mock_response: Runs every agent without a model; the text that `"mock"` answers.
        limits: Defaults for every query, such as `{"maxCostUsd": 5}`.
        storage_factories: All None: the service owns its storage.

    Raises:
        TypeError: for a part of the wrong kind.
        SpecInvalid: (a ValueError) with everything that is wrong, each with its place.
        ValueError: for one tool name with two definitions, or a malformed approval rule.

    Example:
        >>> helper = define_specialist("helper", "m-1", "You help.")
        >>> runtime = define_runtime(define_tenant("acme"), [helper], interpreter="noop")
        >>> runtime.wire["agents"][0]["systemPrompt"]
        'You help.'
    """
    return _assemble(
        {
            "tenant": {"resourceId": tenant} if isinstance(tenant, str) else tenant,
            "agents": parse_list("the runtime", "agents", agents, AgentSpec),
            "name": name,
            "tools": parse_list("the runtime", "tools", tools, ToolSpec),
            "plans": parse_list("the runtime", "plans", plans, PlanSpec),
            "references": parse_list("the runtime", "references", references, ReferenceSpec),
            "toolkits": parse_list("the runtime", "toolkits", toolkits),
            "providers": providers,
            "approval_policies": parse_policies("the runtime", approval_policies),
            "approval_overrides": approval_overrides,
            "approval_predicates": approval_predicates,
            "action_dispatcher": action_dispatcher,
            "action_dispatchers": action_dispatchers,
            "input_schema": input_schema,
            "state_schema": state_schema,
            "data": data,
            "workspace": workspace,
            "interpreter": interpreter,
            "mock_response": mock_response,
            "limits": limits,
            "storage_factories": storage_factories,
        }
    )


def _assemble(wire_fields: Mapping[str, Any]) -> DefinedRuntime:
    """Assemble the arguments of `define_runtime`, with the functions in them replaced by data."""
    agents = wire_fields["agents"]
    plans = (*wire_fields["plans"], *(agent.plan for agent in agents if isinstance(agent.plan, PlanSpec)))
    bound = _bound_tools((*agents, *plans))
    tools = _collect_tools(wire_fields["tools"], bound)
    own_predicates = tool_predicates((*wire_fields["tools"], *bound))
    predicates = {**own_predicates, **parse_predicates(wire_fields["approval_predicates"])}
    shared, by_kind = wire_fields["action_dispatcher"], wire_fields["action_dispatchers"] or {}
    document = {
        **wire_fields,
        "tools": tuple(tools.values()),
        "approval_predicates": predicates_to_wire(predicates),
        "action_dispatcher": dispatcher_to_wire(shared),
        "action_dispatchers": {kind: dispatcher_to_wire(dispatcher) for kind, dispatcher in by_kind.items()},
    }
    runtime = assemble(
        {key: value for key, value in drop_unset(document).items() if value not in ((), {})},
        check_predicates=wire_fields["approval_predicates"] is not None,
    )
    references = [
        *wire_fields["references"],
        *(ref for agent in wire_fields["agents"] for ref in agent.references),
    ]
    own = {kind: as_dispatcher(dispatcher) for kind, dispatcher in by_kind.items()}
    local = LocalParts(
        tools=MappingProxyType(local_tools(tools.values())),
        references=MappingProxyType({reference.name: reference for reference in references}),
        predicates=MappingProxyType(predicate_functions(predicates)),
        dispatcher=as_dispatcher(shared),
        dispatchers=MappingProxyType(
            {kind: dispatcher for kind, dispatcher in own.items() if dispatcher is not None}
        ),
        missing_predicates=missing_predicates(runtime.spec),
        arguments=wire_fields,
    )
    return _defined(runtime.spec, local)


def _defined(spec: RuntimeSpec, local: LocalParts) -> DefinedRuntime:
    """Return the assembled spec with the functions of its author."""
    fields = {name: getattr(spec, name) for name in spec.model_fields_set}
    tools = [DefinedTool.model_validate(tool.model_dump(exclude_unset=True)) for tool in spec.tools]
    own = {name: tool.handler for name, tool in local.tools.items()}
    fields["tools"] = tuple(
        tool.bind(handler) if (handler := own.get(tool.name)) is not None else tool for tool in tools
    )
    runtime = DefinedRuntime.model_construct(spec.model_fields_set, **fields)
    runtime._local = local
    return runtime


def local_tools(tools: Iterable[ToolSpec]) -> dict[str, DefinedTool]:
    """Return the tools that have a function here, by name."""
    return {tool.name: tool for tool in tools if isinstance(tool, DefinedTool) and tool.handler}


def tool_predicates(tools: Iterable[ToolSpec]) -> dict[str, PredicateFunction]:
    """Return the functions that are the approval rules of tools, by the id that the rules name."""
    return {
        tool.approval.value: tool.predicate
        for tool in tools
        if isinstance(tool, DefinedTool) and tool.predicate and tool.approval and tool.approval.value
    }


def _bound_tools(holders: Iterable[AgentSpec | PlanSpec]) -> list[ToolSpec]:
    return [tool for holder in holders for tool in holder.bound_tools]


def _collect_tools(declared: Sequence[ToolSpec], bound: Sequence[ToolSpec]) -> dict[str, ToolSpec]:
    tools: dict[str, ToolSpec] = {}
    for tool in (*declared, *bound):
        known = tools.setdefault(tool.name, tool)
        here, there = getattr(tool, "handler", None), getattr(known, "handler", None)
        if known.to_wire() != tool.to_wire() or (here and there and here != there):
            raise ValueError(f"tool {tool.name!r} is defined twice and differently: rename one of them")
        if here:
            tools[tool.name] = tool
    return tools
