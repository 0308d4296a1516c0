"""`DELETE /threads/{id}`: what is deleted, what remains, and concurrent writes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg
import orjson
import pytest
import pytest_asyncio

from app.artifacts.verify import heads, problems
from app.deployment import Deployment
from app.journal.limits import StreamLimits
from app.queries import store
from app.queries.models import Submission
from app.tenancy.models import Caller as KeyHolder
from app.workspace.models import FileAuthor
from tests.support import specs
from tests.support.client import Caller, eventually, good, refused
from tests.support.cluster import Cluster
from tests.support.sse import follow, open_query
from tests.support.world import World, world

NO_THREAD = "thr_" + "0" * 26
MARK = "sesame"
"""In everything that the thread is told, and in nothing else."""

BODY = {"reason": MARK, "actions": [{"kind": "book", "seat": MARK}, specs.REFUND]}
PAY = specs.tool("pay", inputSchema={"type": "object"}, approval={"kind": "always", "rememberable": True})
LOOK = specs.tool("look", inputSchema={"type": "object"})
BASKET = {"name": "Basket", "schema": {"type": "object"}}


@dataclass
class Full:
    """A thread with everything that a thread can have."""

    id: str
    query: str
    planned: str
    plan: str
    approvals: list[dict[str, Any]]
    artifact: str
    cursor: str


async def filled(api: Caller, key: str = "mine") -> Full:
    agent = specs.agent(tools=["pay", "look"], toolkits=["variables"])
    await api.register(specs.scripted(PAY, LOOK, agents=[agent], data={"shop": {}}))
    await api.register(specs.planning(name="planned", references=[BASKET]))
    basket = await api.do(
        "/references", {"runtime": "planned", "kind": "Basket", "value": {"for": "anybody"}}
    )
    first = await api.submit(
        specs.script(
            ("pay", {"n": 7, "to": MARK}),
            ("look", {"at": MARK, "_outputPath": "†state.seen"}),
            ("look", {"at": "†state.seen", "_outputPath": "†shop.seen"}),
        ),
        threadKey=key,
        metadata={"for": MARK},
        inputs={"who": MARK},
    )
    thread = first["threadId"]
    asked = await api.gate(first["id"])
    good(await api.decide(asked["id"], digest=asked["digest"], scope="thread", feedback=f"{MARK} it is"))
    await api.serve("pay", {"paid": MARK})
    await api.serve("look", {"seen": MARK})
    await api.serve("look", {"seen": MARK})
    await api.ended(first["id"])
    body = {
        **BODY,
        "actions": [{**BODY["actions"][0], "references": [{"kind": "Basket", "id": basket["id"]}]}],
    }
    second = await api.submit(specs.store_and_execute(body), runtime="planned", threadKey=key)
    plan = (await api.gate(second["id"]))["target"]
    await api.approve(second["id"])
    await api.serve("actions", {"entitiesAffected": 1, "summary": MARK})
    await api.ended(second["id"])
    draft = {
        "runtime": "planned",
        "specName": "Routing",
        "body": body,
        "planId": f"kept-{key}",
        "threadId": thread,
    }
    await api.do("/plans", draft)
    for data in (b"one " + MARK.encode(), b"two " + MARK.encode()):
        good(await api.request("PUT", f"/threads/{thread}/files/{MARK}/a", content=data))
    publish = {"threadId": thread, "channel": "design", "path": MARK, "title": MARK, "tags": [MARK]}
    artifact = (await api.do("/artifacts", publish))["id"]
    upload = await api.request(
        "PUT", f"/artifacts/design/{MARK}?threadId={thread}&parent={artifact}", content=b"x"
    )
    good(upload)
    approvals = (await api.read("/approvals", threadId=thread))["items"]
    cursor = (await api.read(f"/queries/{first['id']}/events", limit=500))["nextCursor"]
    return Full(thread, first["id"], second["id"], plan, approvals, artifact, cursor)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def original(cluster: Cluster) -> AsyncIterator[tuple[Deployment, Full]]:
    """A site with such a thread, for copies."""
    made = await cluster.create()
    async with world(made, cluster.operator_key) as running:
        full = await filled(running.api)
    yield made, full
    await cluster.drop(made)


@pytest_asyncio.fixture
async def site(cluster: Cluster, original: tuple[Deployment, Full]) -> AsyncIterator[Deployment]:
    made = await cluster.create(original[0])
    yield made
    await cluster.drop(made)


@pytest.fixture
def full(original: tuple[Deployment, Full]) -> Full:
    return original[1]


async def tables_with(owner: asyncpg.Connection, text: str) -> dict[str, int]:
    """In how many rows of which tables a text stands, as text or as bytes."""
    tables = await owner.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    found = {}
    for (table,) in tables:
        sql = f"SELECT count(*) FROM {table} x WHERE x::text LIKE $1 OR x::text LIKE $2"
        rows = await owner.fetchval(sql, f"%{text}%", f"%{text.encode().hex()}%")
        if rows:
            found[table] = rows
    return found


async def deleted(api: Caller, thread: str) -> None:
    assert good(await api.delete(f"/threads/{thread}")) == {"id": thread, "deleted": True}


def gone(response: Any) -> str:
    return str(refused(response, 404, "not_found")["detail"])


# -- what goes


async def test_a_deleted_thread_disappears_completely(
    plangate: World, api: Caller, full: Full, owner: asyncpg.Connection
) -> None:
    await owner.execute(
        "INSERT INTO plan_snapshots (tenant_id, work_id, kind, body) "
        "SELECT tenant_id, id, 'state', convert_to($2, 'UTF8') FROM work_records WHERE query_id = $1",
        *(full.planned, MARK),
    )
    await owner.execute(
        "INSERT INTO source_statements (tenant_id, work_id, query_id, source, sql, elapsed_ms) "
        "SELECT tenant_id, id, query_id, 'orders', $2, 1 FROM work_records WHERE query_id = $1",
        *(full.planned, MARK),
    )
    held = await tables_with(owner, MARK)
    assert {"plan_snapshots", "source_statements"} <= held.keys()
    assert {
        "events",
        "queries",
        "work_records",
        "outgoing_calls",
        "call_variables",
        "documents",
    } <= held.keys()
    assert {"document_writes", "plan_revisions", "plan_actions", "approvals", "artifacts"} <= held.keys()
    assert {"artifact_tags", "workspace_files", "workspace_versions"} <= held.keys()
    named = await tables_with(owner, full.id)
    assert {"threads", "plans", "workspaces", "artifact_chains"} <= named.keys()
    await deleted(api, full.id)
    assert await tables_with(owner, MARK) == {
        "approval_grants": 1
    }  # what was remembered is asked for with it
    left = await tables_with(owner, full.id)
    assert left.keys() == {"work_records", "approvals", "approval_grants", "artifact_tombstones"}
    for query in (full.query, full.planned):
        assert (await tables_with(owner, query)).keys() == {"work_records", "approvals"}
    assert (await tables_with(owner, full.plan)).keys() == {"approvals"}
    assert await owner.fetchval("SELECT count(*) FROM reference_pins") == 0
    assert (await api.read("/references"))["items"] != []  # they belong to no thread


async def test_every_read_of_a_deleted_thread_is_a_404(api: Caller, full: Full) -> None:
    await deleted(api, full.id)
    thread, no_thread = f"/threads/{full.id}", f"There is no thread {full.id!r}."
    for path in ("", "/messages", "/state", "/state/log", "/files", f"/files/{MARK}/a"):
        assert gone(await api.get(thread + path)) == no_thread
    for query in (full.query, full.planned):
        for path in ("", "/events", "/stream", "/work"):
            assert gone(await api.get(f"/queries/{query}{path}")) == f"There is no query {query!r}."
        assert gone(await api.post(f"/queries/{query}/cancel")) == f"There is no query {query!r}."
    for path in ("", "/revisions", "/transitions", "/actions", "/graph"):
        assert gone(await api.get(f"/plans/{full.plan}{path}")) == f"There is no plan {full.plan!r}."
    for path in ("", "/content", "/lineage"):
        there = refused(await api.get(f"/artifacts/{full.artifact}{path}"), 404, "artifact_not_found")
        assert there["detail"] == f"There is no artifact {full.artifact!r}."
    for path in ("/threads", "/queries", "/plans", "/artifacts"):
        assert (await api.read(path))["items"] == []
    assert gone(await api.delete(thread)) == no_thread


async def test_every_write_to_a_deleted_thread_is_a_404(api: Caller, full: Full) -> None:
    await deleted(api, full.id)
    for method, path, body in writes(full):
        said = gone(await api.request(method, path, **body))
        assert said in (f"There is no thread {full.id!r}.", f"There is no plan {full.plan!r}.")


async def test_the_key_of_a_deleted_thread_names_a_new_one(api: Caller, full: Full) -> None:
    await deleted(api, full.id)
    made = await api.post("/threads", {"threadKey": "mine"})
    assert made.status_code == 201
    new = made.json()["id"]
    assert new != full.id
    assert (await api.read(f"/threads/{new}/state"))["document"] == {}
    assert (await api.run(specs.script(), threadKey="mine"))["threadId"] == new


async def test_another_tenant_cannot_delete_a_thread(plangate: World, api: Caller, full: Full) -> None:
    assert gone(await plangate.other.delete(f"/threads/{full.id}")) == f"There is no thread {full.id!r}."
    reader = await plangate.key("read", "data:write", "plans:write")
    refused(await reader.delete(f"/threads/{full.id}"), 403)
    assert (await api.read(f"/queries/{full.query}"))["prompt"].count(MARK) == 2
    writer = await plangate.key("queries:write")
    await deleted(writer, full.id)
    for id in (NO_THREAD, "thr_1", "mine", full.query):
        assert gone(await api.delete(f"/threads/{id}")) == f"There is no thread {id!r}."


async def test_the_service_role_neither_sets_nor_sees_the_deleted_flag(
    plangate: World, full: Full, owner: asyncpg.Connection
) -> None:
    for table in ("threads", "queries", "plans"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await plangate.sql(f"UPDATE {table} SET deleted = true")
        await owner.execute(f"UPDATE {table} SET deleted = true")
        assert await plangate.sql(f"SELECT id FROM {table}") == []


async def test_other_threads_keep_their_content(plangate: World, api: Caller, full: Full) -> None:
    fork = (await api.do(f"/threads/{full.id}/fork", {}))["id"]
    copied = await api.do(f"/plans/{full.plan}/execute", {"threadKey": "elsewhere"})
    assert (await api.gate(copied["id"]))["target"] == copied["planId"]
    theirs = (await plangate.other.do("/threads", {"threadKey": "mine"}))["id"]
    await deleted(api, full.id)
    assert (await api.read(f"/threads/{fork}/state"))["document"] == {"seen": {"seen": MARK}}
    assert (await api.get(f"/threads/{fork}/files/{MARK}/a")).content == b"two " + MARK.encode()
    await api.approve(copied["id"])
    await api.serve("actions", {"entitiesAffected": 1, "summary": "done"})
    assert (await api.ended(copied["id"]))["status"] == "succeeded"
    plan = await api.read(f"/plans/{copied['planId']}")
    assert (plan["status"], plan["copiedFrom"]) == ("executed", full.plan)
    assert (await plangate.other.read(f"/threads/{theirs}"))["key"] == "mine"


async def everything_of(api: Caller, full: Full) -> dict[str, Any]:
    """Whatever can be read of a thread, by where it is read."""
    thread, found = f"/threads/{full.id}", {}
    paths = [thread, *(f"{thread}/{part}" for part in ("messages", "state", "state/log", "files"))]
    for query in (full.query, full.planned):
        paths += [f"/queries/{query}", f"/queries/{query}/events?limit=500", f"/queries/{query}/work"]
        paths += [f"/tool-calls?queryId={query}", f"/work-records?queryId={query}"]
    for part in ("", "/revisions", "/transitions", "/actions", "/graph"):
        paths.append(f"/plans/{full.plan}{part}")
    paths += [
        f"/artifacts?threadId={full.id}",
        f"/artifacts/{full.artifact}/lineage",
        f"/artifacts?tag={MARK}",
    ]
    paths += [
        f"/artifacts/{full.artifact}/content",
        f"/plans?threadId={full.id}",
        f"/queries?threadId={full.id}",
    ]
    paths += [f"{thread}/files/{MARK}/a?version={n}" for n in (1, 2)]
    for approval in full.approvals:
        paths += [f"/approvals/{approval['id']}", f"/approvals/{approval['id']}/subject"]
    for path in paths:
        answer = await api.get(path)
        assert answer.status_code == 200, (path, answer.text)
        found[path] = answer.content
    return found


async def test_deletion_does_not_touch_other_threads(
    plangate: World, api: Caller, full: Full, owner: asyncpg.Connection
) -> None:
    """One that is as full, of the same tenant."""
    other = await filled(api, "yours")
    held = await everything_of(api, other)
    tag = f"/artifacts?tag={MARK}"
    assert len(orjson.loads(held.pop(tag))["items"]) == 2
    rows = await tables_with(owner, other.id)
    await deleted(api, full.id)
    await owner.execute("UPDATE blobs SET used_at = now() - interval '25 hours'")
    await plangate.services.workspaces.collect()
    now = await everything_of(api, other)
    assert [a["id"] for a in orjson.loads(now.pop(tag))["items"]] == [other.artifact]
    for path, content in held.items():
        assert now[path] == content, path
    assert await tables_with(owner, other.id) == rows


# -- a query that lives


async def test_a_thread_with_an_unfinished_query_is_not_deleted(api: Caller) -> None:
    await api.register(specs.scripted(LOOK))
    first = await api.submit(specs.script(("look", {})), threadKey="t")
    second = await api.submit(specs.script(), threadKey="t")
    thread = f"/threads/{first['threadId']}"
    good(await api.request("PUT", f"{thread}/files/a", content=b"x"))
    busy = refused(await api.delete(thread), 409, "thread_busy")
    assert busy["detail"] == (
        f"The thread has 2 queries that are not over: {first['id']}, {second['id']}. Wait for them, or cancel them "
        "(POST /queries/{id}/cancel), then delete the thread. Nothing was deleted."
    )
    assert busy["queries"] == [first["id"], second["id"]]
    good(await api.post(f"/queries/{first['id']}/cancel"))
    await api.ended(second["id"])
    assert (await api.get(f"{thread}/files/a")).content == b"x"
    await deleted(api, first["threadId"])


async def test_a_plan_at_an_open_gate_prevents_deletion(api: Caller) -> None:
    await api.register(specs.planning())
    query = await api.submit(specs.store_and_execute())
    approval = await api.gate(query["id"])
    busy = refused(await api.delete(f"/threads/{query['threadId']}"), 409, "thread_busy")
    assert busy["detail"].startswith(
        f"The thread has 1 query that is not over: {query['id']}. Wait for it, or"
    )
    good(await api.decide(approval["id"], "reject"))
    await api.ended(query["id"])
    await deleted(api, query["threadId"])


# -- what stays


async def test_usage_adds_up_to_the_same_totals(api: Caller, full: Full, owner: asyncpg.Connection) -> None:
    await owner.execute(
        "UPDATE work_records SET input_tokens = 100, output_tokens = 7, cost_usd = 0.25 WHERE kind = 'model_call'"
    )
    found = await api.read("/usage")
    range_ = {"from": found["from"], "to": found["to"]}
    groups = ("query", "thread", "agent", "model", "day")
    before = [await api.read("/usage", groupBy=by, **range_) for by in groups]
    assert before[0]["totals"]["costUsd"] > 1
    by_artifact = await api.read("/usage", groupBy="artifact", **range_)
    await deleted(api, full.id)
    assert [await api.read("/usage", groupBy=by, **range_) for by in groups] == before
    assert (await api.read("/usage", groupBy="artifact", **range_))["totals"] == by_artifact["totals"]


async def test_work_records_remain_without_input_and_output(
    api: Caller, full: Full, owner: asyncpg.Connection
) -> None:
    before = (await api.read(f"/queries/{full.query}/work"))["items"]
    assert any(record["output"] for record in before)
    await deleted(api, full.id)
    for record in before:
        now = await api.read(f"/work-records/{record['id']}")
        assert not {"input", "output", "error"} & now.keys()
        kept = {k: v for k, v in record.items() if k not in ("input", "output", "error")}
        assert {k: now[k] for k in kept} == kept


async def test_approvals_keep_the_decision_and_the_digest(api: Caller, full: Full) -> None:
    assert {a["kind"] for a in full.approvals} == {"tool", "plan"}
    assert MARK in str(full.approvals)
    subjects = {a["id"]: (await api.get(f"/approvals/{a['id']}/subject")).content for a in full.approvals}
    await deleted(api, full.id)
    listed = (await api.read("/approvals", threadId=full.id))["items"]
    emptied = {"glimpses": {}, "originalArgs": None, "feedback": None, "partial": None, "label": None}
    assert listed == [{**a, **emptied} for a in full.approvals]
    for approval in listed:
        assert await api.read(f"/approvals/{approval['id']}") == approval
        assert approval["votes"][0]["principal"] == approval["decidedBy"] == "operator"
        assert approval["digest"] == hashlib.sha256(subjects[approval["id"]]).hexdigest()
        told = refused(await api.get(f"/approvals/{approval['id']}/subject"), 410, "gone")
        assert told["detail"] == (
            "The thread of this approval was deleted together with the subject. The decision and the digest are "
            f"kept: GET /approvals/{approval['id']}."
        )
    tool = next(a for a in listed if a["kind"] == "tool")
    again = good(await api.decide(tool["id"], scope="thread"))  # the first answer
    assert again["status"] == "approved"
    for said in ({"decision": "reject"}, {"decision": "approve", "args": {"n": 8}, "digest": tool["digest"]}):
        told = refused(await api.post(f"/approvals/{tool['id']}", said), 409, "conflict")
        assert told["detail"] == "This approval is already approved by operator."
    (grant,) = (await api.read("/grants"))["items"]
    assert (grant["approvalId"], grant["threadId"], grant["active"]) == (tool["id"], full.id, True)


async def test_the_chain_of_its_artifacts_is_verified_by_its_tombstone(
    plangate: World, api: Caller, full: Full, owner: asyncpg.Connection
) -> None:
    services = plangate.services
    ends = await heads(services.db)
    assert ends["acme"][full.id].n == 2
    await deleted(api, full.id)
    assert [p async for p in problems(services.db, services.chainer, ends)] == []
    await owner.execute("UPDATE artifact_tombstones SET n = 1")
    assert [p async for p in problems(services.db, services.chainer, ends)] == [
        ("acme", f"the tombstone of thread {full.id} was not made by the service")
    ]


async def test_artifact_records_are_deleted_only_with_their_thread(
    plangate: World, api: Caller, full: Full, owner: asyncpg.Connection
) -> None:
    forget = "SELECT delete_artifacts(thread_id, n, mac, '') FROM artifact_chains"
    assert await plangate.sql(forget) == [(False,)]
    assert (await api.read(f"/artifacts/{full.artifact}"))["id"] == full.artifact
    assert await owner.fetchval("SELECT count(*) FROM artifact_tombstones") == 0


async def test_bodies_named_only_by_the_thread_are_collected(
    plangate: World, api: Caller, full: Full, owner: asyncpg.Connection
) -> None:
    other = (await api.do("/threads", {}))["id"]
    good(await api.request("PUT", f"/threads/{other}/files/a", content=b"two " + MARK.encode()))
    kept = hashlib.sha256(b"two " + MARK.encode()).digest()
    assert await owner.fetchval("SELECT count(*) FROM blobs WHERE named") == 4
    await owner.execute("UPDATE blobs SET used_at = now() - interval '25 hours'")
    await deleted(api, full.id)
    await eventually(lambda: _only(owner, kept), "the worker collects what nothing names")
    assert (await api.get(f"/threads/{other}/files/a")).content == b"two " + MARK.encode()


async def _only(owner: asyncpg.Connection, digest: bytes) -> bool:
    return [(r["digest"], r["named"]) for r in await owner.fetch("SELECT digest, named FROM blobs")] == [
        (digest, True)
    ]


async def test_a_repeated_idempotency_key_gets_the_first_response(api: Caller) -> None:
    await api.register(specs.mock())
    once = {"headers": {"idempotency-key": "k"}}
    accepted = await api.do("/queries", {"prompt": "hi", "threadKey": "t"}, **once)
    await api.ended(accepted["id"])
    await deleted(api, accepted["threadId"])
    assert await api.do("/queries", {"prompt": "hi", "threadKey": "t"}, **once) == accepted
    assert gone(await api.get(accepted["links"]["self"])) == f"There is no query {accepted['id']!r}."


# -- streams


@pytest.mark.limits(streams=StreamLimits(key_check_interval_s=0.05))
async def test_an_open_stream_ends_when_its_thread_is_deleted(plangate: World, api: Caller) -> None:
    """Whether it had looked before for what comes next, or not."""
    await api.register(specs.scripted(LOOK))
    query = await api.submit(specs.script(("look", {})))
    await api.claim("look")
    late, patient = (open_query(plangate, query["id"]) for _ in range(2))
    for reading in (late, patient):
        await reading.until(lambda body: b"tool-invocation" in body)
    late.reads.clear()
    plangate.services.hub.invalidate([("acme", query["id"])])
    await asyncio.sleep(0.2)  # it looked, and there was nothing
    good(await api.post(f"/queries/{query['id']}/cancel"))
    await deleted(api, query["threadId"])
    late.reads.set()
    for reading in (late, patient):
        assert "finish" not in {f.event for f in await reading.end()}


async def test_streams_of_a_deleted_query_and_of_the_tenant(plangate: World, api: Caller, full: Full) -> None:
    cursor = (await api.read("/events"))["nextCursor"]
    assert (await follow(plangate, full.query))[-1].event == "finish"
    await deleted(api, full.id)
    assert gone(await api.get(f"/queries/{full.query}/stream", after=full.cursor))
    assert await follow(plangate, full.query) == []  # had somebody asked just before
    new = await api.run(specs.script())
    told = (await api.read("/events", after=cursor, limit=500))["events"]
    assert {e["queryId"] for e in told} == {new["id"]}


# -- who comes first


def writes(full: Full) -> list[tuple[str, str, dict[str, Any]]]:
    """Every way to write to a thread: method, path, and what goes with it."""
    thread, body = full.id, specs.BODY
    plan = {"runtime": "planned", "specName": "Routing", "body": body}
    publish = {"threadId": thread, "channel": "design", "path": f"{MARK}/a"}
    return [
        ("POST", "/queries", {"json": {"prompt": "hi", "threadId": thread}}),
        ("POST", "/queries", {"json": {"prompt": "hi", "threadId": thread, "ifBusy": "interrupt"}}),
        ("POST", f"/threads/{thread}/fork", {"json": {}}),
        ("PUT", f"/threads/{thread}/files/b", {"content": b"x"}),
        ("DELETE", f"/threads/{thread}/files/{MARK}/a", {}),
        ("POST", "/artifacts", {"json": publish}),
        ("PUT", f"/artifacts/design/new?threadId={thread}", {"content": b"x"}),
        ("POST", "/plans", {"json": {**plan, "threadId": thread}}),
        ("POST", f"/plans/{full.plan}/execute", {"json": {}}),
        ("POST", f"/plans/{full.plan}/execute", {"json": {"threadId": thread}}),
    ]


async def waits(owner: asyncpg.Connection) -> None:
    """Until somebody waits for a lock."""
    sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    await eventually(lambda: owner.fetchval(sql), "somebody waits for a lock")


@pytest.mark.parametrize("n", range(10))
async def test_a_write_during_deletion_finds_no_thread(
    plangate: World, api: Caller, full: Full, owner: asyncpg.Connection, n: int
) -> None:
    method, path, body = writes(full)[n]
    async with plangate.services.db.transaction("acme") as tx:
        assert (await store.delete_thread(tx, thread_id=full.id, queries=100))[0] == "deleted"
        await plangate.services.artifacts.forget(tx, full.id)
        assert await store.purge_thread(tx, thread_id=full.id, rows=100_000, within_s=3)
        writing = asyncio.create_task(api.request(method, path, **body))
        await waits(owner)
    said = gone(await writing)
    assert said in (f"There is no thread {full.id!r}.", f"There is no plan {full.plan!r}.")
    assert (await tables_with(owner, MARK)).keys() == {"approval_grants"}


async def test_a_query_during_deletion_gets_a_new_thread(
    plangate: World, api: Caller, full: Full, owner: asyncpg.Connection
) -> None:
    async with plangate.services.db.transaction("acme") as tx:
        await store.delete_thread(tx, thread_id=full.id, queries=100)
        submitting = asyncio.create_task(api.submit(specs.script(), threadKey="mine"))
        await waits(owner)
    accepted = await submitting
    assert accepted["threadId"] != full.id
    await api.ended(accepted["id"])


Write = Callable[[World, Any, Full], Awaitable[object]]


async def submits(plangate: World, tx: Any, full: Full) -> None:
    caller = KeyHolder("acme", "ann", frozenset({"admin"}), "key_tests")
    await plangate.services.queries.submit(tx, caller, Submission(specs.script(), thread_id=full.id))


async def writes_a_file(plangate: World, tx: Any, full: Full) -> None:
    workspaces = plangate.services.workspaces
    body = await workspaces.keep("acme", b"late " + MARK.encode())
    await workspaces.write(tx, full.id, "late", body, FileAuthor("ann"))


async def test_an_earlier_query_makes_the_deletion_a_409(
    plangate: World, api: Caller, full: Full, owner: asyncpg.Connection
) -> None:
    async with plangate.services.db.transaction("acme") as tx:
        await submits(plangate, tx, full)
        deleting = asyncio.create_task(api.delete(f"/threads/{full.id}"))
        await waits(owner)
        await tx.run("UPDATE queries SET status = 'waiting', reason = 'approval' WHERE status = 'running'")
    told = refused(await deleting, 409, "thread_busy")
    assert (await api.read(f"/threads/{full.id}"))["activeQueries"] == told["queries"]


async def test_a_file_written_earlier_is_deleted(
    plangate: World, api: Caller, full: Full, owner: asyncpg.Connection
) -> None:
    async with plangate.services.db.transaction("acme") as tx:
        await writes_a_file(plangate, tx, full)
        deleting = asyncio.create_task(api.delete(f"/threads/{full.id}"))
        await waits(owner)
    good(await deleting)
    assert (await tables_with(owner, MARK)).keys() == {"approval_grants"}


async def test_threads_that_share_bodies_are_deleted_concurrently(plangate: World, api: Caller) -> None:
    """Each publishes what is a mere file of the other, as forks do."""
    services, threads = plangate.services, []
    for published in ("a", "b"):
        thread = (await api.do("/threads", {}))["id"]
        for name in ("a", "b"):
            good(await api.request("PUT", f"/threads/{thread}/files/{name}", content=name.encode()))
        await api.do("/artifacts", {"threadId": thread, "channel": "design", "path": published})
        threads.append(thread)
    async with services.db.transaction("acme") as one, services.db.transaction("acme") as other:
        for tx, thread in zip((one, other), threads, strict=True):
            assert await store.delete_thread(tx, thread_id=thread, queries=10) == ("deleted", [])
            await services.artifacts.forget(tx, thread)
        assert await store.purge_thread(other, thread_id=threads[1], rows=100, within_s=1.0)
    assert not {found["id"] for found in (await api.read("/threads"))["items"]} & set(threads)


async def test_a_query_and_the_deletion_of_its_thread_are_ordered(
    idle: World, owner: asyncpg.Connection
) -> None:
    api = idle.api
    await api.register(specs.mock())
    for n in range(20):
        thread = (await api.do("/threads", {"threadKey": f"t{n}"}))["id"]
        submit = api.post("/queries", {"prompt": "hi", "threadId": thread})
        delete = api.delete(f"/threads/{thread}")
        write = api.request("PUT", f"/threads/{thread}/files/a", content=b"x")
        asked = (submit, write, delete) if n % 2 else (delete, write, submit)
        one, written, two = await asyncio.gather(*asked)
        submitted, over = (one, two) if n % 2 else (two, one)
        outcome = (submitted.status_code, over.status_code)
        assert outcome in ((202, 409), (404, 200))
        assert written.status_code in (201, 404)
        left = await owner.fetchval("SELECT count(*) FROM threads WHERE id = $1", thread)
        assert left == (outcome == (202, 409))
