"""Work records over HTTP: one tree per query, usage counted once, and bounded pages."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import pytest

from app.agents.limits import AgentLimits
from app.base.ids import new_id
from app.base.postgres.database import Tx
from app.llm.messages import ModelRequest, Text, TurnDone, Usage
from app.llm.provider import Overloaded, RequestRejected
from app.usage import store
from app.usage.models import WorkFilter
from app.usage.service import MAX_LIST_BODY_BYTES, MAX_SCANNED_RECORDS, MAX_TREE_RECORDS, page
from tests.support import specs
from tests.support.client import Caller, eventually, refused
from tests.support.models import calls, says, thinks, turn_of
from tests.support.world import World

PRICED = {"id": "gpt-4o-mini", "provider": "openai"}  # 0.15 dollars for a million tokens in, 0.60 out
NOBODY = "wrk_" + "0" * 26


def root_of(query_id: str) -> str:
    return "wrk_" + query_id.removeprefix("qry_")


async def tree_of(api: Caller, query_id: str) -> dict[str, Any]:
    found: dict[str, Any] = await api.read(f"/work-records/{root_of(query_id)}", tree="true")
    return found


def usage(tokens_in: int, tokens_out: int) -> dict[str, int]:
    none = {"cacheReadTokens": 0, "cacheWriteTokens": 0, "reasoningTokens": 0}
    return {"inputTokens": tokens_in, "outputTokens": tokens_out, **none}


def team(**parts: Any) -> dict[str, Any]:
    """A coordinator with a model that has a price, and a helper whose model nobody knows."""
    chief = specs.agent("chief", "coordinator", stateful=False, routes=["helper"], model=PRICED)
    return specs.spec(chief, specs.agent("helper", model={"id": "m", "provider": "openai"}), **parts)


def delegates_twice(request: ModelRequest) -> TurnDone:
    """`chief` has `helper` called twice at once and ends; each call of it uses 1,000 tokens in and 10 out."""
    if "You are helper." in request.system:
        return says("helped", Usage(1000, 10))
    if turn_of(request) == 1:
        ask = ("call_agent", {"agent": "helper", "prompt": "go"})
        return calls(ask, ask, usage=Usage(2_000_000, 0))
    return says("done", Usage(0, 1_000_000))


async def test_a_rollup_counts_everything_below_a_record_once(plangate: World, api: Caller) -> None:
    await api.register(team())
    thinks(plangate, delegates_twice, kind="openai")
    query = await api.run()
    top = await tree_of(api, query["id"])
    assert (top["kind"], top["parentId"], top["queryId"]) == ("query", None, query["id"])
    works = {w["id"]: w for w in [top, *top["below"]]}
    assert Counter(w["kind"] for w in works.values()) == {
        "query": 1,
        "agent": 3,
        "model_call": 4,
        "tool_call": 2,
    }
    seen = set[str]()
    for work in [top, *top["below"]]:  # parents stand before their children
        assert work["parentId"] in seen or work["parentId"] is None
        seen.add(work["id"])
    assert [round(top["rollup"].pop("costUsd"), 6), round(query["costUsd"], 6)] == [0.9, 0.9]
    none = {"uses": 0, "sizeBytes": 0, "promptBytes": 0, "keptOutBytes": 0}
    expected = {"modelCalls": 4, "usage": usage(2_002_000, 1_000_020), "unpricedCalls": 2, "references": none}
    assert top["rollup"] == expected
    assert query["usage"] == expected["usage"]
    for call in (w for w in works.values() if w["kind"] == "tool_call"):
        (run,) = (w for w in works.values() if w["parentId"] == call["id"])
        assert (run["kind"], run["agent"]) == ("agent", "helper")
        assert run["rollup"] == call["rollup"]
        assert (run["rollup"]["modelCalls"], run["rollup"]["usage"]) == (1, usage(1000, 10))
        assert (run["rollup"]["costUsd"], run["rollup"]["unpricedCalls"]) == (None, 1)
    for call in (w for w in works.values() if w["kind"] == "model_call"):
        assert call["rollup"]["usage"] == call["usage"]
    assert not any("input" in w or "output" in w for w in top["below"])


async def test_a_single_record_equals_its_entry_in_the_tree(plangate: World, api: Caller) -> None:
    await api.register(team())
    thinks(plangate, delegates_twice, kind="openai")
    top = await tree_of(api, (await api.run())["id"])
    for work in [top, *top["below"]]:
        alone = await api.read(f"/work-records/{work['id']}")
        assert "below" not in alone
        kept = {k: v for k, v in alone.items() if k not in ("input", "output")}
        assert kept == {k: v for k, v in work.items() if k not in ("below", "input", "output")}
    (helper, *_) = (w for w in top["below"] if w["name"] == "helper" and w["kind"] == "agent")
    part = await api.read(f"/work-records/{helper['id']}", tree="true")
    assert [w["kind"] for w in part["below"]] == ["model_call"]
    assert (part["input"], part["output"]) == ("go", "helped")


async def test_prices_have_a_date_and_unknown_models_no_cost(plangate: World, api: Caller) -> None:
    before = datetime.now(UTC).date().isoformat()
    await api.register(team())
    thinks(plangate, delegates_twice, kind="openai")
    top = await tree_of(api, (await api.run())["id"])
    called = [w for w in top["below"] if w["kind"] == "model_call"]
    known = [w for w in called if w["agent"] == "chief"]
    assert [round(w["costUsd"], 6) for w in known] == [0.3, 0.6]
    assert {w["priceTable"] for w in known} == {f"genai-prices {version('genai-prices')}"}
    assert {w["priceDate"] for w in known} <= {before, datetime.now(UTC).date().isoformat()}
    unknown = [w for w in called if w["agent"] == "helper"]
    assert [w["usage"] for w in unknown] == [usage(1000, 10)] * 2
    assert {(w["costUsd"], w["priceDate"], w["priceTable"]) for w in unknown} == {(None, None, None)}


async def test_failed_work_keeps_its_usage_and_repeats_count_once(plangate: World, api: Caller) -> None:
    await api.register(specs.spec(specs.agent(model=PRICED)))
    faults = [Overloaded("busy", usage=Usage(1_000_000)), RequestRejected("no", usage=Usage(2_000_000))]

    def fails(_: ModelRequest) -> TurnDone:
        raise faults.pop(0)

    thinks(plangate, fails, kind="openai")
    query = await api.run()
    assert (query["status"], query["error"]["code"]) == ("failed", "provider_rejected_request")
    top = await tree_of(api, query["id"])
    (call,) = (w for w in top["below"] if w["kind"] == "model_call")
    assert (call["status"], call["attempts"], call["usage"]) == ("failed", 2, usage(3_000_000, 0))
    assert call["error"] == {"code": "provider_rejected_request", "message": "no"}
    assert round(call["costUsd"], 6) == 0.45
    assert (top["status"], top["rollup"]["modelCalls"], top["rollup"]["usage"]) == (
        "failed",
        1,
        call["usage"],
    )


async def test_each_attempt_is_priced_separately(plangate: World, api: Caller) -> None:
    """Of this model a token costs twice as much in a prompt of more than 200,000."""
    model = {"id": "claude-sonnet-4-5", "provider": "anthropic"}
    await api.register(specs.spec(specs.agent(model=model)))
    attempts = [Overloaded("busy", usage=Usage(150_000)), says("done", Usage(150_000))]

    def answers(_: ModelRequest) -> TurnDone:
        attempt = attempts.pop(0)
        if isinstance(attempt, Overloaded):
            raise attempt
        return attempt

    thinks(plangate, answers, kind="anthropic")
    query = await api.run()
    assert (query["status"], query["usage"]) == ("succeeded", usage(300_000, 0))
    assert query["costUsd"] == pytest.approx(2 * 0.45)


async def test_a_vendor_can_report_the_cost_of_earlier_attempts(plangate: World, api: Caller) -> None:
    """The name that was asked for is the tenant's own; the model that answers has a price."""
    await api.register(specs.spec(specs.agent(model={"id": "ours", "provider": "openai"})))
    answered = TurnDone((Text("done"),), "end_turn", Usage(1_000_000), PRICED["id"])
    attempts = [Overloaded("busy", usage=Usage(1_000_000)), answered]

    def answers(_: ModelRequest) -> TurnDone:
        attempt = attempts.pop(0)
        if isinstance(attempt, Overloaded):
            raise attempt
        return attempt

    thinks(plangate, answers, kind="openai")
    query = await api.run()
    assert (query["status"], query["usage"], query["costUsd"]) == ("succeeded", usage(2_000_000, 0), 0.3)


