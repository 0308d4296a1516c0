"""Queries, threads and runtimes over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import asyncpg
import pytest

from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.world import World

NOBODY = "qry_" + "0" * 26


async def gated(api: Caller, **parts: Any) -> dict[str, Any]:
    """A query that waits for an approval."""
    await api.register(specs.scripted(specs.tool("pay", approval="always")))
    query = await api.submit(specs.script(("pay", {"n": 1})), **parts)
    await api.gate(query["id"])
    return query


async def test_a_query_is_accepted_run_and_read(api: Caller) -> None:
    runtime = await api.register(specs.mock("Hello."))
    response = await api.post(
        "/queries", {"prompt": "hi", "metadata": {"a": [1.0, None]}, "inputs": {"x": 1}}
    )
    assert response.status_code == 202
    accepted = good(response)
    assert response.headers["location"] == accepted["links"]["self"] == f"/queries/{accepted['id']}"
    query = await api.ended(accepted["id"])
    assert (query["status"], query["output"], query["error"], query["kind"]) == (
        "succeeded",
        "Hello.",
        None,
        "agent",
    )
    assert (query["prompt"], query["metadata"], query["inputs"]) == ("hi", {"a": [1.0, None]}, {"x": 1})
    assert (query["runtimeId"], query["agent"], query["principal"]) == (runtime["id"], "solo", "operator")
    assert query["threadId"] == accepted["threadId"]
    assert query["openApprovals"] == []
    assert query["createdAt"] <= query["startedAt"] <= query["endedAt"]


async def test_waiting_ends_with_the_query_or_with_the_time(api: Caller) -> None:
    query = await gated(api)
    clock = asyncio.get_running_loop().time
    started = clock()
    found = await api.read(f"/queries/{query['id']}", waitMs=300)
    assert found["endedAt"] is None
    assert 0.25 < clock() - started < 5
    waiting = asyncio.create_task(api.read(f"/queries/{query['id']}", waitMs=20_000))
    await asyncio.sleep(0.05)
    await api.do(f"/queries/{query['id']}/cancel")
    assert (await asyncio.wait_for(waiting, 5))["status"] == "cancelled"


async def test_canceling_is_immediate_idempotent_and_journaled(api: Caller) -> None:
    query = await gated(api)
    first = await api.do(f"/queries/{query['id']}/cancel")
    again = await api.do(f"/queries/{query['id']}/cancel")
    assert first == again
    assert (first["status"], first["reason"]) == ("cancelled", "cancelled")
    last = (await api.events(query["id"]))[-2:]
    assert [(e["type"], e.get("to")) for e in last] == [("query-status", "cancelled"), ("error", None)]
    work = (await api.read(f"/queries/{query['id']}/work"))["items"]
    assert {w["status"] for w in work if w["kind"] != "model_call"} == {"cancelled"}
    refused(await api.post(f"/queries/{NOBODY}/cancel"), 404)


async def test_an_ended_query_does_not_change(api: Caller) -> None:
    await api.register(specs.mock())
    query = await api.run()
    assert (await api.do(f"/queries/{query['id']}/cancel"))["status"] == "succeeded"
    assert [e["type"] for e in await api.events(query["id"])][-1] == "finish"


async def test_a_busy_thread_queues_in_order(api: Caller) -> None:
    first = await gated(api, threadKey="t")
    await api.register(specs.mock(name="quick"))
    later = [await api.submit(f"n{n}", threadKey="t", runtime="quick") for n in range(3)]
    assert {q["status"] for q in later} == {"queued"}
    assert {q["threadId"] for q in later} == {first["threadId"]}
    await api.do(f"/queries/{first['id']}/cancel")
    ended = [await api.ended(q["id"]) for q in later]
    assert [q["startedAt"] for q in ended] == sorted(q["startedAt"] for q in ended)
    assert ended[0]["endedAt"] <= ended[1]["startedAt"]


async def test_a_busy_thread_may_refuse(plangate: World, api: Caller) -> None:
    await gated(api, threadKey="t")
    body = {"prompt": "x", "threadKey": "t", "ifBusy": "reject"}
    assert "ifBusy" in refused(await api.post("/queries", body), 409, "conflict")["detail"]
    assert await plangate.value("SELECT count(*) FROM queries") == 1
    good(await api.post("/queries", {**body, "threadKey": "free"}))


async def test_a_newcomer_may_interrupt(api: Caller) -> None:
    first = await gated(api, threadKey="t")
    await api.register(specs.mock(name="quick"))
    second = await api.run("now", threadKey="t", runtime="quick", ifBusy="interrupt")
    assert second["status"] == "succeeded"
    found = await api.read(f"/queries/{first['id']}")
    assert (found["status"], found["error"]["code"]) == ("cancelled", "interrupted")


async def test_a_thread_is_created_on_first_use_of_its_key(api: Caller) -> None:
    await api.register(specs.mock())
    one, two = await api.run(threadKey="mine"), await api.run(threadKey="mine")
    three, four = await api.run(), await api.run(threadId=one["threadId"])
    assert one["threadId"] == two["threadId"] == four["threadId"] != three["threadId"]
    refused(await api.post("/queries", {"prompt": "x", "threadId": "thr_" + "0" * 26}), 404)
    at_once = await asyncio.gather(*(api.submit(threadKey="new") for _ in range(5)))
    assert len({q["threadId"] for q in at_once}) == 1


async def test_the_same_spec_is_the_same_version_and_a_new_one_the_next(api: Caller) -> None:
    first = await api.post("/runtimes", specs.mock("one"))
    same = await api.post("/runtimes", dict(reversed(specs.mock("one").items())))
    second = await api.post("/runtimes", specs.mock("two"))
    back = await api.post("/runtimes", specs.mock("one"))
    assert [r.status_code for r in (first, same, second, back)] == [201, 200, 201, 200]
    assert good(first) == good(same) == good(back)
    assert [good(r)["version"] for r in (first, second)] == [1, 2]
    listed = (await api.read("/runtimes"))["items"]
    assert [r["version"] for r in listed] == [2, 1]
    assert "spec" not in listed[0]
    at_once = await asyncio.gather(*(api.post("/runtimes", specs.mock(f"n{n % 3}")) for n in range(9)))
    assert sorted({good(r)["version"] for r in at_once}) == [3, 4, 5]


async def test_a_thread_keeps_the_version_it_began_with(api: Caller) -> None:
    await api.register(specs.mock("old"))
    await api.run(threadKey="t")
    newer = await api.register(specs.mock("new"))
    assert (await api.run(threadKey="t"))["output"] == "old"
    assert (await api.run())["output"] == "new"
    assert (await api.run(threadKey="t", runtimeId=newer["id"]))["output"] == "new"


async def test_a_retired_version_takes_no_new_query_by_name_and_comes_back(api: Caller) -> None:
    old = await api.register(specs.mock("old"))
    new = await api.register(specs.mock("new"))
    retired = good(await api.delete(f"/runtimes/{new['id']}"))
    assert retired["retiredAt"]
    assert (await api.run())["output"] == "old"
    await api.register(specs.mock("new"))
    assert (await api.run())["output"] == "new"
    for id in (old["id"], new["id"]):
        good(await api.delete(f"/runtimes/{id}"))
    refused(await api.post("/queries", {"prompt": "x"}), 404)


async def test_a_retired_version_cannot_be_named_by_new_queries(api: Caller) -> None:
    runtime = await api.register(specs.mock())
    named = {"prompt": "x", "runtimeId": runtime["id"]}
    await api.run(threadKey="old")
    good(await api.delete(f"/runtimes/{runtime['id']}"))
    for parts in ({}, {"threadKey": "new"}):
        assert "retired" in refused(await api.post("/queries", {**named, **parts}), 409)["detail"]
    assert (await api.run(threadKey="old"))["runtimeId"] == runtime["id"]
    assert len((await api.read("/threads"))["items"]) == 1


async def test_all_errors_of_a_spec_are_reported_and_nothing_is_stored(plangate: World, api: Caller) -> None:
    bad = specs.spec(specs.agent("a"), specs.agent("a"), specs.agent("c", "coordinator"), interpreter="tea")
    found = refused(await api.post("/runtimes", bad), 422, "invalid")
    assert len(found["errors"]) >= 1
    assert all(f["pointer"].startswith("/") for f in found["errors"])
    checked = await api.do("/runtimes/validate", bad)
    assert (checked["valid"], checked["errors"]) == (False, found["errors"])
    assert (await api.do("/runtimes/validate", specs.mock()))["valid"] is True
    assert await plangate.value("SELECT count(*) FROM runtimes") == 0


async def test_the_coordinator_answers_unless_the_query_names_an_agent(api: Caller) -> None:
    await api.register(specs.planning())
    assert (await api.run(specs.script()))["agent"] == "chief"
    named = await api.run(specs.script(), agent="doer")
    assert named["agent"] == "doer"
    body = refused(await api.post("/queries", {"prompt": "x", "agent": "nobody"}), 422)
    assert body["errors"] == [{"pointer": "/agent", "message": "one of: chief, planner, doer"}]
    await api.register(specs.mock(name="two") | {"agents": [specs.agent("a"), specs.agent("b")]})
    body = refused(await api.post("/queries", {"prompt": "x", "runtime": "two"}), 422)
    assert body["errors"] == [{"pointer": "/agent", "message": "one of: a, b"}]


async def test_inputs_match_the_schema_of_the_runtime(api: Caller) -> None:
    await api.register(specs.mock(inputSchema=specs.NUMBER))
    body = refused(await api.post("/queries", {"prompt": "x", "inputs": {"n": "1"}}), 422)
    assert body["errors"][0]["pointer"] == "/inputs/n"
    refused(await api.post("/queries", {"prompt": "x"}), 422)
    good(await api.post("/queries", {"prompt": "x", "inputs": {"n": 1}}))


async def test_lists_page_newest_first_and_filter(api: Caller) -> None:
    await api.register(specs.mock())
    made = [await api.run(threadKey=f"t{n % 2}") for n in range(7)]
    newest = [q["id"] for q in reversed(made)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await api.read("/queries", limit=3, **cursor)
        assert len(page["items"]) <= 3
        seen += [q["id"] for q in page["items"]]
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert seen == newest
    of_thread = await api.read("/queries", threadId=made[0]["threadId"])
    assert [q["id"] for q in of_thread["items"]] == newest[::2]
    assert (await api.read("/queries", status="failed"))["items"] == []
    refused(await api.get("/queries", cursor="nonsense"), 400, "malformed")
    refused(await api.get("/plans", cursor=page["nextCursor"] or cursor["cursor"]), 400, "malformed")


async def test_the_work_tree_shows_agents_and_their_callers(api: Caller) -> None:
    await api.register(
        specs.scripted(
            specs.tool("add"),
            agents=[specs.agent("chief", "coordinator", routes=["solo"]), specs.agent("solo", tools=["add"])],
        )
    )
    inner = {"tool": "add", "args": {"n": 1}}
    query = await api.submit(specs.script(("call_agent", {"agent": "solo", "prompt": inner})))
    await api.serve("add", 2)
    await api.ended(query["id"])
    work = {w["id"]: w for w in (await api.read(f"/queries/{query['id']}/work"))["items"]}
    add = next(w for w in work.values() if w["name"] == "add")
    chain = []
    at = add
    while at:
        chain.append((at["kind"], at["name"]))
        at = work.get(at["parentId"])  # type: ignore[assignment]
    assert chain == [
        ("tool_call", "add"),
        ("agent", "solo"),
        ("tool_call", "call_agent"),
        ("agent", "chief"),
        ("query", "agent"),
    ]
    assert {w["status"] for w in work.values()} == {"succeeded"}
    assert all(w["durationMs"] is not None for w in work.values())


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (("nothing", {}), "There is no tool 'nothing'"),
        (("add", {"n": "1"}), "/n: "),
        (("add", {}), "do not match the tool's schema"),
    ],
)
async def test_an_invalid_call_is_never_made(
    plangate: World, api: Caller, call: tuple[str, Any], says: str
) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = await api.run(specs.script(call))
    assert says in output_of(query)[0]["error"]
    assert await plangate.value("SELECT count(*) FROM outgoing_calls") == 0


async def test_tool_errors_and_invalid_results_are_returned_to_the_model(api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add", outputSchema=specs.NUMBER)))
    query = await api.submit(specs.script(("add", {"n": 1}), ("add", {"n": 2})))
    await api.serve("add", error="No more numbers.")
    await api.serve("add", {"n": "two"})
    failed, bad = output_of(await api.ended(query["id"]))
    assert failed == {"tool": "add", "error": "No more numbers."}
    assert "does not match its outputSchema: /n" in bad["error"]


async def test_a_call_lost_three_times_is_no_longer_offered(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(specs.scripted(specs.tool("look", replay="safe")))
    query = await api.submit(specs.script(("look", {"n": 1})))
    for claims in (1, 2, 3):
        (call,) = await api.claim("look")
        assert call["claims"] == claims
        good(await api.post(f"/tool-calls/{call['workId']}/release", {"claimToken": call["claimToken"]}))
        (call,) = await api.claim("look")
        assert call["claims"] == claims  # what was given back was not lost
        await owner.execute("UPDATE outgoing_calls SET claimed_until = now() WHERE status = 'claimed'")
        await plangate.services.calls.lapse_due()
    assert output_of(await api.ended(query["id"])) == [
        {
            "tool": "look",
            "error": "It is unknown whether look ran: 3 processes claimed the call in turn, and none posted a result in time. "
            "Check before you repeat it.",
        }
    ]
    (told,) = [e for e in await api.events(query["id"], "tool-invocation") if e["state"] == "error"]
    assert told["error"]["code"] == "outcome_unknown"
    assert (await api.do("/tool-calls/claim", {"tools": [{"name": "look"}]}))["calls"] == []


async def test_an_expired_claim_of_an_unsafe_call_is_unknown(
    plangate: World, api: Caller, owner: Any
) -> None:
    await api.register(specs.scripted(specs.tool("add"), specs.tool("look", replay="safe")))
    query = await api.submit(specs.script(("look", {"n": 1}), ("add", {"n": 1})))
    for name in ("look", "add"):
        (call,) = await api.claim(name)
        await owner.execute("UPDATE outgoing_calls SET claimed_until = now() WHERE status = 'claimed'")
        await plangate.services.calls.lapse_due()
        if name == "look":
            again = await api.serve("look", "seen")
            assert (again["claims"], again["workId"]) == (2, call["workId"])
    ended = await api.ended(query["id"])
    look, add = output_of(ended)
    assert look == {"tool": "look", "result": "seen"}
    assert "It is unknown whether" in add["error"]
    assert good(await api.result(call, 1))["adopted"] is False
    (told,) = [e for e in await api.events(query["id"], "tool-invocation") if e["state"] == "error"]
    assert told["error"]["code"] == "outcome_unknown"


async def test_a_call_has_one_claimant_and_requires_its_token(api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = await api.submit(specs.script(("add", {"n": 1})))
    (call,) = await api.claim("add")
    claims = await asyncio.gather(
        *(api.do("/tool-calls/claim", {"tools": [{"name": "add"}]}) for _ in range(4))
    )
    assert [c["calls"] for c in claims] == [[]] * 4
    path = f"/tool-calls/{call['workId']}"
    refused(await api.post(f"{path}/result", {"claimToken": "no", "output": 1}), 409, "claim_lapsed")
    held = await api.do(f"{path}/heartbeat", {"claimToken": call["claimToken"], "leaseMs": 60_000})
    assert held["claimedUntil"] > call["claimedUntil"]
    label = {"claimToken": call["claimToken"], "label": "halfway", "phaseIndex": 1}
    await api.do(f"{path}/progress", label)
    await api.do(f"{path}/release", {"claimToken": call["claimToken"]})
    refused(await api.post(f"{path}/heartbeat", {"claimToken": call["claimToken"]}), 409)
    await api.serve("add", 5)
    await api.ended(query["id"])
    (told,) = await api.events(query["id"], "tool-progress")
    assert (told["label"], told["phaseIndex"], told["toolName"]) == ("halfway", 1, "add")


async def test_a_tool_emits_events_of_its_own_types(api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = await api.submit(specs.script(("add", {"n": 1})))
    (call,) = await api.claim("add")
    path, token = f"/tool-calls/{call['workId']}", {"claimToken": call["claimToken"]}
    page = {"page": 1, "of": [None, "two"]}
    await api.do(f"{path}/events", {**token, "eventType": "page-scanned", "data": page})
    await api.do(f"{path}/events", {**token, "eventType": "done"})
    refused(await api.post(f"{path}/events", {**token, "eventType": "big", "data": "x" * 65_536}), 413)
    refused(await api.post(f"{path}/events", {**token, "eventType": ""}), 422)
    refused(await api.post(f"{path}/events", {"claimToken": "another", "eventType": "mine"}), 409)
    good(await api.result(call, 1))
    await api.ended(query["id"])
    refused(await api.post(f"{path}/events", {**token, "eventType": "late"}), 409)
    emitted = await api.events(query["id"], "custom")
    assert [(e["eventType"], e["data"], e["workId"]) for e in emitted] == [
        ("page-scanned", page, call["workId"]),
        ("done", None, call["workId"]),
    ]


async def test_a_claim_ends_with_the_tools_time(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add", timeoutMs=2_000)))
    await api.submit(specs.script(("add", {"n": 1})))
    (call,) = await api.claim("add")
    left = await plangate.value("SELECT extract(epoch FROM claimed_until - now()) FROM outgoing_calls")
    assert left <= 2
    assert call["timeoutMs"] == 2_000


async def test_only_calls_of_the_definition_that_is_served_are_claimed(api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = await api.submit(specs.script(("add", {"n": 1})))
    body = {"tools": [{"name": "add", "definitionDigest": "0" * 64}]}
    await api.until(query["id"], "waiting")
    assert (await api.do("/tool-calls/claim", body))["calls"] == []
    (call,) = await api.claim("add")
    good(await api.result(call, 1))


async def test_a_claim_may_be_restricted(api: Caller) -> None:
    runtimes = {}
    for name in ("one", "two"):
        tools, planning = [specs.tool("add")], specs.planning(name=name)
        agents = [*planning["agents"], specs.agent("adder", tools=["add"])]
        runtimes[name] = (await api.register({**planning, "agents": agents, "tools": tools}))["id"]

    async def waiting(runtime: str, prompt: str, agent: str, thread: str) -> str:
        query = await api.submit(prompt, runtimeId=runtimes[runtime], agent=agent, threadKey=thread)
        return str(query["id"])

    add = specs.script(("add", {"n": 1}))
    first = await waiting("one", add, "adder", "t")
    second = await waiting("two", add, "adder", "u")
    planned = await waiting("one", specs.store_and_execute(), "chief", "v")
    await api.approve(planned)
    for query in (first, second, planned):
        await api.until(query, "waiting", "client_call")
    threads = {q: (await api.read(f"/queries/{q}"))["threadId"] for q in (first, second, planned)}

    async def claimed(**only: Any) -> list[str]:
        body = {"tools": [{"name": "add"}, {"name": "actions"}], "max": 10, **only}
        calls = (await api.do("/tool-calls/claim", body))["calls"]
        for call in calls:
            await api.do(f"/tool-calls/{call['workId']}/release", {"claimToken": call["claimToken"]})
        return sorted(call["queryId"] for call in calls)

    assert await claimed() == sorted([first, second, planned])
    assert await claimed(queryId=second) == [second]
    assert await claimed(threadId=threads[first]) == [first]
    assert await claimed(runtimeId=runtimes["one"]) == sorted([first, planned])
    assert await claimed(purpose="action") == [planned]
    assert await claimed(purpose="tool", runtimeId=runtimes["one"]) == [first]
    assert await claimed(queryId=first, threadId=threads[second]) == []
    refused(await api.post("/tool-calls/claim", {"tools": [{"name": "add"}], "purpose": "predicate"}), 422)


async def test_tool_results_round_trip(api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    value = {"a": [1, 1.5, -0.0, 2**63 - 1, None, True, "é\u2028🙂"], "b": {"": {}}}
    query = await api.submit(specs.script(("add", {"n": 1})))
    await api.serve("add", value)
    (result,) = output_of(await api.ended(query["id"]))
    assert json.dumps(result["result"]) == json.dumps(value)


async def test_a_stateful_agent_remembers_its_thread(plangate: World, api: Caller) -> None:
    await api.register(specs.mock("ok") | {"agents": [specs.agent(stateful=True)]})
    for n in range(3):
        query = await api.run(f"say {n}", threadKey="t")
    messages = (await api.read(f"/threads/{query['threadId']}/messages"))["items"]
    text = json.dumps(messages)
    assert all(f"say {n}" in text for n in range(3))


async def test_the_statements_of_a_standard_run_are_few(plangate: World, api: Caller) -> None:
    """Submit, begin where it was accepted, one model turn, finish: an upper bound, so that none creeps in. What a
    process asks by itself every second is not counted."""
    await api.register(specs.mock())
    await api.run()
    statements: list[str] = []

    def note(record: asyncpg.connection.LoggedQuery) -> None:
        statements.append(record.query)

    pool = plangate.services.db._pool
    async with contextlib.AsyncExitStack() as stack:
        watched = []
        for _ in range(6):  # the whole pool
            watched.append((await stack.enter_async_context(pool.acquire())).raw)
    for raw in watched:
        raw.add_query_logger(note)
    accepted = await api.submit()
    await asyncio.sleep(0.5)
    for raw in watched:
        raw.remove_query_logger(note)
    assert (await api.ended(accepted["id"]))["status"] == "succeeded"
    periodic_tasks = (
        "query_heads",
        "due_",
        "sweep_",
        "claim_queries",
        "plangate.tenant = ''",
        "report_process",
    )
    mine = [s for s in statements if not any(c in s for c in periodic_tasks)]
    assert any("submit_query" in s for s in mine)
    assert any("journal_commit" in s for s in mine)
    assert len(mine) <= 16, mine
