"""References: the same value is the same handle, kept out of prompts, gone when its time is over."""

from __future__ import annotations

import json
from typing import Any

from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.world import World

KINDS = [
    {"name": "Seats", "schema": {"type": "array", "items": {"type": "string"}}},
    {"name": "Brief", "schema": {"type": "object"}, "ttlMs": 60_000},
    {
        "name": "Cart",
        "schema": {"type": "object", "properties": {"ids": {"type": "array"}}, "required": ["ids"]},
        "glimpse": {"count": "length(ids)", "first": "ids[:2]"},
    },
]
EXPIRE = "UPDATE reference_values SET expires_at = now() - interval '1 s' WHERE expires_at IS NOT NULL"


async def kinds(api: Caller, **parts: Any) -> None:
    await api.register(specs.mock(references=KINDS, **parts))


async def test_the_same_value_is_stored_once_under_one_handle(plangate: World, api: Caller) -> None:
    await kinds(api)
    first = await api.post("/references", {"kind": "Cart", "value": {"ids": [1, 2, 3], "x": None}})
    same = await api.post("/references", {"kind": "Cart", "value": {"x": None, "ids": [1, 2, 3]}})
    assert (first.status_code, same.status_code) == (201, 200)
    made = good(first)
    assert good(same) == made
    assert first.headers["location"] == f"/references/Cart/{made['id']}"
    assert made["glimpse"] == {"count": 3, "first": [1, 2]}
    assert made["expiresAt"] is None
    stored = await api.get(f"/references/Cart/{made['id']}")
    assert stored.content == b'{"ids":[1,2,3],"x":null}'
    assert made["sizeBytes"] == len(stored.content)
    assert await api.read(f"/references/Cart/{made['id']}/glimpse") == made
    assert await plangate.value("SELECT count(*) FROM reference_values") == 1
    other = await api.post("/references", {"kind": "Cart", "value": {"ids": [1.0, 2, 3], "x": None}})
    assert good(other)["id"] != made["id"]


async def test_a_value_matches_its_kind_or_is_refused_with_the_place(api: Caller) -> None:
    await kinds(api)
    body = refused(await api.post("/references", {"kind": "Seats", "value": ["1A", 2]}), 422)
    assert body["errors"][0]["pointer"] == "/value/1"
    body = refused(await api.post("/references", {"kind": "Sofas", "value": []}), 422)
    assert body["errors"] == [{"pointer": "/kind", "message": "declared are: Brief, Cart, Seats"}]


async def test_past_its_time_it_is_gone_and_not_merely_absent(
    plangate: World, api: Caller, owner: Any
) -> None:
    await kinds(api)
    made = await api.do("/references", {"kind": "Brief", "value": {"a": 1}})
    path = f"/references/Brief/{made['id']}"
    assert made["expiresAt"]
    await owner.execute(EXPIRE)
    for _ in range(2):
        refused(await api.get(path), 410, "reference_expired")
        refused(await api.get(f"{path}/glimpse"), 410, "reference_expired")
        assert (await api.read("/references"))["items"] == []
        await plangate.services.references.sweep()
    assert await plangate.value("SELECT value FROM reference_values") is None
    refused(await api.get("/references/Brief/" + "0" * 64), 404, "reference_not_found")
    again = await api.post("/references", {"kind": "Brief", "value": {"a": 1}})
    assert good(again)["id"] == made["id"]
    assert (await api.get(path)).json() == {"a": 1}


async def test_the_later_expiry_and_the_first_glimpse_stand(api: Caller, owner: Any) -> None:
    await kinds(api)
    first = await api.do("/references", {"kind": "Brief", "value": {"a": 1}, "glimpse": {"g": 1}})
    second = await api.do("/references", {"kind": "Brief", "value": {"a": 1}, "glimpse": {"g": 2}})
    assert second["glimpse"] == {"g": 1}
    assert second["expiresAt"] >= first["expiresAt"]
    await owner.execute("UPDATE reference_values SET expires_at = now() + interval '1 day'")
    later = await api.do("/references", {"kind": "Brief", "value": {"a": 1}})
    assert later["expiresAt"][:10] > first["expiresAt"][:10]


async def test_a_deleted_value_is_not_there(api: Caller) -> None:
    await kinds(api)
    made = await api.do("/references", {"kind": "Seats", "value": ["1A"]})
    path = f"/references/Seats/{made['id']}"
    good(await api.delete(path))
    refused(await api.get(path), 404, "reference_not_found")
    refused(await api.delete(path), 404, "reference_not_found")


