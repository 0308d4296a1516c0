"""References: isolation of tenants, lifetimes, hostile handles and values."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest

from app.base.ids import new_id
from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.json_processes import note_functions
from tests.support.world import World

SEATS = {"name": "Seats", "schema": {"type": "array"}}
ANY: dict[str, Any] = {"inputSchema": {"type": "object"}}

# (method, path, body, query): every route that takes the id of a thread or a reference, or of what they belong to.
ROUTES: list[tuple[str, str, Any, dict[str, str]]] = [
    ("GET", "/threads/{thread}", None, {}),
    ("GET", "/threads/{thread}/messages", None, {}),
    ("GET", "/threads/{thread}/state", None, {}),
    ("GET", "/threads/{thread}/state", None, {"at": "0"}),
    ("GET", "/threads/{thread}/state", None, {"at": "7"}),
    ("GET", "/threads/{thread}/state/log", None, {}),
    (
        "POST",
        "/threads/{thread}/state/log",
        {"workId": "{work}", "path": "†state.a", "method": "set", "value": 1},
        {},
    ),
    ("POST", "/threads/{thread}/fork", {}, {}),
    ("POST", "/threads/{thread}/fork", {"at": 0}, {}),
    ("POST", "/threads/{thread}/fork", {"at": 7}, {}),
    ("DELETE", "/threads/{thread}", None, {}),
    ("GET", "/threads/{thread}/files", None, {}),
    ("GET", "/threads/{thread}/files", None, {"prefix": "notes/"}),
    ("PUT", "/threads/{thread}/files/{path}", "x", {}),
    ("GET", "/threads/{thread}/files/{path}", None, {}),
    ("GET", "/threads/{thread}/files/{path}", None, {"version": "1"}),
    ("DELETE", "/threads/{thread}/files/{path}", None, {}),
    ("POST", "/queries", {"prompt": "x", "threadId": "{thread}"}, {}),
    ("GET", "/queries", None, {"threadId": "{thread}"}),
    ("GET", "/references/Seats/{reference}", None, {}),
    ("GET", "/references/Seats/{reference}", None, {"workId": "{work}"}),
    ("GET", "/references/Seats/{reference}/glimpse", None, {}),
    ("GET", "/references/Seats/{reference}/part", None, {"path": "length(@)"}),
    ("DELETE", "/references/Seats/{reference}", None, {}),
    ("POST", "/references", {"kind": "Seats", "value": [1], "workId": "{work}"}, {}),
    ("POST", "/references", {"kind": "Seats", "value": [1], "runtimeId": "{runtime}"}, {}),
]


def filled(template: Any, ids: dict[str, str]) -> Any:
    text = json.dumps(template)
    for name, id in ids.items():
        text = text.replace(f"{{{name}}}", id)
    return json.loads(text)


async def objects(api: Caller, tenant: str) -> dict[str, str]:
    """A thread with state, a reference, a unit of work and a runtime of a tenant."""
    agent = specs.agent(tools=["look"], toolkits=["variables"])
    look = specs.tool("look", **ANY)
    runtime = await api.register(specs.scripted(look, agents=[agent], references=[SEATS], tenant=tenant))
    query = await api.submit(specs.script(("look", {"_outputPath": "†state.n"}), ("look", {})))
    call = await api.serve("look", 1)
    await api.until(query["id"], "waiting", "client_call")
    made = await api.do("/references", {"kind": "Seats", "value": ["1A"]})
    return {
        "thread": query["threadId"],
        "reference": made["id"],
        "work": call["workId"],
        "runtime": runtime["id"],
    }


async def test_the_table_names_every_such_route(api: Caller) -> None:
    """A new route under these paths is looked at here too."""
    paths = (await api.read("/openapi.json"))["paths"]
    wanted = {
        (method.upper(), path.replace("{thread_id}", "{thread}").replace("{kind}/{id}", "Seats/{reference}"))
        for path, methods in paths.items()
        if path.startswith(("/threads/{", "/references/{"))
        for method in methods
    }
    assert wanted == {(m, p) for m, p, _, _ in ROUTES if p.startswith(("/threads/{", "/references/Seats/"))}


async def test_objects_of_other_tenants_are_not_found(plangate: World, api: Caller) -> None:
    """Same status, same words, and nothing of it is moved."""
    theirs, own = await objects(plangate.other, "other"), await objects(api, "acme")
    nobodys = {
        "thread": new_id("thr_"),
        "reference": "f" * 64,
        "work": new_id("wrk_"),
        "runtime": new_id("rt_"),
    }
    before = await plangate.other.read(f"/threads/{theirs['thread']}/state")
    for method, path, body, query in ROUTES:
        answers = []
        for ids in (theirs, nobodys):
            only = (
                {**own, **ids}
                if "reference}" not in path or "workId" not in query
                else {**ids, "reference": own["reference"]}
            )
            response = await api.request(
                method, filled(path, only), json=filled(body, only), params=filled(query, only)
            )
            text = response.text
            for name, id in ids.items():
                text = text.replace(id, name)
            answers.append((response.status_code, text, sorted(response.headers)))
        assert answers[0] == answers[1], (method, path, query)
        assert answers[0][0] == (200 if path == "/queries" and method == "GET" else 404), (method, path)
    assert await plangate.other.read(f"/threads/{theirs['thread']}/state") == before
    assert (await plangate.other.get(f"/references/Seats/{theirs['reference']}")).json() == ["1A"]


async def test_a_variable_into_another_tenants_reference_is_not_found(plangate: World, api: Caller) -> None:
    theirs = await objects(plangate.other, "other")
    agent = specs.agent(tools=["look"], toolkits=["variables", "references"])
    await api.register(specs.scripted(specs.tool("look", **ANY), agents=[agent], references=[SEATS]))
    told = []
    for id in (theirs["reference"], "f" * 64):
        query = await api.run(
            specs.script(
                ("look", {"a": f"†ref.Seats.{id}.0"}),
                ("resolveRef", {"kind": "Seats", "id": id}),
                ("glimpseRef", {"kind": "Seats", "id": id}),
            )
        )
        told.append([result["error"].replace(id, "ID") for result in output_of(query)])
    assert told[0] == told[1]
    assert "There is no reference Seats/ID." in told[0][0]
    assert await plangate.value("SELECT count(*) FROM reference_uses", tenant="other") == 0


async def test_kinds_are_names_within_a_tenant(plangate: World, api: Caller) -> None:
    """One name, two schemas, two glimpses; and one tenant's limit is not the other's."""
    await plangate.tenant("modest", maxReferenceBytes=100)
    modest = plangate.operator("modest")
    mine = {"name": "Box", "schema": {"type": "array"}, "glimpse": {"n": "length(@)"}}
    await api.register(specs.mock(references=[mine]))
    theirs = {"name": "Box", "schema": {"type": "string"}}
    await modest.register(specs.mock(references=[theirs], tenant="modest"))
    assert (await api.do("/references", {"kind": "Box", "value": [1, 2]}))["glimpse"] == {"n": 2}
    assert (await modest.do("/references", {"kind": "Box", "value": "x"}))["glimpse"] == {"value": "x"}
    refused(await api.post("/references", {"kind": "Box", "value": "x"}), 422, "invalid")
    refused(await modest.post("/references", {"kind": "Box", "value": "x" * 99}), 413, "too_large")
    good(await api.post("/references", {"kind": "Box", "value": ["x" * 200]}))


async def test_a_cursor_of_one_tenant_reveals_nothing_to_another(plangate: World, api: Caller) -> None:
    await api.register(specs.mock(references=[SEATS]))
    await plangate.other.register(specs.mock(references=[SEATS], tenant="other"))
    for n in range(3):
        await api.do("/references", {"kind": "Seats", "value": [n]})
        await plangate.other.do("/references", {"kind": "Seats", "value": [n]})
    cursor = (await api.read("/references", limit=1))["nextCursor"]
    shown = (await plangate.other.read("/references", cursor=cursor))["items"]
    own = {item["id"] for item in (await plangate.other.read("/references"))["items"]}
    assert {item["id"] for item in shown} <= own
    body = refused(await api.get("/threads", cursor=cursor), 400)
    assert "cursor" in body["detail"]


HOSTILE = [
    "%2e%2e",
    "a%2Fb",
    "'; DROP TABLE x; --",
    "\u202e",
    "é",
    "†",
    "%25",
    "x" * 100,
    "a b",
    "{}",
]


@pytest.mark.parametrize("name", HOSTILE)
async def test_missing_references_are_a_404(api: Caller, name: str) -> None:
    """Names of kinds and ids that nothing has; in a path, in a filter, and in a model's call."""
    await api.register(specs.scripted(agents=[specs.agent(toolkits=["references"])], references=[SEATS]))
    for path in (
        f"/references/{name}/{'0' * 64}",
        f"/references/Seats/{name}",
        f"/references/{name}/{name}/glimpse",
    ):
        refused(await api.get(path), 404)
        refused(await api.delete(path.removesuffix("/glimpse")), 404)
    assert (await api.read("/references", kind=name))["items"] == []
    query = await api.run(specs.script(("resolveRef", {"kind": name, "id": name})))
    assert output_of(query)[0]["error"].startswith(f"There is no reference {name}/{name}")


