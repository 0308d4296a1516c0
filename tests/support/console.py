"""The bundle of the console: `python -m tests.support.console` checks the committed one, with `--write` it writes it.

`make check` builds the console from its sources, with all types and lint rules, and compares. It is built again only if
its sources, the API document, the TypeScript client or the committed bundle have changed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import typescript
from tests.support.programs import FOLDER, ROOT, nodes, npm_program

SOURCES = ROOT / "console"
BUNDLE = ROOT / "app" / "api" / "pages" / "static" / "console"
STAMP = FOLDER / "console-checked"
ADVICE = "run `make console` and commit app/api/pages/static/console"


def check(write: bool) -> None:
    """Build the console and compare it with the committed bundle, or replace that. Raise SystemExit with what is wrong."""
    with (FOLDER / "console-build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not write and STAMP.exists() and STAMP.read_text() == _digest():
            return
        typescript.build()
        link_packages()
        with tempfile.TemporaryDirectory() as folder:
            built = Path(folder) / "console"
            command = [nodes()[0], "build.mjs", str(built)]
            done = subprocess.run(
                command, cwd=SOURCES, capture_output=True, text=True, timeout=600, check=False
            )
            if done.returncode != 0:
                raise SystemExit(f"console/ cannot be built:\n{done.stdout}{done.stderr}")
            if write:
                _replace(built)
            elif different := _differences(built):
                raise SystemExit(
                    f"The bundle of the console is not what its sources say: {ADVICE}.\n{different}"
                )
        STAMP.write_text(_digest())


def link_packages() -> None:
    """Make the installed packages those of `console/`."""
    modules, link = npm_program("console")[1], SOURCES / "node_modules"
    if link.is_symlink() or not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(modules)


def _replace(built: Path) -> None:
    BUNDLE.mkdir(exist_ok=True)
    for old in BUNDLE.iterdir():
        old.unlink()
    for file in built.iterdir():
        (BUNDLE / file.name).write_bytes(file.read_bytes())


def _differences(built: Path) -> str:
    names = {file.name for folder in (built, BUNDLE) for file in folder.iterdir()}
    return "\n".join(f"  {name}" for name in sorted(names) if _read(built / name) != _read(BUNDLE / name))


def _read(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def _digest() -> str:
    patterns = ("*.json", "*.mjs", "*.js", "src/**/*")
    files = [file for pattern in patterns for file in SOURCES.glob(pattern)]
    files += [*(typescript.PACKAGE / "src").glob("*.ts"), ROOT / "openapi" / "openapi.json"]
    files += [typescript.PACKAGE / "package-lock.json", *BUNDLE.glob("*")]
    hashed = hashlib.sha256()
    for file in sorted(file for file in files if file.is_file()):
        hashed.update(file.name.encode() + b"\0" + file.read_bytes())
    return hashed.hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.support.console")
    parser.add_argument("--write", action="store_true", help="write the bundle in place of comparing it")
    check(parser.parse_args().write)
    sys.exit(0)
