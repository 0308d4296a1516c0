"""The client that openapi-python-client generates from the API document, unmodified, as somebody would who does not know
this project: `python -m tests.support.openapi_client`.

It is generated and type-checked with its own settings, together with the program that uses it in a test. Both are done
again only if one of their sources has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.programs import FOLDER, PYTHON_LOCKS, ROOT, openapi_client

DOCUMENT: Final = ROOT / "openapi" / "openapi.json"
PROGRAM: Final = ROOT / "tests" / "processes" / "main_jobs" / "with_openapi_client.py"
PROJECT: Final = FOLDER / "generated-openapi-client"
PACKAGE: Final = "plangate_client"
STAMP: Final = PROJECT / ".checked"
WITHIN_S: Final = 300.0


def build() -> Path:
    """Generate and type-check the client if its sources have changed, and return the folder of its project.

    Raises:
        SystemExit: with what the generator leaves out or the type checker reports.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "openapi-client-build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sources = (DOCUMENT, PROGRAM, PYTHON_LOCKS["openapi_client"], Path(__file__))
        digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
        if not STAMP.exists() or STAMP.read_text() != digest:
            _generate()
            shutil.copy(PROGRAM, PROJECT)
            _run("mypy", PACKAGE, PROGRAM.name, folder=PROJECT)
            STAMP.write_text(digest)
    return PROJECT


def _generate() -> None:
    """Generate the client. A warning is an error: the generator warns of everything that it leaves out."""
    output = ("--output-path", str(PROJECT), "--overwrite", "--fail-on-warning")
    _run("openapi-python-client", "generate", "--path", str(DOCUMENT), *output, folder=FOLDER)


def _run(program: str, *arguments: str, folder: Path) -> None:
    programs = openapi_client()
    done = subprocess.run(
        [str(programs / program), *arguments],
        cwd=folder,
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{program} fails on openapi/openapi.json:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    build()
    sys.exit(0)
