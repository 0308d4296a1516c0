"""The pricing example as data: it assembles and matches its README."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from plangate import RuntimeSpec
from plangate.spec.assembly import assemble
from plangate.spec.toolkits import TEAM_TOOLS, builtin_tools

from app.base.jmespath import search_all
from app.llm.scripted import parse_script
from app.runtimes.predicates import requires_approval
from examples.pricing.catalogue import Season, catalogue
from examples.pricing.script import as_script, discount_in
from examples.pricing.system import COPYWRITER, EXECUTOR, PRODUCTS, Campaign, Products, Slogan, define


def wire(*, scripted: bool = True) -> dict[str, Any]:
    return define(tenant="local", model="m-1", scripted=scripted).wire


@pytest.mark.parametrize("scripted", [True, False])
def test_a_dump_is_the_wire_form(scripted: bool) -> None:
    defined = define(tenant="local", model="m-1", scripted=scripted)
    dumped = json.loads(json.dumps(defined.wire))
    assert dumped == defined.wire == defined.spec.to_wire()
    assert RuntimeSpec.model_validate(dumped).to_wire() == dumped
    assert assemble(dumped).wire == dumped


def test_scripted_and_model_systems_differ_only_in_the_model() -> None:
    without, asked = wire(), wire(scripted=False)
    assert json.loads(without.pop("mockResponse")).keys() == Slogan.model_fields.keys()
    providers = [agent.pop("model")["provider"] for agent in without["agents"]]
    assert providers == ["scripted", "scripted", "mock", "scripted"]
    assert [agent.pop("model") for agent in asked["agents"]] == [{"id": "m-1", "provider": "anthropic"}] * 4
    assert without == asked


def test_the_plan_has_two_kinds_of_action_and_a_context() -> None:
    (plan,) = wire()["plans"]
    actions = plan["schema"]["properties"]["actions"]["items"]
    assert sorted(actions["discriminator"]["mapping"]) == ["price_change", "promotion"]
    assert set(plan["schema"]["properties"]) == {"summary", "context", "actions"}
    assert {alias["status"]: alias["alias"] for alias in plan["displayAliases"]} == {
        "draft": "proposed",
        "executing": "being put on the shelves",
        "executed": "on the shelves",
    }


@pytest.mark.parametrize(("percent", "asks"), [(1, False), (20, False), (21, True), (50, True)])
def test_a_deep_discount_requires_approval(percent: int, asks: bool) -> None:
    spec = wire()
    rule = next(tool["approval"] for tool in spec["tools"] if tool["name"] == "reserve_budget")
    assert rule == {"kind": "dynamic", "value": "deep_discount"}
    assert requires_approval(spec["approvalPredicates"][rule["value"]], {"percent": percent}, {}) is asks


def test_the_glimpse_names_no_product() -> None:
    value = PRODUCTS.pack(Products(season="winter", products=catalogue()[:2])).value
    (reference,) = wire()["references"]
    assert search_all(reference["glimpse"], value) == {
        "season": "winter",
        "products": 2,
        "in_stock": 53 + 9,
        "cheapest_cents": 22_300,
        "dearest_cents": 23_600,
    }


def test_only_the_copywriter_has_an_output_schema() -> None:
    schemas = {agent["name"]: agent.get("outputSchema") for agent in wire()["agents"]}
    assert [name for name, schema in schemas.items() if schema] == [COPYWRITER]
    assert schemas[COPYWRITER]["required"] == ["headline"]


def test_no_agent_can_read_the_products() -> None:
    """The executor's own `resolveRef` would bring them into a prompt."""
    spec = define(tenant="local", model="m-1", scripted=True).spec
    held = {agent.name: {tool.name for tool in builtin_tools(spec, agent)} for agent in spec.agents}
    assert set().union(*held.values()) == {"call_agent", "storePlan", "getPlan", "executePlan", *TEAM_TOOLS}
    assert held[EXECUTOR] == {"getPlan", "executePlan", *TEAM_TOOLS}


def test_script_and_plan_are_valid() -> None:
    coordinator = parse_script(as_script("p1", 15)).steps
    planner = parse_script(coordinator[0].args["prompt"]).steps
    assert [step.tool for step in planner] == [
        "find_products",
        "find_products",
        "reserve_budget",
        "call_agent",
        "storePlan",
    ]
    body = planner[4].args["body"]
    body["context"]["budget_cents"] = 1  # what the `$result`s give
    body["actions"][1]["headline"] = "Spring"
    handles = [action.pop("references") for action in body["actions"]]
    assert handles == [[{"$result": f"[{n}].{{kind: kind, id: id}}"}] for n in (0, 1)]
    plan = Campaign.model_validate_json(json.dumps(body))
    assert [(action.kind, action.percent) for action in plan.actions] == [
        ("price_change", -20),
        ("promotion", 15),
    ]


@pytest.mark.parametrize(
    ("feedback", "discount"),
    [
        ("15", 15),
        ("15 % is enough", 15),
        ("at most 7%.", 7),
        ("50", 50),
        ("less", None),
        ("0", None),
        ("51", None),
        ("100 %", None),
        ("0.5 %", None),
        ("12.5 %", None),
        ("SKU7", None),
    ],
)
def test_discounts_in_feedback(feedback: str, discount: int | None) -> None:
    assert discount_in(feedback) == discount


def test_the_catalogue_is_the_same_everywhere() -> None:
    products = catalogue()
    assert len({p.sku for p in products}) == len({p.name for p in products}) == len(products) == 480
    assert {p.season for p in products} == set(get_args(Season))
    assert products[0].model_dump() == {
        "sku": "SKU-0001",
        "name": "Alder Coat, black",
        "season": "winter",
        "list_cents": 23_600,
        "stock": 53,
    }
    assert sum(p.list_cents for p in products) == 6_650_000