async def test_names_that_are_too_long_or_contain_nul_are_rejected(api: Caller) -> None:
    refused(await api.get(f"/references/{'x' * 101}/a"), 422, "invalid")
    refused(await api.get(f"/references/a/{'x' * 101}"), 422, "invalid")
    refused(await api.get("/references/a/%00"), 404)
    refused(await api.get("/references", kind="\0"), 422, "invalid")
    refused(await api.get("/references", kind="x" * 101), 422, "invalid")


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize("padding", [0, 1_200_000], ids=["small", "large"])
async def test_values_have_the_depth_limit_of_bodies(api: Caller, padding: int) -> None:
    """Whichever process looks at them."""
    await api.register(specs.mock(references=[SEATS]))
    space = " " * padding
    for levels, status in ((62, 201), (63, 201), (64, 400)):  # the body itself is one more
        content = f'{{"kind": "Seats", {space} "value": {json.dumps(deep(levels))}}}'
        answer = await api.request(
            "POST", "/references", content=content.encode(), headers={"content-type": "application/json"}
        )
        assert answer.status_code == status, answer.text
    assert "nested deeper than 64" in refused(answer, 400, "malformed")["detail"]


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
async def test_text_like_a_variable_or_code_is_data(api: Caller, large: bool) -> None:
    """Byte for byte: daggers, prototypes, numbers at the ends of their range, empty keys, all of Unicode's planes."""
    await api.register(specs.mock(references=[{"name": "Odd", "schema": {}}]))
    value = {
        "": [-0.0, 1.0, 1, 5e-324, 1.7976931348623157e308, 2**63 - 1, -(2**63)],
        "__proto__": {"constructor": "†state.x"},
        "†state": ["†", "††", "${x}", "{{x}}", "\u2028\u2029\ufeff😀\x7f\x1f", None, False],
        "pad": "x" * 1_500_000 if large else "",
    }
    sent = json.dumps({"kind": "Odd", "value": value}).encode()
    headers = {"content-type": "application/json"}
    made = good(await api.request("POST", "/references", content=sent, headers=headers))
    stored = (await api.get(f"/references/Odd/{made['id']}")).content
    assert stored == orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    assert repr(orjson.loads(stored)) == repr(dict(sorted(value.items())))


