"""The gate of a plan applies to one revision only."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from app.journal.models import Scope
from app.plans.artifacts import ArtifactTexts
from app.plans.gate import PlanGate
from app.plans.models import Actor
from app.plans.plan_reader import PlanReader
from app.plans.service import PlanAlreadyApproved
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
    return [(r["revision"], r["decision"], r["feedback"]) for r in reversed(rows)]


async def test_a_rejection_is_about_the_revision_at_the_gate(
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
async def test_a_decision_marks_its_revision_in_the_same_transaction(
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
        assert f"Revision 1 of the plan p1 was answered with '{word}'" in body["detail"]
    assert len((await api.read("/plans"))["items"]) == 1


async def test_an_undecided_revision_may_be_presented_again(plangate: World, api: Caller, owner: Any) -> None:
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


async def test_an_approved_plan_cannot_be_overwritten_before_it_begins(
    cluster: Any, site: Any, idle: World, gated: dict[str, Any]
) -> None:
    """The decision was taken while no process was there to begin the plan: it takes effect all the same."""
    api = idle.api
    refused(await api.post("/plans", STORE), 409, "plan_approval_pending")
    good(await api.decide(gated["id"]))
    problem = refused(await api.post("/plans", STORE), 409, "plan_already_approved")
    assert problem["detail"] == ("The plan p1 was approved and is about to be carried out. Store a new plan.")
    async with world(site, cluster.operator_key) as process:
        await process.api.serve("actions", None)
        _, executed = map(inner, output_of(await api.ended(gated["queryId"])))
        assert executed["status"] == "executed"
    assert await revisions(api, gated["target"]) == [(1, None, None)]


async def test_an_approved_plan_gets_no_second_approval_before_it_begins(
    cluster: Any, site: Any, idle: World, gated: dict[str, Any]
) -> None:
    """A host requests one, and another call of the query does, while no process is there to begin the plan."""
    api, services = idle.api, idle.services
    good(await api.decide(gated["id"]))
    problem = refused(await api.post(f"/plans/{gated['target']}/execute", {}), 409, "plan_already_approved")
    detail = "The plan p1 was approved and is about to be carried out. Store a new plan."
    assert problem["detail"] == detail
    gate = PlanGate(services.plans, services.approvals, services.references)
    thread_id = (await api.read(f"/queries/{gated['queryId']}"))["threadId"]
    run: Any = SimpleNamespace(query=SimpleNamespace(kind="agent", thread_id=thread_id))
    actor = Actor(Scope(gated["queryId"], thread_id, "wrk_other", None, "doer"), "doer")
    with pytest.raises(PlanAlreadyApproved) as refusal:
        async with services.db.transaction("acme") as tx:
            await gate.request_approval(
                tx, run, "p1", PlanReader(), None, actor, "doer", ArtifactTexts({}, {})
            )
    assert refusal.value.detail == detail
    async with world(site, cluster.operator_key) as process:
        await process.api.serve("actions", None)
        _, executed = map(inner, output_of(await api.ended(gated["queryId"])))
        assert executed["status"] == "executed"
    assert len((await api.read("/approvals"))["items"]) == 1


async def test_a_plan_changed_after_approval_does_not_run(
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


async def test_after_a_failed_start_the_query_stores_the_next_revision(
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


async def test_an_executor_executes_only_the_plans_of_its_spec(api: Caller, plangate: World) -> None:
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


async def test_a_draft_is_checked_against_the_executing_version(api: Caller, plangate: World) -> None:
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
