"""Times, sums and limits of work records under cancels, kills and concurrent changes."""

from __future__ import annotations

import asyncio
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from app.agents.limits import AgentLimits
from app.deployment import Deployment
from app.engine import lease_store as queue_store
from app.events import Usage as TokenCounts
from app.llm.messages import ModelRequest, TurnDone, Usage
from app.llm.provider import Overloaded
from app.usage import store
from tests.support import specs
from tests.support.client import Caller, eventually, good, refused
from tests.support.cluster import Cluster
from tests.support.models import calls, says, thinks, turn_of
from tests.support.world import World, world

PRICED = {"id": "gpt-4o-mini", "provider": "openai"}  # 0.15 dollars for a million tokens in


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def in_order(api: Caller, query_id: str) -> list[dict[str, Any]]:
    """The records of a query, once it is clear that none ended before it began or began before what it belongs to."""
    query = await api.read(f"/queries/{query_id}")
    works = {w["id"]: w for w in (await api.read(f"/queries/{query_id}/work"))["items"]}
    for work in works.values():
        if work["endedAt"]:
            assert work["durationMs"] >= 0, work
            assert moment(work["startedAt"]) <= moment(work["endedAt"]) <= moment(query["endedAt"]), work
        if work["parentId"]:
            assert moment(works[work["parentId"]]["startedAt"]) <= moment(work["startedAt"]), work
    assert moment(query["createdAt"]) <= moment(query["startedAt"]) <= moment(query["endedAt"])
    root = works["wrk_" + query_id.removeprefix("qry_")]
    assert (root["endedAt"], root["status"]) == (query["endedAt"], query["status"])
    return list(works.values())


# -- times


async def test_work_started_during_a_cancel_does_not_end_before_it_began(
    plangate: World, api: Caller
) -> None:
    """The transaction of a cancel begins before it has the query's row; until then the query goes on."""
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}), ("add", {"n": 2}))))["id"]
    (call,) = await api.claim("add")
    async with plangate.services.db.transaction("acme") as tx:
        assert await tx.value("SELECT now()")
        good(await api.result(call, 1))
        await api.claim("add")
        await plangate.services.queries.cancel(tx, query)
    assert {w["status"] for w in await in_order(api, query)} == {"succeeded", "cancelled"}


async def test_a_query_canceled_at_its_start_does_not_end_before_it_began(
    idle: World, plangate: World, api: Caller
) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    async with plangate.services.db.transaction("acme") as tx:
        assert await tx.value("SELECT now()")
        query = (await idle.api.submit(specs.script(("add", {"n": 1}))))["id"]
        await api.claim("add")
        await plangate.services.queries.cancel(tx, query)
    await in_order(api, query)


# -- outcomes


@pytest.mark.parametrize(
    ("taken", "answer", "status"),
    [
        (False, None, "cancelled"),
        (True, None, "unknown"),
        (True, {"output": {"entitiesAffected": 2}}, "succeeded"),
        (True, {"error": "no seat is left"}, "failed"),
    ],
)
async def test_after_a_cancel_action_records_match_the_plan(
    plangate: World, api: Caller, owner: Any, taken: bool, answer: dict[str, Any] | None, status: str
) -> None:
    """One dispatch of two actions: nobody took it, or somebody did and said nothing, or what is not heard yet."""
    await api.register(specs.planning())
    plan = await api.do("/plans", {"specName": "Routing", "body": specs.BODY, "runtime": "default"})
    query = (await api.do(f"/plans/{plan['id']}/execute", {}))["id"]
    await api.approve(query)
    await api.until(query, "waiting", "client_call")
    await plangate.services.worker.drain(0)  # nobody hears an answer
    if taken:
        (call,) = await api.claim("actions")
        if answer is not None:
            good(await api.result(call, **answer))
    counted = plangate.services.metrics.work_ended.labels("action", status)._value.get
    assert counted() == 0
    await api.do(f"/queries/{query}/cancel")
    (work,) = [w for w in await in_order(api, query) if w["kind"] == "action"]
    actions = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    told = "skipped" if status == "cancelled" else status
    assert (work["status"], [a["status"] for a in actions], counted()) == (status, [told] * 2, 1)
    assert (work.get("output"), work.get("error")) == (actions[0]["result"], actions[0]["error"])


