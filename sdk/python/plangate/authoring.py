"""What authors write in Python: agents, tools, plans, references, and the runtime they make up.

Everything here is data for the service but the functions of the author: handlers of tools, predicates,
dispatchers, glimpses. They are kept beside the data, in `DefinedRuntime`, and never cross the wire.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypedDict, Unpack, get_args

import jsonschema_rs
from pydantic import PrivateAttr, TypeAdapter

from plangate.spec.assembly import assemble
from plangate.spec.base import SpecModel
from plangate.spec.models import (
    AgentSpec,
    ApprovalOverrides,
    ApprovalPolicies,
    ApprovalRule,
    ClientPredicate,
    ModelSpec,
    PlanSpec,
    PlanStatus,
    ReferenceSpec,
    Role,
    RuntimeSpec,
    TenantSpec,
    ToolAnnotations,
    ToolkitSpec,
    ToolSpec,
)
from plangate.spec.plan_schemas import actions_schema
from plangate.spec.prompts import LayeredPrompt, render_layers
from plangate.spec.schemas import normalize_schema

Handler = Callable[[Any, Any], Any]
"""`(args, ctx)`, sync or async."""

Rule = str | Mapping[str, Any] | ApprovalRule | None
Policies = Mapping[str, Rule] | ApprovalPolicies | Literal["default"] | None


def define_tenant(resource_id: str, version: str = "") -> TenantSpec:
    """Names the tenant a runtime belongs to.

    Args:
        resource_id: The tenant's id; it must be the caller's.
        version: A label of the author's; never prompt content.

    Raises:
        pydantic.ValidationError: (a ValueError) for something that is not a tenant id.

    Example:
        >>> define_tenant("acme", version="2026-01").resource_id
        'acme'
    """
    return TenantSpec.model_validate({"resource_id": resource_id, "version": version})


# Tools.


class DefinedTool(ToolSpec):
    """A tool with the function that runs it, if it runs here; calling it calls that function.

    A tool without a function is a decorator for one.
    """

    _handler: Handler | None = PrivateAttr(default=None)

    @property
    def handler(self) -> Handler | None:
        """The function `(args, ctx)`; None if the tool runs elsewhere."""
        return self._handler

    @property
    def spec(self) -> ToolSpec:
        """The data alone."""
        return ToolSpec.model_validate({name: getattr(self, name) for name in self.model_fields_set})

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self._handler is not None:
            return self._handler(*args, **named)
        if len(args) == 1 and not named and callable(args[0]):
            return self._with_handler(args[0])
        raise TypeError(f"tool {self.name!r} has no handler: decorate a function (args, ctx) with it")

    def _with_handler(self, handler: Handler) -> DefinedTool:
        _check_callable(handler, f"the handler of tool {self.name!r}", "args, ctx")
        if self.transport.kind != "client":
            raise ValueError(
                f"tool {self.name!r} has a handler, but its transport {self.transport.kind!r} runs it "
                f"elsewhere: leave one of them out"
            )
        made = self.model_copy()
        made._handler = handler
        return made


def define_tool(
    name: str,
    input_schema: Any,
    description: str = "",
    approval: Rule = "default",
    *,
    handler: Handler | None = None,
    output_schema: Any = None,
    annotations: Mapping[str, bool] | ToolAnnotations | None = None,
    timeout_ms: int | None = None,
    replay: Literal["safe", "never"] | None = None,
    transport: Any = None,
) -> DefinedTool:
    """Declares a tool, as a call or as a decorator of the function that runs it.

    Args:
        name: What the model calls it.
        input_schema: Anything that `normalize_schema` takes; the arguments are validated against it.
        description: What the model is told of it.
        approval: `"never"`, `"always"`, `{"kind": "dynamic", "value": <predicate id>}`, or `"default"`: not
            set, so that the rules of agent and runtime hold.
        handler: A function `(args, ctx)`, sync or async; it runs in the author's process.
        output_schema: What results must match.
        annotations: `read_only` and `idempotent`.
        timeout_ms: How long a call may take.
        replay: Whether a call may be repeated when nobody knows whether it ran; unset, `"safe"` where the
            annotations promise it.
        transport: Where it runs, if not in processes of the author, such as `{"kind": "http", "url": ...}`.

    Raises:
        TypeError: for a schema that is none, or a handler that does not take `(args, ctx)`.
        ValueError: for a malformed field, or a handler beside a transport that would not call it.

    Example:
        >>> @define_tool("add", {"a": int, "b": int}, "Adds two numbers.")
        ... def add(args, ctx):
        ...     return args["a"] + args["b"]
        >>> add({"a": 1, "b": 2}, None), add.to_wire()["transport"]
        (3, {'kind': 'client'})
    """
    if not isinstance(name, str):
        raise TypeError(f"define_tool takes the tool's name and input schema first, not {_kind(name)}")
    written = {
        "name": name,
        "description": description,
        "input_schema": _schema(input_schema, f"the input schema of tool {name!r}"),
        "approval": approval,
        "annotations": annotations,
        "timeout_ms": timeout_ms,
        "replay": replay,
        "transport": transport,
    }
    if output_schema is not None:
        written["output_schema"] = _schema(output_schema, f"the output schema of tool {name!r}")
    tool = DefinedTool.model_validate(_set(written))
    return tool if handler is None else tool._with_handler(handler)


# Plans and references.


def define_plan(
    name: str,
    schema: Any,
    display_aliases: Mapping[str, str] | Iterable[Any] = (),
    *,
    variables: bool = False,
) -> PlanSpec:
    """Declares a kind of plan.

    Args:
        name: Its name; planners store plans under it.
        schema: Anything that `normalize_schema` takes, with a top-level array `actions`; every other field
            is the plan's context.
        display_aliases: What people read in place of a status: a mapping of status to alias, or a sequence
            of `{"status", "alias"}` or of pairs.
        variables: Whether daggers are allowed without the toolkit `variables`.

    Raises:
        TypeError: for a schema that is none.
        ValueError: for a schema without `actions`, or a status that plans do not have.

    Example:
        >>> define_plan("Refunds", {"actions": list[dict]}, {"draft": "Proposed"}).to_wire()["displayAliases"]
        [{'status': 'draft', 'alias': 'Proposed'}]
    """
    plain = _schema(schema, f"the schema of plan {name!r}")
    if actions_schema(plain) is None:
        raise ValueError(f"the schema of plan {name!r} has no array 'actions' at its top level: add one")
    aliases = [_alias(name, alias) for alias in _items(display_aliases)]
    written = {"name": name, "schema": plain, "display_aliases": aliases, "variables": variables}
    return PlanSpec.model_validate({key: value for key, value in written.items() if value not in ([], False)})


def _items(aliases: Mapping[str, str] | Iterable[Any]) -> Iterable[Any]:
    return aliases.items() if isinstance(aliases, Mapping) else aliases


def _alias(plan: str, alias: Any) -> Any:
    if isinstance(alias, tuple | list) and len(alias) == 2:
        alias = {"status": alias[0], "alias": alias[1]}
    status = alias.get("status") if isinstance(alias, Mapping) else getattr(alias, "status", None)
    if status not in get_args(PlanStatus):
        raise ValueError(
            f"plan {plan!r} has an alias for {status!r}, which is no status of plans: "
            f"they are {', '.join(get_args(PlanStatus))}"
        )
    return alias


@dataclass(frozen=True, slots=True)
class PackedReference:
    """A value as it is stored: JSON, and the glimpse of the author's function, or None without one."""

    value: Any
    glimpse: Any


