"""Plans from storing to execution, with the scripted interpreter and a client process."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from app.approvals.models import Decision
from app.plans.settlement import settle
from tests.support import specs
from tests.support.client import Caller, good, inner, output_of, refused
from tests.support.world import World

DONE = {"entitiesAffected": 3, "summary": "Three things."}


async def begun(api: Caller, prompt: str | None = None, **parts: Any) -> str:
    """A query that stores a plan and executes it."""
    await api.register(specs.planning(**parts))
    return (await api.submit(prompt or specs.store_and_execute()))["id"]


async def plan_of(api: Caller, query_id: str) -> dict[str, Any]:
    approval = await api.gate(query_id)
    found: dict[str, Any] = await api.read(f"/plans/{approval['target']}")
    return found


async def test_a_plan_is_stored_approved_dispatched_and_executed(plangate: World, api: Caller) -> None:
    query = await begun(api)
    approval = await api.gate(query)
    plan = await api.read(f"/plans/{approval['target']}")
    assert (plan["status"], plan["revision"], plan["key"]) == ("draft", 1, "p1")
    assert plan["body"] == {
        "reason": "storm",
        "actions": [
            {"kind": "book", "payload": {"seat": "12A"}, "references": []},
            {"kind": "refund", "payload": {"cents": 500}, "references": []},
        ],
    }
    assert (await api.until(query, "waiting"))["reason"] == "approval"
    pending = await api.gate(query)
    decided = await api.approve(query)
    call = await api.serve("actions", DONE)
    assert call["purpose"] == "action"
    assert (call["planId"], call["revision"], call["digest"]) == (plan["id"], 1, plan["digest"])
    assert [(a["kind"], a["payload"], a["index"]) for a in call["actions"]] == [
        ("book", {"seat": "12A"}, 0),
        ("refund", {"cents": 500}, 1),
    ]
    assert len({call["idempotencyKey"], *(a["idempotencyKey"] for a in call["actions"])}) == 3
    assert (call["attempt"], call["resolvedRefs"]) == (1, {})
    stored, executed = map(inner, output_of(await api.ended(query)))
    assert (stored["id"], stored["planId"], stored["status"]) == ("p1", plan["id"], "draft")
    assert executed == {
        "status": "executed",
        "label": "Done and dusted",
        "actions": [
            {"index": 0, "kind": "book", "status": "succeeded"},
            {"index": 1, "kind": "refund", "status": "succeeded"},
        ],
        "entitiesAffected": 3,
        "summary": "Three things.",
    }
    after = await api.read(f"/plans/{plan['id']}")
    assert (after["status"], after["result"], after["queryId"]) == ("executed", executed, query)
    assert (plan["label"], after["label"], decided["label"]) == ("Proposed", "Done and dusted", "Proposed")
    assert pending["label"] == "Proposed"
    assert (await api.read(f"/approvals/{decided['id']}"))["label"] == "Done and dusted"
    assert [p["label"] for p in (await api.read("/plans"))["items"]] == ["Done and dusted"]
    rows = (await api.read(f"/plans/{plan['id']}/transitions"))["items"]
    assert [(r["from"], r["to"]) for r in rows] == [
        (None, "draft"),
        ("draft", "approved"),
        ("approved", "executing"),
        ("executing", "executed"),
    ]
    assert {r["digest"] for r in rows} == {plan["digest"]}
    assert [r["approvalId"] for r in rows] == [None, *[decided["id"]] * 3]
    actions = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    assert [(a["index"], a["status"], a["attempts"], a["result"]) for a in actions] == [
        (0, "succeeded", 1, DONE),
        (1, "succeeded", 1, DONE),
    ]


async def test_actions_and_transitions_come_in_pages(api: Caller, owner: Any) -> None:
    query = await begun(api)
    await api.approve(query)
    await api.serve("actions", DONE)
    await api.ended(query)
    plan = (await api.read("/plans"))["items"][0]["id"]
    for name, limit, order in (("actions", 1, "index"), ("transitions", 3, "at")):
        whole = await api.read(f"/plans/{plan}/{name}")
        first = await api.read(f"/plans/{plan}/{name}", limit=limit)
        rest = await api.read(f"/plans/{plan}/{name}", limit=limit, cursor=first["nextCursor"])
        assert (len(first["items"]), rest["nextCursor"], whole["nextCursor"]) == (limit, None, None)
        assert (
            first["items"] + rest["items"] == whole["items"] == sorted(whole["items"], key=lambda i: i[order])
        )
        other = await api.get(f"/plans/{plan}/graph", cursor=first["nextCursor"])
        refused(other, 422)
    large = "UPDATE plan_actions SET result = convert_to(format('{\"summary\":\"%s\"}', repeat('x', 3000000)), 'UTF8')"
    await owner.execute(large)
    first = await api.read(f"/plans/{plan}/actions")
    assert [action["index"] for action in first["items"]] == [0]  # a page ends with 4 MiB
    rest = await api.read(f"/plans/{plan}/actions", cursor=first["nextCursor"])
    assert [action["index"] for action in rest["items"]] == [1]


async def test_every_change_of_a_plan_emits_its_label(api: Caller) -> None:
    query = await begun(api)
    await api.approve(query)
    await api.serve("actions", None)
    await api.ended(query)
    told = [e["data"] for e in await api.events(query, "plan-status-change")]
    assert [(d["from"], d["to"], d["label"]) for d in told] == [
        (None, "draft", "Proposed"),
        ("draft", "pending_approval", "pending_approval"),
        ("draft", "approved", "approved"),
        ("approved", "executing", "executing"),
        ("executing", "executed", "Done and dusted"),
    ]
    moved = [e["data"] for e in await api.events(query, "action-status-change")]
    assert [(d["index"], d["from"], d["to"]) for d in moved] == [
        (0, "pending", "dispatched"),
        (1, "pending", "dispatched"),
        (0, "dispatched", "succeeded"),
        (1, "dispatched", "succeeded"),
    ]


async def test_the_subject_is_the_bytes_behind_the_digest(api: Caller) -> None:
    query = await begun(api)
    approval = await api.gate(query)
    subject = await api.get(f"/approvals/{approval['id']}/subject")
    assert hashlib.sha256(subject.content).hexdigest() == approval["digest"]
    plan = await api.read(f"/plans/{approval['target']}")
    shown = subject.json()
    assert shown["planDigest"] == plan["digest"]
    assert shown["body"] == plan["body"]
    assert shown["runtimeVersion"] == (await api.read("/runtimes"))["items"][0]["digest"]
    assert shown["dispatchers"].keys() == {"*"}


async def test_a_rejected_revision_cannot_be_presented_again(api: Caller) -> None:
    query = await begun(
        api,
        specs.delegated(
            ("storePlan", {"specName": "Routing", "planId": "p1", "body": specs.BODY}),
            ("executePlan", {"planId": "p1"}),
            ("executePlan", {"planId": "p1"}),
            ("storePlan", {"specName": "Routing", "planId": "p1", "body": {"actions": [specs.BOOK]}}),
            ("executePlan", {"planId": "p1"}),
        ),
    )
    first = await api.gate(query)
    assert await listed(api, decision="rejected") == []
    good(await api.decide(first["id"], "reject", feedback="No refunds."))
    second = await api.gate(query, not_=first["id"])
    assert (first["target"], second["glimpses"]["revision"]) == (second["target"], 2)
    good(await api.decide(second["id"]))
    await api.serve("actions", None)
    _, rejected, again, stored, executed = map(inner, output_of(await api.ended(query)))
    assert rejected == {"rejected": True, "feedback": "No refunds."}
    assert "Revision 1 of the plan p1 was answered with 'reject' and the feedback 'No refunds.'." in again
    assert (stored["revision"], stored["status"], executed["status"]) == (2, "draft", "executed")
    revisions = (await api.read(f"/plans/{first['target']}/revisions"))["items"]
    assert [(r["revision"], r["status"], r["decision"], r["feedback"]) for r in revisions] == [
        (2, "executed", None, None),
        (1, "rejected", "reject", "No refunds."),
    ]
    assert await listed(api, decision="rejected") == []  # the current revision was approved


async def listed(api: Caller, **filters: Any) -> list[str]:
    return [plan["id"] for plan in (await api.read("/plans", **filters))["items"]]


async def test_plans_are_found_by_their_decision(api: Caller) -> None:
    await api.register(specs.planning())
    decided = {}
    for decision in ("reject", "revise"):
        plan = await api.do("/plans", {"specName": "Routing", "body": specs.BODY, "planId": "p"})
        await api.do("/plans", {"specName": "Routing", "body": specs.BODY})
        query = await api.do(f"/plans/{plan['id']}/execute", {})
        approval = await api.gate(query["id"])
        good(await api.decide(approval["id"], decision, feedback="no"))
        await api.ended(query["id"])
        decided[decision] = plan["id"]
    assert await listed(api, decision="rejected") == [decided["reject"]]
    assert await listed(api, decision="revised") == [decided["revise"]]
    assert await listed(api, decision="rejected", status="approved") == []
    refused(await api.get("/plans", decision="reject"), 422)
    plan = await api.read(f"/plans/{decided['reject']}")
    assert (plan["status"], plan["revisionStatus"], plan["decision"]) == ("draft", "rejected", "reject")
    again = {"specName": "Routing", "body": specs.BODY, "planId": "p", "threadId": plan["threadId"]}
    assert (await api.do("/plans", again))["revisionStatus"] == "draft"
    again["body"] = {"actions": [specs.BOOK]}
    assert (await api.do("/plans", again))["revision"] == 3
    revisions = (await api.read(f"/plans/{plan['id']}/revisions"))["items"]
    assert [r["status"] for r in revisions] == ["draft", "replaced", "rejected"]


async def test_revise_sends_the_feedback_back(api: Caller) -> None:
    query = await begun(api)
    approval = await api.gate(query)
    good(await api.decide(approval["id"], "revise", feedback="Cheaper.", partial={"keep": [0]}))
    executed = inner(output_of(await api.ended(query))[1])
    assert executed == {"should_revise": True, "feedback": "Cheaper.", "partial": {"keep": [0]}}
    plan = await api.read(f"/plans/{approval['target']}")
    assert (plan["status"], plan["decision"], plan["partial"]) == ("draft", "revise", {"keep": [0]})


async def test_a_plan_is_found_by_key_or_id_only_in_its_thread(api: Caller) -> None:
    await api.register(specs.planning())
    stored = inner(
        output_of(
            await api.run(
                specs.delegated(("storePlan", {"specName": "Routing", "planId": "p1", "body": specs.BODY})),
                threadKey="one",
            )
        )[0]
    )
    ask = specs.delegated(("getPlan", {"planId": "p1"}), ("getPlan", {"planId": stored["planId"]}))
    by_key, by_id = map(inner, output_of(await api.run(ask, threadKey="one")))
    assert by_key == by_id
    assert (by_key["id"], by_key["planId"]) == ("p1", stored["planId"])
    elsewhere = list(map(inner, output_of(await api.run(ask, threadKey="two"))))
    assert elsewhere == [
        "There is no plan 'p1' in this thread.",
        f"There is no plan '{stored['planId']}' in this thread.",
    ]


async def test_an_invalid_body_lists_every_error(api: Caller) -> None:
    await api.register(specs.planning())
    body = {"actions": [{"kind": "book"}, {"kind": "refund", "cents": 0}, {"kind": "fly"}], "mood": 1}
    query = await api.run(specs.delegated(("storePlan", {"specName": "Routing", "body": body})))
    told = inner(output_of(query)[0]).partition(": ")[2]
    assert sorted(told.split("; ")) == [
        '/body/actions/0: the property "seat" is missing',
        "/body/actions/1/cents: 0 is less than the minimum of 1",
        '/body/actions/2/kind: "fly" is not one of "book", "refund"',
        '/body: these properties are not allowed: "mood"',
    ]


async def test_a_planner_stores_its_own_kind_of_plan_only(api: Caller) -> None:
    await api.register(specs.planning())
    query = await api.run(specs.delegated(("storePlan", {"specName": "Other", "body": specs.BODY})))
    assert '/specName: must be "Routing", not "Other"' in inner(output_of(query)[0])


async def test_an_executed_plan_is_neither_stored_over_nor_run_again(api: Caller) -> None:
    query = await begun(
        api,
        specs.delegated(
            ("storePlan", {"specName": "Routing", "planId": "p1", "body": specs.BODY}),
            ("executePlan", {"planId": "p1"}),
            ("executePlan", {"planId": "p1"}),
            ("storePlan", {"specName": "Routing", "planId": "p1", "body": specs.BODY}),
        ),
    )
    await api.approve(query)
    await api.serve("actions", None)
    _, _, again, over = map(inner, output_of(await api.ended(query)))
    assert "a plan that was ever approved runs once" in again
    assert "what was approved does not change" in over


async def test_kinds_with_dispatchers_of_their_own_are_sent_one_at_a_time(api: Caller) -> None:
    parts = {"actionDispatcher": None, "actionDispatchers": {"book": "client", "refund": "client"}}
    query = await begun(api, **parts)
    await api.approve(query)
    book = await api.serve("actions.book", {"entitiesAffected": 1, "summary": "Booked."})
    refund = await api.serve("actions.refund", {"entitiesAffected": 2, "summary": "Refunded."})
    assert [a["index"] for a in book["actions"]] == [0]
    assert [a["index"] for a in refund["actions"]] == [1]
    assert book["idempotencyKey"] == book["actions"][0]["idempotencyKey"]
    executed = inner(output_of(await api.ended(query))[1])
    assert (executed["entitiesAffected"], executed["summary"]) == (3, "Booked. Refunded.")


async def test_a_failed_action_fails_the_plan_and_shows_its_effects(api: Caller) -> None:
    parts = {"actionDispatcher": None, "actionDispatchers": {"book": "client", "refund": "client"}}
    query = await begun(api, **parts)
    await api.approve(query)
    await api.serve("actions.refund", error="The bank is closed.")
    await api.serve("actions.book", {"entitiesAffected": 1})
    executed = inner(output_of(await api.ended(query))[1])
    assert executed["status"] == "failed"
    assert executed["actions"][0]["status"] == "succeeded"
    assert executed["actions"][1]["error"] == {"code": "dispatch_failed", "message": "The bank is closed."}
    plan = (await api.read("/plans"))["items"][0]
    assert plan["status"] == "failed"


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ({"entitiesAffected": -1}, "entitiesAffected"),
        ({"entitiesAffected": "3"}, "entitiesAffected"),
        ({"entitiesAffected": True}, "entitiesAffected"),
        ({"summary": "x"}, "entitiesAffected"),
        ({"entitiesAffected": 1, "summary": 5}, "summary"),
        ({"entitiesAffected": 1, "extra": 5}, "extra"),
        ([1], "the dispatcher must return None or an object"),
    ],
)
async def test_a_bad_result_of_the_dispatcher_fails_the_call_and_names_the_field(
    api: Caller, returned: Any, says: str
) -> None:
    query = await begun(api)
    await api.approve(query)
    await api.serve("actions", returned)
    entry = output_of(await api.ended(query))[1]["result"]["results"][0]
    assert says in entry["error"]
    assert "must return None or an object" in entry["error"]
    plan = (await api.read("/plans"))["items"][0]
    assert plan["status"] == "failed"


async def test_a_plan_without_actions_is_executed_at_once(api: Caller) -> None:
    query = await begun(api, specs.store_and_execute({"actions": []}))
    await api.approve(query)
    executed = inner(output_of(await api.ended(query))[1])
    assert (executed["status"], executed["actions"]) == ("executed", [])


async def test_never_at_a_plans_gate_writes_a_row_decided_by_policy(api: Caller) -> None:
    query = await begun(api, approvalPolicies={"plans": "never"})
    await api.serve("actions", None)
    await api.ended(query)
    (row,) = (await api.read("/approvals", queryId=query))["items"]
    assert (row["status"], row["decidedBy"], row["decision"]) == ("approved", "policy", "approve")
    assert await api.events(query, "approval-required", "approval-decision") == []


async def test_inputs_are_approved_and_sent(api: Caller) -> None:
    query = await begun(api, specs.store_and_execute(inputs={"region": "north"}))
    approval = await api.gate(query)
    subject = (await api.get(f"/approvals/{approval['id']}/subject")).json()
    assert subject["inputs"] == {"region": "north"}
    await api.approve(query)
    assert (await api.serve("actions", None))["inputs"] == {"region": "north"}


# -- what differs from what was approved is refused


async def approve_and(plangate: World, query_id: str, change: Any) -> None:
    """Approves and changes something in the same transaction: the runner sees both or neither."""
    approval = await plangate.api.gate(query_id)
    async with plangate.services.db.transaction("acme") as tx:
        await plangate.services.approvals.decide(
            tx, approval["id"], Decision("approve", "ann", "key_ann", digest=approval["digest"])
        )
        await change(tx, approval["target"])


async def test_a_revision_stored_after_the_approval_is_not_approved(plangate: World, api: Caller) -> None:
    query = await begun(api)

    async def revise(tx: Any, plan_id: str) -> None:
        body = json.dumps({"actions": []}).encode()
        await tx.run("UPDATE plans SET revision = 2 WHERE id = $1", plan_id)
        await tx.run(
            "INSERT INTO plan_revisions (tenant_id, plan_id, revision, body, digest, stored_by)"
            " VALUES ('acme', $1, 2, $2, sha256($2), 'x')",
            plan_id,
            body,
        )

    await approve_and(plangate, query, revise)
    assert "is not what was approved" in inner(output_of(await api.ended(query))[1])
    assert await plangate.value("SELECT count(*) FROM outgoing_calls") == 0
    assert (await api.read("/plans"))["items"][0]["status"] == "draft"


async def test_a_reference_lost_after_the_approval_rejects_the_plan(plangate: World, api: Caller) -> None:
    await api.register(specs.planning(references=[{"name": "Seats", "schema": {"type": "array"}}]))
    made = await api.do("/references", {"kind": "Seats", "value": [1, 2]})
    handle = {"kind": "Seats", "id": made["id"]}
    body = {"actions": [{**specs.BOOK, "references": [handle]}]}
    query = (await api.submit(specs.store_and_execute(body)))["id"]

    async def lose(tx: Any, _plan_id: str) -> None:
        await tx.run("UPDATE reference_values SET value = NULL, deleted = true")

    await approve_and(plangate, query, lose)
    assert "There is no reference" in inner(output_of(await api.ended(query))[1])
    assert await plangate.value("SELECT count(*) FROM outgoing_calls") == 0


async def test_reference_values_reach_only_the_dispatcher(plangate: World, api: Caller) -> None:
    await api.register(specs.planning(references=[{"name": "Seats", "schema": {"type": "array"}}]))
    secret = "window-seat-4711"
    made = await api.do("/references", {"kind": "Seats", "value": [secret], "glimpse": {"count": 1}})
    handle = {"kind": "Seats", "id": made["id"]}
    body = {"actions": [{**specs.BOOK, "references": [handle]}]}
    query = (await api.submit(specs.store_and_execute(body)))["id"]
    approval = await api.gate(query)
    assert approval["glimpses"]["references"] == [{**handle, "glimpse": {"count": 1}, "sizeBytes": 20}]
    await api.approve(query)
    call = await api.serve("actions", None)
    assert call["resolvedRefs"] == {"Seats": {made["id"]: [secret]}}
    await api.ended(query)
    assert secret not in json.dumps(await api.events(query))
    assert secret.encode() not in (await api.get(f"/approvals/{approval['id']}/subject")).content


async def test_a_plan_pins_its_references_until_it_ends(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(
        specs.planning(references=[{"name": "Seats", "schema": {"type": "array"}, "ttlMs": 3_600_000}])
    )
    made = await api.do("/references", {"kind": "Seats", "value": [1, 2]})
    path = f"/references/Seats/{made['id']}"
    body = {"actions": [{**specs.BOOK, "references": [{"kind": "Seats", "id": made["id"]}]}]}
    query = (await api.submit(specs.store_and_execute(body)))["id"]
    await api.gate(query)
    await owner.execute("UPDATE reference_values SET expires_at = now() - interval '1 hour'")
    assert await plangate.services.references.sweep() == 0
    assert (await api.get(path)).json() == [1, 2]
    await api.approve(query)
    assert (await api.serve("actions", None))["resolvedRefs"] == {"Seats": {made["id"]: [1, 2]}}
    await api.ended(query)
    refused(await api.get(path), 410, "reference_expired")


@pytest.mark.parametrize("how", ["expired", "cancelled", "reject"])
async def test_a_draft_without_a_decision_pins_for_seven_days(
    plangate: World, api: Caller, owner: Any, how: str
) -> None:
    await api.register(specs.planning(references=[{"name": "Seats", "schema": {"type": "array"}}]))
    made = await api.do("/references", {"kind": "Seats", "value": [1, 2]})
    body = {"actions": [{**specs.BOOK, "references": [{"kind": "Seats", "id": made["id"]}]}]}
    query = (await api.submit(specs.store_and_execute(body)))["id"]
    approval = await api.gate(query)
    assert await plangate.value("SELECT until FROM reference_pins") is None
    if how == "expired":
        await owner.execute("UPDATE approvals SET expires_at = now()")
        await plangate.services.approvals.expire_due()
    elif how == "cancelled":
        await api.do(f"/queries/{query}/cancel")
    else:
        good(await api.decide(approval["id"], "reject"))
    await api.ended(query)
    left = await plangate.value("SELECT until - now() FROM reference_pins")
    assert left is not None
    assert 6.9 < left.total_seconds() / 86400 <= 7


async def test_inputs_of_an_execution_match_the_input_schema(api: Caller) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    await api.register(specs.planning(inputSchema=schema))
    ended = await api.run(specs.store_and_execute(inputs={"n": "one"}), inputs={"n": 1})
    assert inner(output_of(ended)[1]) == (
        'The inputs do not match the runtime\'s inputSchema. /inputs/n: must be integer, not "one".'
    )
    assert (await api.read("/approvals"))["items"] == []
    query = (await api.submit(specs.store_and_execute(inputs={"n": 2})))["id"]
    await api.approve(query)
    assert (await api.serve("actions", DONE))["inputs"] == {"n": 2}
    await api.ended(query)


async def test_any_result_of_a_dispatcher_is_stored_readably(api: Caller) -> None:
    """More entities than a number holds, and more words than anybody reads; the rows have it all."""
    await api.register(
        specs.planning(
            actionDispatcher=None,
            actionDispatchers={"book": "client", "refund": "client"},
            approvalPolicies={"plans": "never"},
        )
    )
    body = {"actions": [*[specs.BOOK] * 3, specs.REFUND]}
    plan = await api.do("/plans", {"runtime": "default", "specName": "Routing", "body": body})
    query = (await api.do(f"/plans/{plan['id']}/execute", {}))["id"]
    for _ in range(3):
        await api.serve("actions.book", {"entitiesAffected": 2**63 - 1, "summary": "s" * 50_000})
    await api.serve("actions.refund", error="e" * 20_000)
    await api.ended(query)
    over = await api.read(f"/plans/{plan['id']}")
    assert over["status"] == "failed"
    answer = over["result"]
    assert [a["status"] for a in answer["actions"]] == ["succeeded"] * 3 + ["failed"]
    assert answer["entitiesAffected"] == 2**63 - 1
    assert len(answer["summary"]) < 5_000
    assert len(answer["actions"][3]["error"]["message"]) < 1_100
    rows = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    assert [len(r["result"]["summary"]) for r in rows[:3]] == [50_000] * 3
    assert len(rows[3]["error"]["message"]) == 20_000


# -- unknown outcomes


async def lapsed(plangate: World, owner: Any, query: str) -> dict[str, Any]:
    """The dispatch after a process took it and said nothing more."""
    await plangate.api.approve(query)
    (call,) = await plangate.api.claim("actions")
    await owner.execute("UPDATE outgoing_calls SET claimed_until = now() - interval '1 s'")
    await plangate.services.calls.lapse_due()
    return call


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
async def test_an_unknown_outcome_waits_for_a_person(
    plangate: World, api: Caller, owner: Any, outcome: str
) -> None:
    query = await begun(api)
    call = await lapsed(plangate, owner, query)
    await api.until(query, "waiting", "outcome_unknown")
    plan = (await api.read("/plans"))["items"][0]
    assert plan["status"] == "executing"
    actions = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    assert [a["status"] for a in actions] == ["unknown", "unknown"]
    late = good(await api.result(call, DONE))
    assert late["adopted"] is False
    assert (await api.read(f"/queries/{query}"))["status"] == "waiting"
    (listed,) = (await api.read("/tool-calls", queryId=query))["items"]  # for who settles it
    assert (listed["status"], listed["lateResult"]) == ("unknown", {"output": DONE})
    long = good(await api.result(call, "x" * 5_000))
    assert long["adopted"] is False
    (listed,) = (await api.read("/tool-calls", queryId=query))["items"]
    assert listed["lateResult"] == {"note": "It has 5013 bytes, too many for a list."}
    path = f"/plans/{plan['id']}/actions/1"
    refused(await (await plangate.key("plans:write", "read")).post(path, {"outcome": outcome}), 403)
    settled = await (await plangate.key("plans:settle")).do(path, {"outcome": outcome, "details": "seen"})
    assert (settled["status"], settled["settledBy"]) == (outcome, "ann")
    executed = inner(output_of(await api.ended(query))[1])
    assert executed["status"] == ("executed" if outcome == "succeeded" else "failed")
    assert [a["status"] for a in executed["actions"]] == [outcome, outcome]
    refused(await api.post(path, {"outcome": outcome}), 409)


async def test_long_details_are_stored_and_truncated_in_the_summary(
    plangate: World, api: Caller, owner: Any
) -> None:
    """A thousand rows of a megabyte are no transaction of a second, and no answer for a model."""
    await api.register(specs.planning(approvalPolicies={"plans": "never"}))
    body = {"actions": [specs.BOOK] * 30}
    plan = await api.do("/plans", {"runtime": "default", "specName": "Routing", "body": body})
    query = (await api.do(f"/plans/{plan['id']}/execute", {}))["id"]
    await api.claim("actions")
    await owner.execute("UPDATE outgoing_calls SET claimed_until = now() - interval '1 s'")
    await plangate.services.calls.lapse_due()
    await api.until(query, "waiting", "outcome_unknown")
    path = f"/plans/{plan['id']}/actions/7"
    problem = refused(await api.post(path, {"outcome": "failed", "details": "x" * 900_000}), 422, "invalid")
    told = "30 actions were sent together, and each keeps the details: that would be 27001110 bytes, more than 16777216"
    assert problem["errors"] == [{"pointer": "/details", "message": told}]
    settled = await api.do(path, {"outcome": "failed", "details": "x" * 90_000})
    assert (settled["index"], len(settled["error"]["details"])) == (7, 90_000)
    await api.ended(query)
    over = await api.read(f"/plans/{plan['id']}")
    short = {"settledBy": "operator", "details": "x" * 79 + "…"}
    assert [a["error"] for a in over["result"]["actions"]] == [short] * 30
    rows = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    assert {len(r["error"]["details"]) for r in rows} == {90_000}


async def test_retry_sends_again_under_the_same_key_and_counts(
    plangate: World, api: Caller, owner: Any
) -> None:
    query = await begun(api)
    first = await lapsed(plangate, owner, query)
    await api.until(query, "waiting", "outcome_unknown")
    plan_id = first["planId"]
    await api.do(f"/plans/{plan_id}/actions/0", {"outcome": "retry"})
    again = await api.serve("actions", DONE)
    assert again["idempotencyKey"] == first["idempotencyKey"]
    assert again["workId"] == first["workId"]
    assert (first["attempt"], again["attempt"]) == (1, 2)
    await api.ended(query)
    actions = (await api.read(f"/plans/{plan_id}/actions"))["items"]
    assert [(a["status"], a["attempts"]) for a in actions] == [("succeeded", 2)] * 2


async def test_a_retry_is_not_offered_before_its_row_says_dispatched(
    plangate: World, api: Caller, owner: Any
) -> None:
    query = await begun(api)
    first = await lapsed(plangate, owner, query)
    await api.until(query, "waiting", "outcome_unknown")
    async with plangate.services.db.transaction("acme") as tx:
        await settle(plangate.services.plans, tx, first["planId"], 0, "retry", None, "ann")
        rows = await tx.fetch("SELECT status FROM plan_actions")
        assert [r["status"] for r in rows] == ["pending", "pending"]
        assert await tx.value("SELECT status FROM outgoing_calls") != "open"
    await api.serve("actions", DONE)
    await api.ended(query)


async def test_a_safe_dispatch_is_offered_again_after_its_claim_expires(
    plangate: World, api: Caller, owner: Any
) -> None:
    query = await begun(api, actionDispatcher={"kind": "client", "replay": "safe"})
    first = await lapsed(plangate, owner, query)
    again = await api.serve("actions", DONE)
    assert (again["idempotencyKey"], again["claims"]) == (first["idempotencyKey"], 2)
    assert again["claimToken"] != first["claimToken"]
    refused(await api.result({**first, "claimToken": "stale"}, DONE), 409, "claim_lapsed")
    assert inner(output_of(await api.ended(query))[1])["status"] == "executed"


async def test_a_dispatch_lost_three_times_waits_for_a_person(
    plangate: World, api: Caller, owner: Any
) -> None:
    query = await begun(api, actionDispatcher={"kind": "client", "replay": "safe"})
    await lapsed(plangate, owner, query)

    async def lost_again(claims: int) -> str:
        (call,) = await api.claim("actions")
        assert call["claims"] == claims
        await owner.execute("UPDATE outgoing_calls SET claimed_until = now() - interval '1 s'")
        await plangate.services.calls.lapse_due()
        return str(call["planId"])

    for claims in (2, 3):
        plan = await lost_again(claims)
    await api.until(query, "waiting", "outcome_unknown")
    settling = f"/plans/{plan}/actions/0"
    await api.do(settling, {"outcome": "retry"})
    await lost_again(4)  # a person asked for one more
    await api.until(query, "waiting", "outcome_unknown")
    await api.do(settling, {"outcome": "retry"})
    await api.serve("actions", DONE)
    assert inner(output_of(await api.ended(query))[1])["status"] == "executed"


# -- cancelling


async def test_canceling_an_unclaimed_dispatch_skips_it(plangate: World, api: Caller) -> None:
    query = await begun(api)
    await api.approve(query)
    await api.until(query, "waiting", "client_call")
    await api.do(f"/queries/{query}/cancel")
    plan = (await api.read("/plans"))["items"][0]
    assert plan["status"] == "failed"
    actions = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    assert [a["status"] for a in actions] == ["skipped", "skipped"]
    assert (await api.do("/tool-calls/claim", {"tools": [{"name": "actions"}]}))["calls"] == []
    last = (await api.events(query))[-1]
    assert (last["type"], last["error"]["code"]) == ("error", "cancelled")


async def test_canceling_a_claimed_dispatch_leaves_it_unknown(api: Caller) -> None:
    query = await begun(api)
    await api.approve(query)
    (call,) = await api.claim("actions")
    await api.do(f"/queries/{query}/cancel")
    plan = (await api.read("/plans"))["items"][0]
    assert plan["status"] == "failed"
    assert [a["status"] for a in (await api.read(f"/plans/{plan['id']}/actions"))["items"]] == ["unknown"] * 2
    assert good(await api.result(call, DONE))["adopted"] is False
    settled = await api.do(f"/plans/{plan['id']}/actions/0", {"outcome": "succeeded"})
    assert settled["status"] == "succeeded"
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "failed"
    assert (await api.read(f"/queries/{query}"))["status"] == "cancelled"


async def test_cancelling_withdraws_the_gate(api: Caller) -> None:
    query = await begun(api)
    approval = await api.gate(query)
    await api.do(f"/queries/{query}/cancel")
    assert (await api.read(f"/approvals/{approval['id']}"))["status"] == "cancelled"
    body = refused(await api.decide(approval["id"]), 409)
    assert "already cancelled" in body["detail"]
    assert (await api.read(f"/plans/{approval['target']}"))["status"] == "draft"


# -- hosts


async def test_a_host_stores_and_executes_without_a_model(plangate: World, api: Caller) -> None:
    await api.register(specs.planning())
    answer = await api.post("/plans", {"specName": "Routing", "body": specs.BODY, "planId": "mine"})
    assert answer.status_code == 201
    plan = good(answer)
    assert answer.headers["location"] == f"/plans/{plan['id']}"
    assert (plan["key"], plan["status"], plan["revision"]) == ("mine", "draft", 1)
    started = await api.post(f"/plans/{plan['id']}/execute", {"inputs": {"a": 1}})
    assert started.status_code == 202
    accepted = good(started)
    assert accepted["planId"] == plan["id"]
    await api.approve(accepted["id"])
    assert (await api.serve("actions", DONE))["inputs"] == {"a": 1}
    query = await api.ended(accepted["id"])
    assert (query["status"], query["kind"], query["planId"]) == ("succeeded", "plan", plan["id"])
    assert json.loads(query["output"])["entitiesAffected"] == 3
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "executed"


async def test_a_host_revises_by_key_and_by_id(api: Caller) -> None:
    await api.register(specs.planning())
    body = {"specName": "Routing", "body": specs.BODY, "planId": "mine", "threadKey": "t"}
    first = await api.do("/plans", body)
    second = await api.do("/plans", body)
    third = await api.do("/plans", {**body, "planId": first["id"]})
    assert [p["revision"] for p in (first, second, third)] == [1, 2, 3]
    assert len({p["id"] for p in (first, second, third)}) == 1
    refused(await api.post("/plans", {**body, "planId": "pln_" + "0" * 26}), 404)


async def test_executing_a_plan_again_makes_an_independent_copy(api: Caller) -> None:
    await api.register(specs.planning())
    plan = await api.do("/plans", {"specName": "Routing", "body": specs.BODY})
    first = await api.do(f"/plans/{plan['id']}/execute", {})
    await api.approve(first["id"])
    await api.serve("actions", None)
    await api.ended(first["id"])
    second = await api.do(f"/plans/{plan['id']}/execute", {"inputs": {"again": True}})
    assert second["planId"] != plan["id"]
    copy = await api.read(f"/plans/{second['planId']}")
    assert (copy["copiedFrom"], copy["body"], copy["digest"]) == (plan["id"], plan["body"], plan["digest"])
    await api.approve(second["id"])
    call = await api.serve("actions", None)
    assert (call["planId"], call["inputs"]) == (copy["id"], {"again": True})
    await api.ended(second["id"])
    assert (await api.read(f"/plans/{copy['id']}"))["status"] == "executed"


async def test_a_host_cannot_execute_at_an_open_gate_or_after_a_rejection(api: Caller) -> None:
    await api.register(specs.planning())
    plan = await api.do("/plans", {"specName": "Routing", "body": specs.BODY})
    path = f"/plans/{plan['id']}/execute"
    query = await api.do(path, {})
    approval = await api.gate(query["id"])
    refused(await api.post(path, {}), 409, "plan_approval_pending")
    good(await api.decide(approval["id"], "reject", feedback="no"))
    ended = await api.ended(query["id"])
    assert json.loads(ended["output"]) == {"rejected": True, "feedback": "no"}
    body = refused(await api.post(path, {}), 409, "plan_rejected")
    assert "next revision" in body["detail"]


async def test_storing_reports_errors_with_their_place(api: Caller) -> None:
    await api.register(specs.planning())
    bad = {"specName": "Routing", "body": {"actions": [specs.BOOK, {"kind": "refund", "cents": "5"}, {}]}}
    body = refused(await api.post("/plans", bad), 422, "invalid")
    assert body["errors"] == [
        {"pointer": "/body/actions/1/cents", "message": 'must be integer, not "5"'},
        {"pointer": "/body/actions/2", "message": 'the property "kind" is missing: one of "book", "refund"'},
    ]
    body = refused(await api.post("/plans", {"specName": "No", "body": specs.BODY}), 422)
    assert body["errors"] == [{"pointer": "/specName", "message": "declared are: Routing"}]
    missing = {**specs.BOOK, "references": [{"kind": "Seats", "id": "0" * 64}]}
    body = {"specName": "Routing", "body": {"actions": [missing]}}
    problem = refused(await api.post("/plans", body), 404, "reference_not_found")
    message = f"There is no reference Seats/{'0' * 64}"
    assert problem["errors"] == [{"pointer": "/body/actions/0/references/0", "message": message}]
    assert (await api.read("/plans"))["items"] == []


async def test_a_running_query_keeps_its_runtime_version(
    api: Caller,
) -> None:
    query = await begun(api)
    await api.gate(query)
    await api.register(specs.planning(actionDispatcher={"kind": "client", "replay": "safe"}))
    await api.approve(query)
    await api.serve("actions", None)
    assert inner(output_of(await api.ended(query))[1])["status"] == "executed"
