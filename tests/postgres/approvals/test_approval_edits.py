"""Arguments that an approver edits: they are sent and reported."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest

from tests.support import specs
from tests.support.client import Caller, good, inner, output_of, refused
from tests.support.world import World, world

TWO = {"kind": "always", "approvers": {"minimum": 2}}


async def asked(api: Caller, rule: Any = "always", n: int = 7) -> dict[str, Any]:
    """An open approval of a call of `pay`."""
    await api.register(specs.scripted(specs.tool("pay", approval=rule)))
    return await api.gate((await api.submit(specs.script(("pay", {"n": n}))))["id"])


def told(args: str, answer: str) -> str:
    return f"An approver changed the arguments of this call. Its arguments are now: {args}\n{answer}"


async def test_edited_arguments_are_sent_and_reported(api: Caller) -> None:
    before = await asked(api)
    decided = good(await api.decide(before["id"], args={"n": 8, "why": "†less"}, digest=before["digest"]))
    subject = await api.get(f"/approvals/{before['id']}/subject")
    assert subject.json()["args"] == {"n": 8, "why": "†less"}
    assert decided["digest"] == hashlib.sha256(subject.content).hexdigest() != before["digest"]
    assert (decided["status"], decided["originalArgs"]) == ("approved", {"n": 7})
    assert decided["glimpses"] == {"args": {"n": 8, "why": "†less"}}
    assert await api.read(f"/approvals/{before['id']}") == decided
    call = await api.serve("pay", {"paid": True})
    assert call["args"] == {"n": 8, "why": "†less"}
    query = await api.ended(before["queryId"])
    assert output_of(query) == [
        {"tool": "pay", "result": told('{"n":8,"why":"†less"}', '{"paid":true}')},
    ]
    (decision,) = await api.events(query["id"], "approval-decision")
    assert decision["data"]["args"] == {"n": 8, "why": "†less"}
    called, answered = await api.events(query["id"], "tool-invocation")
    assert (called["args"], "sentArgs" in called) == ({"n": 7}, False)
    assert (answered["args"], answered["sentArgs"]) == ({"n": 7}, {"n": 8, "why": "†less"})
    assert answered["result"] == {"paid": True}


async def test_an_approval_without_an_edit_reports_no_edit(api: Caller) -> None:
    approval = await asked(api)
    decided = good(await api.decide(approval["id"], args={"n": 7}))
    assert (decided["digest"], decided["originalArgs"]) == (approval["digest"], None)
    await api.serve("pay", 1)
    query = await api.ended(approval["queryId"])
    assert output_of(query) == [{"tool": "pay", "result": 1}]
    assert "args" not in (await api.events(query["id"], "approval-decision"))[0]["data"]
    assert all("sentArgs" not in e for e in await api.events(query["id"], "tool-invocation"))


async def test_an_error_of_an_edited_call_shows_the_sent_arguments(api: Caller) -> None:
    approval = await asked(api)
    good(await api.decide(approval["id"], args={"n": 8}))
    await api.serve("pay", error="No money.")
    assert output_of(await api.ended(approval["queryId"])) == [
        {"tool": "pay", "error": told('{"n":8}', "No money.")}
    ]


async def test_long_arguments_are_sent_whole_and_named_to_the_model(api: Caller) -> None:
    approval = await asked(api)
    args = {"n": 8, "note": "x" * 20_000}
    good(await api.decide(approval["id"], args=args))
    assert (await api.serve("pay", 1))["args"] == args
    (result,) = output_of(await api.ended(approval["queryId"]))
    assert result["result"] == told("values too long to repeat of: n, note", "1")


async def test_arguments_are_checked_against_the_schema_of_the_tool(api: Caller) -> None:
    approval = await asked(api)
    body = refused(await api.decide(approval["id"], args={"n": "8"}), 422, "invalid")
    assert body["detail"] == "args do not match the inputSchema of pay; nothing was decided."
    assert [e["pointer"] for e in body["errors"]] == ["/args/n"]
    body = refused(await api.decide(approval["id"], args={}), 422)
    assert [e["pointer"] for e in body["errors"]] == ["/args"]
    body = refused(await api.decide(approval["id"], args=[8]), 422)
    assert body["errors"][0]["pointer"] == "/args"
    still = await api.read(f"/approvals/{approval['id']}")
    assert (still["status"], still["digest"], still["votes"]) == ("pending", approval["digest"], [])


@pytest.mark.parametrize("word", ["reject", "revise"])
async def test_arguments_are_accepted_only_with_approve(api: Caller, word: str) -> None:
    approval = await asked(api)
    body = refused(await api.decide(approval["id"], word, args={"n": 8}), 422)
    assert body["errors"] == [
        {"pointer": "/args", "message": f"belongs to the decision 'approve', not to '{word}'"}
    ]
    assert (await api.read(f"/approvals/{approval['id']}"))["status"] == "pending"


async def test_a_plan_is_revised_not_edited(api: Caller) -> None:
    await api.register(specs.planning())
    approval = await api.gate((await api.submit(specs.store_and_execute()))["id"])
    body = refused(await api.decide(approval["id"], args={"actions": []}), 422)
    assert body["errors"] == [
        {"pointer": "/args", "message": "a plan is not edited: send 'revise' with feedback"}
    ]


async def test_arguments_of_builtin_tools_can_be_edited(api: Caller) -> None:
    await api.register(
        specs.spec(
            specs.agent("chief", "coordinator", routes=["one", "two"]),
            specs.agent("one"),
            specs.agent("two"),
            interpreter="scripted",
            approvalOverrides={"tools": {"chief": {"call_agent": "always"}}},
        )
    )
    query = await api.submit(specs.script(("call_agent", {"agent": "one", "prompt": {"script": []}})))
    approval = await api.gate(query["id"])
    body = refused(await api.decide(approval["id"], args={"agent": "three", "prompt": "x"}), 422)
    assert body["errors"][0]["pointer"] == "/args/agent"
    good(await api.decide(approval["id"], args={"agent": "two", "prompt": {"script": []}}))
    (result,) = output_of(await api.ended(query["id"]))
    assert result["result"].startswith("An approver changed the arguments of this call.")
    work = (await api.read(f"/queries/{query['id']}/work"))["items"]
    assert [w["name"] for w in work if w["kind"] == "agent"] == ["chief", "two"]


async def test_a_repeated_edit_gets_the_first_response(plangate: World, api: Caller) -> None:
    approval = await asked(api)
    ann = await plangate.key("approvals:decide")
    edit = {"args": {"n": 8}, "digest": approval["digest"]}
    first = good(await ann.decide(approval["id"], **edit))
    assert good(await ann.decide(approval["id"], **edit)) == first
    assert good(await ann.decide(approval["id"], args={"n": 8}, digest=first["digest"])) == first
    for other in ({"args": {"n": 9}}, {"args": {"n": 7}}):
        body = refused(await ann.decide(approval["id"], **other), 409)
        assert body["detail"] == "This approval is already approved by ann."
        assert body["approval"] == first
    refused(await ann.decide(approval["id"], digest=approval["digest"]), 409)
    assert len(await api.events(approval["queryId"], "approval-decision")) == 1


async def test_an_edit_with_a_wrong_digest_is_rejected(api: Caller) -> None:
    approval = await asked(api)
    body = refused(await api.decide(approval["id"], args={"n": 8}, digest="0" * 64), 409)
    assert body["digest"] == approval["digest"]
    assert (await api.read(f"/approvals/{approval['id']}"))["digest"] == approval["digest"]


async def test_one_of_many_concurrent_edits_wins(plangate: World, second: World, api: Caller) -> None:
    approval = await asked(api)
    keys = [await plangate.key("approvals:decide", principal=f"p{n}") for n in range(6)]
    answers = await asyncio.gather(
        *(
            Caller((plangate if n % 2 else second).http, key.key).post(
                f"/approvals/{approval['id']}",
                {"decision": "approve", "digest": approval["digest"], "args": {"n": n}},
            )
            for n, key in enumerate(keys)
        )
    )
    (won,) = [n for n, a in enumerate(answers) if a.status_code == 200]
    assert all(a.status_code == 409 for n, a in enumerate(answers) if n != won)
    assert (await api.serve("pay", 1))["args"] == {"n": won}


async def test_with_a_quorum_an_edit_makes_earlier_votes_void(plangate: World, api: Caller) -> None:
    approval = await asked(api, TWO)
    ann, bob, cat = [await plangate.key("approvals:decide", principal=p) for p in ("ann", "bob", "cat")]
    good(await ann.decide(approval["id"], digest=approval["digest"]))
    edited = good(await bob.decide(approval["id"], args={"n": 8}, digest=approval["digest"]))
    assert (edited["status"], edited["originalArgs"]) == ("pending", {"n": 7})
    assert [v["principal"] for v in edited["votes"]] == ["bob"]
    asked_again = await api.events(approval["queryId"], "approval-required")
    assert [e["data"]["digest"] for e in asked_again] == [approval["digest"], edited["digest"]]
    assert asked_again[1]["data"]["glimpses"] == {"args": {"n": 8}}
    body = refused(await ann.decide(approval["id"], digest=approval["digest"]), 409)
    assert body["digest"] == edited["digest"]
    refused(await cat.decide(approval["id"], args={"n": 9}, digest=approval["digest"]), 409)
    repeated = good(await bob.decide(approval["id"], args={"n": 8}, digest=approval["digest"]))
    assert repeated == edited
    done = good(await ann.decide(approval["id"], digest=edited["digest"]))
    assert (done["status"], done["decidedBy"]) == ("approved", "ann")
    assert [v["principal"] for v in done["votes"]] == ["bob", "ann"]
    assert (await api.serve("pay", 1))["args"] == {"n": 8}
    assert await plangate.value("SELECT count(*) FROM approval_votes") == 3  # what is void stays on record


async def test_an_edit_back_to_the_original_keeps_votes_void(plangate: World, api: Caller) -> None:
    approval = await asked(api, TWO)
    ann, bob, cat = [await plangate.key("approvals:decide", principal=p) for p in ("ann", "bob", "cat")]
    good(await ann.decide(approval["id"]))
    good(await bob.decide(approval["id"], args={"n": 8}))
    back = good(await cat.decide(approval["id"], args={"n": 7}))
    assert (back["status"], back["digest"], back["originalArgs"]) == ("pending", approval["digest"], None)
    assert [v["principal"] for v in back["votes"]] == ["cat"]
    good(await ann.decide(approval["id"]))
    await api.serve("pay", 1)
    assert output_of(await api.ended(approval["queryId"])) == [{"tool": "pay", "result": 1}]


async def test_several_edits_apply_all_or_nothing(api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("pay", approval="always")))
    one, two = [await api.gate((await api.submit(specs.script(("pay", {"n": n}))))["id"]) for n in (1, 2)]
    bad = [
        {"id": two["id"], "decision": "approve", "digest": two["digest"], "args": {"n": 20}},
        {"id": one["id"], "decision": "approve", "digest": one["digest"], "args": {"n": None}},
    ]
    body = refused(await api.post("/approvals", {"decisions": bad}), 422)
    assert [e["pointer"] for e in body["errors"]] == ["/decisions/1/args/n"]
    assert body["detail"].startswith(f"{one['id']}: args do not match")
    assert body["detail"].endswith("Nothing was decided.")
    assert (await api.read(f"/approvals/{two['id']}"))["digest"] == two["digest"]
    bad[1]["args"] = {"n": 10}
    done = (await api.do("/approvals", {"decisions": bad}))["approvals"]
    assert [a["glimpses"] for a in done] == [{"args": {"n": 20}}, {"args": {"n": 10}}]


async def test_after_a_restart_the_approvers_arguments_are_sent(cluster: Any, site: Any, idle: World) -> None:
    async with world(site, cluster.operator_key) as first:
        approval = await asked(first.api)
        await first.api.until(approval["queryId"], "waiting")
    good(await idle.api.decide(approval["id"], args={"n": 8}))
    async with world(site, cluster.operator_key):
        assert (await idle.api.serve("pay", 1))["args"] == {"n": 8}
        (result,) = output_of(await idle.api.ended(approval["queryId"]))
        assert result["result"] == told('{"n":8}', "1")


@pytest.mark.parametrize("field", ["tool", "definitionDigest", "runtimeVersion"])
async def test_a_call_other_than_the_approved_one_is_not_made(
    plangate: World, api: Caller, owner: Any, field: str
) -> None:
    """Somebody at the database changes what was approved: no edit of ours could have made it."""
    approval = await asked(api)
    await api.until(approval["queryId"], "waiting")
    subject = (await api.get(f"/approvals/{approval['id']}/subject")).json()
    forged = json.dumps({**subject, "args": {"n": 8}, field: "other"}, separators=(",", ":"), sort_keys=True)
    await owner.execute(
        "UPDATE approvals SET original_subject = subject, subject = $1, digest = sha256($1)", forged.encode()
    )
    good(await api.decide(approval["id"]))
    assert output_of(await api.ended(approval["queryId"])) == [
        {"tool": "pay", "error": "The call differs from what was approved, so it was not made."}
    ]
    assert await plangate.value("SELECT count(*) FROM outgoing_calls") == 0


async def test_a_gate_of_a_nested_agent_accepts_an_edit(api: Caller) -> None:
    await api.register(
        specs.scripted(
            specs.tool("pay", approval="always"),
            agents=[
                specs.agent("chief", "coordinator", routes=["middle"]),
                specs.agent("middle", routes=[], tools=["pay"]),
            ],
        )
    )
    prompt = {"tool": "pay", "args": {"n": 3}}
    query = await api.submit(specs.script(("call_agent", {"agent": "middle", "prompt": prompt})))
    good(await api.decide((await api.gate(query["id"]))["id"], args={"n": 4}))
    assert (await api.serve("pay", 1))["args"] == {"n": 4}
    (result,) = output_of(await api.ended(query["id"]))
    assert inner(result) == told('{"n":4}', "1")
