"""Variables and large documents, processed in separate processes with the same rules and messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.base.json.process_pool import JsonProcessPool, ProcessLimits
from app.documents.call_writes import prepare
from app.documents.models import Author, DocumentId, WriteRequest
from app.documents.writing import WriteRejected
from app.tools.claims import ClaimLimits
from tests.postgres.approvals.test_gates import together
from tests.postgres.variables.test_state import Pen, ref, thread
from tests.postgres.variables.test_variables import ANY, LOOK, served, spec, state
from tests.support import specs
from tests.support.client import Caller, eventually, good, output_of
from tests.support.json_processes import note_functions
from tests.support.world import World

MIB = 1024 * 1024


def large_rows(mib: float = 1.5) -> list[Any]:
    return [{"id": n, "text": "†state.x " + "y" * 90, "none": None} for n in range(int(mib * MIB / 125))]


@pytest.mark.long
async def test_writers_in_two_processes_are_ordered(plangate: World, second: World, api: Caller) -> None:
    """Large documents too, whose next version is made before the transaction: one that was made from an older version
    is made again."""
    found = await thread(api)
    document = DocumentId.state(found)
    await Pen(plangate, found).write("†state.rows", large_rows())

    async def push(world: World, n: int) -> int:
        documents, db = world.services.documents, world.services.db
        write = WriteRequest(document, ref("†state.l"), "push", n)
        prepared = await prepare(db, "acme", documents, write)
        author = Author(f"wrk_{n}", "qry_1", "solo")
        async with db.transaction("acme") as tx:
            row = await documents.write(tx, write, author, prepared)
        return row.n

    numbers = await asyncio.gather(*(push(world, n) for n, world in enumerate([plangate, second] * 2)))
    assert sorted(numbers) == [2, 3, 4, 5]
    held = (await api.read(f"/threads/{found}/state"))["document"]["l"]
    assert [held[n - 2] for n in numbers] == [0, 1, 2, 3]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that processes ran."""
    return note_functions(monkeypatch)


@pytest.mark.long
async def test_a_large_state_behaves_like_a_small_one(api: Caller, turns: list[str]) -> None:
    """Written to, read, shown as it was, forked, listed in a prompt and passed on: in helper processes."""
    await api.register(spec())
    rows = large_rows()
    query = await api.submit(
        specs.script(
            ("look", {"_outputPath": "†state.rows"}),
            ("look", {"_outputPath": "†state.list", "_outputMethod": "push"}),
            ("pay", {"n": "†state.rows.7.id"}),
            ("pay", {"rows": "†state.rows"}),
            ("look", {"a": "†state.rwos"}),
            ("look", {"_outputPath": "†state.list", "_outputMethod": "merge"}),
        ),
        threadKey="t",
    )
    await served(api, query["id"], "look", rows)
    await served(api, query["id"], "look", 1)
    assert await served(api, query["id"], "pay") == {"n": 7}
    assert await served(api, query["id"], "pay") == {"rows": rows}
    await api.serve("look", {"a": 1})
    results = output_of(await api.ended(query["id"]))
    assert results[0]["result"]["glimpse"]["count"] == len(rows)
    assert "did you mean 'rows'?" in results[4]["error"]
    assert "merge needs an object to write to, and there is an array of 1" in results[5]["error"]
    assert turns.count("apply_change") == 3
    assert turns.count("fill_record") == 3
    assert await state(api, query) == {"rows": rows, "list": [1]}
    assert await state(api, query, at=1) == {"rows": rows}
    assert await state(api, query, at=0) == {}
    fork = await api.do(f"/threads/{query['threadId']}/fork", {"at": 1})
    assert (await api.read(f"/threads/{fork['id']}/state"))["document"] == {"rows": rows}
    (first,) = (await api.read(f"/threads/{fork['id']}/state/log"))["items"]
    assert first["glimpse"] == {"rows": {"count": len(rows)}} or first["glimpse"]["rows"]["count"] == len(
        rows
    )
    turns.clear()
    later = await api.submit(specs.script(("pay", {"n": "†state.list.0"})), threadKey="t")
    assert await served(api, later["id"], "pay") == {"n": 1}
    await api.ended(later["id"])
    assert turns == ["prompt_section", "fill_record"]


