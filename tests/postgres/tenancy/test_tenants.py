"""Isolation of tenants, and scopes of keys."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.base.ids import new_id
from app.catalog.models import Source
from app.tenancy.models import SCOPES
from tests.support import specs
from tests.support.client import Caller, good, refused
from tests.support.world import World

# (method, path, body, the scope it needs); {id} stands for an object of the kind before it.
ROUTES: list[tuple[str, str, str, Any, str]] = [
    ("runtime", "GET", "/runtimes/{id}", None, "read"),
    ("runtime", "DELETE", "/runtimes/{id}", None, "runtimes:write"),
    ("runtime", "GET", "/runtimes/{id}/agents/chief/prompt", None, "read"),
    ("runtime", "GET", "/runtimes/{id}/agents/chief/tools", None, "read"),
    ("runtime", "POST", "/runtimes/{id}/signing-secret", None, "runtimes:write"),
    ("runtime", "POST", "/queries", {"prompt": "x", "runtimeId": "{id}"}, "queries:write"),
    ("runtime", "POST", "/plans", {"specName": "Routing", "body": {}, "runtimeId": "{id}"}, "plans:write"),
    ("runtime", "POST", "/references", {"kind": "Seats", "value": [], "runtimeId": "{id}"}, "data:write"),
    ("query", "GET", "/queries/{id}", None, "read"),
    ("query", "GET", "/queries/{id}/events", None, "read"),
    ("query", "GET", "/queries/{id}/stream", None, "read"),
    ("query", "GET", "/queries/{id}/work", None, "read"),
    ("query", "POST", "/queries/{id}/cancel", None, "queries:write"),
    ("query", "POST", "/queries/{id}/resume", {"limits": {"maxTurns": 5}}, "queries:write"),
    ("thread", "GET", "/threads/{id}", None, "read"),
    ("thread", "GET", "/threads/{id}/messages", None, "read"),
    ("thread", "GET", "/threads/{id}/state", None, "read"),
    ("thread", "GET", "/threads/{id}/state/log", None, "read"),
    ("thread", "POST", "/threads/{id}/fork", {}, "queries:write"),
    ("thread", "GET", "/threads/{id}/files", None, "read"),
    ("thread", "GET", "/threads/{id}/files/a", None, "read"),
    ("thread", "PUT", "/threads/{id}/files/a", {}, "data:write"),
    ("thread", "DELETE", "/threads/{id}/files/a", None, "data:write"),
    ("thread", "POST", "/artifacts", {"threadId": "{id}", "channel": "design", "path": "a"}, "data:write"),
    ("thread", "PUT", "/artifacts/design/a?threadId={id}", {}, "data:write"),
    ("artifact", "GET", "/artifacts/{id}", None, "read"),
    ("artifact", "GET", "/artifacts/{id}/content", None, "read"),
    ("artifact", "GET", "/artifacts/{id}/lineage", None, "read"),
    ("artifact", "POST", "/artifacts/{id}/withdraw", {"reason": "x"}, "data:write"),
    ("artifact", "POST", "/artifacts/{id}/choose", {"over": ["x"], "reason": "x"}, "data:write"),
    ("thread", "POST", "/queries", {"prompt": "x", "threadId": "{id}"}, "queries:write"),
    ("approval", "GET", "/approvals/{id}", None, "read"),
    ("approval", "GET", "/approvals/{id}/subject", None, "read"),
    ("approval", "GET", "/approvals/{id}/values?path=†state.rows", None, "read"),
    ("approval", "GET", "/approvals/{id}/comments", None, "approvals:decide"),
    ("approval", "POST", "/approvals/{id}/comments", {"text": "Hm."}, "approvals:decide"),
    ("approval", "POST", "/approvals/{id}", {"decision": "approve"}, "approvals:decide"),
    (
        "approval",
        "POST",
        "/approvals",
        {"decisions": [{"id": "{id}", "decision": "reject"}]},
        "approvals:decide",
    ),
    ("grant", "DELETE", "/grants/{id}", None, "approvals:decide"),
    ("plan", "GET", "/plans/{id}", None, "read"),
    ("plan", "GET", "/plans/{id}/revisions", None, "read"),
    ("plan", "GET", "/plans/{id}/revisions/1", None, "read"),
    ("plan", "GET", "/plans/{id}/revisions/2/changes", None, "read"),
    ("plan", "GET", "/plans/{id}/transitions", None, "read"),
    ("plan", "GET", "/plans/{id}/actions", None, "read"),
    ("plan", "GET", "/plans/{id}/graph", None, "read"),
    ("plan", "GET", "/plans/{id}/graph.mmd", None, "read"),
    ("plan", "POST", "/plans/{id}/execute", {}, "plans:write"),
    ("plan", "POST", "/plans/{id}/actions/0", {"outcome": "retry"}, "plans:settle"),
    ("reference", "GET", "/references/Seats/{id}", None, "read"),
    ("reference", "GET", "/references/Seats/{id}/glimpse", None, "read"),
    ("reference", "DELETE", "/references/Seats/{id}", None, "data:write"),
    ("call", "POST", "/tool-calls/{id}/result", {"claimToken": "t", "output": 1}, "tools:serve"),
    ("call", "POST", "/tool-calls/{id}/heartbeat", {"claimToken": "t"}, "tools:serve"),
    ("call", "POST", "/tool-calls/{id}/progress", {"claimToken": "t", "label": "l"}, "tools:serve"),
    ("call", "POST", "/tool-calls/{id}/events", {"claimToken": "t", "eventType": "e"}, "tools:serve"),
    ("call", "POST", "/tool-calls/{id}/release", {"claimToken": "t"}, "tools:serve"),
    ("call", "PUT", "/tool-calls/{id}/files/a", {}, "tools:serve"),
    ("call", "GET", "/work-records/{id}", None, "read"),
    ("call", "GET", "/work-records/{id}?tree=true", None, "read"),
    ("memory", "GET", "/memory/default/{id}", None, "read"),
    ("memory", "GET", "/memory/default/{id}/log", None, "read"),
    ("memory", "POST", "/memory/default/{id}", {"path": "†memory.n", "value": 1}, "data:write"),
    (
        "memory",
        "POST",
        "/memory/default/{id}/log",
        {"path": "†memory.n", "value": 1, "workId": "w"},
        "data:write",
    ),
    ("memory", "DELETE", "/memory/default/{id}", None, "data:write"),
    ("key", "DELETE", "/keys/{id}", None, "admin"),
    ("secret", "DELETE", "/secrets/{id}", None, "runtimes:write"),
    ("source", "GET", "/sources/{id}", None, "read"),
    ("source", "DELETE", "/sources/{id}", None, "sources:admin"),
    ("source", "POST", "/sources/{id}/profile", None, "sources:admin"),
    ("entry", "GET", "/catalog/entries/{id}", None, "read"),
    ("entry", "DELETE", "/catalog/entries/{id}", None, "data:write"),
]
PREFIX = {
    "runtime": "rt_",
    "query": "qry_",
    "thread": "thr_",
    "approval": "apr_",
    "grant": "grt_",
    "plan": "pln_",
    "call": "wrk_",
    "artifact": "art_",
}


async def objects(plangate: World) -> dict[str, str]:
    """One of each kind, of the tenant `other`."""
    api = plangate.other
    runtime = await api.register(
        specs.planning(tenant="other", references=[{"name": "Seats", "schema": {"type": "array"}}])
    )
    query = await api.submit(specs.store_and_execute())
    approval = await api.gate(query["id"])
    reference = await api.do("/references", {"kind": "Seats", "value": [1]})
    pay = specs.tool("pay", approval={"kind": "always", "rememberable": True})
    await api.register(specs.scripted(specs.tool("add"), pay, tenant="other", name="tools"))
    adding = await api.submit(specs.script(("add", {"n": 1})), runtime="tools")
    (call,) = await api.claim("add")
    paying = await api.submit(specs.script(("pay", {"n": 1})), runtime="tools")
    good(await api.decide((await api.gate(paying["id"]))["id"], scope="thread"))
    (grant,) = (await api.read("/grants"))["items"]
    for waiting in (query, adding, paying):
        await api.until(waiting["id"], "waiting")
    good(await api.request("PUT", f"/threads/{query['threadId']}/files/a", content=b"hidden"))
    asked = {"threadId": query["threadId"], "channel": "design", "path": "a"}
    artifact = await api.do("/artifacts", asked)
    key = await api.do("/keys", {"principal": "x", "scopes": ["read"]})
    good(await api.put("/secrets/theirs", {"value": "hidden"}))
    async with plangate.services.db.transaction("other") as tx:
        await plangate.services.sources.put(tx, Source("orders", "duckdb", paths=("/data/orders.csv",)))
    good(await api.put("/catalog/entries/metric:theirs", {"kind": "metric"}))
    return {
        "runtime": runtime["id"],
        "query": query["id"],
        "thread": query["threadId"],
        "approval": approval["id"],
        "grant": grant["id"],
        "plan": approval["target"],
        "reference": reference["id"],
        "call": call["workId"],
        "artifact": artifact["id"],
        "key": key["id"],
        "secret": "theirs",
        "memory": "other",
        "source": "orders",
        "entry": "metric:theirs",
    }


def filled(template: Any, id: str) -> Any:
    return None if template is None else json.loads(json.dumps(template).replace("{id}", id))


OWN = {"PUT /secrets/{name}", "PUT /sources/{name}", "PUT /catalog/entries/{id}"}
"""Makes one of the caller's, whatever name it is given."""


