"""Executing a plan with variables again: other inputs, another thread, its own approval."""

from __future__ import annotations

from typing import Any

from tests.postgres.variables.test_state import Pen, thread
from tests.support import specs
from tests.support.client import Caller, good, inner, output_of, refused
from tests.support.graphs import (
    SEATS,
    begun,
    executed,
    flowing,
    hands,
    make,
    state,
    statuses,
    stored,
    subject,
)
from tests.support.world import World


async def test_a_plan_that_ran_runs_again_as_a_copy_with_other_inputs(api: Caller) -> None:
    await api.register(flowing())
    body = [make(["†input.n", "††x"], "†state.runs", "push"), make("†state.runs", "†results.all")]
    plan = await stored(api, *body, planId="mine")
    async with hands(api) as mine:
        first = await executed(api, plan, inputs={"n": 1})
        second = await executed(api, plan, inputs={"n": 2})
        third = await executed(api, second, inputs={"n": [3]})
    assert [first["copiedFrom"], second["copiedFrom"], third["copiedFrom"]] == [
        None,
        plan["id"],
        second["id"],
    ]
    assert len({p["id"] for p in (first, second, third)}) == 3
    assert [p["key"] for p in (first, second, third)] == ["mine", None, None]
    assert {p["digest"] for p in (first, second, third)} == {plan["digest"]}
    assert {p["threadId"] for p in (first, second, third)} == {plan["threadId"]}
    assert [a["payload"]["value"] for a in mine.seen] == [
        [1, "†x"],
        [[1, "†x"]],
        [2, "†x"],
        [[1, "†x"], [2, "†x"]],
        [[3], "†x"],
        [[1, "†x"], [2, "†x"], [[3], "†x"]],
    ]
    approvals = (await api.read("/approvals"))["items"]
    assert {a["target"] for a in approvals} == {first["id"], second["id"], third["id"]}
    assert len({a["digest"] for a in approvals}) == 3
    keys = {a["idempotencyKey"] for p in (first, second, third) for a in await rows(api, p)}
    assert len(keys) == 6


