"""Usage summed by purpose: failed work, artifacts, and bytes kept out of prompts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.llm.messages import ModelRequest, TurnDone, Usage
from app.llm.provider import RequestRejected
from app.usage import store
from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.models import calls, says, thinks, turn_of
from tests.support.world import World

PRICED = {"id": "gpt-4o-mini", "provider": "openai"}  # 0.15 dollars for a million tokens in
NOTHING: dict[str, Any] = {
    "modelCalls": 0,
    "usage": dict.fromkeys(
        ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens"), 0
    ),
    "costUsd": None,
    "unpricedCalls": 0,
}
UNMEASURED = {"tokens": None, "tokensFromBytes": 0, "costUsd": None, "costFromBytes": 0}
NO_REFERENCES = {"uses": 0, "sizeBytes": 0, "promptBytes": 0, "keptOutBytes": 0, "estimate": UNMEASURED}


def spent(calls: int, tokens_in: int, cost: float | None = None, unpriced: int = 0) -> dict[str, Any]:
    usage = {**NOTHING["usage"], "inputTokens": tokens_in}
    return {"modelCalls": calls, "usage": usage, "costUsd": cost, "unpricedCalls": unpriced}


def kept_out(uses: int, size: int, shown: int) -> dict[str, Any]:
    """What queries without a measured call kept out of prompts."""
    parts = {"uses": uses, "sizeBytes": size, "promptBytes": shown, "keptOutBytes": size - shown}
    return {**parts, "estimate": UNMEASURED}


def rounded(entry: dict[str, Any]) -> dict[str, Any]:
    """Without its key and what stayed out of prompts, dollars to the hundredth of a cent."""
    out = {k: v for k, v in entry.items() if k not in ("key", "references", "artifacts")}
    for part in (out, out["failed"]):
        part["costUsd"] = part["costUsd"] and round(part["costUsd"], 4)
    return out


async def usage(api: Caller, by: str, **params: Any) -> dict[str | None, Any]:
    found = await api.read("/usage", groupBy=by, **params)
    assert found["groupBy"] == by
    return {item["key"]: rounded(item) for item in found["items"]}


def team() -> dict[str, Any]:
    """`chief` has a model with a price, `helper` one that nobody knows."""
    chief = specs.agent("chief", "coordinator", stateful=False, routes=["helper"], model=PRICED)
    return specs.spec(chief, specs.agent("helper", model={"id": "m", "provider": "openai"}, maxTurns=1))


def helped_in_vain(request: ModelRequest) -> TurnDone:
    """`helper` runs out of its one turn, and `chief` makes do: each call of a model uses a million tokens."""
    if "You are helper." in request.system:
        return calls(("nothing", {}), usage=Usage(1_000_000))
    if turn_of(request) == 1:
        return calls(("call_agent", {"agent": "helper", "prompt": "go"}), usage=Usage(1_000_000))
    return says("done", Usage(1_000_000))


async def two_queries(plangate: World, api: Caller) -> tuple[dict[str, Any], dict[str, Any]]:
    """One that succeeds although its helper failed, and one that fails after its first turn."""
    await api.register(team())
    thinks(plangate, helped_in_vain, kind="openai")
    good = await api.run(threadKey="a")

    def refuses(request: ModelRequest) -> TurnDone:
        if turn_of(request) == 1:
            return calls(("nothing", {}), usage=Usage(1_000_000))
        raise RequestRejected("no", usage=Usage(2_000_000))

    thinks(plangate, refuses, kind="openai")
    bad = await api.run(threadKey="b")
    assert (good["status"], bad["status"]) == ("succeeded", "failed")
    return good, bad


async def test_each_query_thread_agent_model_and_day(plangate: World, api: Caller) -> None:
    good, bad = await two_queries(plangate, api)
    of_good = {**spent(3, 3_000_000, 0.3, 1), "failed": spent(1, 1_000_000, None, 1)}
    of_bad = {**spent(2, 3_000_000, 0.45), "failed": spent(2, 3_000_000, 0.45)}
    found = await usage(api, "query")
    assert found == {bad["id"]: of_bad, good["id"]: of_good}
    assert list(found) == [bad["id"], good["id"]]  # newest first
    assert await usage(api, "thread") == {good["threadId"]: of_good, bad["threadId"]: of_bad}
    of_chief = {**spent(4, 5_000_000, 0.75), "failed": spent(2, 3_000_000, 0.45)}
    of_helper = {**spent(1, 1_000_000, None, 1), "failed": spent(1, 1_000_000, None, 1)}
    assert await usage(api, "agent") == {"chief": of_chief, "helper": of_helper}
    assert await usage(api, "model") == {PRICED["id"]: of_chief, "m": of_helper}
    by_day = await usage(api, "day")
    assert {(datetime.now(UTC) - timedelta(days=n)).date().isoformat() for n in range(2)} >= by_day.keys()
    assert sum(d["modelCalls"] for d in by_day.values()) == 5
    everything = {**spent(5, 6_000_000, 0.75, 1), "failed": spent(3, 4_000_000, 0.45, 1)}
    for by in store.GROUPINGS:
        totals = (await api.read("/usage", groupBy=by))["totals"]
        assert totals.pop("references") == NO_REFERENCES
        assert rounded(totals) == everything


async def test_work_below_a_failed_run_was_in_vain(plangate: World, api: Caller) -> None:
    names = ("top", "middle", "leaf")
    routes = {"top": ["middle"], "middle": ["leaf"], "leaf": []}
    agents = [
        specs.agent(n, routes=routes[n], stateful=False, **({"maxTurns": 1} if n == "middle" else {}))
        for n in names
    ]
    for agent in agents:
        if not agent["routes"]:
            del agent["routes"]
        else:
            agent["toolkits"] = ["agents"]
    await api.register(specs.mock() | {"agents": agents})

    def answer(request: ModelRequest) -> TurnDone:
        if turn_of(request) == 1 and "leaf" not in request.system:
            below = "middle" if "top" in request.system else "leaf"
            return calls(("call_agent", {"agent": below, "prompt": "go"}), usage=Usage(1))
        return says("done", Usage(1))

    thinks(plangate, answer)
    query = await api.run(agent="top")
    assert query["status"] == "succeeded"
    found = await usage(api, "agent")
    assert {name: found[name]["failed"]["modelCalls"] for name in names} == {"top": 0, "middle": 1, "leaf": 1}
    assert {name: found[name]["modelCalls"] for name in names} == {"top": 2, "middle": 1, "leaf": 1}


async def test_canceled_work_was_in_vain(plangate: World, api: Caller) -> None:
    """Also what had come to its end below it."""
    chief = specs.agent(
        "chief", "coordinator", stateful=False, routes=["helper"], tools=["look"], model=PRICED
    )
    helper = specs.agent("helper", model=PRICED)
    await api.register(specs.spec(chief, helper, tools=[specs.tool("look")]))

    def answer(request: ModelRequest) -> TurnDone:
        if "You are helper." in request.system:
            return says("helped", Usage(1_000_000))
        ask = (
            ("call_agent", {"agent": "helper", "prompt": "go"})
            if turn_of(request) == 1
            else ("look", {"n": 1})
        )
        return calls(ask, usage=Usage(1_000_000))

    thinks(plangate, answer, kind="openai")
    query = (await api.submit())["id"]
    await api.until(query, "waiting", "client_call")
    whole = spent(3, 3_000_000, 0.45)
    assert await usage(api, "query") == {query: {**whole, "failed": NOTHING}}
    await api.do(f"/queries/{query}/cancel")
    assert await usage(api, "query") == {query: {**whole, "failed": whole}}
    assert (await usage(api, "agent"))["helper"]["failed"] == spent(1, 1_000_000, 0.15)


async def test_references_keep_bytes_out_of_prompts(api: Caller) -> None:
    agent = specs.agent(toolkits=["references"])
    kinds = [{"name": "Seats", "schema": {"type": "array"}}]
    await api.register(
        specs.scripted(specs.tool("find"), agents=[{**agent, "tools": ["find"]}], references=kinds)
    )
    value = ["x" * 1000] * 100
    query = (await api.submit(specs.script(("find", {"n": 1}))))["id"]
    (call,) = await api.claim("find")
    made = await api.do("/references", {"kind": "Seats", "value": value, "workId": call["workId"]})
    await api.result(call, {"kind": made["kind"], "id": made["id"], "glimpse": made["glimpse"]})
    await api.ended(query)
    handle = {"kind": "Seats", "id": made["id"]}
    second = await api.run(
        specs.script(("resolveRef", handle), ("resolveRef", {**handle, "path": "length(@)"}))
    )
    size = made["sizeBytes"]
    found = await api.read("/usage", groupBy="query")
    assert {i["key"]: i["references"] for i in found["items"]} == {
        query: kept_out(1, size, 0),
        second["id"]: kept_out(2, 2 * size, 3),
    }
    whole = kept_out(3, 3 * size, 3)
    assert found["totals"]["references"] == whole
    by_agent = (await api.read("/usage", groupBy="agent"))["items"]
    assert [(i["key"], i["references"]) for i in by_agent] == [("solo", whole)]
    by_model = (await api.read("/usage", groupBy="model"))["items"]
    assert [i["key"] for i in by_model] == ["m", None]  # no model did it
    assert [i["references"] for i in by_model] == [NO_REFERENCES, whole]
    assert rounded(by_model[1]) == {**NOTHING, "failed": NOTHING}


async def test_artifacts_keep_bytes_out_of_prompts(api: Caller) -> None:
    """Each call that was given a record in place of the body counts once: of the size the bytes of the record were shown."""
    body = "A long plan. " * 1000
    look = specs.tool("look", inputSchema={"type": "object"})
    await api.register(
        specs.scripted(
            look,
            agents=[
                specs.agent(
                    "chief",
                    "coordinator",
                    routes=["maker"],
                    tools=["look"],
                    toolkits=["artifacts", "variables"],
                ),
                specs.agent("maker", toolkits=["artifacts", "workspace"]),
            ],
        )
    )
    make = {
        "script": [
            {"tool": "write", "args": {"path": "plan.md", "content": body}},
            {"tool": "artifact_publish", "args": {"channel": "design", "path": "plan.md"}},
        ]
    }
    first = await api.run(specs.script(("call_agent", {"agent": "maker", "prompt": make})), threadKey="t")
    (brief,) = output_of(first)[0]["result"]["artifacts"]
    id = brief["id"]
    second = await api.submit(
        specs.script(
            ("artifact_get", {"id": id}),
            ("artifact_list", {"channel": "design"}),
            ("artifact_list", {"channel": "patch"}),
            ("look", {"title": f"†artifact.{id}.path", "text": f"†artifact.{id}.content"}),
            ("artifact_get", {"id": id, "_outputPath": "†state.design"}),
        ),
        threadKey="t",
    )
    call = await api.serve("look")
    assert call["args"] == {"title": "plan.md", "text": body}
    got = output_of(await api.ended(second["id"]))[0]["result"]
    size, short, whole = len(body), size_of(brief), size_of(got)

    def kept(uses: int, shown: int) -> dict[str, Any]:
        return kept_out(uses, uses * size, shown)

    found = await api.read("/usage", groupBy="query")
    assert {i["key"]: i["artifacts"] for i in found["items"]} == {
        first["id"]: kept(1, short),
        second["id"]: kept(4, 2 * whole),
    }
    everything = kept(5, short + 2 * whole)
    assert found["totals"]["artifacts"] == everything
    assert found["totals"]["references"] == NO_REFERENCES
    for by, key in (
        ("artifact", id),
        ("channel", "design"),
        ("agent", "chief"),
        ("thread", first["threadId"]),
    ):
        groups = (await api.read("/usage", groupBy=by))["items"]
        assert [i["artifacts"] for i in groups if i["key"] == key] == [everything], by


async def test_bytes_kept_out_of_prompts_are_estimated_in_tokens_and_dollars(
    plangate: World, api: Caller, owner: Any
) -> None:
    """By what a byte of the prompts of the same query was: measured in one query, unpriced in another, nothing in a third."""
    home = (await api.do("/threads", {"threadKey": "t"}))["id"]
    await api.request("PUT", f"/threads/{home}/files/a", content=b"x" * 100_000)
    record = await api.do("/artifacts", {"threadId": home, "channel": "design", "path": "a"})

    def looks(*tokens: int) -> Any:
        def answer(request: ModelRequest) -> TurnDone:
            turn = turn_of(request)
            used = Usage(tokens[turn - 1], 7, cache_read_tokens=tokens[turn - 1])
            return (
                calls(("artifact_get", {"id": record["id"]}), usage=used) if turn == 1 else says("ok", used)
            )

        return answer

    async def looked(model: Any, *tokens: int) -> str:
        agent = specs.agent("solo", stateful=False, model=model, toolkits=["artifacts"])
        await api.register(specs.spec(agent))
        thinks(plangate, looks(*tokens), kind="openai")
        return str((await api.run(threadKey="t"))["id"])

    unknown = {"id": "m", "provider": "openai"}
    priced, unpriced = await looked(PRICED, 3000, 5000), await looked(unknown, 400, 600)
    silent = await looked(unknown, 0, 0)

    async def measured(query: str) -> tuple[int, int]:
        work = (await api.read(f"/queries/{query}/work"))["items"]
        prompts = [w for w in work if w["kind"] == "model_call"]
        counted = [w["usage"]["inputTokens"] + w["usage"]["cacheReadTokens"] for w in prompts]
        return sum(counted), sum(w["input"]["promptBytes"] for w in prompts)

    items = (await api.read("/usage", groupBy="query"))["items"]
    kept = {i["key"]: (i["artifacts"]["keptOutBytes"], i["artifacts"]["estimate"]) for i in items}
    of_priced, estimate = kept[priced]
    tokens, size = await measured(priced)
    assert (tokens, of_priced > 90_000) == (16_000, True)
    assert estimate["tokens"] == pytest.approx(of_priced * 16_000 / size, abs=1)
    # 0.15 dollars for a million tokens, half of that for those that were cached
    assert estimate["costUsd"] == pytest.approx(
        of_priced / size * (8000 * 0.15e-6 + 8000 * 0.075e-6), abs=1e-6
    )
    assert estimate["tokensFromBytes"] == estimate["costFromBytes"] == of_priced
    of_unpriced, other = kept[unpriced]
    tokens, size = await measured(unpriced)
    assert other == {
        "tokens": round(of_unpriced * 2000 / size),
        "tokensFromBytes": of_unpriced,
        "costUsd": None,
        "costFromBytes": 0,
    }
    assert kept[silent][1] == UNMEASURED
    totals = (await api.read("/usage", groupBy="agent"))["totals"]["artifacts"]["estimate"]
    assert totals["tokens"] == pytest.approx(estimate["tokens"] + other["tokens"], abs=1)
    assert (totals["tokensFromBytes"], totals["costFromBytes"]) == (of_priced + of_unpriced, of_priced)
    good(await api.delete(f"/threads/{home}"))
    assert (await api.read("/usage", groupBy="agent"))["totals"]["artifacts"]["estimate"] == totals


async def test_a_record_larger_than_its_artifact_saves_nothing(
    plangate: World, api: Caller, owner: Any
) -> None:
    """It takes nothing away from what others kept out."""
    await api.register(specs.scripted(agents=[specs.agent(toolkits=["artifacts"])]))
    thread = (await api.do("/threads", {"threadKey": "t"}))["id"]
    await api.request("PUT", f"/threads/{thread}/files/a", content=b"x")
    made = await api.do("/artifacts", {"threadId": thread, "channel": "design", "path": "a"})
    query = await api.run(specs.script(("artifact_get", {"id": made["id"]})), threadKey="t")
    shown = size_of(output_of(query)[0]["result"])
    (call,) = (await api.read("/work-records", queryId=query["id"], kind="tool_call"))["items"]
    await owner.execute(
        "INSERT INTO reference_uses (tenant_id, work_id, use, kind, id, size_bytes, prompt_bytes) "
        "VALUES ('acme', $1, 'resolve', 'K', 'a', 3, 10), ('acme', $1, 'resolve', 'K', 'b', 50, 10)",
        call["id"],
    )
    references = {"uses": 2, "sizeBytes": 53, "promptBytes": 20, "keptOutBytes": 40}
    artifacts = {"uses": 1, "sizeBytes": 1, "promptBytes": shown, "keptOutBytes": 0}
    found = await api.read("/usage", groupBy="query")
    for told in (found["totals"], *found["items"]):
        kept = [{**told[name]} for name in ("references", "artifacts")]
        assert [each.pop("estimate") for each in kept] == [UNMEASURED] * 2
        assert kept == [references, artifacts]
    top = await api.read(f"/work-records/{call['id']}", tree="true")
    assert top["rollup"]["references"] == references


def size_of(value: Any) -> int:
    """In bytes of JSON."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


