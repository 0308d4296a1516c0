"""Unknown outcomes and canceled graphs: a person settles them, and nothing is sent twice."""

from __future__ import annotations

from typing import Any

import pytest

from app.plans.settlement import settle
from tests.postgres.variables.test_state import Pen, thread
from tests.support import specs
from tests.support.client import Caller, eventually, good, refused
from tests.support.graphs import (
    begun,
    did,
    executed,
    flowing,
    hands,
    index,
    is_done,
    make,
    running,
    state,
    statuses,
    stored,
    taken,
)
from tests.support.world import World


async def unknown(plangate: World, owner: Any, *actions: specs.Spec, **inputs: Any) -> dict[str, Any]:
    """A plan of which the first action was taken, and nothing more was said."""
    api = plangate.api
    plan = await stored(api, *actions)
    query = await running(api, plan, inputs=inputs)
    for call in await taken(api):
        if index(call):
            good(await api.result(call, did(1)))
    await owner.execute(
        "UPDATE outgoing_calls SET claimed_until = now() - interval '1 s' WHERE status <> 'done'"
    )
    await plangate.services.calls.lapse_due()
    await api.until(query, "waiting", "outcome_unknown")
    assert (await statuses(api, plan))[0] == "unknown"
    return {**plan, "queryId": query, "at": f"/plans/{plan['id']}/actions/0"}


async def test_an_unknown_outcome_blocks_dependent_actions_until_it_is_settled(
    plangate: World, api: Caller, owner: Any
) -> None:
    await api.register(flowing())
    plan = await unknown(plangate, owner, make(1, "†state.a"), make("†state.a"), make(2))
    assert await statuses(api, plan) == ["unknown", "pending", "succeeded"]
    settled = await api.do(plan["at"], {"outcome": "succeeded", "details": {"n": 7}})
    assert settled["result"] == {
        "settledBy": "operator",
        "details": {"n": 7},
        "writtenTo": ["†state.a"],
    }
    async with hands(api) as mine:
        await api.ended(plan["queryId"])
    assert mine.payload(1) == {"value": {"n": 7}}
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "executed"
    assert await state(api, plan) == {"a": {"n": 7}}
    (write,) = await api.events(plan["queryId"], "state-write")
    assert write["workId"] == settled["workId"]


async def test_settling_as_failed_writes_the_error_to_the_second_path(
    plangate: World, api: Caller, owner: Any
) -> None:
    await api.register(flowing())
    actions = [make(1, "†state.a || †state.bad"), make("†state.a"), make("†state.bad")]
    plan = await unknown(plangate, owner, *actions)
    settled = await api.do(plan["at"], {"outcome": "failed", "details": "the bank says no"})
    assert settled["error"] == {
        "settledBy": "operator",
        "details": "the bank says no",
        "writtenTo": ["†state.bad"],
    }
    async with hands(api) as mine:
        await api.ended(plan["queryId"])
    told = {"code": "settled", "message": 'A person settled it as failed: "the bank says no"'}
    assert mine.seen[0]["payload"] == {"value": told}
    assert await statuses(api, plan) == ["failed", "skipped", "succeeded"]
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "executed"


async def test_settled_as_failed_without_a_second_path_the_plan_fails(
    plangate: World, api: Caller, owner: Any
) -> None:
    await api.register(flowing())
    plan = await unknown(plangate, owner, make(1, "†state.a"), make("†state.a"))
    settled = await api.do(plan["at"], {"outcome": "failed"})
    assert settled["error"] == {"settledBy": "operator", "details": None}
    await api.ended(plan["queryId"])
    assert await statuses(api, plan) == ["failed", "skipped"]
    over = await api.read(f"/plans/{plan['id']}")
    assert over["status"] == "failed"
    assert over["result"]["actions"][1]["error"]["message"] == '"†state.a" has no value: action 0 is failed.'