async def test_every_route_with_an_id_is_tested_for_tenants(api: Caller) -> None:
    """Those of threads and references are looked at in test_references_audit."""
    paths = (await api.read("/openapi.json"))["paths"]
    known = [f"{method} {path.partition('?')[0]}" for _, method, path, _, _ in ROUTES]
    for path, methods in paths.items():
        if "{" not in path or path.startswith(("/threads/{", "/references/{")):
            continue
        for method in methods:
            route = f"{method.upper()} {path}"
            form = re.compile(re.sub(r"\{[^}]+\}", "[^/]+", route))
            assert route in OWN or any(form.fullmatch(k) for k in known), route


async def test_objects_of_other_tenants_are_not_found(plangate: World, api: Caller) -> None:
    theirs = await objects(plangate)
    await api.register(specs.planning(references=[{"name": "Seats", "schema": {"type": "array"}}]))
    before = await plangate.sql("SELECT status, wake FROM queries ORDER BY id", tenant="other")
    for kind, method, path, body, _ in ROUTES:
        nobodys = (
            new_id(PREFIX[kind])
            if kind in PREFIX
            else {"key": new_id("key_"), "source": "nothing", "entry": "nothing"}.get(kind, "f" * 64)
        )
        answers = []
        for id in (theirs[kind], nobodys):
            response = await api.request(method, path.replace("{id}", id), json=filled(body, id))
            answers.append((response.status_code, response.text.replace(id, "ID")))
        assert answers[0] == answers[1], (method, path)
        assert answers[0][0] in (404, 409, 422), (method, path, answers[0])
        assert answers[0][0] == 404 or kind == "call" or path == "/plans", (method, path, answers[0])
    assert await plangate.sql("SELECT status, wake FROM queries ORDER BY id", tenant="other") == before
    still = await plangate.other.read(f"/approvals/{theirs['approval']}")
    assert still["status"] == "pending"
    for path in (
        "/runtimes",
        "/queries",
        "/approvals",
        "/grants",
        "/plans",
        "/references",
        "/keys",
        "/secrets",
        "/threads",
        "/work-records",
        "/artifacts",
        "/sources",
        "/catalog/entries",
        "/usage?groupBy=artifact",
    ):
        shown = json.dumps(await api.read(path))
        for id in theirs.values():
            assert id not in shown, path


