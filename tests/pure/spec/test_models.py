"""Models of specs: both spellings, strictness, immutability, the wire form."""

from typing import Any

import pytest
from plangate.spec.models import (
    AgentSpec,
    ApprovalPolicies,
    ApprovalRule,
    LimitsSpec,
    ModelSpec,
    PlanSpec,
    ProviderSpec,
    ReferenceSpec,
    RuntimeSpec,
    TenantSpec,
    ToolkitSpec,
    ToolSpec,
    to_wire,
)
from plangate.spec.prompts import layered_prompt
from plangate.spec.transports import ClientTransport, HttpTransport, SecretRef, ToolDispatcher
from pydantic import BaseModel, ValidationError

OBJECT = {"type": "object"}
PLAN = {"type": "object", "properties": {"actions": {"type": "array"}}}


def messages(model: type[BaseModel], data: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(data)
    return "\n".join(detail["msg"] for detail in caught.value.errors())


def test_both_spellings_give_the_same_model() -> None:
    camel = {"name": "a", "role": "specialist", "model": {"id": "m", "maxOutputTokens": 5}, "maxTurns": 3}
    snake = {"name": "a", "role": "specialist", "model": {"id": "m", "max_output_tokens": 5}, "max_turns": 3}

    assert AgentSpec.model_validate(camel) == AgentSpec.model_validate(snake)
    assert AgentSpec(name="a", role="specialist", model=ModelSpec(id="m"), max_turns=3).max_turns == 3
    assert to_wire(AgentSpec.model_validate(snake))["maxTurns"] == 3


def test_a_field_in_both_spellings_is_rejected() -> None:
    data = {"name": "t", "inputSchema": OBJECT, "input_schema": OBJECT}

    assert "field 'input_schema' is given twice" in messages(ToolSpec, data)


def test_models_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TenantSpec(resource_id="acme").resource_id = "other"


def test_unknown_fields_suggest_the_known_one() -> None:
    data = {"name": "a", "role": "specialist", "model": "m", "system_promt": "x", "zzz": 1}

    said = messages(AgentSpec, data)
    assert "unknown field 'system_promt'; did you mean 'systemPrompt'?" in said
    assert "unknown field 'zzz'" in said


def test_many_unknown_fields_get_bounded_hints() -> None:
    data = {"id": "m", **{f"provder{n}": 1 for n in range(5_000)}}

    assert messages(ModelSpec, data).count("did you mean 'provider'") == 21


@pytest.mark.parametrize("name", ["", "1a", "a b", "a" * 65, "é", "a\n", "a.b"])
def test_names_are_identifiers(name: str) -> None:
    assert "is not a name" in messages(ReferenceSpec, {"name": name, "schema": OBJECT})


@pytest.mark.parametrize("tenant", ["", "Acme", "-a", "a" * 64, "a b", "a\n"])
def test_tenant_ids_are_lower_case(tenant: str) -> None:
    assert "is not a tenant id" in messages(TenantSpec, {"resourceId": tenant})


def test_a_bare_model_id_is_a_model() -> None:
    agent = AgentSpec.model_validate({"name": "a", "role": "specialist", "model": "m-1"})

    assert agent.model.id == "m-1"
    assert "provider" not in agent.model.model_fields_set


def test_a_bare_word_is_a_short_form() -> None:
    tool = ToolSpec.model_validate(
        {"name": "t", "inputSchema": OBJECT, "transport": "client", "approval": "always"}
    )
    agent = AgentSpec.model_validate({"name": "a", "role": "specialist", "model": "m", "toolkits": ["plans"]})

    assert tool.transport == ClientTransport()
    assert tool.approval == ApprovalRule(kind="always")
    assert agent.toolkits == (ToolkitSpec(id="plans"),)


def test_the_default_transport_is_client_and_on_the_wire() -> None:
    tool = ToolSpec.model_validate({"name": "t", "inputSchema": OBJECT})

    assert to_wire(tool) == {"name": "t", "inputSchema": OBJECT, "transport": {"kind": "client"}}


def test_transports_are_discriminated_by_kind() -> None:
    data = {
        "name": "t",
        "inputSchema": OBJECT,
        "transport": {
            "kind": "http",
            "url": "https://x.test",
            "headers": {"X-Key": {"secret": "k"}, "X-Plain": "v"},
        },
    }
    tool = ToolSpec.model_validate(data)

    assert isinstance(tool.transport, HttpTransport)
    assert tool.transport.headers == {"X-Key": SecretRef(secret="k"), "X-Plain": "v"}
    assert to_wire(tool) == data
    assert "'kind' must be one of http, client, mcp, python" in messages(
        ToolSpec, {"name": "t", "inputSchema": OBJECT, "transport": "builtin"}
    )


def test_dispatchers_are_transports_or_tools() -> None:
    spec = RuntimeSpec.model_validate(
        {
            "tenant": {"resourceId": "acme"},
            "agents": [],
            "actionDispatcher": "client",
            "actionDispatchers": {"pay": {"kind": "tool", "tool": "pay", "replay": "safe", "timeoutMs": 9}},
        }
    )

    assert spec.action_dispatcher is not None
    assert spec.action_dispatcher.replay == "never"
    assert spec.action_dispatchers["pay"] == ToolDispatcher(tool="pay", replay="safe", timeout_ms=9)
    assert to_wire(spec)["actionDispatcher"] == {"kind": "client"}


@pytest.mark.parametrize(
    ("annotations", "written", "rule"),
    [
        (None, None, "never"),
        ({"readOnly": True}, None, "safe"),
        ({"idempotent": True}, None, "safe"),
        ({"readOnly": False}, None, "never"),
        ({"readOnly": True}, "never", "never"),
        (None, "safe", "safe"),
    ],
)
def test_replay_defaults_from_annotations(annotations: Any, written: Any, rule: str) -> None:
    tool = ToolSpec.model_validate(
        {"name": "t", "inputSchema": OBJECT, "annotations": annotations, "replay": written}
    )

    assert tool.replay_rule() == rule


def test_plans_relabel_known_statuses_once() -> None:
    plan = PlanSpec.model_validate(
        {"name": "p", "schema": PLAN, "displayAliases": [{"status": "draft", "alias": "New"}]}
    )

    assert to_wire(plan) == {
        "name": "p",
        "schema": PLAN,
        "displayAliases": [{"status": "draft", "alias": "New"}],
    }
    assert "'draft', 'approved'" in messages(
        PlanSpec, {"name": "p", "schema": PLAN, "displayAliases": [{"status": "done", "alias": "x"}]}
    )
    twice = [{"status": "draft", "alias": "a"}, {"status": "draft", "alias": "b"}]
    assert "'draft' has two aliases" in messages(
        PlanSpec, {"name": "p", "schema": PLAN, "displayAliases": twice}
    )


def test_schemas_may_be_python_types() -> None:
    class Order(BaseModel):
        total: int

    spec = ReferenceSpec(name="Order", schema=Order, ttl_ms=0)

    assert to_wire(spec)["schema"]["properties"]["total"]["type"] == "integer"
    assert spec.ttl_ms == 0
    assert to_wire(spec)["ttlMs"] == 0
    assert "greater than or equal to 0" in messages(
        ReferenceSpec, {"name": "O", "schema": OBJECT, "ttlMs": -1}
    )
    assert "a schema is a JSON Schema mapping" in messages(ReferenceSpec, {"name": "O", "schema": 3})


def test_a_glimpse_crosses_the_wire_only_as_data() -> None:
    declared = ReferenceSpec(name="R", schema=OBJECT, glimpse={"n": "length(items)"})
    python = ReferenceSpec(name="R", schema=OBJECT, glimpse=lambda value: {"n": 1})

    assert to_wire(declared)["glimpse"] == {"n": "length(items)"}
    assert "glimpse" not in to_wire(python)


def test_a_layered_prompt_is_its_text() -> None:
    prompt = layered_prompt(identity="You help.")
    agent = AgentSpec.model_validate({"name": "a", "role": "specialist", "model": "m", "prompt": prompt})

    assert agent.prompt == prompt.text


@pytest.mark.parametrize(
    ("rule", "wire"),
    [
        ("never", {"kind": "never"}),
        ({"kind": "dynamic", "value": "big"}, {"kind": "dynamic", "value": "big"}),
        ({"kind": "always", "rememberable": True}, {"kind": "always", "rememberable": True}),
        ({"kind": "always", "rememberable": False}, {"kind": "always"}),
        (
            {"kind": "always", "rememberable": {"free": ["note"]}, "onExpiry": "fail"},
            {"kind": "always", "rememberable": {"free": ["note"]}, "onExpiry": "fail"},
        ),
        (
            {"kind": "always", "approvalExpiresInMs": 5, "approvers": {"minimum": 2, "notRequester": True}},
            {"kind": "always", "approvalExpiresInMs": 5, "approvers": {"minimum": 2, "notRequester": True}},
        ),
    ],
)
def test_rules_cross_the_wire_as_objects(rule: Any, wire: dict[str, Any]) -> None:
    assert to_wire(ApprovalPolicies.model_validate({"tools": rule})) == {"tools": wire}


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ({"plans": {"kind": "dynamic", "value": "x"}}, "a dynamic rule is for tools"),
        ({"plans": {"kind": "always", "rememberable": True}}, "approvals of plans are not remembered"),
        ({"tools": {"kind": "dynamic"}}, "a dynamic rule names its predicate in 'value'"),
        ({"tools": {"kind": "never", "value": "x"}}, "'value' belongs to a dynamic rule, not to 'never'"),
        ({"tools": "sometimes"}, "'never', 'always' or 'dynamic'"),
        ({"tools": {"kind": "always", "approvers": {"minimum": 0}}}, "greater than or equal to 1"),
    ],
)
def test_meaningless_rules_are_rejected(policies: Any, said: str) -> None:
    assert said in messages(ApprovalPolicies, policies)