async def test_a_declared_glimpse_that_is_too_large_is_truncated(api: Caller) -> None:
    kind = {"name": "Rows", "schema": {"type": "array"}, "glimpse": {"all": "@"}}
    await api.register(specs.mock(references=[kind]))
    made = await api.do("/references", {"kind": "Rows", "value": ["x" * 100] * 100})
    assert made["glimpse"]["…"] == "cut to 4096 bytes"
    assert made["glimpse"]["all"][-1] == "… 95 more"


@pytest.mark.parametrize("ttl", [-1, -0.5, 1.5, "60", True])
async def test_a_negative_ttl_is_rejected(api: Caller, ttl: Any) -> None:
    kind = {"name": "Seats", "schema": {"type": "array"}, "ttlMs": ttl}
    body = refused(await api.post("/runtimes", specs.mock(references=[kind])), 422)
    assert [flaw["pointer"] for flaw in body["errors"]] == ["/references/0/ttlMs"]


async def test_an_expiry_is_so_long_after_the_creation_by_the_databases_clock(
    plangate: World, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the clock of the process says."""
    await api.register(specs.mock(references=[{**SEATS, "ttlMs": 90_000}]))
    made = await api.do("/references", {"kind": "Seats", "value": [1]})
    created, expires = (datetime.fromisoformat(made[name]) for name in ("createdAt", "expiresAt"))
    assert expires - created == timedelta(milliseconds=90_000)
    now = await plangate.value("SELECT now()")
    assert abs(now - created) < timedelta(seconds=60)


async def test_a_creation_without_expiry_removes_the_expiry(api: Caller) -> None:
    """The later expiry stands, and never is the latest; a shorter time afterwards changes nothing."""
    body = {"kind": "Seats", "value": ["1A"]}
    seen = []
    for ttl in (1_000_000, 60_000, None, 60_000):
        kind = SEATS if ttl is None else {**SEATS, "ttlMs": ttl}
        await api.register(specs.mock(f"ttl {len(seen)}", references=[kind]))
        seen.append((await api.do("/references", body))["expiresAt"])
    assert seen[0] is not None
    assert seen == [seen[0], seen[0], None, None]


async def test_creating_during_a_sweep_or_delete_leaves_a_live_reference(
    plangate: World, api: Caller, owner: Any
) -> None:
    """Creators, a sweeper and somebody who deletes, all at once: the last word of each is true."""
    await api.register(specs.mock(references=[{**SEATS, "ttlMs": 60_000}]))
    body = {"kind": "Seats", "value": ["1A"]}
    path = f"/references/Seats/{(await api.do('/references', body))['id']}"
    for _ in range(5):
        await owner.execute("UPDATE reference_values SET expires_at = now() - interval '1 s'")
        answers = await asyncio.gather(
            *(api.post("/references", body) for _ in range(3)),
            plangate.services.references.sweep(),
            api.delete(path),
        )
        assert all(answers[n].status_code in (200, 201) for n in range(3))
        assert answers[4].status_code in (200, 410)
        good(await api.post("/references", body))
        assert (await api.get(path)).json() == ["1A"]


async def test_work_of_an_ended_query_adds_no_events(plangate: World, api: Caller) -> None:
    """P10: the terminal event stays the last."""
    await api.register(specs.scripted(specs.tool("find"), references=[SEATS]))
    query = await api.submit(specs.script(("find", {"n": 1})))
    call = await api.serve("find", 1)
    await api.ended(query["id"])
    before = await api.events(query["id"])
    made = await api.do("/references", {"kind": "Seats", "value": [1], "workId": call["workId"]})
    await api.read(f"/references/Seats/{made['id']}", workId=call["workId"])
    assert await api.events(query["id"]) == before
    assert before[-1]["type"] == "finish"


async def test_hydration_through_a_variable_is_on_the_record_of_the_call(api: Caller) -> None:
    """With its size; of the value nothing is in a prompt, an event or a log."""
    agent = specs.agent(tools=["look"], toolkits=["variables"])
    await api.register(specs.scripted(specs.tool("look", **ANY), agents=[agent], references=[SEATS]))
    made = await api.do("/references", {"kind": "Seats", "value": ["seat-4711", "2B"]})
    query = await api.submit(
        specs.script(("look", {"a": f"†ref.Seats.{made['id']}", "b": f"†ref.Seats.{made['id']}.1"}))
    )
    call = await api.serve("look", "ok")
    assert call["args"] == {"a": ["seat-4711", "2B"], "b": "2B"}
    await api.ended(query["id"])
    items = (await api.read(f"/queries/{query['id']}/work"))["items"]
    (used,) = [item for item in items if "references" in item]
    size = made["sizeBytes"]
    assert used["references"] == [
        {"use": "hydrate", "kind": "Seats", "id": made["id"], "sizeBytes": size, "promptBytes": 0}
    ]
    assert used["id"] == call["workId"]
    assert "seat-4711" not in json.dumps([items, await api.events(query["id"])])


async def test_a_variable_into_a_large_reference_is_followed_beside_the_service(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a helper process, which gives no more than what was asked for; and what is missing is said as anywhere."""
    turns = note_functions(monkeypatch)
    agent = specs.agent(tools=["look"], toolkits=["variables"])
    await api.register(specs.scripted(specs.tool("look", **ANY), agents=[agent], references=[SEATS]))
    rows = [{"id": n, "text": "†state.x" + "y" * 90} for n in range(12_000)]
    made = await api.do("/references", {"kind": "Seats", "value": rows})
    assert made["sizeBytes"] > 1024 * 1024
    turns.clear()
    path = f"†ref.Seats.{made['id']}"
    query = await api.submit(
        specs.script(
            ("look", {"a": f"{path}.11999.id", "b": [f"{path}.0.text"]}),
            ("look", {"a": f"{path}.0.txt"}),
            ("look", {"a": f"{path}.0.txt || {path}.12000 || {path}.7.id"}),
            ("look", {"a": path}),
        )
    )
    assert (await api.serve("look"))["args"] == {"a": 11999, "b": ["†state.x" + "y" * 90]}
    assert (await api.serve("look"))["args"] == {"a": 7}
    assert (await api.serve("look"))["args"] == {"a": rows}
    results = output_of(await api.ended(query["id"]))
    assert "has no \"txt\"; did you mean 'text'?" in results[1]["error"]
    assert turns == ["fill_record"] * 4


@pytest.mark.parametrize(
    "rest", ['"\\ud800"', '"\\u0000"', "1e999", "9223372036854775808", '{"a":1,"a":2}', "NaN"]
)
async def test_unstorable_values_are_rejected_in_large_values(api: Caller, rest: str) -> None:
    """Which is read by another parser than others are: nothing is stored, and nothing breaks."""
    await api.register(specs.mock(references=[SEATS]))
    numbers = "1," * 600_000
    content = f'{{"kind": "Seats", "value": [{numbers}{rest}]}}'.encode()
    headers = {"content-type": "application/json"}
    refused(await api.request("POST", "/references", content=content, headers=headers), 400, "malformed")
    assert (await api.read("/references"))["items"] == []
