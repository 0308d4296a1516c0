"""From a written spec to the registered one: collecting, defaults, the wire form, the fixed point."""

import copy
import json
from typing import Any

import jsonschema_rs
import pytest
from plangate.spec.assembly import SpecInvalid, assemble
from plangate.spec.base import SpecModel
from plangate.spec.models import AgentSpec, ModelSpec, RuntimeSpec, TenantSpec, to_wire
from plangate.spec.prompts import layered_prompt

OBJECT = {"type": "object"}
PLAN_SCHEMA = {
    "type": "object",
    "properties": {
        "actions": {
            "type": "array",
            "items": {"type": "object", "properties": {"kind": {"const": "refund"}}, "required": ["kind"]},
        }
    },
}
PLAN = {"name": "Refunds", "schema": PLAN_SCHEMA}


def agent(name: str = "helper", role: str = "specialist", **fields: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "model": {"id": "m", "provider": "noop"}, **fields}


def document(*agents: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"tenant": {"resourceId": "acme", "version": "1"}, "agents": list(agents), **fields}


def wire(*agents: dict[str, Any], **fields: Any) -> dict[str, Any]:
    made = assemble(document(*agents, **fields))
    assert assemble(made.wire).wire == made.wire
    assert assemble(made.spec).wire == made.wire
    assert to_wire(RuntimeSpec.model_validate(made.wire)) == made.wire
    assert json.loads(json.dumps(made.wire)) == made.wire
    return made.wire


def full() -> dict[str, Any]:
    """A spec with a bit of everything."""
    return document(
        agent(
            "front",
            "coordinator",
            routes=["plan", "run", "look"],
            prompt={"identity": "You route.", "operationalRules": ["Ask."], "tools": ["call_agent"]},
            approvalPolicies={"plans": {"kind": "always", "approvers": {"minimum": 2}}},
        ),
        agent("plan", "planner", plan=PLAN, references=[{"name": "Order", "schema": OBJECT, "ttlMs": 5}]),
        agent(
            "run",
            "executor",
            plan="Refunds",
            toolkits=[{"id": "plans", "config": {"tools": ["executePlan"]}}],
        ),
        agent(
            "look",
            tools=["find", "note"],
            toolApprovalPolicies={"find": {"kind": "dynamic", "value": "big"}},
            outputSchema=OBJECT,
            maxTurns=3,
        ),
        name="shop",
        tools=[
            {"name": "find", "description": "Finds | looks.", "inputSchema": OBJECT, "approval": "always"},
            {"name": "note", "inputSchema": OBJECT, "annotations": {"idempotent": True}, "approval": "never"},
            {"name": "pay", "inputSchema": OBJECT, "transport": {"kind": "client", "claimWithinMs": 9}},
        ],
        toolkits=["references"],
        approvalOverrides={"agents": {"look": {"tools": "always"}}},
        approvalPredicates={"big": "args.amount > 10", "mine": {"kind": "client"}},
        actionDispatcher={"kind": "client", "timeoutMs": 5},
        actionDispatchers={"refund": {"kind": "tool", "tool": "pay", "replay": "safe"}},
        providers={
            "fast": {"kind": "openai", "apiKey": {"secret": "k"}, "baseUrl": "https://x.test"},
            "noop": {},
        },
        inputSchema=OBJECT,
        stateSchema={"type": "object", "required": []},
        data={"rates": {"eur": 1, "none": None, "empty": []}},
        interpreter="mock",
        mockResponse="Hello",
        limits={"maxTurns": 5, "maxCostUsd": 1},
        storageFactories={"kv": None, "plans": None, "memory": None},
    )


# The wire form.


def test_a_spec_without_additions_is_the_minimal_shape() -> None:
    minimal = {
        "tenant": {"resourceId": "acme", "version": "1"},
        "agents": [
            {
                "name": "helper",
                "role": "specialist",
                "stateful": False,
                "model": {"id": "m", "provider": "noop"},
                "systemPrompt": "You help.",
                "routes": [],
                "toolkits": [],
            }
        ],
        "references": [],
        "plans": [],
        "toolkits": [],
        "approvalPolicies": {"plans": {"kind": "always"}, "tools": {"kind": "never"}},
        "providers": {},
    }

    assert assemble(document(agent(systemPrompt="You help."))).wire == minimal
    assert assemble(minimal).wire == minimal