@pytest.mark.parametrize(
    "broken", [says("\ud800", Usage(1_000)), calls(*[("look", {})] * 1_001, usage=Usage(1_000))]
)
@pytest.mark.limits(agents=AgentLimits(first_backoff_s=0.01))
async def test_an_unusable_turn_is_paid_for(plangate: World, api: Caller, broken: TurnDone) -> None:
    await api.register(specs.mock())
    turns = [broken, says("done", Usage(10))]
    thinks(plangate, lambda _: turns.pop(0))
    query = await api.run()
    assert (query["status"], query["usage"]) == ("succeeded", usage(1_010, 0))


async def test_canceled_work_keeps_the_usage_of_its_attempts(plangate: World, api: Caller) -> None:
    await api.register(specs.spec(specs.agent(model=PRICED)))

    def busy(_: ModelRequest) -> TurnDone:
        raise Overloaded("busy", retry_after_s=300, usage=Usage(1_000_000))

    thinks(plangate, busy, kind="openai")
    query = (await api.submit())["id"]

    async def repeated() -> Any:
        return await api.events(query, "step-retry") or None

    await eventually(repeated, "the call is repeated")
    await api.do(f"/queries/{query}/cancel")
    top = await tree_of(api, query)
    (call,) = (w for w in top["below"] if w["kind"] == "model_call")
    assert (call["status"], call["usage"], round(call["costUsd"], 6)) == (
        "cancelled",
        usage(1_000_000, 0),
        0.15,
    )
    assert (top["status"], round(top["rollup"]["costUsd"], 6)) == ("cancelled", 0.15)


