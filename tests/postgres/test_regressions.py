"""Regressions: each of these defects occurred once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.base.cursors import CursorSigner
from app.engine import lease_store
from app.engine.worker import for_each_due
from app.events import CustomEvent
from app.journal.hub import Hub
from app.journal.limits import StreamLimits
from app.journal.models import Delta, Entry, Event, QueryKey, Scope, event
from app.journal.service import append_events
from app.journal.streams import Streams
from app.llm.messages import Text, TextDelta, ToolUse, TurnDone, Usage
from app.llm.provider import BrokenTurn
from tests.postgres.journal.test_journal import custom, leased, numbers
from tests.support import specs
from tests.support.client import Caller, eventually, good, output_of
from tests.support.sse import KEY, Reading, open_query, open_tenant
from tests.support.world import World, world

Stream = Callable[[Any], AsyncIterator[Any]]


class Model:
    """A provider that answers as a test says."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream


def chosen(stream: Stream) -> Any:
    """A choice of providers that always chooses this one."""

    async def of(*_: Any) -> tuple[Any, str]:
        return Model(stream), "mock"

    return of


OLD = "UPDATE queries SET parked_at = now() - interval '8 days' WHERE id = $1"


async def test_text_that_cannot_be_encoded_does_not_stop_the_writer(idle: World) -> None:
    bad, good_one = await leased(idle, 2)
    journal = idle.services.journal
    await journal.post(bad, Delta("text", Scope(bad.query_id, "thr", "wrk", None, "solo"), 1, "half \ud83d"))
    await asyncio.sleep(0.05)  # it is taken alone: nobody waits for it
    with pytest.raises(TypeError, match="UTF-8"):
        await asyncio.wait_for(journal.commit(bad, Entry([custom(bad, 1)])), 5)
    await asyncio.wait_for(journal.commit(bad, Entry([custom(bad, 2)])), 5)
    await asyncio.wait_for(journal.commit(good_one, Entry([custom(good_one, 2)])), 5)
    assert [n for _, n in await numbers(idle, good_one)] == [2]