def test_empty_and_default_fields_are_omitted() -> None:
    plain = wire(agent(systemPrompt="x"))
    spelled = wire(
        agent(systemPrompt="x", tools=[], plan=None, maxTurns=None, outputSchema=None, references=[]),
        name="default",
        tools=[],
        approvalOverrides={"tools": {"helper": {}}, "agents": {"helper": {"tools": "default"}}},
        approvalPredicates={},
        actionDispatcher=None,
        actionDispatchers={},
        inputSchema=None,
        data={},
        limits={},
        mockResponse=None,
    )

    assert spelled == plain


def test_a_null_entry_of_a_mapping_is_unset() -> None:
    spec = full()
    plain = assemble(spec).wire
    for part in (spec["providers"], spec["actionDispatchers"], spec["approvalPredicates"]):
        part["gone"] = None
    spec["approvalOverrides"]["agents"]["gone"] = None
    spec["approvalOverrides"]["tools"] = {"gone": None, "look": {"note": None}}
    assert assemble(spec).wire == plain


def test_a_null_provider_is_accepted() -> None:
    unset = assemble(document(agent(model={"id": "gpt-5", "provider": None, "maxOutputTokens": None})))
    assert unset.wire["agents"][0]["model"] == {"id": "gpt-5", "provider": "openai"}


def spec_models(base: type[SpecModel] = SpecModel) -> set[type[SpecModel]]:
    own = {model for model in base.__subclasses__() if model.__module__.startswith("plangate.spec.")}
    return own.union(*(spec_models(model) for model in own))


SPEC_MODELS = sorted(spec_models(), key=lambda model: model.__name__)
REQUIRED: dict[str, Any] = {
    "agents": [],
    "alias": "Proposed",
    "entryPoint": "e",
    "expression": "actions",
    "free": ["a"],
    "id": "x",
    "inputSchema": {},
    "kind": "always",
    "model": {"id": "m"},
    "name": "n",
    "resourceId": "acme",
    "role": "executor",
    "schema": {},
    "secret": "s",
    "status": "draft",
    "tenant": {"resourceId": "acme"},
    "tool": "t",
    "transport": "client",
    "url": "https://x.test",
}


@pytest.mark.parametrize("model", SPEC_MODELS, ids=lambda model: model.__name__)
def test_null_unsets_every_optional_field(model: Any) -> None:
    """Also in the JSON Schema, which clients are generated from. It requires the constant of a variant of a union, and
    leaves out what can only be null."""
    optional = {
        field.alias or name: None for name, field in model.model_fields.items() if not field.is_required()
    }
    schema = model.model_json_schema()
    required = {
        field.alias or name: REQUIRED[field.alias or name]
        for name, field in model.model_fields.items()
        if field.is_required()
    }
    described = schema["properties"].items()
    constants = {name: field["const"] for name, field in described if "const" in field}
    nulls = {name: None for name, _ in described if name in optional and name not in constants}
    assert jsonschema_rs.validator_for(schema).is_valid({**required, **constants, **nulls})
    assert model.model_validate({**required, **optional}) == model.model_validate(required)


@pytest.mark.parametrize("name", ["unknown", "agents", "tenant"])
def test_null_is_rejected_for_required_and_unknown_fields(name: str) -> None:
    with pytest.raises(SpecInvalid, match=f"{name}"):
        assemble({**document(agent()), name: None})


def test_assembly_is_a_fixed_point() -> None:
    first = assemble(full()).wire

    assert assemble(first).wire == first
    assert assemble(assemble(full()).spec).wire == first
    assert to_wire(RuntimeSpec.model_validate(first)) == first


def test_the_input_is_left_alone() -> None:
    raw = full()
    before = copy.deepcopy(raw)

    assemble(raw)

    assert raw == before


def test_snake_case_and_models_give_the_same_wire() -> None:
    camel = wire(agent(systemPrompt="x", maxTurns=2), mockResponse="hi")
    snake = assemble(
        {
            "tenant": {"resource_id": "acme", "version": "1"},
            "agents": [agent(system_prompt="x", max_turns=2)],
            "mock_response": "hi",
        }
    ).wire
    made = AgentSpec(
        name="helper",
        role="specialist",
        model=ModelSpec(id="m", provider="noop"),
        system_prompt="x",
        max_turns=2,
    )
    mixed = assemble(
        {"tenant": TenantSpec(resource_id="acme", version="1"), "agents": (made,), "mockResponse": "hi"}
    )
    models = RuntimeSpec(
        tenant=TenantSpec(resource_id="acme", version="1"), agents=(made,), mock_response="hi"
    )

    assert camel == snake == mixed.wire == assemble(models).wire