@pytest.mark.long
async def test_a_large_value_passes_a_gate_like_any_other(api: Caller) -> None:
    gated = specs.tool("pay", approval="always", **ANY)
    await api.register(spec(LOOK, gated))
    rows = large_rows()
    query = await api.submit(
        specs.script(("look", {"_outputPath": "†state.rows"}), ("pay", {"rows": "†state.rows", "n": 1}))
    )
    await served(api, query["id"], "look", rows)
    gate = await api.gate(query["id"])
    (told,) = gate["glimpses"]["variables"]
    assert (told["variable"], told["type"]) == ("†state.rows", f"an array of {len(rows)}")
    assert gate["glimpses"]["args"]["n"] == 1
    assert gate["glimpses"]["args"]["rows"]["sizeBytes"] == told["sizeBytes"] > MIB
    assert (await api.read(f"/approvals/{gate['id']}/subject"))["args"] == {"rows": rows, "n": 1}
    good(await api.decide(gate["id"], digest=gate["digest"]))
    assert await served(api, query["id"], "pay") == {"rows": rows, "n": 1}
    await api.ended(query["id"])


@pytest.mark.limits(claims=ClaimLimits(max_bytes=5000))
async def test_a_claim_returns_no_more_arguments_than_fit(plangate: World, api: Caller) -> None:
    """The next claim gets the rest; a single call is always returned."""
    await api.register(spec(data={"big": "x" * 2000, "huge": "x" * 6000}))
    names = ("big", "big", "huge", "big")
    query = await together(plangate, *(("look", {"n": n, "a": f"†{name}"}) for n, name in enumerate(names)))

    async def open_calls() -> Any:
        rows = (await api.read("/tool-calls", queryId=query))["items"]
        return len(rows) == len(names) or None

    await eventually(open_calls, "all calls are offered")
    counts = []
    while calls := (await api.do("/tool-calls/claim", {"tools": [{"name": "look"}], "max": 10}))["calls"]:
        counts.append(len(calls))
        for call in calls:
            good(await api.result(call, 1))
    assert sum(counts) == 4
    assert max(counts) == 2 and len(counts) in (3, 4)
    await api.ended(query)


async def test_a_call_bounds_its_references_like_a_dispatch(api: Caller, owner: Any) -> None:
    await api.register(spec(references=[{"name": "Seats", "schema": {"type": "array"}}]))
    made = [await api.do("/references", {"kind": "Seats", "value": [n]}) for n in range(3)]
    await owner.execute("UPDATE reference_values SET size_bytes = $1", 30 * MIB)
    used = [f"†ref.Seats.{m['id']}" for m in made]
    query = await api.submit(specs.script(("look", {"a": used}), ("look", {"a": used[:2]})))
    await api.serve("look")
    first, second = output_of(await api.ended(query["id"]))
    assert first["error"] == f"The call was not made. One call may use {64 * MIB} bytes of references."
    assert "error" not in second


@pytest.mark.long
async def test_a_large_document_keeps_to_its_rules(
    plangate: World, api: Caller, turns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await thread(api)
    pen = Pen(plangate, found)
    schema = {"properties": {"n": {"type": "integer"}}}
    await pen.write("†state.rows", large_rows(), schema=schema)
    for path, value, method, why in (
        ("†state.n", "x", "set", 'stateSchema: /n: must be integer, not "x"'),
        ("†state.rows", "x", "concat", "concat cannot join a string to an array of"),
        ("†state", [], "set", "the state of a thread is an object, and would be an array of 0"),
        ("†state.big", "x" * (16 * MIB), "set", f"bytes of JSON, more than {16 * MIB}: write less"),
    ):
        with pytest.raises(WriteRejected) as error:
            await pen.write(path, value, method, schema=schema)
        assert why in str(error.value)
    assert turns == ["apply_change"] * 5
    assert (await api.read(f"/threads/{found}/state"))["write"] == 1


async def test_a_write_that_needs_too_much_memory_is_rejected(plangate: World, api: Caller) -> None:
    """The call fails, the query goes on, and the next call finds everything as it was."""
    await api.register(spec())
    query = await api.submit(
        specs.script(
            ("look", {"_outputPath": "†state.rows"}),
            ("look", {"_outputPath": "†state.more"}),
            ("pay", {"n": "†state.rows.0.id"}),
        )
    )
    await served(api, query["id"], "look", large_rows())
    (call,) = await api.claim("look")
    plangate.services.documents._processes = JsonProcessPool(ProcessLimits(memory_bytes=1))
    good(await api.result(call, 1))
    assert await served(api, query["id"], "pay") == {"n": 0}
    results = output_of(await api.ended(query["id"]))
    assert results[1]["error"] == (
        "look ran, but its result was not written: the document exceeds the processing limit for a single document: "
        "keep a large value as a reference and write its handle. Its result: 1"
    )
    shown = await api.read(f"/threads/{query['threadId']}/state")
    assert (shown["write"], list(shown["document"])) == (1, ["rows"])