async def test_half_a_character_of_a_provider_is_a_broken_turn(plangate: World, api: Caller) -> None:
    await api.register(specs.mock("fine"))
    asked = 0

    async def stream(_request: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            yield TextDelta("half \ud83d")
        yield TurnDone((Text("fine"),), "end_turn", Usage(), "m")

    plangate.services.providers.of = chosen(stream)  # type: ignore[method-assign]
    query = await api.run()
    assert (query["status"], query["output"], asked) == ("succeeded", "fine", 2)
    (retry,) = await api.events(query["id"], "step-retry")
    assert retry["reason"].startswith("provider_broken_turn")


async def test_the_stream_of_a_tenant_skips_nothing_in_an_outage(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    reading = await open_tenant(plangate, (await api.read("/events"))["nextCursor"], "finish")
    plangate.faults.fail("FROM events e", times=2)
    query = (await api.run())["id"]
    await reading.until(lambda body: query.encode() in body, patience_s=6)
    await reading.close()


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_stateful_sub_agent_remembers_its_earlier_call_in_the_same_query(
    plangate: World, api: Caller, at_once: bool
) -> None:
    """In a new thread too, where the agent that was asked first has nothing to remember; and when both calls stand in
    one turn and run one after the other."""
    await api.register(
        specs.spec(
            specs.agent("chief", "coordinator", routes=["helper"]),
            specs.agent("helper", stateful=True),
            interpreter="mock",
        )
    )
    helped: list[int] = []

    async def stream(request: Any) -> Any:
        if "helper" in request.system:
            helped.append(len(request.messages))
        left = 2 - len(request.messages) // 2 if not at_once else 2 * (len(request.messages) == 1)
        use = ToolUse("u", "call_agent", '{"agent": "helper", "prompt": "go"}')
        if "chief" in request.system and left > 0:
            uses = tuple(replace(use, id=f"u{n}") for n in range(left if at_once else 1))
            yield TurnDone(uses, "tool_use", Usage(), "m")
        else:
            yield TurnDone((Text("done"),), "end_turn", Usage(), "m")

    plangate.services.providers.of = chosen(stream)  # type: ignore[method-assign]
    query = await api.run()
    assert (query["status"], helped) == ("succeeded", [1, 3])


async def test_feedback_on_an_answer_is_remembered(plangate: World, api: Caller) -> None:
    """The memory is what the model saw, the objections to answers against its outputSchema too."""
    await api.register(
        specs.mock() | {"agents": [specs.agent(stateful=True, outputSchema={"type": "integer"})]}
    )
    heard: list[list[str]] = []

    async def stream(request: Any) -> Any:
        heard.append([m.role for m in request.messages])
        text = "1" if request.messages[-1].role == "user" and len(heard) != 1 else "one"
        yield TurnDone((Text(text),), "end_turn", Usage(), "m")

    plangate.services.providers.of = chosen(stream)  # type: ignore[method-assign]
    for _ in range(2):
        assert (await api.run(threadKey="t"))["status"] == "succeeded"
    said = ["user", "assistant", "user", "assistant", "user"]
    assert heard == [said[:1], said[:3], said]


async def test_a_limit_that_was_just_raised_fails_no_query(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(specs.scripted(specs.tool("add"), limits={"maxTurns": 1}))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    await api.serve("add", 1)
    await api.until(query, "waiting", "limit_reached")
    await owner.execute(OLD, query)

    async def resume() -> None:
        await api.do(f"/queries/{query}/resume", {"limits": {"maxTurns": 5}})

    plangate.faults.after("due_limits", resume)
    await plangate.services.queries.fail_due_limits()
    assert (await api.ended(query))["status"] == "succeeded"


class LateHub(Hub):
    """Publishes events of this process right after the first hint that other events follow them."""

    late: tuple[QueryKey, int, Sequence[Event]] | None = None

    def invalidate(self, queries: Sequence[QueryKey]) -> None:
        super().invalidate(queries)
        if self.late is not None:
            late, self.late = self.late, None
            self.publish(*late)


async def test_a_reader_notified_too_early_still_gets_the_event(
    plangate: World, api: Caller, owner: Any
) -> None:
    """The look tells of seq n + 1 before this process hands out its own seq n: the ring then ends at n."""
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    await api.until(query, "waiting")
    hub = LateHub()
    signer = CursorSigner(b"k" * 32)
    streams = Streams(
        plangate.services.db, hub, signer, reads=1, shared_bytes=0, limits=StreamLimits(poll_interval_s=0.1)
    )
    streams.start()
    head = len(await api.events(query))
    reading = Reading(streams.query_stream(("acme", query), head, KEY))
    await asyncio.sleep(0.5)
    told = event(Scope(query, "thr", "wrk", None, "solo"), CustomEvent, event_type="x", data={})
    hub.late = (("acme", query), head + 1, [told])
    async with plangate.services.db.transaction("acme") as tx:
        await append_events(tx, query_id=query, events=[told, told])
    await reading.until(lambda body: body.count(b"event: custom") >= 2)
    got = await reading.close()
    await streams.aclose()
    assert hub.late is None
    assert [f.envelope["seq"] for f in got] == [head + 1, head + 2]


@pytest.mark.limits(streams=StreamLimits(poll_interval_s=0.05, heartbeat_interval_s=0.01))
async def test_a_waiting_stream_sends_no_statement(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    await api.until(query, "waiting")
    head = len(await api.events(query))
    reads = plangate.faults.probe("count(*) OVER () AS count")
    tasks = len(asyncio.all_tasks())
    reading = open_query(plangate, query, head)
    await reading.until(lambda body: body.count(b": heartbeat") >= 20)
    assert len(asyncio.all_tasks()) == tasks + 1, "the one of its request"
    assert await reading.close() == []
    assert reads.count == 1


async def test_a_claimed_call_is_never_reported_as_not_made(plangate: World, api: Caller, owner: Any) -> None:
    """Safe to repeat, taken, lapsed, offered again, and then taken by nobody: nobody knows."""
    await api.register(specs.scripted(specs.tool("look", annotations={"readOnly": True})))
    query = (await api.submit(specs.script(("look", {"n": 1}))))["id"]
    (call,) = await api.claim("look")
    await owner.execute("UPDATE outgoing_calls SET claimed_until = now() - interval '1 s'")

    async def offered() -> Any:
        return await owner.fetchval("SELECT status = 'open' FROM outgoing_calls")

    await eventually(offered, "the call is offered again")
    await owner.execute("UPDATE outgoing_calls SET claim_before = now() - interval '1 s'")
    (entry,) = output_of(await api.ended(query))
    assert "It is unknown whether" in entry["error"], entry
    assert await owner.fetchval("SELECT status FROM work_records WHERE id = $1", call["workId"]) == "unknown"


async def test_a_call_that_wexplicit_values_back_was_not_made(
    plangate: World, api: Caller, owner: Any
) -> None:
    await api.register(specs.scripted(specs.tool("pay")))
    query = (await api.submit(specs.script(("pay", {"n": 1}))))["id"]
    (call,) = await api.claim("pay")
    good(await api.post(f"/tool-calls/{call['workId']}/release", {"claimToken": call["claimToken"]}))
    await owner.execute("UPDATE outgoing_calls SET claim_before = now() - interval '1 s'")
    (entry,) = output_of(await api.ended(query))
    assert "it was not made" in entry["error"], entry


async def test_storing_and_executing_a_plan_do_not_deadlock(plangate: World, api: Caller) -> None:
    """A host's store locks the thread, then the plan; its execute does so in the same order."""
    await api.register(specs.planning())
    stored = {"specName": "Routing", "body": specs.BODY, "threadKey": "t", "planId": "p"}
    plan = await api.do("/plans", stored)
    db = plangate.services.db

    async def execute() -> int:
        return (await api.post(f"/plans/{plan['id']}/execute", {})).status_code

    async with db.transaction("acme") as tx:  # what a store does first
        await tx.run("SELECT 1 FROM threads WHERE id = $1 FOR NO KEY UPDATE", plan["threadId"])
        executing = asyncio.create_task(execute())
        await asyncio.sleep(0.3)
        await tx.run("SET LOCAL lock_timeout = '300ms'")
        await tx.run("SELECT 1 FROM plans WHERE id = $1 FOR UPDATE", plan["id"])
    assert await executing == 202


async def test_several_decisions_lock_their_queries_in_one_order(
    plangate: World, api: Caller, owner: Any
) -> None:
    """Whatever the order of the approvals: the journal locks the queries of a batch by their ids."""
    await api.register(specs.scripted(specs.tool("add"), specs.tool("pay", approval="always")))
    low = (await api.submit(specs.script(("add", {"n": 1}), ("pay", {"n": 1}))))["id"]
    high = (await api.submit(specs.script(("pay", {"n": 1}))))["id"]
    gates = [await api.gate(high)]
    await api.serve("add", 1)
    gates.append(await api.gate(low))
    await api.until(low, "waiting")
    async with owner.transaction():
        await owner.execute("SELECT 1 FROM queries WHERE id = $1 FOR NO KEY UPDATE", low)
        decisions = [{"id": g["id"], "decision": "reject"} for g in gates]
        deciding = asyncio.create_task(api.do("/approvals", {"decisions": decisions}))
        await asyncio.sleep(0.3)
        await owner.execute("SET LOCAL lock_timeout = '300ms'")
        await owner.execute("SELECT 1 FROM queries WHERE id = $1 FOR NO KEY UPDATE", high)
    assert [a["status"] for a in (await deciding)["approvals"]] == ["rejected", "rejected"]


async def test_leases_are_renewed_in_the_order_of_a_journal_batch(idle: World, owner: Any) -> None:
    leases = sorted(await leased(idle, 2), key=lambda x: x.query_id)
    low, high = (x.query_id for x in leases)
    held = [(x.tenant, x.query_id, x.epoch) for x in reversed(leases)]
    async with owner.transaction():
        await owner.execute("SELECT 1 FROM queries WHERE id = $1 FOR NO KEY UPDATE", low)
        renewing = asyncio.create_task(
            lease_store.report_process(idle.services.db, id="me", leases=held, lease_s=10)
        )
        await asyncio.sleep(0.3)
        await owner.execute("SET LOCAL lock_timeout = '300ms'")
        await owner.execute("SELECT 1 FROM queries WHERE id = $1 FOR NO KEY UPDATE", high)
    assert await renewing == {low, high}


async def test_usage_of_model_call_attempts_survives_the_process(
    plangate: World, idle: World, owner: Any
) -> None:
    await idle.api.register(specs.mock())
    chosen_by = plangate.services.providers

    async def broken(_request: Any) -> Any:
        yield TextDelta("so far")
        raise BrokenTurn("test", usage=Usage(7, 3))

    async def whole(_request: Any) -> Any:
        yield TurnDone((Text("done"),), "end_turn", Usage(10, 5), "m")

    chosen_by.of = chosen(broken)  # type: ignore[method-assign]
    query = (await idle.api.submit())["id"]

    async def used() -> Any:
        return await owner.fetchval("SELECT input_tokens > 0 FROM work_records WHERE kind = 'model_call'")

    await eventually(used, "an attempt is on record with what it used")
    plangate.services.worker.drop(query)
    chosen_by.of = chosen(whole)  # type: ignore[method-assign]
    await owner.execute("UPDATE queries SET lease_expires_at = now() - interval '1 s'")
    ended = await idle.api.ended(query)
    assert ended["usage"]["inputTokens"] >= 17
    assert ended["usage"]["inputTokens"] % 7 == 10 % 7


async def test_a_query_that_cannot_be_loaded_is_released_at_once(plangate: World, api: Caller) -> None:
    """A pool that is exhausted for a moment is no crash of the process."""
    await api.register(specs.mock())
    async with world(plangate.site, plangate.operator_key, with_worker=False) as door:
        plangate.faults.fail("prompt, request, wake, worked_ms", times=3)
        query = (await door.api.submit())["id"]
        sql = "SELECT status = 'succeeded' FROM queries WHERE id = $1"
        await eventually(lambda: door.value(sql, query), "it ends", 5)
    assert await plangate.value("SELECT lease_epoch FROM queries WHERE id = $1", query) == 1


async def test_one_bad_item_of_a_periodic_task_does_not_stop_the_rest(plangate: World) -> None:
    done: list[str] = []

    async def do(_tenant: str, id: str) -> None:
        if id == "bad":
            raise ValueError(id)
        done.append(id)

    await for_each_due([("acme", "bad"), ("acme", "good")], do)
    assert done == ["good"]