def test_everything_is_on_the_wire() -> None:
    made = assemble(full()).wire

    assert made["name"] == "shop"
    assert made["plans"] == [PLAN]
    assert made["references"] == [{"name": "Order", "schema": OBJECT, "ttlMs": 5}]
    assert made["toolkits"] == [{"id": "references"}]
    assert made["tools"][2] == {
        "name": "pay",
        "inputSchema": OBJECT,
        "replay": "never",
        "transport": {"kind": "client", "claimWithinMs": 9},
    }
    assert made["approvalPredicates"] == {"big": "args.amount > 10", "mine": {"kind": "client"}}
    assert made["actionDispatchers"] == {"refund": {"kind": "tool", "tool": "pay", "replay": "safe"}}
    assert made["providers"]["noop"] == {}
    assert made["stateSchema"] == {"type": "object", "required": []}
    assert made["data"] == {"rates": {"eur": 1, "none": None, "empty": []}}
    assert made["limits"] == {"maxTurns": 5, "maxCostUsd": 1.0}
    look = made["agents"][3]
    assert (look["tools"], look["maxTurns"], look["outputSchema"]) == (["find", "note"], 3, OBJECT)
    assert not {"prompt", "references", "approvalPolicies", "toolApprovalPolicies"} & {
        key for held in made["agents"] for key in held
    }


# What is filled in.


@pytest.mark.parametrize(
    ("role", "fields", "stateful"),
    [
        ("coordinator", {"routes": ["other"]}, True),
        ("planner", {"plan": PLAN}, True),
        ("executor", {"plan": PLAN}, False),
        ("specialist", {}, False),
        ("specialist", {"stateful": True}, True),
        ("planner", {"plan": PLAN, "stateful": False}, False),
    ],
)
def test_stateful_follows_the_role(role: str, fields: Any, stateful: bool) -> None:
    assert wire(agent("a", role, **fields), agent("other"))["agents"][0]["stateful"] is stateful


@pytest.mark.parametrize(
    ("model", "providers", "provider"),
    [
        ("claude-x", {}, "anthropic"),
        ("gpt-x", {}, "openai"),
        ("gpt-x", {"house": {"kind": "anthropic"}}, "house"),
        ({"id": "gpt-x", "provider": "anthropic"}, {"house": {"kind": "anthropic"}}, "anthropic"),
        ("o3-x", {"a": {"kind": "noop"}, "b": {"kind": "noop"}}, "openai"),
    ],
)
def test_a_bare_model_gets_its_provider(model: Any, providers: Any, provider: str) -> None:
    made = wire({**agent(), "model": model}, providers=providers)

    assert made["agents"][0]["model"]["provider"] == provider


def test_plans_and_references_are_collected_once() -> None:
    order = {"name": "Order", "schema": OBJECT}
    made = wire(
        agent("p", "planner", plan=PLAN, references=[order]),
        agent("e", "executor", plan=PLAN, references=[order]),
        references=[{"name": "First", "schema": OBJECT}],
    )

    assert made["plans"] == [PLAN]
    assert [held["name"] for held in made["references"]] == ["First", "Order"]
    assert [held["plan"] for held in made["agents"]] == ["Refunds", "Refunds"]


def test_replay_is_written_down() -> None:
    tools = [{"name": "t", "inputSchema": OBJECT, "annotations": {"readOnly": True}}]

    assert wire(agent(), tools=tools)["tools"][0]["replay"] == "safe"


# Approval rules.


def test_rules_of_agents_and_bound_tools_move_into_the_overrides() -> None:
    made = assemble(full()).wire

    assert made["approvalOverrides"] == {
        "tools": {"look": {"find": {"kind": "dynamic", "value": "big"}, "note": {"kind": "never"}}},
        "agents": {
            "front": {"plans": {"kind": "always", "approvers": {"minimum": 2}}},
            "look": {"tools": {"kind": "always"}},
        },
    }


def test_an_explicit_override_wins() -> None:
    made = wire(
        agent(
            tools=["t"],
            toolApprovalPolicies={"t": "always"},
            approvalPolicies={"tools": "always", "plans": "never"},
        ),
        tools=[{"name": "t", "inputSchema": OBJECT, "approval": "always"}],
        approvalOverrides={"tools": {"helper": {"t": "never"}}, "agents": {"helper": {"tools": "never"}}},
    )

    assert made["approvalOverrides"] == {
        "tools": {"helper": {"t": {"kind": "never"}}},
        "agents": {"helper": {"plans": {"kind": "never"}, "tools": {"kind": "never"}}},
    }


