"""Remembered approvals: how a grant is created, what it covers, and what ends it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from app.base.ids import new_id
from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.world import World

REMEMBER = {"kind": "always", "rememberable": True}
FREE = {"kind": "always", "rememberable": {"free": ["note"]}}
DAY_S = 24 * 3600


def spec(rule: Any = REMEMBER, **parts: Any) -> dict[str, Any]:
    return specs.scripted(specs.tool("pay", approval=rule), **parts)


async def call(api: Caller, thread: str = "t", **args: Any) -> str:
    """A query that calls `pay`."""
    return str((await api.submit(specs.script(("pay", args or {"n": 7})), threadKey=thread))["id"])


async def granted(api: Caller, rule: Any = REMEMBER, **args: Any) -> dict[str, Any]:
    """A grant, after the approval and the call that it was made with."""
    await api.register(spec(rule))
    query = await call(api, **args)
    approval = await api.gate(query)
    good(await api.decide(approval["id"], scope="thread"))
    await api.serve("pay", 1)
    await api.ended(query)
    (grant,) = (await api.read("/grants"))["items"]
    return dict(grant)


async def passes(api: Caller, query: str) -> dict[str, Any]:
    """The approval of a call that nobody was asked about."""
    await api.serve("pay", 2)
    assert output_of(await api.ended(query)) == [{"tool": "pay", "result": 2}]
    (approval,) = (await api.read("/approvals", queryId=query))["items"]
    return dict(approval)


async def asks(api: Caller, query: str) -> None:
    """The call stands at its gate; it is cleared away."""
    approval = await api.gate(query)
    assert approval["grantId"] is None
    await api.do(f"/queries/{query}/cancel")


async def test_a_grant_covers_the_same_call_in_the_thread(plangate: World, api: Caller) -> None:
    ann = await plangate.key("approvals:decide", "read")
    await api.register(spec())
    first = await call(api)
    approval = await api.gate(first)
    assert approval["rule"] == REMEMBER
    decided = good(await ann.decide(approval["id"], scope="thread", digest=approval["digest"]))
    assert [(v["principal"], v["scope"]) for v in decided["votes"]] == [("ann", "thread")]
    assert decided["grantId"] is None  # it made one; none decided it
    await api.serve("pay", 1)
    await api.ended(first)
    (grant,) = (await api.read("/grants"))["items"]
    subject = (await api.get(f"/approvals/{approval['id']}/subject")).json()
    assert {k: v for k, v in grant.items() if not k.endswith("At")} == {
        "id": grant["id"],
        "approvalId": approval["id"],
        "threadId": approval["threadId"],
        "agent": "solo",
        "tool": "pay",
        "definitionDigest": subject["definitionDigest"],
        "args": {"n": 7},
        "free": [],
        "grantedBy": "ann",
        "revokedBy": None,
        "active": True,
    }
    lives = "SELECT extract(epoch FROM expires_at - created_at)::int FROM approval_grants"
    assert await plangate.value(lives) == DAY_S

    second = await call(api)
    used = await passes(api, second)
    assert (used["status"], used["decision"], used["decidedBy"]) == ("approved", "approve", "ann")
    assert (used["grantId"], used["votes"], used["requestedBy"]) == (grant["id"], [], "operator")
    own = await api.get(f"/approvals/{used['id']}/subject")
    assert own.json()["args"] == {"n": 7}
    assert used["digest"] == hashlib.sha256(own.content).hexdigest()
    told = [e["type"] for e in await api.events(second) if e["type"].startswith(("approval", "tool-inv"))]
    assert told == ["tool-invocation", "approval-decision", "tool-invocation"]
    (event,) = await api.events(second, "approval-decision")
    assert event["data"] == {
        "id": used["id"],
        "outcome": {"outcome": "approve"},
        "decidedBy": "ann",
        "grantId": grant["id"],
    }


async def test_nothing_is_remembered_without_the_scope(api: Caller) -> None:
    await api.register(spec())
    first = await call(api)
    good(await api.decide((await api.gate(first))["id"]))
    await api.serve("pay", 1)
    await api.ended(first)
    assert (await api.read("/grants"))["items"] == []
    await asks(api, await call(api))


@pytest.mark.parametrize(
    ("decision", "rule", "message"),
    [
        ("reject", REMEMBER, "belongs to the decision 'approve', not to 'reject'"),
        ("revise", REMEMBER, "belongs to the decision 'approve', not to 'revise'"),
        ("approve", "always", "the rule of this gate is not 'rememberable': remove 'scope'"),
        (
            "approve",
            {**REMEMBER, "rememberable": False},
            "the rule of this gate is not 'rememberable': remove 'scope'",
        ),
    ],
)
async def test_the_scope_is_rejected_where_it_does_not_apply(
    api: Caller, decision: str, rule: Any, message: str
) -> None:
    await api.register(spec(rule))
    approval = await api.gate(await call(api))
    body = refused(await api.decide(approval["id"], decision, scope="thread"), 422, "invalid")
    assert body["errors"] == [{"pointer": "/scope", "message": message}]
    assert (await api.read(f"/approvals/{approval['id']}"))["status"] == "pending"


async def test_only_the_scope_thread_exists(api: Caller) -> None:
    await api.register(spec())
    approval = await api.gate(await call(api))
    body = refused(await api.decide(approval["id"], scope="tenant"), 422)
    assert body["errors"][0]["pointer"] == "/scope"


async def test_approvals_of_plans_are_never_remembered(api: Caller) -> None:
    await api.register(specs.planning())
    approval = await api.gate((await api.submit(specs.store_and_execute()))["id"])
    body = refused(await api.decide(approval["id"], scope="thread"), 422)
    message = "approvals of plans are not remembered: remove 'scope'"
    assert body["errors"] == [{"pointer": "/scope", "message": message}]
    spec = specs.planning(approvalPolicies={"plans": REMEMBER})
    body = refused(await api.post("/runtimes", spec), 422)
    assert [(e["pointer"], e["message"]) for e in body["errors"]] == [
        ("/approvalPolicies/plans", "approvals of plans are not remembered: remove 'rememberable'")
    ]


async def test_a_grant_does_not_cover_other_calls(api: Caller) -> None:
    both = [
        specs.agent("solo", tools=["pay", "repay"]),
        specs.agent("other", tools=["pay", "repay"]),
    ]
    tools = [specs.tool("pay", approval=REMEMBER), specs.tool("repay", approval=REMEMBER)]
    await api.register(specs.scripted(*tools, agents=both))

    async def of(agent: str, tool: str, thread: str, **args: Any) -> str:
        accepted = await api.submit(specs.script((tool, args)), agent=agent, threadKey=thread)
        return str(accepted["id"])

    query = await of("solo", "pay", "t", n=7)
    good(await api.decide((await api.gate(query))["id"], scope="thread"))
    await api.serve("pay", 1)
    await api.ended(query)
    await asks(api, await of("solo", "pay", "t", n=8))
    await asks(api, await of("solo", "pay", "t", n=7, note="more"))
    await asks(api, await of("solo", "pay", "u", n=7))
    await asks(api, await of("other", "pay", "t", n=7))
    await asks(api, await of("solo", "repay", "t", n=7))
    await passes(api, await of("solo", "pay", "t", n=7))


async def test_arguments_that_the_rule_leaves_free_may_differ(api: Caller) -> None:
    grant = await granted(api, FREE, n=7, note="one")
    assert (grant["args"], grant["free"]) == ({"n": 7}, ["note"])
    used = await passes(api, await call(api, n=7, note="two"))
    assert used["glimpses"] == {"args": {"n": 7, "note": "two"}}
    await passes(api, await call(api, n=7))
    await asks(api, await call(api, n=8, note="one"))


async def test_a_grant_ends_after_a_day_by_the_databases_clock(api: Caller, owner: Any) -> None:
    grant = await granted(api)
    await owner.execute("UPDATE approval_grants SET expires_at = now()")
    await asks(api, await call(api))
    (shown,) = (await api.read("/grants"))["items"]
    assert (shown["id"], shown["active"], shown["revokedAt"]) == (grant["id"], False, None)


async def test_a_revoked_grant_covers_nothing(plangate: World, api: Caller) -> None:
    grant = await granted(api)
    path = f"/grants/{grant['id']}"
    weak = await plangate.key("read", "queries:write", "plans:write", "data:write")
    assert "approvals:decide" in refused(await weak.delete(path), 403, "forbidden")["detail"]
    await passes(api, await call(api))
    ann = await plangate.key("approvals:decide")
    revoked = good(await ann.delete(path))
    assert (revoked["active"], revoked["revokedBy"]) == (False, "ann")
    assert revoked["revokedAt"]
    bob = await plangate.key("approvals:decide", principal="bob")
    assert good(await bob.delete(path)) == revoked
    await asks(api, await call(api))


async def test_a_grant_of_another_tenant_is_not_found(plangate: World, api: Caller) -> None:
    grant = await granted(api)
    for unknown in (grant["id"], new_id("grt_"), "nonsense"):
        body = refused(await plangate.other.delete(f"/grants/{unknown}"), 404, "not_found")
        assert body["detail"] == f"There is no grant {unknown!r}."
    assert (await plangate.other.read("/grants"))["items"] == []
    await passes(api, await call(api))


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(specs.tool("pay", approval=REMEMBER, description="now it pays twice"), id="definition"),
        pytest.param(specs.tool("pay", approval="always"), id="no longer rememberable"),
        pytest.param(specs.tool("pay", approval=FREE), id="other free arguments"),
        pytest.param(
            specs.tool("pay", approval={**REMEMBER, "approvers": {"minimum": 2}}), id="more approvers"
        ),
    ],
)
async def test_a_grant_is_only_as_good_as_the_rule_and_the_tool_now(
    api: Caller, changed: dict[str, Any]
) -> None:
    await granted(api)
    runtime = await api.register(specs.scripted(changed))
    query = await api.submit(specs.script(("pay", {"n": 7})), threadKey="t", runtimeId=runtime["id"])
    await asks(api, query["id"])
    await passes(api, await call(api))  # the thread's own version is what it was


async def test_a_grant_survives_a_version_with_the_same_rule_and_definition(api: Caller) -> None:
    await granted(api)
    runtime = await api.register(spec(inputSchema={"type": "object"}))
    query = await api.submit(specs.script(("pay", {"n": 7})), threadKey="t", runtimeId=runtime["id"])
    await passes(api, query["id"])


async def test_a_grant_covers_the_approved_arguments(api: Caller) -> None:
    await api.register(spec())
    query = await call(api, n=7)
    good(await api.decide((await api.gate(query))["id"], args={"n": 8}, scope="thread"))
    await api.serve("pay", 1)
    await api.ended(query)
    assert [g["args"] for g in (await api.read("/grants"))["items"]] == [{"n": 8}]
    await passes(api, await call(api, n=8))
    await asks(api, await call(api, n=7))


async def test_with_a_quorum_every_approver_must_ask_to_remember(plangate: World, api: Caller) -> None:
    await api.register(spec({**REMEMBER, "approvers": {"minimum": 2}}))
    ann, bob = [await plangate.key("approvals:decide", principal=p) for p in ("ann", "bob")]
    for of_ann, of_bob, made in ((True, False, 0), (False, True, 0), (True, True, 1)):
        approval = await api.gate(await call(api))
        for key, wants in ((ann, of_ann), (bob, of_bob)):
            good(await key.decide(approval["id"], **({"scope": "thread"} if wants else {})))
            assert len((await api.read("/grants"))["items"]) == (made if key is bob else 0)
        await api.serve("pay", 1)
        await api.ended(approval["queryId"])
    (grant,) = (await api.read("/grants"))["items"]
    assert grant["grantedBy"] == "bob"
    assert (await passes(api, await call(api)))["decidedBy"] == "bob"


async def test_a_requester_excluded_by_the_rule_cannot_use_their_own_grant(
    plangate: World, api: Caller
) -> None:
    await api.register(spec({**REMEMBER, "approvers": {"notRequester": True}}))
    ann = await plangate.key("queries:write", "approvals:decide", "read", "tools:serve")
    bob = await plangate.key("queries:write", principal="bob")
    approval = await api.gate(await call(bob))
    good(await ann.decide(approval["id"], scope="thread"))
    await api.serve("pay", 1)
    await api.ended(approval["queryId"])
    await asks(api, await call(ann))
    assert (await passes(api, await call(bob)))["decidedBy"] == "ann"


async def test_an_excluded_requester_is_recognized_under_every_spelling(plangate: World, api: Caller) -> None:
    await api.register(spec({**REMEMBER, "approvers": {"notRequester": True}}))
    approval = await api.gate(await call(await plangate.key("queries:write", principal="bob")))
    good(
        await (await plangate.key("approvals:decide", principal="AP1")).decide(approval["id"], scope="thread")
    )
    await api.serve("pay", 1)
    await api.ended(approval["queryId"])
    await asks(api, await call(await plangate.key("queries:write", principal="ap1")))


async def test_a_repeated_decision_creates_no_second_grant(plangate: World, api: Caller) -> None:
    await api.register(spec())
    approval = await api.gate(await call(api))
    first = good(await api.decide(approval["id"], scope="thread"))
    assert good(await api.decide(approval["id"], scope="thread")) == first
    body = refused(await api.decide(approval["id"]), 409, "conflict")
    assert body["detail"] == "This approval is already approved by operator."
    assert len((await api.read("/grants"))["items"]) == 1


async def test_a_principal_cannot_change_their_vote(plangate: World, api: Caller) -> None:
    await api.register(spec({**REMEMBER, "approvers": {"minimum": 2}}))
    approval = await api.gate(await call(api))
    good(await api.decide(approval["id"], scope="thread"))
    body = refused(await api.decide(approval["id"]), 409)
    assert body["detail"] == (
        "operator already voted 'approve' with scope 'thread'; a principal has one vote."
    )


async def test_several_grants_are_created_all_or_nothing(api: Caller) -> None:
    await api.register(
        specs.scripted(specs.tool("pay", approval=REMEMBER), specs.tool("say", approval="always"))
    )
    one = await api.gate(await call(api, thread="a"))
    two = await api.gate((await api.submit(specs.script(("say", {"n": 1}))))["id"])
    many = [
        {"id": a["id"], "decision": "approve", "digest": a["digest"], "scope": "thread"} for a in (one, two)
    ]
    body = refused(await api.post("/approvals", {"decisions": many}), 422)
    assert [e["pointer"] for e in body["errors"]] == ["/decisions/1/scope"]
    assert (await api.read("/grants"))["items"] == []
    del many[1]["scope"]
    await api.do("/approvals", {"decisions": many})
    assert [g["approvalId"] for g in (await api.read("/grants"))["items"]] == [one["id"]]


async def test_a_dynamic_rule_is_evaluated_before_a_grant(api: Caller) -> None:
    rule = {"kind": "dynamic", "value": "big", "rememberable": True}
    await api.register(spec(rule, approvalPredicates={"big": "args.n > 5"}))
    query = await call(api, n=7)
    good(await api.decide((await api.gate(query))["id"], scope="thread"))
    await api.serve("pay", 1)
    await api.ended(query)
    assert (await passes(api, await call(api, n=7)))["grantId"]
    small = await call(api, n=5)
    await api.serve("pay", 1)
    await api.ended(small)
    assert (await api.read("/approvals", queryId=small))["items"] == []


async def test_a_grant_of_a_builtin_tool(api: Caller) -> None:
    await api.register(
        specs.spec(
            specs.agent("chief", "coordinator", routes=["solo"]),
            specs.agent("solo"),
            interpreter="scripted",
            approvalOverrides={"tools": {"chief": {"call_agent": REMEMBER}}},
        )
    )
    prompt = specs.script(("call_agent", {"agent": "solo", "prompt": {"script": []}}))
    first = await api.submit(prompt, threadKey="t")
    good(await api.decide((await api.gate(first["id"]))["id"], scope="thread"))
    await api.ended(first["id"])
    again = await api.run(prompt, threadKey="t")
    assert output_of(again)[0]["result"]["results"] == []


async def test_grants_are_listed_with_filters_and_in_pages(plangate: World, api: Caller) -> None:
    await api.register(spec(FREE))
    opened = []
    for n in range(4):
        approval = await api.gate(await call(api, thread=f"t{n % 2}", n=n))
        good(await api.decide(approval["id"], scope="thread"))
        opened.append(approval)
        await api.serve("pay", 1)
        await api.ended(approval["queryId"])

    async def ids(**filters: Any) -> list[str]:
        return [g["approvalId"] for g in (await api.read("/grants", **filters))["items"]]

    newest = [a["id"] for a in reversed(opened)]
    assert await ids() == newest
    assert await ids(threadId=opened[0]["threadId"]) == [opened[2]["id"], opened[0]["id"]]
    assert await ids(agent="solo", tool="pay") == newest
    assert await ids(agent="other") == await ids(tool="other") == []
    gone = (await api.read("/grants"))["items"][0]
    good(await api.delete(f"/grants/{gone['id']}"))
    assert await ids(active="true") == newest[1:]
    assert await ids(active="false") == newest[:1]
    page = await api.read("/grants", limit=3)
    assert [g["approvalId"] for g in page["items"]] == newest[:3]
    rest = await api.read("/grants", limit=3, cursor=page["nextCursor"])
    assert ([g["approvalId"] for g in rest["items"]], rest["nextCursor"]) == (newest[3:], None)
    refused(await api.get("/approvals", cursor=page["nextCursor"]), 400, "malformed")
    refused(await (await plangate.key("approvals:decide")).get("/grants"), 403)