# -- limits


class Failing:
    """A model that fails so many times, each time after a million tokens, and then answers."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.asked = 0

    def __call__(self, _: ModelRequest) -> TurnDone:
        self.asked += 1
        self.left -= 1
        if self.left < 0:
            return says("done", Usage(1_000_000))
        raise Overloaded("busy", usage=Usage(1_000_000))


async def the_call(api: Caller, query: str) -> dict[str, Any]:
    (call,) = (await api.read("/work-records", queryId=query, kind="model_call"))["items"]
    found: dict[str, Any] = call
    return found


# A model call is repeated at once.
quickly = pytest.mark.limits(agents=AgentLimits(first_backoff_s=0.001))


@quickly
@pytest.mark.parametrize("limit", ["maxTokens", "maxCostUsd"])
async def test_a_call_is_not_retried_when_its_attempts_used_up_the_limit(
    plangate: World, api: Caller, limit: str
) -> None:
    """It is on record with what it used, and made again once somebody raised the limit."""
    most, more = {"maxTokens": (2_000_000, 9_000_000), "maxCostUsd": (0.3, 9.0)}[limit]
    await api.register(specs.spec(specs.agent(model=PRICED), limits={limit: most}))
    model = Failing(3)
    thinks(plangate, model, kind="openai")
    query = (await api.submit())["id"]
    await api.until(query, "waiting", "limit_reached")
    assert (await api.events(query, "query-status"))[-1]["limit"] == limit
    call = await the_call(api, query)
    assert (model.asked, call["attempts"], call["usage"]["inputTokens"]) == (2, 2, 2_000_000)
    assert call["status"] == "waiting"
    await api.do(f"/queries/{query}/resume", {"limits": {limit: more}})
    assert (await api.ended(query))["output"] == "done"
    call = await the_call(api, query)
    assert (model.asked, call["attempts"], call["usage"]["inputTokens"]) == (4, 4, 4_000_000)
    retries = await api.events(query, "step-retry")
    assert [e["turn"] for e in retries] == [1] * 3, (
        "each attempt but the first takes back what was said before"
    )


@quickly
async def test_usage_of_open_attempts_counts_after_resuming(plangate: World, api: Caller) -> None:
    """Whoever goes on, and whatever else was raised meanwhile."""
    await api.register(specs.mock(limits={"maxTokens": 1_000_000}))
    model = Failing(1)
    thinks(plangate, model)
    query = (await api.submit())["id"]
    await api.until(query, "waiting", "limit_reached")
    await api.do(f"/queries/{query}/resume", {"limits": {"maxTurns": 9}})

    async def said_again() -> bool:
        told = await api.events(query, "query-status")
        return [e.get("limit") for e in told if e["to"] == "waiting"] == ["maxTokens"] * 2

    await eventually(said_again, "it stops at the same limit")
    assert model.asked == 1
    await api.do(f"/queries/{query}/resume", {"limits": {"maxTokens": 1_000_001}})
    ended = await api.ended(query)
    assert (ended["output"], ended["usage"]["inputTokens"], model.asked) == ("done", 2_000_000, 2)
    (told,) = await api.events(query, "data-cost-summary")
    assert told["data"]["modelCalls"] == 1


async def test_working_time_before_a_kill_counts(
    idle: World, owner: Any, site: Deployment, cluster: Cluster
) -> None:
    """Up to when it last renewed its lease; once. What then was given back in good order is not added again."""
    await idle.api.register(specs.mock(limits={"maxDurationMs": 600_000}))
    query = (await idle.api.submit())["id"]
    db = idle.services.db
    (killed,) = await queue_store.claim(db, owner="killed", limit=10, lease_s=10.0)
    began, renewed = "now() - interval '10 min 15 s'", "now() - interval '14 s'"
    await owner.execute(
        f"UPDATE queries SET resumed_at = {began}, lease_expires_at = {renewed} + interval '10 s'"
    )
    (released,) = await queue_store.claim(db, owner="released", limit=10, lease_s=10.0)
    assert (killed.epoch, released.epoch) == (1, 2)
    worked = "SELECT worked_ms FROM queries WHERE id = $1"
    assert await owner.fetchval(worked, query) == 601_000
    await queue_store.release(db, owner="released", leases=[("acme", query, released.epoch)])
    assert 601_000 <= await owner.fetchval(worked, query) < 611_000
    async with world(site, cluster.operator_key) as other:
        await other.api.until(query, "waiting", "limit_reached")
        assert (await other.api.events(query, "query-status"))[-1]["limit"] == "maxDurationMs"
        assert (await other.api.read("/work-records", queryId=query, kind="model_call"))["items"] == []
        await other.api.do(f"/queries/{query}/resume", {"limits": {"maxDurationMs": 3_600_000}})
        assert (await other.api.ended(query))["status"] == "succeeded"


def at_a_gate_and_a_limit(plangate: World) -> dict[str, Any]:
    """The spec, and a model, of a query of which one branch comes to a gate, and another to the end of its turns."""
    chief = specs.agent("chief", "coordinator", stateful=False, routes=["helper"], tools=["pay"])
    both = calls(("pay", {"n": 1}), ("call_agent", {"agent": "helper", "prompt": "go"}))
    asked_chief = "You are chief."
    thinks(plangate, lambda r: both if asked_chief in r.system and turn_of(r) == 1 else says("done"))
    pay = specs.tool("pay", approval="always")
    return specs.spec(chief, specs.agent("helper"), tools=[pay], interpreter="mock", limits={"maxTurns": 1})


async def test_a_limit_reached_at_a_gate_is_raised_after_it(plangate: World, api: Caller, owner: Any) -> None:
    """What a person is asked for first is the approval; the days that a limit has count from when it is what is left."""
    await api.register(at_a_gate_and_a_limit(plangate))
    query = (await api.submit())["id"]
    await api.until(query, "waiting", "approval")
    await owner.execute("UPDATE queries SET parked_at = now() - interval '8 days'")
    await plangate.services.queries.fail_due_limits()
    refused(await api.post(f"/queries/{query}/resume", {"limits": {"maxTurns": 9}}), 409, "conflict")
    await api.approve(query)
    await api.serve("pay", "paid")
    await api.until(query, "waiting", "limit_reached")
    await plangate.services.queries.fail_due_limits()
    await api.do(f"/queries/{query}/resume", {"limits": {"maxTurns": 3}})
    assert (await api.ended(query))["output"] == "done"
    works = await in_order(api, query)
    assert {w["status"] for w in works} == {"succeeded"}
    assert sum(w["kind"] == "model_call" for w in works) == 3


async def test_a_cancel_ends_queries_at_gates_and_limits(plangate: World, api: Caller) -> None:
    await api.register(at_a_gate_and_a_limit(plangate))
    query = (await api.submit())["id"]
    gate = await api.gate(query)
    await api.until(query, "waiting", "approval")
    await api.do(f"/queries/{query}/cancel")
    refused(await api.post(f"/queries/{query}/resume", {"limits": {"maxTurns": 9}}), 409, "conflict")
    refused(await api.decide(gate["id"], digest=gate["digest"]), 409)
    works = await in_order(api, query)
    assert {(w["kind"], w["status"]) for w in works} == {
        ("query", "cancelled"),
        ("agent", "cancelled"),
        ("tool_call", "cancelled"),
        ("model_call", "succeeded"),
    }


async def test_one_of_many_concurrent_resumes_wins(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(specs.mock(limits={"maxTurns": 1}))
    model = thinks(plangate, lambda r: calls(("nothing", {})) if turn_of(r) < 3 else says("done"))
    query = (await api.submit())["id"]
    await api.until(query, "waiting", "limit_reached")
    body = {"limits": {"maxTurns": 3}}
    async with plangate.services.db.transaction("acme") as tx:  # nobody goes on before all of them asked
        await tx.run("SELECT FROM queries WHERE id = $1 FOR NO KEY UPDATE", query)
        asked = [asyncio.ensure_future(api.post(f"/queries/{query}/resume", body)) for _ in range(3)]
        await eventually(lambda: blocked(owner, 3), "all of them wait for the row")
    assert sorted(r.status_code for r in await asyncio.gather(*asked)) == [200, 409, 409]
    assert (await api.ended(query))["status"] == "succeeded"
    assert len(model.heard) == 3
    told = [e["to"] for e in await api.events(query, "query-status")]
    assert told.count("running") == 2


async def blocked(owner: Any, count: int) -> bool:
    sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return bool(await owner.fetchval(sql) == count)


# -- sums


@quickly
async def test_a_cost_is_the_same_number_everywhere(plangate: World, api: Caller) -> None:
    """0.15 and 0.3 dollars: as binary fractions they add up to 0.44999999999999996, and more of them to what depends on
    their order."""
    chief = specs.agent("chief", "coordinator", stateful=False, routes=["helper"], model=PRICED)
    await api.register(specs.spec(chief, specs.agent("helper", model=PRICED)))
    faults = [Overloaded("busy", usage=Usage(1_000_000))] * 2

    def answer(request: ModelRequest) -> TurnDone:
        if "You are helper." in request.system:
            if faults:
                raise faults.pop()
            return says("helped", Usage(2_000_000))  # 0.15 + 0.15 + 0.3, then 0.3
        ask = ("call_agent", {"agent": "helper", "prompt": "go"})
        if turn_of(request) == 1:
            return calls(ask, usage=Usage(1_000_000))
        return calls(ask, usage=Usage(2_000_000)) if turn_of(request) == 2 else says("done")

    thinks(plangate, answer, kind="openai")
    query = await api.run()
    assert query["costUsd"] == 1.35
    (told,) = await api.events(query["id"], "data-cost-summary")
    helped = await api.events(query["id"], "data-tool-agent")
    assert (told["data"]["costUsd"], [e["data"]["costUsd"] for e in helped]) == (1.35, [0.6, 0.3])
    root = "wrk_" + query["id"].removeprefix("qry_")
    top = await api.read(f"/work-records/{root}", tree="true")
    assert (top["rollup"]["costUsd"], max(w.get("costUsd") or 0 for w in top["below"])) == (1.35, 0.6)
    for work in [top, *top["below"]]:
        assert (await api.read(f"/work-records/{work['id']}"))["rollup"] == work["rollup"]
    for by in store.GROUPINGS:
        found = await api.read("/usage", groupBy=by)
        assert found["totals"]["costUsd"] == 1.35
        assert sum(Decimal(str(i["costUsd"])) for i in found["items"]) == Decimal("1.35")
    of_chief, of_helper = (await api.read("/usage", groupBy="agent"))["items"]
    assert (of_chief["costUsd"], of_helper["costUsd"]) == (0.45, 0.9)


async def test_each_kind_of_tokens_is_summed_separately(plangate: World, api: Caller) -> None:
    """In a record's own sums, in a tree, for the query, in its events, in usage, and for a limit."""
    chief = specs.agent("chief", "coordinator", stateful=False, routes=["helper"])
    await api.register(specs.spec(chief, specs.agent("helper"), interpreter="mock"))
    ask = ("call_agent", {"agent": "helper", "prompt": "go"})

    def answer(request: ModelRequest) -> TurnDone:
        if "You are helper." in request.system:
            return says("helped", Usage(2, 20, 200, 2_000, 9))
        used = Usage(1, 10, 100, 1_000, 5)
        return calls(ask, usage=used) if turn_of(request) == 1 else says("done", used)

    thinks(plangate, answer)
    query = await api.run(limits={"maxTokens": 3_334})
    expected = dict(zip(TokenCounts().model_dump(by_alias=True), (4, 40, 400, 4_000, 19), strict=True))
    assert query["usage"] == expected
    root = "wrk_" + query["id"].removeprefix("qry_")
    for tree in ("true", "false"):
        assert (await api.read(f"/work-records/{root}", tree=tree))["rollup"]["usage"] == expected
    (told,) = await api.events(query["id"], "data-cost-summary")
    assert told["data"]["usage"] == (await api.read("/usage"))["totals"]["usage"] == expected
    stopped = (await api.submit(limits={"maxTokens": 3_333}))["id"]  # reasoning is a part of what came out
    await api.until(stopped, "waiting", "limit_reached")