def test_a_default_makes_no_override() -> None:
    made = wire(
        agent(tools=["t"], toolApprovalPolicies={"t": "default"}, approvalPolicies={"tools": "default"}),
        tools=[{"name": "t", "inputSchema": OBJECT, "approval": "default"}],
    )

    assert "approvalOverrides" not in made
    assert "approval" not in made["tools"][0]


def test_the_coordinators_policies_are_the_default() -> None:
    front = agent("front", "coordinator", routes=["helper"], approvalPolicies={"tools": "always"})

    assert wire(front, agent())["approvalPolicies"] == {
        "plans": {"kind": "always"},
        "tools": {"kind": "always"},
    }
    own = wire(front, agent(), approvalPolicies={"plans": "never"})
    assert own["approvalPolicies"] == {"plans": {"kind": "never"}, "tools": {"kind": "never"}}


def test_predicates_may_be_registered_later() -> None:
    raw = document(agent(), approvalPolicies={"tools": {"kind": "dynamic", "value": "later"}})

    made = assemble(raw, check_predicates=False)

    assert made.wire["approvalPolicies"]["tools"] == {"kind": "dynamic", "value": "later"}
    with pytest.raises(SpecInvalid, match="'later', which is not registered"):
        assemble(raw)


# Prompts.


def test_rendered_layers_show_tools_and_rules() -> None:
    made = wire(
        agent(
            tools=["find"],
            toolkits=[{"id": "references", "config": {"tools": ["glimpseRef"]}}],
            prompt={
                "identity": "You help.",
                "safety": "Be kind.",
                "tools": [{"name": "find", "description": "Mine"}],
            },
        ),
        tools=[{"name": "find", "description": "Finds", "inputSchema": OBJECT}],
    )
    prompt = made["agents"][0]["systemPrompt"]

    assert prompt.startswith("# Identity\nYou help.\n\n# Tools\n")
    assert "| find | Mine |  |" in prompt
    assert "| glimpseRef | Returns the glimpse" in prompt
    assert "resolveRef |" not in prompt
    assert prompt.endswith("# Safety\nBe kind.")


@pytest.mark.parametrize("prompt", ["You help.", layered_prompt(identity="You help.")])
def test_a_plain_prompt_gets_a_table_of_tools(prompt: Any) -> None:
    tools = [{"name": name, "description": f"Does {name}", "inputSchema": OBJECT} for name in ("b", "a")]
    made = wire(
        agent(tools=["b", "a"], prompt=prompt),
        tools=tools,
        approvalOverrides={"tools": {"helper": {"a": "always"}}},
    )

    assert made["agents"][0]["systemPrompt"] == (
        f"{prompt}\n\n# Tools\n| Tool | Description | Approval |\n| --- | --- | --- |\n"
        "| a | Does a | always |\n| b | Does b | never |"
    )


def test_a_prompt_has_nothing_of_the_tenant() -> None:
    """Nor of the runtime: who wants it there writes it into a layer."""
    raw = full()
    raw["tenant"] = {"resourceId": "tenant-4711", "version": "label-4711"}
    raw["name"] = "runtime-4711"

    prompts = [held["systemPrompt"] for held in assemble(raw).wire["agents"]]

    assert all(prompts)
    assert "4711" not in "".join(prompts)


def test_the_table_orders_written_rows_own_tools_and_toolkits() -> None:
    made = wire(
        agent(
            tools=["find"],
            toolkits=["references"],
            prompt={"identity": "I", "tools": [{"name": "glimpseRef", "description": "Mine"}, "find"]},
        ),
        tools=[{"name": "find", "description": "Finds", "inputSchema": OBJECT}],
    )

    rows = [line for line in made["agents"][0]["systemPrompt"].splitlines() if line.startswith("| ")][2:]
    assert [row.split(" | ")[0] for row in rows] == ["| find", "| glimpseRef", "| resolveRef"]
    assert rows[:2] == ["| find |  |  |", "| glimpseRef | Mine |  |"]


def test_the_rule_at_the_plans_gate_is_in_the_executors_table() -> None:
    made = wire(agent("e", "executor", plan=PLAN), approvalOverrides={"agents": {"e": {"plans": "never"}}})

    row = next(line for line in made["agents"][0]["systemPrompt"].splitlines() if "| executePlan |" in line)
    assert row.endswith("| never |")
