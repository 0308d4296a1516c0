"""Rules for artifact records, uploads and their metadata."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from app.artifacts import service
from app.artifacts.verify import problems
from app.base.ids import new_id
from tests.postgres.artifacts.test_artifacts import listed, publish, put, team, thread
from tests.postgres.queries.test_deletion import tables_with
from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.world import World


@pytest.fixture
async def home(api: Caller) -> str:
    made = await thread(api)
    await put(api, made, "a.md", b"one")
    return made


# -- what is refused


@pytest.mark.parametrize("part", ["replaces", "parentArtifactIds"])
async def test_a_record_cannot_name_itself_as_parent(
    plangate: World, api: Caller, home: str, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Also where somebody guessed the id that it is about to have."""
    guessed = new_id("art_")
    monkeypatch.setattr(service, "new_id", lambda prefix: guessed if prefix == "art_" else new_id(prefix))
    named: Any = guessed if part == "replaces" else [guessed]
    asked = {"threadId": home, "channel": "design", "path": "a.md", part: named}
    body = refused(await api.post("/artifacts", asked), 422, "invalid")
    pointer = "/replaces" if part == "replaces" else "/parentArtifactIds/0"
    assert body["errors"] == [{"pointer": pointer, "message": f"names no artifact: '{guessed}'"}]
    assert await plangate.value("SELECT count(*) FROM artifacts") == 0
    assert (await publish(api, home, "a.md"))["id"] == guessed


@pytest.mark.parametrize(
    "channel",
    ["-a", "a-", "a b", " a", "a\n", "a/b", "a.b", "ä", "а", "1a", "aB", "analysis,design"],
)
async def test_invalid_channels_are_rejected(api: Caller, home: str, channel: str) -> None:
    asked = {"threadId": home, "channel": channel, "path": "a.md"}
    (flaw,) = refused(await api.post("/artifacts", asked), 422, "invalid")["errors"]
    assert flaw["pointer"] == "/channel"
    assert await listed(api) == []


@pytest.mark.parametrize(
    "channel", ["analysis", "design", "patch", "verification", "handoff", "a", "my-own-1", "x2-3"]
)
async def test_lower_case_words_are_valid_channels(api: Caller, home: str, channel: str) -> None:
    made = await publish(api, home, "a.md", channel)
    uploaded = await api.request("PUT", f"/artifacts/{channel}/b", params={"threadId": home}, content=b"x")
    assert good(uploaded)["path"] == f"artifacts/{channel}/b"
    assert await listed(api, channel=channel) == [uploaded.json()["id"], made["id"]]


async def test_a_kind_must_match_the_target(api: Caller, home: str) -> None:
    await put(api, home, "out/b.txt", b"bb")
    for path, kind, message in (
        ("a.md", "directory", "must not be 'directory': 'a.md' is a file"),
        ("out", "file", "must not be 'file': 'out' is a directory"),
    ):
        asked = {"threadId": home, "channel": "design", "path": path, "kind": kind}
        body = refused(await api.post("/artifacts", asked), 422, "invalid")
        assert body["errors"] == [{"pointer": "/kind", "message": message}]
        assert body["detail"] == f"The artifact was not published: kind {message}."
    upload = await api.request(
        "PUT", "/artifacts/design/a", params={"threadId": home, "kind": "directory"}, content=b"x"
    )
    (flaw,) = refused(upload, 422, "invalid")["errors"]
    assert flaw == {
        "pointer": "/kind",
        "message": "must not be 'directory': 'artifacts/design/a' is a file",
    }
    refused(await api.get(f"/threads/{home}/files/artifacts/design/a"), 404)
    assert await listed(api) == []
    told = await publish(api, home, "out", kind="report")
    assert (told["kind"], told["isDirectory"]) == ("report", True)


async def test_an_upload_gets_a_path_in_the_workspace(api: Caller, home: str) -> None:
    await put(api, home, "artifacts/design/taken/inner", b"x")
    await put(api, home, "artifacts/patch", b"x")
    for at, why in (
        ("design/taken", "it is a directory, with 'artifacts/design/taken/inner' in it"),
        ("patch/a", "'artifacts/patch' is a file, and nothing can be below it"),
    ):
        answer = await api.request("PUT", f"/artifacts/{at}", params={"threadId": home}, content=b"y")
        assert refused(answer, 422, "path_not_allowed")["detail"].endswith(f" is not allowed: {why}.")
    assert await listed(api) == []
    body = refused(
        await api.post("/artifacts", {"threadId": home, "channel": "design", "path": "a.md/b"}), 404
    )
    assert body["detail"] == "There is nothing at 'a.md/b' in the workspace: write it first, then publish it."


async def test_an_upload_keeps_the_media_type_of_its_sender(api: Caller, home: str) -> None:
    for kind, told in (("text/html; charset=utf-8", "text/html"), (None, "text/markdown")):
        headers = {} if kind is None else {"content-type": kind}
        made = await api.request(
            "PUT", "/artifacts/design/a.md", params={"threadId": home}, content=b"x", headers=headers
        )
        assert good(made)["mediaType"] == told