async def test_every_route_requires_exactly_its_scope(plangate: World) -> None:
    routes = [
        *ROUTES,
        *(
            (("", "GET", p, None, "read"))
            for p in (
                "/runtimes",
                "/queries",
                "/events",
                "/plans",
                "/grants",
                "/work-records",
                "/usage",
                "/artifacts",
            )
        ),
    ]
    routes += [
        ("", "POST", "/runtimes", {}, "runtimes:write"),
        ("", "POST", "/runtimes/validate", {}, "runtimes:write"),
        ("", "POST", "/keys", {"principal": "x", "scopes": ["read"]}, "admin"),
        ("", "GET", "/keys", None, "admin"),
        ("", "PUT", "/secrets/a", {"value": "v"}, "runtimes:write"),
        ("", "POST", "/tool-calls/claim", {"tools": [{"name": "t"}]}, "tools:serve"),
    ]
    only = {scope: await plangate.key(scope) for scope in SCOPES}
    all_but = {
        scope: await plangate.key(*(s for s in SCOPES if s not in (scope, "admin"))) for scope in SCOPES
    }
    for _, method, path, body, scope in routes:
        path = path.replace("{id}", "qry_" + "0" * 26)
        response = await all_but[scope].request(method, path, json=filled(body, "0"))
        assert scope in refused(response, 403, "forbidden")["detail"], (method, path)
        response = await only[scope].request(method, path, json=filled(body, "0"))
        assert response.status_code not in (401, 403), (method, path, response.text)


