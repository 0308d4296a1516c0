"""Facts of plans: computed by the service when a plan reaches its gate, and part of the subject."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

import pytest

from tests.postgres.variables.test_state import Pen, thread
from tests.support import specs
from tests.support.client import Caller, good, refused
from tests.support.graphs import FLOW, SEATS, begun, flowing, make, note, stored, subject
from tests.support.world import World, world

TOTAL = {
    "expression": "decimal_sum(actions[?kind=='refund'].payload.amount)",
    "label": "Refunds in total",
    "unit": "USD",
    "kind": "decimal",
}
REFUNDS: specs.Spec = {
    "name": "Routing",
    "schema": {
        "type": "object",
        "properties": {
            "actions": {
                "type": "array",
                "items": specs.variant("refund", amount={"type": ["string", "number"]}),
            }
        },
        "required": ["actions"],
    },
}


def refunding(**glimpse: Any) -> specs.Spec:
    return specs.planning() | {"plans": [REFUNDS | {"glimpse": glimpse}]}


def flow_facts(**glimpse: Any) -> specs.Spec:
    return flowing(references=[SEATS]) | {"plans": [FLOW | {"glimpse": glimpse}]}


def refund(amount: Any) -> specs.Spec:
    return {"kind": "refund", "amount": amount}


async def gate_of(api: Caller, *actions: specs.Spec, spec: str = "Routing") -> dict[str, Any]:
    plan = await api.do("/plans", {"specName": spec, "body": {"actions": list(actions)}})
    query = await begun(api, plan)
    return await api.gate(query["id"])


def values(facts: list[dict[str, Any]]) -> dict[str, Any]:
    return {fact["name"]: fact["value"] if fact["status"] == "known" else fact["status"] for fact in facts}


async def test_the_total_of_a_plan_is_exact_and_part_of_what_is_approved(
    plangate: World, api: Caller
) -> None:
    await api.register(refunding(refundsTotal=TOTAL, refunds="length(actions)"))
    approval = await gate_of(api, refund("24949.90"), refund("0.10"))
    total = {
        "name": "refundsTotal",
        "label": "Refunds in total",
        "unit": "USD",
        "kind": "decimal",
        "status": "known",
        "value": "24950.00",
    }
    count = {"name": "refunds", "label": "refunds", "unit": None, "kind": None, "status": "known", "value": 2}
    data = (await api.get(f"/approvals/{approval['id']}/subject")).content
    assert json.loads(data)["facts"] == [count, total]
    assert hashlib.sha256(data).hexdigest() == approval["digest"]
    assert approval["glimpses"]["facts"] == [count, total]
    (event,) = await api.events(approval["queryId"], "approval-required")
    assert event["data"]["glimpses"]["facts"] == [count, total]
    (plan,) = (await api.read("/plans"))["items"]
    assert plan["facts"] == [count, total]
    (revision,) = (await api.read(f"/plans/{plan['id']}/revisions"))["items"]
    assert revision["facts"] == [count, total]
    good(await api.decide(approval["id"]))
    await api.serve("actions", None)
    assert (await api.ended(approval["queryId"]))["status"] == "succeeded"


async def test_a_draft_has_no_facts_before_its_gate_opens(plangate: World, api: Caller) -> None:
    await api.register(refunding(refundsTotal=TOTAL))
    plan = await api.do("/plans", {"specName": "Routing", "body": {"actions": [refund("1")]}})
    assert plan["facts"] is None


async def test_a_fact_that_fails_has_no_value_and_stops_nothing(plangate: World, api: Caller) -> None:
    """Numbers that are no exact decimals, nothing at all, another kind, too much work, too large a value."""
    facts = {
        "floats": "decimal_sum(actions[].payload.amount)",
        "nothing": "reason",
        "text": {"expression": "length(actions)", "kind": "text"},
        "integer": {"expression": "actions[0].payload.amount", "kind": "integer"},
        "endless": "[@,@]" + " | [@,@]" * 40,
        "large": "[actions, actions, actions, actions, actions, actions, actions]",
    }
    await api.register(refunding(**facts))
    approval = await gate_of(api, *[refund(1.5)] * 30)
    assert values(approval["glimpses"]["facts"]) == dict.fromkeys(facts, "failed")
    good(await api.decide(approval["id"]))
    await api.serve("actions", None)
    assert (await api.ended(approval["queryId"]))["status"] == "succeeded"


async def test_facts_read_the_stored_values_of_variables_and_wait_for_results(
    plangate: World, api: Caller
) -> None:
    await api.register(
        flow_facts(
            stored="decimal_sum(actions[?kind=='make'].payload.value[].price)",
            notes="length(actions[?kind=='note'])",
            result="actions[?kind=='note'] | [0].payload.text",
            inputs="actions[1].payload.value[0].price",
        )
    )
    pen = Pen(plangate, await thread(api, "t"))
    await pen.write("†state.rows", [{"price": "10.05"}, {"price": "0.95"}])
    plan = await stored(
        api, make("†state.rows", "†state.made"), make([{"price": "2"}]), note("†state.made"), threadKey="t"
    )
    query = await begun(api, plan)
    approval = await api.gate(query["id"])
    assert values((await subject(api, approval))["facts"]) == {
        "stored": "13.00",
        "notes": 1,
        "result": "depends_on_results",
        "inputs": "2",
    }


async def test_values_behind_references_count_through_their_glimpses_alone(
    plangate: World, api: Caller
) -> None:
    spec = flow_facts(
        seats="sum(actions[].references[].glimpse.count)",
        variable="actions[0].payload.value.glimpse.count",
        inside="actions[1].payload.value",
    )
    runtime = await api.register(spec)
    handle = await api.do("/references", {"runtimeId": runtime["id"], "kind": "Seats", "value": [1, 2, 3]})
    path = f"†ref.Seats.{handle['id']}"
    names = {"references": [{"kind": "Seats", "id": handle["id"]}]}
    plan = await stored(api, make(path) | names, make(f"{path}.0"), make(0) | names)
    query = await begun(api, plan)
    approval = await api.gate(query["id"])
    assert values((await subject(api, approval))["facts"]) == {
        "seats": 6,
        "variable": 3,
        "inside": "depends_on_results",
    }


async def test_an_approval_with_facts_holds_after_the_process_that_asked_is_gone(
    cluster: Any, site: Any, idle: World
) -> None:
    async with world(site, cluster.operator_key) as first:
        await first.api.register(refunding(refundsTotal=TOTAL))
        approval = await gate_of(first.api, refund("3"))
        await first.api.until(approval["queryId"], "waiting")
    good(await idle.api.decide(approval["id"]))
    async with world(site, cluster.operator_key) as process:
        await process.api.serve("actions", None)
        assert (await process.api.ended(approval["queryId"]))["status"] == "succeeded"


@pytest.mark.parametrize(
    ("glimpse", "pointer", "message"),
    [
        ({"x": "sum("}, "/plans/0/glimpse/x", "is not a JMESPath expression"),
        ({"x": {"expression": "no_such(@)"}}, "/plans/0/glimpse/x/expression", "unknown function no_such()"),
        ({"x": {"expression": "@", "kind": "money"}}, "/plans/0/glimpse/x/kind", "'decimal'"),
        ({str(n): "@" for n in range(7)}, "/plans/0/glimpse", "6"),
    ],
)
async def test_a_fact_that_could_never_work_is_refused_at_registration(
    plangate: World, api: Caller, glimpse: Any, pointer: str, message: str
) -> None:
    problem = refused(await api.post("/runtimes", refunding(**copy.deepcopy(glimpse))), 422)
    (error,) = problem["errors"]
    assert error["pointer"] == pointer
    assert message in error["message"]


async def test_facts_that_are_too_expensive_fail_and_the_gate_opens(plangate: World, api: Caller) -> None:
    """The length of a list is a model's choice, so it must not keep a gate closed."""
    names = "abcdef"
    expensive = ", ".join(["decimal_sum(actions[0].payload.l)"] * 40)
    facts = dict.fromkeys(names, f"[{expensive}]")
    schema = {
        "type": "object",
        "properties": {"actions": {"type": "array", "items": specs.variant("book", l={"type": "array"})}},
    }
    plan = {"name": "Routing", "schema": schema, "glimpse": facts}
    await api.register(specs.planning() | {"plans": [plan]})
    gate = await gate_of(api, {"kind": "book", "l": ["1.00"] * 20_000})
    assert values(gate["glimpses"]["facts"]) == dict.fromkeys(names, "failed")
