"""A plan's gate and the revision it is about: what was said of one revision never lands on another."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support import specs
from tests.support.client import Caller, good, inner, output_of, refused
from tests.support.world import World, world

TAMPER = "UPDATE plan_revisions SET body = body || ' '::bytea, digest = sha256(body || ' '::bytea)"
STORE = {"specName": "Routing", "body": specs.BODY, "planId": "p1", "threadKey": "t"}


@pytest.fixture
async def gated(cluster: Any, site: Any, idle: World) -> dict[str, Any]:
    """The gate of a plan's first revision, opened by a process that is gone since: nobody hears of a decision."""
    async with world(site, cluster.operator_key) as first:
        await first.api.register(specs.planning())
        query = await first.api.submit(specs.store_and_execute(), threadKey="t")
        approval = await first.api.gate(query["id"])
        await first.api.until(query["id"], "waiting")
    return approval


async def revisions(api: Caller, plan_id: str) -> list[tuple[Any, ...]]:
    rows = (await api.read(f"/plans/{plan_id}/revisions"))["items"]
    return [(r["revision"], r["decision"], r["feedback"]) for r in rows]


async def test_a_rejection_is_about_the_revision_that_was_asked_about(
    cluster: Any, site: Any, idle: World, gated: dict[str, Any]
) -> None:
    api = idle.api
    good(await api.decide(gated["id"], "reject", feedback="No refunds."))
    again = await api.do("/plans", {**STORE, "body": {"actions": [specs.BOOK]}})
    assert (again["id"], again["revision"]) == (gated["target"], 2)
    async with world(site, cluster.operator_key):
        _, rejected = map(inner, output_of(await api.ended(gated["queryId"])))
        assert rejected == {"rejected": True, "feedback": "No refunds."}
        assert await revisions(api, gated["target"]) == [(1, "reject", "No refunds."), (2, None, None)]
        query = await api.do(f"/plans/{gated['target']}/execute", {})
        assert (await api.gate(query["id"]))["glimpses"]["revision"] == 2


@pytest.mark.parametrize(("word", "partial"), [("reject", None), ("revise", {"keep": [0]})])
async def test_a_decision_marks_its_revision_as_it_is_taken(
    idle: World, gated: dict[str, Any], word: str, partial: Any
) -> None:
    """Before the query that asked hears of it: so nobody can present the revision again meanwhile."""
    api = idle.api
    good(await api.decide(gated["id"], word, feedback="Cheaper.", partial=partial))
    plan = await api.read(f"/plans/{gated['target']}")
    assert (plan["status"], plan["decision"], plan["partial"]) == ("draft", word, partial)
    assert await revisions(api, gated["target"]) == [(1, word, "Cheaper.")]
    for where in ({}, {"threadKey": "another"}):  # nor in a copy of it
        body = refused(await api.post(f"/plans/{gated['target']}/execute", where), 409, "plan_rejected")
        assert f"Revision 1 was answered with '{word}'" in body["detail"]
    assert len((await api.read("/plans"))["items"]) == 1


async def test_a_revision_that_nobody_decided_about_may_be_presented_again(
    plangate: World, api: Caller, owner: Any
) -> None:
    await api.register(specs.planning())
    plan = await api.do("/plans", {**STORE})
    first = await api.do(f"/plans/{plan['id']}/execute", {})
    await api.gate(first["id"])
    await owner.execute("UPDATE approvals SET expires_at = now()")
    await plangate.services.approvals.expire_due()
    assert (await api.ended(first["id"]))["error"]["message"] == (
        "Nobody decided in time. Execute the plan again to request a new approval."
    )
    second = await api.do(f"/plans/{plan['id']}/execute", {})
    await api.gate(second["id"])
    await api.do(f"/queries/{second['id']}/cancel")
    third = await api.do(f"/plans/{plan['id']}/execute", {})
    await api.approve(third["id"])
    await api.serve("actions", None)
    assert (await api.ended(third["id"]))["status"] == "succeeded"
    assert await revisions(api, plan["id"]) == [(1, None, None)]


async def test_what_was_approved_and_is_about_to_begin_is_not_stored_over(
    cluster: Any, site: Any, idle: World, gated: dict[str, Any]
) -> None:
    """The decision was taken while no process was there to begin the plan: it takes effect all the same."""
    api = idle.api
    refused(await api.post("/plans", STORE), 409, "plan_gate_open")
    good(await api.decide(gated["id"]))
    problem = refused(await api.post("/plans", STORE), 409, "plan_already_approved")
    assert problem["detail"] == (
        "The plan p1 was approved and is about to be carried out: what was approved does not change. Store a new plan."
    )
    async with world(site, cluster.operator_key) as process:
        await process.api.serve("actions", None)
        _, executed = map(inner, output_of(await api.ended(gated["queryId"])))
        assert executed["status"] == "executed"
    assert await revisions(api, gated["target"]) == [(1, None, None)]