async def test_a_key_is_shown_once_and_stored_as_a_hash(plangate: World, api: Caller, owner: Any) -> None:
    made = await api.do("/keys", {"principal": "ann", "scopes": ["read"]})
    assert made["key"].startswith("plg_")
    assert made["key"] not in json.dumps(await api.read("/keys"))
    rows = await owner.fetch("SELECT * FROM api_keys")
    assert made["key"] not in str(rows)
    assert made["key"].encode().hex() not in str(rows)
    caller = Caller(plangate.http, made["key"])
    assert (await caller.get("/queries")).status_code == 200


async def test_only_an_admin_creates_keys_with_at_most_its_scopes(plangate: World) -> None:
    admin = await plangate.key("admin", tools=["add"])
    body = {"principal": "x", "scopes": ["tools:serve"]}
    refused(await admin.post("/keys", body), 403)
    refused(await admin.post("/keys", {**body, "tools": ["add", "pay"]}), 403)
    made = await admin.do("/keys", {**body, "tools": ["add"]})
    assert (made["tools"], made["createdBy"]) == (["add"], "ann")
    plain = await plangate.key(*(s for s in SCOPES if s != "admin"))
    refused(await plain.post("/keys", body), 403)
    found = refused(await admin.post("/keys", {**body, "scopes": ["fly"]}), 422)
    assert found["errors"][0]["pointer"] == "/scopes"


async def test_a_key_expires_no_later_than_its_creator(plangate: World, api: Caller) -> None:
    until = datetime(2100, 1, 1, tzinfo=UTC)
    made = await api.do("/keys", {"principal": "temp", "scopes": ["admin"], "expiresAt": until.isoformat()})
    admin = Caller(plangate.http, made["key"])
    body = {"principal": "x", "scopes": ["read"]}
    for given in ({}, {"expiresAt": None}, {"expiresAt": (until + timedelta(seconds=1)).isoformat()}):
        refusal = refused(await admin.post("/keys", {**body, **given}), 403, "forbidden")
        assert refusal["detail"] == (
            "A key cannot outlive the key that creates it: send an expiresAt of 2100-01-01T00:00:00.000Z or earlier."
        )
    assert len((await api.read("/keys"))["items"]) == 1
    for at in (until, until - timedelta(days=1)):
        shorter = await admin.do("/keys", {**body, "expiresAt": at.isoformat()})
        assert datetime.fromisoformat(shorter["expiresAt"]) == at
    assert (await api.do("/keys", body))["expiresAt"] is None  # the operator's key does not expire


