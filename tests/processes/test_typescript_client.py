"""The TypeScript client: its own tests, the main job against a real service, and its package in a fresh project."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from docsite.api_reference import TYPESCRIPT_SETUP, pages
from tests.support.fresh_projects import install_package, type_check
from tests.support.guides import FENCE, ROOT
from tests.support.main_job import check_report
from tests.support.programs import nodes
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
    report = json.loads(run([node, str(COMPILED / "main_job.mjs")], PACKAGE, **env))
    check_report(report, service)
    assert report["types"].count("custom") == 1


def typescript_of_reference() -> str:
    """Return a module with every TypeScript program of the pages of the HTTP API, each in a function of its own."""
    documented = pages(json.loads((ROOT / "openapi/openapi.json").read_bytes())).items()
    programs = [
        match[3]
        for file, page in documented
        if not file.endswith("README.md")
        for match in FENCE.finditer(page)
        if match[2] == "ts"
    ]
    assert len(programs) > 100
    names = sorted({name for program in programs for name in re.findall(r"= await (\w+)\(\{", program)})
    return "\n".join(
        [
            TYPESCRIPT_SETUP.replace("listApprovals", ", ".join(names)),
            *(f"export async function program{n}() {{\n{text}}}" for n, text in enumerate(programs)),
        ]
    )


@pytest.mark.long
def test_a_fresh_project_installs_and_type_checks_the_package(tmp_path: Path) -> None:
    """The package needs no other one, and its declarations are complete."""
    project = install_package(tmp_path)
    installed = [path.name for path in (project / "node_modules").iterdir() if not path.name.startswith(".")]
    assert installed == ["plangate"]
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
    (project / "reference.ts").write_text(typescript_of_reference(), "utf-8")
    type_check(project, ["use.ts", "reference.ts"])

    assert (
        run([nodes()[0], "-e", "import('plangate').then((m) => console.log(typeof m.connect))"], project)
        == "function\n"
    )
