"""docs/guides: every program and command, run against a service, and its output."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.endpoint import Answer, endpoint
from tests.support.fresh_projects import install_library, install_package, type_check
from tests.support.guides import FOLDER, Block, Page, entry_points, matches, pages, spec_with
from tests.support.mcp import fake_mcp, text
from tests.support.programs import nodes
from tests.support.service import Service, folder, plain_environment, serving

PATIENCE_S = 100
ELSEWHERE = ("clients", "tutorial")
"""Pages that other tests follow."""
PAGES = [page for page in pages() if page.examples and page.name not in ELSEWHERE]
PARTS = [block for page in pages() for block in page.of("part")]
PLANGATE = Path(sys.executable).parent
SOURCES = Path(tempfile.gettempdir()).resolve() / f"plangate-guides-{os.getpid()}"
"""The files of data sources. The page on data makes the directory."""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """One for all pages, whose operator installed the functions of the page on tools and lets tenants reach loopback."""
    with folder() as at:
        installed = at / "operator"
        install(Page(FOLDER / "tools.md"), installed)
        settings = {
            "PLANGATE_ALLOW_HOSTS": "127.0.0.1",
            "PLANGATE_SOURCE_PATHS": str(SOURCES),
            "PYTHONPATH": str(installed),
        }
        with serving(at, settings) as running:
            yield running
    shutil.rmtree(SOURCES, ignore_errors=True)


def install(page: Page, into: Path) -> None:
    """The distribution that a page describes: its modules, and its entry points."""
    into.mkdir()
    (project,) = page.of("project")
    for module in page.of("installed"):
        assert module.file is not None
        (into / module.file).write_text(module.text, "utf-8")
    info = into / "described-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: described\nVersion: 1.0\n")
    points = [f"{name} = {target}" for name, target in entry_points(project.text).items()]
    (info / "entry_points.txt").write_text("\n".join(["[plangate.tools]", *points, ""]))


def reader(**given: str) -> dict[str, str]:
    """The environment of somebody who follows a page."""
    path = os.pathsep.join([str(PLANGATE), os.environ["PATH"]])
    return {**plain_environment(), "PATH": path, "STOCK_PORT": str(free_port()), **given}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def said(block: Block, at: Path, environment: Mapping[str, str], python: Path | str = sys.executable) -> str:
    """Return what a block prints. It runs in a session of its own, which is killed if it takes too long."""
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    if block.file is not None:
        (at / block.file).write_text(block.text, "utf-8")
        program = nodes()[0] if block.file.endswith(".ts") else str(python)
        command = [program, block.file]
    with subprocess.Popen(
        command,
        cwd=at,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, f"{block.place}\n{out[-2000:]}\n{errors[-4000:]}"
    return out


def run(
    page: Page, at: Path, environment: Mapping[str, str], python: Path | str = sys.executable
) -> list[str]:
    """Run the examples of a page in order, in one directory, and return the places of those that it ran."""
    ran = []
    for example in page.examples:
        out = said(example.block, at, environment, python)
        assert matches(out, example.output), (
            f"{example.block.place} printed:\n{out}\nand not:\n{example.output}"
        )
        ran.append(example.block.place)
    return ran


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An npm project with the TypeScript package, as a reader of the guides has it."""
    return install_package(tmp_path_factory.mktemp("project"))


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("curl"), reason="the commands of the guides need curl")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_guide_programs_print_the_documented_output(
    page: Page, service: Service, project: Path, tmp_path: Path
) -> None:
    for name in ("package.json", "node_modules"):
        (tmp_path / name).symlink_to(project / name)
    settings = {
        "PLANGATE_URL": service.url,
        "PLANGATE_API_KEY": service.key,
        "PLANGATE_SOURCE_PATHS": str(SOURCES),
    }
    ran = run(page, tmp_path, reader(**settings))
    assert ran == [
        block.place for block in page.blocks if block.role in ("program", "typescript", "commands")
    ]


@pytest.mark.long
def test_the_typescript_of_the_guides_type_checks(project: Path) -> None:
    programs = []
    for page in PAGES:
        for block in page.of("typescript"):
            program = project / f"{page.name}_{block.file}"
            program.write_text(block.text, "utf-8")
            programs.append(program.name)
    assert len(programs) >= 12
    type_check(project, programs)


@pytest.mark.long
def test_fresh_projects_follow_the_page_on_clients(service: Service, tmp_path: Path) -> None:
    """A Python environment with the library alone, and an npm project with the package alone, whose programs are also
    type-checked strictly."""
    page = Page(FOLDER / "clients.md")
    with folder() as at:
        python = install_library(at)
        settings = {"PLANGATE_URL": service.url, "PLANGATE_API_KEY": service.key}
        install_package(tmp_path)
        ran = run(page, tmp_path, reader(**settings), python)
    programs = [block.file for block in page.of("typescript") if block.file is not None]
    assert len(programs) == len(page.of("program")) == len(page.of("commands")) == len(ran) // 3
    type_check(tmp_path, programs)


@pytest.mark.long
@pytest.mark.parametrize("name", ["runtime", "tools"])
def test_a_program_runs_without_a_service(name: str, tmp_path: Path) -> None:
    """The library starts one by itself."""
    example = Page(FOLDER / f"{name}.md").examples[0]
    with folder() as at:
        settings = {"PLANGATE_DATA_DIR": str(at / "data"), "PLANGATE_ALLOW_HOSTS": "127.0.0.1"}
        assert matches(said(example.block, tmp_path, reader(**settings)), example.output)


