"""References: equal values share a handle, stay out of prompts, and expire."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import httpx
import pytest

from app.references.service import PIECE_BYTES, ReferenceExpired
from app.references.store import LIST, LIST_OF_KIND
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


async def test_a_value_that_violates_its_kind_is_rejected_with_the_place(api: Caller) -> None:
    await kinds(api)
    body = refused(await api.post("/references", {"kind": "Seats", "value": ["1A", 2]}), 422)
    assert body["errors"][0]["pointer"] == "/value/1"
    body = refused(await api.post("/references", {"kind": "Sofas", "value": []}), 422)
    assert body["errors"] == [{"pointer": "/kind", "message": "declared are: Brief, Cart, Seats"}]


async def test_an_expired_reference_is_gone_rather_than_not_found(
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


@pytest.mark.parametrize("how", ["expired", "swept", "deleted"])
async def test_an_expired_reference_can_be_created_again(idle: World, owner: Any, how: str) -> None:
    api = idle.api
    await kinds(api)
    body = {"kind": "Brief", "value": {"a": 1}}
    made = await api.do("/references", {**body, "glimpse": {"g": 1}})
    path = f"/references/Brief/{made['id']}"
    if how == "deleted":
        good(await api.delete(path))
    else:
        await owner.execute(EXPIRE)
    if how == "swept":
        assert await idle.services.references.sweep() == 1
    again = await api.post("/references", {**body, "glimpse": {"g": 2}})
    assert again.status_code == 201
    assert good(again)["glimpse"] == {"g": 2}
    assert good(again)["createdAt"] > made["createdAt"]
    assert good(again)["expiresAt"] > made["expiresAt"]
    assert (await api.get(path)).json() == {"a": 1}
    assert (await api.post("/references", body)).status_code == 200


async def test_a_ttl_of_zero_expires_at_once(api: Caller) -> None:
    await api.register(specs.mock(references=[{"name": "Flash", "schema": {"type": "object"}, "ttlMs": 0}]))
    made = await api.do("/references", {"kind": "Flash", "value": {}})
    assert made["expiresAt"] == made["createdAt"]
    refused(await api.get(f"/references/Flash/{made['id']}"), 410, "reference_expired")


async def test_concurrent_creations_make_one_reference(plangate: World, api: Caller) -> None:
    await kinds(api)
    body = {"kind": "Seats", "value": ["1A"]}
    answers = await asyncio.gather(*(api.post("/references", body) for _ in range(5)))
    assert sorted(a.status_code for a in answers) == [200, 200, 200, 200, 201]
    assert len({a.content for a in answers}) == 1
    assert await plangate.value("SELECT count(*) FROM reference_values") == 1


async def test_ids_reveal_nothing_to_other_tenants(plangate: World, api: Caller) -> None:
    await kinds(api)
    await plangate.other.register(specs.mock(references=KINDS, tenant="other"))
    body = {"kind": "Seats", "value": ["1A"]}
    mine = await api.do("/references", body)
    theirs = await plangate.other.post("/references", body)
    assert theirs.status_code == 201
    assert good(theirs)["id"] != mine["id"]
    path = f"/references/Seats/{mine['id']}"
    for method, where in (("GET", path), ("GET", f"{path}/glimpse"), ("DELETE", path)):
        foreign = await plangate.other.request(method, where)
        nowhere = await plangate.other.request(method, where.replace(mine["id"], "0" * 64))
        refused(foreign, 404, "reference_not_found")
        assert foreign.text.replace(mine["id"], "") == nowhere.text.replace("0" * 64, "")
    assert [r["id"] for r in (await plangate.other.read("/references"))["items"]] == [good(theirs)["id"]]


async def test_an_id_reveals_nothing_about_a_small_value(api: Caller) -> None:
    await kinds(api)
    made = await api.do("/references", {"kind": "Seats", "value": ["1A"]})
    guesses = [b'["1A"]', b'Seats["1A"]', b'Seats\0["1A"]']
    assert made["id"] not in [hashlib.sha256(guess).hexdigest() for guess in guesses]
    other = await api.do("/references", {"kind": "Cart", "value": {"ids": []}})
    assert len(made["id"]) == len(other["id"]) == 64


async def test_a_declared_glimpse_is_everybodys(api: Caller) -> None:
    """An approver reads it as what the author of the runtime said of such values."""
    await kinds(api)
    body = {"kind": "Cart", "value": {"ids": [1, 2, 3]}}
    for value in (body["value"], {"ids": ["x" * 1_500_000]}):
        answer = await api.post("/references", {**body, "value": value, "glimpse": {"count": 99}})
        assert refused(answer, 422)["errors"] == [
            {"pointer": "/glimpse", "message": "the runtime declares it"}
        ]
    assert (await api.do("/references", body))["glimpse"] == {"count": 3, "first": [1, 2]}


async def test_the_later_expiry_and_the_first_glimpse_are_kept(api: Caller, owner: Any) -> None:
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


async def test_an_expired_value_cannot_be_deleted_whether_swept_or_not(
    plangate: World, api: Caller, owner: Any
) -> None:
    await kinds(api)
    made = await api.do("/references", {"kind": "Brief", "value": {}})
    await owner.execute(EXPIRE)
    for _ in range(2):
        refused(await api.delete(f"/references/Brief/{made['id']}"), 410, "reference_expired")
        await plangate.services.references.sweep()


async def test_the_sweeper_works_in_small_steps(idle: World, owner: Any) -> None:
    await kinds(idle.api)
    for n in range(20):
        await idle.api.do("/references", {"kind": "Brief", "value": {"n": n}})
    await owner.execute(EXPIRE)
    assert await idle.services.references.sweep() == 20
    steps = await owner.fetch(
        "SELECT count(*) AS n FROM reference_values WHERE value IS NULL GROUP BY xmin::text"
    )
    assert sorted(step["n"] for step in steps) == [4, 8, 8]
    assert await idle.services.references.sweep() == 0


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


async def test_large_values_behave_like_small_ones(api: Caller) -> None:
    """Handle, glimpse, canonical bytes, repetition: whichever process looked at it."""
    await kinds(api)
    value = {"z": "é" * 400_000, "ids": [{"b": n, "a": None} for n in range(20_000)]}
    body = json.dumps({"kind": "Cart", "value": value}, indent=1).encode()
    assert len(body) > 1024 * 1024
    headers = {"content-type": "application/json", "idempotency-key": "k1"}
    first = await api.request("POST", "/references", content=body, headers=headers)
    made = good(first)
    assert (first.status_code, made["glimpse"]) == (201, {"count": 20_000, "first": value["ids"][:2]})
    stored = await api.get(f"/references/Cart/{made['id']}")
    expected = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert stored.content == expected
    assert made["sizeBytes"] == len(expected) == int(stored.headers["content-length"])
    again = await api.request("POST", "/references", content=body, headers=headers)
    assert (again.status_code, again.content) == (201, first.content)
    changed = body.replace(b'"b": 7,', b'"b": 8,')
    refused(await api.request("POST", "/references", content=changed, headers=headers), 409, "conflict")
    del headers["idempotency-key"]
    same = await api.request("POST", "/references", content=body, headers=headers)
    assert (same.status_code, good(same)["id"]) == (200, made["id"])


@pytest.mark.parametrize(
    ("body", "status", "slug", "told"),
    [
        ({"kind": "Seats", "value": [*["x" * 100] * 20_000, 7]}, 422, "invalid", "/value/20000"),
        ({"kind": "Sofas", "value": "x" * 2_000_000}, 422, "invalid", "declared are: Brief, Cart, Seats"),
        (
            {"kind": "Seats", "valu": "x" * 50_000, "glimpse": {"x": "y" * 1_500_000}},
            413,
            "too_large",
            "65536",
        ),
        ({"kind": "Seats", "more": 1, "value": ["x" * 2_000_000]}, 422, "invalid", "/more"),
        ({"kind": "Seats", "value": ["x" * 2_000_000], "glimpse": {"g": "x" * 5000}}, 422, "invalid", "4096"),
        ({"kind": "Cart", "value": {"ids": ["x" * 2_000_000], "more": "\0"}}, 400, "malformed", "NUL"),
        (["x" * 2_000_000], 422, "invalid", "errors"),
        ({"kind": "Seats", "value": [1e300] * 300_000 + ["1e999"]}, 400, "malformed", "beyond the range"),
    ],
)
async def test_large_bodies_are_rejected_like_small_ones(
    api: Caller, body: Any, status: int, slug: str, told: str
) -> None:
    await kinds(api)
    sent = json.dumps(body).replace('"1e999"', "1e999").encode()
    headers = {"content-type": "application/json"}
    answer = await api.request("POST", "/references", content=sent, headers=headers)
    assert told in json.dumps(refused(answer, status, slug))


async def test_a_tenant_limit_applies_to_references(plangate: World, api: Caller) -> None:
    await plangate.tenant("modest", maxReferenceBytes=100)
    modest = plangate.operator("modest")
    await modest.register(specs.mock(references=KINDS, tenant="modest"))
    good(await modest.post("/references", {"kind": "Seats", "value": ["x" * 96]}))
    body = refused(await modest.post("/references", {"kind": "Seats", "value": ["x" * 97]}), 413, "too_large")
    assert body["detail"] == "A reference holds at most 100 bytes of JSON; this value has 101."


async def test_a_reader_streams_the_stored_bytes(plangate: World, api: Caller) -> None:
    await kinds(api)
    value = [f"{n:09}" for n in range(60_000)]
    made = await api.do("/references", {"kind": "Seats", "value": value})
    size, pieces = await plangate.services.references.read("acme", "Seats", made["id"])
    read = [len(piece) async for piece in pieces]
    assert read == [PIECE_BYTES] * (size // PIECE_BYTES) + [size % PIECE_BYTES]
    answer = await api.get(f"/references/Seats/{made['id']}")
    assert (answer.json(), answer.headers["content-length"]) == (value, str(size))
    assert answer.headers["content-type"] == "application/json"


async def test_a_part_of_a_value_is_read_by_its_path(plangate: World, api: Caller) -> None:
    await kinds(api)
    made = await api.do("/references", {"kind": "Seats", "value": [f"{n:09}" for n in range(60_000)]})

    async def part(expression: str, caller: Caller = api, id: str = made["id"]) -> httpx.Response:
        return await caller.request("GET", f"/references/Seats/{id}/part", params={"path": expression})

    assert good(await part("length(@)")) == 60_000
    assert good(await part("[59998:70000]")) == ["000059998", "000059999"]
    assert good(await part("[0].missing")) is None
    refused(await part("[0:50000]"), 413, "too_large")
    problem = refused(await part("[0:"), 422, "invalid")
    assert problem["errors"][0]["pointer"] == "query:path"
    refused(await part("@", id="0" * 64), 404, "reference_not_found")
    refused(await part("@", caller=plangate.operator("other")), 404, "reference_not_found")


async def test_a_slow_reader_holds_no_connection_and_no_value(plangate: World, api: Caller) -> None:
    await kinds(api)
    made = await api.do("/references", {"kind": "Seats", "value": ["x" * 1000] * 1000})
    reads = [await plangate.services.references.read("acme", "Seats", made["id"]) for _ in range(20)]
    first = [await anext(pieces) for _, pieces in reads]  # more of them than there are connections
    assert {len(piece) for piece in first} == {PIECE_BYTES}
    good(await api.delete(f"/references/Seats/{made['id']}"))
    with pytest.raises(ReferenceExpired):
        await anext(reads[0][1])
    for _, pieces in reads:
        await pieces.aclose()


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
    everything = (await api.read("/references"))["items"]
    assert [item["kind"] for item in everything] == ["Cart", *["Seats"] * 5]
    assert set(everything[0]) == {"kind", "id", "glimpse", "sizeBytes", "createdAt", "expiresAt", "workId"}


async def test_the_cost_of_a_page_does_not_grow_with_expired_references(owner: Any, api: Caller) -> None:
    """Nor with the other kinds: a page is read from an index of what is there."""
    await owner.execute(
        "INSERT INTO reference_values (tenant_id, kind, id, value, digest, size_bytes, glimpse, created_at)"
        " SELECT 'acme', CASE n % 1000 WHEN 0 THEN 'Rare' ELSE 'Common' END, n::text,"
        " CASE WHEN n % 2 = 0 THEN '1'::bytea END, '', 1, '{}', now() - make_interval(secs => n)"
        " FROM generate_series(1, 20000) n"
    )
    await owner.execute("ANALYZE reference_values")
    none = (None, None, None)
    for statement, args, index in (
        (LIST, (*none, 51), "reference_values_recent"),
        (LIST_OF_KIND, (None, None, 51, "Rare"), "reference_values_of_kind"),
    ):
        plan = json.loads(await owner.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", "acme", *args))
        (scan,) = plan[0]["Plan"]["Plans"]
        assert (scan["Node Type"], scan["Index Name"]) == ("Index Scan", index)
        assert scan.get("Rows Removed by Filter", 0) == 0


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
    assert whole == {**ask(small), "glimpse": small["glimpse"], "sizeBytes": 11, "shownBytes": 11}
    assert (glimpse["id"], glimpse["glimpse"]) == (small["id"], small["glimpse"])
    assert (cut["id"], cut["sizeBytes"]) == (large["id"], large["sizeBytes"])
    assert "`path`" in cut["note"]
    assert (part["path"], part["shownBytes"]) == ("length(@)", 3)
    assert "not a JMESPath expression" in wrong
    assert "has expired" in gone
    assert "There is no reference" in nothing