WORK = """
INSERT INTO work_records (tenant_id, id, query_id, thread_id, parent_id, kind, name, agent, status, input_tokens, cost_usd,
                          started_at)
VALUES ('acme', $1, $2, 'thr_1', $3, $4, 'x', 'a', 'succeeded', $5, $5::bigint / 1000.0,
        timestamptz '2026-02-01' + $6::int * interval '1 min')
"""
PUBLISHED = """
INSERT INTO artifacts (tenant_id, id, thread_id, n, record, previous, mac, channel, path, is_directory, digest, body_bytes,
                       work_id, created_at)
SELECT 'acme', $1, 'thr_1', 1 + (SELECT count(*) FROM artifacts), '', '', '', $2, 'p', false, '', 1, $3,
       timestamptz '2026-02-01' + $4::int * interval '1 min'
"""


async def test_a_model_call_counts_for_the_artifact_it_led_to(
    plangate: World, api: Caller, owner: Any
) -> None:
    """`run` has a helper `called` that publishes nothing, and one `other` that publishes; each call has tokens of its own."""
    await owner.execute("SET session_replication_role = replica")  # what these rows belong to is left out
    for id, parent, kind in (
        ("root", None, "query"),
        ("run", "root", "agent"),
        ("t1", "run", "tool_call"),
        ("called", "t1", "agent"),
        ("t2", "run", "tool_call"),
        ("other", "t2", "agent"),
        ("alone", "root2", "agent"),
    ):
        await owner.execute(WORK, id, "qry_1", parent, kind, 0, 0)
    for id, run, minute, tokens in (
        ("c1", "run", 10, 1),
        ("c2", "run", 30, 20),
        ("c3", "run", 50, 300),  # after the last artifact of its run
        ("c4", "called", 15, 4000),
        ("c5", "other", 32, 50_000),
        ("c6", "other", 38, 600_000),
        ("c7", "alone", 10, 7_000_000),
    ):
        await owner.execute(WORK, id, "qry_1", run, "model_call", tokens, minute)
    for id, channel, run, minute in (
        ("art_1", "design", "run", 20),
        ("art_2", "patch", "run", 40),
        ("art_3", "design", "other", 35),
    ):
        await owner.execute(PUBLISHED, id, channel, run, minute)

    async def tokens_by(by: str) -> dict[str | None, int]:
        found = await usage(api, by, **{"from": "2026-02-01", "to": "2026-02-02"})
        for group in found.values():
            assert group["costUsd"] == group["usage"]["inputTokens"] / 1000
        return {key: group["usage"]["inputTokens"] for key, group in found.items()}

    assert await tokens_by("artifact") == {"art_3": 650_000, "art_2": 320, "art_1": 4001, None: 7_000_000}
    assert await tokens_by("channel") == {"design": 654_001, "patch": 320, None: 7_000_000}
    await owner.execute("UPDATE artifacts SET first_id = 'art_1', revision = 2 WHERE id = 'art_3'")
    asked = {"groupBy": "revision", "from": "2026-02-01", "to": "2026-02-02", "limit": 1}
    items: list[Any] = []
    page = await api.read("/usage", **asked)
    while True:
        items += page["items"]
        if page["nextCursor"] is None:
            break
        page = await api.read("/usage", **asked, cursor=page["nextCursor"])
    columns = ("key", "firstArtifactId", "revision")
    assert [(*(i.get(c) for c in columns), i["usage"]["inputTokens"]) for i in items] == [
        ("art_2", "art_2", 1, 320),
        ("art_3", "art_1", 2, 650_000),
        ("art_1", "art_1", 1, 4001),
        (None, None, None, 7_000_000),
    ]


