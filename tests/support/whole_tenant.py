"""A tenant with something in every feature, and everything that the API returns about it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

from app.catalog.models import Source
from tests.support import specs
from tests.support.client import Caller, good
from tests.support.world import World

ORDERS = {
    "type": "object",
    "properties": {"orders": {"type": "array", "items": {"type": "integer"}}},
    "required": ["orders"],
}
LISTS = (
    "/runtimes",
    "/threads",
    "/queries",
    "/approvals",
    "/grants",
    "/plans",
    "/references",
    "/artifacts",
    "/work-records",
    "/secrets",
    "/sources",
    "/catalog/entries",
)
DETAILS = {
    "/runtimes": ("", "/agents/solo/prompt", "/agents/solo/tools"),
    "/threads": ("", "/files", "/messages", "/state", "/state/log"),
    "/queries": ("", "/work"),
    "/approvals": ("", "/comments", "/subject"),
    "/plans": ("", "/actions", "/graph", "/revisions", "/transitions"),
    "/artifacts": ("", "/content", "/lineage"),
    "/work-records": ("?tree=true",),
}
RARE_ROWS = """
INSERT INTO usage_sums SELECT 'acme', now(), 'solo', 'm', 'default', 'model_call', false, 1, 2, 3, 4, 5, 6, 0.1, 0, 0, 0, 0, 0,
    0.5, 0, 0.1, 0;
INSERT INTO idempotency (tenant_id, principal, method, path, key, body_hash, status, body)
    VALUES ('acme', 'ann', 'POST', '/threads', 'k', '\\x01', 201, '{}');
INSERT INTO reference_uses SELECT 'acme', 'wrk_1', 'create', kind, id, 7, 3 FROM reference_values WHERE tenant_id = 'acme';
INSERT INTO reference_pins SELECT 'acme', kind, id, 'pln_1', NULL FROM reference_values WHERE tenant_id = 'acme';
INSERT INTO call_variables SELECT 'acme', 'wrk_1', min(id), '\\x0a5c', '{}' FROM queries WHERE tenant_id = 'acme';
INSERT INTO approval_grants SELECT 'acme', 'grt_1', min(id), 'thr_1', 'solo', 'pay', 'd', '{}', sha256('{}'), ARRAY['n', 'a"b,c'],
    'ann', now(), now() + interval '1 day' FROM approvals WHERE tenant_id = 'acme';
INSERT INTO source_statements (tenant_id, work_id, query_id, source, sql, elapsed_ms)
    SELECT 'acme', 'wrk_1', min(id), 'orders', E'SELECT\\t''ü''\\n', 1 FROM queries WHERE tenant_id = 'acme';
INSERT INTO plan_snapshots VALUES ('acme', 'wrk_1', 'state', '{}');
INSERT INTO artifact_uses SELECT 'acme', 'wrk_1', max(id), 7, 3 FROM artifacts WHERE tenant_id = 'acme';
INSERT INTO sessions SELECT 'acme', 'ses_1', ('\\x' || repeat('00', 32))::bytea, false, 'acme', max(id), 'ann', '{read}', NULL,
    now(), now() + interval '1 day' FROM api_keys WHERE tenant_id = 'acme';