async def rows(api: Caller, plan: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    return found


async def test_a_failed_plan_runs_again_as_a_copy(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(api, make("†input.n", "†state.n"), make("†state.n.a"))
    async with hands(api):
        first = await executed(api, plan, inputs={"n": 1})
        again = await executed(api, plan, inputs={"n": {"a": 2}})
    assert [p["status"] for p in (first, again)] == ["failed", "executed"]
    assert await statuses(api, first) == ["succeeded", "failed"]
    assert await state(api, plan) == {"n": {"a": 2}}


async def test_a_copy_uses_the_state_of_its_own_thread(plangate: World, api: Caller) -> None:
    """Also of a plan that never ran, which stays a draft."""
    await api.register(flowing())
    for key in ("a", "b"):
        await Pen(plangate, await thread(api, key)).write("†state.name", key)
    plan = await stored(api, make("†state.name", "†state.copy"), threadKey="a")
    async with hands(api) as mine:
        by_key = await executed(api, plan, threadKey="b")
        by_id = await executed(api, plan, threadId=by_key["threadId"])
        own = await executed(api, plan)
    assert [p["copiedFrom"] for p in (by_key, by_id, own)] == [plan["id"], plan["id"], None]
    assert own["id"] == plan["id"]
    assert [a["payload"]["value"] for a in mine.seen] == ["b", "b", "a"]
    assert await state(api, by_key) == {"name": "b", "copy": "b"}
    assert await state(api, own) == {"name": "a", "copy": "a"}


async def test_a_draft_is_executed_itself_in_its_own_thread(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(api, make(1, "†state.n"), threadKey="a")
    async with hands(api):
        over = await executed(api, plan, threadKey="a")
    assert (over["id"], over["copiedFrom"]) == (plan["id"], None)


async def test_a_copy_without_its_values_is_rejected_at_once(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    await Pen(plangate, await thread(api, "a")).write("†state.name", "a")
    plan = await stored(api, make("†state.name"), threadKey="a")
    problem = refused(await api.post(f"/plans/{plan['id']}/execute", {"threadKey": "new"}), 422, "invalid")
    assert problem["errors"] == [
        {
            "pointer": "/body/actions/0/value",
            "message": 'nothing provides "†state.name", and no action writes it: "†state" has no "name", it is empty',
        }
    ]
    assert [p["id"] for p in (await api.read("/plans"))["items"]] == [plan["id"]]
    both = {"threadKey": "new", "threadId": plan["threadId"]}
    problem = refused(await api.post(f"/plans/{plan['id']}/execute", both), 422, "invalid")
    assert "name the thread by threadId or by threadKey, not both" in problem["errors"][0]["message"]
    gone = {"threadId": plan["threadId"].replace("thr_0", "thr_1")}
    refused(await api.post(f"/plans/{plan['id']}/execute", gone), 404, "not_found")


async def test_a_copy_checks_its_references(plangate: World, api: Caller, owner: Any) -> None:
    """A plan that is over has let go of them."""
    await api.register(flowing(references=[SEATS]))
    made = await api.do("/references", {"runtime": "default", "kind": "Seats", "value": [1]})
    plan = await stored(api, make(f"†ref.Seats.{made['id']}.0"))
    async with hands(api):
        await executed(api, plan)
    query = await begun(api, plan)
    await owner.execute("UPDATE reference_values SET expires_at = now() - interval '1 s'")
    async with hands(api) as mine:
        await api.approve(query["id"])
        await api.ended(query["id"])
    assert mine.payload(0) == {"value": 1}
    problem = refused(await api.post(f"/plans/{plan['id']}/execute", {}), 410, "reference_expired")
    assert problem["detail"] == f"The reference Seats/{made['id']} has expired; create it again."


async def test_data_of_a_query_is_not_available_to_a_host(api: Caller) -> None:
    """Its data objects lived as long as it did; its inputs are said anew."""
    await api.register(flowing())
    body = {"actions": [make(["†cart.n", "†input.n"])]}
    store = specs.delegated(("storePlan", {"specName": "Flow", "planId": "p", "body": body}))
    answer = inner(output_of(await api.run(store, data={"cart": {"n": 1}}, inputs={"n": 2}))[0])
    query = await api.ended((await api.do(f"/plans/{answer['planId']}/execute", {"inputs": {"n": 3}}))["id"])
    assert query["error"]["message"] == (
        'A variable of the plan has no value. /body/actions/0/value/0: "†cart.n" has no value: there is no †cart; known are '
        "artifact, input, memory, ref, state."
    )


async def test_a_query_that_executes_a_planners_plan_gives_it_its_data_and_inputs(api: Caller) -> None:
    await api.register(flowing())
    body = {"actions": [make(["†cart.n", "†input.n"], "†cart.sum"), make("†cart")]}
    prompt = specs.delegated(
        ("storePlan", {"specName": "Flow", "planId": "p", "body": body}), ("executePlan", {"planId": "p"})
    )
    query = await api.submit(prompt, data={"cart": {"n": 1}}, inputs={"n": 2}, threadKey="t")
    async with hands(api) as mine:
        approval = await api.approve(query["id"])
        executed_ = inner(output_of(await api.ended(query["id"]))[1])
    assert executed_["status"] == "executed"
    assert mine.payload(1) == {"value": {"n": 1, "sum": [1, 2]}}
    assert [v["variable"] for v in (await subject(api, approval))["variables"]] == [
        "†cart.n",
        "†input.n",
        "†cart",
    ]
    again = await api.run(specs.delegated(("executePlan", {"planId": "p"})), threadKey="t")
    assert inner(output_of(again)[0]) == (
        "The plan p is executed; a plan that was ever approved runs once. Store a new plan."
    )


async def test_the_next_revision_is_checked_and_approved_again(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(api, make("†input.n"), planId="p", threadKey="t")
    query = (await begun(api, plan, inputs={"n": 1}))["id"]
    approval = await api.gate(query)
    good(await api.decide(approval["id"], "reject"))
    await api.ended(query)
    cycle = {"actions": [make("†state.a", "†state.a")]}
    body = {"specName": "Flow", "runtime": "default", "planId": "p", "threadKey": "t"}
    refused(await api.post("/plans", {**body, "body": cycle}), 422, "invalid")
    assert (await api.read(f"/plans/{plan['id']}"))["revision"] == 1
    plan = await stored(api, make("†input.m"), planId="p", threadKey="t")
    assert plan["revision"] == 2
    async with hands(api) as mine:
        over = await executed(api, plan, inputs={"m": 7})
    assert (over["status"], mine.payload(0)) == ("executed", {"value": 7})