def test_default_is_not_a_rule() -> None:
    assert ApprovalPolicies.model_validate({"plans": "default", "tools": "default"}) == ApprovalPolicies()


@pytest.mark.parametrize("value", [True, "5", 0, -1, 1.5])
def test_counts_are_positive_integers(value: Any) -> None:
    messages(LimitsSpec, {"maxTurns": value})


def test_lists_and_mappings_are_bounded() -> None:
    assert "it holds more than 2000 entries" in messages(
        AgentSpec, {"name": "a", "role": "specialist", "model": "m", "tools": ["t"] * 2_001}
    )


def test_storage_belongs_to_the_service() -> None:
    spec = {"tenant": {"resourceId": "acme"}, "agents": []}
    for unset in (None, {}, {"kv": None, "plans": None, "memory": None}):
        assert "storageFactories" not in to_wire(
            RuntimeSpec.model_validate({**spec, "storageFactories": unset})
        )
    assert "the service owns its storage" in messages(
        RuntimeSpec, {**spec, "storageFactories": {"kv": "redis"}}
    )


def test_a_key_is_a_literal_or_a_secret_and_never_in_a_message() -> None:
    literal = ProviderSpec.model_validate({"kind": "openai", "apiKey": "sk-1"})
    secret = ProviderSpec.model_validate({"kind": "openai", "apiKey": {"secret": "k"}})

    assert literal.api_key == "sk-1"
    assert secret.api_key == SecretRef(secret="k")
    with pytest.raises(ValidationError) as caught:
        ProviderSpec.model_validate({"kind": "opnai", "apiKey": "sk-very-secret", "apiKeyEnv": ["sk-other"]})
    assert "sk-" not in str(caught.value)


def test_the_models_have_a_json_schema() -> None:
    assert "resourceId" in str(RuntimeSpec.model_json_schema())