class DefinedReference(ReferenceSpec):
    """A kind of reference with what stays in Python: the type of its values and the function for glimpses."""

    _type: TypeAdapter[Any] | None = PrivateAttr(default=None)
    _model: Any = PrivateAttr(default=None)

    @property
    def model(self) -> Any:
        """The class or type hint that was given as schema; None for a mapping."""
        return self._model

    def pack(self, payload: Any) -> PackedReference:
        """Validates a value and makes it ready to be stored.

        Raises:
            ValueError: if the value does not match the schema.
            TypeError: if it is no JSON, or if the glimpse function returns something that is no mapping.
        """
        if self._type is not None:
            validated = self._type.validate_python(payload)
            value = self._type.dump_python(validated, mode="json", by_alias=True)
        else:
            validated = value = TypeAdapter(Any).dump_python(payload, mode="json", by_alias=True)
            self._check(value)
        if not callable(self.glimpse):
            return PackedReference(value, None)
        made = self.glimpse(validated)
        if not isinstance(made, Mapping):
            raise TypeError(f"the glimpse of reference {self.name!r} must be a mapping, not {_kind(made)}")
        return PackedReference(value, TypeAdapter(Any).dump_python(dict(made), mode="json", by_alias=True))

    def _check(self, value: Any) -> None:
        rules: Any = self.schema_
        validator = jsonschema_rs.validator_cls_for(rules)(rules, offline=True)
        for error in validator.iter_errors(value):
            where = "".join(f"/{step}" for step in error.instance_path)
            raise ValueError(f"the value is no {self.name}: {error.message} (at {where or 'its root'})")


