"""The TypeScript client: its own tests, the main job against a real service, and its package in a fresh project."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.programs import nodes, npm_program
from tests.support.service import Service, folder, serving
from tests.support.typescript import COMPILED, PACKAGE, build

RUN_WITHIN_S = 90.0


@pytest.fixture(scope="module", autouse=True)
def client() -> None:
    build()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with folder() as at, serving(at) as running:
        yield running


@pytest.fixture(params=("wheel", "machine"))
def node(request: pytest.FixtureRequest) -> str:
    """The Node of the wheel (24) and that of the machine (20 where CI runs)."""
    found = dict(zip(("wheel", "machine"), nodes(), strict=False))
    if request.param not in found:
        pytest.skip("this machine has no Node of its own")
    return found[request.param]


def run(command: Sequence[str], at: Path, **env: str) -> str:
    done = subprocess.run(
        command,
        cwd=at,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=RUN_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_clients_own_tests_pass(node: str) -> None:
    run([node, "--test", str(COMPILED / "unit.test.mjs")], PACKAGE)


def test_the_main_job_through_the_client(node: str, service: Service) -> None:
    """Register, start, leave the stream and resume it, approve by digest, serve a tool and the actions, read back."""
    env = {"PLANGATE_URL": service.url, "PLANGATE_API_KEY": service.key}
    told: dict[str, Any] = json.loads(run([node, str(COMPILED / "main_job.mjs")], PACKAGE, **env))
    assert told["seqs"] == list(range(1, len(told["seqs"]) + 1))
    assert told["types"][-1] == "finish" and "tool-progress" in told["types"]
    assert told["calls"] == [{"args": {"name": "ann"}, "toolUseId": "scripted-tool-1", "agent": "planner"}]
    assert told["sent"] == [{"to": "ann", "cents": 9007199254740991}]
    assert told["plan"] == "executed" and told["work"] > 5
    headers = {"Authorization": f"Bearer {service.key}"}
    with httpx.Client(base_url=service.url, headers=headers) as api:
        approval = api.get("/approvals", params={"status": "approved"}).json()["items"][0]
        subject = api.get(f"/approvals/{approval['id']}/subject").content
    assert told["digest"] == approval["digest"] == hashlib.sha256(subject).hexdigest()


def test_a_fresh_project_installs_and_type_checks_the_package(tmp_path: Path) -> None:
    """The package needs no other one, and its declarations are complete."""
    node, modules = nodes()[0], npm_program("typescript")[1]
    npm = shutil.which("npm") or str(Path(node).parent / "npm")
    env = {
        "PATH": f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}",
        "npm_config_cache": str(tmp_path / "cache"),
    }
    run([npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", str(tmp_path)], PACKAGE, **env)
    (packed,) = tmp_path.glob("plangate-*.tgz")
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text('{"name": "fresh", "private": true, "type": "module"}')
    run([npm, "install", "--offline", "--silent", "--no-audit", "--no-fund", str(packed)], project, **env)
    assert [path.name for path in (project / "node_modules").iterdir() if not path.name.startswith(".")] == [
        "plangate"
    ]
    (project / "use.ts").write_text(
        "import { connect, type PlangateEvent } from 'plangate';\n"
        "const plangate = connect({ url: 'http://127.0.0.1:8700', key: 'plg_x' });\n"
        "export async function last(id: string): Promise<string | undefined> {\n"
        "  let text: string | undefined;\n"
        "  for await (const event of plangate.stream(id)) if (event.type === 'text') text = event.text;\n"
        "  const wrong: PlangateEvent['type'] = 'text';\n"
        "  return text ?? wrong;\n"
        "}\n"
    )
    checks = [
        "--strict",
        "--noEmit",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--lib",
        "es2022,dom,dom.asynciterable",
    ]
    run([node, str(modules / "typescript/bin/tsc"), *checks, "use.ts"], project)
    assert (
        run([node, "-e", "import('plangate').then((m) => console.log(typeof m.connect))"], project)
        == "function\n"
    )