async def test_a_key_serves_only_the_names_it_wexplicit_values(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add"), specs.tool("pay")))
    await api.submit(specs.script(("pay", {"n": 1})))
    served = await plangate.key("tools:serve", tools=["add"])
    body = {"tools": [{"name": "add"}, {"name": "pay"}]}
    assert "pay" in refused(await served.post("/tool-calls/claim", body), 403)["detail"]
    assert (await served.do("/tool-calls/claim", {"tools": [{"name": "add"}]}))["calls"] == []


async def test_posting_a_result_requires_a_key_for_the_tool(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add"), specs.tool("pay")))
    query = await api.submit(specs.script(("pay", {"n": 1})))
    (call,) = await api.claim("pay")
    path, token = f"/tool-calls/{call['workId']}", {"claimToken": call["claimToken"]}
    foreign = await plangate.key("tools:serve", tools=["add"])
    for verb, body in (
        ("heartbeat", {}),
        ("progress", {"label": "half"}),
        ("events", {"eventType": "mine"}),
        ("result", {"output": 1}),
        ("release", {}),
    ):
        problem = refused(await foreign.post(f"{path}/{verb}", {**token, **body}), 403, "forbidden")
        assert call["workId"] in problem["detail"]
        assert "pay" not in problem["detail"]
    own = await plangate.key("tools:serve", tools=["pay"])
    good(await own.post(f"{path}/heartbeat", token))
    good(await own.post(f"{path}/progress", {**token, "label": "half"}))
    assert good(await own.post(f"{path}/result", {**token, "output": 7}))["adopted"]
    await api.ended(query["id"])
    refused(await foreign.post(f"{path}/result", {**token, "output": 8}), 403, "forbidden")


async def test_posting_an_action_result_requires_the_scope(plangate: World, api: Caller) -> None:
    await api.register(specs.planning())
    query = await api.submit(specs.store_and_execute())
    await api.approve(query["id"])
    (call,) = await api.claim("actions")
    path, token = f"/tool-calls/{call['workId']}", {"claimToken": call["claimToken"]}
    tools_only = await plangate.key("tools:serve")
    for verb, body in (("heartbeat", {}), ("progress", {"label": "half"}), ("result", {"output": {}})):
        problem = refused(await tools_only.post(f"{path}/{verb}", {**token, **body}), 403, "forbidden")
        assert "actions:serve" in problem["detail"]


async def test_actions_are_for_keys_with_their_scope(plangate: World, api: Caller) -> None:
    await api.register(specs.planning())
    query = await api.submit(specs.store_and_execute())
    await api.approve(query["id"])
    await api.claim("actions")  # it is there
    await api.do(f"/queries/{query['id']}/cancel")
    query = await api.submit(specs.store_and_execute(plan_id="p2"))
    await api.approve(query["id"])
    tools_only = await plangate.key("tools:serve")
    for _ in range(10):
        claimed = await tools_only.do("/tool-calls/claim", {"tools": [{"name": "actions"}]})
        assert claimed["calls"] == []
        await asyncio.sleep(0.02)
    both = await plangate.key("tools:serve", "actions:serve")
    assert len(await both.claim("actions")) == 1


async def test_a_key_with_act_as_names_the_person(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    plain, acting = (
        await plangate.key("queries:write"),
        await plangate.key("queries:write", "act-as", principal="bot"),
    )
    headers = {"plangate-principal": "zoe"}
    refused(await plain.post("/queries", {"prompt": "x"}, headers=headers), 403)
    accepted = good(await acting.post("/queries", {"prompt": "x"}, headers=headers))
    assert (await api.ended(accepted["id"]))["principal"] == "zoe"
    accepted = good(await acting.post("/queries", {"prompt": "x"}))
    assert (await api.ended(accepted["id"]))["principal"] == "bot"
    refused(await acting.post("/queries", {"prompt": "x"}, headers={"plangate-principal": "z" * 201}), 422)


async def test_a_key_expires(plangate: World, api: Caller, owner: Any) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=1.2)).isoformat()
    made = await api.do("/keys", {"principal": "x", "scopes": ["read"], "expiresAt": soon})
    caller = Caller(plangate.http, made["key"])
    good(await caller.get("/queries"))
    await asyncio.sleep(1.4)
    refused(await caller.get("/queries"), 401)


async def test_a_revoked_key_stops_everywhere_within_five_seconds(
    plangate: World, second: World, api: Caller
) -> None:
    made = await api.do("/keys", {"principal": "x", "scopes": ["read"]})
    here, there = Caller(plangate.http, made["key"]), Caller(second.http, made["key"])
    good(await here.get("/queries"))
    good(await there.get("/queries"))
    assert good(await api.delete(f"/keys/{made['id']}"))["revoked"] is True
    revoked = asyncio.get_running_loop().time()
    refused(await here.get("/queries"), 401)
    while (await there.get("/queries")).status_code == 200:
        assert asyncio.get_running_loop().time() - revoked < 5
        await asyncio.sleep(0.1)
    (row,) = [k for k in (await api.read("/keys"))["items"] if k["id"] == made["id"]]
    assert row["revokedAt"]


async def test_the_operator_key_takes_its_tenant_from_header_or_spec(plangate: World) -> None:
    bare = plangate.operator()
    assert good(await bare.get("/queries")) == {"items": [], "nextCursor": None}
    spec = specs.mock(tenant="fresh-one")
    runtime = await bare.register(spec)
    assert (await plangate.operator("fresh-one").read(f"/runtimes/{runtime['id']}"))["name"] == "default"
    refused(await bare.get(f"/runtimes/{runtime['id']}"), 404)
    found = refused(await plangate.operator("acme").post("/runtimes", spec), 422)
    assert found["errors"] == [{"pointer": "/tenant/resourceId", "message": "must be 'acme'"}]
    assert (await plangate.operator("fresh-one").post("/runtimes", spec)).status_code == 200
    for bad in ("A", "a b", "-", "x" * 64, "../x"):
        refused(await plangate.operator(bad).get("/queries"), 422)
    limits = await plangate.value("SELECT limits::text FROM tenants", tenant="fresh-one")
    assert limits == "{}"


async def test_a_tenant_key_ignores_the_tenant_header(plangate: World) -> None:
    caller = await plangate.key("read", "runtimes:write")
    good(await caller.request("GET", "/queries", headers={"plangate-tenant": "acme"}))
    refused(await caller.request("GET", "/queries", headers={"plangate-tenant": "other"}), 401)
    refused(await caller.request("GET", "/queries", headers={"plangate-tenant": "nobody"}), 401)
    refused(await caller.post("/runtimes", specs.mock(tenant="other")), 404)


async def test_a_literal_provider_key_becomes_a_secret_and_is_never_shown(
    plangate: World, api: Caller, owner: Any
) -> None:
    literal = "sk-very-literal-4711"
    spec = specs.spec(providers={"anthropic": {"kind": "anthropic", "apiKey": literal}})
    first = await api.post("/runtimes", spec)
    runtime = good(first)
    stored = runtime["spec"]["providers"]["anthropic"]["apiKey"]
    assert stored.keys() == {"secret"}
    rotated = specs.spec(providers={"anthropic": {"kind": "anthropic", "apiKey": "sk-another-literal"}})
    again = await api.post("/runtimes", rotated)
    assert (again.status_code, good(again)["id"]) == (200, runtime["id"])
    valid = await api.post("/runtimes/validate", spec)
    names = await api.read("/secrets")
    assert [s["name"] for s in names["items"]] == [stored["secret"]]
    for text in (first.text, again.text, valid.text, json.dumps(names)):
        assert "literal" not in text
    for table in ("runtimes", "secrets", "idempotency"):
        assert "literal" not in str(await owner.fetch(f"SELECT * FROM {table}"))
    assert await plangate.services.secrets.read("acme", stored["secret"]) == "sk-another-literal"
    bad = specs.spec(providers={"anthropic": {"kind": "nonsense", "apiKey": literal}})
    assert literal not in (await api.post("/runtimes", bad)).text


async def test_secrets_are_written_rotated_listed_by_name_and_deleted(plangate: World, api: Caller) -> None:
    good(await api.put("/secrets/b", {"value": "one"}))
    good(await api.put("/secrets/a", {"value": "two"}))
    again = good(await api.put("/secrets/b", {"value": "three"}))
    assert again.keys() == {"name", "createdAt", "updatedAt"}
    assert [s["name"] for s in (await api.read("/secrets"))["items"]] == ["a", "b"]
    assert await plangate.services.secrets.read("acme", "b") == "three"
    assert await plangate.services.secrets.read("other", "b") is None
    good(await api.delete("/secrets/b"))
    refused(await api.delete("/secrets/b"), 404)
    refused(await api.put("/secrets/-bad", {"value": "x"}), 422)


async def test_requests_of_a_tenant_are_rate_limited(plangate: World) -> None:
    await plangate.tenant("slow", requestsPerSecond=5)
    caller = await plangate.key("read", tenant="slow")
    answers = [await caller.get("/queries") for _ in range(8)]
    codes = [a.status_code for a in answers]
    assert codes[:5] == [200] * 5
    assert 429 in codes
    response = answers[codes.index(429)]
    refused(response, 429, "too_many_requests")
    assert int(response.headers["retry-after"]) >= 1
    good(await plangate.api.get("/queries"))


async def test_a_full_queue_rejects_queries(idle: World) -> None:
    await idle.tenant("small", queuedQueries=2)
    small = idle.operator("small")
    await small.register(specs.mock(tenant="small"))
    for _ in range(2):
        await small.submit()
    response = await small.post("/queries", {"prompt": "x"})
    assert "queue is full" in refused(response, 429)["detail"]
    assert response.headers["retry-after"] == "5"
    assert len((await small.read("/queries"))["items"]) == 2


@pytest.mark.parametrize("kind", ["Seats"])
async def test_the_same_value_has_different_ids_in_two_tenants(plangate: World, kind: str) -> None:
    ids = []
    for tenant in ("acme", "other"):
        api = plangate.operator(tenant)
        await api.register(
            specs.mock(tenant=tenant, references=[{"name": kind, "schema": {"type": "array"}}])
        )
        response = await api.post("/references", {"kind": kind, "value": [1, 2, 3]})
        assert response.status_code == 201
        ids.append(good(response)["id"])
    assert ids[0] != ids[1]