def define_reference(
    name: str,
    schema: Any,
    ttl_ms: int | None = None,
    glimpse: Mapping[str, str] | Callable[[Any], Mapping[str, Any]] | None = None,
) -> DefinedReference:
    """Declares a kind of reference.

    Args:
        name: The kind.
        schema: Anything that `normalize_schema` takes; values are validated against it.
        ttl_ms: How long a value lives, in milliseconds, at least 0; None: it never expires.
        glimpse: A mapping of field name to JMESPath expression, evaluated by the service, or a function that
            makes the glimpse from the validated value and stays in Python.

    Raises:
        TypeError: for a schema that is none, or a glimpse that is neither.
        pydantic.ValidationError: (a ValueError) for a negative `ttl_ms` or another malformed field.

    Example:
        >>> define_reference("Basket", {"items": list[str]}, glimpse={"size": "length(items)"}).name
        'Basket'
    """
    if glimpse is not None and not isinstance(glimpse, Mapping) and not callable(glimpse):
        raise TypeError(f"the glimpse of reference {name!r} is a mapping or a function, not {_kind(glimpse)}")
    plain = _schema(schema, f"the schema of reference {name!r}")
    written = {"name": name, "schema": plain, "ttl_ms": ttl_ms, "glimpse": glimpse}
    made = DefinedReference.model_validate(_set(written))
    if not isinstance(schema, Mapping):
        made._type, made._model = TypeAdapter(schema), schema
    return made


# Agents.


class DefinedAgent(AgentSpec):
    """An agent with the tools that were given to it as objects and not by name."""

    _bound: tuple[ToolSpec, ...] = PrivateAttr(default=())

    @property
    def bound_tools(self) -> tuple[ToolSpec, ...]:
        return self._bound


class AgentOptions(TypedDict, total=False):
    """What every agent may have beside its role's own.

    tools: Made with `define_tool`, or names of tools that the runtime declares.
    toolkits: Ids, or `{"id", "config": {"tools": [...]}}`.
    routes: The agents it may call: names, or agents.
    references: Kinds of reference that it works with.
    stateful: Whether it remembers a thread; unset, as its role does.
    max_turns: How many model turns a run may take, at least 1.
    approval: `{"plans": rule, "tools": rule}`; `"default"` is not set.
    tool_approvals: Rules for single tools, by name; they win over everything else.
    output_schema: What its final answer must match.
    """

    tools: Sequence[str | ToolSpec]
    toolkits: Sequence[str | Mapping[str, Any] | ToolkitSpec]
    routes: Sequence[str | AgentSpec]
    references: Sequence[ReferenceSpec]
    stateful: bool | None
    max_turns: int | None
    approval: Policies
    tool_approvals: Mapping[str, Rule] | None
    output_schema: Any


Model = str | Mapping[str, Any] | ModelSpec
Prompt = str | LayeredPrompt | Mapping[str, Any]


def define_coordinator(
    name: str, model: Model, prompt: Prompt, **options: Unpack[AgentOptions]
) -> DefinedAgent:
    """Declares the coordinator: the agent that a query enters by and that calls the others.

    Args:
        name: Its name, unique in the runtime.
        model: The id of a model, or `{"id", "provider", ...}`.
        prompt: A string, a `layered_prompt`, or a mapping of layers.
        options: AgentOptions; `routes` names at least one agent.

    Raises:
        TypeError: for an unknown option, or an option of the wrong kind.
        ValueError: for a malformed field.

    Example:
        >>> helper = define_specialist("helper", "m-1", "You help.")
        >>> define_coordinator("front", "m-1", "You route.", routes=[helper]).routes
        ('helper',)
    """
    return _define("coordinator", name, model, prompt, None, **options)


def define_planner(
    name: str, model: Model, prompt: Prompt, plan: str | PlanSpec, **options: Unpack[AgentOptions]
) -> DefinedAgent:
    """Declares a planner: it stores plans, and carries nothing out.

    Args:
        plan: The kind of plan it makes, as an object or by name; the rest as for `define_coordinator`.

    Raises:
        TypeError, ValueError: as `define_coordinator`.

    Example:
        >>> define_planner("planner", "m-1", "You plan.", plan="Refunds").role
        'planner'
    """
    return _define("planner", name, model, prompt, plan, **options)


