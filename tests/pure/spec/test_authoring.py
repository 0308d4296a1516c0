"""Specs written in Python: their wire form, and all errors with their messages."""

from __future__ import annotations

import hashlib
import inspect
import json
from decimal import Decimal
from typing import Any, Literal

import pytest
from plangate import (
    ActionDispatcher,
    AgentSpec,
    DefinedRuntime,
    PlanSpec,
    ReferenceSpec,
    RuntimeSpec,
    SpecInvalid,
    TaggedUnion,
    ToolSpec,
    define_coordinator,
    define_executor,
    define_plan,
    define_planner,
    define_reference,
    define_runtime,
    define_specialist,
    define_tenant,
    define_tool,
    layered_prompt,
    normalize_schema,
)
from plangate.spec.assembly import assemble
from pydantic import BaseModel, ValidationError

TENANT = define_tenant("acme", version="7")
BIG = {"kind": "dynamic", "value": "big"}


class Refund(BaseModel):
    kind: Literal["refund"]
    amount: Decimal


class Note(BaseModel):
    kind: str = "note"
    text: str


class Basket(BaseModel):
    items: list[str]
    total: Decimal = Decimal("0.10")


def handler(args: Any, ctx: Any) -> Any:
    return args, ctx


def runtime(*agents: AgentSpec, **parts: Any) -> DefinedRuntime:
    return define_runtime(TENANT, agents or (specialist(),), **parts)


def specialist(name: str = "helper", **options: Any) -> Any:
    return define_specialist(name, "m-1", "You help.", **options)


# Tenants.


def test_tenants() -> None:
    assert TENANT.to_wire() == {"resourceId": "acme", "version": "7"}
    assert runtime().wire["tenant"] == TENANT.to_wire()
    assert define_runtime("acme", [specialist()]).wire["tenant"] == {"resourceId": "acme"}
    with pytest.raises(ValueError, match="'Acme!' is not a tenant id"):
        define_tenant("Acme!")


@pytest.mark.parametrize(
    "tenant",
    [
        define_tenant({"resourceId": "acme", "version": "7"}),
        define_tenant({"resource_id": "acme"}, version="7"),
        define_tenant(resource_id="acme", version="7"),
        define_tenant(resourceId="acme", version="7"),
        define_tenant(TENANT),
    ],
)
def test_a_tenant_is_a_mapping_or_keywords(tenant: Any) -> None:
    assert tenant == TENANT


def test_a_tenant_has_a_name() -> None:
    with pytest.raises(TypeError, match="define_tenant takes the tenant's id"):
        define_tenant()
    with pytest.raises(ValueError, match="unknown field 'name'"):
        define_tenant({"name": "acme"})


# Tools.


def test_a_tool_as_a_call() -> None:
    tool = define_tool("look", {"id": str}, "Looks.")
    assert isinstance(tool, ToolSpec)
    assert tool.handler is None
    assert tool.to_wire() == {
        "name": "look",
        "description": "Looks.",
        "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
        "transport": {"kind": "client"},
    }
    assert type(tool.spec) is ToolSpec
    assert tool.spec.to_wire() == tool.to_wire()


def test_a_tool_as_a_decorator() -> None:
    @define_tool("look", Basket, approval="always")
    def look(args: Any, ctx: Any) -> Any:
        return [args, ctx]

    assert look.handler is not None
    assert look({"id": 1}, "ctx") == [{"id": 1}, "ctx"]
    assert look(args=1, ctx=2) == [1, 2]
    assert look.to_wire()["approval"] == {"kind": "always"}
    assert "handler" not in json.dumps(look.to_wire())


async def test_an_async_tool() -> None:
    @define_tool("look", {})
    async def look(args: Any, ctx: Any) -> Any:
        return args

    called = look("x", None)
    assert inspect.isawaitable(called)
    assert await called == "x"


def test_a_decorator_can_be_used_twice() -> None:
    declared = define_tool("look", {})
    one, other = declared(handler), declared(lambda args, ctx: 2)
    assert (one(1, 2), other(1, 2), declared.handler) == ((1, 2), 2, None)


