"""Variables and documents: crashes, lost responses, forks, hostile paths and values."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.documents import store
from app.documents.models import DocumentLimits
from tests.postgres.approvals.test_gates import together
from tests.postgres.variables.test_state import Pen, thread
from tests.postgres.variables.test_variables import ANY, LOOK, served, spec, state
from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.world import World

# -- lost answers, crashes


async def test_a_durable_step_may_run_twice(plangate: World, api: Caller) -> None:
    """The answer to a COMMIT was lost: the verb is run again, and each write stands in the log once."""
    lost = plangate.faults.lose_commits(
        "lease_epoch = $3 AND status = 'running'", times=1000, every_other=True
    )
    gated = specs.tool("pay", approval="always", **ANY)
    await api.register(spec(LOOK, gated))
    query = await api.submit(
        specs.script(
            ("look", {"_outputPath": "†state.a && †made.b", "_outputMethod": "push"}),
            ("look", {"a": "†state.a", "b": "†made", "_outputPath": "†state.a", "_outputMethod": "push"}),
            ("look", {"_outputPath": "†state.x || †state.no"}),
            ("pay", {"n": "†state.a.1", "_outputPath": "†state.paid"}),
            ("look", {"a": "†state.paid"}),
        )
    )
    await served(api, query["id"], "look", 1)
    assert await served(api, query["id"], "look", 2) == {"a": [1], "b": {"b": [1]}}
    await api.serve("look", error="Out of stock.")
    await api.approve(query["id"])
    assert await served(api, query["id"], "pay", "y" * 10) == {"n": 2}
    assert await served(api, query["id"], "look", "z" * 70_000) == {"a": "y" * 10}
    ended = await api.ended(query["id"])
    assert output_of(ended)[4]["result"]["kind"] == "ToolResult"
    assert len((await api.read("/approvals", queryId=query["id"]))["items"]) == 1
    told = [e["type"] for e in await api.events(query["id"])]
    assert (told.count("approval-required"), told.count("reference-created")) == (1, 1)
    assert output_of(ended)[1]["result"]["written"] == [{"path": "†state.a", "method": "push", "write": 2}]
    assert output_of(ended)[2]["error"] == "Out of stock. (This error was written to †state.no.)"
    failed = {"code": "tool_error", "message": "Out of stock."}
    assert await state(api, query) == {"a": [1, 2], "no": failed, "paid": "y" * 10}
    log = (await api.read(f"/threads/{query['threadId']}/state/log"))["items"]
    assert [w["write"] for w in log] == [4, 3, 2, 1]
    assert told.count("state-write") == 5
    assert lost.seen > 10


async def test_a_response_lost_after_the_write_loses_nothing(plangate: World, api: Caller) -> None:
    """The same with an outage in the place of the answer, at the write alone."""
    writes = plangate.faults.probe("INTO document_writes")
    lost = plangate.faults.lose_commits("INTO document_writes")
    await api.register(spec())
    query = await api.submit(specs.script(("look", {"_outputPath": "†state.n", "_outputMethod": "push"})))
    await api.serve("look", 7)
    receipt = output_of(await api.ended(query["id"]))[0]["result"]
    assert lost.seen == 1
    assert receipt["written"] == [{"path": "†state.n", "method": "push", "write": 1}]
    assert await state(api, query) == {"n": [7]}
    assert writes.count == 1


# -- the log


METHODS = ("set", "push", "merge", "assign", "concat")


@pytest.mark.limits(documents=DocumentLimits(checkpoint_writes=5))
async def test_a_thread_can_be_forked_at_any_write(plangate: World, api: Caller) -> None:
    """And each fork is the document as `?at` shows it, byte for byte, whatever the methods were and wherever the
    checkpoints lie."""
    origin = await thread(api)
    pen = Pen(plangate, origin)
    values: dict[str, Any] = {
        "set": {"z": 1.0, "a": -0.0},
        "push": "†state",
        "merge": {"a": {"b": [None]}},
        "assign": {"†": 2**63 - 1},
        "concat": ["é\u2028", ""],
    }
    kinds = {"set": "s", "push": "list", "merge": "o", "assign": "o", "concat": "list"}
    for n in range(12):
        method = METHODS[n % 5]
        await pen.write(f"†state.{kinds[method]}", values[method], method)
    path = f"/threads/{origin}/state"
    seen = []
    for at in range(13):
        shown = (await api.get(path, at=at)).json()
        fork = await api.do(f"/threads/{origin}/fork", {"at": at})
        held = await api.get(f"/threads/{fork['id']}/state")
        document = held.content.partition(b'"document":')[2]
        assert document == (await api.get(path, at=at)).content.partition(b'"document":')[2]
        assert (shown["write"], held.json()["write"]) == (at, 1)
        again = await api.do(f"/threads/{fork['id']}/fork", {"at": 1})
        assert (await api.read(f"/threads/{again['id']}/state"))["document"] == shown["document"]
        (first,) = (await api.read(f"/threads/{fork['id']}/state/log"))["items"]
        assert (first["forkedFrom"], first["workId"]) == (f"{origin}@{at}", None)
        seen.append(json.dumps(shown["document"]))
    assert len(set(seen)) == 9
    assert (await api.read(path))["write"] == 12


@pytest.mark.parametrize("at", ["-1", "x", "1e3", "0.5", "true", "", "9007199254740993", "١", "1 1"])
async def test_a_write_is_named_by_its_number(api: Caller, at: str) -> None:
    found = await thread(api)
    body = refused(await api.get(f"/threads/{found}/state", at=at), 422, "invalid")
    assert [flaw["pointer"] for flaw in body["errors"]] == ["query:at"]
    body = refused(await api.post(f"/threads/{found}/fork", {"at": at}), 422, "invalid")
    assert [flaw["pointer"] for flaw in body["errors"]] == ["/at"]


async def test_a_future_write_number_is_reported(api: Caller) -> None:
    found = await thread(api)
    for at in (1, 2**53):
        told = f"There is no write {at}: the last one is 0."
        assert refused(await api.get(f"/threads/{found}/state", at=at), 404)["detail"] == told
        assert refused(await api.post(f"/threads/{found}/fork", {"at": at}), 404)["detail"] == told
    assert (await api.read("/threads"))["items"][0]["id"] == found


async def test_a_retried_fork_returns_the_first_one(plangate: World, api: Caller) -> None:
    origin = await thread(api)
    pen = Pen(plangate, origin)
    await pen.write("†state.n", 1)
    once = {"headers": {"idempotency-key": "k"}}
    first = await api.post(f"/threads/{origin}/fork", {}, **once)
    await pen.write("†state.n", 2)
    again = await api.post(f"/threads/{origin}/fork", {}, **once)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert (await api.read(f"/threads/{good(first)['id']}/state"))["document"] == {"n": 1}


async def test_a_page_of_the_log_costs_its_own_writes(plangate: World, api: Caller, owner: Any) -> None:
    """It is read from the end of the primary key, and what is large is not read at all."""
    found = await thread(api)
    pen = Pen(plangate, found)
    await pen.write("†state.n", 1)
    await owner.execute(
        "INSERT INTO document_writes (tenant_id, owner_id, kind, n, path, method, value, size_bytes, glimpse, checkpoint,"
        " work_id, query_id, agent) SELECT 'acme', w.owner_id, w.kind, s.n, w.path, w.method, repeat('x', 9000)::bytea,"
        " 9000, w.glimpse, repeat('x', 9000)::bytea, 'wrk_' || s.n, w.query_id, w.agent"
        " FROM document_writes w, generate_series(2, 5000) AS s(n)"
    )
    await owner.execute("ANALYZE document_writes")
    args = ("acme", found, "state", 4000, 51)
    plan = json.loads(await owner.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {store.LOG}", *args))[0]["Plan"]
    deleted, scan = plan["Plans"]  # how far the log was deleted is looked up once
    assert (deleted["Parent Relationship"], deleted["Relation Name"]) == ("InitPlan", "documents")
    assert (deleted["Actual Loops"], deleted["Actual Rows"]) == (1, 1)
    assert (scan["Node Type"], scan["Index Name"]) == ("Index Scan", "document_writes_pkey")
    assert (scan["Scan Direction"], scan["Actual Rows"]) == ("Backward", 51)
    assert scan.get("Rows Removed by Filter", 0) == 0
    page = await api.read(f"/threads/{found}/state/log", limit=500)
    assert [w["write"] for w in page["items"]] == list(range(5000, 4500, -1))
    assert all("value" not in w for w in page["items"])
    kept = json.loads(
        await owner.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {store.CHECKPOINT}", "acme", found, "state", 4000, 0
        )
    )[0]["Plan"]
    (scan,) = kept["Plans"]
    assert scan["Index Name"] in ("document_checkpoints", "document_writes_pkey")
    assert scan["Actual Rows"] == 1
    refused(await api.get(f"/threads/{found}/state/log", limit=501), 422)
    refused(await api.get(f"/threads/{found}/state/log", cursor="x"), 400)


async def test_a_write_records_its_call_and_time(api: Caller) -> None:
    await api.register(spec())
    query = await api.submit(specs.script(("look", {"_outputPath": "†state.n", "_outputMethod": "push"})))
    call = await api.serve("look", {"a": 1})
    await api.ended(query["id"])
    (write,) = (await api.read(f"/threads/{query['threadId']}/state/log"))["items"]
    at = write.pop("at")
    assert write == {
        "write": 1,
        "path": "†state.n",
        "method": "push",
        "value": {"a": 1},
        "sizeBytes": 7,
        "glimpse": {"a": 1},
        "failed": False,
        "workId": call["workId"],
        "queryId": query["id"],
        "agent": "solo",
        "forkedFrom": None,
        "principal": None,
    }
    (told,) = await api.events(query["id"], "state-write")
    created = await api.read(f"/queries/{query['id']}")
    assert created["createdAt"] <= at <= created["endedAt"]
    assert told["workId"] == call["workId"]


async def test_calls_that_write_two_documents_do_not_deadlock(plangate: World, api: Caller) -> None:
    await api.register(spec())
    paths = ("†state.l && †other.l", "†other.l && †state.l")
    calls = (("look", {"n": n, "_outputPath": paths[n % 2], "_outputMethod": "push"}) for n in range(6))
    query = await together(plangate, *calls)
    taken = [(await api.claim("look"))[0] for _ in range(6)]
    await asyncio.gather(*(api.result(call, call["args"]["n"]) for call in taken))
    ended = await api.ended(query)
    held = (await state(api, ended))["l"]
    assert sorted(held) == list(range(6))
    other = await plangate.value("SELECT body FROM documents WHERE kind = 'other'")
    assert sorted(json.loads(other)["l"]) == list(range(6))


# -- hostile calls


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "†state." + ".".join(["a"] * 65),
            "its result was not written: objects and arrays would be nested deeper than 64",
        ),
        ("†state." + "a" * 2000, "_outputPath is a variable of at most 2000 characters"),
        ("†state.a || †ref.K.1", "†ref is read-only"),
        ("†state && †state.a.b.c && †artifact.x", "†artifact is read-only"),
        ("††state.a", '_outputPath is "††state.a": a variable begins with †'),
        ("†state.a ||  †b", "at character 12: a reference begins with †; there are no literals"),
        ('†state."\\ud800"', "which no key can hold"),
        ("†", "at character 1: the kind of a reference has letters"),
        (7, "_outputPath is a variable of at most 2000 characters"),
        (["†state.a"], "_outputPath is a variable of at most 2000 characters"),
        ("†state.a.0", None),
        ("†__proto__.constructor", None),
        ('†state."".""', None),
        ("†state.‮.😀", None),
    ],
)
async def test_hostile_paths_are_resolved_exactly_or_rejected(
    api: Caller, path: Any, said: str | None
) -> None:
    await api.register(spec())
    prompt = json.dumps({"script": [{"tool": "look", "args": {"_outputPath": path}}]})
    query = await api.submit(prompt)
    if said is None or "was not written" in said:
        await api.serve("look", "v")
    ended = await api.ended(query["id"])
    (result,) = output_of(ended)
    if said is not None:
        assert said in result["error"]
        assert await state(api, query) == {}
        return
    (written,) = result["result"]["written"]
    assert written["path"] == path
    (write,) = await api.events(query["id"], "state-write")
    assert write["data"] == written


async def test_values_that_look_like_variables_are_data(api: Caller) -> None:
    """From inputs, data objects, references, state and results: each comes out as it went in, once."""
    odd = {"†state.x": ["†input", "††", "†", "†bad .path", {"_outputPath": "†state.gone"}]}
    await api.register(spec(data={"shop": odd}, references=[{"name": "Odd", "schema": {}}]))
    made = await api.do("/references", {"kind": "Odd", "value": odd})
    uses = {"i": "†input.odd", "d": "†shop", "r": f"†ref.Odd.{made['id']}", "q": "†mine", "e": "††input"}
    query = await api.submit(
        specs.script(
            ("look", {**uses, "_outputPath": "†state.odd"}),
            ("look", {"s": "†state.odd", "k": {"†input.odd": "plain"}, "t": "a †input.odd b"}),
        ),
        inputs={"odd": odd},
        data={"mine": odd},
    )
    wanted = {"i": odd, "d": odd, "r": odd, "q": odd, "e": "†input"}
    assert await served(api, query["id"], "look", odd) == wanted
    again = {"s": odd, "k": {"†input.odd": "plain"}, "t": "a †input.odd b"}
    assert await served(api, query["id"], "look", "†state") == again
    assert output_of(await api.ended(query["id"]))[1]["result"] == "†state"
    assert await state(api, query) == {"odd": odd}


async def test_errors_to_the_model_do_not_quote_values(api: Caller) -> None:
    rows = {"type": "array", "uniqueItems": True, "items": {"maxLength": 30}}
    tool = specs.tool("pay", inputSchema={"type": "object", "properties": {"rows": rows}})
    await api.register(spec(tool))
    query = await api.submit(
        specs.script(
            ("pay", {"rows": ["†input.secret", "†input.secret"]}),
            ("pay", {"rows": ["†input.long"]}),
            ("pay", {"rows": "†input.secret"}),
        ),
        inputs={"secret": "hush hush", "long": "hush " * 100},
    )
    results = output_of(await api.ended(query["id"]))
    assert [r["error"].rpartition(": /")[2] for r in results] == [
        "rows: it does not match the schema",
        'rows/0: "†input.long" is a string that does not match',
        'rows: "†input.secret" is a string, and this must be array',
    ]
    assert "hush" not in json.dumps([results, await api.events(query["id"])])


async def test_an_expression_with_too_many_alternatives_is_rejected(api: Caller) -> None:
    await api.register(spec())
    query = await api.run(
        specs.script(
            ("look", {"a": " || ".join(f"†state.no{n}" for n in range(20_000))}),
            ("look", {"a": " || ".join(f"†state.no{n}" for n in range(900))}),
            ("look", {"a": " || ".join(["†a.b"] * 25_001)}),
            ("look", {"a": "†state" + ".a" * 50_000}),
        )
    )
    first, second, *unread = (result["error"] for result in output_of(query))
    assert first == "The call was not made. One call may have 1000 variables: make several calls."
    many = "The call was not made. The variables of one call have more than 50000 parts in total: make several calls."
    assert unread == [many, many]
    assert second.endswith("; and 895 more alternatives.")
    assert len(second) < 1000


async def test_a_tools_requirement_on_its_path_is_enforced(plangate: World, api: Caller) -> None:
    """A tool may need a path, and say which ones it takes."""
    schema = {
        "type": "object",
        "properties": {
            "_outputPath": {"type": "string", "pattern": "^†state\\.reports\\."},
            "_outputMethod": {"enum": ["push"]},
        },
        "required": ["_outputPath"],
    }
    await api.register(spec(specs.tool("keep", inputSchema=schema)))
    query = await api.submit(
        specs.script(
            ("keep", {}),
            ("keep", {"_outputPath": "†state.x"}),
            ("keep", {"_outputPath": "†state.reports.x", "_outputMethod": "set"}),
            ("keep", {"_outputPath": "†state.reports.x", "_outputMethod": "push"}),
        )
    )
    await api.serve("keep", 1)
    results = output_of(await api.ended(query["id"]))
    assert [r["error"].removeprefix("The call was not made. ") for r in results[:3]] == [
        '/: the property "_outputPath" is missing.',
        '/_outputPath: "†state.x" does not match "^†state\\.reports\\.".',
        '/_outputMethod: must be "push", not "set".',
    ]
    assert results[3]["result"]["written"][0]["write"] == 1
    assert await state(api, query) == {"reports": {"x": [1]}}
    assert await plangate.value("SELECT count(*) FROM outgoing_calls") == 1


async def test_without_the_toolkit_daggers_are_plain_text(api: Caller) -> None:
    """The toolkit is the agent's own: what it calls has its own rules."""
    chief = specs.agent("chief", "coordinator", routes=["plain"], toolkits=["variables"], tools=["look"])
    plain = specs.agent("plain", tools=["look"])
    await api.register(spec(LOOK, agents=[chief, plain]))
    inner = {"script": [{"tool": "look", "args": {"a": "†state.x", "_outputPath": "†state.y"}}]}
    query = await api.submit(
        specs.script(
            ("look", {"_outputPath": "†state.x"}),
            ("call_agent", {"agent": "plain", "prompt": inner}),
            ("look", {"a": "†state.x"}),
        )
    )
    assert await served(api, query["id"], "look", 1) == {}
    assert await served(api, query["id"], "look", 2) == {"a": "†state.x", "_outputPath": "†state.y"}
    assert await served(api, query["id"], "look") == {"a": 1}
    assert (await api.ended(query["id"]))["status"] == "succeeded"
    assert await state(api, query) == {"x": 1}