async def test_the_cost_of_each_revision_along_a_chain(plangate: World, api: Caller) -> None:
    # The first revision takes two turns, the second three; each turn uses a million tokens.
    agent = specs.agent("solo", stateful=False, model=PRICED, toolkits=["artifacts", "workspace"])
    await api.register(specs.spec(agent))

    async def published(turns: int, **parts: Any) -> Any:
        def works(request: ModelRequest) -> TurnDone:
            turn, used = turn_of(request), Usage(1_000_000)
            if turn < turns:
                return calls(("write", {"path": "a", "content": f"{turns} {turn}"}), usage=used)
            asked = {"channel": "design", "path": "a", **parts}
            return calls(("artifact_publish", asked), usage=used) if turn == turns else says("done")

        thinks(plangate, works, kind="openai")
        query = await api.run(threadKey="t")
        (event,) = await api.events(query["id"], "artifact-published")
        return event["data"]

    first = await published(2)
    second = await published(3, replaces=first["id"])
    third = await published(2, replaces=second["id"])
    assert (first.get("revision"), second["revision"], third["revision"]) == (None, 2, 3)
    assert third["firstArtifactId"] == first["id"]
    items = (await api.read("/usage", groupBy="revision"))["items"]
    assert [(i["key"], i["firstArtifactId"], i["revision"], i["usage"]["inputTokens"]) for i in items] == [
        (third["id"], first["id"], 3, 2_000_000),
        (second["id"], first["id"], 2, 3_000_000),
        (first["id"], first["id"], 1, 2_000_000),
    ]
    assert [round(i["costUsd"], 2) for i in items] == [0.3, 0.45, 0.3]


