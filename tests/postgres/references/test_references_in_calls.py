"""References used by agents and tools, and their entries on work records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.base.ids import new_id
from tests.support import specs
from tests.support.client import Caller, good, inner, output_of, refused
from tests.support.world import World

KINDS = [{"name": "Seats", "schema": {"type": "array"}}]
KEPT = 64 * 1024


async def used(api: Caller, query_id: str) -> list[dict[str, Any]]:
    """What the work of a query did with references, in its order, with the name of the work."""
    items = (await api.read(f"/queries/{query_id}/work"))["items"]
    return [{"work": item["name"], **use} for item in items for use in item.get("references", [])]


async def clerk(api: Caller, *tools: Any) -> None:
    agent = specs.agent(toolkits=["references"], tools=[tool["name"] for tool in tools])
    await api.register(specs.scripted(*tools, agents=[agent], references=KINDS))


def handle(made: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": made["kind"], "id": made["id"], **more}


async def asked(api: Caller, *calls: tuple[str, dict[str, Any]]) -> tuple[str, list[Any]]:
    """The query, and what its model read."""
    script = {**json.loads(specs.script(*calls)), "answer": {"$result": "@"}}
    query = await api.run(json.dumps(script))
    return query["id"], json.loads(query["output"])


async def test_bytes_read_by_a_model_are_counted_separately(api: Caller) -> None:
    await clerk(api)
    small = await api.do("/references", {"kind": "Seats", "value": ["1A", "2B"]})
    large = await api.do("/references", {"kind": "Seats", "value": ["x" * 1000] * 100})
    other = await api.do("/references", {"kind": "Seats", "value": ["y" * 1000] * 100})
    query, _ = await asked(
        api,
        ("resolveRef", handle(small)),
        ("glimpseRef", handle(small)),
        ("resolveRef", handle(large)),
        ("resolveRef", handle(other, path="[0][:5]")),
        ("resolveRef", handle(other, path="length(@)")),
        ("resolveRef", handle(other, path="[")),
        ("resolveRef", {"kind": "Seats", "id": "nothing"}),
    )
    resolve = {"work": "resolveRef", "use": "resolve"}
    shown = {"id": large["id"], "kind": "Seats", "sizeBytes": large["sizeBytes"]}
    assert await used(api, query) == [
        {**resolve, **handle(small), "sizeBytes": small["sizeBytes"], "promptBytes": small["sizeBytes"]},
        {**resolve, **shown, "promptBytes": 0},
        {**resolve, **shown, "id": other["id"], "promptBytes": len("null")},
        {**resolve, **shown, "id": other["id"], "promptBytes": len("100")},
    ]


async def test_a_part_that_is_too_large_is_described_without_its_value(api: Caller) -> None:
    await clerk(api)
    made = await api.do("/references", {"kind": "Seats", "value": [{"text": "x" * 100_000, "n": 1}]})
    _, (part, field) = await asked(
        api,
        ("resolveRef", handle(made, path="[0]")),
        ("resolveRef", handle(made, path="[0].n")),
    )
    size = f"an object of 2 keys and has 100017 bytes, more than {KEPT}"
    known = {"glimpse": made["glimpse"], "sizeBytes": made["sizeBytes"]}
    assert part == {**handle(made, path="[0]"), **known, "note": f"That part is {size}: ask for less."}
    assert field == {"value": 1, "glimpse": made["glimpse"]}


async def test_a_runtime_sets_how_large_a_result_in_a_prompt_may_be(api: Caller) -> None:
    """It bounds what `resolveRef` returns as well."""
    add, agent = specs.tool("add"), specs.agent(toolkits=["references"], tools=["add"])
    for limit, is_inline in ((4096, False), (131_072, True)):
        limits = {"toolResultMaxBytes": limit}
        await api.register(specs.scripted(add, agents=[agent], references=KINDS, limits=limits))
        made = await api.do("/references", {"kind": "Seats", "value": ["x" * 100_000]})
        query = await api.submit(specs.script(("add", {"n": 1}), ("resolveRef", handle(made))))
        await api.serve("add", "y" * (5000 if limit == 4096 else 100_000))
        added, resolved = (answer["result"] for answer in output_of(await api.ended(query["id"])))
        assert (isinstance(added, str), "shownBytes" in resolved) == (is_inline, is_inline)
    for limit in (1023, 1024 * 1024 + 1):
        spec = specs.scripted(limits={"toolResultMaxBytes": limit})
        refused(await api.post("/runtimes", spec), 422)


@pytest.mark.long
async def test_expensive_paths_into_very_large_values_are_bounded(api: Caller) -> None:
    await clerk(api)
    value = [{"id": n, "name": f"item {n}"} for n in range(50_000)]
    made = await api.do("/references", {"kind": "Seats", "value": value})
    assert made["sizeBytes"] > 1024 * 1024
    bomb = " | ".join(["[@,@]"] * 40)
    query, answers = await asked(
        api,
        ("resolveRef", handle(made, path="[?id == `49999`].name | [0]")),
        ("resolveRef", handle(made, path="[*].name")),
    )
    assert answers[0] == {"value": "item 49999", "glimpse": made["glimpse"]}
    assert answers[1]["note"].startswith("That part is an array of 50000 items and has ")
    wrong = await api.run(
        specs.script(
            ("resolveRef", handle(made, path=bomb)),
            ("resolveRef", handle(made, path="[")),
        )
    )
    errors = [result["error"] for result in output_of(wrong)]
    assert "the expression needs too many steps for this value" in errors[0]
    assert "not a JMESPath expression that works here" in errors[1]
    assert [use["promptBytes"] for use in await used(api, query)] == [len('"item 49999"'), 0]


async def test_a_result_with_handle_and_glimpse_passes_unchanged(plangate: World, api: Caller) -> None:
    find = specs.tool("find")
    await clerk(api, find)
    query = await api.submit(specs.script(("find", {"n": 1})))
    (call,) = await api.claim("find")
    body = {"kind": "Seats", "value": ["1A"], "workId": call["workId"]}
    made = await api.do("/references", body)
    result = {"kind": made["kind"], "id": made["id"], "glimpse": made["glimpse"]}
    good(await api.result(call, result))
    ended = await api.ended(query["id"])
    assert [r["result"] for r in output_of(ended)] == [result]
    *_, told = await api.events(query["id"], "tool-invocation")
    assert told["result"] == result
    assert await plangate.value("SELECT count(*) FROM reference_values") == 1


async def test_references_used_by_a_handler_are_on_its_work_record(api: Caller) -> None:
    await clerk(api, specs.tool("find"))
    query = await api.submit(specs.script(("find", {"n": 1})))
    (call,) = await api.claim("find")
    body = {"kind": "Seats", "value": ["1A"], "workId": call["workId"]}
    made = await api.do("/references", body)
    good(await api.post("/references", body))
    where = f"/references/Seats/{made['id']}"
    for _ in range(2):
        assert await api.read(where, workId=call["workId"]) == ["1A"]
    await api.read(where)
    await api.read(f"{where}/glimpse")
    refused(await api.get(where, workId=new_id("wrk_")), 404, "not_found")
    good(await api.result(call, 1))
    await api.ended(query["id"])
    both = {"work": "find", **handle(made), "sizeBytes": 6, "promptBytes": 0}
    assert await used(api, query["id"]) == [{**both, "use": "create"}, {**both, "use": "resolve"}]
    assert (await api.read("/references"))["items"][0]["workId"] == call["workId"]
    (told,) = await api.events(query["id"], "reference-created")
    assert (told["workId"], told["data"]["sizeBytes"]) == (call["workId"], 6)


async def test_a_work_id_of_another_tenant_is_rejected(plangate: World, api: Caller) -> None:
    await clerk(api, specs.tool("find"))
    await plangate.other.register(specs.mock(references=KINDS, tenant="other"))
    await api.submit(specs.script(("find", {"n": 1})))
    (call,) = await api.claim("find")
    made = await plangate.other.do("/references", {"kind": "Seats", "value": []})
    where = f"/references/Seats/{made['id']}"
    refused(await plangate.other.get(where, workId=call["workId"]), 404, "not_found")
    assert await plangate.value("SELECT count(*) FROM reference_uses") == 0


async def test_a_result_that_overflows_is_created_by_its_call(api: Caller) -> None:
    await clerk(api, specs.tool("find"))
    query = await api.submit(specs.script(("find", {"n": 1}), ("find", {"n": 2})))
    rows = {"rows": ["x" * 1000] * 100, "glimpse": {"rows": 100}}
    first = await api.serve("find", rows)
    boasting = {**rows, "glimpse": "x" * 5000}
    await api.serve("find", boasting)
    results = [r["result"] for r in output_of(await api.ended(query["id"]))]
    assert results[0]["glimpse"] == {"rows": 100}
    assert results[1]["glimpse"]["…"] == "cut to 4096 bytes"
    uses = await used(api, query["id"])
    assert [(use["use"], use["kind"], use["id"]) for use in uses] == [
        ("create", "ToolResult", result["id"]) for result in results
    ]
    assert [use["sizeBytes"] for use in uses] == [
        len(json.dumps(v, separators=(",", ":"))) for v in (rows, boasting)
    ]
    created = (await api.read("/references"))["items"][1]
    assert created["workId"] == first["workId"]


async def test_hydration_is_on_the_record_of_the_action(api: Caller) -> None:
    await api.register(specs.planning(references=KINDS))
    made = [await api.do("/references", {"kind": "Seats", "value": [seat]}) for seat in ("1A", "2B")]
    body = {"actions": [{**specs.BOOK, "references": [handle(m) for m in made]}]}
    query = (await api.submit(specs.store_and_execute(body)))["id"]
    await api.approve(query)
    call = await api.serve("actions", {"entitiesAffected": 1})
    assert inner(output_of(await api.ended(query))[1])["status"] == "executed"
    items = (await api.read(f"/queries/{query}/work"))["items"]
    (action,) = (item for item in items if item["kind"] == "action")
    assert action["id"] == call["workId"]
    assert sorted(action["references"], key=lambda use: use["id"]) == [
        {"use": "hydrate", **handle(m), "sizeBytes": 6, "promptBytes": 0}
        for m in sorted(made, key=lambda m: m["id"])
    ]
    assert [item["name"] for item in items if "references" in item] == [action["name"]]
