"""The toolkit `workspace`, used by agents."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from app.agents.builtin_tools.workspace import WorkspaceToolLimits, WorkspaceTools
from app.workspace.models import FileRow, WorkspaceLimits
from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.world import World


async def at_work(api: Caller, *calls: tuple[str, dict[str, Any]], key: str = "t") -> list[Any]:
    """What each of an agent's calls gives: the result, or the error's code and message."""
    await api.register(specs.spec(specs.agent(toolkits=["workspace"]), interpreter="scripted"))
    return await at_work_of(api, *calls, key=key)


async def at_work_of(api: Caller, *calls: tuple[str, dict[str, Any]], key: str = "t") -> list[Any]:
    """The same, of the agent that is registered."""
    query = await api.run(specs.script(*calls), threadKey=key)
    events = await api.events(query["id"], "tool-invocation")
    return [
        e["result"] if e["state"] == "result" else (e["error"]["code"], e["error"]["message"])
        for e in events
        if e["state"] != "call"
    ]


async def files(api: Caller, key: str = "t") -> str:
    return f"/threads/{(await api.do('/threads', {'threadKey': key}))['id']}/files"


async def put(api: Caller, path: str, data: bytes) -> None:
    good(await api.request("PUT", path, content=data))


async def test_agents_write_read_and_edit(api: Caller) -> None:
    results = await at_work(
        api,
        ("write", {"path": "./notes/a.md", "content": "one\ntwo\n"}),
        ("read", {"path": "notes/a.md"}),
        ("read", {"path": "notes/a.md", "offset": 2, "limit": 1}),
        ("edit", {"path": "notes/a.md", "old": "two", "new": "three"}),
        ("read", {"path": "notes/a.md"}),
        ("edit", {"path": "notes/a.md", "old": "two", "new": "x"}),
        ("edit", {"path": "notes/a.md", "old": "e", "new": "x"}),
        ("read", {"path": "notes"}),
        ("read", {"path": "nothing"}),
        ("write", {"path": "../x", "content": ""}),
        ("write", {"path": "notes", "content": ""}),
        ("edit", {"path": "notes/a.md", "old": "", "new": "x"}),
        ("read", {"path": "notes/a.md", "limit": 1}),
        ("write", {"path": "long", "content": "x" * 2001}),
        ("read", {"path": "long"}),
    )
    assert results[:5] == [
        {"path": "notes/a.md", "version": 1, "sizeBytes": 8},
        "one\ntwo",
        "two",
        {"path": "notes/a.md", "version": 2, "sizeBytes": 10},
        "one\nthree",
    ]
    assert results[5:11] == [
        (
            "not_found_once",
            "The old text does not occur in notes/a.md: read it, and give the text exactly as it is there.",
        ),
        (
            "not_found_once",
            "The old text occurs 3 times in notes/a.md: give more of what stands around the one you mean.",
        ),
        ("not_found", "'notes' is a directory: list it with the prefix 'notes/'."),
        ("not_found", "There is no file 'nothing' in the workspace."),
        (
            "path_not_allowed",
            "The path '../x' is not allowed: it contains '..', and nothing leads out of the workspace.",
        ),
        (
            "path_not_allowed",
            "The path 'notes' is not allowed: it is a directory, with 'notes/a.md' in it.",
        ),
    ]
    assert results[11][0] == "bad_arguments"
    assert results[12] == "one\n[Lines 1 to 1 of more; continue with offset 2.]"
    assert results[14] == "x" * 2000 + " [line truncated: it has 2001 bytes]"
    at = await files(api)
    row = (await api.read(at, prefix="notes/"))["items"][0]
    assert (row["writtenBy"], row["version"]) == ("solo", 2)
    assert row["workId"].startswith("wrk_")
    assert row["queryId"].startswith("qry_")
    assert (await api.get(f"{at}/notes/a.md")).content == b"one\nthree\n"


async def test_files_are_shared_within_a_thread(api: Caller) -> None:
    await at_work(api, ("write", {"path": "a", "content": "x"}))
    assert await at_work(api, ("read", {"path": "a"})) == ["x"]
    assert (await at_work(api, ("read", {"path": "a"}), key="u"))[0][0] == "not_found"


async def test_listing_and_finding(api: Caller) -> None:
    at = await files(api)
    assert await at_work(
        api,
        ("ls", {}),
        ("ls", {"path": "."}),
        ("glob", {"pattern": "**"}),
        ("grep", {"pattern": "x"}),
        ("grep", {"pattern": "x", "path": "."}),
    ) == [
        "[The workspace is empty.]",
        "[The workspace is empty.]",
        "[No file matches.]",
        "[No line matches.]",
        "[No line matches.]",
    ]
    for path, data in (
        ("README.md", b"# Title\nsee tasks\n"),
        ("tasks/1/a.py", b"import os\nimport re\r\n"),
        ("tasks/1/b.py", b"# os\n"),
        ("tasks/pic.png", b"\x89PNG\0os"),
    ):
        await put(api, f"{at}/{path}", data)
    assert await at_work(
        api,
        ("ls", {}),
        ("ls", {"path": "tasks"}),
        ("ls", {"path": "tasks/1/"}),
        ("ls", {"path": "README.md"}),
        ("glob", {"pattern": "**/*.py"}),
        ("glob", {"pattern": "*"}),
        ("grep", {"pattern": r"\bos\b"}),
        ("grep", {"pattern": "^IMPORT", "ignoreCase": True, "path": "tasks"}),
        ("grep", {"pattern": "t", "glob": "*.md"}),
        ("grep", {"pattern": "see", "path": "README.md"}),
    ) == [
        "README.md (18 bytes)\ntasks/",
        "1/\npic.png (7 bytes)",
        "a.py (21 bytes)\nb.py (5 bytes)",
        "README.md (18 bytes)",
        "tasks/1/a.py\ntasks/1/b.py",
        "README.md",
        "tasks/1/a.py:1: import os\ntasks/1/b.py:1: # os",
        "tasks/1/a.py:1: import os\ntasks/1/a.py:2: import re",
        "README.md:1: # Title\nREADME.md:2: see tasks",
        "README.md:2: see tasks",
    ]
    errors = await at_work(
        api,
        ("ls", {"path": "nothing"}),
        ("ls", {"path": "../"}),
        ("grep", {"pattern": "("}),
        ("grep", {"pattern": "x", "path": "nothing"}),
        ("read", {"path": "tasks/pic.png"}),
    )
    assert [code for code, _ in errors] == [
        "not_found",
        "path_not_allowed",
        "bad_pattern",
        "not_found",
        "not_text",
    ]
    assert errors[4][1] == "tasks/pic.png is not text: it has 7 bytes (image/png)."


@pytest.mark.limits(workspace_tools=WorkspaceToolLimits(list_lines=2, matches=4))
async def test_long_lists_are_truncated(api: Caller) -> None:
    at = await files(api)
    for n in range(5):
        await put(api, f"{at}/f{n}", b"match\n" * 3)
    assert await at_work(api, ("ls", {}), ("glob", {"pattern": "*"}), ("grep", {"pattern": "match"})) == [
        "f0 (18 bytes)\nf1 (18 bytes)\n[3 more: name a directory, or a narrower pattern.]",
        "f0\nf1\n[3 more: name a directory, or a narrower pattern.]",
        "f0:1: match\nf0:2: match\nf0:3: match\nf1:1: match\n"
        "[More lines match than 4: make the pattern or the path narrower.]",
    ]


@pytest.mark.limits(workspace_tools=WorkspaceToolLimits(search_bytes=17))
async def test_large_files_are_not_searched(api: Caller) -> None:
    at = await files(api)
    for n in range(5):
        await put(api, f"{at}/f{n}", b"match\n" * 3)
    assert await at_work(api, ("grep", {"pattern": "match"})) == ["[5 files were too large to be searched.]"]


async def test_output_fits_a_prompt(api: Caller) -> None:
    """Whatever its characters, paths and lines: what has not becomes a reference, which this agent cannot read."""
    at = await files(api)
    folder = "/".join(["f" * 200] * 4)
    for n in range(80):
        await put(api, f"{at}/{folder}/{n:03}", "字 ".encode() * 150 + b"\n")
    await put(api, f"{at}/wide", ("字" * 100 + "\n").encode() * 1000)
    read, glob, grep, ls = await at_work(
        api,
        ("read", {"path": "wide"}),
        ("glob", {"pattern": "**"}),
        ("grep", {"pattern": "字", "path": "f" * 200}),
        ("ls", {"path": folder}),
    )
    assert read.endswith("字\n[Lines 1 to 133 of more; continue with offset 134.]")
    assert glob.endswith("/048\n[32 more: name a directory, or a narrower pattern.]")
    assert grep.endswith("字 \n[More lines match than 28: make the pattern or the path narrower.]")
    assert len(ls.splitlines()) == 80


@pytest.mark.limits(
    workspaces=WorkspaceLimits(file_bytes=10, files=1, bytes=100),
    workspace_tools=WorkspaceToolLimits(edit_bytes=3),
)
async def test_the_model_gets_the_limits_as_errors(api: Caller) -> None:
    results = await at_work(
        api,
        ("write", {"path": "a", "content": "x" * 11}),
        ("write", {"path": "a", "content": "x" * 10}),
        ("write", {"path": "b", "content": ""}),
        ("edit", {"path": "a", "old": "x", "new": "y"}),
    )
    assert [r if isinstance(r, dict) else r[0] for r in results] == [
        "file_too_large",
        {"path": "a", "version": 1, "sizeBytes": 10},
        "workspace_full",
        "file_too_large",
    ]


async def test_concurrent_edits_of_a_file_are_both_kept(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    at = await files(api)
    await put(api, f"{at}/a", b"left right")
    replace = WorkspaceTools._replace
    contents = [b"left RIGHT"]

    async def overtaken(tools: WorkspaceTools, call: Any, row: FileRow, body: Any) -> FileRow:
        if contents:
            await put(api, f"{at}/a", contents.pop())
        return await replace(tools, call, row, body)

    monkeypatch.setattr(WorkspaceTools, "_replace", overtaken)
    edit = ("edit", {"path": "a", "old": "left", "new": "LEFT"})
    assert await at_work(api, edit) == [{"path": "a", "version": 3, "sizeBytes": 10}]
    assert (await api.get(f"{at}/a")).content == b"LEFT RIGHT"
    contents = [bytes([65 + n]) + b" left" for n in range(10)]
    await put(api, f"{at}/a", b"left")
    ((code, message),) = await at_work(api, edit)
    assert (code, message) == (
        "file_changed",
        "a keeps changing because other agents write to it. Read it again.",
    )


async def test_the_prompt_says_where_to_write(api: Caller, plangate: World) -> None:
    await at_work(api, ("write", {"path": "a", "content": "x"}))
    rows = await plangate.sql(
        "SELECT m.input, a.id FROM work_records m JOIN work_records a ON a.tenant_id = m.tenant_id AND a.id = m.parent_id "
        "WHERE m.kind = 'model_call' AND m.position = 1"
    )
    assert f"Write your files under tasks/{rows[0]['id']}/".encode() in rows[0]["input"]
    tools = [{"id": "workspace", "config": {"tools": ["read"]}}]
    await api.register(specs.mock() | {"agents": [specs.agent(toolkits=tools)]})
    query = await api.run()
    inputs = await plangate.sql(
        "SELECT input FROM work_records WHERE query_id = $1 AND kind = 'model_call'", query["id"]
    )
    assert all(b"Workspace" not in row["input"] for row in inputs)


async def test_the_prompt_describes_a_client_workspace(api: Caller, plangate: World) -> None:
    agents = [specs.agent(toolkits=["workspace"])]
    await api.register(specs.mock() | {"agents": agents, "workspace": {"transport": "client"}})
    query = await api.run()
    told = await plangate.value(
        "SELECT input FROM work_records WHERE query_id = $1 AND kind = 'model_call'", query["id"]
    )
    assert b"The workspace is a directory on a machine of the user" in told
    assert b"tasks/wrk_" not in told


async def test_variables_are_written_without_passing_through_the_model(api: Caller) -> None:
    await api.register(specs.spec(specs.agent(toolkits=["workspace", "variables"]), interpreter="scripted"))
    query = await api.run(
        specs.script(
            ("write", {"path": "a", "content": "†input.text"}),
            ("read", {"path": "a", "_outputPath": "†state.copy"}),
        ),
        inputs={"text": "long " * 20},
        threadKey="t",
    )
    assert output_of(query)[0]["result"]["sizeBytes"] == 100
    state = await api.read(f"/threads/{query['threadId']}/state")
    assert state["document"] == {"copy": "long " * 20}


async def test_a_lost_body_is_reported_to_the_model(plangate: World, api: Caller) -> None:
    await at_work(api, ("write", {"path": "a", "content": "x"}))
    await plangate.services.workspaces.blobs.delete(
        "acme", (await plangate.value("SELECT digest FROM workspace_versions"))
    )
    for tool, args in (("read", {}), ("edit", {"old": "x", "new": "y"})):
        ((code, message),) = await at_work(api, (tool, {"path": "a", **args}))
        assert code == "blob_lost"
        assert "is missing" in message


async def test_paths_are_rejected_alike_over_http_and_for_agents(api: Caller) -> None:
    at = await files(api)
    body = refused(await api.request("PUT", f"{at}/a%5Cb", content=b""), 422, "path_not_allowed")
    ((code, message),) = await at_work(api, ("write", {"path": "a\\b", "content": ""}))
    assert (code, message) == (body["type"], body["detail"])


PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


async def test_a_binary_file_is_written_from_an_artifact_or_a_reference(plangate: World, api: Caller) -> None:
    spec = specs.spec(
        specs.agent(toolkits=["workspace", "references"]),
        interpreter="scripted",
        references=[{"name": "Photo", "schema": {}}],
    )
    await api.register(spec)
    thread = (await api.do("/threads", {"threadKey": "elsewhere"}))["id"]
    await put(api, f"/threads/{thread}/files/front.png", PNG)
    artifact = await api.do(
        "/artifacts",
        {"threadId": thread, "channel": "design", "path": "front.png", "mediaType": "image/x-own"},
    )
    handles = [
        await api.do("/references", {"kind": "Photo", "value": value})
        for value in ({"base64": base64.b64encode(PNG).decode()}, "text", {"base64": "?"}, [1, 2])
    ]
    references = [{"kind": "Photo", "id": handle["id"]} for handle in handles]
    results = await at_work_of(
        api,
        ("write", {"path": "a.bin", "artifact": artifact["id"]}),
        ("write", {"path": "b.png", "reference": references[0]}),
        ("write", {"path": "c.txt", "reference": references[1]}),
        ("write", {"path": "d", "reference": references[2]}),
        ("write", {"path": "e.json", "reference": references[3]}),
        ("write", {"path": "f", "artifact": "art_" + "0" * 26}),
        ("write", {"path": "g", "artifact": artifact["id"], "content": "x"}),
        ("write", {"path": "h"}),
    )
    assert [r["sizeBytes"] for r in (*results[:3], results[4])] == [len(PNG), len(PNG), 4, 5]
    code, message = results[3]
    assert (code, message.startswith(f"The value of Photo/{handles[2]['id']} has no valid base64: ")) == (
        "bad_base64",
        True,
    )
    assert [r[0] for r in results[5:]] == ["artifact_not_found", "bad_arguments", "bad_arguments"]
    assert results[6][1] == (
        "The call must have exactly one of content, artifact, reference; it has content and artifact."
    )
    at = await files(api)
    for name, data in (("a.bin", PNG), ("b.png", PNG), ("c.txt", b"text"), ("e.json", b"[1,2]")):
        assert (await api.get(f"{at}/{name}")).content == data
    listed = (await api.read(at))["items"]
    assert [(f["path"], f["mediaType"]) for f in listed] == [
        ("a.bin", "image/x-own"),
        ("b.png", "image/png"),
        ("c.txt", "text/plain"),
        ("e.json", "application/json"),
    ]
    assert {f["writtenBy"] for f in listed} == {"solo"}
    good(await api.delete(f"/threads/{thread}"))
    assert (await api.get(f"{at}/a.bin")).content == PNG


async def test_a_published_directory_is_not_a_file(api: Caller) -> None:
    thread = (await api.do("/threads", {"threadKey": "t"}))["id"]
    await put(api, f"/threads/{thread}/files/notes/a.md", b"a")
    artifact = await api.do("/artifacts", {"threadId": thread, "channel": "design", "path": "notes"})
    ((code, message),) = await at_work(api, ("write", {"path": "b", "artifact": artifact["id"]}))
    assert (code, message) == (
        "not_a_file",
        f"The artifact {artifact['id']} is a directory: a file can be written from a published file only.",
    )


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ({"result": 5}, "bad_result"),
        ({"result": [{}]}, "bad_result"),
        ({"result": []}, "bad_result"),
        ({"error": {"code": "x" * 1000, "message": "y" * 100_000}}, "x" * 99 + "…"),
    ],
)
async def test_a_malformed_answer_to_publishing_deletes_no_copies(
    plangate: World, api: Caller, output: dict[str, Any], code: str
) -> None:
    solo = specs.agent(toolkits=["artifacts"])
    await api.register(specs.scripted(agents=[solo], workspace={"transport": "client"}))
    publish = ("artifact_publish", {"channel": "patch", "path": "d"})
    query = await api.submit(specs.script(publish, publish))
    (call,) = await api.claim("workspace")
    good(await api.request("PUT", f"/tool-calls/{call['workId']}/files/d/a", content=b"a"))
    good(await api.result(call, {"result": ["d/a"]}))
    await api.serve("workspace", output)
    published, _ = output_of(await api.ended(query["id"]))
    assert published["result"]["path"] == "d"
    (error,) = [e["error"] for e in await api.events(query["id"]) if e.get("state") == "error"]
    assert error["code"] == code
    assert len(error["message"]) <= 20_000
    assert await plangate.value("SELECT count(*) FROM workspace_files WHERE path = 'd/a'") == 1
