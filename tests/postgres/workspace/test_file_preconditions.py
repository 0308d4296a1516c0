"""Preconditions, ranges and races of file and artifact requests."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.support import specs
from tests.support.client import Caller, eventually, good, output_of, refused
from tests.support.world import World

SAFE = {
    "content-type": "application/octet-stream",
    "content-disposition": "attachment",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "no-store",
}


@pytest.fixture
async def home(api: Caller) -> str:
    made = str((await api.do("/threads", {"threadKey": "t"}))["id"])
    good(await put(api, f"/threads/{made}/files/a.md", b"one"))
    return made


async def put(api: Caller, path: str, data: bytes = b"x", **parts: Any) -> Any:
    return await api.request("PUT", path, content=data, **parts)


# -- files


@pytest.mark.parametrize(
    ("headers", "status", "detail"),
    [
        (
            {"content-range": "bytes 0-1/5"},
            400,
            "A file is written as a whole. Send all of it, without Content-Range.",
        ),
        (
            {"content-encoding": "gzip"},
            415,
            "The body is stored as it is sent. Send it without Content-Encoding.",
        ),
        (
            {"transfer-encoding": "gzip, chunked"},
            415,
            "The body is stored as it is sent. Send it with no Transfer-Encoding but chunked.",
        ),
        (
            {"content-type": "multipart/form-data; boundary=x"},
            415,
            "The body is the file itself, not a form: with curl, send it by --data-binary @file or -T file.",
        ),
        ({"content-type": "text"}, 422, "The Content-Type is not a valid media type."),
        ({"content-type": "text/html text/x"}, 422, "The Content-Type is not a valid media type."),
        ({"content-type": "x/" + "y" * 300}, 422, "The Content-Type is not a valid media type."),
    ],
)
async def test_a_link_in_place_of_a_body_is_rejected(
    api: Caller, home: str, headers: dict[str, str], status: int, detail: str
) -> None:
    for path, params in (
        (f"/threads/{home}/files/a.md", {}),
        ("/artifacts/design/a.md", {"threadId": home}),
    ):
        body = refused(await put(api, path, headers=headers, params=params), status)
        assert body["detail"] == detail
    assert (await api.get(f"/threads/{home}/files/a.md")).content == b"one"
    assert (await api.read("/artifacts"))["items"] == []


async def test_if_match_guards_a_write(api: Caller, home: str) -> None:
    at = f"/threads/{home}/files/a.md"
    known = (await api.get(at)).headers["etag"]
    none = {"headers": {"if-none-match": "*"}}
    body = refused(await put(api, at, b"two", **none), 412, "file_changed")
    assert (
        body["detail"] == "'a.md' has changed since you read it: its version 1 is there now. Read it again."
    )
    good(await put(api, f"/threads/{home}/files/new", b"new", **none))
    good(await put(api, at, b"two", headers={"if-match": f'"0", {known}'}))
    for tag in (known, '"x"', f"W/{known}"):
        refused(await put(api, at, b"three", headers={"if-match": tag}), 412, "file_changed")
        refused(await api.request("DELETE", at, headers={"if-match": tag}), 412, "file_changed")
    for bad in ("x", "", '"a" "b"', known + "x"):
        refused(await put(api, at, b"three", headers={"if-match": bad}), 400, "malformed")
    assert (await api.get(at)).content == b"two"
    good(await api.request("DELETE", at, headers={"if-match": "*"}))
    body = refused(await put(api, at, b"three", headers={"if-match": "*"}), 412, "file_changed")
    assert body["detail"] == "'a.md' has changed since you read it: no file is there now. Read it again."
    good(await put(api, at, b"three", **none))


async def test_one_of_many_writers_with_the_same_etag_wins(api: Caller, home: str) -> None:
    at = f"/threads/{home}/files/a.md"
    known = (await api.get(at)).headers["etag"]
    texts = [b"%d" % n for n in range(8)]
    answers = await asyncio.gather(*(put(api, at, t, headers={"if-match": known}) for t in texts))
    assert sorted(a.status_code for a in answers) == [200] + [412] * 7
    (won,) = [t for a, t in zip(answers, texts, strict=True) if a.status_code == 200]
    found = await api.get(at)
    assert (found.content, found.headers["plangate-file-version"]) == (won, "2")


async def test_if_none_match_avoids_a_second_download(api: Caller, home: str) -> None:
    record = await api.do("/artifacts", {"threadId": home, "channel": "design", "path": "a.md"})
    for path in (f"/threads/{home}/files/a.md", f"/artifacts/{record['id']}/content"):
        tag = (await api.get(path)).headers["etag"]
        for known in (tag, f'W/{tag}, "x"', "*"):
            same = await api.request("GET", path, headers={"if-none-match": known})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        other = await api.request("GET", path, headers={"if-none-match": '"x"'})
        assert (other.status_code, other.content) == (200, b"one")
        refused(await api.request("GET", path, headers={"if-match": '"x"'}), 412, "file_changed")


async def test_a_cursor_continues_its_own_list(plangate: World, api: Caller, home: str) -> None:
    at = f"/threads/{home}/files"
    for name in "bcd":
        good(await put(api, f"{at}/{name}"))
    cursor = (await api.read(at, limit=1))["nextCursor"]
    theirs = str((await plangate.other.do("/threads", {}))["id"])
    other = str((await api.do("/threads", {"threadKey": "u"}))["id"])
    for caller, path, params in (
        (api, at, {"prefix": "c"}),
        (api, f"/threads/{other}/files", {}),
        (plangate.other, f"/threads/{theirs}/files", {}),
        (api, "/artifacts", {}),
    ):
        refused(await caller.get(path, cursor=cursor, **params), 400, "malformed")
    assert [r["path"] for r in (await api.read(at, cursor=cursor))["items"]] == ["b", "c", "d"]


async def test_stored_content_is_never_rendered_by_a_browser(api: Caller, home: str) -> None:
    page = b"<html><script>alert(document.cookie)</script>"
    good(await put(api, f"/threads/{home}/files/page.html", page, headers={"content-type": "text/html"}))
    asked = {"threadId": home, "channel": "design", "path": "page.html", "mediaType": "text/html"}
    record = await api.do("/artifacts", asked)
    assert record["mediaType"] == "text/html"
    for path in (f"/threads/{home}/files/page.html", f"/artifacts/{record['id']}/content"):
        found = await api.request("GET", path, headers={"accept": "text/html"})
        told = {name: found.headers[name] for name in SAFE}
        assert (found.content, told) == (page, SAFE)


# -- artifacts


@pytest.mark.parametrize(
    ("parts", "pointer", "message"),
    [
        ({"kind": "re\x1b[31mport"}, "/kind", "must be one line of characters that can be seen"),
        ({"tags": ["x", "a\nb"]}, "/tags/1", "must be one line of characters that can be seen"),
        ({"tags": ["\u202eabc"]}, "/tags/0", "must be one line of characters that can be seen"),
        ({"tags": ["a\u3164"]}, "/tags/0", "must be one line of characters that can be seen"),
        ({"tags": ["\u2800"]}, "/tags/0", "must be one line of characters that can be seen"),
        ({"kind": " "}, "/kind", "must be one line of characters that can be seen"),
        ({"mediaType": "text/html\r\nX: 1"}, "/mediaType", "must be a media type, such as text/markdown"),
        ({"mediaType": "text"}, "/mediaType", "must be a media type, such as text/markdown"),
        ({"kind": "x" * 51}, "/kind", "String should have at most 50 characters"),
        ({"kind": ""}, "/kind", "must have 1 to 50 characters"),
        ({"mediaType": "x/" + "y" * 200}, "/mediaType", "String should have at most 200 characters"),
        ({"summary": ""}, "/summary", "must have 1 to 2000 characters"),
        ({"tags": ["x" * 61]}, "/tags/0", "String should have at most 60 characters"),
        ({"parentArtifactIds": ["x"] * 101}, "/parentArtifactIds", "it holds more than 100 entries"),
    ],
)
async def test_names_of_a_record_are_names(
    api: Caller, home: str, parts: dict[str, Any], pointer: str, message: str
) -> None:
    asked = {"threadId": home, "channel": "design", "path": "a.md", **parts}
    body = refused(await api.post("/artifacts", asked), 422, "invalid")
    assert body["errors"] == [{"pointer": pointer, "message": message}]


async def test_values_at_the_limits_are_published(api: Caller, home: str) -> None:
    first = await api.do("/artifacts", {"threadId": home, "channel": "x" * 60, "path": "a.md"})
    parts = {
        "title": "x" * 200,
        "summary": "é" * 2000,
        "kind": "a kind of mine, é",
        "mediaType": 'text/plain; charset="utf-8"',
        "metadata": {"x": "y" * (8192 - 8)},
        "tags": [f"{n}".ljust(60, "x") for n in range(20)],
        "parentArtifactIds": [first["id"]] * 100,
        "replaces": first["id"],
    }
    made = await api.do("/artifacts", {"threadId": home, "channel": "x" * 60, "path": "a.md", **parts})
    parts["parentArtifactIds"] = [first["id"]]
    assert {name: made[name] for name in parts} == parts


async def test_the_description_of_an_upload_round_trips(api: Caller, home: str) -> None:
    """In an address it may be bytes that are no text: they would be replaced in a record that never changes."""
    at = f"/artifacts/design/a.md?threadId={home}"
    for told in ("title=caf%E9", "summary=%ED%A0%80", "tag=x&tag=%FF"):
        refused(await put(api, f"{at}&{told}"), 422, "invalid")
    assert (await api.read("/artifacts"))["items"] == []
    made = good(await put(api, f"{at}&title=caf%C3%A9+%EF%BF%BD&tag=%F0%9F%99%82"))
    assert (made["title"], made["tags"]) == ("café \ufffd", ["🙂"])


async def test_an_upload_is_a_repeat_only_if_all_of_it_matches(api: Caller, home: str) -> None:
    at, params = "/artifacts/design/a.md", {"threadId": home, "title": "A", "tag": "x"}
    first = (await put(api, at, params=params)).json()
    ids = [first["id"]]
    for changed in (
        {"threadId": home, "tag": "x"},
        {"threadId": home, "title": "A"},
        {"threadId": home},
        {**params, "replaces": first["id"]},
        params,
        {**params, "parent": first["id"]},
        {**params, "kind": "report"},
    ):
        answer = await put(api, at, params=changed)
        assert answer.status_code == 201, changed
        ids.append(answer.json()["id"])
        again = await put(api, at, params=changed)
        assert (again.status_code, again.json()["id"]) == (200, ids[-1])
    assert len(set(ids)) == len(ids)


async def test_an_upload_with_a_work_id_belongs_to_that_work(plangate: World, api: Caller, home: str) -> None:
    at, params = "/artifacts/design/a.md", {"threadId": home}
    assert (await put(api, at, params=params)).json()["producer"]["kind"] == "host"
    await api.register(specs.scripted(specs.tool("build")))
    accepted = await api.submit(specs.script(("build", {"n": 1})), threadKey="t")
    (call,) = await api.claim("build")
    mine = {**params, "workId": call["workId"]}
    made = await put(api, at, params=mine)
    assert (made.status_code, made.json()["producer"]["agent"]) == (201, "solo")
    assert (await put(api, at, params=mine)).status_code == 200
    back = await put(api, at, params=params)
    assert (back.status_code, back.json()["producer"]["kind"]) == (201, "host")
    theirs = str((await plangate.other.do("/threads", {}))["id"])
    good(await put(plangate.other, "/artifacts/design/a", params={"threadId": theirs}))
    foreign = (await plangate.other.read("/artifacts"))["items"][0]["producer"]["workId"]
    refused(await put(api, at, params={**params, "workId": foreign}), 404)
    refused(await put(plangate.other, at, params={"threadId": theirs, "workId": call["workId"]}), 404)
    other = str((await api.do("/threads", {"threadKey": "u"}))["id"])
    body = refused(await put(api, at, params={"threadId": other, "workId": call["workId"]}), 422)
    assert body["errors"] == [{"pointer": "/workId", "message": "must be a work record of the thread"}]
    nobody = "wrk_" + "0" * 26
    body = refused(await put(api, at, params={**params, "workId": nobody}), 404)
    assert body["detail"] == f"There is no work record '{nobody}'."
    good(await api.result(call, 1))
    await api.ended(accepted["id"])
    events = await api.events(accepted["id"], "artifact-published")
    assert [e["data"]["id"] for e in events] == [made.json()["id"]]


async def test_an_unknown_parameter_is_rejected(plangate: World, api: Caller, home: str) -> None:
    for name in ("titel", "metadata", "mediaType", "thread_id"):
        body = refused(await put(api, "/artifacts/design/x", params={"threadId": home, name: "x"}), 422)
        assert body["errors"] == [
            {
                "pointer": f"query:{name}",
                "message": "unknown parameter; expected one of: actionIndex, kind, parent, replaces, summary, tag, "
                "threadId, title, workId",
            }
        ]
    assert await plangate.value("SELECT count(*) FROM workspace_versions") == 1


async def test_work_of_an_ended_query_cannot_publish(plangate: World, api: Caller, home: str) -> None:
    await api.register(specs.scripted())
    query = await api.run(specs.script(), threadKey="t")
    work = (await api.read(f"/queries/{query['id']}/work"))["items"]
    told = f"The query {query['id']} is over, so nothing can be added to it: publish as a host, without `workId`."
    for record in work:
        asked = {"threadId": home, "channel": "design", "path": "a.md", "workId": record["id"]}
        assert refused(await api.post("/artifacts", asked), 409, "work_over")["detail"] == told
        asked = {"threadId": home, "workId": record["id"]}
        refused(await put(api, "/artifacts/design/b.md", params=asked), 409, "work_over")
    assert (await api.read("/artifacts"))["items"] == []
    refused(await api.get(f"/threads/{home}/files/artifacts/design/b.md"), 404)
    assert (await api.events(query["id"]))[-1]["type"] == "finish"


async def test_an_upload_for_work_locks_the_query_before_the_workspace(
    plangate: World, api: Caller, home: str, owner: asyncpg.Connection
) -> None:
    """As agents do: otherwise the two could wait for each other."""
    await api.register(specs.scripted(specs.tool("build")))
    accepted = await api.submit(specs.script(("build", {"n": 1})), threadKey="t")
    (call,) = await api.claim("build")
    params = {"threadId": home, "workId": call["workId"]}
    async with owner.transaction():
        await owner.execute("SELECT 1 FROM queries WHERE id = $1 FOR NO KEY UPDATE", accepted["id"])
        upload = asyncio.create_task(put(api, "/artifacts/design/a.md", b"new", params=params))
        waits = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        await eventually(lambda: owner.fetchval(waits), "the upload waits for the query")
        await owner.execute("SELECT 1 FROM workspaces WHERE thread_id = $1 FOR NO KEY UPDATE NOWAIT", home)
    good(await upload)
    good(await api.result(call, 1))
    await api.ended(accepted["id"])


# -- what is in a file


async def test_nul_in_a_file_reaches_no_value(api: Caller, home: str) -> None:
    """Postgres cannot look for it: a query that did so failed."""
    good(await put(api, f"/threads/{home}/files/name", b"x\0"))
    good(await put(api, f"/threads/{home}/files/nul", b"x" * 9000 + b"\0"))
    record = await api.do("/artifacts", {"threadId": home, "channel": "design", "path": "name"})
    toolkits = ["workspace", "artifacts", "variables"]
    await api.register(specs.spec(specs.agent(toolkits=toolkits), interpreter="scripted"))
    query = await api.run(
        specs.script(
            ("artifact_list", {"agent": f"†artifact.{record['id']}.content"}),
            ("read", {"path": "nul", "_outputPath": "†state.read"}),
            ("grep", {"pattern": "x", "_outputPath": "†state.found"}),
            ("edit", {"path": "nul", "old": "\n", "new": ""}),
            ("write", {"path": "copy", "content": "†state"}),
        ),
        threadKey="t",
    )
    first, second, third, fourth, _ = output_of(query)
    assert f"has no value: The artifact {record['id']!r} is not text." in first["error"]
    assert second["error"] == "nul is not text: it has 9001 bytes (application/octet-stream)."
    assert third["result"]["glimpse"] == "[No line matches.]"
    assert fourth["error"] == "nul is not text in UTF-8 and cannot be edited."
