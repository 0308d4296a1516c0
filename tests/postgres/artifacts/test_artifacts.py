"""Artifacts, published over HTTP and by agents."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Any

import asyncpg
import pytest

from app.artifacts import publishing, store
from app.artifacts.models import Producer, Publication
from app.artifacts.service import TargetMoved
from app.base.postgres.database import Tx
from tests.support import graphs, specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.world import World

NOBODY = "art_" + "0" * 26


async def thread(api: Caller, key: str = "t") -> str:
    return str((await api.do("/threads", {"threadKey": key}))["id"])


async def put(api: Caller, thread_id: str, path: str, data: bytes) -> Any:
    return good(await api.request("PUT", f"/threads/{thread_id}/files/{path}", content=data))


async def publish(api: Caller, thread_id: str, path: str, channel: str = "design", **parts: Any) -> Any:
    return await api.do("/artifacts", {"threadId": thread_id, "channel": channel, "path": path, **parts})


async def listed(api: Caller, **params: Any) -> list[str]:
    return [a["id"] for a in (await api.read("/artifacts", **params))["items"]]


@pytest.fixture
async def home(api: Caller) -> str:
    made = await thread(api)
    await put(api, made, "a.md", b"one")
    return made


async def test_a_file_is_published_and_its_record_never_changes(api: Caller, home: str) -> None:
    made = await api.post(
        "/artifacts",
        {
            "threadId": home,
            "channel": "design",
            "path": "./a.md",
            "title": "The design",
            "summary": "How it is built.",
            "tags": ["big", "big", "new"],
            "metadata": {"pages": 1.5, "é": None},
        },
    )
    record = made.json()
    assert (made.status_code, made.headers["location"]) == (201, f"/artifacts/{record['id']}")
    assert record == {
        "id": record["id"],
        "version": 1,
        "channel": "design",
        "kind": "file",
        "path": "a.md",
        "title": "The design",
        "summary": "How it is built.",
        "mediaType": "text/markdown",
        "sizeBytes": 3,
        "digest": {"algorithm": "sha256", "value": hashlib.sha256(b"one").hexdigest()},
        "tags": ["big", "new"],
        "metadata": {"pages": 1.5, "é": None},
        "createdAt": record["createdAt"],
        "producer": {"workId": record["producer"]["workId"], "kind": "host", "threadId": home},
        "targetAvailable": True,
        "targetChanged": False,
        "status": "active",
        "competesWith": [],
    }
    assert record["id"].startswith("art_")
    assert record["producer"]["workId"].startswith("wrk_")
    at = f"/artifacts/{record['id']}"
    assert await api.read(at) == record
    await put(api, home, "a.md", b"two")
    assert await api.read(at) == {**record, "targetChanged": True}
    assert (await api.get(f"{at}/content")).content == b"one"
    good(await api.delete(f"/threads/{home}/files/a.md"))
    assert await api.read(at) == {**record, "targetAvailable": False}
    content = await api.get(f"{at}/content")
    assert (content.content, content.headers["etag"]) == (b"one", f'"{record["digest"]["value"]}"')
    await put(api, home, "a.md", b"one")
    assert await api.read(at) == record


async def test_a_directory_is_published_with_its_list(api: Caller, home: str) -> None:
    for path, data in (
        ("out/b.txt", b"bb"),
        ("out/sub/a.txt", b"a"),
        ("out-of-it", b"x"),
        ("out0", b"x"),
        ("outer/b.txt", b"x"),
    ):
        await put(api, home, path, data)
    record = await publish(api, home, "out/")
    lines = [(b"bb", "b.txt"), (b"a", "sub/a.txt")]
    expected = "".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n" for data, path in lines).encode()
    assert (record["kind"], record["path"], record["isDirectory"], record["sizeBytes"]) == (
        "directory",
        "out",
        True,
        3,
    )
    assert record["digest"]["value"] == hashlib.sha256(expected).hexdigest()
    at = f"/artifacts/{record['id']}"
    assert (await api.get(f"{at}/content")).content == expected
    await put(api, home, "out/sub/a.txt", b"changed")
    now = await api.read(at)
    assert (now["targetAvailable"], now["targetChanged"]) == (True, True)
    assert (await api.request("GET", f"{at}/content", params={"path": "sub/a.txt"})).content == b"a"
    refused(await api.request("GET", f"{at}/content", params={"path": "sub"}), 404)
    refused(await api.request("GET", f"{at}/content", params={"path": "../a"}), 422, "path_not_allowed")
    await put(api, home, "out/sub/a.txt", b"a")
    assert (await api.read(at))["targetChanged"] is False
    await put(api, home, "out/c", b"more")
    assert (await api.read(at))["targetChanged"] is True
    for path in ("b.txt", "sub/a.txt", "c"):
        good(await api.delete(f"/threads/{home}/files/out/{path}"))
    assert (await api.read(at))["targetAvailable"] is False
    file = await publish(api, home, "a.md")
    body = refused(await api.request("GET", f"/artifacts/{file['id']}/content", params={"path": "x"}), 404)
    assert body["detail"] == f"The artifact {file['id']!r} is a file: read it without `path`."


@pytest.mark.parametrize(
    ("path", "kind"),
    [("x.json", "json"), ("x.patch", "patch"), ("x.diff", "patch"), ("x.log", "log"), ("x.png", "binary"),
     ("x.py", "file"), ("x", "binary")],
)  # fmt: skip
async def test_the_kind_is_inferred_when_it_is_not_given(
    api: Caller, home: str, path: str, kind: str
) -> None:
    await put(api, home, path, b"x")
    assert (await publish(api, home, path))["kind"] == kind
    assert (await publish(api, home, path, kind="report"))["kind"] == "report"


async def test_an_invalid_publication_is_rejected_and_writes_nothing(
    plangate: World, api: Caller, home: str
) -> None:
    design = await publish(api, home, "a.md")
    theirs = await thread(plangate.other, "t")
    await put(plangate.other, theirs, "a.md", b"theirs")
    foreign = (await publish(plangate.other, theirs, "a.md"))["id"]
    channel = "must be lower-case words joined by dashes, at most 60 characters, such as design"
    for parts, pointer, message in (
        ({"channel": "Design"}, "/channel", channel),
        ({"channel": "a--b"}, "/channel", channel),
        ({"channel": ""}, "/channel", channel),
        ({"channel": "a_b"}, "/channel", channel),
        ({"title": ""}, "/title", "must have 1 to 200 characters"),
        ({"metadata": {"x": "y" * 8192}}, "/metadata", "must have at most 8192 bytes of JSON"),
        ({"tags": ["x", ""]}, "/tags/1", "must have 1 to 60 characters"),
        ({"replaces": NOBODY}, "/replaces", f"names no artifact: '{NOBODY}'"),
        ({"replaces": foreign}, "/replaces", f"names no artifact: '{foreign}'"),
        (
            {"replaces": design["id"], "channel": "patch"},
            "/replaces",
            "names an artifact of channel 'design', and only one of 'patch' can be replaced",
        ),
        (
            {"parentArtifactIds": [design["id"], foreign]},
            "/parentArtifactIds/1",
            f"names no artifact: '{foreign}'",
        ),
    ):
        asked = {"threadId": home, "channel": "design", "path": "a.md", **parts}
        body = refused(await api.post("/artifacts", asked), 422, "invalid")
        assert body["errors"] == [{"pointer": pointer, "message": message}]
        assert body["detail"] == f"The artifact was not published: {pointer[1:]} {message}."
    for parts, pointer, message in (
        ({"channel": "x" * 61}, "/channel", "String should have at most 60 characters"),
        ({"title": "x" * 201}, "/title", "String should have at most 200 characters"),
        ({"summary": "x" * 2001}, "/summary", "String should have at most 2000 characters"),
        ({"tags": ["x"] * 21}, "/tags", "it holds more than 20 entries"),
    ):
        asked = {"threadId": home, "channel": "design", "path": "a.md", **parts}
        body = refused(await api.post("/artifacts", asked), 422, "invalid")
        assert body["errors"] == [{"pointer": pointer, "message": message}]
    for parts, status, slug in (
        ({"path": "nothing"}, 404, "not_found"),
        ({"path": "../a.md"}, 422, "path_not_allowed"),
        ({"threadId": theirs}, 404, "not_found"),
        ({"workId": "wrk_" + "0" * 26}, 404, "not_found"),
        ({"nonsense": 1}, 422, "invalid"),
    ):
        asked = {"threadId": home, "channel": "design", "path": "a.md", **parts}
        refused(await api.post("/artifacts", asked), status, slug)
    assert await listed(api) == [design["id"]]
    assert await plangate.value("SELECT count(*) FROM work_records WHERE kind = 'host'") == 1
    assert await plangate.value("SELECT n FROM artifact_chains") == 1


async def test_records_are_superseded_and_compete(api: Caller, home: str) -> None:
    first = (await publish(api, home, "a.md"))["id"]
    second, third = [(await publish(api, home, "a.md", replaces=first))["id"] for _ in range(2)]
    after = (await publish(api, home, "a.md", replaces=second))["id"]
    found = {a["id"]: a for a in (await api.read("/artifacts", includeSuperseded=True))["items"]}
    assert {id: (a["status"], a["competesWith"]) for id, a in found.items()} == {
        first: ("superseded", []),
        second: ("superseded", [third]),
        third: ("active", [second]),
        after: ("active", []),
    }
    assert list(found) == [after, third, second, first]
    assert await listed(api) == [after, third]
    assert await listed(api, status="active") == [after, third]
    assert await listed(api, status="superseded") == [second, first]


async def test_lists_are_filtered_and_paged(api: Caller, home: str) -> None:
    other = await thread(api, "u")
    await put(api, other, "b", b"x")
    one = await publish(api, home, "a.md", "design", tags=["big"])
    two = await publish(api, other, "b", "patch", tags=["big", "small"])
    three = await publish(api, home, "a.md", "patch")
    ids = [made["id"] for made in (three, two, one)]
    assert await listed(api) == ids
    for params, expected in (
        ({"channel": "patch"}, [three, two]),
        ({"threadId": home}, [three, one]),
        ({"tag": "big"}, [two, one]),
        ({"tag": "big", "channel": "patch"}, [two]),
        ({"workId": one["producer"]["workId"]}, [one]),
        ({"queryId": "qry_1"}, []),
        ({"parentWorkId": "wrk_1"}, []),
        ({"agent": "solo"}, []),
        ({"since": "2020-01-01T00:00:00Z"}, [three, two, one]),
        ({"since": "2999-01-01T00:00:00Z"}, []),
        ({"since": three["createdAt"]}, [three]),
    ):
        found = await listed(api, **params)
        if params.get("since") == three["createdAt"]:
            assert found[0] == three["id"]
        else:
            assert found == [made["id"] for made in expected], params
    paged, cursor = [], {}
    while True:
        page = await api.read("/artifacts", limit=1, includeSuperseded=True, **cursor)
        paged += [a["id"] for a in page["items"]]
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert paged == ids
    refused(await api.get("/artifacts", cursor=cursor["cursor"]), 400)  # of another filter
    body = refused(await api.get("/artifacts", chanel="x"), 422, "invalid")
    assert [e["pointer"] for e in body["errors"]] == ["query:chanel"]
    for bad in ({"status": "gone"}, {"since": "yesterday"}, {"since": "2020-01-01T00:00:00"}):
        refused(await api.get("/artifacts", **bad), 422)


async def test_lineage_is_walked_both_ways(api: Caller, home: str) -> None:
    async def made(*parents: str) -> str:
        return str((await publish(api, home, "a.md", parentArtifactIds=list(parents)))["id"])

    root = await made()
    left, right = await made(root), await made(root, root)
    join = await made(left, right)
    leaf = await made(join, root)
    alone = await made()

    def steps(found: Any) -> list[tuple[int, str]]:
        return [(step["depth"], step["artifact"]["id"]) for step in found]

    found = await api.read(f"/artifacts/{join}/lineage")
    assert found["artifact"] == await api.read(f"/artifacts/{join}")
    assert steps(found["ancestors"]) == [(1, left), (1, right), (2, root)]
    assert steps(found["descendants"]) == [(1, leaf)]
    found = await api.read(f"/artifacts/{root}/lineage")
    assert (steps(found["ancestors"]), steps(found["descendants"])) == (
        [],
        [(1, left), (1, right), (1, leaf), (2, join)],
    )
    found = await api.read(f"/artifacts/{alone}/lineage")
    assert (found["ancestors"], found["descendants"]) == ([], [])
    refused(await api.get(f"/artifacts/{NOBODY}/lineage"), 404, "artifact_not_found")


async def test_lineage_follows_revisions_and_names_the_edge(api: Caller, home: str) -> None:
    async def made(**parts: Any) -> str:
        return str((await publish(api, home, "a.md", **parts))["id"])

    notes, draft = await made(), await made()
    second = await made(replaces=draft, parentArtifactIds=[draft, notes])
    third = await made(replaces=second)

    def steps(found: Any) -> list[tuple[int, str, list[tuple[str, str]]]]:
        return [(s["depth"], s["artifact"]["id"], [(e["kind"], e["via"]) for e in s["edges"]]) for s in found]

    found = await api.read(f"/artifacts/{third}/lineage")
    assert steps(found["ancestors"]) == [
        (1, second, [("replaces", third)]),
        (2, notes, [("parent", second)]),
        (2, draft, [("parent", second), ("replaces", second)]),
    ]
    found = await api.read(f"/artifacts/{draft}/lineage")
    assert steps(found["descendants"]) == [
        (1, second, [("parent", draft), ("replaces", draft)]),
        (2, third, [("replaces", second)]),
    ]
    assert found["ancestors"] == []


async def test_a_lineage_lists_each_record_once_at_its_shortest_distance(
    plangate: World, api: Caller, home: str
) -> None:
    """Each of 24 records is made of all before it: between the first and the last there are ways of every length."""
    ids: list[str] = []
    for _ in range(24):
        ids.append(str((await publish(api, home, "a.md", parentArtifactIds=ids))["id"]))
    found = await api.read(f"/artifacts/{ids[-1]}/lineage")
    assert [(s["depth"], s["artifact"]["id"]) for s in found["ancestors"]] == [(1, id) for id in ids[:-1]]
    async with plangate.services.db.transaction("acme") as tx:
        assert await store.ancestors(tx, id=ids[-1], depth=50, limit=5) == dict.fromkeys(ids[:5], 1)
        assert await store.descendants(tx, id=ids[0], depth=50, limit=5) == dict.fromkeys(ids[1:6], 1)


async def test_a_lineage_is_followed_to_the_requested_depth(plangate: World, api: Caller, home: str) -> None:
    ids: list[str] = []
    for _ in range(6):
        ids.append(str((await publish(api, home, "a.md", parentArtifactIds=ids[-1:]))["id"]))
    async with plangate.services.db.transaction("acme") as tx:
        above = await store.ancestors(tx, id=ids[5], depth=3, limit=100)
        assert list(above.items()) == [(ids[4], 1), (ids[3], 2), (ids[2], 3)]
        below = await store.descendants(tx, id=ids[0], depth=100, limit=3)
        assert list(below.items()) == [(ids[1], 1), (ids[2], 2), (ids[3], 3)]


async def test_a_list_does_not_read_directories_to_detect_changes(
    plangate: World, api: Caller, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(api, home, "out/a", b"x")
    ids = [(await publish(api, home, path))["id"] for path in ("out", "a.md", "out", "out", "a.md")]
    looked = []
    fetch = Tx.fetch

    async def fetching(tx: Tx, sql: str, *args: Any) -> Any:
        if sql == store.PRESENT:
            looked.append((list(zip(*args[1:4], strict=True)), args[4]))
        return await fetch(tx, sql, *args)

    monkeypatch.setattr(Tx, "fetch", fetching)
    assert await listed(api) == ids[::-1]
    assert looked == [([(home, "a.md", False), (home, "out", True)], False)]
    await put(api, home, "out/a", b"y")
    changed = {a["id"]: a.get("targetChanged") for a in (await api.read("/artifacts"))["items"]}
    assert changed == {ids[0]: None, ids[1]: False, ids[2]: None, ids[3]: None, ids[4]: False}
    assert (await api.read(f"/artifacts/{ids[0]}"))["targetChanged"] is True


async def test_a_body_is_uploaded_and_published_in_one_step(api: Caller, home: str) -> None:
    at = "/artifacts/verification/result.json"
    params = {"threadId": home, "title": "It works", "tag": ["x", "y"]}
    made = await api.request("PUT", at, params=params, content=b"{}")
    record = made.json()
    assert (made.status_code, made.headers["location"]) == (201, f"/artifacts/{record['id']}")
    assert (record["path"], record["kind"], record["tags"]) == (
        "artifacts/verification/result.json",
        "json",
        ["x", "y"],
    )
    again = await api.request("PUT", at, params=params, content=b"{}")
    assert (again.status_code, again.json()) == (200, record)
    for changed, content in (({"title": "It works again"}, b"{}"), ({}, b"[]")):
        answer = await api.request("PUT", at, params={**params, **changed}, content=content)
        assert answer.status_code == 201
    assert len(await listed(api)) == 3
    assert (await api.get(f"/artifacts/{record['id']}/content")).content == b"{}"
    refused(await api.request("PUT", "/artifacts/No/x", params=params, content=b""), 422, "invalid")
    refused(
        await api.request("PUT", "/artifacts/x/%2e%2e", params=params, content=b""), 422, "path_not_allowed"
    )
    refused(await api.request("PUT", at, content=b""), 422)
    refused(await api.request("PUT", at, params={"threadId": "thr_1"}, content=b""), 404)


async def test_a_repeated_post_publishes_once(api: Caller, home: str) -> None:
    asked = {"threadId": home, "channel": "design", "path": "a.md"}
    key = {"headers": {"idempotency-key": "k"}}
    first = await api.post("/artifacts", asked, **key)
    good(await api.delete(f"/threads/{home}/files/a.md"))
    again = await api.post("/artifacts", asked, **key)
    assert (again.status_code, again.content) == (201, first.content)
    assert len(await listed(api)) == 1


async def test_tenants_are_apart_and_records_are_append_only(plangate: World, api: Caller, home: str) -> None:
    id = (await publish(api, home, "a.md", tags=["x"]))["id"]
    for path in (f"/artifacts/{id}", f"/artifacts/{id}/content", f"/artifacts/{id}/lineage"):
        theirs = refused(await plangate.other.get(path), 404, "artifact_not_found")
        none = refused(await plangate.other.get(path.replace(id, NOBODY)), 404, "artifact_not_found")
        assert theirs["detail"].replace(id, NOBODY) == none["detail"]
    assert await listed(plangate.other) == []
    theirs = await thread(plangate.other)
    await put(plangate.other, theirs, "a.md", b"one")
    asked = {
        "threadId": theirs,
        "channel": "design",
        "path": "a.md",
        "replaces": id,
        "parentArtifactIds": [id],
    }
    body = refused(await plangate.other.post("/artifacts", asked), 422, "invalid")
    none = refused(
        await plangate.other.post("/artifacts", {**asked, "replaces": NOBODY, "parentArtifactIds": [NOBODY]}),
        422,
    )
    assert body["detail"].replace(id, NOBODY) == none["detail"]
    assert [e["pointer"] for e in body["errors"]] == ["/replaces", "/parentArtifactIds/0"]
    for table in ("artifacts", "artifact_tags", "artifact_chains"):
        assert await plangate.sql(f"SELECT 1 FROM {table}", tenant="other") == []
    for statement in (
        "UPDATE artifacts SET record = ''",
        "UPDATE artifacts SET channel = 'x'",
        "UPDATE artifacts SET mac = ''",
        "DELETE FROM artifacts",
        "TRUNCATE artifacts",
        "UPDATE artifact_tags SET tag = 'y'",
        "DELETE FROM artifact_tags",
        "DELETE FROM artifact_parents",
        "DELETE FROM artifact_chains",
        "INSERT INTO artifact_tombstones (tenant_id, thread_id, n, mac, seal) VALUES ('acme', 'x', 1, '', '')",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await plangate.sql(statement)
    reader = await plangate.key("read")
    assert (await reader.get(f"/artifacts/{id}")).status_code == 200
    refused(await reader.post("/artifacts", {"threadId": home, "channel": "x", "path": "a.md"}), 403)
    refused(await reader.request("PUT", "/artifacts/x/y", params={"threadId": home}, content=b""), 403)


async def test_concurrent_publications_form_one_chain(plangate: World, api: Caller, home: str) -> None:
    await asyncio.gather(*(publish(api, home, "a.md") for _ in range(8)))
    rows = await plangate.sql("SELECT n, previous, mac FROM artifacts ORDER BY n")
    assert [r["n"] for r in rows] == list(range(1, 9))
    assert [r["previous"] for r in rows[1:]] == [r["mac"] for r in rows[:-1]]


# -- agents


def team(*, failing: bool = False) -> Any:
    return specs.spec(
        specs.agent("chief", "coordinator", routes=["maker"], toolkits=["artifacts"]),
        specs.agent("maker", toolkits=["artifacts", "workspace"], **({"maxTurns": 2} if failing else {})),
        interpreter="scripted",
    )


MAKE = {
    "script": [
        {"tool": "write", "args": {"path": "tasks/1/plan.md", "content": "A long plan. " * 50}},
        {
            "tool": "artifact_publish",
            "args": {"channel": "design", "path": "tasks/1/plan.md", "title": "Plan", "summary": "In short."},
        },
    ]
}


async def test_agents_publish_and_the_caller_gets_ids_and_summaries(plangate: World, api: Caller) -> None:
    await api.register(team())
    query = await api.run(
        specs.script(
            ("call_agent", {"agent": "maker", "prompt": MAKE}),
            ("artifact_list", {"channel": "design"}),
            ("artifact_get", {"id": NOBODY}),
        ),
        threadKey="t",
    )
    called, found, nothing = [entry["result"] for entry in output_of(query)]
    (record,) = found
    assert nothing is None
    assert called["artifacts"] == [
        {name: record[name] for name in ("id", "channel", "kind", "path", "title", "summary", "sizeBytes")}
    ]
    (event,) = await api.events(query["id"], "artifact-published")
    assert event["data"] == record == await api.read(f"/artifacts/{record['id']}")
    work = {w["id"]: w for w in (await api.read(f"/queries/{query['id']}/work"))["items"]}
    producer = record["producer"]
    run = work[producer["workId"]]
    assert (run["kind"], run["agent"]) == ("agent", "maker")
    assert producer == {
        "workId": run["id"],
        "parentWorkId": run["parentId"],
        "kind": "agent",
        "queryId": query["id"],
        "threadId": query["threadId"],
        "agent": "maker",
        "model": "m",
        "callId": event["workId"],
    }
    assert work[event["workId"]]["name"] == "artifact_publish"
    ended = [e for e in await api.events(query["id"], "tool-agent") if e["state"] == "result"]
    assert [e["artifacts"] for e in ended] == [[record]]
    assert await listed(api, queryId=query["id"]) == [record["id"]]
    assert await listed(api, agent="maker", workId=run["id"], parentWorkId=run["parentId"]) == [record["id"]]


async def test_bodies_appear_in_no_prompt_event_or_result(plangate: World, api: Caller, home: str) -> None:
    await put(api, home, "a.md", b"The body itself. " * 10)
    await api.register(team())
    make = {"tool": "artifact_publish", "args": {"channel": "design", "path": "a.md", "summary": "In short."}}
    query = await api.run(
        specs.script(("call_agent", {"agent": "maker", "prompt": make}), ("artifact_list", {})), threadKey="t"
    )
    assert output_of(query)[0]["result"]["artifacts"][0]["summary"] == "In short."
    for sql in (
        "SELECT count(*) FROM events WHERE position('The body itself'::bytea IN body) > 0",
        "SELECT count(*) FROM work_records WHERE position('The body itself'::bytea IN coalesce(input, '')) > 0 "
        "OR position('The body itself'::bytea IN coalesce(output, '')) > 0",
    ):
        assert await plangate.value(sql) == 0


async def test_artifacts_of_a_failed_agent_remain(api: Caller) -> None:
    await api.register(team(failing=True))
    query = await api.run(specs.script(("call_agent", {"agent": "maker", "prompt": MAKE})), threadKey="t")
    (id,) = await listed(api)
    error = output_of(query)[0]["error"]
    assert error.endswith(f" Before that it published: {id} (tasks/1/plan.md).")


async def test_an_agent_reads_why_it_may_not_publish(api: Caller) -> None:
    await api.register(team())
    prompt = {"script": [{"tool": "artifact_publish", "args": {"channel": c, "path": p}} for c, p in
                         (("design", "nothing"), ("Design", "a"), ("design", "../a"))]}  # fmt: skip
    home = await thread(api)
    await put(api, home, "a", b"x")
    query = await api.run(json_of(prompt), agent="maker", threadKey="t")
    events = await api.events(query["id"], "tool-invocation")
    assert [e["error"]["code"] for e in events if e["state"] == "error"] == [
        "not_found",
        "invalid",
        "path_not_allowed",
    ]
    assert await listed(api) == []


def json_of(value: Any) -> str:
    return specs.json.dumps(value)


async def test_a_client_tool_publishes_for_the_agent_that_called_it(api: Caller, home: str) -> None:
    await api.register(specs.scripted(specs.tool("build")))
    accepted = await api.submit(specs.script(("build", {"n": 1})), threadKey="t")
    (call,) = await api.claim("build")
    record = await publish(api, home, "a.md", workId=call["workId"])
    assert (record["producer"]["kind"], record["producer"]["agent"]) == ("agent", "solo")
    assert record["producer"]["queryId"] == accepted["id"]
    good(await api.result(call, 1))
    await api.ended(accepted["id"])
    (event,) = await api.events(accepted["id"], "artifact-published")
    assert (event["data"], event["workId"]) == (record, call["workId"])
    other = await thread(api, "u")
    await put(api, other, "b", b"x")
    asked = {"threadId": other, "channel": "x", "path": "b", "workId": call["workId"]}
    body = refused(await api.post("/artifacts", asked), 422)
    assert body["errors"] == [{"pointer": "/workId", "message": "must be a work record of the thread"}]


async def test_publishing_for_the_work_of_others_is_rejected(plangate: World, api: Caller, home: str) -> None:
    await api.register(specs.scripted(specs.tool("build")))
    query = await api.submit(specs.script(("build", {"n": 1})), threadKey="t")
    await api.until(query["id"], "waiting", "client_call")
    server = await plangate.key("tools:serve", "data:write", principal="bob")
    other = await plangate.key("data:write", principal="eve")
    work = (await api.read(f"/queries/{query['id']}/work"))["items"]
    (call_id,) = [w["id"] for w in work if w["kind"] == "tool_call"]
    asked = {"threadId": home, "channel": "design", "path": "a.md"}

    async def refused_to(caller: Caller, work_id: str, status: int) -> None:
        refused(await caller.post("/artifacts", {**asked, "workId": work_id}), status)
        params = {"threadId": home, "workId": work_id}
        refused(await caller.request("PUT", "/artifacts/design/b", params=params, content=b"x"), status)

    await refused_to(server, call_id, 409)  # nobody has it yet
    (call,) = await server.claim("build")
    await refused_to(other, call_id, 403)
    for record in work:
        if record["id"] != call_id:
            await refused_to(server, record["id"], 403)
    assert await listed(api) == []
    assert (await api.read(f"/threads/{home}/files"))["items"][0]["path"] == "a.md"
    made = await publish(server, home, "a.md", workId=call_id)
    good(await server.result(call, 1))
    await api.ended(query["id"])
    assert await listed(api, agent="solo") == [made["id"]]


async def test_an_action_publishes_for_its_agent_or_for_the_host_of_its_plan(
    plangate: World, api: Caller
) -> None:
    await api.register(graphs.flowing())
    home = await thread(api, "plan")
    await put(api, home, "a.md", b"x")

    async def by_its_action() -> Any:
        (call,) = await graphs.taken(api)
        made = await publish(api, home, "a.md", workId=call["workId"])
        good(await api.result(call, {"entitiesAffected": 1}))
        producer = made["producer"]
        named = (producer["callId"], producer["planId"], producer["actionIndex"])
        assert named == (call["workId"], call["planId"], 0)
        return made

    plan = await graphs.stored(api, graphs.make(1), threadKey="plan")
    query = await graphs.running(api, plan)
    of_host = (await by_its_action())["producer"]
    await api.ended(query)
    work = {w["id"]: w for w in (await api.read(f"/queries/{query}/work"))["items"]}
    assert of_host == {
        "workId": of_host["workId"],
        "parentWorkId": work[of_host["workId"]]["parentId"],
        "kind": "plan_execution",
        "queryId": query,
        "threadId": home,
        "callId": of_host["callId"],
        "planId": plan["id"],
        "actionIndex": 0,
    }
    store = {"specName": "Flow", "planId": "p", "body": {"actions": [graphs.make(1)]}}
    accepted = await api.submit(
        specs.script(
            ("call_agent", {"agent": "planner", "prompt": {"tool": "storePlan", "args": store}}),
            ("call_agent", {"agent": "doer", "prompt": {"tool": "executePlan", "args": {"planId": "p"}}}),
        ),
        threadKey="plan",
    )
    await api.approve(accepted["id"])
    await api.until(accepted["id"], "waiting", "client_call")
    made = await by_its_action()
    assert (made["producer"]["kind"], made["producer"]["agent"]) == ("agent", "doer")
    query = await api.ended(accepted["id"])
    assert [a["id"] for a in output_of(query)[1]["result"]["artifacts"]] == [made["id"]]


async def test_artifacts_are_listed_with_the_plan_action_that_published_them(api: Caller) -> None:
    await api.register(specs.planning())
    home = await thread(api)
    for name in ("a", "b", "c"):
        await put(api, home, name, name.encode())
    query = await api.submit(specs.store_and_execute(), threadKey="t")
    plan_id = (await api.gate(query["id"]))["target"]
    await api.approve(query["id"])
    await api.until(query["id"], "waiting", "client_call")
    (call,) = await api.claim("actions")
    work = {"workId": call["workId"]}
    of_first = await publish(api, home, "a", **work, actionIndex=0)
    of_second = await publish(api, home, "b", **work, actionIndex=1)
    of_both = await publish(api, home, "c", **work)
    replaced = await publish(api, home, "c", **work, actionIndex=1, replaces=of_second["id"])
    body = refused(
        await api.post(
            "/artifacts", {"threadId": home, "channel": "design", "path": "a", **work, "actionIndex": 2}
        ),
        422,
    )
    assert body["detail"] == (
        f"The artifact was not published: the call {call['workId']} carries out the actions 0, 1, not action 2."
    )
    params = {"threadId": home, **work}
    uploads = [
        good(await api.request("PUT", "/artifacts/x/n", params={**params, "actionIndex": n}, content=b"n"))
        for n in (0, 0, 1)
    ]
    assert uploads[0] == uploads[1]
    assert uploads[2]["producer"]["actionIndex"] == 1
    good(await api.result(call, {"entitiesAffected": 1}))
    await api.ended(query["id"])
    assert [a["producer"].get("actionIndex") for a in (of_first, of_second, of_both)] == [0, 1, None]
    assert of_both["producer"]["planId"] == plan_id
    listed_with = {
        row["index"]: [(a["id"], a["path"], a["status"]) for a in row["artifacts"]]
        for row in (await api.read(f"/plans/{plan_id}/actions"))["items"]
    }
    assert listed_with == {
        0: [
            (of_first["id"], "a", "active"),
            (of_both["id"], "c", "active"),
            (uploads[0]["id"], "artifacts/x/n", "active"),
        ],
        1: [
            (of_second["id"], "b", "superseded"),
            (of_both["id"], "c", "active"),
            (replaced["id"], "c", "active"),
            (uploads[2]["id"], "artifacts/x/n", "active"),
        ],
    }
    assert await listed(api, planId=plan_id, actionIndex=0) == [uploads[0]["id"], of_first["id"]]
    newest_first = [uploads[2], uploads[0], replaced, of_both, of_first]
    assert await listed(api, planId=plan_id) == [a["id"] for a in newest_first]
    assert await listed(api, callId=call["workId"]) == [a["id"] for a in newest_first]
    assert await listed(api, callId=call["workId"], agent="nobody") == []
    refused(await api.get("/artifacts", params={"actionIndex": 0}), 422)


async def test_an_action_says_that_it_published_more_than_it_lists(api: Caller, owner: Any) -> None:
    await api.register(specs.planning())
    home = await thread(api)
    await put(api, home, "a", b"a")
    query = await api.submit(specs.store_and_execute(), threadKey="t")
    plan_id = (await api.gate(query["id"]))["target"]
    await api.approve(query["id"])
    await api.until(query["id"], "waiting", "client_call")
    (call,) = await api.claim("actions")
    of_first = await publish(api, home, "a", workId=call["workId"], actionIndex=0)
    # Many more of the first action, all of them older than those of the second and of both.
    copies = """
        INSERT INTO artifacts SELECT (jsonb_populate_record(a, jsonb_build_object('n', a.n + m,
               'id', left(a.id, -6) || lpad(m::text, 6, '0')))).* FROM artifacts a, generate_series(1, 2100) m
    """
    await owner.execute(copies)
    await owner.execute("UPDATE artifact_chains SET n = n + 2100")
    of_second = [
        await publish(api, home, "a", workId=call["workId"], actionIndex=1, title=f"{n}") for n in range(19)
    ]

    async def listed_with() -> list[tuple[int, bool]]:
        rows = (await api.read(f"/plans/{plan_id}/actions"))["items"]
        assert all(a["id"] in {made["id"] for made in [*of_second, of_both]} for a in rows[1]["artifacts"])
        return [(len(row["artifacts"]), row["hasMoreArtifacts"]) for row in rows]

    of_both = await publish(api, home, "a", workId=call["workId"])
    assert await listed_with() == [(20, True), (20, False)]
    of_second.append(await publish(api, home, "a", workId=call["workId"], actionIndex=1))
    assert await listed_with() == [(20, True), (20, True)]
    found = await listed(api, planId=plan_id, actionIndex=1)
    assert sorted(found) == sorted(made["id"] for made in of_second)
    assert of_first["id"] not in found


async def test_a_host_cannot_name_a_plan_action(api: Caller, home: str) -> None:
    asked = {"threadId": home, "channel": "design", "path": "a.md", "actionIndex": 0}
    body = refused(await api.post("/artifacts", asked), 422)
    assert body["errors"] == [{"pointer": "/actionIndex", "message": "must not be given without workId"}]
    await api.register(specs.scripted(specs.tool("build")))
    await api.submit(specs.script(("build", {"n": 1})), threadKey="t")
    (call,) = await api.claim("build")
    body = refused(await api.post("/artifacts", {**asked, "workId": call["workId"]}), 422)
    assert "carries out no plan action, not action 0" in body["detail"]
    assert (await publish(api, home, "a.md", workId=call["workId"]))["producer"]["callId"] == call["workId"]


async def test_an_agent_finds_artifacts_by_its_filters(api: Caller, home: str) -> None:
    """Every filter of `artifact_list`, and `artifact_get`."""
    first = await publish(api, home, "a.md", "patch", title="First")
    second = await publish(api, home, "a.md", "patch", replaces=first["id"])
    other = await thread(api, "u")
    await put(api, other, "b", b"x")
    elsewhere = await publish(api, other, "b", "patch")
    await api.register(team())
    prompt = {"tool": "artifact_publish", "args": {"channel": "design", "path": "a.md"}}
    mine = output_of(await api.run(json_of(prompt), agent="maker", threadKey="t"))[0]["result"]
    query = await api.run(
        specs.script(
            ("artifact_list", {}),
            ("artifact_list", {"channel": "patch"}),
            ("artifact_list", {"workId": mine["producer"]["workId"]}),
            ("artifact_list", {"agent": "maker"}),
            ("artifact_list", {"agent": "chief"}),
            ("artifact_list", {"status": "superseded"}),
            ("artifact_list", {"limit": 1}),
            ("artifact_get", {"id": first["id"]}),
            ("artifact_get", {"id": elsewhere["id"]}),
            ("artifact_list", {"colour": "red"}),
        ),
        threadKey="t",
    )
    answers = output_of(query)
    assert [[a["id"] for a in answer["result"]] for answer in answers[:7]] == [
        [mine["id"], second["id"]],
        [second["id"]],
        [mine["id"]],
        [mine["id"]],
        [],
        [first["id"]],
        [mine["id"]],
    ]
    assert answers[7]["result"] == await api.read(f"/artifacts/{first['id']}")
    assert (answers[7]["result"]["title"], answers[7]["result"]["status"]) == ("First", "superseded")
    assert answers[8]["result"]["id"] == elsewhere["id"]
    assert "colour" in answers[9]["error"]


async def test_a_file_becomes_an_artifact_by_publishing_without_a_copy(
    plangate: World, api: Caller, home: str
) -> None:
    assert await listed(api) == []
    count = "SELECT count(*) FROM blobs"
    assert await plangate.value(count) == 1
    for _ in range(3):
        await publish(api, home, "a.md")
    assert await plangate.value(count) == 1
    for missing in ("threadId", "channel", "path"):
        asked = {"threadId": home, "channel": "design", "path": "a.md"}
        del asked[missing]
        body = refused(await api.post("/artifacts", asked), 422, "invalid")
        assert [e["pointer"] for e in body["errors"]] == [f"/{missing}"]


async def test_the_file_list_of_a_directory_lives_as_long_as_its_artifact(
    plangate: World, api: Caller, home: str, owner: asyncpg.Connection
) -> None:
    """Nothing but the artifact names it."""
    await put(api, home, "out/b.txt", b"bb")
    record = await publish(api, home, "out")
    await owner.execute("UPDATE blobs SET used_at = now() - interval '25 hours', named = false")
    await plangate.services.workspaces.collect()
    found = await api.get(f"/artifacts/{record['id']}/content")
    assert found.content == f"{hashlib.sha256(b'bb').hexdigest()}  b.txt\n".encode()


async def test_a_target_that_changes_while_it_is_published_is_not_published(
    plangate: World, api: Caller, home: str
) -> None:
    artifacts, db = plangate.services.artifacts, plangate.services.db
    target = await artifacts.prepare("acme", home, "a.md")
    await put(api, home, "a.md", b"two")
    message = "'a.md' changed while it was being published; publish it again."
    with pytest.raises(TargetMoved, match=re.escape(message)):
        async with db.transaction("acme") as tx:
            producer = await artifacts.host(tx, home)
            await publishing.publish(tx, artifacts, Publication("design", "a.md"), target, producer, None)
    assert await listed(api) == []
    assert await plangate.value("SELECT count(*) FROM work_records WHERE kind = 'host'") == 0
    assert (await publish(api, home, "a.md"))["sizeBytes"] == 3  # the same content as before is no change


async def test_forked_records_verify_like_any_other(plangate: World, api: Caller, home: str) -> None:
    """A fork has the files; what was published stays with the thread that it was published in."""
    record = await publish(api, home, "a.md")
    fork = (await api.do(f"/threads/{home}/fork", {}))["id"]
    assert await listed(api, threadId=fork) == []
    good(await api.delete(f"/threads/{fork}/files/a.md"))
    assert (await api.read(f"/artifacts/{record['id']}"))["targetAvailable"] is True


async def test_a_call_of_artifact_publish_publishes_once(plangate: World, api: Caller, home: str) -> None:
    artifacts, db = plangate.services.artifacts, plangate.services.db
    target = await artifacts.prepare("acme", home, "a.md")
    producer = Producer("wrk_1", None, "agent", home, call_id="wrk_2")
    async with db.transaction("acme") as tx:
        asked = Publication("design", "a.md")
        first = await publishing.publish(tx, artifacts, asked, target, producer, None, once=True)
    async with db.transaction("acme") as tx:  # after a crash, whatever is at the path by then
        asked = Publication("patch", "a.md")
        again = await publishing.publish(tx, artifacts, asked, target, producer, None, once=True)
    assert (again.id, again.record) == (first.id, first.record)
    assert await listed(api) == [first.id]