def define_executor(
    name: str, model: Model, prompt: Prompt, plan: str | PlanSpec, **options: Unpack[AgentOptions]
) -> DefinedAgent:
    """Declares an executor: it has stored plans executed, once they are approved.

    Args:
        plan: The kind of plan it executes, as an object or by name; the rest as for `define_coordinator`.

    Raises:
        TypeError, ValueError: as `define_coordinator`.

    Example:
        >>> define_executor("executor", "m-1", "You execute.", plan="Refunds").role
        'executor'
    """
    return _define("executor", name, model, prompt, plan, **options)


def define_specialist(
    name: str, model: Model, prompt: Prompt, **options: Unpack[AgentOptions]
) -> DefinedAgent:
    """Declares a specialist: an agent with one task, called by a coordinator or directly.

    Args:
        name, model, prompt, options: as for `define_coordinator`.

    Raises:
        TypeError, ValueError: as `define_coordinator`.

    Example:
        >>> define_specialist("helper", {"id": "m-1", "provider": "openai"}, "You help.").model.provider
        'openai'
    """
    return _define("specialist", name, model, prompt, None, **options)


def _define(
    role: Role,
    name: str,
    model: Model,
    prompt: Prompt,
    plan: str | PlanSpec | None,
    *,
    tools: Sequence[str | ToolSpec] = (),
    toolkits: Sequence[str | Mapping[str, Any] | ToolkitSpec] = (),
    routes: Sequence[str | AgentSpec] = (),
    references: Sequence[ReferenceSpec] = (),
    stateful: bool | None = None,
    max_turns: int | None = None,
    approval: Policies = "default",
    tool_approvals: Mapping[str, Rule] | None = None,
    output_schema: Any = None,
) -> DefinedAgent:
    who = f"agent {name!r}"
    bound = _several(who, "tools", tools)
    written = {
        "name": name,
        "role": role,
        "model": model,
        "prompt": _prompt(who, prompt),
        "plan": plan,
        "tools": tuple(_name(who, "tools", tool, ToolSpec) for tool in bound),
        "toolkits": _several(who, "toolkits", toolkits),
        "routes": tuple(_name(who, "routes", route, AgentSpec) for route in _several(who, "routes", routes)),
        "references": _several(who, "references", references, ReferenceSpec),
        "stateful": stateful,
        "max_turns": max_turns,
        "approval_policies": _policies(who, approval),
        "tool_approval_policies": tool_approvals,
    }
    if output_schema is not None:
        written["output_schema"] = _schema(output_schema, f"the output schema of {who}")
    agent = DefinedAgent.model_validate({key: value for key, value in _set(written).items() if value != ()})
    agent._bound = tuple(tool for tool in bound if isinstance(tool, ToolSpec))
    return agent


def _prompt(who: str, prompt: Prompt) -> str:
    if isinstance(prompt, Mapping):
        try:
            return render_layers(prompt).text
        except TypeError as error:
            raise TypeError(f"the prompt of {who}: {error}") from error
    if not isinstance(prompt, str | LayeredPrompt):
        raise TypeError(f"the prompt of {who} is a string, a layered prompt or layers, not {_kind(prompt)}")
    return str(prompt)


def _policies(who: str, approval: Policies) -> Any:
    if approval is None or approval == "default":
        return None
    if not isinstance(approval, Mapping | ApprovalPolicies):
        raise TypeError(
            f"the approval of {who} is a mapping such as {{'plans': 'always', 'tools': 'never'}}, "
            f"not {approval!r}"
        )
    return approval


# Runtimes.


@dataclass(frozen=True, slots=True)
class ActionDispatcher:
    """The function that carries approved actions out: the write boundary, never callable by a model.

    Args:
        handler: `(actions, ctx)`, sync or async. It returns None or `{"entitiesAffected", "summary"?,
            "details"?}`; `ctx["resolved_refs"]` has the values of the references that the actions name.
        replay: Whether an action whose outcome a crash left open may be dispatched again with the same key
            (`"safe"`), or waits for a person to settle it (`"never"`).

    Raises:
        TypeError: for a handler that does not take `(actions, ctx)`.
        ValueError: for another `replay`.

    Example:
        >>> ActionDispatcher(lambda actions, ctx: {"entitiesAffected": len(actions)}).replay
        'never'
    """

    handler: Handler
    replay: Literal["safe", "never"] = "never"

    def __post_init__(self) -> None:
        _check_callable(self.handler, "the handler of an ActionDispatcher", "actions, ctx")
        if self.replay not in ("safe", "never"):
            raise ValueError(f"the replay of an ActionDispatcher is 'safe' or 'never', not {self.replay!r}")