def test_every_option_of_a_tool() -> None:
    tool = define_tool(
        "look",
        {},
        approval=BIG,
        output_schema=list[int],
        annotations={"read_only": True},
        timeout_ms=500,
        transport={"kind": "http", "url": "https://example.com/look"},
    )
    assert tool.replay_rule() == "safe"
    assert tool.to_wire() == {
        "name": "look",
        "inputSchema": {},
        "outputSchema": {"type": "array", "items": {"type": "integer"}},
        "approval": BIG,
        "annotations": {"readOnly": True},
        "timeoutMs": 500,
        "transport": {"kind": "http", "url": "https://example.com/look"},
    }


@pytest.mark.parametrize("approval", ["default", None])
def test_a_default_approval_is_off_the_wire(approval: Any) -> None:
    assert "approval" not in define_tool("look", {}, approval=approval).to_wire()


def test_an_approval_may_be_a_function() -> None:
    def over_limit(args: Any, ctx: Any) -> bool:
        return bool(args["cents"] > 100)

    pay = define_tool("pay", {"cents": int}, approval=over_limit)
    refund = define_tool(
        "refund", {}, approval={"kind": "dynamic", "value": over_limit, "rememberable": True}
    )
    made = runtime(specialist(tools=[pay, refund]))
    assert dict(made.predicates) == {"tools.pay": over_limit, "tools.refund": over_limit}
    assert made.missing_predicates == ()
    assert made.wire["approvalPredicates"]["tools.pay"] == {"kind": "client"}
    assert made.wire["tools"][0]["approval"] == {"kind": "dynamic", "value": "tools.pay"}
    assert made.wire["tools"][1]["approval"]["rememberable"] is True
    with pytest.raises(TypeError, match="the approval of tool 'pay' must take \\(args, ctx\\)"):
        define_tool("pay", {}, approval=lambda: True)


def test_bind_sets_the_function_of_a_tool() -> None:
    look = define_tool("look", {})
    bound = look.bind(handler)
    assert (look.handler, bound.handler, bound.to_wire()) == (None, handler, look.to_wire())
    assert bound.bind(len_of := lambda args, ctx: len(args)).handler is len_of
    with pytest.raises(TypeError, match="the handler of tool 'look' must take"):
        look.bind(lambda: None)