"""
"""Rows of tables that few requests fill."""
VOLATILE = {"nextCursor", "ageMs", "now"}
"""Fields with another value at each read, or in each deployment."""


async def pages(api: Caller, path: str) -> AsyncIterator[Any]:
    """Yield the items of a list."""
    cursor: dict[str, str] = {}
    while True:
        page = await api.read(path, limit=100, **cursor)
        for item in page["items"]:
            yield item
        if page.get("nextCursor") is None:
            return
        cursor = {"cursor": page["nextCursor"]}


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stable(item) for key, item in value.items() if key not in VOLATILE}
    return [_stable(item) for item in value] if isinstance(value, list) else value


async def everything(api: Caller) -> dict[str, Any]:
    """Return what the API returns about a tenant, by path: lists, details, events, bodies of files and usage."""
    found: dict[str, Any] = {}
    for path in LISTS:
        items = [item async for item in pages(api, path)]
        found[path] = _stable(items)
        for item in items if path in DETAILS else ():
            for part in DETAILS[path]:
                await _read(api, found, f"{path}/{item['id']}{part}")
    for query in found["/queries"]:
        found[f"events of {query['id']}"] = await api.events(query["id"])
    for reference in found["/references"]:
        await _read(api, found, f"/references/{reference['kind']}/{reference['id']}")
    for thread in found["/threads"]:
        listed = found.get(f"/threads/{thread['id']}/files") or {"items": []}
        for file in listed["items"]:
            await _read(api, found, f"/threads/{thread['id']}/files/{file['path']}")
    for path in ("/memory/default/acme", "/memory/default/acme/log"):
        await _read(api, found, path)
    for group in ("agent", "day", "model"):
        usage = await api.read("/usage", groupBy=group)
        found[f"usage by {group}"] = {key: usage[key] for key in usage.keys() - {"from", "to"}}
    return found


async def _read(api: Caller, found: dict[str, Any], path: str) -> None:
    response = await api.get(path)
    if response.headers.get("content-type", "").startswith("application/json"):
        found[path] = _stable(response.json())
    else:
        found[path] = (response.status_code, hashlib.sha256(response.content).hexdigest())


async def fill(running: World) -> dict[str, str]:
    """Use every feature of a tenant. Return ids: of a query that waits for an approval, of one that waits for a claimed
    and of one that waits for an open call, the token of the claim, the digest of the approval, and a cursor."""
    api = running.api
    gated = specs.tool("pay", approval={"kind": "always", "rememberable": True})
    served, lookup = specs.tool("look"), specs.tool("find")
    posted = specs.tool("post", transport={"kind": "http", "url": "https://tools.example"})
    await api.register(
        specs.scripted(
            gated, served, lookup, posted,
            agents=[
                specs.agent("solo", tools=["pay", "look", "find"]),
                specs.agent("planner", "planner", plan="Routing"),
                specs.agent("doer", "executor", plan="Routing"),
                specs.agent("chief", "coordinator", routes=["planner", "doer"]),
            ],
            plans=[specs.ROUTING],
            references=[{"name": "Orders", "schema": ORDERS, "glimpse": {"count": "length(orders)"}}],
            actionDispatcher="client",
        )
    )  # fmt: skip
    good(await api.put("/secrets/vault", {"value": "a secret value"}))
    await api.do("/references", {"runtime": "default", "kind": "Orders", "value": {"orders": [1, 2, 3]}})
    good(await api.post("/memory/default/acme", {"path": "†memory.greeting", "value": {"text": "Hello"}}))
    entry = {"kind": "knowledge", "name": "cents", "content": {"description": "Prices are in cents."}}
    good(await api.put("/catalog/entries/knowledge:cents", entry))
    async with running.services.db.transaction("acme") as tx:
        await running.services.sources.put(
            tx, Source("orders", "duckdb", paths=("/data/orders",), declared=True)
        )

    thread = (await api.do("/threads", {"threadKey": "desk"}))["id"]
    file = f"/threads/{thread}/files/a.md"
    published = {"threadId": thread, "channel": "design", "path": "a.md", "title": "Design", "tags": ["x"]}
    good(await api.request("PUT", file, content=b"one"))
    first = (await api.do("/artifacts", published))["id"]
    good(await api.request("PUT", file, content=b"another"))
    rivals = [(await api.do("/artifacts", {**published, "replaces": first}))["id"] for _ in range(2)]
    good(await api.post(f"/artifacts/{rivals[0]}/choose", {"over": rivals[1:], "reason": "It is complete."}))
    made = {**published, "channel": "handoff", "parentArtifactIds": [first]}
    artifact = (await api.do("/artifacts", made))["id"]
    good(await api.post(f"/artifacts/{artifact}/withdraw", {"reason": "It was wrong."}))
    gone = (await api.do("/threads", {"threadKey": "gone"}))["id"]
    good(await api.request("PUT", f"/threads/{gone}/files/a.md", content=b"gone"))
    await api.do("/artifacts", {"threadId": gone, "channel": "design", "path": "a.md", "title": "gone"})
    assert (await api.delete(f"/threads/{gone}")).is_success

    ended = await api.submit(specs.script(("look", {"n": 1})), agent="solo")
    await api.serve("look", {"found": True})
    await api.ended(ended["id"])
    events = await api.read(f"/queries/{ended['id']}/events")
    planned = await api.submit(specs.store_and_execute(), agent="chief")
    await api.approve(planned["id"])
    waiting = await api.submit(specs.script(("pay", {"n": 2})), agent="solo")
    approval = await api.gate(waiting["id"])
    good(await api.post(f"/approvals/{approval['id']}/comments", {"text": "Looks right."}))
    claimed = await api.submit(specs.script(("look", {"n": 3})), agent="solo")
    (call,) = await api.claim("look")
    open_call = await api.submit(specs.script(("find", {"n": 4})), agent="solo")
    await api.until(open_call["id"], "waiting")
    return {
        "ended": ended["id"],
        "cursor": events["nextCursor"],
        "planned": planned["id"],
        "waiting": waiting["id"],
        "approval": approval["id"],
        "digest": approval["digest"],
        "claimed": claimed["id"],
        "work": call["workId"],
        "token": call["claimToken"],
        "open": open_call["id"],
        "artifact": artifact,
    }