async def test_every_method_from_a_call(api: Caller) -> None:
    await api.register(spec())
    calls = [
        ("set", {"a": {"x": 1}}),
        ("merge", {"a": {"y": 2}}),
        ("assign", {"b": 1}),
        ("push", 3),
        ("concat", "text"),
    ]
    path = {"set": "o", "merge": "o", "assign": "o", "push": "l", "concat": "t"}
    made = (("look", {"_outputPath": f"†state.{path[m]}", "_outputMethod": m}) for m, _ in calls)
    query = await api.submit(specs.script(*made))
    for _, value in calls:
        await api.serve("look", value)
    receipts = [r["result"]["written"][0]["method"] for r in output_of(await api.ended(query["id"]))]
    assert receipts == [m for m, _ in calls]
    assert await state(api, query) == {"o": {"a": {"x": 1, "y": 2}, "b": 1}, "l": [3], "t": "text"}


@pytest.mark.parametrize(
    ("parts", "pointers"),
    [
        ({}, ["/inputs"]),
        ({"inputs": None}, ["/inputs"]),
        ({"inputs": {"n": "†state.n"}}, ["/inputs/n"]),
        ({"inputs": {"n": 1, "more": 2}}, ["/inputs"]),
        ({"inputs": []}, ["/inputs"]),
        ({"inputs": {"n": 1}, "data": []}, ["/data"]),
        (
            {"inputs": {"n": 1}, "data": {"ref": 1, "input": 1, "artifact": 1}},
            ["/data/ref", "/data/input", "/data/artifact"],
        ),
    ],
)
async def test_inputs_must_match_the_input_schema(api: Caller, parts: Any, pointers: list[str]) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    await api.register(spec(inputSchema=schema))
    body = refused(await api.post("/queries", {"prompt": "x", **parts}), 422, "invalid")
    assert [flaw["pointer"] for flaw in body["errors"]] == pointers
    assert (await api.read("/queries"))["items"] == []