async def test_a_plan_that_was_approved_and_is_another_now_does_not_run(
    cluster: Any, site: Any, idle: World, owner: Any, gated: dict[str, Any]
) -> None:
    """Somebody wrote to the database behind the service's back. After that, a draft may be stored over again."""
    api = idle.api
    good(await api.decide(gated["id"]))
    await owner.execute(TAMPER)
    async with world(site, cluster.operator_key) as process:
        _, refusal = map(inner, output_of(await api.ended(gated["queryId"])))
        assert "is not what was approved" in refusal
        assert await process.value("SELECT count(*) FROM outgoing_calls") == 0
    again = await api.do("/plans", {**STORE, "body": {"actions": [specs.BOOK]}})
    assert again["revision"] == 2
    assert await revisions(api, gated["target"]) == [(1, None, None), (2, None, None)]


async def test_in_the_query_whose_approved_plan_could_not_begin_the_next_revision_is_stored(
    api: Caller, plangate: World, owner: Any
) -> None:
    await api.register(specs.planning())
    stored = {"specName": "Routing", "planId": "p1", "body": specs.BODY}
    calls = [("storePlan", stored), ("executePlan", {"planId": "p1"})] * 2
    query = (await api.submit(specs.delegated(*calls)))["id"]
    first = await api.gate(query)
    await owner.execute(TAMPER)
    good(await api.decide(first["id"]))
    second = await api.gate(query, not_=first["id"])
    assert second["glimpses"]["revision"] == 2
    good(await api.decide(second["id"]))
    await api.serve("actions", None)
    results = [inner(entry) for entry in output_of(await api.ended(query))]
    assert "is not what was approved" in results[1]
    assert results[3]["status"] == "executed"


async def test_an_executor_takes_no_plan_that_is_another_ones(api: Caller, plangate: World) -> None:
    """The rule is the executing agent's: whoever is sent to the more lenient one would pass by the other's."""
    spec = specs.planning(approvalOverrides={"agents": {"noter": {"plans": "never"}}})
    spec["agents"][0]["routes"].append("noter")
    spec["agents"].append(specs.agent("noter", "executor", plan="Notes"))
    spec["plans"].append({**specs.ROUTING, "name": "Notes"})
    await api.register(spec)
    plan = await api.do("/plans", {**STORE, "runtime": "default"})
    asked = {"tool": "executePlan", "args": {"planId": "p1"}}
    around = specs.script(("call_agent", {"agent": "noter", "prompt": asked}))
    refusal = inner(output_of(await api.run(around, threadKey="t"))[0])
    assert refusal == "noter executes plans of 'Notes' only, and p1 is a Routing."
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "draft"
    assert await plangate.value("SELECT count(*) FROM approvals") == 0
    straight = specs.script(("call_agent", {"agent": "doer", "prompt": asked}))
    await api.gate((await api.submit(straight, threadKey="t"))["id"])


async def test_a_draft_of_an_earlier_version_is_checked_against_the_one_that_executes_it(
    api: Caller, plangate: World
) -> None:
    """A rule that asks nobody is for actions as that version declares them."""
    await api.register(specs.planning())
    plan = await api.do("/plans", {**STORE, "runtime": "default"})
    spec = specs.planning(approvalPolicies={"plans": "never"})
    later = {**specs.ROUTING, "schema": copy.deepcopy(specs.ROUTING["schema"])}
    refund = later["schema"]["properties"]["actions"]["items"]["oneOf"][1]
    refund["properties"]["cents"]["maximum"] = 100
    strict = await api.register({**spec, "plans": [later]})
    straight = specs.script(
        ("call_agent", {"agent": "doer", "prompt": {"tool": "executePlan", "args": {"planId": "p1"}}})
    )
    over = await api.run(straight, threadKey="t", runtimeId=strict["id"])
    assert inner(output_of(over)[0]) == (
        "The plan p1 was stored under another version of the runtime, and does not match the plan Routing of this one; "
        "store the next revision first. /body/actions/1/cents: 500 is greater than the maximum of 100."
    )
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "draft"
    assert await plangate.value("SELECT count(*) FROM approvals") == 0
    refund["properties"]["cents"]["maximum"] = 500
    loose = await api.register({**spec, "plans": [later]})
    query = await api.submit(straight, threadKey="t", runtimeId=loose["id"])
    await api.serve("actions", None)
    assert inner(output_of(await api.ended(query["id"]))[0])["status"] == "executed"
