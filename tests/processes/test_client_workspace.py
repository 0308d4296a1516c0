"""A workspace on the user's machine: a real service, and a directory that this process serves."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import plangate
import pytest
from plangate import create_runtime, define_reference, define_runtime, define_specialist, serve_directory

from tests.support.client import eventually
from tests.support.service import Service, folder, serving

PATIENCE_S = 30.0
MIB = 1024 * 1024
Photo = define_reference("Photo", {"base64": str})


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with folder() as at, serving(at) as running:
        yield running


def spec(tenant: str, **parts: Any) -> plangate.DefinedRuntime:
    coder = define_specialist(
        "coder", "m-1", "You write code.", toolkits=["workspace", "artifacts"], references=[Photo]
    )
    return define_runtime(tenant, [coder], interpreter="scripted", **parts)


async def run(runtime: plangate.Runtime, thread: str, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What each call gives: its result, or the error's code and message."""
    script = {"script": [{"tool": name, "args": args} for name, args in calls]}
    out: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in runtime.run_specialist("coder", script, thread):
            if event["type"] == "tool-invocation" and event["state"] == "result":
                out.append(event["result"])
            elif event["type"] == "tool-invocation" and event["state"] == "error":
                out.append((event["error"]["code"], event["error"]["message"]))
    return out