async def test_details_that_cannot_be_written_are_rejected_and_can_be_resent(
    plangate: World, api: Caller, owner: Any
) -> None:
    await api.register(flowing(stateSchema={"properties": {"a": {"type": "integer"}}}))
    plan = await unknown(plangate, owner, make(1, "†state.a || †state.b"), make("†state.b"))
    for details, why in [
        ("one", 'the state would not match the runtime\'s stateSchema: /a: must be integer, not "one"'),
        (
            {"_output": "†state.c", "value": 1},
            "the tool's `_output` must name one of: †state.a, †state.b",
        ),
    ]:
        problem = refused(await api.post(plan["at"], {"outcome": "succeeded", "details": details}), 422)
        assert problem["detail"] == f"The details cannot be written to the action's path: {why}."
        assert problem["errors"] == [{"pointer": "/details", "message": why}]
        assert (await statuses(api, plan))[0] == "unknown"
    async with hands(api) as mine:
        await api.do(plan["at"], {"outcome": "succeeded", "details": {"_output": "†state.b", "value": 1}})
        await api.ended(plan["queryId"])
    assert mine.payload(1) == {"value": 1}
    assert await state(api, plan) == {"b": 1}


async def test_a_retry_is_sent_with_the_approved_values(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(flowing())
    pen = Pen(plangate, await thread(api, "t"))
    await pen.write("†state.n", 1)
    plan = await stored(api, make(["†state.n", "†input.n"], "†state.a"), make("†state.a"), threadKey="t")
    query = await running(api, plan, inputs={"n": 2})
    (first,) = await taken(api)
    await owner.execute("UPDATE outgoing_calls SET claimed_until = now() - interval '1 s'")
    await plangate.services.calls.lapse_due()
    await api.until(query, "waiting", "outcome_unknown")
    await pen.write("†state.n", 99)
    await api.do(f"/plans/{plan['id']}/actions/0", {"outcome": "retry"})
    (again,) = await api.claim("actions")
    for same in ("actions", "idempotencyKey", "workId", "inputs"):
        assert again[same] == first[same]
    assert again["actions"][0]["payload"] == {"value": [1, 2]}
    assert (first["attempt"], again["attempt"]) == (1, 2)
    good(await api.result(again, did("done")))
    async with hands(api) as mine:
        await api.ended(query)
    assert mine.payload(1) == {"value": "done"}


async def test_an_unknown_outcome_shows_what_is_known(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(flowing())
    plan = await unknown(plangate, owner, make(1, "†state.a"))
    (row,) = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    told = {
        "code": "outcome_unknown",
        "message": "The process that claimed it did not post a result in time.",
    }
    assert (row["status"], row["error"]) == ("unknown", told)
    work = await api.read(f"/work-records/{row['workId']}")
    assert (work["status"], work["error"]) == ("unknown", told)
    settled = await api.do(plan["at"], {"outcome": "succeeded", "details": 1})
    assert (settled["error"], settled["result"]["details"]) == (None, 1)
    assert (await api.ended(plan["queryId"]))["status"] == "succeeded"


async def test_an_unknown_action_keeps_its_slot_while_parked(
    plangate: World, api: Caller, owner: Any
) -> None:
    """Two may be outside: one of them is the one that may be running."""
    await api.register(flowing(limits={"maxParallelActions": 2}))
    readers = [make("†state.a", f"†state.r{n}") for n in range(3)]
    plan = await stored(api, *readers, make(3, "†state.b"), make(4, "†state.a"))
    query = await running(api, plan)

    async def lost() -> None:
        await owner.execute("UPDATE outgoing_calls SET claimed_until = now() - interval '1 s'")
        await plangate.services.calls.lapse_due()

    for call in await taken(api):
        if index(call) == 4:
            good(await api.result(call, did("it")))
    (first,) = await api.claim("actions")
    assert index(first) == 0
    await lost()
    await api.until(query, "waiting", "outcome_unknown")
    assert await statuses(api, plan) == ["unknown", "pending", "pending", "unknown", "succeeded"]
    await api.do(f"/plans/{plan['id']}/actions/0", {"outcome": "succeeded"})
    (next_,) = await api.claim("actions")
    await api.until(query, "waiting", "outcome_unknown")
    assert index(next_) == 1
    assert await statuses(api, plan) == ["succeeded", "dispatched", "pending", "unknown", "succeeded"]


# -- an early end


async def test_a_retry_overtaken_by_a_cancel_stays_unknown(plangate: World, api: Caller, owner: Any) -> None:
    """It was sent before: nobody may read that it was not."""
    await api.register(flowing())
    plan = await unknown(plangate, owner, make(1, "†state.a"), make("†state.a"))
    async with plangate.services.db.transaction("acme") as tx:
        await settle(plangate.services.plans, tx, plan["id"], 0, "retry", None, "ann")
        await plangate.services.queries.cancel(tx, plan["queryId"])
    assert await statuses(api, plan) == ["unknown", "skipped"]
    row = (await api.read(f"/plans/{plan['id']}/actions"))["items"][0]
    assert row["error"]["message"] == "The query ended before the outcome was settled."
    assert (await api.read(f"/work-records/{row['workId']}"))["status"] == "unknown"
    changes = [e["data"] for e in await api.events(plan["queryId"], "action-status-change")]
    assert [(c["from"], c["to"]) for c in changes if c["index"] == 0][-2:] == [
        ("unknown", "pending"),
        ("pending", "unknown"),
    ]
    assert (await api.do(plan["at"], {"outcome": "succeeded"}))["status"] == "succeeded"


async def test_settling_after_a_cancel_corrects_only_the_row(
    api: Caller,
) -> None:
    await api.register(flowing(limits={"maxParallelActions": 3}))
    plan = await stored(
        api,
        *(make(n, f"†state.n{n}") for n in range(3)),
        *(make(f"†state.n{n}", "†state.end", "push") for n in range(3)),
        make("†state.end"),
    )
    query = await running(api, plan)
    asked = {"tools": [{"name": "actions"}], "max": 2}
    first, second = (await api.do("/tool-calls/claim", asked))["calls"]
    good(await api.result(first, did("it")))
    await eventually(lambda: is_done(api, plan, index(first)), "the action is over")
    await api.until(query, "waiting", "client_call")
    rows = ["dispatched"] * 3 + ["pending"] * 4
    rows[index(first)], rows[3 + index(first)] = "succeeded", "dispatched"
    assert await statuses(api, plan) == rows
    await api.do(f"/queries/{query}/cancel")
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "failed"
    rows = ["skipped"] * 7
    rows[index(first)], rows[index(second)] = "succeeded", "unknown"
    assert await statuses(api, plan) == rows
    assert await taken(api) == []
    at = f"/plans/{plan['id']}/actions/{index(second)}"
    problem = refused(await api.post(at, {"outcome": "retry"}), 409)
    assert (
        problem["detail"]
        == "The plan is over and sends nothing more. Settle the action as succeeded or failed."
    )
    settled = await api.do(at, {"outcome": "succeeded", "details": {"n": 1}})
    assert settled["result"] == {"settledBy": "operator", "details": {"n": 1}}
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "failed"
    assert await state(api, plan) == {f"n{index(first)}": "it"}


async def test_a_plan_canceled_at_its_gate_is_a_draft(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(api, make("†input.n", "†state.a"))
    query = (await begun(api, plan, inputs={"n": 1}))["id"]
    await api.gate(query)
    await api.do(f"/queries/{query}/cancel")
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "draft"
    async with hands(api) as mine:
        over = await executed(api, plan, inputs={"n": 2})
    assert (over["status"], over["id"], mine.payload(0)) == ("executed", plan["id"], {"value": 2})


@pytest.mark.parametrize("decision", ["reject", "revise"])
async def test_unapproved_values_are_not_sent(plangate: World, api: Caller, decision: str) -> None:
    await api.register(flowing())
    plan = await stored(api, make("†input.n", "†state.a"))
    query = (await begun(api, plan, inputs={"n": 1}))["id"]
    approval = await api.gate(query)
    good(await api.decide(approval["id"], decision, feedback="Cheaper."))
    await api.ended(query)
    assert await plangate.value("SELECT count(*) FROM outgoing_calls") == 0
    assert (await api.read(f"/plans/{plan['id']}"))["decision"] == decision