async def test_the_range_is_of_when_work_began(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(specs.mock())
    thinks(plangate, lambda _: says("x", Usage(1)))
    queries = [(await api.run())["id"] for _ in range(4)]
    days = (
        "2026-01-31T23:59:59.999Z",
        "2026-02-01T00:00:00Z",
        "2026-02-02T12:00:00Z",
        "2026-03-01T00:00:00Z",
    )
    for query, day in zip(queries, days, strict=True):
        moved = "UPDATE work_records SET started_at = $2, ended_at = $2 WHERE query_id = $1"
        await owner.execute(moved, query, datetime.fromisoformat(day))
    asked = {"from": "2026-02-01", "to": "2026-03-01"}
    assert set(await usage(api, "query", **asked)) == {queries[1], queries[2]}
    assert set(await usage(api, "day", **asked)) == {"2026-02-01", "2026-02-02"}
    found = await api.read("/usage", groupBy="day", **asked)
    assert (found["from"], found["to"]) == ("2026-02-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z")
    later = {"from": "2026-02-01T00:00:00.001+00:00", "to": "2026-03-01T01:00:00+02:00"}
    assert set(await usage(api, "query", **later)) == {queries[2]}
    assert await usage(api, "query") == {}  # the last thirty days
    assert (await api.read("/usage"))["groupBy"] == "day"


@pytest.mark.parametrize("by", ["query", "agent"])
async def test_pages_give_each_group_once_under_the_same_totals(
    plangate: World, api: Caller, by: str
) -> None:
    names = [f"a{n}" for n in range(5)]
    await api.register(specs.mock() | {"agents": [specs.agent(name) for name in names]})
    thinks(plangate, lambda _: says("x", Usage(1)))
    for name in names:
        await api.run(agent=name)
    whole = await api.read("/usage", groupBy=by)
    assert len(whole["items"]) == 5
    assert whole["nextCursor"] is None
    items: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = await api.read("/usage", groupBy=by, limit=2, **cursor)
        assert page["totals"] == whole["totals"]
        items += page["items"]
        await api.run(agent="a0")  # what begins later is not in the range of the first page
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert items == whole["items"]
    assert [i["key"] for i in items] == sorted((i["key"] for i in items), reverse=by == "query")


async def test_the_most_expensive_groups_come_first_on_request(plangate: World, api: Caller) -> None:
    good, bad = await two_queries(plangate, api)  # the first cost less than the second
    await api.register(specs.mock(name="free"))
    free = await api.run(runtime="free")
    found = await api.read("/usage", groupBy="query", order="cost")
    assert [item["key"] for item in found["items"]] == [bad["id"], good["id"], free["id"]]
    assert next(iter(await usage(api, "query"))) == free["id"]
    most = await api.read("/usage", groupBy="query", order="cost", limit=1)
    assert ([item["key"] for item in most["items"]], most["nextCursor"]) == ([bad["id"]], None)
    assert most["totals"] == found["totals"]
    agents = await api.read("/usage", groupBy="agent", order="cost")
    assert [item["key"] for item in agents["items"]] == ["chief", "solo", "helper"]  # no price is known


@pytest.mark.parametrize(
    ("params", "pointer", "message"),
    [
        (
            {"groupBy": "colour"},
            "query:groupBy",
            "Input should be 'query', 'thread', 'agent',",
        ),
        ({"groupby": "day"}, "query:groupby", "unknown parameter; expected one of: "),
        ({"queryId": "qry_1"}, "query:queryId", "unknown parameter; expected one of: "),
        (
            {"from": "yesterday"},
            "query:from",
            "must be a date such as 2026-11-21, or a time such as 2026-11-21T17:32:34Z",
        ),
        ({"from": "1700000000"}, "query:from", "must be a date such as 2026-11-21"),
        ({"to": "2026-02-31"}, "query:to", "Input should be a valid datetime"),
        ({"to": "9999-12-31T23:59:59-14:00"}, "query:to", "the year must be from 2000 to 2200"),
        ({"from": "2026-02-01", "to": "2026-02-01"}, "query:from", "must be before 2026-02-01T00:00:00.000Z"),
        (
            {"from": "2024-01-01", "to": "2026-01-01"},
            "query:from",
            "at most 366 days before the end: 2024-12-31T00:00:00.000Z",
        ),
    ],
)
async def test_invalid_usage_requests_are_rejected(
    api: Caller, params: dict[str, str], pointer: str, message: str
) -> None:
    (flaw,) = refused(await api.get("/usage", **params), 422, "invalid")["errors"]
    assert flaw["pointer"] == pointer
    assert message in flaw["message"]


async def test_a_cursor_belongs_to_its_request(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    for _ in range(2):
        await api.run()
    cursor = (await api.read("/usage", groupBy="query", limit=1))["nextCursor"]
    refused(await api.get("/usage", groupBy="thread", limit=1, cursor=cursor), 400, "malformed")
    refused(await api.get("/usage", groupBy="query", to="2026-01-01", cursor=cursor), 400, "malformed")


async def test_a_range_with_too_much_work_is_rejected(api: Caller, owner: Any) -> None:
    async with owner.transaction():
        await owner.execute("LOCK TABLE work_records")  # the statement is not done in its time
        flaws = refused(await api.get("/usage"), 422, "invalid")["errors"]
    assert flaws == [{"pointer": "query:from", "message": "request fewer days at once"}]


async def test_usage_is_visible_only_to_its_tenant(plangate: World, api: Caller) -> None:
    await plangate.other.register(specs.mock(tenant="other"))
    await plangate.other.run()
    assert (await api.read("/usage"))["totals"]["modelCalls"] == 0
    assert (await plangate.other.read("/usage"))["totals"]["modelCalls"] == 1


@pytest.mark.parametrize("by", list(store.GROUPINGS))
async def test_a_short_range_does_not_read_the_table(
    plangate: World, api: Caller, owner: Any, by: str
) -> None:
    await api.register(specs.mock())
    query = await api.run()
    await owner.execute(
        "INSERT INTO work_records (tenant_id, id, query_id, thread_id, parent_id, kind, name, agent, status, started_at) "
        "SELECT 'acme', 'wrk_x' || n, 'qry_x' || n / 10, $1, 'wrk_x', 'model_call', 'm', 'a', 'succeeded', "
        "now() - interval '1 h' * n FROM generate_series(1, 20000) n",
        query["threadId"],
    )
    await owner.execute(
        "INSERT INTO reference_uses (tenant_id, work_id, use, kind, id, size_bytes, at) "
        "SELECT 'acme', 'wrk_x' || n, 'create', 'K', 'x', 1, now() - interval '1 h' * n "
        "FROM generate_series(1, 20000) n"
    )
    await owner.execute(
        "INSERT INTO artifact_uses (tenant_id, work_id, artifact_id, size_bytes, prompt_bytes, at) "
        "SELECT 'acme', 'wrk_x' || n, 'art_1', 1, 1, now() - interval '1 h' * n FROM generate_series(1, 20000) n"
    )
    await owner.execute("ANALYZE work_records, reference_uses, artifact_uses")
    now = datetime.now(UTC)
    sql = "EXPLAIN " + store.USAGE_BY[by]
    plan = "\n".join(r[0] for r in await plangate.sql(sql, "acme", now - timedelta(days=1), now, None, 50))
    assert "Seq Scan" not in plan, plan


async def test_usage_is_added_up_by_the_name_of_the_runtime(plangate: World, api: Caller) -> None:
    """Over all of its versions."""
    for name, text in (("shop", "a"), ("shop", "b"), ("mail", "c")):
        await api.register(specs.mock(text) | {"name": name})
        await api.run(runtime=name)
    groups = (await api.read("/usage", groupBy="runtime"))["items"]
    assert [(group["key"], group["modelCalls"]) for group in groups] == [("mail", 1), ("shop", 2)]
