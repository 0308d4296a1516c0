"""Gates: several in one query, dynamic rules, and the fields of an approval row."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.llm.messages import Text, ToolUse, TurnDone, Usage
from tests.support import specs
from tests.support.client import Caller, eventually, good, output_of, refused
from tests.support.world import World

PAY = specs.tool("pay", approval="always")


class Parallel:
    """A model whose first turn makes all these calls together, and whose second says what came back."""

    def __init__(self, *uses: tuple[str, dict[str, Any]]) -> None:
        self._uses = tuple(
            ToolUse(f"u{n}", name, json.dumps(args)) for n, (name, args) in enumerate(uses, start=1)
        )

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        if len(request.messages) == 1:
            yield TurnDone(self._uses, "tool_use", Usage(), "m")
        else:
            results = [block.content for block in request.messages[-1].blocks]
            yield TurnDone((Text(json.dumps(results)),), "end_turn", Usage(), "m")


async def together(plangate: World, *uses: tuple[str, dict[str, Any]]) -> str:
    async def of(*_: Any) -> tuple[Any, str]:
        return Parallel(*uses), "mock"

    plangate.services.providers.of = of  # type: ignore[method-assign]
    return str((await plangate.api.submit())["id"])


async def gates(api: Caller, query: str, count: int) -> dict[int, dict[str, Any]]:
    """The pending approvals of a query by their argument n, once there are so many."""

    async def there() -> Any:
        rows = (await api.read("/approvals", queryId=query, status="pending"))["items"]
        return {r["glimpses"]["args"]["n"]: r for r in rows} if len(rows) == count else None

    found: dict[int, dict[str, Any]] = await eventually(there, f"{count} gates of {query}")
    return found


async def test_gates_of_parallel_calls_are_decided_each_alone(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(PAY))
    query = await together(plangate, *(("pay", {"n": n}) for n in range(3)))
    opened = await gates(api, query, 3)
    await api.until(query, "waiting", "approval")
    assert sorted((await api.read(f"/queries/{query}"))["openApprovals"]) == sorted(
        a["id"] for a in opened.values()
    )
    good(await api.decide(opened[1]["id"]))
    assert (await api.serve("pay", "one"))["args"] == {"n": 1}
    assert (await gates(api, query, 2)).keys() == {0, 2}
    good(await api.decide(opened[0]["id"], "reject", feedback="No."))
    assert (await gates(api, query, 1)).keys() == {2}
    good(await api.decide(opened[2]["id"], args={"n": 20}))
    assert (await api.serve("pay", "two"))["args"] == {"n": 20}
    ended = await api.ended(query)
    assert json.loads(ended["output"]) == [
        "The call was rejected and not made. Feedback: No.",
        "one",
        'An approver changed the arguments of this call. Its arguments are now: {"n":20}\ntwo',
    ]


async def test_gates_of_parallel_calls_are_decided_together(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(PAY))
    query = await together(plangate, ("pay", {"n": 0}), ("pay", {"n": 1}))
    opened = await gates(api, query, 2)
    many = [
        {"id": opened[0]["id"], "decision": "approve", "digest": opened[0]["digest"]},
        {"id": opened[1]["id"], "decision": "reject"},
    ]
    await api.do("/approvals", {"decisions": many})
    await api.serve("pay", "zero")
    assert json.loads((await api.ended(query))["output"]) == [
        "zero",
        "The call was rejected and not made.",
    ]


async def test_a_decision_for_one_branch_wakes_it_while_another_works(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(PAY, specs.tool("look")))
    query = await together(plangate, ("look", {"n": 0}), ("pay", {"n": 1}))
    (looking,) = await api.claim("look")
    approval = (await gates(api, query, 1))[1]
    good(await api.decide(approval["id"]))
    await api.serve("pay", "paid")  # while nobody has answered `look`
    good(await api.result(looking, "seen"))
    assert json.loads((await api.ended(query))["output"]) == ["seen", "paid"]


async def test_canceling_a_query_cancels_its_open_approvals(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(PAY))
    query = await together(plangate, ("pay", {"n": 0}), ("pay", {"n": 1}))
    opened = await gates(api, query, 2)
    await api.do(f"/queries/{query}/cancel")
    rows = (await api.read("/approvals", queryId=query))["items"]
    assert {r["id"]: r["status"] for r in rows} == {a["id"]: "cancelled" for a in opened.values()}
    told = await api.events(query, "approval-decision")
    assert [e["data"]["outcome"] for e in told] == [{"outcome": "cancelled"}] * 2


async def test_gates_of_parallel_agents_are_open_together(plangate: World, api: Caller) -> None:
    await api.register(
        specs.scripted(
            PAY,
            agents=[
                specs.agent("chief", "coordinator", routes=["one", "two"]),
                specs.agent("one", tools=["pay"]),
                specs.agent("two", tools=["pay"]),
            ],
        )
    )
    real = plangate.services.providers.of

    async def of(runtime: Any, agent: Any) -> tuple[Any, str]:
        if agent.name != "chief":
            return await real(runtime, agent)
        calls = [(name, {"tool": "pay", "args": {"n": n}}) for n, name in enumerate(("one", "two"))]
        return Parallel(*(("call_agent", {"agent": name, "prompt": p}) for name, p in calls)), "mock"

    plangate.services.providers.of = of  # type: ignore[method-assign]
    query = str((await api.submit())["id"])
    opened = await gates(api, query, 2)
    assert {n: a["agent"] for n, a in opened.items()} == {0: "one", 1: "two"}
    await api.until(query, "waiting", "approval")
    good(await api.decide(opened[1]["id"]))
    await api.serve("pay", "of two")
    assert (await gates(api, query, 1)).keys() == {0}
    good(await api.decide(opened[0]["id"]))
    await api.serve("pay", "of one")
    answers = [json.loads(a)["results"][0]["result"] for a in json.loads((await api.ended(query))["output"])]
    assert answers == ["of one", "of two"]


async def test_an_approval_row_has_every_field(api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("pay", approval={"kind": "always", "onExpiry": "fail"})))
    query = await api.submit(specs.script(("pay", {"n": 7})))
    row = await api.gate(query["id"])
    events = await api.events(query["id"], "approval-required")
    assert [e["data"] for e in events] == [row]
    (runtime,) = (await api.read("/runtimes"))["items"]
    assert row == {
        "id": row["id"],
        "kind": "tool",
        "target": "pay",
        "label": None,
        "digest": row["digest"],
        "originalArgs": None,
        "glimpses": {"args": {"n": 7}},
        "rule": {"kind": "always", "onExpiry": "fail"},
        "queryId": query["id"],
        "workId": events[0]["workId"],
        "agent": "solo",
        "threadId": query["threadId"],
        "runtimeId": runtime["id"],
        "resourceId": "acme",
        "requestedBy": "operator",
        "status": "pending",
        "requestedAt": row["requestedAt"],
        "expiresAt": row["expiresAt"],
        "decidedAt": None,
        "decidedBy": None,
        "grantId": None,
        "votes": [],
        "decision": None,
        "feedback": None,
        "partial": None,
        "waitingActions": 0,
        "waitingParents": 0,
    }
    decided = good(await api.decide(row["id"], "revise", feedback="Less.", partial={"n": 1}))
    assert (decided["status"], decided["decision"], decided["partial"]) == ("revised", "revise", {"n": 1})
    assert [(v["principal"], v["decision"], v["scope"]) for v in decided["votes"]] == [
        ("operator", "revise", None)
    ]


@pytest.mark.parametrize(("word", "status"), [("reject", "rejected"), ("revise", "revised")])
async def test_the_first_rejection_ends_a_quorum(
    plangate: World, api: Caller, word: str, status: str
) -> None:
    rule = {"kind": "always", "approvers": {"minimum": 3}}
    await api.register(specs.scripted(specs.tool("pay", approval=rule)))
    approval = await api.gate((await api.submit(specs.script(("pay", {"n": 7}))))["id"])
    keys = [await plangate.key("approvals:decide", principal=p) for p in ("ann", "bob", "cat")]
    good(await keys[0].decide(approval["id"]))
    good(await keys[1].decide(approval["id"], word))
    body = refused(await keys[2].decide(approval["id"]), 409)
    assert body["detail"] == f"This approval is already {status} by bob."


async def test_an_undecided_plan_can_fail_its_query(plangate: World, api: Caller, owner: Any) -> None:
    policies = {"plans": {"kind": "always", "onExpiry": "fail"}}
    await api.register(specs.planning(approvalPolicies=policies))
    query = (await api.submit(specs.store_and_execute()))["id"]
    await api.gate(query)
    await owner.execute("UPDATE approvals SET expires_at = now()")
    await plangate.services.approvals.expire_due()
    ended = await api.ended(query)
    assert (ended["status"], ended["error"]) == (
        "failed",
        {"code": "approval_expired", "message": "Nobody decided about the plan p1 in time."},
    )


# -- dynamic rules


@pytest.mark.parametrize(
    ("expression", "asks"),
    [
        ("args.n > 5", True),
        ("args.n > 7", False),
        ("ctx.tool == 'pay' && ctx.agent == 'solo' && ctx.resourceId == 'acme' && ctx.spentUsd == 0.0", True),
        ("ctx.tool != 'pay'", False),
        ("ctx.threadId.startsWith('thr_') && ctx.queryId.startsWith('qry_')", True),
        ("args.missing > 5", True),  # it errs
        ("1 / (args.n - 7) > 5", True),  # it errs
        ("args['n']", True),  # no boolean
    ],
)
async def test_a_predicate_decides_whether_approval_is_required(
    api: Caller, expression: str, asks: bool
) -> None:
    tool = specs.tool("pay", approval={"kind": "dynamic", "value": "p"})
    await api.register(specs.scripted(tool, approvalPredicates={"p": expression}))
    query = (await api.submit(specs.script(("pay", {"n": 7}))))["id"]
    if asks:
        assert (await api.gate(query))["rule"] == {"kind": "dynamic", "value": "p"}
        await api.do(f"/queries/{query}/cancel")
    else:
        await api.serve("pay", 1)
        assert output_of(await api.ended(query)) == [{"tool": "pay", "result": 1}]
        assert (await api.read("/approvals"))["items"] == []


@pytest.mark.parametrize(
    ("predicates", "pointer", "message"),
    [
        ({"p": "args.n >"}, "/approvalPredicates/p", "is not a CEL expression that returns a boolean"),
        ({"p": "'text'"}, "/approvalPredicates/p", "it returns STRING, not a boolean"),
        ({"q": "true"}, "/tools/0/approval", "names the predicate 'p', which is not registered"),
    ],
)
async def test_an_invalid_predicate_is_rejected_at_registration(
    api: Caller, predicates: dict[str, str], pointer: str, message: str
) -> None:
    tool = specs.tool("pay", approval={"kind": "dynamic", "value": "p"})
    body = refused(await api.post("/runtimes", specs.scripted(tool, approvalPredicates=predicates)), 422)
    assert [e["pointer"] for e in body["errors"]] == [pointer]
    assert message in body["errors"][0]["message"]


async def test_a_hundred_queries_wait_without_a_worker(plangate: World, api: Caller) -> None:
    """Far more than there are slots and connections: a query that waits holds neither."""
    await api.register(specs.scripted(PAY))
    accepted = await asyncio.gather(*(api.submit(specs.script(("pay", {"n": n}))) for n in range(100)))

    async def all_wait() -> bool:
        statuses = await plangate.sql("SELECT status FROM queries")
        return all(r["status"] == "waiting" for r in statuses)

    await eventually(all_wait, "all wait", patience_s=30)
    assert plangate.services.worker.busy == 0
    assert len(accepted) == 100