async def test_cached_tokens_have_a_price(plangate: World, api: Caller) -> None:
    """Of a model that nobody knows: what was written to a cache or read from it is not priced either."""
    await api.register(specs.mock())
    used = [Usage(), Usage(cache_read_tokens=1), Usage(cache_write_tokens=1)]
    for usage in used:
        thinks(plangate, lambda _, usage=usage: says("done", usage))
        query = (await api.run())["id"]
        root = "wrk_" + query.removeprefix("qry_")
        for tree in ("true", "false"):
            rollup = (await api.read(f"/work-records/{root}", tree=tree))["rollup"]
            assert (rollup["unpricedCalls"], rollup["costUsd"]) == (int(usage != Usage()), None)
    totals = (await api.read("/usage"))["totals"]
    assert (totals["modelCalls"], totals["unpricedCalls"], totals["costUsd"]) == (3, 2, None)


async def test_the_range_applies_to_uses(api: Caller, owner: Any) -> None:
    moments = (
        "2026-01-31T23:59:59.999Z",
        "2026-02-01T00:00:00Z",
        "2026-02-01T23:59:59.999Z",
        "2026-02-02T00:00:00Z",
    )
    for n, when in enumerate(moments):
        await owner.execute(
            "INSERT INTO work_records (tenant_id, id, query_id, thread_id, kind, name, agent, status, started_at) "
            "VALUES ('acme', $1, $2, 'thr_1', 'query', 'x', 'a', 'running', $3)",
            f"wrk_{n}",
            f"qry_{n}",
            moment(when),
        )
        await owner.execute(
            "INSERT INTO reference_uses (tenant_id, work_id, use, kind, id, size_bytes, at) "
            "VALUES ('acme', $1, 'create', 'K', 'x', 1, $2)",
            f"wrk_{n}",
            moment(when),
        )
        await owner.execute(
            "INSERT INTO artifact_uses (tenant_id, work_id, artifact_id, size_bytes, prompt_bytes, at) "
            "VALUES ('acme', $1, 'art_1', 1, 1, $2)",
            f"wrk_{n}",
            moment(when),
        )
    for by in store.GROUPINGS:
        found = await api.read("/usage", groupBy=by, **{"from": "2026-02-01", "to": "2026-02-02"})
        for told in (found["totals"], {k: _added(found["items"], k) for k in ("references", "artifacts")}):
            assert (told["references"]["uses"], told["artifacts"]["uses"]) == (2, 2), by


