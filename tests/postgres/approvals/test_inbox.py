"""What reviewers find and see: filters, counts, comments, and what waits behind an approval."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.approvals.service import MAX_COMMENTS
from tests.support import specs
from tests.support.client import Caller, eventually, good, refused
from tests.support.world import World

PAY = specs.tool("pay", approval="always")
SEND = specs.tool("send", approval="always")

COPY_APPROVALS = """
INSERT INTO approvals SELECT (jsonb_populate_record(a, jsonb_build_object(
       'id', left(a.id, 13) || 'z' || lpad(n::text, 16, '0'), 'work_id', n, 'status', 'approved', 'decided_at', now()))).*
  FROM approvals a, generate_series(1, 2000) AS n WHERE a.id = $1
"""
COPY_QUERIES = """
INSERT INTO queries SELECT (jsonb_populate_record(q, jsonb_build_object(
       'id', left(q.id, 13) || 'z' || lpad(n::text, 16, '0'), 'status', 'succeeded', 'ended_at', now()))).*
  FROM queries q, generate_series(1, 5000) AS n WHERE q.id = $1
"""


def ids(page: dict[str, Any]) -> list[str]:
    return [item["id"] for item in page["items"]]


async def gate(api: Caller, tool: str = "pay", n: int = 1, **parts: Any) -> dict[str, Any]:
    query = await api.submit(specs.script((tool, {"n": n})), **parts)
    return await api.gate(query["id"])


async def inbox(api: Caller, **filters: Any) -> list[str]:
    return ids(await api.read("/approvals", **filters))


@pytest.fixture
async def three(plangate: World, api: Caller) -> list[dict[str, Any]]:
    """Approvals of pay by two principals, and of send in another runtime."""
    await api.register(specs.scripted(PAY, SEND, name="shop"))
    await api.register(specs.scripted(PAY, SEND, name="mail", agents=[specs.agent("clerk", tools=["send"])]))
    ann = await plangate.key("queries:write", "read", principal="ann")
    first = await gate(api, n=41, runtime="shop")
    second = await gate(ann, n=7, runtime="shop")
    third = await gate(api, "send", runtime="mail")
    return [first, second, third]


async def test_approvals_are_found_by_agent_tool_runtime_requester_time_and_text(
    api: Caller, three: list[dict[str, Any]]
) -> None:
    first, second, third = (a["id"] for a in three)
    assert await inbox(api) == [third, second, first]
    assert await inbox(api, agent="clerk") == [third]
    assert await inbox(api, tool="pay") == [second, first]
    assert await inbox(api, runtime="mail") == [third]
    assert await inbox(api, requester="ann") == [second]
    assert await inbox(api, text='"N":41') == [first]
    assert await inbox(api, text="ANN", tool="pay") == [second]
    assert await inbox(api, text="%") == []
    at = three[1]["requestedAt"]
    assert await inbox(api, **{"from": at}) == [third, second]
    assert await inbox(api, to=at) == [first]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    assert await inbox(api, **{"from": tomorrow}) == []
    good(await api.decide(second, "reject", feedback="Too dear for us."))
    assert await inbox(api, status="pending") == [third, first]
    assert await inbox(api, text="too dear") == [second]


async def test_queries_are_found_by_runtime_person_time_and_text(
    api: Caller, three: list[dict[str, Any]]
) -> None:
    first, second, third = (a["queryId"] for a in three)

    async def found(**filters: Any) -> list[str]:
        return ids(await api.read("/queries", **filters))

    assert await found() == [third, second, first]
    assert await found(runtime="mail") == [third]
    assert await found(principal="ann") == [second]
    assert await found(text='"N": 41') == [first]
    assert await found(status="waiting", agent="solo") == [second, first]
    assert await found(threadId=three[2]["threadId"]) == [third]
    assert await found(reason="approval") == [third, second, first]
    assert await found(reason="poisoned") == []
    at = (await api.read(f"/queries/{second}"))["createdAt"]
    assert await found(**{"from": at}) == [third, second]
    assert await found(to=at) == [first]
    assert ids(page := await api.read("/queries", limit=2)) == [third, second]
    assert await found(cursor=page["nextCursor"]) == [first]


async def test_a_page_examines_so_many_records_and_the_next_one_continues_after_them(
    api: Caller, owner: Any, three: list[dict[str, Any]]
) -> None:
    """The newest ones, copies of the third, are in another runtime."""
    for copy, path, item in ((COPY_APPROVALS, "/approvals", "id"), (COPY_QUERIES, "/queries", "queryId")):
        await owner.execute(copy, three[2][item])
        first = await api.read(path, runtime="shop")
        assert first["items"] == []
        second = await api.read(path, runtime="shop", cursor=first["nextCursor"])
        assert ids(second) == [three[1][item], three[0][item]]
        assert second["nextCursor"] is None
        assert ids(await api.read(path, threadId=three[0]["threadId"])) == (
            [] if path == "/approvals" else [three[0][item]]
        )
    assert await inbox(api, status="pending", runtime="shop") == [a["id"] for a in (three[1], three[0])]


@pytest.mark.parametrize(
    ("path", "filters"),
    [
        ("/approvals", {"from": "1700000000"}),
        ("/approvals", {"to": "tomorrow"}),
        ("/queries", {"text": ""}),
        ("/queries", {"to": "2999-01-01"}),
    ],
)
async def test_a_filter_that_cannot_be_is_refused(api: Caller, path: str, filters: dict[str, str]) -> None:
    refused(await api.get(path, **filters), 422)


async def test_pending_approvals_are_counted_by_kind_agent_and_runtime(
    plangate: World, api: Caller, three: list[dict[str, Any]]
) -> None:
    counts = await api.read("/approvals/counts")
    assert counts == {
        "pending": 3,
        "canDecide": 3,
        "isComplete": True,
        "nextExpiresAt": min(a["expiresAt"] for a in three),
        "groups": [
            {"kind": "tool", "agent": "solo", "runtime": "shop", "pending": 2},
            {"kind": "tool", "agent": "clerk", "runtime": "mail", "pending": 1},
        ],
    }
    for approval in three:
        good(await api.decide(approval["id"], "reject"))
    empty = {"pending": 0, "canDecide": 0, "isComplete": True, "nextExpiresAt": None, "groups": []}
    assert await api.read("/approvals/counts") == empty
    assert await plangate.other.read("/approvals/counts") == empty


async def test_a_reviewer_lists_and_counts_what_they_can_decide(plangate: World, api: Caller) -> None:
    two = {"kind": "always", "approvers": {"minimum": 2, "notRequester": True}}
    await api.register(specs.scripted(PAY, specs.tool("wire", approval=two)))
    ann, bo = [
        await plangate.key("queries:write", "read", "approvals:decide", principal=name)
        for name in ("ann", "bo")
    ]
    paid, wired = (await gate(ann))["id"], (await gate(ann, "wire"))["id"]

    async def mine(caller: Caller) -> list[str]:
        found = await inbox(caller, canDecide="true")
        assert (await caller.read("/approvals/counts"))["canDecide"] == len(found)
        return found

    assert await mine(ann) == [paid]  # the rule of `wire` excludes the requester
    assert await mine(bo) == [wired, paid]
    assert await mine(await plangate.key("read", principal="cid")) == []
    digest = (await bo.read(f"/approvals/{wired}"))["digest"]
    good(await bo.decide(wired, "approve", digest=digest))
    assert await mine(bo) == [paid]
    assert await inbox(bo, canDecide="false", status="pending") == [wired, paid]
    assert await mine(api) == [wired, paid]
    good(await api.decide(paid, "reject"))
    assert await mine(ann) == []
    assert await inbox(ann, canDecide="true", runtime="none") == []
    problem = refused(await ann.get("/approvals", canDecide="true", status="approved"), 422)
    assert problem["errors"] == [
        {"pointer": "query:canDecide", "message": "cannot be combined with status=approved"}
    ]


async def test_comments_stay_on_record_and_are_events(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(PAY))
    approval = await gate(api)
    path = f"/approvals/{approval['id']}/comments"
    bea = await plangate.key("approvals:decide", principal="bea")
    first = good(await bea.post(path, {"text": "Is this the Berlin one?"}))
    assert (first["principal"], first["approvalId"]) == ("bea", approval["id"])
    second = good(await api.post(path, {"text": "Yes."}))
    assert (await bea.read(path))["items"] == [second, first]
    page = await bea.read(path, limit=1)
    assert (await bea.read(path, cursor=page["nextCursor"]))["items"] == [first]
    events = await api.events(approval["queryId"], "approval-comment")
    for count, (event, comment) in enumerate(zip(events, (first, second), strict=True), start=1):
        notice = {"count": count, **{name: value for name, value in comment.items() if name != "text"}}
        assert event["data"] == notice  # the journal has more readers than the comments
    good(await api.decide(approval["id"], "reject", feedback="No."))
    assert (await api.ended(approval["queryId"]))["status"] == "succeeded"
    late = good(await api.post(path, {"text": "Too late."}))
    assert (await api.read(path))["items"][0] == late
    assert len(await api.events(approval["queryId"], "approval-comment")) == 2
    calls = (await api.read("/work-records", queryId=approval["queryId"], kind="model_call"))["items"]
    assert calls
    for call in calls:  # what models were sent
        assert "Berlin" not in json.dumps(await api.read(f"/work-records/{call['id']}"))


async def test_a_comment_needs_the_scope_of_deciding_and_an_approval(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(PAY))
    approval = await gate(api)
    path = f"/approvals/{approval['id']}/comments"
    reader = await plangate.key("read", principal="cid")
    refused(await reader.get(path), 403)
    refused(await reader.post(path, {"text": "Hm."}), 403)
    refused(await api.post(path, {"text": ""}), 422)
    refused(await api.post(f"/approvals/{approval['id'][:-1]}z/comments", {"text": "Hm."}), 404)
    refused(await plangate.other.post(path, {"text": "Hm."}), 404)


async def test_an_approval_has_a_bounded_number_of_comments(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(specs.scripted(PAY))
    approval = await gate(api)
    path = f"/approvals/{approval['id']}/comments"
    await owner.execute(
        "INSERT INTO approval_comments (tenant_id, id, approval_id, principal, text)"
        " SELECT 'acme', 'cmt_' || n, $1, 'bea', 'Hm.' FROM generate_series(2, $2::int) n",
        approval["id"],
        MAX_COMMENTS,
    )
    good(await api.post(path, {"text": "The last one."}))
    problem = refused(await api.post(path, {"text": "One more."}), 409)
    assert problem["type"] == "too_many_comments"
    assert f"{MAX_COMMENTS} comments" in problem["detail"]


async def test_a_comment_that_waits_for_the_deletion_of_its_thread_is_not_stored(
    plangate: World, api: Caller, owner: Any
) -> None:
    await api.register(specs.scripted(PAY))
    approval = await gate(api)
    good(await api.decide(approval["id"], "reject"))
    await api.ended(approval["queryId"])
    async with owner.transaction():
        await owner.execute("SELECT set_config('plangate.tenant', 'acme', true)")
        await owner.execute("SELECT delete_thread($1, 10)", approval["threadId"])
        comment = asyncio.create_task(api.post(f"/approvals/{approval['id']}/comments", {"text": "Hm."}))
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
        await eventually(lambda: owner.fetchval(waiting), "the comment waits")
    refused(await comment, 410)
    assert await plangate.value("SELECT count(*) FROM approval_comments") == 0


async def test_comments_go_with_their_thread(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(PAY))
    approval = await gate(api)
    path = f"/approvals/{approval['id']}/comments"
    good(await api.post(path, {"text": "Is this the Berlin one?"}))
    good(await api.decide(approval["id"], "reject"))
    await api.ended(approval["queryId"])
    assert (await api.delete(f"/threads/{approval['threadId']}")).is_success
    assert (await api.read(path))["items"] == []
    assert await plangate.value("SELECT count(*) FROM approval_comments") == 0
    refused(await api.post(path, {"text": "Hm."}), 410)


async def test_an_approval_says_how_many_agents_and_actions_wait_behind_it(api: Caller) -> None:
    await api.register(specs.planning())
    query = await api.submit(specs.store_and_execute())
    approval = await api.gate(query["id"])
    assert (approval["waitingParents"], approval["waitingActions"]) == (1, 2)
    (event,) = await api.events(query["id"], "approval-required")
    assert (event["data"]["waitingParents"], event["data"]["waitingActions"]) == (1, 2)
    plan = await api.do("/plans", {"specName": "Routing", "body": specs.BODY})
    hosted = await api.do(f"/plans/{plan['id']}/execute", {})
    approval = await api.gate(hosted["id"])
    assert (approval["waitingParents"], approval["waitingActions"]) == (0, 2)


async def test_a_tool_call_of_the_first_agent_keeps_nobody_waiting(api: Caller) -> None:
    await api.register(specs.scripted(PAY))
    approval = await gate(api)
    assert (approval["waitingParents"], approval["waitingActions"]) == (0, 0)


async def test_the_subject_says_which_actions_may_be_sent_again(api: Caller) -> None:
    safe = {"kind": "client", "replay": "safe"}
    for dispatcher, replay in (
        ({"actionDispatcher": "client"}, {"book": "never", "refund": "never"}),
        (
            {"actionDispatcher": None, "actionDispatchers": {"book": safe, "refund": "client"}},
            {"book": "safe", "refund": "never"},
        ),
    ):
        await api.register(specs.planning(**dispatcher))
        query = await api.submit(specs.store_and_execute(plan_id=replay["book"]))
        approval = await api.gate(query["id"])
        assert (await api.read(f"/approvals/{approval['id']}/subject"))["replay"] == replay


async def test_text_is_found_as_people_read_it(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("say", approval="always", inputSchema={"type": "object"})))
    query = await api.submit(specs.script(("say", {"text": 'He said "no".\nTwice.'})))
    approval = await api.gate(query["id"])
    assert await inbox(api, text='said "no".\nTwice') == [approval["id"]]
    assert await inbox(api, text='said "yes"') == []