async def test_the_file_of_an_upload_belongs_to_its_sender(plangate: World, api: Caller, home: str) -> None:
    writer = await plangate.key("data:write", principal="cat")
    good(await writer.request("PUT", "/artifacts/design/b", params={"threadId": home}, content=b"x"))
    (row,) = (await api.read(f"/threads/{home}/files", prefix="artifacts/"))["items"]
    assert (row["path"], row["writtenBy"], row["version"]) == ("artifacts/design/b", "cat", 1)


async def test_a_calling_agent_gets_the_fields_that_prompts_need(api: Caller, home: str) -> None:
    """The rest is had by the id."""
    await api.register(team())
    told = {"title": "T", "summary": "S", "tags": ["x"], "metadata": {"long": "x" * 1000}, "kind": "report"}
    make = {"tool": "artifact_publish", "args": {"channel": "design", "path": "a.md", **told}}
    query = await api.run(specs.script(("call_agent", {"agent": "maker", "prompt": make})), threadKey="t")
    (brief,) = output_of(query)[0]["result"]["artifacts"]
    record = await api.read(f"/artifacts/{brief['id']}")
    assert {name: record[name] for name in told} == told
    shown = {"id", "channel", "kind", "path", "title", "summary", "sizeBytes"}
    assert brief == {name: record[name] for name in shown}


async def test_a_file_of_a_directory_is_read_by_its_path(api: Caller, home: str) -> None:
    for path, data in (("out/xx", b"other"), ("out/x", b"outer"), ("out/a/x", b"inner")):
        await put(api, home, path, data)
    record = await publish(api, home, "out")  # its list is by path, in whatever order they came
    id = record["id"]
    assert record["targetChanged"] is False
    for path, data in (("x", b"outer"), ("a/x", b"inner"), ("./a//x", b"inner"), ("xx", b"other")):
        found = await api.request("GET", f"/artifacts/{id}/content", params={"path": path})
        assert (found.status_code, found.content) == (200, data)
    for path in ("a", "out/x", "y"):
        refused(await api.request("GET", f"/artifacts/{id}/content", params={"path": path}), 404)


# -- what never changes


async def test_two_revisions_of_one_record_are_both_active(api: Caller, home: str) -> None:
    """Nobody wins by writing last."""
    first = (await publish(api, home, "a.md"))["id"]
    one, two = [(await publish(api, home, "a.md", replaces=first))["id"] for _ in range(2)]
    for id, other in ((one, two), (two, one)):
        record = await api.read(f"/artifacts/{id}")
        assert (record["status"], record["competesWith"]) == ("active", [other])
    assert (await api.read(f"/artifacts/{first}"))["status"] == "superseded"
    assert await listed(api) == [two, one]


async def test_the_role_of_the_service_changes_no_column_of_a_record(owner: asyncpg.Connection) -> None:
    tables = ("artifacts", "artifact_tags", "artifact_parents", "artifact_uses", "artifact_tombstones")
    columns = await owner.fetch(
        "SELECT table_name, column_name, has_column_privilege('plangate_app', table_name, column_name, 'UPDATE') AS may "
        "FROM information_schema.columns WHERE table_schema = 'public' AND table_name = ANY ($1)",
        [*tables, "artifact_chains"],
    )
    assert {r["table_name"] for r in columns} == {*tables, "artifact_chains"}
    may = {(r["table_name"], r["column_name"]) for r in columns if r["may"]}
    assert may == {("artifact_chains", "n"), ("artifact_chains", "mac")}  # where a chain ends
    for table in (*tables, "artifact_chains"):
        for right in ("DELETE", "TRUNCATE", "TRIGGER"):
            asked = "SELECT has_table_privilege('plangate_app', $1, $2)"
            assert not await owner.fetchval(asked, table, right), (table, right)


async def test_records_are_deleted_only_with_their_thread(
    plangate: World, api: Caller, home: str, owner: asyncpg.Connection
) -> None:
    """The function that removes them looks itself whether the thread is deleted."""
    id = (await publish(api, home, "a.md"))["id"]
    head = await owner.fetchrow("SELECT n, mac FROM artifact_chains")
    forget = "SELECT delete_artifacts($1, $2, $3, $4)"
    assert await plangate.value(forget, home, head["n"], head["mac"], b"seal") is False
    assert (await api.read(f"/artifacts/{id}"))["status"] == "active"
    assert await owner.fetchval("SELECT count(*) FROM artifact_tombstones") == 0


async def test_records_cannot_be_deleted_without_a_tombstone(
    plangate: World, home: str, api: Caller, owner: asyncpg.Connection
) -> None:
    """Whoever has the service's role, and deletes a thread by the functions that the service has for it."""
    await publish(api, home, "a.md")
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        async with plangate.services.db.transaction("acme") as tx:
            await tx.run("SELECT delete_thread($1, 10)", home)
            await tx.run("SELECT purge_thread($1, 1000)", home)
    assert await owner.fetchval("SELECT count(*) FROM artifacts") == 1