async def test_large_values_are_the_point_up_to_a_size(api: Caller) -> None:
    await kinds(api)
    value = ["x" * 1000] * 8000
    made = await api.do("/references", {"kind": "Seats", "value": value})
    assert made["sizeBytes"] > 8_000_000
    assert made["glimpse"]["count"] == 8000
    assert len(json.dumps(made["glimpse"])) <= 4096 + 100
    assert (await api.get(f"/references/Seats/{made['id']}")).json() == value
    too_much = ["x" * (16 * 1024 * 1024)]
    refused(await api.post("/references", {"kind": "Seats", "value": too_much}), 413, "too_large")
    far_too_much = ["x" * (17 * 1024 * 1024)]
    refused(await api.post("/references", {"kind": "Seats", "value": far_too_much}), 413, "too_large")


async def test_a_glimpse_is_small(api: Caller) -> None:
    await kinds(api)
    body = {"kind": "Seats", "value": ["1A"], "glimpse": {"g": "x" * 5000}}
    assert "4096" in refused(await api.post("/references", body), 422)["detail"]


async def test_handles_are_listed_newest_first_by_kind_and_page(api: Caller) -> None:
    await kinds(api)
    made = [await api.do("/references", {"kind": "Seats", "value": [str(n)]}) for n in range(5)]
    await api.do("/references", {"kind": "Cart", "value": {"ids": []}})
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await api.read("/references", kind="Seats", limit=2, **cursor)
        assert all("value" not in item for item in page["items"])
        seen += [item["id"] for item in page["items"]]
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert seen == [m["id"] for m in reversed(made)]


async def test_a_result_too_large_for_a_prompt_becomes_a_reference(api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = await api.submit(specs.script(("add", {"n": 1}), ("add", {"n": 2}), ("add", {"n": 3})))
    large = {"rows": ["x" * 100] * 1000, "glimpse": {"rows": 1000}}
    await api.serve("add", large)
    text = "y" * (64 * 1024 + 1)
    await api.serve("add", text)
    fits = "z" * (64 * 1024)
    await api.serve("add", fits)
    first, second, third = (r["result"] for r in output_of(await api.ended(query["id"])))
    assert (first["kind"], first["glimpse"]) == ("ToolResult", {"rows": 1000})
    assert "too many for a prompt" in first["note"]
    assert (await api.get(f"/references/ToolResult/{first['id']}")).json() == large
    assert (await api.get(f"/references/ToolResult/{second['id']}")).json() == text
    assert third == fits
    told = await api.events(query["id"], "reference-created")
    assert [e["data"]["id"] for e in told] == [first["id"], second["id"]]
    assert "x" * 100 not in json.dumps(await api.events(query["id"]))


async def test_an_agent_resolves_glimpses_and_reads_parts(api: Caller, owner: Any) -> None:
    await api.register(specs.scripted(agents=[specs.agent(toolkits=["references"])], references=KINDS))
    small = await api.do("/references", {"kind": "Seats", "value": ["1A", "2B"]})
    large = await api.do("/references", {"kind": "Seats", "value": ["x" * 1000] * 100})
    brief = await api.do("/references", {"kind": "Brief", "value": {}})
    await owner.execute(EXPIRE)

    def ask(made: Any, **more: Any) -> dict[str, Any]:
        return {"kind": made["kind"], "id": made["id"], **more}

    query = await api.run(
        specs.script(
            ("resolveRef", ask(small)),
            ("glimpseRef", ask(small)),
            ("resolveRef", ask(large)),
            ("resolveRef", ask(large, path="length(@)")),
            ("resolveRef", ask(large, path="[")),
            ("resolveRef", ask(brief)),
            ("resolveRef", {"kind": "Seats", "id": "nothing"}),
        )
    )
    whole, glimpse, cut, part, wrong, gone, nothing = (
        r.get("result", r.get("error")) for r in output_of(query)
    )
    assert whole == ["1A", "2B"]
    assert (glimpse["id"], glimpse["glimpse"]) == (small["id"], small["glimpse"])
    assert (cut["id"], cut["sizeBytes"]) == (large["id"], large["sizeBytes"])
    assert "`path`" in cut["note"]
    assert part == 100
    assert "not a JMESPath expression" in wrong
    assert "has expired" in gone
    assert "There is no reference" in nothing