@dataclass(frozen=True)
class DefinedRuntime:
    """A runtime that was assembled and found valid, and the functions of its author.

    spec, wire: What is registered, as a model and as the JSON object.
    tools: The tools that run here, by name.
    references: Kinds of reference, by name.
    predicates, dispatcher, dispatchers: The functions of approval rules, and of approved actions.
    missing_predicates: Ids that rules name and nobody has provided yet; see `completed`.
    """

    spec: RuntimeSpec
    wire: dict[str, Any]
    tools: Mapping[str, DefinedTool]
    references: Mapping[str, ReferenceSpec]
    predicates: Mapping[str, Handler]
    dispatcher: ActionDispatcher | None
    dispatchers: Mapping[str, ActionDispatcher]
    missing_predicates: tuple[str, ...]
    _written: Mapping[str, Any] = field(repr=False, compare=False)

    def completed(
        self,
        *,
        approval_predicates: Mapping[str, Any] | None = None,
        action_dispatcher: Any = None,
        interpreter: str | None = None,
        mock_response: str | None = None,
    ) -> DefinedRuntime:
        """The same runtime with what is only known when it is opened, assembled again.

        Raises:
            ValueError: if a rule names a predicate that nobody provides, and whatever `define_runtime`
                refuses.
        """
        predicates = {**(self._written.get("approval_predicates") or {}), **(approval_predicates or {})}
        late = {
            "approval_predicates": predicates,
            "action_dispatcher": action_dispatcher,
            "interpreter": interpreter,
            "mock_response": mock_response,
        }
        return _assembled({**self._written, **_set(late)})


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
    interpreter: Literal["scripted", "mock", "noop"] | None = None,
    mock_response: str | None = None,
    limits: Mapping[str, Any] | None = None,
    storage_factories: Mapping[str, None] | None = None,
) -> DefinedRuntime:
    """Assembles a runtime from its parts, and validates it with the code that the service uses.

    Tools, plans and references that agents carry are collected; `tools`, `plans` and `references` add more.

    Args:
        tenant: From `define_tenant`, or the tenant's id.
        agents: From `define_coordinator` and its siblings.
        name: With the tenant it names a line of versions.
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
        interpreter, mock_response: Runs every agent without a model; the text that `"mock"` answers.
        limits: Defaults for every query, such as `{"maxCostUsd": 5}`.
        storage_factories: All None: the service owns its storage.

    Raises:
        TypeError: for a part of the wrong kind.
        plangate.spec.assembly.SpecInvalid: (a ValueError) with everything that is wrong, each with its place.
        ValueError: for one tool name with two definitions, or a malformed approval rule.

    Example:
        >>> helper = define_specialist("helper", "m-1", "You help.")
        >>> runtime = define_runtime(define_tenant("acme"), [helper], interpreter="noop")
        >>> runtime.wire["agents"][0]["systemPrompt"]
        'You help.'
    """
    return _assembled(
        {
            "tenant": {"resourceId": tenant} if isinstance(tenant, str) else tenant,
            "agents": _several("the runtime", "agents", agents, AgentSpec),
            "name": name,
            "tools": _several("the runtime", "tools", tools, ToolSpec),
            "plans": _several("the runtime", "plans", plans, PlanSpec),
            "references": _several("the runtime", "references", references, ReferenceSpec),
            "toolkits": _several("the runtime", "toolkits", toolkits),
            "providers": providers,
            "approval_policies": _policies("the runtime", approval_policies),
            "approval_overrides": approval_overrides,
            "approval_predicates": approval_predicates,
            "action_dispatcher": action_dispatcher,
            "action_dispatchers": action_dispatchers,
            "input_schema": input_schema,
            "state_schema": state_schema,
            "data": data,
            "interpreter": interpreter,
            "mock_response": mock_response,
            "limits": limits,
            "storage_factories": storage_factories,
        }
    )