def test_a_default_approval_is_not_an_override() -> None:
    """Only a rule that was written does, also where it says what is the default anyway."""
    agent = specialist(
        tools=[define_tool("look", {}), define_tool("peek", {}, approval="never")],
        approval={"plans": "default", "tools": "default"},
    )
    made = runtime(agent, approval_policies={"tools": "always"})
    assert made.wire["approvalOverrides"] == {"tools": {"helper": {"peek": {"kind": "never"}}}}
    assert made.wire["approvalPolicies"] == {"plans": {"kind": "always"}, "tools": {"kind": "always"}}
    assert "approvalOverrides" not in runtime(specialist(tools=[define_tool("look", {})])).wire


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: define_tool(handler, {}),
            TypeError,
            "takes the tool's name and input schema first, not a func",
        ),
        (lambda: define_tool("t", 3), TypeError, "the input schema of tool 't': a schema is"),
        (
            lambda: define_tool("t", {}, output_schema="x"),
            TypeError,
            "the output schema of tool 't': a schema",
        ),
        (lambda: define_tool("no name", {}), ValueError, "'no name' is not a name"),
        (lambda: define_tool("t", {}, approval="maybe"), ValueError, "'never', 'always' or 'dynamic'"),
        (
            lambda: define_tool("t", {}, approval={"kind": "dynamic"}),
            ValueError,
            "names its predicate in 'value'",
        ),
        (lambda: define_tool("t", {}, timeout_ms=0), ValueError, "greater than or equal to 1"),
        (lambda: define_tool("t", {}, annotations={"readonly": True}), ValueError, "did you mean 'readOnly'"),
        (
            lambda: define_tool("t", {})(lambda args: 1),
            TypeError,
            r"handler of tool 't' must take \(args, ctx\)",
        ),
        (
            lambda: define_tool("t", {}, handler=5),
            TypeError,
            r"handler of tool 't' is a function \(args, ctx\), no",
        ),
        (lambda: define_tool("t", {})({}, None), TypeError, "tool 't' has no handler: decorate a function"),
        (
            lambda: define_tool("t", {}, handler=handler, transport={"kind": "http", "url": "https://x"}),
            ValueError,
            "tool 't' has a handler, but its transport 'http' runs it elsewhere",
        ),
    ],
)
def test_invalid_tools_are_rejected(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# Plans.


def test_plans() -> None:
    class Plan(BaseModel):
        why: str
        actions: list[TaggedUnion(Refund, Note)]  # type: ignore[valid-type]

    plan = define_plan("Refunds", Plan, [{"status": "draft", "alias": "Proposed"}], variables=True)
    assert type(plan) is PlanSpec
    wire = plan.to_wire()
    assert (wire["name"], wire["variables"]) == ("Refunds", True)
    assert wire["displayAliases"] == [{"status": "draft", "alias": "Proposed"}]
    assert wire["schema"]["properties"]["actions"]["items"]["discriminator"]["propertyName"] == "kind"
    assert set(define_plan("Refunds", Plan).to_wire()) == {"name", "schema"}
    with pytest.raises(ValidationError, match="frozen"):
        plan.name = "other"


@pytest.mark.parametrize(
    "aliases",
    [{"draft": "Proposed"}, [("draft", "Proposed")], [{"status": "draft", "alias": "Proposed"}]],
)
def test_aliases_in_any_form(aliases: Any) -> None:
    plan = define_plan("Refunds", {"actions": list[dict]}, aliases)
    assert [(alias.status, alias.alias) for alias in plan.display_aliases] == [("draft", "Proposed")]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: define_plan("P", 3), TypeError, "the schema of plan 'P': a schema is"),
        (
            lambda: define_plan("P", {"actions": list[dict]}, {"pending_approval": "x"}),
            ValueError,
            "plan 'P' has an alias for 'pending_approval', which is not a status of plans; expected one of",
        ),
        (lambda: define_plan("P", {"actions": list[dict]}, ["draft"]), ValueError, "has an alias for None"),
        (
            lambda: define_plan("P", {"actions": list[dict]}, [("draft", "a"), ("draft", "b")]),
            ValueError,
            "'draft' has two aliases",
        ),
    ],
)
def test_invalid_plans_are_rejected(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# References.


def test_python_parts_stay_off_the_wire() -> None:
    reference = define_reference("Basket", Basket, ttl_ms=0, glimpse=lambda basket: {"n": len(basket.items)})
    assert isinstance(reference, ReferenceSpec)
    assert reference.model is Basket
    wire = reference.to_wire()
    assert set(wire) == {"name", "schema", "ttlMs"}
    json.dumps(wire)
    with pytest.raises(ValidationError, match="frozen"):
        reference.name = "other"


@pytest.mark.parametrize(
    "schema",
    [
        Basket,
        {"type": "array", "items": {"type": "string"}},
        {"items": list[str]},
        list[dict[str, int]],
        dict[str, Basket],
    ],
)
def test_a_kind_may_be_declared_with_any_form_of_schema(schema: Any) -> None:
    reference = define_reference("R", schema)
    assert reference.to_wire() == {"name": "R", "schema": normalize_schema(schema)}
    assert ReferenceSpec.model_validate(reference.to_wire()).to_wire() == reference.to_wire()


def test_an_expression_glimpse_is_on_the_wire() -> None:
    reference = define_reference("Basket", {"items": list[str]}, glimpse={"n": "length(items)"})
    assert reference.to_wire()["glimpse"] == {"n": "length(items)"}
    assert reference.model is None
    assert reference.pack({"items": ["a"]}).glimpse is None


def test_packing_validates_and_calls_the_glimpse_once() -> None:
    seen: list[Any] = []

    def glimpse(basket: Basket) -> dict[str, Any]:
        seen.append(basket)
        return {"total": basket.total}

    packed = define_reference("Basket", Basket, glimpse=glimpse).pack({"items": ["a"]})
    assert packed.value == {"items": ["a"], "total": "0.10"}
    assert packed.glimpse == {"total": "0.10"}
    assert seen == [Basket(items=["a"])]
    by_schema = define_reference("Basket", {"items": list[str]}, glimpse=lambda value: {"n": value["items"]})
    assert by_schema.pack({"items": ("a",)}).glimpse == {"n": ["a"]}
    assert define_reference("Many", list[Decimal]).pack(["1.50"]).value == ["1.50"]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: define_reference("R", 3), TypeError, "the schema of reference 'R': a schema is"),
        (lambda: define_reference("R", {}, ttl_ms=-1), ValidationError, "greater than or equal to 0"),
        (
            lambda: define_reference("R", {}, glimpse="n"),
            TypeError,
            "glimpse of reference 'R' is a mapping or a func",
        ),
        (lambda: define_reference("R", {}, glimpse={"n": 3}), ValidationError, "valid string"),
        (lambda: define_reference("R", Basket).pack({}), ValueError, "items"),
        (
            lambda: define_reference("R", {"items": list[str]}).pack({"items": [1]}),
            ValueError,
            r'the value is not a R: 1 is not of type "string" \(at /items/0\)',
        ),
        (
            lambda: define_reference("R", {}, glimpse=lambda value: 3).pack({}),
            TypeError,
            "the glimpse of reference 'R' must be a mapping, not a int",
        ),
    ],
)
def test_invalid_references_are_rejected(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# Agents.


def test_agents() -> None:
    plan = define_plan("Refunds", {"actions": list[dict]})
    look = define_tool("look", {})
    planner = define_planner(
        "planner", {"id": "m-1", "provider": "openai"}, "Plan.", plan, tools=[look, "other"]
    )
    executor = define_executor("executor", "m-1", layered_prompt(identity="I"), "Refunds", stateful=True)
    coordinator = define_coordinator(
        "front", "m-1", {"identity": "I", "safety": ["S"]}, routes=[planner, "executor"], max_turns=3
    )
    assert (planner.role, planner.plan, planner.tools, planner.bound_tools) == (
        "planner",
        plan,
        ("look", "other"),
        (look,),
    )
    assert (executor.plan, executor.system_prompt, executor.stateful) == ("Refunds", "# Identity\nI", True)
    assert (coordinator.routes, coordinator.max_turns) == (("planner", "executor"), 3)
    assert coordinator.system_prompt == "# Identity\nI\n\n# Safety\n- S"


@pytest.mark.parametrize(
    "prompt",
    ["You plan.", layered_prompt(identity="You plan."), {"identity": "You plan.", "safety": ["Never pay."]}],
)
def test_an_agent_has_its_prompt_and_statefulness(prompt: Any) -> None:
    planner = define_planner("planner", "m-1", prompt)
    rendered = layered_prompt(**prompt) if isinstance(prompt, dict) else prompt
    assert planner.system_prompt == str(rendered)
    assert planner.prompt_cache_key == hashlib.sha256(planner.system_prompt.encode()).hexdigest()
    assert planner.stateful is True
    assert specialist().stateful is False
    assert AgentSpec(name="a", role="coordinator", model="m").stateful is True
    assert (
        AgentSpec.model_validate({"name": "a", "role": "executor", "model": "m", "stateful": None}).stateful
        is False
    )


def test_an_agent_accepts_tools_as_objects_or_names() -> None:
    look = define_tool("look", {}, handler=handler)
    agent = AgentSpec(name="a", role="specialist", model="m", tools=(look, "pay"))
    assert (agent.tools, agent.bound_tools) == (("look", "pay"), (look,))
    made = runtime(agent, tools=[define_tool("pay", {})])
    assert [tool.name for tool in made.tools] == ["pay", "look"]
    assert dict(made.local_tools) == {"look": look}
    spec = RuntimeSpec(tenant=TENANT, agents=[agent], tools=[define_tool("pay", {})])
    assert [tool["name"] for tool in assemble(spec).wire["tools"]] == ["pay", "look"]
    clash = RuntimeSpec(tenant=TENANT, agents=[agent], tools=[define_tool("look", {"id": str})])
    with pytest.raises(SpecInvalid, match="tool 'look' is declared twice"):
        assemble(clash)


def test_the_only_plan_is_the_default() -> None:
    plan = define_plan("Refunds", {"actions": list[dict]})
    agents = define_planner("planner", "m-1", "Plan."), define_executor("executor", "m-1", "Do.")
    made = runtime(*agents, plans=[plan])
    assert [agent.plan for agent in made.agents] == ["Refunds", "Refunds"]
    with pytest.raises(SpecInvalid, match="planner 'planner' has no plan"):
        runtime(*agents)
    with pytest.raises(SpecInvalid, match="name one of 'Refunds', 'Other' in 'plan'"):
        runtime(*agents, plans=[plan, define_plan("Other", {})])


def test_a_runtime_may_have_several_coordinators() -> None:
    fronts = [define_coordinator(name, "m-1", "You route.", routes=["helper"]) for name in ("a", "b")]
    assert [agent.name for agent in runtime(*fronts, specialist()).agents] == ["a", "b", "helper"]


def test_rules_of_agents() -> None:
    agent = specialist(approval={"plans": "never", "tools": "default"}, tool_approvals={"look": "always"})
    assert agent.approval_policies is not None and agent.approval_policies.plans is not None
    assert agent.approval_policies.plans.kind == "never"
    assert agent.approval_policies.tools is None
    assert agent.tool_approval_policies["look"].kind == "always"
    assert specialist(approval="default").approval_policies is None


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: specialist(mood="good"), TypeError, "unexpected keyword argument 'mood'"),
        (lambda: specialist("no name"), ValueError, "'no name' is not a name"),
        (lambda: specialist(tools="look"), TypeError, "the tools of agent 'helper' are a list, not a str"),
        (
            lambda: specialist(tools=[handler]),
            TypeError,
            "the tools of agent 'helper' are names or what .* a func",
        ),
        (
            lambda: specialist(routes=[3]),
            TypeError,
            "the routes of agent 'helper' are names or what .* a int",
        ),
        (lambda: specialist(routes=specialist()), TypeError, "the routes of agent 'helper' are a list"),
        (
            lambda: specialist(references=["R"]),
            TypeError,
            "references of agent 'helper' are what the define func",
        ),
        (lambda: specialist(max_turns=0), ValueError, "greater than or equal to 1"),
        (lambda: specialist(approval="always"), TypeError, "approval of agent 'helper' is a mapping such as"),
        (
            lambda: specialist(approval={"tool": "always"}),
            ValueError,
            "unknown field 'tool'; did you mean 'tools'",
        ),
        (lambda: specialist(approval={"plans": BIG}), ValueError, "a dynamic rule is for tools"),
        (lambda: specialist(output_schema=3), TypeError, "the output schema of agent 'helper': a schema is"),
        (
            lambda: define_specialist("helper", "m-1", 3),  # type: ignore[arg-type]
            TypeError,
            "the prompt of agent 'helper' is a string, a layered prompt or layers, not a int",
        ),
        (
            lambda: define_specialist("helper", "m-1", {"identity": "I", "mood": "x"}),
            TypeError,
            "the prompt of agent 'helper': unknown prompt layer 'mood'",
        ),
    ],
)
def test_invalid_agents_are_rejected(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# Runtimes.


def test_a_runtime_collects_the_parts_of_its_agents() -> None:
    plan = define_plan("Refunds", {"actions": list[dict]})
    basket = define_reference("Basket", Basket, glimpse=lambda value: {})
    look = define_tool("look", {}, "Looks.", handler=handler)
    pay = define_tool("pay", {}, approval="always", transport={"kind": "client"})
    planner = define_planner("planner", "m-1", "Plan.", plan, tools=[look], references=[basket])
    executor = define_executor("executor", "m-1", "Do.", plan, tools=[pay, look])
    made = runtime(
        planner, executor, providers={"anthropic": {"apiKey": {"secret": "k"}}}, limits={"maxTurns": 5}
    )
    assert [tool["name"] for tool in made.wire["tools"]] == ["look", "pay"]
    assert [held["name"] for held in made.wire["plans"]] == ["Refunds"]
    assert [held["name"] for held in made.wire["references"]] == ["Basket"]
    assert made.wire["limits"] == {"maxTurns": 5}
    assert made.wire["approvalOverrides"]["tools"] == {"executor": {"pay": {"kind": "always"}}}
    assert dict(made.local_tools) == {"look": look}
    assert made.local_tools["look"]("a", "b") == ("a", "b")
    assert made.reference_kinds["Basket"] is basket
    json.dumps(made.wire)
    with pytest.raises(ValueError, match="frozen"):
        made.name = "other"


def test_every_dump_in_json_mode_is_the_wire_form() -> None:
    look = define_tool("look", {"id": str}, handler=handler, annotations={"read_only": True})
    basket = define_reference("Basket", Basket, ttl_ms=60_000, glimpse=lambda value: {"n": 1})
    plan = define_plan("Refunds", {"actions": list[dict]}, {"draft": "Proposed"})
    agents = define_planner("planner", "m-1", "Plan.", plan, tools=[look], references=[basket]), specialist()
    made = runtime(
        *agents, toolkits=[{"id": "plans", "config": {"tools": []}}], data={"rates": {"eur": None}}
    )
    for part in (
        made,
        made.spec,
        *made.agents,
        *made.plans,
        *made.tools,
        *made.references,
        *agents,
        look,
        basket,
    ):
        dump = part.model_dump(by_alias=True, mode="json")
        assert json.loads(json.dumps(dump)) == dump == part.to_wire()
        assert json.loads(part.model_dump_json(by_alias=True)) == dump
    wire = made.model_dump(by_alias=True, mode="json")
    assert wire == made.wire == runtime_again(wire)
    assert basket.model_dump(by_alias=True, mode="json").keys() == {"name", "schema", "ttlMs"}
    assert wire["data"] == {"rates": {"eur": None}}
    assert "null" not in json.dumps({**wire, "data": {}})
    assert "glimpse" not in basket.model_dump()
    assert basket.model_dump(mode="json").keys() == {"name", "schema_", "ttl_ms"}


def runtime_again(wire: Any) -> Any:
    return assemble(wire).wire


def test_a_runtime_has_its_parts() -> None:
    look = define_tool("look", {}, handler=handler)
    plan = define_plan("Refunds", {"actions": list[dict]})
    made = runtime(define_planner("planner", "m-1", "Plan.", plan, tools=[look]))
    assert ([a.name for a in made.agents], [p.name for p in made.plans]) == (["planner"], ["Refunds"])
    assert [(tool.name, tool.handler) for tool in made.tools] == [("look", handler)]
    assert made.agents[0].system_prompt.startswith("Plan.\n\n# Tools\n")
    assert (
        made.agents[0].prompt_cache_key == hashlib.sha256(made.agents[0].system_prompt.encode()).hexdigest()
    )
    assert isinstance(made, RuntimeSpec)


def test_a_runtime_assembles_like_the_service() -> None:
    made = runtime(specialist(tools=[define_tool("look", {}, "Looks.")]))
    assert made.spec.agents[0].system_prompt == (
        "You help.\n\n# Tools\n"
        "| Tool | Description | Approval |\n| --- | --- | --- |\n| look | Looks. | never |"
    )
    assert made.wire["agents"][0]["systemPrompt"] == made.spec.agents[0].system_prompt


def test_a_tool_listed_twice_is_one_tool() -> None:
    look = define_tool("look", {}, handler=handler)
    made = runtime(specialist(tools=[look]), specialist("other", tools=[look.spec]), tools=[look.spec])
    assert len(made.wire["tools"]) == 1
    assert made.local_tools["look"].handler is handler


def test_dispatchers_and_predicates_stay_in_python() -> None:
    def dispatch(actions: Any, ctx: Any) -> None: ...
    def big(args: Any, ctx: Any) -> bool:
        return True

    plan = define_plan("Refunds", {"actions": list[TaggedUnion(Refund, Note)]})  # type: ignore[misc]
    executor = define_executor("executor", "m-1", "Do.", plan, tools=[define_tool("pay", {}, approval=BIG)])
    made = runtime(
        executor,
        approval_predicates={"big": big, "small": "args.amount < 10"},
        action_dispatcher=ActionDispatcher(dispatch, replay="safe"),
        action_dispatchers={"refund": dispatch, "note": {"kind": "client"}},
    )
    assert made.wire["approvalPredicates"] == {"big": {"kind": "client"}, "small": "args.amount < 10"}
    assert made.wire["actionDispatcher"] == {"kind": "client", "replay": "safe"}
    assert made.wire["actionDispatchers"] == {"refund": {"kind": "client"}, "note": {"kind": "client"}}
    assert dict(made.predicates) == {"big": big}
    assert made.dispatcher == ActionDispatcher(dispatch, "safe")
    assert dict(made.dispatchers) == {"refund": ActionDispatcher(dispatch)}
    assert made.missing_predicates == ()


def test_predicates_may_be_passed_at_opening() -> None:
    def dispatch(actions: Any, ctx: Any) -> None: ...

    tools = [define_tool("pay", {}, approval=BIG)]
    agent = specialist(tools=tools, approval={"tools": {"kind": "dynamic", "value": "odd"}})
    made = runtime(agent)
    assert made.missing_predicates == ("big", "odd")
    with pytest.raises(SpecInvalid, match="predicate 'big', which is not registered"):
        made.complete()
    with pytest.raises(SpecInvalid, match="predicate 'odd', which is not registered"):
        made.complete(approval_predicates={"big": handler})
    done = made.complete(
        approval_predicates={"big": handler, "odd": "true"}, action_dispatcher=dispatch, interpreter="noop"
    )
    assert done.missing_predicates == ()
    assert dict(done.predicates) == {"big": handler}
    assert done.wire["approvalPredicates"] == {"big": {"kind": "client"}, "odd": "true"}
    assert done.dispatcher == ActionDispatcher(dispatch)
    assert done.wire["interpreter"] == "noop"
    assert "approvalPredicates" not in made.wire
    at_once = runtime(
        agent,
        approval_predicates={"odd": "true", "big": handler},
        action_dispatcher=dispatch,
        interpreter="noop",
    )
    assert at_once.wire == done.wire


def test_completing_adds_to_what_wexplicit_values() -> None:
    made = runtime(approval_predicates={"big": handler}, interpreter="mock", mock_response="a")
    done = made.complete(approval_predicates={"odd": handler}, mock_response="b")
    assert set(done.predicates) == {"big", "odd"}
    assert (done.wire["interpreter"], done.wire["mockResponse"]) == ("mock", "b")


NO_RULE = {"kind": "dynamic", "value": "nope"}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: define_runtime(TENANT, specialist()),
            TypeError,
            "the agents of the runtime are a list, not a Def",
        ),
        (
            lambda: define_runtime(TENANT, [{}]),
            TypeError,
            "agents of the runtime are what the define functions ret",
        ),
        (
            lambda: runtime(tools=[handler]),
            TypeError,
            "the tools of the runtime are what .* one is a function",
        ),
        (lambda: runtime(plans=["P"]), TypeError, "the plans of the runtime are what .* one is a str"),
        (
            lambda: runtime(references=[Basket]),
            TypeError,
            "the references of the runtime are what .* one is a ",
        ),
        (
            lambda: runtime(approval_policies="always"),
            TypeError,
            "approval of the runtime is a mapping such as",
        ),
        (lambda: runtime(specialist(), specialist()), SpecInvalid, "'helper'"),
        (lambda: runtime(define_coordinator("front", "m", "p")), SpecInvalid, "'front'.* route"),
        (lambda: runtime(specialist(tools=["nope"])), SpecInvalid, "'nope'"),
        (
            lambda: runtime(
                specialist(tools=[define_tool("t", {}, approval=NO_RULE)]), approval_predicates={}
            ),
            SpecInvalid,
            "the approval of tool 't' names the predicate 'nope', which is not registered",
        ),
        (
            lambda: runtime(specialist(tools=[define_tool("t", {"$ref": "https://example.com/a"})])),
            SpecInvalid,
            "leaves the document",
        ),
        (
            lambda: runtime(specialist(tools=[define_tool("t", {})]), tools=[define_tool("t", {"a": int})]),
            ValueError,
            "tool 't' is defined twice and differently: rename one of them",
        ),
        (
            lambda: runtime(
                specialist(tools=[define_tool("t", {}, handler=handler)]),
                tools=[define_tool("t", {}, handler=lambda args, ctx: 1)],
            ),
            ValueError,
            "tool 't' is defined twice and differently",
        ),
        (
            lambda: runtime(approval_predicates={"big": 3}),
            TypeError,
            r"the approval predicate 'big' is a CEL expression or a function \(args, ctx\), not a int",
        ),
        (
            lambda: runtime(approval_predicates={"big": lambda args: True}),
            TypeError,
            r"the approval predicate 'big' must take \(args, ctx\), but takes \(args\)",
        ),
        (
            lambda: runtime(action_dispatcher=lambda actions: None),
            TypeError,
            r"the handler of an ActionDispatcher must take \(actions, ctx\)",
        ),
        (lambda: ActionDispatcher(3), TypeError, r"is a function \(actions, ctx\), not a int"),  # type: ignore[arg-type]
        (
            lambda: ActionDispatcher(handler, replay="often"),  # type: ignore[arg-type]
            ValueError,
            "the replay of an ActionDispatcher is 'safe' or 'never', not 'often'",
        ),
        (lambda: runtime(interpreter="none"), SpecInvalid, "interpreter"),
        (lambda: runtime(storage_factories={"kv": 1}), SpecInvalid, "the service owns its storage"),
    ],
)
def test_invalid_runtimes_are_rejected(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