@pytest.mark.parametrize("block", PARTS, ids=lambda block: block.place)
def test_a_part_of_a_spec_is_accepted(block: Block, service: Service) -> None:
    answer = post(service, "/runtimes/validate", spec_with(json.loads(block.text)))
    assert answer["errors"] == []
    assert answer["valid"] is True


def test_the_functions_of_the_operator_run_beside_the_service(service: Service) -> None:
    (part,) = (p for p in PARTS if p.page == "tools.md")
    spec = spec_with(json.loads(part.text))
    (tool,) = spec["tools"]
    spec["agents"][0] |= {"tools": [tool["name"]]}
    spec |= {"name": "ledger", "interpreter": "scripted"}
    post(service, "/runtimes", spec)
    script = json.dumps({"tool": tool["name"], "args": {"cents": 5}})
    query = post(service, "/queries", {"runtime": "ledger", "agent": "helper", "prompt": script})
    ended = httpx.get(
        f"{service.url}/queries/{query['id']}?waitMs=60000", headers=headers(service), timeout=90
    )
    assert json.loads(ended.json()["output"]) == {
        "results": [{"tool": "post_ledger", "result": {"posted": 5, "for": "local", "by": "helper"}}]
    }


def headers(service: Service) -> dict[str, str]:
    return {"Authorization": f"Bearer {service.key}"}


def post(service: Service, path: str, body: Any) -> Any:
    answer = httpx.post(service.url + path, json=body, headers=headers(service), timeout=60)
    assert answer.is_success, answer.text
    return answer.json()


async def test_the_mcp_tool_of_the_guide_is_listed_and_called(
    service: Service,
) -> None:
    (block,) = Page(FOLDER / "tools.md").of("tool")
    tool = json.loads(block.text)
    async with (
        fake_mcp() as server,
        httpx.AsyncClient(base_url=service.url, headers=headers(service), timeout=60) as client,
    ):
        server.tools = [{name: tool[name] for name in ("name", "description", "inputSchema")}]
        server.answer = text("Page 12.")
        tool["transport"]["url"] = server.url
        asked = {name: tool["transport"][name] for name in ("url", "headers")}
        secret = asked["headers"]["Authorization"]["secret"]
        (await client.put(f"/secrets/{secret}", json={"value": "Bearer t"})).raise_for_status()
        (listed,) = (await client.post("/tools/mcp/list", json=asked)).raise_for_status().json()["tools"]
        digest = listed["transport"].pop("definitionDigest")
        assert (listed, len(digest)) == (tool, 64)

        spec = spec_with({"tools": [tool], "name": "handbook", "interpreter": "scripted"})
        spec["agents"][0] |= {"tools": [tool["name"]]}
        (await client.post("/runtimes", json=spec)).raise_for_status()
        script = json.dumps({"tool": tool["name"], "args": {"query": "holidays"}})
        body = {"runtime": "handbook", "agent": "helper", "prompt": script}
        query = (await client.post("/queries", json=body)).raise_for_status().json()
        ended = (await client.get(f"/queries/{query['id']}?waitMs=50000")).json()
        assert json.loads(ended["output"])["results"] == [{"tool": tool["name"], "result": "Page 12."}]
        assert [call["arguments"] for call in server.calls] == [{"query": "holidays"}]
        assert {request.headers["authorization"] for request in server.seen} == {"bearer t"}


@pytest.mark.skipif(not shutil.which("curl"), reason="the commands of the guides need curl")
async def test_an_unknown_action_is_settled_as_documented(service: Service, tmp_path: Path) -> None:
    (block,) = (b for b in Page(FOLDER / "plans.md").of("fragment") if "PLAN is the id" in b.text)
    async with (
        endpoint(Answer(500, b"who knows")) as bank,
        httpx.AsyncClient(base_url=service.url, headers=headers(service), timeout=60) as client,
    ):

        async def do(path: str, body: Any) -> Any:
            return (await client.post(path, json=body)).raise_for_status().json()

        action = {"type": "object", "properties": {"kind": {"const": "pay"}}, "required": ["kind"]}
        actions = {"type": "array", "items": {"oneOf": [action], "discriminator": {"propertyName": "kind"}}}
        plan = {"name": "Payments", "schema": {"type": "object", "properties": {"actions": actions}}}
        boundary = {"kind": "http", "url": bank.url + "/pay"}
        await do("/runtimes", spec_with({"name": "payments", "plans": [plan], "actionDispatcher": boundary}))
        body = {"actions": [{"kind": "pay"}]}
        stored = await do("/plans", {"runtime": "payments", "specName": "Payments", "body": body})
        query = await do(f"/plans/{stored['id']}/execute", {})
        async with client.stream("GET", f"/queries/{query['id']}/stream") as stream:
            async for line in stream.aiter_lines():
                if not line.startswith("data: "):
                    continue
                event = json.loads(line.removeprefix("data: "))
                if event["type"] == "approval-required":
                    gate = event["data"]
                    await do(f"/approvals/{gate['id']}", {"decision": "approve", "digest": gate["digest"]})
                if event["type"] == "query-status" and event.get("reason") == "outcome_unknown":
                    here = reader(PLANGATE_URL=service.url, PLANGATE_API_KEY=service.key, PLAN=stored["id"])
                    settled = json.loads(await asyncio.to_thread(said, block, tmp_path, here))
                    assert (settled["status"], settled["settledBy"]) == ("succeeded", "operator")
        assert event["type"] == "finish"
        assert (await client.get(f"/plans/{stored['id']}")).json()["status"] == "executed"
        assert len(bank.received) == 1