def client(service: Service, tenant: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {service.key}", "Plangate-Tenant": tenant}
    return httpx.AsyncClient(base_url=service.url, headers=headers)


async def test_agents_work_in_a_directory_of_the_user(service: Service, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print('hello')\n")
    (tmp_path / "secret").symlink_to("/etc/passwd")
    workspace = serve_directory(tmp_path)
    async with create_runtime(
        spec("ws-1"), url=service.url, api_key=service.key, workspace=workspace
    ) as runtime:
        assert runtime.spec["workspace"] == {"transport": "client"}
        photo = await runtime.create_reference(Photo, {"base64": base64.b64encode(b"\x89PNG\x00").decode()})
        handle = {"kind": "Photo", "id": photo["id"]}
        results = await run(
            runtime,
            "t",
            ("ls", {}),
            ("read", {"path": "main.py"}),
            ("edit", {"path": "main.py", "old": "hello", "new": "bye"}),
            ("write", {"path": "docs/a.md", "content": "# A\n"}),
            ("write", {"path": "docs/photo.png", "reference": handle}),
            ("grep", {"pattern": "bye"}),
            ("glob", {"pattern": "docs/*"}),
            ("read", {"path": "../x"}),
            ("read", {"path": "secret"}),
            ("read", {"path": "none"}),
            ("write", {"path": "x"}),
        )
    assert results[:7] == [
        "main.py (15 bytes)",
        "print('hello')",
        {"path": "main.py", "sizeBytes": 13},
        {"path": "docs/a.md", "sizeBytes": 4},
        {"path": "docs/photo.png", "sizeBytes": 5},
        "main.py:1: print('bye')",
        "docs/a.md\ndocs/photo.png",
    ]
    assert [code for code, _ in results[7:]] == [
        "path_not_allowed",
        "path_not_allowed",
        "not_found",
        "bad_arguments",
    ]
    assert (tmp_path / "main.py").read_text() == "print('bye')\n"
    assert (tmp_path / "docs/photo.png").read_bytes() == b"\x89PNG\x00"


async def test_publishing_copies_and_a_fork_has_the_copies_only(service: Service, tmp_path: Path) -> None:
    large = b"x" * 3_000_000
    (tmp_path / "out").mkdir()
    (tmp_path / "out/large.bin").write_bytes(large)
    (tmp_path / "out/note.txt").write_text("one")
    (tmp_path / "other.txt").write_text("not published")
    workspace = serve_directory(tmp_path, read_only=True)
    async with create_runtime(
        spec("ws-2"), url=service.url, api_key=service.key, workspace=workspace
    ) as runtime:
        (folder_,) = await run(runtime, "t", ("artifact_publish", {"channel": "patch", "path": "out"}))
        (tmp_path / "out/large.bin").unlink()
        (tmp_path / "out/note.txt").write_text("two")
        again, file, nothing, write = await run(
            runtime,
            "t",
            ("artifact_publish", {"channel": "patch", "path": "out"}),
            ("artifact_publish", {"channel": "patch", "path": "out/note.txt"}),
            ("artifact_publish", {"channel": "patch", "path": "none"}),
            ("write", {"path": "x", "content": "y"}),
        )
        artifacts = runtime.artifacts
        assert await artifacts.read(folder_["id"], "large.bin") == large
        assert await artifacts.read(folder_["id"], "note.txt") == b"one"
        listed = (await artifacts.read(again["id"])).decode()
        assert listed == f"{hashlib.sha256(b'two').hexdigest()}  note.txt\n"
        assert await artifacts.read(file["id"]) == b"two"
        assert nothing[0] == "not_found"
        assert write[0] == "unknown_tool"
        copy = await runtime.fork_thread("t")
        with pytest.raises(plangate.Conflict, match="on a machine of the user"):
            await runtime.files(copy["id"]).list()
        with pytest.raises(plangate.Conflict, match="on a machine of the user"):
            await runtime.artifacts.publish("t", "patch", "other.txt")
        async with client(service, "ws-2") as http:
            thread = (await http.post("/threads", json={"threadKey": "t"})).json()["id"]
            at = f"/threads/{thread}/files"
            for method, path, body in (
                ("GET", at, None),
                ("GET", f"{at}/other.txt", None),
                ("PUT", f"{at}/x", b"x"),
                ("DELETE", f"{at}/out/note.txt", None),
            ):
                answer = await http.request(method, path, content=body)
                assert (answer.status_code, answer.json()["type"]) == (409, "files_elsewhere"), (method, path)
    assert sorted(os.listdir(tmp_path)) == ["other.txt", "out"]
    assert os.listdir(tmp_path / "out") == ["note.txt"]


async def test_a_file_too_large_for_a_call_says_how_to_save_it(service: Service, tmp_path: Path) -> None:
    async with (
        create_runtime(
            spec("ws-12"), url=service.url, api_key=service.key, workspace=serve_directory(tmp_path)
        ) as runtime,
        client(service, "ws-12") as http,
    ):
        await run(runtime, "t", ("ls", {}))
        thread = (await http.post("/threads", json={"threadKey": "t"})).json()["id"]
        ids = [
            (await http.put(f"/artifacts/patch/{name}", params={"threadId": thread}, content=body)).json()[
                "id"
            ]
            for name, body in (("fits", b"x" * 8 * MIB), ("large", b"x" * (8 * MIB + 1)))
        ]
        fits, large = await run(
            runtime, "t", *(("write", {"path": f"{n}.bin", "artifact": id}) for n, id in enumerate(ids))
        )
    assert fits == {"path": "0.bin", "sizeBytes": 8 * MIB}
    assert large == (
        "file_too_large",
        "The file would have 8388609 bytes, and a call carries at most 8388608 to the user's machine; nothing was written. "
        f"Tell the user to save it there from GET /artifacts/{ids[1]}/content, or publish and write its parts.",
    )
    assert os.listdir(tmp_path) == ["0.bin"]


async def test_a_fork_copies_published_files_only(service: Service, tmp_path: Path) -> None:
    (tmp_path / "published.txt").write_text("yes")
    (tmp_path / "other.txt").write_text("no")
    workspace = serve_directory(tmp_path)
    async with create_runtime(
        spec("ws-3"), url=service.url, api_key=service.key, workspace=workspace
    ) as runtime:
        await run(
            runtime,
            "t",
            ("artifact_publish", {"channel": "patch", "path": "published.txt"}),
            ("artifact_publish", {"channel": "No Channel", "path": "other.txt"}),
        )
        copy = await runtime.fork_thread("t")
    # The same name without a workspace of the user: its threads have their files in the service.
    async with create_runtime(spec("ws-3"), url=service.url, api_key=service.key) as runtime:
        assert await run(runtime, copy["id"], ("ls", {})) == ["published.txt (3 bytes)"]


async def test_a_fork_leaves_out_what_was_never_published_from_the_service(
    service: Service, tmp_path: Path
) -> None:
    """The thread began with its files in the service, and its runtime has a workspace of the user since."""
    look = [("glob", {"pattern": "**"}), ("read", {"path": "report.txt"})]
    async with create_runtime(spec("ws-11"), url=service.url, api_key=service.key) as runtime:
        await run(
            runtime,
            "t",
            ("write", {"path": "plain.txt", "content": "plain"}),
            ("write", {"path": "report.txt", "content": "published"}),
            ("artifact_publish", {"channel": "patch", "path": "report.txt"}),
            ("write", {"path": "report.txt", "content": "changed since"}),
            ("write", {"path": "site/index.txt", "content": "index"}),
            ("artifact_publish", {"channel": "patch", "path": "site"}),
            ("write", {"path": "site/later.txt", "content": "later"}),
        )
        before = await runtime.fork_thread("t")
        files, text = await run(runtime, before["id"], *look)
        assert sorted(files.splitlines()) == ["plain.txt", "report.txt", "site/index.txt", "site/later.txt"]
        assert "changed since" in text
    async with create_runtime(
        spec("ws-11"), url=service.url, api_key=service.key, workspace=serve_directory(tmp_path)
    ) as runtime:
        await run(runtime, "t", ("ls", {}))
        copy = await runtime.fork_thread("t")
    async with create_runtime(spec("ws-11"), url=service.url, api_key=service.key) as runtime:
        files, text = await run(runtime, copy["id"], *look)
        assert sorted(files.splitlines()) == ["report.txt", "site/index.txt"]
        assert "published" in text


async def test_a_thread_that_a_host_began_has_its_files_where_its_agents_have_them(
    service: Service, tmp_path: Path
) -> None:
    async with (
        create_runtime(
            spec("ws-9"), url=service.url, api_key=service.key, workspace=serve_directory(tmp_path)
        ) as runtime,
        client(service, "ws-9") as http,
    ):
        thread = (await http.post("/threads", json={"threadKey": "t"})).json()["id"]
        assert (await http.get(f"/threads/{thread}/files")).status_code == 200
        await run(runtime, "t", ("write", {"path": "x", "content": "y"}))
        answer = await http.get(f"/threads/{thread}/files")
        assert (answer.status_code, answer.json()["type"]) == (409, "files_elsewhere")


async def test_a_file_call_waits_for_a_process_that_serves_the_workspace(
    service: Service, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("here")
    away = spec("ws-4", workspace={"transport": "client"})
    async with create_runtime(away, url=service.url, api_key=service.key) as runtime:
        waiting = asyncio.create_task(run(runtime, "t", ("read", {"path": "a.txt"})))
        async with client(service, "ws-4") as http:

            async def waits() -> Any:
                return (await http.get("/queries", params={"status": "waiting"})).json()["items"] or None

            (query,) = await eventually(waits, "the query waits")
            assert query["reason"] == "client_call"
        async with create_runtime(
            away, url=service.url, api_key=service.key, workspace=serve_directory(tmp_path)
        ):
            assert await waiting == ["here"]


async def test_an_unserved_workspace_is_reported_to_the_model(service: Service) -> None:
    away = spec("ws-5", workspace={"transport": "client", "claimWithinMs": 1000})
    async with create_runtime(away, url=service.url, api_key=service.key) as runtime:
        ((code, message),) = await run(runtime, "t", ("ls", {}))
    assert (code, message) == (
        "not_served",
        "No process served the workspace in time, so ls was not carried out.",
    )


async def test_the_key_needs_tools_serve_for_workspace(service: Service, tmp_path: Path) -> None:
    async with client(service, "ws-6") as http:
        for tools, serves in ((["workspace"], True), (["other"], False)):
            body = {
                "principal": f"p-{serves}",
                "scopes": ["read", "runtimes:write", "queries:write", "data:write", "tools:serve"],
                "tools": tools,
            }
            key = (await http.post("/keys", json=body)).json()["key"]
            runtime = create_runtime(
                spec("ws-6"), url=service.url, api_key=key, workspace=serve_directory(tmp_path)
            )
            if serves:
                async with runtime:
                    assert await run(runtime, "t", ("ls", {})) == ["[The workspace is empty.]"]
            else:
                with pytest.raises(plangate.Forbidden, match="This key may not serve workspace"):
                    await runtime


async def test_only_the_holder_of_a_call_copies_files(service: Service, tmp_path: Path) -> None:
    async with create_runtime(
        spec("ws-7", workspace={"transport": "client"}), url=service.url, api_key=service.key
    ) as runtime:
        script = {"tool": "artifact_publish", "args": {"channel": "patch", "path": "a"}}
        events = runtime.run_specialist("coder", script, "t")
        async for event in events:
            if event["type"] == "tool-invocation":
                break
        work_id = event["workId"]
        async with client(service, "ws-7") as http, asyncio.timeout(PATIENCE_S):
            where = f"/tool-calls/{work_id}/files/a"

            async def offered() -> Any:
                answer = await http.put(where, content=b"x")
                return None if answer.status_code == 404 else answer

            answer = await eventually(offered, "the call is offered")
            assert answer.status_code == 409 and "nobody holds the call" in answer.json()["detail"]
            (call,) = (await http.post("/tool-calls/claim", json={"tools": [{"name": "workspace"}]})).json()[
                "calls"
            ]
            assert call["args"] == {"tool": "publish", "args": {"path": "a"}}
            assert (await http.put(where.replace("/a", "/..%2fa"), content=b"x")).status_code in (404, 422)
            assert (await http.put(where, content=b"x")).status_code == 201
            result = {"claimToken": call["claimToken"], "output": {"result": ["a"]}}
            await http.post(f"/tool-calls/{work_id}/result", json=result)
            late = await http.put(where, content=b"y")
            assert late.status_code == 409
            async for event in events:
                if event["type"] == "artifact-published":
                    assert await runtime.artifacts.read(event["data"]["id"]) == b"x"
                    return
    raise AssertionError("nothing was published")


def test_a_tool_is_not_called_workspace() -> None:
    tool = plangate.define_tool("workspace", {}, handler=lambda args, ctx: None)
    coder = define_specialist("coder", "m-1", "You write code.", tools=[tool])
    with pytest.raises(plangate.SpecInvalid, match="choose another name for the tool"):
        define_runtime("acme", [coder], workspace={"transport": "client"})
    assert define_runtime("acme", [coder]).tools[0].name == "workspace"