async def test_the_key_of_the_chains_is_not_in_the_database(
    plangate: World, api: Caller, home: str, owner: asyncpg.Connection
) -> None:
    await publish(api, home, "a.md")
    mac = await owner.fetchval("SELECT mac FROM artifacts")
    assert (await tables_with(owner, mac.hex())).keys() == {"artifacts", "artifact_chains"}
    for key in (plangate.services.chainer._key, plangate.site.master):
        assert await tables_with(owner, key.hex()) == {}


async def test_artifacts_of_a_canceled_query_remain(plangate: World, api: Caller, home: str) -> None:
    agent = specs.agent(tools=["look"], toolkits=["artifacts"])
    await api.register(specs.scripted(specs.tool("look"), agents=[agent]))
    asked = ("artifact_publish", {"channel": "design", "path": "a.md"})
    query = (await api.submit(specs.script(asked, ("look", {"n": 1})), threadKey="t"))["id"]
    await api.until(query, "waiting", "client_call")
    (id,) = await listed(api, queryId=query)
    before = await api.read(f"/artifacts/{id}")
    await api.do(f"/queries/{query}/cancel")
    assert (await api.read(f"/work-records/{before['producer']['workId']}"))["status"] == "cancelled"
    assert await api.read(f"/artifacts/{id}") == before
    assert await listed(api, queryId=query, status="active") == [id]
    services = plangate.services
    assert [p async for p in problems(services.db, services.chainer, {})] == []


async def test_metadata_reads_back_as_it_wexplicit_values(api: Caller, home: str) -> None:
    given = {
        "z": -0.0,
        "a": [1e300, 5e-324, 2**63 - 1, -(2**63), 9007199254740993, 1.0],
        "text": "CR\rLF\n \u2028 \x01 \U0001f642",
        "": {"nested": [[], {}, None, True]},
    }
    made = await publish(api, home, "a.md", metadata=given)
    for record in (made, await api.read(f"/artifacts/{made['id']}")):
        assert record["metadata"] == given
        assert str(record["metadata"]["z"]) == "-0.0"


async def test_deleting_a_thread_leaves_records_of_other_threads_unchanged(
    plangate: World, api: Caller, home: str
) -> None:
    other = await thread(api, "u")
    await put(api, other, "b", b"theirs")
    one = (await publish(api, other, "b", tags=["x", "y"]))["id"]
    two = (await publish(api, other, "b", tags=["x"], parentArtifactIds=[one]))["id"]
    gone = (await publish(api, home, "a.md", tags=["x"], parentArtifactIds=[one]))["id"]
    three = (await publish(api, other, "b", parentArtifactIds=[gone], replaces=gone))["id"]
    kept = [two, one]
    before = {id: await api.read(f"/artifacts/{id}") for id in (one, two, three)}
    assert await listed(api, tag="x", includeSuperseded=True) == [gone, *kept]
    good(await api.delete(f"/threads/{home}"))
    assert {id: await api.read(f"/artifacts/{id}") for id in before} == before
    assert await listed(api, tag="x", includeSuperseded=True) == kept
    assert await listed(api, tag="y") == [one]
    assert (await api.get(f"/artifacts/{two}/content")).content == b"theirs"

    async def ids(of: str, way: str) -> list[str]:
        return [step["artifact"]["id"] for step in (await api.read(f"/artifacts/{of}/lineage"))[way]]

    assert [await ids(of, "ancestors") for of in (one, two, three)] == [[], [one], []]
    assert [await ids(of, "descendants") for of in (one, two, three)] == [[two], [], []]
    refused(await api.get(f"/artifacts/{gone}"), 404, "artifact_not_found")
    services = plangate.services
    assert [p async for p in problems(services.db, services.chainer, {})] == []


# -- lists


async def test_a_page_has_fifty_records_by_default(api: Caller, home: str) -> None:
    ids = [(await publish(api, home, "a.md"))["id"] for _ in range(51)]
    page = await api.read("/artifacts")
    assert [a["id"] for a in page["items"]] == ids[:0:-1]
    rest = await api.read("/artifacts", cursor=page["nextCursor"])
    assert ([a["id"] for a in rest["items"]], rest["nextCursor"]) == (ids[:1], None)
    assert len((await api.read("/artifacts", limit=500))["items"]) == 51
    for limit in ("0", "501", "x"):
        (flaw,) = refused(await api.get("/artifacts", limit=limit), 422, "invalid")["errors"]
        assert flaw["pointer"] == "query:limit"


async def test_publications_between_pages_do_not_shift_them(api: Caller, home: str) -> None:
    ids = [(await publish(api, home, "a.md"))["id"] for _ in range(4)]
    first = await api.read("/artifacts", limit=2)
    await asyncio.gather(*(publish(api, home, "a.md") for _ in range(3)))
    second = await api.read("/artifacts", limit=2, cursor=first["nextCursor"])
    assert [a["id"] for a in first["items"] + second["items"]] == ids[::-1]
