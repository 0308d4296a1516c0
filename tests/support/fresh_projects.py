"""Projects of somebody who uses the clients: with the library or the package as they are published, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.programs import ROOT, nodes, npm_program, wheels
from tests.support.typescript import PACKAGE, build

UV = shutil.which("uv") or str(Path(sys.prefix) / "bin" / "uv")
WITHIN_S = 120.0
STRICT = (
    *("--strict", "--noUncheckedIndexedAccess", "--noEmit", "--target", "es2022", "--module", "nodenext"),
    *("--lib", "es2022,dom,dom.asynciterable", "--types", "node", "--typeRoots"),
)


def install_library(at: Path) -> Path:
    """Build the Python library, install it into an empty environment below `at`, and return the Python there."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
    shutil.copytree(ROOT / "sdk/python", at / "source", ignore=ignored)
    built = ("build", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable, "--wheel")
    _run([UV, *built, "--out-dir", str(at / "built"), str(at / "source")], at)
    _run([UV, "venv", "--quiet", "--python", sys.executable, str(at / "fresh")], at)
    python = at / "fresh" / "bin" / "python"
    links = ("--find-links", str(wheels()), "--find-links", str(at / "built"))
    offline = ("--quiet", "--offline", "--no-index", *links)
    _run([UV, "pip", "install", *offline, "--python", str(python), "plangate"], at)
    return python


def install_package(project: Path) -> Path:
    """Pack the TypeScript client, install it into an npm project in a folder, and return the folder."""
    build()
    node = nodes()[0]
    npm = shutil.which("npm") or str(Path(node).parent / "npm")
    env = {
        "PATH": f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}",
        "npm_config_cache": str(project / "npm-cache"),
    }
    packed = ["pack", "--silent", "--ignore-scripts", "--pack-destination", str(project)]
    _run([npm, *packed], PACKAGE, env)
    (archive,) = project.glob("plangate-*.tgz")
    (project / "package.json").write_text('{"name": "fresh", "private": true, "type": "module"}')
    _run([npm, "install", "--offline", "--silent", "--no-audit", "--no-fund", str(archive)], project, env)
    return project


def type_check(project: Path, files: Sequence[str]) -> None:
    """Check programs of an npm project with the strict settings of TypeScript."""
    modules = npm_program("typescript")[1]
    compiler = [nodes()[0], str(modules / "typescript/bin/tsc"), *STRICT, str(modules / "@types")]
    _run([*compiler, *files], project)


def _run(command: Sequence[str], folder: Path, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