async def test_a_parked_record_is_waiting(idle: World, plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("pay", approval="always")))
    query = (await api.submit(specs.script(("pay", {"n": 1})), threadKey="t"))["id"]
    await api.until(query, "waiting", "approval")
    queued = (await api.submit("{}", threadKey="t"))["id"]
    found = {w["kind"]: w["status"] for w in (await api.read("/work-records", queryId=query))["items"]}
    waits = "waiting"
    assert found == {"query": waits, "agent": waits, "model_call": "succeeded", "tool_call": waits}
    assert {w["status"] for w in (await api.read(f"/queries/{query}/work"))["items"]} == {waits, "succeeded"}
    assert (await tree_of(api, queued))["status"] == waits
    listed = await api.read("/work-records", status=waits)
    assert [w["kind"] for w in listed["items"]] == ["query", "tool_call", "agent", "query"]
    assert (await api.read("/work-records", status="running"))["items"] == []


async def test_the_list_is_filtered_and_paged(plangate: World, api: Caller) -> None:
    await api.register(team())
    thinks(plangate, delegates_twice, kind="openai")
    first, second = [(await api.run())["id"] for _ in range(2)]
    everything = (await api.read("/work-records", limit=500))["items"]
    assert len(everything) == 20
    ids = [w["id"] for w in everything]
    assert ids == sorted(ids, reverse=True)
    assert not any({"input", "output", "rollup"} & w.keys() for w in everything)
    for filters, count in (
        ({"queryId": first}, 10),
        ({"kind": "agent"}, 6),
        ({"queryId": second, "kind": "model_call"}, 4),
        ({"status": "succeeded"}, 20),
        ({"status": "failed"}, 0),
        ({"queryId": "qry_" + "0" * 26}, 0),
    ):
        expected = [w["id"] for w in everything if all(w[name] == value for name, value in filters.items())]
        assert len(expected) == count
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await api.read("/work-records", limit=3, **filters, **cursor)
            found += [w["id"] for w in page["items"]]
            if page["nextCursor"] is None:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert found == expected, filters


@pytest.mark.parametrize(
    ("path", "params", "pointer", "message"),
    [
        ("/work-records", {"queryID": "qry_1"}, "query:queryID", "unknown parameter; expected one of: "),
        ("/work-records", {"agent": "chief"}, "query:agent", "unknown parameter; expected one of: "),
        ("/work-records", {"status": "done"}, "query:status", "Input should be 'running', 'waiting',"),
        ("/work-records", {"kind": "thing"}, "query:kind", "Input should be 'query', 'agent', 'model_call',"),
        ("/work-records", {"limit": "501"}, "query:limit", "less than or equal to 500"),
        (f"/work-records/{NOBODY}", {"depth": "1"}, "query:depth", "unknown parameter; expected one of: "),
        (f"/work-records/{NOBODY}", {"tree": "deep"}, "query:tree", "Input should be a valid boolean"),
    ],
)
async def test_unknown_parameters_are_rejected(
    api: Caller, path: str, params: dict[str, str], pointer: str, message: str
) -> None:
    (flaw,) = refused(await api.get(path, **params), 422, "invalid")["errors"]
    assert flaw["pointer"] == pointer
    assert message in flaw["message"]