def _assembled(written: Mapping[str, Any]) -> DefinedRuntime:
    """`written` are the arguments of `define_runtime`; the functions in them are replaced by data here."""
    tools = _collected_tools(written["tools"], written["agents"])
    predicates: Mapping[str, Any] | None = written["approval_predicates"]
    shared, by_kind = written["action_dispatcher"], written["action_dispatchers"] or {}
    document = {
        **written,
        "tools": tuple(tools.values()),
        "approval_predicates": {id_: _predicate(id_, rule) for id_, rule in (predicates or {}).items()},
        "action_dispatcher": _dispatcher(shared),
        "action_dispatchers": {kind: _dispatcher(held) for kind, held in by_kind.items()},
    }
    made = assemble(
        {key: value for key, value in _set(document).items() if value not in ((), {})},
        check_predicates=predicates is not None,
    )
    references = [*written["references"], *(ref for agent in written["agents"] for ref in agent.references)]
    runs_here = {name: tool for name, tool in tools.items() if isinstance(tool, DefinedTool) and tool.handler}
    own = {kind: _own(held) for kind, held in by_kind.items()}
    return DefinedRuntime(
        spec=made.spec,
        wire=made.wire,
        tools=MappingProxyType(runs_here),
        references=MappingProxyType({reference.name: reference for reference in references}),
        predicates=MappingProxyType(
            {id_: rule for id_, rule in (predicates or {}).items() if callable(rule)}
        ),
        dispatcher=_own(shared),
        dispatchers=MappingProxyType({kind: held for kind, held in own.items() if held is not None}),
        missing_predicates=_missing_predicates(made.spec),
        _written=written,
    )


def _collected_tools(declared: Sequence[ToolSpec], agents: Sequence[AgentSpec]) -> dict[str, ToolSpec]:
    tools: dict[str, ToolSpec] = {}
    bound = [tool for agent in agents if isinstance(agent, DefinedAgent) for tool in agent.bound_tools]
    for tool in (*declared, *bound):
        known = tools.setdefault(tool.name, tool)
        here, there = getattr(tool, "handler", None), getattr(known, "handler", None)
        if known.to_wire() != tool.to_wire() or (here and there and here != there):
            raise ValueError(f"tool {tool.name!r} is defined twice and differently: rename one of them")
        if here:
            tools[tool.name] = tool
    return tools


def _missing_predicates(spec: RuntimeSpec) -> tuple[str, ...]:
    """Ids that rules of an assembled spec name and that nobody has provided."""
    overrides = spec.approval_overrides or ApprovalOverrides()
    policies = (spec.approval_policies or ApprovalPolicies(), *overrides.agents.values())
    rules = [
        *(tool.approval for tool in spec.tools),
        *(held.tools for held in policies),
        *(rule for held in overrides.tools.values() for rule in held.values()),
    ]
    named = {rule.value for rule in rules if rule is not None and rule.value is not None}
    return tuple(sorted(named - spec.approval_predicates.keys()))


def _predicate(id_: str, rule: Any) -> Any:
    if isinstance(rule, str | Mapping | ClientPredicate):
        return rule
    _check_callable(rule, f"the approval predicate {id_!r}", "args, ctx", "a CEL expression or ")
    return ClientPredicate(kind="client")


def _dispatcher(value: Any) -> Any:
    """A dispatcher as data."""
    own = _own(value)
    return value if own is None else {"kind": "client", "replay": own.replay}


def _own(value: Any) -> ActionDispatcher | None:
    """The function that a dispatcher is, or None where it is data."""
    if isinstance(value, ActionDispatcher):
        return value
    return ActionDispatcher(value) if callable(value) else None


# Shared by all of the above.


def _set(written: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in written.items() if value is not None}


def _schema(value: Any, what: str) -> dict[str, Any]:
    try:
        return normalize_schema(value)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from error


def _several(who: str, what: str, values: Any, model: type[SpecModel] | None = None) -> tuple[Any, ...]:
    if isinstance(values, str | Mapping | SpecModel) or not isinstance(values, Iterable):
        raise TypeError(f"the {what} of {who} are a list, not {_kind(values)}")
    several = tuple(values)
    if model and (strange := [value for value in several if not isinstance(value, model)]):
        raise TypeError(
            f"the {what} of {who} are what the define functions return; one is {_kind(strange[0])}"
        )
    return several


def _name(who: str, what: str, value: Any, model: type[ToolSpec] | type[AgentSpec]) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, model):
        return value.name
    raise TypeError(
        f"the {what} of {who} are names or what the define functions return; one is {_kind(value)}"
    )


def _check_callable(value: Any, what: str, parameters: str, also: str = "") -> None:
    if not callable(value):
        raise TypeError(f"{what} is {also}a function ({parameters}), not {_kind(value)}")
    try:
        signature = inspect.signature(value)
    except ValueError:
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise TypeError(f"{what} must take ({parameters}), but takes {signature}") from error


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
