"""Both distributions are built as for publication and installed into an empty environment without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.programs import wheels
from tests.support.service import folder, plain_environment

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
SOURCES = (
    *("app", "docs", "docsite", "migrations", "openapi"),
    *("hatch_build.py", "pyproject.toml", "README.md", "LICENSE"),
)
UV = shutil.which("uv") or str(Path(sys.prefix) / "bin" / "uv")


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_sources(to: Path) -> None:
    """Copy what the packages are built from, as a fresh clone has it."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, to)
    shutil.copytree(ROOT / "sdk/python", to / "sdk/python", ignore=ignored)


@pytest.fixture(scope="module")
def environment() -> Iterator[Path]:
    """An environment that holds the two distributions, each built from its sdist, and what they depend on."""
    with folder() as at:
        source, built, sdists = at / "source", at / "built", at / "sdists"
        source.mkdir()
        copy_sources(source)
        for project in (source / "sdk/python", source):
            run(UV, "build", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable, "--sdist",
                "--out-dir", sdists, project)  # fmt: skip
        for sdist in sdists.glob("*.tar.gz"):
            run(UV, "build", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable, "--wheel",
                "--out-dir", built, sdist)  # fmt: skip
        assert {file.name.split("-")[0] for file in built.glob("*.whl")} == {"plangate", "plangate_server"}
        run(UV, "venv", "--quiet", "--python", sys.executable, at / "venv")
        run(UV, "pip", "install", "--quiet", "--offline", "--no-index", "--find-links", wheels(), "--find-links", built,
            "--python", at / "venv/bin/python", "plangate-server")  # fmt: skip
        yield at / "venv"


def test_the_installed_service_answers(environment: Path) -> None:
    with folder() as at:
        process = subprocess.Popen(
            [environment / "bin/plangate", "serve", "--port", "0", "--data-dir", at / "data"],
            cwd=at,
            env=plain_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip().rsplit(" ", 1)[1]
            assert httpx.get(f"{address}/readyz", timeout=10).status_code == 200
            assert "<article" in httpx.get(f"{address}/guides/plans", timeout=10).text
            for name in ("README.md", "docs/operations.md"):
                page = httpx.get(f"{address}/guides/{Path(name).stem.lower()}.md", timeout=10)
                assert page.text.splitlines()[0] == (ROOT / name).read_text("utf-8").splitlines()[0]
            assert "](guides/operations.md)" in httpx.get(f"{address}/llms.txt", timeout=10).text
            assert httpx.get(f"{address}/assets/favicon.svg", timeout=10).status_code == 200
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()


def test_the_installed_library_defines_a_runtime(environment: Path) -> None:
    code = (
        "import plangate, pathlib, sys\n"
        "assert pathlib.Path(plangate.__file__).is_relative_to(sys.prefix)\n"
        "print(plangate.define_specialist(name='helper', prompt='Help.', model='claude-sonnet-4-5').name)\n"
    )
    assert run(environment / "bin/python", "-c", code, cwd=Path("/")) == "helper\n"


def test_extras_are_not_installed_by_default(environment: Path) -> None:
    listed = run(UV, "pip", "list", "--quiet", "--python", environment / "bin/python")
    names = {line.split()[0] for line in listed.splitlines()[2:]}
    assert not names & {"anthropic", "openai", "mcp", "obstore", "opentelemetry-sdk", "pytest", "hatchling"}