async def test_a_cursor_belongs_to_its_filters(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    await api.run()
    cursor = (await api.read("/work-records", limit=1))["nextCursor"]
    refused(await api.get("/work-records", cursor=cursor, kind="agent"), 400, "malformed")
    refused(await api.get("/work-records", cursor="mine"), 400, "malformed")


@pytest.mark.parametrize("id", [NOBODY, "nothing", "qry_" + "0" * 26, "wrk_%2e%2e"])
async def test_a_missing_record_is_a_404(api: Caller, id: str) -> None:
    assert refused(await api.get(f"/work-records/{id}"), 404)["detail"].startswith(
        "There is no work record '"
    )


async def test_work_of_a_host_is_a_record_without_a_query(api: Caller, plangate: World) -> None:
    await api.register(specs.planning())
    await api.do("/plans", {"specName": "Routing", "body": specs.BODY, "runtime": "default"})
    (work,) = (await api.read("/work-records", kind="host"))["items"]
    assert (work["queryId"], work["status"], work["parentId"]) == (None, "succeeded", None)
    alone = await api.read(f"/work-records/{work['id']}", tree="true")
    assert (alone["below"], alone["rollup"]["modelCalls"]) == ([], 0)


# -- many, and large ones

ADD = """
INSERT INTO work_records (tenant_id, id, query_id, thread_id, parent_id, kind, name, agent, status, input_tokens,
                          output, error, ended_at)
SELECT 'acme', 'wrk_7' || lpad(n::text, 25, '0'), $1, $2, coalesce($3, CASE WHEN n % 10 <> 1
       THEN 'wrk_7' || lpad((n - n % 10 + CASE WHEN n % 10 = 0 THEN -9 ELSE 1 END)::text, 25, '0') END), $5, 'x', 'solo',
       'succeeded', 1, $6, $7, now()
  FROM generate_series(1, $4::int) n
"""


async def grown(api: Caller, owner: Any, count: int, **bodies: bytes) -> dict[str, Any]:
    """A query that has so many model calls more."""
    await api.register(specs.mock())
    query = await api.run()
    (agent,) = (await api.read("/work-records", queryId=query["id"], kind="agent"))["items"]
    args = [query["id"], query["threadId"], agent["id"], count, "model_call"]
    await owner.execute(ADD, *args, bodies.get("output"), bodies.get("error"))
    return query


async def test_a_tree_of_ten_thousand_records_is_whole_and_read_by_its_index(
    plangate: World, api: Caller, owner: Any
) -> None:
    query = await grown(api, owner, 9_997)  # beside those of the run itself
    top = await tree_of(api, query["id"])
    assert len(top["below"]) == 9_999
    assert top["rollup"]["modelCalls"] == 9_998
    assert top["rollup"]["usage"]["inputTokens"] == query["usage"]["inputTokens"] + 9_997
    assert top["rollup"] == (await api.read(f"/work-records/{top['id']}"))["rollup"]
    await owner.execute("ANALYZE work_records")
    for sql, args in (
        (store.TREE, (query["id"], MAX_TREE_RECORDS)),
        (store.PAGE, (None, None, "failed", 50, MAX_SCANNED_RECORDS)),
        (store.PAGE_OF_QUERY, (None, None, "failed", 50, MAX_SCANNED_RECORDS, query["id"])),
    ):
        plan = "\n".join(r[0] for r in await plangate.sql("EXPLAIN " + sql, "acme", *args))
        assert "Seq Scan on work_records" not in plan, plan


async def test_too_many_records_for_a_tree_are_read_in_pages(api: Caller, owner: Any) -> None:
    query = await grown(api, owner, MAX_TREE_RECORDS)
    told = refused(await api.get(f"/work-records/{root_of(query['id'])}", tree="true"), 422, "invalid")[
        "detail"
    ]
    assert told == (
        f"The query has more than {MAX_TREE_RECORDS} work records, too many for one tree. Read them in pages, "
        f"GET /work-records?queryId={query['id']}, and this record without tree."
    )
    alone = await api.read(f"/work-records/{root_of(query['id'])}")
    assert alone["rollup"]["modelCalls"] == MAX_TREE_RECORDS + 1


async def test_a_page_examines_a_bounded_number_and_the_next_continues(api: Caller, owner: Any) -> None:
    query = await grown(api, owner, MAX_SCANNED_RECORDS + 10)
    for filters in ({}, {"queryId": query["id"]}):
        page = await api.read("/work-records", kind="agent", **filters)
        assert page["items"] == []
        page = await api.read("/work-records", kind="agent", cursor=page["nextCursor"], **filters)
        assert ([w["name"] for w in page["items"]], page["nextCursor"]) == (["solo"], None)


async def test_new_work_does_not_shift_pages(plangate: World, api: Caller, owner: Any) -> None:
    query = await grown(api, owner, MAX_SCANNED_RECORDS + 10)
    wanted = "SELECT id FROM work_records WHERE kind <> 'agent' ORDER BY id DESC OFFSET $1 LIMIT 1"
    last = await owner.fetchval(wanted, MAX_SCANNED_RECORDS - 1)

    class Busy(Tx):
        async def value(self, sql: str, *args: Any) -> Any:
            await owner.execute(
                "INSERT INTO work_records (tenant_id, id, thread_id, kind, name, agent, status) "
                "SELECT 'acme', 'wrk_7z' || lpad(n::text, 24, '0'), $1, 'host', 'x', '', 'succeeded' "
                "FROM generate_series(1, 5) n",
                query["threadId"],
            )
            return await super().value(sql, *args)

    async with plangate.services.db.transaction("acme") as tx:
        assert await page(Busy(tx.raw, "acme"), WorkFilter(kind="agent"), 50) == ([], last)


async def test_large_bodies_are_on_their_records(api: Caller, owner: Any) -> None:
    size = 1024 * 1024
    fit = MAX_LIST_BODY_BYTES // size
    query = await grown(api, owner, fit + 1, output=b'"' + b"x" * (size - 2) + b'"')
    items = (await api.read(f"/queries/{query['id']}/work"))["items"]
    assert len(items) == fit + 4
    made = items[3:]
    assert [len(w.get("output", "")) for w in made[: fit - 1]] == [size - 2] * (fit - 1)
    assert [w.get("bodiesLeftOut") for w in items] == [None] * (fit + 2) + [True] * 2
    assert "output" not in made[-1]
    assert len((await api.read(f"/work-records/{made[-1]['id']}"))["output"]) == size - 2
    assert not any("output" in w for w in (await tree_of(api, query["id"]))["below"])


async def test_a_long_error_is_on_its_record(api: Caller, owner: Any) -> None:
    error = b'{"code":"tool_error","message":"' + b"x" * 5000 + b'"}'
    query = await grown(api, owner, 1, error=error)
    (work,) = (w for w in (await tree_of(api, query["id"]))["below"] if "error" in w)
    told = {
        "code": "too_long",
        "message": f"The error has 5034 bytes: GET /work-records/{work['id']} has it.",
    }
    assert work["error"] == told
    (listed,) = (w for w in (await api.read("/work-records"))["items"] if "error" in w)
    assert listed["error"] == told
    assert (await api.read(f"/work-records/{work['id']}"))["error"]["message"] == "x" * 5000


async def test_bytes_kept_out_of_prompts_are_in_the_rollups(api: Caller) -> None:
    agent = specs.agent(toolkits=["references"])
    await api.register(
        specs.scripted(agents=[agent], references=[{"name": "Seats", "schema": {"type": "array"}}])
    )
    made = await api.do("/references", {"kind": "Seats", "value": ["x" * 1000] * 100})
    read = {"kind": "Seats", "id": made["id"]}
    query = await api.run(specs.script(("resolveRef", read), ("resolveRef", {**read, "path": "length(@)"})))
    size = made["sizeBytes"]
    top = await tree_of(api, query["id"])
    expected = {"uses": 2, "sizeBytes": 2 * size, "promptBytes": 3, "keptOutBytes": 2 * size - 3}
    assert top["rollup"]["references"] == expected
    first, second = (w["rollup"]["references"] for w in top["below"] if w["kind"] == "tool_call")
    assert (first["keptOutBytes"], second["keptOutBytes"]) == (size, size - 3)
    assert (await api.read(f"/work-records/{top['id']}"))["rollup"]["references"] == expected


async def test_ids_of_other_kinds_are_not_work_records(api: Caller) -> None:
    refused(await api.get(f"/work-records/{new_id('art_')}"), 404, "not_found")