def _added(groups: list[dict[str, Any]], what: str) -> dict[str, int]:
    return {"uses": sum(group[what]["uses"] for group in groups)}


RECORD = """
INSERT INTO work_records (tenant_id, id, query_id, thread_id, parent_id, kind, name, agent, status, input_tokens)
VALUES ('acme', 'wrk_' || $1, 'qry_1', 'thr_1', 'wrk_' || $2, $3, 'x', 'a', $4, 1)
"""


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.parametrize("which", ["query", "chief", "call", "helper", "asked"])
async def test_a_call_is_in_vain_if_any_ancestor_failed(
    api: Caller, owner: Any, which: str, status: str
) -> None:
    chain = ("query", "agent", "tool_call", "agent", "model_call")
    names = ("query", "chief", "call", "helper", "asked")
    for n, (name, kind) in enumerate(zip(names, chain, strict=True)):
        above = names[n - 1] if n else None
        await owner.execute(RECORD, name, above, kind, status if name == which else "succeeded")
    await owner.execute(
        RECORD,
        "fine",
        "chief" if which in ("helper", "asked", "call") else "other",
        "model_call",
        "succeeded",
    )
    found = (await api.read("/usage"))["totals"]
    assert (found["modelCalls"], found["failed"]["modelCalls"]) == (2, 1)
    assert found["failed"]["usage"]["inputTokens"] == 1


async def test_work_without_a_group_is_on_the_last_page(plangate: World, api: Caller, owner: Any) -> None:
    """No model made the uses of references."""
    await api.register(specs.mock())
    await api.run()
    await owner.execute(
        "INSERT INTO reference_uses (tenant_id, work_id, use, kind, id, size_bytes) "
        "VALUES ('acme', 'wrk_1', 'create', 'K', 'x', 1)"
    )
    first = await api.read("/usage", groupBy="model", limit=1)
    last = await api.read("/usage", groupBy="model", limit=1, cursor=first["nextCursor"])
    assert [i["key"] for i in (*first["items"], *last["items"])] == ["m", None]
    assert (last["items"][0]["references"]["uses"], last["nextCursor"]) == (1, None)
    assert last["totals"] == first["totals"]
